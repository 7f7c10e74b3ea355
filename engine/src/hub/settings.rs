//! Endpoint, token and cache folder, read from the environment once, at the edge.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::error::HubError;

/// Where models come from when nothing else is said.
const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// Pause before the first repetition of a failed request; each further one waits twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How to reach a hub.
#[derive(Clone)]
pub struct Settings {
    /// Address without a slash at the end.
    pub endpoint: String,
    /// Sent to the endpoint, and to no other host.
    pub token: Option<String>,
    /// The folder `hub` of HF_HOME.
    pub cache: PathBuf,
    /// Pause before the first repetition of a failed request.
    pub retry_pause: Duration,
}

/// Without the token: settings get into messages.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// `HF_ENDPOINT`; `HF_TOKEN`, else the file `token` in HF_HOME; `HF_HOME`, else `huggingface`
    /// in `XDG_CACHE_HOME`, else in `$HOME/.cache`.
    ///
    /// # Errors
    /// [`HubError::NoCache`] when no variable names a cache.
    pub fn from_environment(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, HubError> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let text = |name: &str| get(name).and_then(|value| value.into_string().ok());
        let home = get("HF_HOME").map(PathBuf::from).or_else(|| {
            let cache = get("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| {
                let home = get("HOME").map(PathBuf::from)?;
                Some(home.join(".cache"))
            })?;
            Some(cache.join("huggingface"))
        });
        let home = home.ok_or(HubError::NoCache)?;
        let stored = || std::fs::read_to_string(home.join("token")).ok();
        let token = text("HF_TOKEN").or_else(stored);
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token
                .map(|token| token.trim().to_owned())
                .filter(|token| !token.is_empty()),
            cache: home.join("hub"),
            retry_pause: RETRY_PAUSE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, HubError> {
        Settings::from_environment(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_environment_is_read_in_the_documented_order() {
        let all = [("HF_HOME", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        let cache = |pairs| read(pairs).unwrap().cache;
        assert_eq!(cache(&all), PathBuf::from("/a/hub"));
        assert_eq!(cache(&all[1..]), PathBuf::from("/b/huggingface/hub"));
        assert_eq!(cache(&all[2..]), PathBuf::from("/c/.cache/huggingface/hub"));
        assert!(matches!(read(&[("HF_HOME", "")]), Err(HubError::NoCache)));
    }

    #[test]
    fn a_token_comes_from_the_environment_or_the_file_and_is_not_shown() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().to_str().unwrap();
        std::fs::write(home.path().join("token"), "stored\n").unwrap();
        let stored = read(&[("HF_HOME", at)]).unwrap();
        assert_eq!(stored.token.as_deref(), Some("stored"));
        let given = read(&[
            ("HF_HOME", at),
            ("HF_TOKEN", "given"),
            ("HF_ENDPOINT", "http://x/"),
        ]);
        let given = given.unwrap();
        assert_eq!(given.token.as_deref(), Some("given"));
        assert_eq!(given.endpoint, "http://x");
        assert!(!format!("{given:?}").contains("given"));
    }
}
