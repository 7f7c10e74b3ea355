//! The kernels, compiled ahead (`build_kernels.rs`) to PTX, which the driver turns into machine code.

/// An image and the smallest compute capability that it runs on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Image {
    /// Major and minor number.
    pub(super) capability: (i32, i32),
    /// PTX, ending in a zero byte.
    pub(super) ptx: &'static str,
}

/// Best one first.
const IMAGES: [Image; 2] = [
    Image {
        capability: (9, 0),
        ptx: concat!(
            include_str!(concat!(env!("OUT_DIR"), "/kernels_sm_90.ptx")),
            "\0"
        ),
    },
    Image {
        capability: (8, 0),
        ptx: concat!(
            include_str!(concat!(env!("OUT_DIR"), "/kernels_sm_80.ptx")),
            "\0"
        ),
    },
];

/// The image for a device of this compute capability.
pub(super) fn image_for(capability: (i32, i32)) -> Option<Image> {
    IMAGES
        .into_iter()
        .find(|image| image.capability <= capability)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_takes_the_newest_image_that_it_can_run() {
        let chosen = |capability| image_for(capability).map(|image| image.capability);
        assert_eq!(chosen((12, 1)), Some((9, 0)));
        assert_eq!(chosen((9, 0)), Some((9, 0)));
        assert_eq!(chosen((8, 9)), Some((8, 0)));
        assert_eq!(chosen((7, 5)), None);
    }

    #[test]
    fn images_are_for_the_target_that_they_say() {
        for image in IMAGES {
            let (major, minor) = image.capability;
            assert!(image.ptx.contains(&format!(".target sm_{major}{minor}")));
            assert!(image.ptx.contains(".entry begin_step"));
        }
    }
}
