//! Parses requests: parameters in a form or in JSON.

use crate::error::{Error, Result};
use crate::statement::DEFAULT_SCOPE;
use nacre_sql::{Name, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// The default time limit of a request. Source: the default of the SDKs.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// A request to run statements.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The statements.
    pub statement: String,
    /// Returned unchanged in the answer; identifies the request for cancellation.
    pub client_context_id: Option<String>,
    /// The default scope of names.
    pub scope: String,
    /// True to refuse definitions.
    pub is_readonly: bool,
    /// True if the answer must reflect all writes before the request.
    pub is_consistent: bool,
    /// Time limit of the wait for these writes.
    pub scan_wait: Option<Duration>,
    /// Time limit of the request.
    pub timeout: Duration,
    /// `$1`, ….
    pub positional: Vec<Value>,
    /// `$name`.
    pub named: BTreeMap<Name, Value>,
}

impl Request {
    /// Parses a body by its media type: a form unless it is JSON. `query` is the query string of the address.
    ///
    /// # Errors
    /// Code 21009 for malformed JSON, 21010 without a statement, 21008 and 21000 for values that are not allowed.
    pub fn read(content_type: &str, query: &str, body: &[u8]) -> Result<Request> {
        let mut fields = Vec::new();
        read_form(query.as_bytes(), &mut fields);
        if content_type.to_ascii_lowercase().contains("json") {
            let value = Value::parse(body).map_err(|error| {
                Error::new(21009, format!("Unable to parse the request as JSON: {error}"))
            })?;
            let Some(members) = value.as_object() else {
                return Err(Error::new(21009, "The body of a request is a JSON object."));
            };
            fields.extend(members.iter().map(|(name, value)| (name.to_string(), value.clone())));
        } else {
            read_form(body, &mut fields);
        }
        Request::of(fields)
    }

    fn of(fields: Vec<(String, Value)>) -> Result<Request> {
        let mut request = Request {
            statement: String::new(),
            client_context_id: None,
            scope: DEFAULT_SCOPE.to_owned(),
            is_readonly: false,
            is_consistent: false,
            scan_wait: None,
            timeout: TIMEOUT,
            positional: Vec::new(),
            named: BTreeMap::new(),
        };
        let mut has_statement = false;
        for (name, value) in fields {
            has_statement |= name == "statement";
            request.set(&name, value)?;
        }
        match has_statement {
            false => Err(Error::new(21010, "Required parameter \"statement\" is missing.")),
            true => Ok(request),
        }
    }

    fn set(&mut self, name: &str, value: Value) -> Result<()> {
        if let Some(name) = name.strip_prefix('$') {
            // In a form, the values of parameters are JSON texts.
            self.named.insert(name.into(), value);
            return Ok(());
        }
        let text = || value.as_str().map(str::to_owned).ok_or_else(|| wrong_value(name, &value));
        match name.to_ascii_lowercase().as_str() {
            "statement" => self.statement = text()?,
            "client_context_id" => self.client_context_id = Some(text()?),
            "query_context" => self.scope = scope_of(&text()?)?,
            "dataverse" => self.scope = text()?,
            "readonly" => self.is_readonly = truth(name, &value)?,
            "scan_consistency" => {
                self.is_consistent = match text()?.to_ascii_lowercase().as_str() {
                    "not_bounded" => false,
                    "request_plus" => true,
                    _ => return Err(wrong_value(name, &value)),
                }
            }
            "scan_wait" => self.scan_wait = duration(&text()?)?,
            "timeout" => self.timeout = duration(&text()?)?.unwrap_or(TIMEOUT),
            "args" => {
                let parsed = value.as_str().and_then(|text| Value::parse(text.as_bytes()).ok());
                let args = parsed.as_ref().unwrap_or(&value);
                let args = args.as_array().ok_or_else(|| wrong_value(name, &value))?;
                self.positional = args.to_vec();
            }
            "mode" => match text()?.as_str() {
                "immediate" => {}
                _ => return Err(wrong_value(name, &value)),
            },
            // Other parameters request diagnostics, or change the format of the answer.
            _ => {}
        }
        Ok(())
    }
}

fn wrong_value(name: &str, value: &Value) -> Error {
    Error::new(21008, format!("Invalid value for parameter \"{name}\": {value}"))
}

fn truth(name: &str, value: &Value) -> Result<bool> {
    match (value, value.as_str()) {
        (Value::Bool(truth), _) => Ok(*truth),
        (_, Some("true")) => Ok(true),
        (_, Some("false")) => Ok(false),
        _ => Err(wrong_value(name, value)),
    }
}

/// Returns the scope in `default:Scope` or `` default:`bucket`.`scope` ``.
fn scope_of(context: &str) -> Result<String> {
    let names = context.strip_prefix("default:").unwrap_or(context);
    if names.is_empty() {
        return Ok(DEFAULT_SCOPE.to_owned());
    }
    let (mut parts, mut part, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in names.chars() {
        match c {
            '`' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(std::mem::take(&mut part)),
            c => part.push(c),
        }
    }
    parts.push(part);
    match !is_quoted && parts.len() <= 2 && parts.iter().all(|part| !part.is_empty()) {
        true => Ok(parts.join("/")),
        false => Err(Error::new(
            21008,
            format!("Invalid value for parameter \"query_context\": {context}"),
        )),
    }
}

/// Parses a duration such as `75000ms`, `1m14.99s` or `2h`; `None` for an empty text.
///
/// # Errors
/// Code 21000 for an invalid number, 21001 for an unknown unit.
pub fn duration(text: &str) -> Result<Option<Duration>> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Ok(None);
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let number: f64 = number
            .parse()
            .map_err(|_| Error::new(21000, format!("Invalid duration \"{text}\"")))?;
        let scale = match unit.trim() {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(Error::new(21001, format!("Unknown duration unit \"{unit}\""))),
        };
        seconds += number * scale;
        rest = tail;
    }
    // A year is longer than any request.
    Ok(Some(Duration::from_secs_f64(f64::min(seconds, 366.0 * 86400.0))))
}

fn read_form(body: &[u8], fields: &mut Vec<(String, Value)>) {
    for pair in body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        let (name, value) = (decoded(name), decoded(value));
        let is_json = name.starts_with('$') || name == "args";
        let parsed = if is_json { Value::parse(value.as_bytes()).ok() } else { None };
        let value = parsed.unwrap_or_else(|| Value::string(value));
        fields.push((name, value));
    }
}

fn decoded(text: &[u8]) -> String {
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_encoding::percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

/// Formats a duration in milliseconds or seconds, which all clients can parse.
pub fn duration_text(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{:.3}ms", duration.as_secs_f64() * 1000.0),
        _ => format!("{:.3}s", duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_request_are_equivalent() {
        let json = br#"{"statement":"SELECT 1","args":[1,"a"],"$x":[2],"timeout":"75000ms","scan_consistency":"request_plus","query_context":"default:`b`.`s`"}"#;
        let form = b"statement=SELECT+1&args=%5B1%2C%22a%22%5D&%24x=%5B2%5D&timeout=1m15s&scan_consistency=request_plus&query_context=default%3A%60b%60.%60s%60";
        let json = Request::read("application/json", "", json).unwrap();
        assert_eq!(json, Request::read("application/x-www-form-urlencoded", "", form).unwrap());
        assert_eq!((json.scope.as_str(), json.timeout), ("b/s", Duration::from_secs(75)));
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (body, code) in [
            (&b"{"[..], 21009),
            (b"[]", 21009),
            (b"{}", 21010),
            (br#"{"statement":1}"#, 21008),
            (br#"{"statement":"SELECT 1","scan_consistency":"at_plus"}"#, 21008),
            (br#"{"statement":"SELECT 1","timeout":"x"}"#, 21000),
            (br#"{"statement":"SELECT 1","timeout":"1y"}"#, 21001),
            (br#"{"statement":"SELECT 1","query_context":"default:a.b.c"}"#, 21008),
        ] {
            assert_eq!(Request::read("application/json", "", body).unwrap_err().code, code);
        }
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["0.250ms", "12.340ms", "1.500s"] {
            assert_eq!(duration_text(duration(text).unwrap().unwrap()), text);
        }
    }
}
