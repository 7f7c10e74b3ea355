//! `mlxcel generate`, run as a user runs it, on random weights with the tokenizers of the fixtures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Folders that all tests share: the same tiny model with each tokenizer and with none.
fn models() -> &'static Path {
    static MODELS: OnceLock<TempDir> = OnceLock::new();
    let dir = MODELS.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        for name in ["bytelevel", "sentencepiece", "none"] {
            let folder = dir.path().join(name);
            let status = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
                .args(["synth", "tiny-gemma3"])
                .arg(&folder)
                .stdout(Stdio::null())
                .status()
                .unwrap();
            assert!(status.success());
            let files = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/fixtures/tokenizers")
                .join(name);
            for entry in std::fs::read_dir(files).into_iter().flatten() {
                let path = entry.unwrap().path();
                std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
            }
        }
        dir
    });
    dir.path()
}

fn command(model: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
    command
        .arg("generate")
        .arg("-m")
        .arg(model)
        .args(["--arithmetic", "float32", "--ignore-eos"])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

fn generate(name: &str, arguments: &[&str]) -> Output {
    command(&models().join(name), &[&["-n", "40"], arguments].concat())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(name: &str, arguments: &[&str]) -> Value {
    let output = generate(name, &[arguments, &["--json"]].concat());
    serde_json::from_str(&text(&output)).unwrap()
}

const RAW: &[&str] = &["--raw", "-p", "The road leaves the harbour"];

#[test]
fn the_stream_is_the_text_of_the_report() {
    for name in ["bytelevel", "sentencepiece"] {
        let report = json(name, RAW);
        let streamed = text(&generate(name, RAW));
        assert_eq!(
            streamed.trim_end_matches('\n'),
            report["text"].as_str().unwrap().trim_end_matches('\n')
        );
        assert_eq!(report["generated_tokens"], 40);
        assert_eq!(report["ids"].as_array().unwrap().len(), 40);
        assert_eq!(report["ending"], "max_tokens");
    }
}

#[test]
fn a_seed_decides_what_is_drawn() {
    let draw = |seed: &str| {
        json(
            "bytelevel",
            &[RAW, &["--temperature", "1", "--seed", seed]].concat(),
        )
    };
    assert_eq!(draw("7")["ids"], draw("7")["ids"]);
    assert_ne!(draw("7")["ids"], draw("8")["ids"]);
    let greedy = json("bytelevel", RAW);
    let narrow = json(
        "bytelevel",
        &[RAW, &["--temperature", "1", "--top-p", "1e-6"]].concat(),
    );
    assert_eq!(
        narrow["ids"], greedy["ids"],
        "the smallest set is the likeliest token"
    );
}

#[test]
fn a_stop_string_ends_the_text_wherever_tokens_begin() {
    let whole = json("bytelevel", RAW);
    let whole = whole["text"].as_str().unwrap();
    let characters: Vec<(usize, char)> = whole.char_indices().collect();
    // Strings of five characters from all over the text: most cross a token's end.
    for start in (0..characters.len().saturating_sub(5)).step_by(3) {
        let stop = &whole[characters[start].0..characters[start + 5].0];
        let report = json(
            "bytelevel",
            &[RAW, &["--stop", "\u{1}", "--stop", stop]].concat(),
        );
        let wanted = &whole[..whole.find(stop).unwrap()];
        assert_eq!(report["text"], wanted, "{stop:?}");
        assert_eq!(report["ending"], json!({"stop_string": stop}));
        assert!(report["generated_tokens"].as_u64().unwrap() <= 40);
    }
}

#[test]
fn an_end_token_ends_the_text_and_is_not_part_of_it() {
    let ids = json("bytelevel", RAW)["ids"].clone();
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m");
    copy_folder(&models().join("bytelevel"), &model);
    let end = ids[5].clone();
    let first = ids
        .as_array()
        .unwrap()
        .iter()
        .position(|id| *id == end)
        .unwrap();
    std::fs::write(
        model.join("generation_config.json"),
        json!({"eos_token_id": [end]}).to_string(),
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .arg("generate")
        .arg("-m")
        .arg(&model)
        .args(["--arithmetic", "float32", "-n", "40", "--json"])
        .args(RAW)
        .output()
        .unwrap();
    let report: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(report["ending"], "end_token");
    assert_eq!(report["generated_tokens"], first + 1);
    let longer = json("bytelevel", RAW);
    assert!(
        longer["text"]
            .as_str()
            .unwrap()
            .starts_with(report["text"].as_str().unwrap())
    );
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn a_question_goes_into_the_template_unless_raw() {
    let question = &["-p", "Where is the mill?"];
    let chat = json("bytelevel", question);
    let raw = json("bytelevel", &[question as &[&str], &["--raw"]].concat());
    let system = json(
        "bytelevel",
        &[question as &[&str], &["--system", "Be brief."]].concat(),
    );
    let tokens = |report: &Value| report["prompt_tokens"].as_u64().unwrap();
    assert!(tokens(&chat) > tokens(&raw));
    assert_ne!(
        tokens(&system),
        tokens(&chat),
        "the template's own system text is replaced"
    );
    assert_eq!(
        chat["ids"],
        json("bytelevel", &[question as &[&str], &["--chat"]].concat())["ids"]
    );
}

#[test]
fn the_prompt_may_come_from_standard_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .arg("generate")
        .arg("-m")
        .arg(models().join("bytelevel"))
        .args([
            "--arithmetic",
            "float32",
            "-n",
            "40",
            "--ignore-eos",
            "--raw",
            "--json",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"The road leaves the harbour\n").unwrap();
    drop(input);
    let report: Value = serde_json::from_str(&text(&child.wait_with_output().unwrap())).unwrap();
    assert_eq!(report["ids"], json("bytelevel", RAW)["ids"]);
}

#[test]
fn the_context_limits_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m");
    copy_folder(&models().join("bytelevel"), &model);
    // Without its manifest the folder is an ordinary one and may be changed.
    let path = model.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let prompt = json("bytelevel", RAW)["prompt_tokens"].as_u64().unwrap();
    config["max_position_embeddings"] = json!(prompt + 4);
    let run = |config: &Value| {
        std::fs::write(&path, config.to_string()).unwrap();
        let _ = std::fs::remove_file(model.join("synthetic.json"));
        Command::new(env!("CARGO_BIN_EXE_mlxcel"))
            .arg("generate")
            .arg("-m")
            .arg(&model)
            .args([
                "--arithmetic",
                "float32",
                "-n",
                "40",
                "--ignore-eos",
                "--json",
            ])
            .args(RAW)
            .output()
            .unwrap()
    };
    let report: Value = serde_json::from_str(&text(&run(&config))).unwrap();
    assert_eq!(report["ending"], "context");
    assert_eq!(report["generated_tokens"], 5);
    config["max_position_embeddings"] = json!(prompt - 1);
    let output = run(&config);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("but the model was made for"), "{error}");
}

#[test]
fn statistics_go_to_standard_error() {
    let output = generate("bytelevel", &[RAW, &["--stats"]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.starts_with("Prompt: ") && error.contains("\nGeneration: 40 tokens, "),
        "{error}"
    );
    assert!(error.ends_with("\nDecode path: engine\n"), "{error}");
}

#[test]
fn the_loop_is_chosen_and_reported() {
    let engine = json("bytelevel", RAW);
    assert_eq!(engine["decode_path"], "engine");
    assert_eq!(engine["sync_reason"], Value::Null);
    let generator = json("bytelevel", &[RAW, &["--loop", "generator"]].concat());
    assert_eq!(generator["decode_path"], "generator");
    assert_eq!(generator["ids"], engine["ids"]);
    let bytelevel = models().join("bytelevel");
    let output = command(&bytelevel, &[RAW, &["-n", "40", "--json"]].concat())
        .env("MLXCEL_FORCE_SYNC", "1")
        .output()
        .unwrap();
    let forced: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(forced["sync_reason"], "forced_sync");
    assert_eq!(forced["ids"], engine["ids"]);
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_text_and_the_report_is_still_written() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m");
    copy_folder(&models().join("bytelevel"), &model);
    // A context that nobody waits for; without its manifest the folder may be changed.
    std::fs::remove_file(model.join("synthetic.json")).unwrap();
    let path = model.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["max_position_embeddings"] = json!(1_000_000);
    std::fs::write(&path, config.to_string()).unwrap();
    let mut child = command(&model, &[RAW, &["-n", "1000000", "--stats"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("Generation: "), "{error}");
}

#[test]
fn what_cannot_work_is_said_in_one_line() {
    for (name, arguments, part) in [
        ("none", RAW, "no tokenizer.json"),
        ("bytelevel", &["--raw"], "the prompt is empty"),
        ("bytelevel", &["-p", ""], "the prompt is empty"),
    ] {
        let output = generate(name, arguments);
        assert_eq!(output.status.code(), Some(1), "{name} {arguments:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            error.contains(part) && error.lines().count() == 1,
            "{error}"
        );
    }
    assert_eq!(
        generate("bytelevel", &["--raw", "--chat", "-p", "x"])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn the_benchmark_uses_the_tokenizer_that_the_folder_has() {
    let bench = |name: &str, arguments: &[&str]| -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_mlxcel-bench-decode"))
            .arg("-m")
            .arg(models().join(name))
            .args(["--warmup-tokens", "0", "-n", "4", "--ignore-eos", "--json"])
            .args(arguments)
            .output()
            .unwrap();
        serde_json::from_str(&text(&output)).unwrap()
    };
    let question = ["-p", "Where is the mill?"];
    let bytes = bench("none", &question);
    assert_eq!(bytes["tokenizer"], "bytes");
    assert_eq!(bytes["prompt_tokens"], 18);
    let chat = bench("bytelevel", &question);
    assert_eq!(chat["tokenizer"], "tokenizer.json");
    assert_eq!(chat["chat_template"], true);
    assert_eq!(
        chat["prompt_tokens"],
        json("bytelevel", &question)["prompt_tokens"]
    );
    let plain = bench(
        "bytelevel",
        &["-p", "Where is the mill?", "--no-chat-template"],
    );
    assert_eq!(plain["chat_template"], false);
    assert!(plain["prompt_tokens"].as_u64() < chat["prompt_tokens"].as_u64());
    let exact = bench("sentencepiece", &["--prompt-tokens", "300"]);
    assert_eq!(exact["prompt_tokens"], 300);
}
