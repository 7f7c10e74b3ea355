//! The kernels, compiled ahead (`build_kernels.rs`): PTX, which the driver turns into machine code, and
//! machine code where the build had an assembler.

/// An image and the compute capability that it runs on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Image {
    /// Major and minor number; the smallest, unless the image is for one chip.
    pub(super) capability: (i32, i32),
    /// It has instructions of this chip alone, such as warpgroups that multiply from shared memory.
    pub(super) for_one_chip: bool,
    /// PTX that ends in a zero byte, or an ELF file; empty: this build has none.
    pub(super) code: &'static [u8],
}

/// Of one target, with the zero byte that the driver looks for.
macro_rules! ptx {
    ($target:literal) => {
        concat!(
            include_str!(concat!(env!("OUT_DIR"), "/kernels_", $target, ".ptx")),
            "\0"
        )
        .as_bytes()
    };
}

/// Best one first.
const IMAGES: [Image; 4] = [
    Image {
        capability: (9, 0),
        for_one_chip: true,
        code: include_bytes!(concat!(env!("OUT_DIR"), "/kernels_sm_90a.cubin")),
    },
    Image {
        capability: (9, 0),
        for_one_chip: true,
        code: ptx!("sm_90a"),
    },
    Image {
        capability: (9, 0),
        for_one_chip: false,
        code: ptx!("sm_90"),
    },
    Image {
        capability: (8, 0),
        for_one_chip: false,
        code: ptx!("sm_80"),
    },
];

/// The images for a device of this compute capability, best one first: a driver older than the assembler
/// refuses its machine code and takes the next.
pub(super) fn images_for(capability: (i32, i32)) -> impl Iterator<Item = Image> {
    fitting(IMAGES, capability)
}

fn fitting<const N: usize>(
    images: [Image; N],
    capability: (i32, i32),
) -> impl Iterator<Item = Image> {
    images.into_iter().filter(move |image| {
        !image.code.is_empty()
            && match image.for_one_chip {
                true => image.capability == capability,
                false => image.capability <= capability,
            }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELF: &[u8] = b"\x7fELF";

    fn image(capability: (i32, i32), for_one_chip: bool, code: &'static [u8]) -> Image {
        Image {
            capability,
            for_one_chip,
            code,
        }
    }

    #[test]
    fn a_device_is_offered_the_images_that_it_can_run_best_one_first() {
        let images = [
            image((9, 0), true, b"machine code"),
            image((9, 0), true, b"for one chip"),
            image((9, 0), false, b"newer"),
            image((8, 0), false, b"older"),
        ];
        let offered = |capability| -> Vec<&[u8]> {
            fitting(images, capability)
                .map(|image| image.code)
                .collect()
        };
        let all: [&[u8]; 4] = [b"machine code", b"for one chip", b"newer", b"older"];
        assert_eq!(offered((9, 0)), all);
        assert_eq!(offered((12, 1)), all[2..]);
        assert_eq!(offered((8, 9)), all[3..]);
        assert!(offered((7, 5)).is_empty());
    }

    #[test]
    fn an_image_that_the_build_has_not_is_not_offered() {
        let images = [image((9, 0), true, b""), image((9, 0), true, b"PTX")];
        let offered: Vec<_> = fitting(images, (9, 0)).map(|image| image.code).collect();
        assert_eq!(offered, [b"PTX"]);
    }

    #[test]
    fn images_are_for_the_target_that_they_say() {
        for image in &IMAGES[1..] {
            let (major, minor) = image.capability;
            let one = if image.for_one_chip { "a" } else { "" };
            let text = String::from_utf8_lossy(image.code);
            assert!(text.contains(&format!(".target sm_{major}{minor}{one}\n")));
            assert!(text.contains(".entry begin_step"));
            assert_eq!(image.code.last(), Some(&0));
        }
    }

    #[test]
    fn the_receipt_says_whether_there_is_machine_code() {
        let said = crate::version::receipt().images;
        let machine_code = IMAGES[0].code;
        assert_eq!(
            said.contains(&"sm_90a".to_owned()),
            !machine_code.is_empty()
        );
        assert!(machine_code.is_empty() || machine_code.starts_with(ELF));
        assert!(said.contains(&"ptx".to_owned()));
    }
}
