//! One request: what to ask, and what an answer means.

use std::io::Read;
use std::time::Duration;

use ureq::config::RedirectAuthHeaders;

use super::error::HubError;
use super::settings::Settings;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// From the request to the first line of the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest that one answer is read. A download that takes longer is taken up again with the next
/// request, which costs nothing beside two minutes; one that stalls ends here as well.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// A hub answers a download with a redirect to where it keeps large files.
const MAX_REDIRECTS: u32 = 8;

/// Sends requests with the token.
#[derive(Debug)]
pub(super) struct Client {
    agent: ureq::Agent,
    authorization: Option<String>,
}

/// An answer whose body is still to come.
pub(super) struct Answer {
    pub(super) status: u16,
    /// As the server announces it.
    pub(super) length: Option<u64>,
    /// `Content-Range` of a partial answer: first byte and bytes of the whole.
    pub(super) range: Option<(u64, u64)>,
    pub(super) body: Box<dyn Read>,
}

/// Why there is no answer, or none that helps.
pub(super) enum Failure {
    /// Another attempt may help.
    Passing(String),
    /// It will not.
    Final(HubError),
}

impl Client {
    pub(super) fn new(settings: &Settings) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(MAX_REDIRECTS)
            // The token is for the endpoint; other hosts must not see it.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .timeout_recv_body(Some(BODY_TIMEOUT))
            .user_agent(concat!("mlxcel/", env!("CARGO_PKG_VERSION")))
            .build();
        let bearer = |token: &String| format!("Bearer {token}");
        Self {
            agent: config.into(),
            authorization: settings.token.as_ref().map(bearer),
        }
    }

    /// Asks for `url` from byte `start` on; success is status 200, 206 or 416.
    pub(super) fn get(&self, url: &str, start: u64) -> Result<Answer, Failure> {
        let mut request = self.agent.get(url);
        if let Some(value) = &self.authorization {
            request = request.header("Authorization", value);
        }
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
        }
        let response = request
            .call()
            .map_err(|error| Failure::Passing(error.to_string()))?;
        let status = response.status().as_u16();
        check(url, status)?;
        let header = |name: &str| response.headers().get(name)?.to_str().ok();
        let length = header("content-length").and_then(|text| text.parse().ok());
        let range = header("content-range").and_then(content_range);
        Ok(Answer {
            status,
            length,
            range,
            body: Box::new(response.into_body().into_reader()),
        })
    }
}

fn check(url: &str, status: u16) -> Result<(), Failure> {
    let hint = match status {
        200 | 206 | 416 => return Ok(()),
        408 | 429 | 500..=599 => return Err(Failure::Passing(format!("HTTP status {status}"))),
        401 | 403 => " (a gated or private model: set HF_TOKEN and accept its terms on the hub)",
        404 => " (no such model or revision, or a private one: check the name, set HF_TOKEN)",
        _ => "",
    };
    Err(Failure::Final(HubError::Status {
        url: url.to_owned(),
        status,
        hint,
    }))
}

/// `bytes 100-199/200` is (100, 200).
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, whole) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.parse().ok()?, whole.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_is_its_first_byte_and_the_whole() {
        assert_eq!(content_range("bytes 100-199/200"), Some((100, 200)));
        for other in ["bytes */200", "bytes 1-2/*", "items 1-2/3", ""] {
            assert_eq!(content_range(other), None, "{other}");
        }
    }

    #[test]
    fn busy_servers_are_asked_again_and_refusals_are_final() {
        for status in [408, 429, 500, 503] {
            assert!(matches!(check("u", status), Err(Failure::Passing(_))));
        }
        for status in [400, 401, 403, 404, 301] {
            assert!(matches!(check("u", status), Err(Failure::Final(_))));
        }
    }
}
