//! The files that an attempt prints into: made, bounded, and seen to be whole.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use super::interface::ProcessSpec;
use super::sys;

/// What has to fit behind an output that is believed to be whole, in bytes: a block of a disk.
const ROOM_BYTES: u64 = 4096;

/// A new file, which nothing may have the name of.
///
/// # Errors
/// The system's, with the file's name.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| {
            let name = path.file_name().unwrap_or(OsStr::new("?")).display();
            io::Error::new(
                error.kind(),
                format!("cannot create output file {name}: {error}"),
            )
        })
}

/// The size of the larger output file when it is beyond the limit.
pub(super) fn too_large(spec: &ProcessSpec) -> Option<u64> {
    [&spec.stdout, &spec.stderr]
        .into_iter()
        .filter_map(|path| Some(std::fs::metadata(path).ok()?.len()))
        .max()
        .filter(|&size| size > spec.max_output_bytes)
}

/// Keeps the beginning of the output, which tells what went wrong; a record of
/// gigabytes would fill the disk.
pub(super) fn cut(spec: &ProcessSpec) -> io::Result<()> {
    for path in [&spec.stdout, &spec.stderr] {
        let file = OpenOptions::new().write(true).open(path)?;
        if file.metadata()?.len() > spec.max_output_bytes {
            file.set_len(spec.max_output_bytes)?;
        }
    }
    Ok(())
}

/// Looks whether the program could have printed more than it did. A program need not notice
/// that its output was cut short, and half a number is a number too.
///
/// # Errors
/// The disk is full, or an output has reached the largest size that this process may write.
pub(super) fn had_room(spec: &ProcessSpec) -> io::Result<()> {
    let limit = sys::file_size_limit();
    for path in [&spec.stdout, &spec.stderr] {
        let file = OpenOptions::new().write(true).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            continue;
        }
        let size = metadata.len();
        if let Some(limit) = limit.filter(|limit| size >= *limit) {
            let text = format!("has reached the limit of {limit} bytes a file (`ulimit -f`)");
            return Err(cut_short(io::ErrorKind::FileTooLarge, path, &text));
        }
        if let Err(error) = sys::reserve(&file, size, ROOM_BYTES) {
            let text = format!("cannot grow: {error}");
            return Err(cut_short(error.kind(), path, &text));
        }
        // Gives back what was reserved.
        file.set_len(size)?;
    }
    Ok(())
}

fn cut_short(kind: io::ErrorKind, path: &Path, text: &str) -> io::Error {
    let name = path.file_name().unwrap_or(OsStr::new("?")).display();
    let text = format!("output file {name} {text}; it may be cut short, and is not used");
    io::Error::new(kind, text)
}
