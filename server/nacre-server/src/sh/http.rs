//! A node that is asked over HTTP.

use super::ask::{Answer, Ask, Request};
use crate::unreachable::unreachable;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::{Duration, Instant};
use ureq::tls::TlsConfig;

/// How long a connection may take to come about. What a statement may take is the node's to bound.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer that is taken into memory.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// A node's query service.
pub struct Node {
    agent: ureq::Agent,
    url: String,
    user: String,
    login: String,
}

impl Node {
    /// Connects with the first question.
    ///
    /// `url` is the address of the query service without a path, such as `http://127.0.0.1:8093`.
    pub fn new(url: &str, user: &str, password: &str, tls: TlsConfig) -> Node {
        let agent = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .build()
            .into();
        let login = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        Node { agent, url: url.trim_end_matches('/').to_owned(), user: user.to_owned(), login }
    }
}

impl Ask for Node {
    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        let begun = Instant::now();
        let body = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        let unreachable = |error: ureq::Error| unreachable(&self.url, &error);
        let mut answer = self
            .agent
            .post(format!("{}/query/service", self.url))
            .header("authorization", &self.login)
            .content_type("application/json")
            .send(&body[..])
            .map_err(unreachable)?;
        let status = answer.status();
        let body = answer
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .map_err(unreachable)?;
        Answer::read(&body, begun.elapsed()).map_err(|reason| match status {
            // What a user may not do has that status too, but an answer of the query service tells what it is.
            ureq::http::StatusCode::UNAUTHORIZED => {
                format!("{} refuses the login of {}", self.url, self.user)
            }
            _ => format!("{} answers {status}: {reason}", self.url),
        })
    }
}
