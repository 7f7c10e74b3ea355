//! Every error of a file is reported at once, each with its line, key, expected
//! and got.

use std::path::Path;

use bench_run::experiment::load::load_bytes;

/// A file that is in order; the tests change one thing of it.
const GOOD: &str = "\
schema: 1
name: x
question: Is it slower?
source: { repo: . }
build: { command: make, artifacts: [out/x] }
arms:
  base: { rev: main }
  next: { rev: next }
nulls: [base]
cells: { matrix: { size: [1, 2] } }
command: '{artifact} --size {size}'
metrics:
  run_s: { json: seconds, better: lower, gate: true }
";

const MANY_ERRORS: &str = "\
schema: 2
name: no spaces please
question: ''
source: { repo: '${REPO' }
biuld: { command: make, artifacts: [out/x] }
arms:
  base: { rev: 1234567890123456789012345678901234567890 }
  main: { rev: 12e5, binary: /bin/true, lable: new }
  bad name: {}
  tree: { rev: worktree, requires: { steps: '> many' } }
base: bsae
nulls: []
cells:
  matrix: { size: [], 2x: [1] }
  list: [{ size: .nan }]
command: '{artifact} --size {sise} \"'
threshold_pct: 2.0
metrics:
  a: { json: x, regex: '(a)(b)', better: bigger, gate: yes }
  b: { better: lower }
  c: { regex: '(', better: lower }
expect:
  json: { n: '=> 3' }
  cells: [{ when: { szie: 1 }, json: { n: 3 } }]
rounds: 2
timeout_secs: 0
retries: -1
pass_env: HOME
env: { 1A: x, OK: 3 }
verdict: { threshold_pct: 0, alpha: 0.5 }
guard: { kind: cdua, idle_secs: 5, max_wait_secs: 4 }
rounds: 7
";

fn errors(text: &str) -> String {
    match load_bytes(Path::new("x.yaml"), text.as_bytes()) {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    }
}

fn warnings(text: &str) -> Vec<String> {
    let loaded = load_bytes(Path::new("x.yaml"), text.as_bytes());
    let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}"));
    loaded.warnings.iter().map(ToString::to_string).collect()
}

/// The errors of the good file with `from` replaced by `to`; it must stand there.
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    errors(&GOOD.replacen(from, to, 1))
}

#[test]
fn all_errors_of_a_file_are_listed() {
    insta::assert_snapshot!(errors(MANY_ERRORS));
}

#[test]
fn the_good_file_has_neither_errors_nor_warnings() {
    assert_eq!(errors(GOOD), "");
    assert_eq!(warnings(GOOD), Vec::<String>::new());
}

#[test]
fn an_unknown_key_names_line_and_nearest_key() {
    assert_eq!(
        changed("command: '{", "comand: '{"),
        "x.yaml:11:1: comand: expected a known key, got the unknown key `comand`; did you mean `command`?"
    );
}

#[test]
fn a_missing_key_says_what_it_is_for() {
    let text = changed("question: Is it slower?\n", "");
    assert_eq!(
        text,
        "x.yaml:1:1: expected the key `question`, got no such key; \
         `question`: The question the experiment answers, in one sentence"
    );
    let text = changed("nulls: [base]\n", "");
    assert!(text.contains("the key `nulls`"), "{text}");
}

#[test]
fn null_arms_are_compulsory_and_the_error_says_why() {
    let text = changed("nulls: [base]", "nulls: []");
    assert!(text.starts_with("x.yaml:9:8: nulls: "), "{text}");
    assert!(text.contains("write `nulls: [base]`"), "{text}");
    assert!(text.contains("told from noise"), "{text}");
}

#[test]
fn no_arm_takes_the_name_of_a_null_arm() {
    for nulls in ["[base]", "all"] {
        let file = GOOD.replace("[base]", nulls);
        let file = file.replace("next: {", "base-null: {");
        let text = errors(&file);
        assert_eq!(
            text,
            "x.yaml:8:3: arms.base-null: expected another name, got the name of the null arm of `base`"
        );
    }
}

#[test]
fn a_revision_that_reads_as_a_number_asks_for_quotes() {
    for rev in ["12345678", "1e5", "0x12", "2024.1"] {
        let text = changed("rev: next", &format!("rev: {rev}"));
        let expected = format!("expected text, got the number {rev}; quote it: '{rev}'");
        assert!(text.contains(&expected), "{text}");
    }
    // A leading zero makes it text.
    assert_eq!(changed("rev: next", "rev: 0123456"), "");
}

#[test]
fn a_working_tree_is_refused_only_where_a_gate_would_decide() {
    let text = changed("rev: next", "rev: worktree");
    assert!(text.contains("x.yaml:8:16: arms.next.rev"), "{text}");
    let ungated = GOOD.replace("rev: next", "rev: worktree");
    let ungated = ungated.replace(", gate: true", "");
    assert_eq!(errors(&ungated), "");
    assert_eq!(warnings(&ungated).len(), 1, "the missing gate is a warning");
}

#[test]
fn a_revision_needs_source_and_build() {
    let text = changed("source: { repo: . }\n", "");
    assert!(text.contains("the key `source`"), "{text}");
    let text = changed("build: { command: make, artifacts: [out/x] }\n", "");
    assert!(text.contains("the key `build`"), "{text}");
    let binaries = GOOD
        .replace("source: { repo: . }\n", "")
        .replace("build: { command: make, artifacts: [out/x] }\n", "")
        .replace("rev: main", "binary: /bin/a")
        .replace("rev: next", "binary: '${NEW}/b'");
    assert_eq!(errors(&binaries), "");
}

#[test]
fn an_artifact_lies_inside_the_checkout() {
    for path in ["../x", "/usr/bin/x", "a/../../x", ".", "''"] {
        let text = changed("[out/x]", &format!("[{path}]"));
        assert!(text.contains("build.artifacts[0]"), "{path}: {text}");
    }
    let text = changed("[out/x]", "[out/x, lib/x]");
    assert!(text.contains("file names that differ"), "{text}");
}

#[test]
fn placeholders_must_be_known_in_every_cell() {
    let text = changed("{size}'", "{siez}'");
    assert!(
        text.contains("got `{siez}`; did you mean `{size}`?"),
        "{text}"
    );
    assert!(text.contains("write `{{siez}}`"), "{text}");
    let text = changed(
        "cells: { matrix: { size: [1, 2] } }",
        "cells: { list: [{ size: 1 }, { sise: 2 }] }",
    );
    assert!(
        text.contains("`{size}`, which cell 2 does not set"),
        "{text}"
    );
    assert_eq!(changed("{artifact}", "{artifact:x}"), "");
    let text = changed("{artifact}", "{artifact:y}");
    assert!(text.contains("did you mean `{artifact:x}`?"), "{text}");
    assert_eq!(changed("--size {size}", "--jq ''{a: 1}'' {size}"), "");
}

#[test]
fn cells_must_differ_and_be_countable() {
    let text = changed("[1, 2]", "[1, '1']");
    assert!(text.contains("cells that differ"), "{text}");
    let text = changed("[1, 2]", &format!("{:?}", (0..1001).collect::<Vec<_>>()));
    assert!(text.contains("at most 1000 cells, got 1001"), "{text}");
    let hundred = format!("{:?}", (0..100).collect::<Vec<_>>());
    let many: String = (0..12).map(|n| format!("v{n}: {hundred}, ")).collect();
    let text = changed("size: [1, 2]", &many);
    assert!(text.contains("more than can be counted"), "{text}");
}

#[test]
fn an_expectation_must_be_about_some_cell() {
    let with = |expect: &str| errors(&format!("{GOOD}expect: {{ cells: [{expect}] }}\n"));
    assert_eq!(with("{ when: { size: 2.0 }, json: { n: 1 } }"), "");
    let text = with("{ when: { size: 3 }, json: { n: 1 } }");
    assert!(text.contains("values that some cell has"), "{text}");
    let text = with("{ when: { siez: 1 }, json: { n: 1 } }");
    assert!(text.contains("did you mean `size`?"), "{text}");
    let text = with("{ when: {}, json: {} }");
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn an_expectation_is_about_arms_that_there_are() {
    let with = |arms: &str| {
        let entry = format!("{{ when: {{ size: 2 }}, arms: {arms}, json: {{ n: 1 }} }}");
        errors(&format!("{GOOD}expect: {{ cells: [{entry}] }}\n"))
    };
    assert_eq!(with("[next]"), "");
    let text = with("[nxt]");
    assert!(text.contains("expect.cells[0].arms[0]"), "{text}");
    assert!(text.contains("did you mean `next`?"), "{text}");
}

#[test]
fn cells_are_skipped_for_a_reason_and_never_all_of_them() {
    let with = |skip: &str| {
        let cells = format!("cells: {{ matrix: {{ size: [1, 2] }}, skip: [{skip}] }}");
        changed("cells: { matrix: { size: [1, 2] } }", &cells)
    };
    assert_eq!(with("{ when: { size: 2 }, reason: too large }"), "");
    let text = with("{ when: { size: 2 }, reason: ' ' }");
    assert!(
        text.contains("cells.skip[0].reason: expected text"),
        "{text}"
    );
    let text = with("{ when: { size: 3 }, reason: too large }");
    assert!(text.contains("values that some cell has"), "{text}");
    let text = with("{ when: { size: 1 }, reason: x }, { when: { size: 2 }, reason: y }");
    assert!(text.contains("at least one cell that is run"), "{text}");
}

#[test]
fn a_shell_operator_is_a_warning() {
    let piped = GOOD.replace("--size {size}'", "--size {size} | tail -1 > out'");
    let warned = warnings(&piped);
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(
        warned[0].contains("got `|`, `>`; no shell runs"),
        "{warned:?}"
    );
}

#[test]
fn a_command_that_ignores_arm_or_cell_is_a_warning() {
    let warned = warnings(&GOOD.replace("{artifact} --size {size}", "/bin/true"));
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(warned[0].contains("its cells would run the same command"));
    assert!(warned[1].contains("every arm would run the same program"));
}

#[test]
fn a_setup_step_either_fills_its_folder_or_prints_a_path() {
    let with = |step: &str| {
        changed(
            "command: '{artifact}",
            &format!("setup: {{ data: {{ {step} }} }}\ncommand: '{{artifact}} {{data}}"),
        )
    };
    assert_eq!(with("command: 'make {out} {size}'"), "");
    assert_eq!(with("command: fetch, prints: path"), "");
    for (step, got) in [
        ("command: make", "got neither"),
        ("command: 'make {out}', prints: path", "got both"),
    ] {
        let text = with(step);
        assert!(text.contains("setup.data: expected either"), "{text}");
        assert!(text.contains(got), "{text}");
    }
    assert!(with("command: 'make {out} {sise}'").contains("did you mean `{size}`"));
    assert!(with("command: 'make {out} {arm}'").contains("got `{arm}`"));
    assert!(with("command: 'make {out}', arm: bsae").contains("did you mean `base`"));
    assert!(with("command: 'make {out}', inputs: [../x]").contains("below the project's root"));
}

#[test]
fn a_setup_step_has_a_name_of_its_own() {
    for name in ["size", "out", "artifact", "2x"] {
        let step = format!("setup: {{ {name}: {{ command: 'make {{out}}' }} }}\n");
        let text = errors(&(GOOD.to_owned() + &step));
        assert!(
            text.contains(&format!("setup.{name}: expected a name")),
            "{text}"
        );
    }
}

#[test]
fn a_setup_step_that_the_command_does_not_use_is_pointed_out() {
    let step = "setup: { data: { command: 'make {out}' } }\n";
    let found = warnings(&(GOOD.to_owned() + step));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a step that the command uses, got `data`"));
}

#[test]
fn a_variable_that_only_a_setup_step_uses_is_used() {
    let text = GOOD.replace(
        "command: '{artifact} --size {size}'",
        "setup: { data: { command: 'make {size} {out}' } }\ncommand: '{artifact} {data}'",
    );
    assert_eq!(warnings(&text), Vec::<String>::new());
}

#[test]
fn a_claim_is_about_a_candidate_a_metric_and_a_change_that_can_be() {
    let with = |claim: &str| errors(&format!("{GOOD}claim: {claim}\n"));
    let good = "{ metric: run_s, change_pct: -50, source: a release note }";
    assert_eq!(with(good), "");
    assert_eq!(with(&format!("[{good}]")), "");
    for (claim, expected) in [
        (
            "{ metric: run, change_pct: -50, source: s }",
            "x.yaml:14:18: claim.metric: expected one of the metrics (`run_s`), got `run`; did you mean `run_s`?",
        ),
        (
            "[{ arm: base, metric: run_s, change_pct: -50, source: s }]",
            "x.yaml:14:16: claim[0].arm: expected an arm beside the base (`next`), got `base`",
        ),
        (
            "{ metric: run_s, change_pct: -100, source: s }",
            "x.yaml:14:37: claim.change_pct: expected a change above −100 % that is not 0, got -100",
        ),
        (
            "{ metric: run_s, when: { size: 3 }, change_pct: 5, source: s }",
            "x.yaml:14:31: claim.when: expected values that some cell has, got none with these; the entry would never apply",
        ),
        (
            "{ metric: run_s, change_pct: 5, source: '' }",
            "x.yaml:14:48: claim.source: expected text, got empty text",
        ),
    ] {
        assert_eq!(with(claim), expected);
    }
    let two = GOOD.replace("  next: {", "  other: { rev: other }\n  next: {");
    let text = errors(&format!("{two}claim: {good}\n"));
    assert!(
        text.contains("claim: expected `arm`, one of `other`, `next`, got a claim about no arm"),
        "{text}"
    );
}

#[test]
fn words_of_an_arm_need_one_place_of_their_own_in_the_command() {
    let arm = |args: &str, command: &str| {
        let text = GOOD.replacen(
            "next: { rev: next }",
            &format!("next: {{ rev: next, args: {args} }}"),
            1,
        );
        errors(&text.replacen("'{artifact} --size {size}'", command, 1))
    };
    assert_eq!(arm("--fast", "'{artifact} {args} --size {size}'"), "");
    let nowhere = arm("--fast", "'{artifact} --size {size}'");
    assert!(nowhere.contains("arms.next.args"), "{nowhere}");
    assert!(
        nowhere.contains("expected a command with `{args}`, got one without"),
        "{nowhere}"
    );
    let joined = arm("--fast", "'{artifact} x{args} --size {size}'");
    assert!(
        joined.contains("expected `{args}` as a word of its own, got `x{args}`"),
        "{joined}"
    );
    let open = arm("\"'x\"", "'{artifact} {args} --size {size}'");
    assert!(open.contains("an unclosed quote"), "{open}");
}
