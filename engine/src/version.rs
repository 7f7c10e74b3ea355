//! The receipt: which source and settings this program was built from.
//!
//! It lies in an ELF section of its own, [`SECTION`], as a well-formed note of
//! fixed size. Nothing else in the program depends on its content, so two
//! commits with equal code give equal bytes outside that section, and a
//! program that compares builds can leave it out.

use serde::Serialize;

/// Where the receipt lies in an ELF file.
pub const SECTION: &str = ".note.mlxcel_receipt";

/// Bytes of text, padded with zeros. Six fields of at most 140 bytes and the images fit.
const TEXT_BYTES: usize = 1024;

/// An ELF note: the three words, the padded owner, the text.
#[repr(C, align(4))]
struct Note {
    owner_bytes: u32,
    text_bytes: u32,
    kind: u32,
    owner: [u8; 8],
    text: [u8; TEXT_BYTES],
}

#[expect(
    unsafe_code,
    reason = "naming a section is an unsafe attribute; this one is read by nobody else"
)]
mod note {
    use super::{Note, TEXT_BYTES, padded};

    // SAFETY: the name is our own, so no linker script or runtime gives the
    // section a meaning, and a note section is only ever read.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".note.mlxcel_receipt"))]
    #[used]
    pub(super) static RECEIPT: Note = Note {
        owner_bytes: 7,
        text_bytes: TEXT_BYTES as u32,
        kind: 1,
        owner: *b"mlxcel\0\0",
        text: padded(env!("MLXCEL_RECEIPT")),
    };
}

const fn padded(text: &str) -> [u8; TEXT_BYTES] {
    let bytes = text.as_bytes();
    assert!(
        bytes.len() < TEXT_BYTES,
        "the receipt is too long for its section"
    );
    let mut padded = [0; TEXT_BYTES];
    let mut index = 0;
    while index < bytes.len() {
        padded[index] = bytes[index];
        index += 1;
    }
    padded
}

/// What `--version` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Version of the package.
    pub version: String,
    /// Full commit, `unknown` outside git, or what the builder said.
    pub commit: String,
    /// Did the engine's sources differ from that commit? `None`: unknown.
    pub dirty: Option<bool>,
    /// Enabled cargo features.
    pub features: Vec<String>,
    /// Target triple.
    pub target: String,
    /// Cargo profile.
    pub profile: String,
    /// Forms in which kernels for NVIDIA GPUs are embedded: PTX, which the driver compiles at the
    /// first start on a machine, and chips with machine code of their own.
    pub images: Vec<String>,
}

/// The receipt of the running program.
pub fn receipt() -> Receipt {
    // Opaque to the optimiser: were the text folded into the code, a commit
    // would change more than its section.
    let note = std::hint::black_box(&note::RECEIPT);
    Receipt::parse(&String::from_utf8_lossy(&note.text))
}

impl Receipt {
    fn parse(text: &str) -> Self {
        let text = text.trim_end_matches('\0');
        let field = |name: &str| {
            text.split(' ')
                .filter_map(|field| field.split_once('='))
                .find(|(found, _)| *found == name)
                .map_or("unknown", |(_, value)| value)
        };
        let list = |name| match field(name) {
            "none" | "unknown" => Vec::new(),
            names => names.split(',').map(str::to_owned).collect(),
        };
        Self {
            version: field("version").to_owned(),
            commit: field("commit").to_owned(),
            dirty: field("dirty").parse().ok(),
            features: list("features"),
            target: field("target").to_owned(),
            profile: field("profile").to_owned(),
            images: list("images"),
        }
    }

    /// The line that other programs read:
    /// `<program> <version> commit=<sha> dirty=<true|false|unknown>
    /// features=<a,b|none> target=<triple> profile=<name> images=<a,b|none>`.
    pub fn line(&self, program: &str) -> String {
        let dirty = self
            .dirty
            .map_or("unknown".into(), |dirty| dirty.to_string());
        let joined = |names: &[String]| match names {
            [] => "none".to_owned(),
            names => names.join(","),
        };
        format!(
            "{program} {} commit={} dirty={dirty} features={} target={} profile={} images={}",
            self.version,
            self.commit,
            joined(&self.features),
            self.target,
            self.profile,
            joined(&self.images),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receipt_of_this_build_names_version_target_and_profile() {
        let receipt = receipt();
        assert_eq!(receipt.version, env!("CARGO_PKG_VERSION"));
        assert!(receipt.target.contains('-'), "{receipt:?}");
        assert!(!receipt.profile.is_empty() && receipt.profile != "unknown");
    }

    #[test]
    fn a_line_and_its_parts_say_the_same() {
        let text = "version=1.2.3 commit=abc dirty=true features=cuda,rocm target=t-u profile=dev images=ptx,sm_90a";
        let receipt = Receipt::parse(&format!("{text}\0\0\0"));
        assert_eq!(receipt.dirty, Some(true));
        assert_eq!(receipt.features, ["cuda", "rocm"]);
        assert_eq!(receipt.images, ["ptx", "sm_90a"]);
        assert_eq!(
            receipt.line("mlxcel"),
            "mlxcel 1.2.3 commit=abc dirty=true features=cuda,rocm target=t-u profile=dev images=ptx,sm_90a"
        );
    }

    #[test]
    fn what_is_unknown_stays_unknown() {
        let receipt = Receipt::parse("version=1 commit=unknown dirty=unknown features=none");
        assert_eq!(receipt.dirty, None);
        assert!(
            receipt
                .line("p")
                .contains("commit=unknown dirty=unknown features=none target=unknown")
        );
    }
}
