//! Colours that all kinds of colour vision tell apart (Okabe and Ito, "Color
//! Universal Design", 2008); arms differ by marker and label as well.

use plotters::style::RGBColor;

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
/// Secondary text.
pub(super) const MUTED: RGBColor = RGBColor(0x57, 0x60, 0x6a);
/// Grid lines.
pub(super) const GRID: RGBColor = RGBColor(0xe7, 0xea, 0xed);
/// Frames and the line at no change.
pub(super) const FRAME: RGBColor = RGBColor(0x8c, 0x95, 0x9f);
/// What identical programs differ by.
pub(super) const NULL_BAND: RGBColor = RGBColor(0xdd, 0xe1, 0xe6);
/// The gate.
pub(super) const GATE: RGBColor = RGBColor(0xa4, 0x0e, 0x26);
/// Verdicts that leave nothing to do.
pub(super) const GOOD: RGBColor = RGBColor(0x05, 0x50, 0xae);
/// Verdicts that leave the question open.
pub(super) const OPEN: RGBColor = RGBColor(0x7a, 0x4e, 0x00);
/// The page.
pub(super) const PAGE: RGBColor = RGBColor(0xff, 0xff, 0xff);

const BASE: RGBColor = RGBColor(0x3d, 0x44, 0x4d);
const CANDIDATES: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// How an arm is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// Its colour; a null arm has that of the arm it repeats.
    pub(super) colour: RGBColor,
    /// A null arm is a ring, an arm of its own a disc.
    pub(super) ring: bool,
}

/// One look per arm, in the plan's order; `arms` are (name, null of).
pub(super) fn looks(arms: &[(&str, Option<&str>)], base: &str) -> Vec<Look> {
    let own: Vec<&str> = arms
        .iter()
        .filter(|(name, null_of)| null_of.is_none() && *name != base)
        .map(|(name, _)| *name)
        .collect();
    arms.iter()
        .map(|(name, null_of)| {
            let wanted = null_of.unwrap_or(name);
            let place = own.iter().position(|candidate| *candidate == wanted);
            Look {
                colour: place.map_or(BASE, |place| CANDIDATES[place % CANDIDATES.len()]),
                ring: null_of.is_some(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_arm_has_the_colour_of_its_arm_and_another_marker() {
        let arms = [
            ("base", None),
            ("base-null", Some("base")),
            ("main", None),
            ("main-null", Some("main")),
        ];
        let looks = looks(&arms, "base");
        assert_eq!(looks[0].colour, looks[1].colour);
        assert_eq!(looks[2].colour, looks[3].colour);
        assert_ne!(looks[0].colour, looks[2].colour);
        assert_eq!(
            [false, true, false, true],
            [0, 1, 2, 3].map(|i| looks[i].ring)
        );
    }
}
