//! Whether two builds are the same code, and whether they are linked alike.

use std::collections::BTreeSet;

use crate::record::format::{ArtifactKind, PlannedArtifact, PlannedBuild};

/// In which way two builds are linked differently: kinds, or the set of shared
/// libraries. `None` if they are alike. The same flags give different links when
/// something was installed in between, and then the arms differ by more than
/// their commits.
#[must_use]
pub fn link_difference(one: &PlannedBuild, other: &PlannedBuild) -> Option<String> {
    for (index, left) in one.artifacts.iter().enumerate() {
        // The first is what is measured, whatever it is called: prebuilt programs often
        // differ in name.
        let right = match index {
            0 => other.artifacts.first(),
            _ => other.artifacts.iter().find(|right| right.path == left.path),
        };
        let Some(right) = right else {
            return Some(format!("only one of them has {}", left.path));
        };
        if left.kind != right.kind {
            return Some(format!(
                "{} is {} in one and {} in the other",
                left.path,
                kind_words(left.kind),
                kind_words(right.kind)
            ));
        }
        let (ours, theirs) = (sonames(left), sonames(right));
        let differing: Vec<&str> = ours.symmetric_difference(&theirs).copied().collect();
        if !differing.is_empty() {
            return Some(format!(
                "{} loads {} in only one of them",
                left.path,
                differing.join(", ")
            ));
        }
    }
    None
}

/// True if both run the same code on the same libraries.
#[must_use]
pub fn same_code(one: &PlannedBuild, other: &PlannedBuild) -> bool {
    let libraries = |build: &PlannedBuild| -> BTreeSet<(String, Option<String>)> {
        let all = build
            .artifacts
            .iter()
            .flat_map(|artifact| &artifact.libraries);
        all.filter(|library| {
            // A library that is itself an artifact counts by its code, in `code_sha256`.
            !build
                .artifacts
                .iter()
                .any(|artifact| Some(&artifact.file_sha256) == library.sha256.as_ref())
        })
        .map(|library| (library.soname.clone(), library.sha256.clone()))
        .collect()
    };
    one.code_sha256 == other.code_sha256 && libraries(one) == libraries(other)
}

fn sonames(artifact: &PlannedArtifact) -> BTreeSet<&str> {
    artifact
        .libraries
        .iter()
        .map(|library| library.soname.as_str())
        .collect()
}

fn kind_words(kind: ArtifactKind) -> &'static str {
    match kind {
        ArtifactKind::ElfDynamic => "dynamically linked",
        ArtifactKind::ElfStatic => "statically linked",
        ArtifactKind::Script => "a script",
        ArtifactKind::Directory => "a folder",
        ArtifactKind::Other => "some other file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::format::PlannedLibrary;

    fn build(kind: ArtifactKind, libraries: &[(&str, &str)]) -> PlannedBuild {
        PlannedBuild {
            commit: None,
            dirty: false,
            patch_sha256: None,
            key: String::new(),
            artifacts: vec![PlannedArtifact {
                path: "jq".into(),
                file_sha256: "f".into(),
                code_sha256: "c".into(),
                bytes: 1,
                kind,
                libraries: libraries
                    .iter()
                    .map(|(soname, sha256)| PlannedLibrary {
                        soname: (*soname).into(),
                        sha256: Some((*sha256).into()),
                    })
                    .collect(),
            }],
            code_sha256: "c".into(),
            receipt: None,
        }
    }

    #[test]
    fn differing_kinds_and_libraries_are_named() {
        let one = build(ArtifactKind::ElfDynamic, &[("libonig.so.5", "1")]);
        let two = build(ArtifactKind::ElfDynamic, &[]);
        let fixed = build(ArtifactKind::ElfStatic, &[]);
        assert_eq!(link_difference(&one, &one), None);
        assert_eq!(
            link_difference(&one, &two).unwrap(),
            "jq loads libonig.so.5 in only one of them"
        );
        assert_eq!(
            link_difference(&two, &fixed).unwrap(),
            "jq is dynamically linked in one and statically linked in the other"
        );
    }

    #[test]
    fn two_prebuilt_programs_may_have_other_names() {
        let one = build(ArtifactKind::ElfDynamic, &[("libc.so.6", "1")]);
        let mut two = one.clone();
        two.artifacts[0].path = "jq-1.7".into();
        assert_eq!(link_difference(&one, &two), None);
        two.artifacts[0].libraries.clear();
        assert_eq!(
            link_difference(&one, &two).unwrap(),
            "jq loads libc.so.6 in only one of them"
        );
    }

    #[test]
    fn other_libraries_make_other_code() {
        let one = build(ArtifactKind::ElfDynamic, &[("libonig.so.5", "1")]);
        let two = build(ArtifactKind::ElfDynamic, &[("libonig.so.5", "2")]);
        assert!(same_code(&one, &one));
        assert!(!same_code(&one, &two));
    }
}
