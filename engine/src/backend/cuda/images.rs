//! The kernels, compiled ahead (`build_kernels.rs`) to PTX, which the driver turns into machine code.

/// An image and the compute capability that it runs on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Image {
    /// Major and minor number; the smallest, unless the image is for one chip.
    pub(super) capability: (i32, i32),
    /// It has instructions of this chip alone, such as warpgroups that multiply from shared memory.
    pub(super) for_one_chip: bool,
    /// PTX, ending in a zero byte.
    pub(super) ptx: &'static str,
}

/// Best one first.
const IMAGES: [Image; 3] = [
    Image {
        capability: (9, 0),
        for_one_chip: true,
        ptx: concat!(
            include_str!(concat!(env!("OUT_DIR"), "/kernels_sm_90a.ptx")),
            "\0"
        ),
    },
    Image {
        capability: (9, 0),
        for_one_chip: false,
        ptx: concat!(
            include_str!(concat!(env!("OUT_DIR"), "/kernels_sm_90.ptx")),
            "\0"
        ),
    },
    Image {
        capability: (8, 0),
        for_one_chip: false,
        ptx: concat!(
            include_str!(concat!(env!("OUT_DIR"), "/kernels_sm_80.ptx")),
            "\0"
        ),
    },
];

/// The image for a device of this compute capability.
pub(super) fn image_for(capability: (i32, i32)) -> Option<Image> {
    IMAGES.into_iter().find(|image| match image.for_one_chip {
        true => image.capability == capability,
        false => image.capability <= capability,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_takes_the_newest_image_that_it_can_run() {
        let chosen =
            |capability| image_for(capability).map(|image| (image.capability, image.for_one_chip));
        assert_eq!(chosen((12, 1)), Some(((9, 0), false)));
        assert_eq!(chosen((9, 0)), Some(((9, 0), true)));
        assert_eq!(chosen((8, 9)), Some(((8, 0), false)));
        assert_eq!(chosen((7, 5)), None);
    }

    #[test]
    fn images_are_for_the_target_that_they_say() {
        for image in IMAGES {
            let (major, minor) = image.capability;
            let one = if image.for_one_chip { "a" } else { "" };
            assert!(
                image
                    .ptx
                    .contains(&format!(".target sm_{major}{minor}{one}\n"))
            );
            assert!(image.ptx.contains(".entry begin_step"));
        }
    }
}
