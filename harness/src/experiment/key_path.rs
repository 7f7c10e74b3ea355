//! Key paths as readers see them: `arms.main.requires`, `cells.list[0].model`.

/// The path of `key` under `parent`; the root is the empty path.
pub(crate) fn child(parent: &str, key: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let key = if !key.is_empty() && key.chars().all(plain) {
        key.to_owned()
    } else {
        format!("\"{}\"", super::diagnostic::printable(key))
    };
    if parent.is_empty() {
        key
    } else {
        format!("{parent}.{key}")
    }
}

/// The path of item `index` (from 0) of the list at `parent`.
pub(crate) fn item(parent: &str, index: usize) -> String {
    format!("{parent}[{index}]")
}

/// Whether `path` is `ancestor` or lies below it.
pub(crate) fn is_within(path: &str, ancestor: &str) -> bool {
    match path.strip_prefix(ancestor) {
        Some(rest) => ancestor.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']),
        None => false,
    }
}
