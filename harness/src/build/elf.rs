//! What an ELF file is made of, as far as identity and linking go.

use object::elf::SHF_ALLOC;
use object::{Object as _, ObjectSection as _, SectionFlags};

use crate::hash::sha256_hex;

const BUILD_ID: &str = ".note.gnu.build-id";

/// The parts of an ELF file that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elf {
    /// SHA-256 of what is loaded to run, without build-id and receipt. `None` for a
    /// file without section headers.
    pub(super) code_sha256: Option<String>,
    /// The loader that starts it.
    pub(super) interpreter: Option<String>,
    /// Libraries that it asks for by itself.
    pub(super) needed: Vec<String>,
}

/// Reads `content`; `None` if it is no ELF file or a broken one.
pub(super) fn parse(content: &[u8]) -> Option<Elf> {
    if !content.starts_with(b"\x7fELF") {
        return None;
    }
    let file = object::File::parse(content).ok()?;
    let interpreter = file
        .section_by_name(".interp")
        .and_then(|section| section.data().ok())
        .map(|data| {
            String::from_utf8_lossy(data)
                .trim_end_matches('\0')
                .to_owned()
        });
    let mut needed = Vec::new();
    for library in file.import_libraries().ok()? {
        needed.push(String::from_utf8_lossy(library.ok()?.name()).into_owned());
    }
    Some(Elf {
        code_sha256: code_sha256(&file),
        interpreter,
        needed,
    })
}

/// Hashes every section that is loaded to run, with its name, address and size.
/// Debug information, symbol tables and compiler comments are not loaded. The
/// build-id is a hash over all of the file, and a receipt (`.note.*_receipt`)
/// names the commit: both differ although the code is equal.
fn code_sha256(file: &object::File<'_>) -> Option<String> {
    let mut text = Vec::new();
    text.extend_from_slice(
        format!("{:?} entry {:x}\n", file.architecture(), file.entry()).as_bytes(),
    );
    let mut sections = 0_u32;
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            continue;
        };
        let name = section.name().unwrap_or_default();
        if !sh_flags.contains(SHF_ALLOC) || is_stamp(name) {
            continue;
        }
        let content = section.data().ok()?;
        let line = format!(
            "{name} {:x} {} {}\n",
            section.address(),
            section.size(),
            sha256_hex(content)
        );
        text.extend_from_slice(line.as_bytes());
        sections += 1;
    }
    (sections > 0).then(|| sha256_hex(&text))
}

fn is_stamp(section: &str) -> bool {
    section == BUILD_ID || (section.starts_with(".note.") && section.ends_with("_receipt"))
}
