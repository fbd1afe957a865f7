//! API tokens over HTTP: the body that creates a token, and the descriptions of tokens.

use crate::body::{Reply, invalid, json_reply, ok};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use nacre_auth::{ApiToken, User};
use serde::Deserialize;
use serde_json::{Value, json};

/// Default lifetime of a token, in seconds: 30 days.
const LIFE_S_DEFAULT: u64 = 30 * 24 * 3600;

/// Body of `POST /api/v1/tokens`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// A name for people, of 1 to [`ApiToken::NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Roles of the token. Without roles, the token has all privileges of its user.
    pub scopes: Option<Vec<String>>,
    /// Lifetime of the token, in seconds.
    ttl: Option<u64>,
}

impl Wanted {
    /// Checks name and lifetime. Returns the seconds of Unix time at which the token begins and ends.
    ///
    /// # Errors
    /// 400 if the name or the lifetime is out of its range.
    pub fn times(&self, now_s: u64) -> Result<[u64; 2], Reply> {
        if !(1..=ApiToken::NAME_BYTES_MAX).contains(&self.name.len()) {
            let most = ApiToken::NAME_BYTES_MAX;
            return Err(invalid("name", format!("a name of 1 to {most} bytes")));
        }
        let life_s = self.ttl.unwrap_or(LIFE_S_DEFAULT);
        if !(1..=ApiToken::AGE_S_MAX).contains(&life_s) {
            return Err(invalid("ttl", format!("seconds, 1 to {}", ApiToken::AGE_S_MAX)));
        }
        Ok([now_s, now_s + life_s])
    }
}

/// Returns the reply to a request with too many roles.
pub fn too_many_scopes() -> Reply {
    invalid("scopes", format!("at most {} roles", ApiToken::SCOPES_MAX))
}

/// Describes a token, without its text: the server stores only a hash of it.
pub fn describe(token: &ApiToken) -> Value {
    let scopes = token.scopes.as_ref();
    let scopes = scopes.map(|scopes| scopes.iter().map(ToString::to_string).collect::<Vec<_>>());
    json!({
        "id": token.id,
        "name": token.name,
        "scopes": scopes,
        "created": token.created_s,
        "expires": token.expires_s,
    })
}

/// Lists the tokens of a user.
pub fn describe_all(user: Option<&User>) -> Reply {
    let tokens = user.into_iter().flat_map(|user| user.tokens.iter().map(describe));
    ok(&json!({"tokens": tokens.collect::<Vec<_>>()}))
}

/// Returns the reply to the creation of the token that `described` describes. Only this reply contains the text of the token.
pub fn created(mut described: Value, text: &str) -> Reply {
    described["token"] = json!(text);
    let mut answer = json_reply(StatusCode::CREATED, &described);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_contains_no_part_of_the_token() {
        let (token, text) = ApiToken::new("ci", None, [1, 2], &[7; 40]);
        let described = describe(&token).to_string();
        assert!(!described.contains(&text[text.len() - 64..]) && !described.contains("sha256"));
    }
}
