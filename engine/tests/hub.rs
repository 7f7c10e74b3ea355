//! `hf:` names against a hub of the test's own, which breaks off, lies and sends elsewhere.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlxcel_engine::LoadError;
use mlxcel_engine::hub::{Fetch, HubError, ModelName, Settings, fetch};
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

const CONFIG: &[u8] = b"{\"model_type\": \"llama\"}";

/// Longer than what the client reads at a time, so that a break leaves something behind.
fn weights() -> Vec<u8> {
    (0..700_000u32).map(|i| (i % 251) as u8).collect()
}

struct Request {
    path: String,
    headers: HashMap<String, String>,
}

impl Request {
    fn range_start(&self) -> Option<usize> {
        let range = self.headers.get("range")?;
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse()
            .ok()
    }
}

type Log = Arc<Mutex<Vec<Request>>>;

/// Answers each connection once with the bytes that `answer` makes, then closes it. `answer` gets
/// the request and how many for the same path came before.
fn serve(answer: impl Fn(&Request, usize) -> Vec<u8> + Send + 'static) -> (u16, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let log = Log::default();
    let written = log.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(first)) = lines.next() else {
                continue;
            };
            let headers = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty());
            let request = Request {
                path: first.split(' ').nth(1).unwrap().to_owned(),
                headers: headers
                    .filter_map(|line| {
                        let (name, value) = line.split_once(':')?;
                        Some((name.to_lowercase(), value.trim().to_owned()))
                    })
                    .collect(),
            };
            let mut log = written.lock().unwrap();
            let before = log.iter().filter(|r| r.path == request.path).count();
            let bytes = answer(&request, before);
            log.push(request);
            drop(log);
            // The client may have seen enough.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    (port, log)
}

fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

fn whole(body: &[u8]) -> Vec<u8> {
    response(
        "200 OK",
        &format!("Content-Length: {}\r\n", body.len()),
        body,
    )
}

/// What an honest server answers: the part asked for.
fn honest(request: &Request, body: &[u8]) -> Vec<u8> {
    let Some(start) = request.range_start() else {
        return whole(body);
    };
    let (length, last) = (body.len() - start, body.len() - 1);
    let headers = format!(
        "Content-Length: {length}\r\nContent-Range: bytes {start}-{last}/{}\r\n",
        body.len()
    );
    response("206 Partial Content", &headers, &body[start..])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn git_blob(bytes: &[u8]) -> String {
    let header = format!("blob {}\0", bytes.len());
    hex(&Sha1::digest([header.as_bytes(), bytes].concat()))
}

fn listing() -> Value {
    let weights = weights();
    json!({"sha": COMMIT, "siblings": [
        {"rfilename": "model.safetensors", "size": weights.len(), "blobId": "x",
         "lfs": {"sha256": sha256(&weights), "size": weights.len(), "pointerSize": 1}},
        {"rfilename": "config.json", "size": CONFIG.len(), "blobId": git_blob(CONFIG)},
        {"rfilename": "README.md", "size": 1, "blobId": git_blob(b"x")},
        {"rfilename": "../../escape.json", "size": 1, "blobId": git_blob(b"x")},
        {"rfilename": "onnx/model.safetensors", "size": 1, "blobId": git_blob(b"x")},
    ]})
}

/// A hub that is honest but for the weights, which `answer` makes.
fn hub(answer: impl Fn(&Request, usize) -> Vec<u8> + Send + 'static) -> (u16, Log) {
    let listing = listing().to_string();
    serve(move |request, before| {
        if request.path.starts_with("/api/models/org/name/revision/") {
            whole(listing.as_bytes())
        } else if request.path == format!("/org/name/resolve/{COMMIT}/config.json") {
            honest(request, CONFIG)
        } else if request.path == format!("/org/name/resolve/{COMMIT}/model.safetensors") {
            answer(request, before)
        } else {
            response("404 Not Found", "Content-Length: 0\r\n", b"")
        }
    })
}

struct Place {
    home: tempfile::TempDir,
    settings: Settings,
}

impl Place {
    fn new(port: u16) -> Self {
        let home = tempfile::tempdir().unwrap();
        let settings = Settings {
            endpoint: format!("http://127.0.0.1:{port}"),
            token: Some("secret".to_owned()),
            cache: home.path().join("hub"),
            retry_pause: Duration::from_millis(1),
        };
        Self { home, settings }
    }

    fn fetch(&self, name: &str) -> Result<PathBuf, HubError> {
        let before_weights = &|_: &std::path::Path| Ok(());
        let progress = &mut |_, _| {};
        let model = ModelName::parse(name)?;
        fetch(
            &model,
            &self.settings,
            Fetch {
                before_weights,
                progress,
            },
        )
    }

    fn repository(&self) -> PathBuf {
        self.home.path().join("hub/models--org--name")
    }

    /// What lies under `blobs`, by ending.
    fn blobs(&self, ending: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.repository().join("blobs")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.to_str().unwrap().ends_with(ending))
            .collect()
    }
}

fn requests(log: &Log, part: &str) -> usize {
    let log = log.lock().unwrap();
    log.iter()
        .filter(|request| request.path.contains(part))
        .count()
}

/// `Range` of every request for the weights.
fn ranges(log: &Log) -> Vec<Option<usize>> {
    let log = log.lock().unwrap();
    let weights = log
        .iter()
        .filter(|request| request.path.ends_with("safetensors"));
    weights.map(Request::range_start).collect()
}

#[test]
fn a_model_is_fetched_once_and_a_commit_needs_no_hub_afterwards() {
    let (port, log) = hub(|request, _| honest(request, &weights()));
    let place = Place::new(port);
    let mut seen = Vec::new();
    let folder = fetch(
        &ModelName::parse("org/name").unwrap(),
        &place.settings,
        Fetch {
            before_weights: &|folder| {
                assert!(folder.join("config.json").exists());
                assert!(!folder.join("model.safetensors").exists());
                Ok(())
            },
            progress: &mut |done, total| seen.push((done, total)),
        },
    )
    .unwrap();
    assert_eq!(folder, place.repository().join("snapshots").join(COMMIT));
    assert_eq!(fs::read(folder.join("config.json")).unwrap(), CONFIG);
    assert_eq!(
        fs::read(folder.join("model.safetensors")).unwrap(),
        weights()
    );
    let visible = |entry: &fs::DirEntry| !entry.file_name().to_str().unwrap().starts_with('.');
    let entries = fs::read_dir(&folder).unwrap().map(Result::unwrap);
    assert_eq!(entries.filter(visible).count(), 2);
    let total = (CONFIG.len() + weights().len()) as u64;
    assert_eq!(seen.last(), Some(&(total, total)));
    assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    let head = fs::read_to_string(place.repository().join("refs/main")).unwrap();
    assert_eq!(head, COMMIT);
    let authorised = log.lock().unwrap();
    assert!(
        authorised
            .iter()
            .all(|r| r.headers["authorization"] == "Bearer secret")
    );
    drop(authorised);

    assert_eq!(place.fetch("org/name").unwrap(), folder);
    assert_eq!(requests(&log, "/resolve/"), 2);
    let asked = requests(&log, "");
    assert_eq!(place.fetch(&format!("org/name@{COMMIT}")).unwrap(), folder);
    assert_eq!(requests(&log, ""), asked);
}

#[test]
fn a_broken_connection_is_taken_up_where_it_broke() {
    let (port, log) = hub(|request, before| {
        let answer = honest(request, &weights());
        // Three times a hundred thousand bytes, then the rest.
        let head = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let keep = if before < 3 {
            head + 100_000
        } else {
            answer.len()
        };
        answer[..keep].to_vec()
    });
    let place = Place::new(port);
    let folder = place.fetch("org/name").unwrap();
    assert_eq!(
        fs::read(folder.join("model.safetensors")).unwrap(),
        weights()
    );
    let expected = [None, Some(100_000), Some(200_000), Some(300_000)];
    assert_eq!(ranges(&log), expected);
    assert!(place.blobs(".incomplete").is_empty());
}

#[test]
fn what_arrived_before_a_failure_is_kept_for_the_next_process() {
    let (port, log) = hub(|request, before| match before {
        0 => whole(&weights())[..200_000].to_vec(),
        // Nothing at all, five times: the client gives up.
        1..=5 => Vec::new(),
        _ => honest(request, &weights()),
    });
    let place = Place::new(port);
    let error = place.fetch("org/name").unwrap_err();
    assert!(
        matches!(error, HubError::Connection { attempts: 5, .. }),
        "{error}"
    );
    let [part] = place.blobs(".incomplete").try_into().unwrap();
    let kept = fs::metadata(part).unwrap().len() as usize;
    assert!(kept > 100_000);
    let folder = place.fetch("org/name").unwrap();
    assert_eq!(
        fs::read(folder.join("model.safetensors")).unwrap(),
        weights()
    );
    assert_eq!(ranges(&log).last(), Some(&Some(kept)));
}

#[test]
fn a_server_that_knows_no_ranges_starts_over_and_one_that_always_breaks_is_left() {
    let (port, _) = hub(|_, before| {
        let answer = whole(&weights());
        let keep = if before < 2 { 300_000 } else { answer.len() };
        answer[..keep].to_vec()
    });
    let place = Place::new(port);
    let folder = place.fetch("org/name").unwrap();
    assert_eq!(
        fs::read(folder.join("model.safetensors")).unwrap(),
        weights()
    );

    let (port, log) = hub(|_, before| whole(&weights())[..300_000 - before % 2].to_vec());
    let error = Place::new(port).fetch("org/name").unwrap_err();
    assert!(matches!(error, HubError::Connection { .. }), "{error}");
    assert!(ranges(&log).len() < 10);
}

#[test]
fn a_lying_length_is_refused_before_the_body_is_read() {
    let more = |body: &[u8]| [body, b"more"].concat();
    let (port, log) = hub(move |_, _| whole(&more(&weights())));
    let place = Place::new(port);
    let error = place.fetch("org/name").unwrap_err();
    let expected = weights().len() as u64;
    assert!(
        matches!(error, HubError::Length { expected_bytes, got_bytes, .. }
            if expected_bytes == expected && got_bytes == expected + 4),
        "{error}"
    );
    assert_eq!(ranges(&log).len(), 1);
    assert!(
        !place
            .blobs("")
            .iter()
            .any(|path| path.ends_with(sha256(&weights())))
    );
    // No announcement at all, and too many bytes.
    let (port, _) = hub(move |_, _| response("200 OK", "", &more(&weights())));
    let error = Place::new(port).fetch("org/name").unwrap_err();
    assert!(matches!(error, HubError::Length { .. }), "{error}");
    // A partial answer out of a file of another size.
    let (port, _) = hub(|request, before| match request.range_start() {
        Some(start) if before == 1 => {
            let rest = &weights()[start..];
            let headers = format!(
                "Content-Length: {}\r\nContent-Range: bytes {start}-9/999999\r\n",
                rest.len()
            );
            response("206 Partial Content", &headers, rest)
        }
        _ => whole(&weights())[..300_000].to_vec(),
    });
    let error = Place::new(port).fetch("org/name").unwrap_err();
    assert!(
        matches!(
            error,
            HubError::Length {
                got_bytes: 999_999,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn other_content_of_the_right_length_is_refused_and_removed() {
    let (port, log) = hub(|_, _| whole(&vec![7; weights().len()]));
    let place = Place::new(port);
    let error = place.fetch("org/name").unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, HubError::Hash { .. }), "{message}");
    assert!(message.contains(&sha256(&weights())), "{message}");
    assert_eq!(
        (place.blobs(".incomplete").len(), ranges(&log).len()),
        (0, 1)
    );
}

#[test]
fn a_damaged_beginning_from_an_earlier_process_is_started_over() {
    let (port, log) = hub(|request, _| honest(request, &weights()));
    let place = Place::new(port);
    let blobs = place.repository().join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.incomplete", sha256(&weights())));
    fs::write(&part, vec![1; 1000]).unwrap();
    let folder = place.fetch("org/name").unwrap();
    assert_eq!(
        fs::read(folder.join("model.safetensors")).unwrap(),
        weights()
    );
    assert_eq!(ranges(&log), [Some(1000), None]);
    // Longer than the file: not even worth asking on.
    fs::remove_dir_all(place.repository()).unwrap();
    fs::create_dir_all(&blobs).unwrap();
    fs::write(&part, vec![1; weights().len() + 1]).unwrap();
    place.fetch("org/name").unwrap();
    assert_eq!(ranges(&log).last(), Some(&None));
}

#[test]
fn a_redirect_is_followed_without_the_token_and_with_the_range() {
    let (store, at_store) = serve(|request, before| {
        let answer = honest(request, &weights());
        let keep = if before == 0 { 200_000 } else { answer.len() };
        answer[..keep].to_vec()
    });
    let (port, _) = hub(move |_, _| {
        let to = format!(
            "Location: http://localhost:{store}/large/model.safetensors?signed=1\r\nContent-Length: 0\r\n"
        );
        response("302 Found", &to, b"")
    });
    let place = Place::new(port);
    let folder = place.fetch("org/name").unwrap();
    assert_eq!(
        fs::read(folder.join("model.safetensors")).unwrap(),
        weights()
    );
    let starts = ranges_of(&at_store);
    assert_eq!(starts.len(), 2);
    assert!(starts[0].is_none() && starts[1].is_some());
    let log = at_store.lock().unwrap();
    assert!(
        log.iter()
            .all(|request| !request.headers.contains_key("authorization"))
    );
}

fn ranges_of(log: &Log) -> Vec<Option<usize>> {
    log.lock()
        .unwrap()
        .iter()
        .map(Request::range_start)
        .collect()
}

#[test]
fn a_redirect_in_circles_ends() {
    let (port, log) = hub(|request, _| {
        let to = format!("Location: {}\r\nContent-Length: 0\r\n", request.path);
        response("302 Found", &to, b"")
    });
    assert!(Place::new(port).fetch("org/name").is_err());
    assert!(requests(&log, "safetensors") < 60);
}

#[test]
fn a_busy_hub_is_asked_again_and_a_refusal_says_what_to_do() {
    let status = |status: &'static str| response(status, "Content-Length: 0\r\n", b"");
    let (port, log) = hub(move |request, before| match before {
        0 | 1 => status("503 Service Unavailable"),
        _ => honest(request, &weights()),
    });
    Place::new(port).fetch("org/name").unwrap();
    assert_eq!(ranges(&log).len(), 3);
    for (answer, part) in [
        ("401 Unauthorized", "HF_TOKEN"),
        ("404 Not Found", "no such model"),
    ] {
        let (port, log) = serve(move |_, _| status(answer));
        let error = Place::new(port).fetch("org/name").unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains(&answer[..3]),
            "{error}"
        );
        assert_eq!(requests(&log, ""), 1);
    }
    // Nobody listens there.
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let error = Place::new(unused).fetch("org/name").unwrap_err();
    assert!(matches!(error, HubError::Connection { .. }), "{error}");
}

#[test]
fn a_model_that_is_not_wanted_costs_only_its_small_files() {
    let (port, log) = hub(|request, _| honest(request, &weights()));
    let place = Place::new(port);
    let unwanted = |folder: &std::path::Path| {
        Err(LoadError::UnsupportedFamily {
            path: folder.join("config.json"),
            got: "exotic".to_owned(),
            supported: "others".to_owned(),
        })
    };
    let result = fetch(
        &ModelName::parse("org/name").unwrap(),
        &place.settings,
        Fetch {
            before_weights: &unwanted,
            progress: &mut |_, _| {},
        },
    );
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("not worth fetching") && error.contains("exotic"),
        "{error}"
    );
    assert!(ranges(&log).is_empty());
}

#[test]
fn listings_without_a_model_or_without_sense_are_refused() {
    let answers = |listing: Value| {
        let (port, _) = serve(move |_, _| whole(listing.to_string().as_bytes()));
        Place::new(port).fetch("org/name").unwrap_err().to_string()
    };
    let file = |name: &str| json!({"rfilename": name, "size": 1, "blobId": git_blob(b"x")});
    let error = answers(json!({"sha": COMMIT, "siblings": [file("a.gguf"), file("config.json")]}));
    assert!(
        error.contains("1 GGUF files") && error.contains("mlxcel convert"),
        "{error}"
    );
    let error = answers(json!({"sha": COMMIT, "siblings": []}));
    assert!(error.contains("got nothing"), "{error}");
    let error = answers(json!({"sha": "../../etc", "siblings": []}));
    assert!(error.contains("expected a commit"), "{error}");
    let error = answers(json!({"error": "odd"}));
    assert!(error.contains("not a listing"), "{error}");
    let mut sizeless = file("config.json");
    sizeless["size"] = Value::Null;
    let error = answers(json!({"sha": COMMIT, "siblings": [sizeless]}));
    assert!(
        error.contains("`config.json` has no size and hash"),
        "{error}"
    );
    let mut pathlike = file("config.json");
    pathlike["blobId"] = json!("../../../../tmp/x");
    let error = answers(json!({"sha": COMMIT, "siblings": [pathlike]}));
    assert!(
        error.contains("`config.json` has no size and hash"),
        "{error}"
    );
}
