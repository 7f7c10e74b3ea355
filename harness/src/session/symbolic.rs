//! What a program or a build printed, without the folders of this machine.
//!
//! A record may be committed. A compiler's message or a field of the output names files
//! by absolute paths; the roots of those paths are replaced by symbols before anything is
//! stored, so that one failed build does not keep a whole report from being published.

use std::path::PathBuf;

use serde_json::Value;

/// Folders of this machine with the symbols that stand for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roots {
    /// The longest first: a project usually lies below the home folder.
    roots: Vec<(String, &'static str)>,
}

impl Roots {
    /// The roots, in any order. A folder such as `/` stands in every path and is left out.
    #[must_use]
    pub fn new(roots: impl IntoIterator<Item = (PathBuf, &'static str)>) -> Self {
        let mut roots: Vec<(String, &'static str)> = roots
            .into_iter()
            .map(|(path, symbol)| {
                let text = path.to_string_lossy().trim_end_matches('/').to_owned();
                (text, symbol)
            })
            .filter(|(path, _)| path.len() > 1)
            .collect();
        roots.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Roots { roots }
    }

    /// `text` with every root replaced.
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        let replace = |text: String, (path, symbol): &(String, &str)| text.replace(path, symbol);
        self.roots.iter().fold(text.to_owned(), replace)
    }

    /// Replaces the roots in every text of a value.
    pub fn hide_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hide(text),
            Value::Array(list) => list.iter_mut().for_each(|one| self.hide_in(one)),
            Value::Object(map) => map.values_mut().for_each(|one| self.hide_in(one)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_root_gives_the_symbol() {
        let roots = Roots::new([
            ("/home/a".into(), "{home}"),
            ("/home/a/.cache/b".into(), "{cache}"),
            ("/".into(), "{top}"),
        ]);
        assert_eq!(
            roots.hide("make: entering '/home/a/.cache/b/src', /home/a/x, /usr"),
            "make: entering '{cache}/src', {home}/x, /usr"
        );
        let mut value = serde_json::json!({"x": ["/home/a/y", 1]});
        roots.hide_in(&mut value);
        assert_eq!(value, serde_json::json!({"x": ["{home}/y", 1]}));
    }
}
