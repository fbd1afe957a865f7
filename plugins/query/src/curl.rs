//! `CURL(url [, options])`: reads the options; the host sends the request if the user may.

use crate::run::Run;
use nacre_sql::{Error, Result, Value};

/// Reads the arguments and returns the response as JSON.
///
/// # Errors
/// An unknown option, or one that is not supported; a response that is not JSON; errors of the host.
pub(crate) fn call(args: &[Value], run: &Run<'_>) -> Result<Value> {
    let url = match &args[0] {
        Value::Missing => return Ok(Value::Missing),
        Value::String(url) => url.clone(),
        _ => return Ok(Value::Null),
    };
    let options = args.get(1).cloned().unwrap_or_default();
    if options.as_object().is_none() && args.len() > 1 {
        return Ok(Value::Null);
    }
    let options = Options::of(&options)?;
    let (request, shows_errors) = options.request(&url, run.settings.readonly)?;
    match answer(&request, run) {
        Err(error) if !shows_errors && error.code == FAILED => Ok(Value::Null),
        answer => answer,
    }
}

/// Code of failed calls. Source: Couchbase's list.
const FAILED: u32 = 5010;

fn answer(request: &Value, run: &Run<'_>) -> Result<Value> {
    let body = run.store.administer(request)?.field("body");
    let text = body.as_str().unwrap_or_default();
    run.charge(text.len())?;
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    let unreadable = |_| Error::new(FAILED, "CURL: the response is not JSON".to_owned());
    Value::parse(text.as_bytes()).map_err(unreadable)
}

/// The options of a call.
struct Options {
    method: Option<String>,
    data: Vec<String>,
    /// True to put the data into the URL.
    by_get: bool,
    headers: Vec<Value>,
    user: Value,
    time_ms: Value,
    answer_bytes: Value,
    shows_errors: bool,
}

impl Options {
    fn of(options: &Value) -> Result<Options> {
        let mut read = Options {
            method: None,
            data: Vec::new(),
            by_get: false,
            headers: Vec::new(),
            user: Value::Missing,
            time_ms: Value::Missing,
            answer_bytes: Value::Missing,
            shows_errors: true,
        };
        for (name, value) in options.as_object().into_iter().flatten() {
            read.set(name, value)?;
        }
        Ok(read)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        let wrong = || Error::new(FAILED, format!("CURL: the option {name} cannot be {value}"));
        let text = || value.as_str().map(str::to_owned).ok_or_else(wrong);
        let truth = || match value {
            Value::Bool(truth) => Ok(*truth),
            _ => Err(wrong()),
        };
        let seconds = || {
            let seconds = value.as_f64().filter(|seconds| (0.0..=1e6).contains(seconds));
            seconds.map(|seconds| Value::Int((seconds * 1000.0).ceil() as i64)).ok_or_else(wrong)
        };
        match name {
            "request" | "method" | "X" => {
                let method = text()?.to_ascii_uppercase();
                // Source: SQL++ reference, CURL.
                if !["GET", "POST"].contains(&&*method) {
                    return Err(wrong());
                }
                self.method = Some(method);
            }
            "get" | "G" => self.by_get = truth()?,
            "data" | "d" => self.data.extend(texts(value).ok_or_else(wrong)?),
            "data-urlencode" => {
                let texts = texts(value).ok_or_else(wrong)?;
                self.data.extend(texts.iter().map(|text| encoded(text)));
            }
            "header" | "headers" | "H" => {
                for line in texts(value).ok_or_else(wrong)? {
                    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
                    self.header(name.trim(), value.trim());
                }
            }
            "user-agent" | "A" => self.header("user-agent", &text()?),
            "user" | "u" => self.user = text()?.as_str().into(),
            // The only authentication method is Basic.
            "basic" | "anyauth" => _ = truth()?,
            "max-time" | "m" => self.time_ms = seconds()?,
            "connect-timeout" => {
                let time = seconds()?;
                if self.time_ms.is_missing() {
                    self.time_ms = time;
                }
            }
            "result-cap" => {
                let cap = value.as_i64().filter(|cap| *cap > 0).ok_or_else(wrong)?;
                self.answer_bytes = Value::Int(cap);
            }
            "show-error" | "S" => self.shows_errors = truth()?,
            "silent" | "s" => _ = truth()?,
            // The certificate of a host is always verified.
            "insecure" | "k" if !truth()? => {}
            _ => {
                let message = format!("CURL: the option {name} is not supported as {value}");
                return Err(Error::new(FAILED, message));
            }
        }
        Ok(())
    }

    fn header(&mut self, name: &str, value: &str) {
        self.headers.push(vec![Value::from(name), value.into()].into());
    }

    /// Returns the request for the host, and true if its errors are shown.
    fn request(mut self, url: &str, is_readonly: bool) -> Result<(Value, bool)> {
        let body = self.data.join("&");
        let by_post = !self.by_get && (!body.is_empty() || self.method.as_deref() == Some("POST"));
        if by_post && is_readonly {
            return Err(crate::service::read_only());
        }
        let mut url = url.to_owned();
        if self.by_get && !body.is_empty() {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&body);
        }
        let names_type = |header: &Value| {
            let name = header.as_array().and_then(|header| header[0].as_str());
            name.is_some_and(|name| name.eq_ignore_ascii_case("content-type"))
        };
        if by_post && !self.headers.iter().any(names_type) {
            self.header("content-type", "application/x-www-form-urlencoded");
        }
        let request = Value::object([
            ("do", Value::from("curl")),
            ("method", if by_post { "POST" } else { "GET" }.into()),
            ("url", url.as_str().into()),
            ("headers", Value::array(self.headers)),
            ("user", self.user),
            ("body", if by_post { body.as_str() } else { "" }.into()),
            ("time_ms", self.time_ms),
            ("answer_bytes", self.answer_bytes),
        ]);
        Ok((request, self.shows_errors))
    }
}

/// Returns one text or several as a list.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.to_string()]),
        Value::Array(texts) => texts.iter().map(|text| text.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

/// Encodes the text after the first `=`, or all of it, for a URL.
fn encoded(text: &str) -> String {
    let (name, value) = text.split_once('=').map_or(("", text), |(name, value)| (name, value));
    let mut out = if name.is_empty() { String::new() } else { format!("{name}=") };
    for byte in value.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(options: &str) -> Result<String> {
        let options = Value::parse(options.as_bytes()).unwrap();
        let (request, _) = Options::of(&options)?.request("https://a.example/x", false)?;
        Ok(request.to_json())
    }

    #[test]
    fn options_are_honoured_or_refused() {
        insta::assert_snapshot!(
            [
                "{}",
                r#"{"data": ["a=1", "b=2"], "user": "ann:secret"}"#,
                r#"{"data": "a=1", "get": true, "max-time": 1.5}"#,
                r#"{"request": "POST", "data-urlencode": "q=a b&c", "header": "X-A: 1"}"#,
                r#"{"data": "{}", "headers": ["Content-Type: application/json"], "result-cap": 9}"#,
            ]
            .map(|options| request(options).unwrap())
            .join("\n"),
            @r#"
            {"do":"curl","method":"GET","url":"https://a.example/x","headers":[],"body":""}
            {"do":"curl","method":"POST","url":"https://a.example/x","headers":[["content-type","application/x-www-form-urlencoded"]],"user":"ann:secret","body":"a=1&b=2"}
            {"do":"curl","method":"GET","url":"https://a.example/x?a=1","headers":[],"body":"","time_ms":1500}
            {"do":"curl","method":"POST","url":"https://a.example/x","headers":[["X-A","1"],["content-type","application/x-www-form-urlencoded"]],"body":"q=a%20b%26c"}
            {"do":"curl","method":"POST","url":"https://a.example/x","headers":[["Content-Type","application/json"]],"body":"{}","answer_bytes":9}
            "#
        );
        for options in [
            r#"{"insecure": true}"#,
            r#"{"cacert": "x"}"#,
            r#"{"location": true}"#,
            r#"{"request": "DELETE"}"#,
            r#"{"max-time": -1}"#,
            r#"{"header": "no colon"}"#,
            r#"{"data": 5}"#,
        ] {
            assert_eq!(request(options).unwrap_err().code, FAILED, "{options}");
        }
    }
}
