//! Which processes are compilers and linkers.

use regex::Regex;

/// Replaces the built-in names: a regular expression over the short name.
pub const COMPILER_VARIABLE: &str = "ROCM_GPU_GUARD_COMPILER_RE";

/// Short names that mean work is being compiled or linked. Build drivers (make, cmake,
/// ninja) are left out: they wait while their compilers work.
const NAMES: [&str; 14] = [
    "cargo", "rustc", "clang", "clang++", "hipcc", "nvcc", "cc1", "cc1plus", "ld", "ld.lld",
    "ld.gold", "ld.bfd", "lld", "collect2",
];

/// Tells compilers by their short name.
#[derive(Debug, Clone, Default)]
pub enum Compilers {
    /// The built-in names.
    #[default]
    Known,
    /// Names that this expression finds.
    Matching(Regex),
}

impl Compilers {
    /// The names that [`COMPILER_VARIABLE`] asks for; empty or unset means the built-in ones.
    ///
    /// # Errors
    /// When the text is no regular expression.
    pub fn from_pattern(pattern: Option<&str>) -> Result<Self, regex::Error> {
        match pattern.filter(|pattern| !pattern.is_empty()) {
            Some(pattern) => Regex::new(pattern).map(Compilers::Matching),
            None => Ok(Compilers::Known),
        }
    }

    /// True when a process of this name compiles or links.
    #[must_use]
    pub fn is_compiler(&self, comm: &str) -> bool {
        match self {
            Compilers::Known => NAMES.contains(&comm) || is_versioned_clang(comm),
            Compilers::Matching(pattern) => pattern.is_match(comm),
        }
    }
}

/// `clang-17` and the like.
fn is_versioned_clang(comm: &str) -> bool {
    comm.strip_prefix("clang-").is_some_and(|version| {
        !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_and_linkers_are_told_by_their_exact_name() {
        let known = Compilers::default();
        for comm in [
            "cargo", "rustc", "clang-17", "cc1plus", "ld.lld", "collect2",
        ] {
            assert!(known.is_compiler(comm), "{comm}");
        }
        for comm in [
            "cargo-watch",
            "make",
            "cmake",
            "ninja",
            "clangd",
            "clang-",
            "clang-format",
            "ldconfig",
            "rust-analyzer",
            "",
        ] {
            assert!(!known.is_compiler(comm), "{comm}");
        }
    }

    #[test]
    fn an_expression_replaces_the_names() {
        let own = Compilers::from_pattern(Some("^(ghc|javac)$")).unwrap();
        assert!(own.is_compiler("ghc") && !own.is_compiler("rustc"));
        assert!(Compilers::from_pattern(Some("(")).is_err());
        assert!(matches!(
            Compilers::from_pattern(Some("")),
            Ok(Compilers::Known)
        ));
    }
}
