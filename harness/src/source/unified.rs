//! Plain unified diffs (`diff -u`, mail) in the form that libgit2 reads.
//!
//! libgit2 wants a `diff --git` line before each file; without one it refuses
//! the patch. This adds the lines that are missing and changes nothing else.

/// `patch` with a `diff --git` line in front of every file that has none.
pub(super) fn with_git_headers(patch: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = patch.split_inclusive(|byte| *byte == b'\n').collect();
    let mut output = Vec::with_capacity(patch.len());
    let mut hunk = Hunk::default();
    let mut has_header = false;
    for (number, line) in lines.iter().enumerate() {
        if hunk.takes(line) {
            output.extend_from_slice(line);
            continue;
        }
        if line.starts_with(b"diff --git ") {
            has_header = true;
        } else if let Some(counts) = Hunk::parse(line) {
            hunk = counts;
        } else if line.starts_with(b"--- ") {
            let next = lines.get(number + 1).copied().unwrap_or_default();
            if !has_header && let Some(new) = next.strip_prefix(b"+++ ") {
                output.extend(header(name(&line[4..]), name(new)));
            }
            // The next file needs one of its own.
            has_header = false;
        }
        output.extend_from_slice(line);
    }
    output
}

/// Lines of each side that a hunk still holds, so that a removed line that
/// starts with `-- ` is not taken for a file name.
#[derive(Default)]
struct Hunk {
    old: usize,
    new: usize,
}

impl Hunk {
    /// Reads `@@ -1,3 +1,4 @@`; a missing count is 1.
    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?.strip_prefix("@@ -")?;
        let (old, rest) = text.split_once(" +")?;
        let (new, _) = rest.split_once(" @@")?;
        let count = |side: &str| match side.split_once(',') {
            Some((_, count)) => count.parse().ok(),
            None => Some(1),
        };
        Some(Self {
            old: count(old)?,
            new: count(new)?,
        })
    }

    fn takes(&mut self, line: &[u8]) -> bool {
        if self.old == 0 && self.new == 0 {
            return false;
        }
        match line.first() {
            Some(b'-') => self.old = self.old.saturating_sub(1),
            Some(b'+') => self.new = self.new.saturating_sub(1),
            Some(b'\\') => {}
            _ => {
                self.old = self.old.saturating_sub(1);
                self.new = self.new.saturating_sub(1);
            }
        }
        true
    }
}

/// The file name of a `---` or `+++` line, without the time that `diff -u` adds.
fn name(text: &[u8]) -> &[u8] {
    let end = text
        .iter()
        .position(|byte| matches!(byte, b'\t' | b'\r' | b'\n'));
    &text[..end.unwrap_or(text.len())]
}

fn header(old: &[u8], new: &[u8]) -> Vec<u8> {
    let without = |name: &[u8], prefix: &[u8]| name.strip_prefix(prefix).unwrap_or(name).to_vec();
    let (old_path, new_path) = (without(old, b"a/"), without(new, b"b/"));
    let (created, deleted) = (old == b"/dev/null", new == b"/dev/null");
    let mut line = b"diff --git a/".to_vec();
    line.extend(if created { &new_path } else { &old_path });
    line.extend(b" b/");
    line.extend(if deleted { &old_path } else { &new_path });
    line.push(b'\n');
    if created {
        line.extend(b"new file mode 100644\n");
    }
    if deleted {
        line.extend(b"deleted file mode 100644\n");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(patch: &str) -> String {
        String::from_utf8(with_git_headers(patch.as_bytes())).unwrap()
    }

    #[test]
    fn a_git_patch_stays_as_it_is() {
        let patch =
            "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
        assert_eq!(converted(patch), patch);
    }

    #[test]
    fn plain_files_get_a_header_each_also_created_and_deleted_ones() {
        let patch = "--- a/x\t2024-01-01\n+++ b/x\t2024-01-02\n@@ -1,2 +1,2 @@\n--- a/no\n+++ b/no\n c\n\
                     --- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+n\n--- a/o\n+++ /dev/null\n@@ -1 +0,0 @@\n-o\n";
        let expected = "diff --git a/x b/x\n--- a/x\t2024-01-01\n+++ b/x\t2024-01-02\n@@ -1,2 +1,2 @@\n--- a/no\n+++ b/no\n c\n\
                        diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+n\n\
                        diff --git a/o b/o\ndeleted file mode 100644\n--- a/o\n+++ /dev/null\n@@ -1 +0,0 @@\n-o\n";
        assert_eq!(converted(patch), expected);
    }
}
