//! A short name for a machine, made from its processor: `epyc-2c`, `xeon-platinum-8370c-4c`.

/// Words of a processor's name that tell nothing.
const NOISE: [&str; 18] = [
    "amd",
    "intel",
    "arm",
    "cpu",
    "processor",
    "core",
    "tm",
    "r",
    "with",
    "radeon",
    "graphics",
    "gen",
    "th",
    "w",
    "eng",
    "sample",
    "virtual",
    "qemu",
];
/// More words than this make no label.
const WORDS: usize = 3;
const MAX_LENGTH: usize = 40;

/// The label of a machine with this processor and this many logical processors.
#[must_use]
pub fn from_processor(model: &str, cpus: usize) -> String {
    let before_clock = model.split('@').next().unwrap_or_default();
    let words: Vec<String> = before_clock
        .to_lowercase()
        .replace("(r)", " ")
        .replace("(tm)", " ")
        .split(|character: char| !character.is_ascii_alphanumeric() && character != '-')
        .filter(|word| !word.is_empty() && !NOISE.contains(word) && !word.ends_with("-core"))
        .take(WORDS)
        .map(|word| word.trim_matches('-').to_owned())
        .collect();
    let name = if words.is_empty() {
        "machine".to_owned()
    } else {
        words.join("-")
    };
    format!("{name}-{cpus}c")
}

/// A label that the user gave, made fit for a file name.
#[must_use]
pub fn from_user(text: &str) -> Option<String> {
    let label: String = text
        .trim()
        .chars()
        .map(|character| match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => character,
            _ => '-',
        })
        .take(MAX_LENGTH)
        .collect();
    let label = label.trim_matches(['.', '-']).to_owned();
    (!label.is_empty()).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_keeps_the_telling_words() {
        for (model, cpus, label) in [
            ("AMD EPYC", 2, "epyc-2c"),
            ("AMD EPYC 7B13 64-Core Processor", 8, "epyc-7b13-8c"),
            (
                "Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz",
                4,
                "xeon-platinum-8370c-4c",
            ),
            (
                "AMD Ryzen AI MAX+ 395 w/ Radeon 8060S",
                32,
                "ryzen-ai-max-32c",
            ),
            (
                "12th Gen Intel(R) Core(TM) i7-1270P",
                16,
                "12th-i7-1270p-16c",
            ),
            ("", 4, "machine-4c"),
        ] {
            assert_eq!(from_processor(model, cpus), label, "{model}");
        }
    }

    #[test]
    fn a_users_label_cannot_leave_the_results_directory() {
        assert_eq!(from_user("gfx1151").as_deref(), Some("gfx1151"));
        assert_eq!(from_user("../../etc").as_deref(), Some("etc"));
        assert_eq!(from_user("my host").as_deref(), Some("my-host"));
        assert_eq!(from_user(" .. "), None);
    }
}
