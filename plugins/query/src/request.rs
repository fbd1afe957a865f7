//! Requests: reads and checks the members of a JSON body, or the pairs of a form.

use crate::run::Settings;
use crate::style::Style;
use crate::transaction::Transaction;
use nacre_datastore::Consistency;
use nacre_sql::ast::Path;
use nacre_sql::{Error, Name, Result, Value};

/// A request of a client.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The statement's text.
    pub statement: Option<String>,
    /// The name of a prepared statement, instead of a text.
    pub prepared: Option<String>,
    /// Returned in the response.
    pub client_context_id: Option<String>,
    /// Milliseconds after which the request must end; the platform enforces this.
    pub timeout_ms: Option<u64>,
    /// True to return metrics; the default of requests.
    pub metrics: bool,
    /// True to return the signature; the default of requests.
    pub signature: bool,
    /// True to execute a statement immediately after PREPARE.
    pub auto_execute: bool,
    /// `off`, `phases` or `timings`, as the client sent it.
    pub profile: String,
    /// True if the request contains `readonly=false`.
    pub names_writes: bool,
    /// The settings of the execution.
    pub settings: Settings,
    /// The format of rows.
    pub style: Style,
    /// True to return the parameters of the request.
    pub controls: bool,
    /// The maximum number of errors to return; 0 for all.
    pub error_limit: usize,
    /// Milliseconds that an index may take to reach the requested consistency.
    pub scan_wait_ms: Option<u64>,
    /// The transaction that it belongs to or begins.
    pub transaction: Transaction,
}

/// Parameters without an effect on any response, which accept any value: the service plans each statement where it runs, and
/// ignores plans from clients.
const IGNORED: &[&str] = &["encoded_plan", "query_id", "timeout_ms"];

impl Request {
    /// Creates a request for a statement with default settings.
    pub fn of(statement: &str) -> Request {
        Request {
            statement: Some(statement.to_owned()),
            metrics: true,
            signature: true,
            ..Request::default()
        }
    }

    /// Reads the JSON body of a request.
    ///
    /// # Errors
    /// Code 1040 if the body is not an object, 1065 for an unknown parameter, 1070 for a parameter of a wrong type.
    pub fn from_json(body: &[u8]) -> Result<Request> {
        let value = Value::parse(body)
            .map_err(|error| Error::new(1040, format!("Unable to parse the request: {error}")))?;
        let Some(members) = value.as_object() else {
            return Err(Error::new(1040, "The body of a request is a JSON object"));
        };
        Request::from_members(members.iter().map(|(name, value)| (&**name, value.clone())))
    }

    /// Reads forms, of which later ones take precedence: `name=value` joined by `&`, with `+` and `%` as in browsers.
    ///
    /// # Errors
    /// As for [`Request::from_json`].
    pub fn from_form<'a>(forms: impl IntoIterator<Item = &'a str>) -> Result<Request> {
        let pairs = forms.into_iter().flat_map(|form| form.split('&'));
        let pairs: Vec<_> = pairs.filter_map(decoded_pair).collect();
        Request::from_pairs(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// Restricts the request to statements that change nothing and keep nothing for later requests. This applies to requests by
    /// GET, because any link can make a browser send one with its user's login. Source: Couchbase's query service, except for
    /// PREPARE and transactions.
    ///
    /// # Errors
    /// Code 1000 if the request contains `readonly=false`.
    pub fn by_get(mut self) -> Result<Request> {
        if self.names_writes {
            return Err(Error::new(
                1000,
                "readonly=false cannot be used with the HTTP method GET.",
            ));
        }
        self.settings.readonly = true;
        self.settings.keeps_nothing = true;
        Ok(self)
    }

    /// Reads the pairs of a form; arrays, objects and arguments are JSON texts.
    ///
    /// # Errors
    /// As for [`Request::from_json`].
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Request> {
        let members = pairs.into_iter().map(|(name, text)| {
            let is_argument = name.starts_with(['$', '@']);
            let structured = is_argument
                || matches!(name, "args" | "scan_vector" | "scan_vectors" | "creds" | "txdata");
            let unreadable =
                |_| Error::new(1040, format!("Unable to parse {name}: it has to be JSON"));
            let value = match text {
                "true" | "false" if !is_argument => Value::Bool(text == "true"),
                _ if structured => Value::parse(text.as_bytes()).map_err(unreadable)?,
                _ => text.into(),
            };
            Ok((name, value))
        });
        Request::from_members(members.collect::<Result<Vec<_>>>()?)
    }

    fn from_members<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Result<Request> {
        let mut request = Request { metrics: true, signature: true, ..Request::default() };
        for (name, value) in members {
            request.set(name, value)?;
        }
        let Consistency { level, vectors } = &request.settings.consistency;
        if level == "at_plus" && vectors.is_missing() {
            return Err(Error::new(1050, "No scan_vector value, which at_plus needs"));
        }
        let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        if is_given(&request.statement) && is_given(&request.prepared) {
            return Err(Error::new(1060, "Multiple values for statement and prepared: give one"));
        }
        Ok(request)
    }

    fn set(&mut self, name: &str, value: Value) -> Result<()> {
        if let Some(argument) = name.strip_prefix(['$', '@']) {
            self.settings.named.insert(Name::from(argument), value);
            return Ok(());
        }
        let settings = &mut self.settings;
        match name.to_ascii_lowercase().as_str() {
            "statement" => self.statement = Some(text(name, &value)?),
            "prepared" => self.prepared = Some(text(name, &value)?),
            "client_context_id" => self.client_context_id = Some(text(name, &value)?),
            "args" => {
                let args = value.as_array().ok_or_else(|| wrong_type(name, "array"))?;
                settings.positional = args.to_vec();
            }
            "query_context" => settings.context = context(&text(name, &value)?)?,
            "readonly" => {
                settings.readonly = boolean(name, &value)?;
                self.names_writes = !settings.readonly;
            }
            "metrics" => self.metrics = boolean(name, &value)?,
            "signature" => self.signature = boolean(name, &value)?,
            "auto_execute" => self.auto_execute = boolean(name, &value)?,
            "preserve_expiry" => settings.preserve_expiry = boolean(name, &value)?,
            "profile" => {
                self.profile = choice(name, &value, &["off", "phases", "timings"])?;
            }
            "controls" => self.controls = boolean(name, &value)?,
            "pretty" => self.style.pretty = boolean(name, &value)?,
            "sort_projection" => self.style.sorted = boolean(name, &value)?,
            "error_limit" => {
                // As for other limits, a number that is not positive means no limit.
                let limit = whole_number(name, &value)?;
                self.error_limit = usize::try_from(limit).unwrap_or(0);
            }
            "scan_wait" => self.scan_wait_ms = limit_ms(&text(name, &value)?)?,
            // Documents have one namespace, and responses one format.
            "namespace" => _ = choice(name, &value, &["default"])?,
            "format" => _ = choice(name, &value, &["json"])?,
            "encoding" => _ = choice(name, &value, &["utf-8", "utf8"])?,
            "compression" => _ = choice(name, &value, &["none"])?,
            "use_cbo" => settings.ignores_costs = !boolean(name, &value)?,
            "use_fts" => settings.uses_search = boolean(name, &value)?,
            // The following parameters tune the execution of a statement and do not change the result.
            "max_parallelism" | "scan_cap" | "pipeline_batch" | "pipeline_cap" | "numatrs"
            | "n1ql_feat_ctrl" => {
                _ = tuning(name, &value)?;
            }
            "kvtimeout" | "kv_timeout" | "durability_timeout" => {
                _ = limit_ms(&text(name, &value)?)?;
            }
            "use_replica" => _ = switch(name, &value)?,
            "loglevel" => _ = text(name, &value)?,
            // The login of the request is used instead.
            "creds" => {
                value.as_array().ok_or_else(|| wrong_type(name, "array"))?;
            }
            "timeout" => self.timeout_ms = limit_ms(&text(name, &value)?)?,
            "memory_quota" => {
                // In mebibytes, as in Couchbase.
                let quota = value.as_i64().or_else(|| value.as_str()?.parse().ok());
                let quota = quota.and_then(|quota| usize::try_from(quota).ok());
                settings.memory_quota =
                    quota.ok_or_else(|| wrong_type(name, "number"))?.saturating_mul(1 << 20);
            }
            "scan_consistency" => settings.consistency.level = level(&text(name, &value)?)?,
            "scan_vector" | "scan_vectors" => settings.consistency.vectors = value,
            "txid" => {
                let id = text(name, &value)?;
                self.transaction.id = (!id.is_empty()).then_some(id);
            }
            "tximplicit" => self.transaction.implicit = boolean(name, &value)?,
            "txstmtnum" => self.transaction.number = Some(number(name, &value)?),
            "txtimeout" => {
                let timeout_ms = duration_ms(&text(name, &value)?)?;
                self.transaction.settings.timeout_ms = Some(timeout_ms);
            }
            "txdata" => {
                if value.as_object().is_none() {
                    return Err(wrong_type(name, "object"));
                }
                self.transaction.settings.staged = value.to_json();
                self.transaction.data = value;
            }
            "atrcollection" => self.transaction.settings.records = text(name, &value)?,
            "durability_level" => self.transaction.settings.durability = text(name, &value)?,
            ignored if IGNORED.contains(&ignored) => {}
            _ => {
                return Err(Error::new(1065, format!("Unrecognized parameter in request: {name}")));
            }
        }
        Ok(())
    }
}

fn wrong_type(name: &str, wanted: &str) -> Error {
    Error::new(1070, format!("{name} has to be of type {wanted}"))
}

fn text(name: &str, value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong_type(name, "string"))
}

fn boolean(name: &str, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        _ => Err(wrong_type(name, "boolean")),
    }
}

fn whole_number(name: &str, value: &Value) -> Result<i64> {
    let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
    number.ok_or_else(|| wrong_type(name, "number"))
}

fn number(name: &str, value: &Value) -> Result<u64> {
    u64::try_from(whole_number(name, value)?).map_err(|_| wrong_type(name, "number"))
}

/// Reads a tuning number, which may be hexadecimal.
fn tuning(name: &str, value: &Value) -> Result<i64> {
    let hexadecimal = value.as_str().and_then(|text| text.strip_prefix("0x"));
    match hexadecimal.and_then(|digits| i64::from_str_radix(digits, 16).ok()) {
        Some(number) => Ok(number),
        None => whole_number(name, value),
    }
}

/// Reads `on`, `off` or `unset`; a boolean means `on` or `off`.
fn switch(name: &str, value: &Value) -> Result<String> {
    match value {
        Value::Bool(truth) => Ok(if *truth { "on" } else { "off" }.to_owned()),
        _ => choice(name, value, &["on", "off", "unset"]),
    }
}

/// Reads one of these values, in lower case.
fn choice(name: &str, value: &Value, choices: &[&str]) -> Result<String> {
    let text = text(name, value)?.to_ascii_lowercase();
    match choices.contains(&text.as_str()) {
        true => Ok(text),
        false => Err(Error::new(1030, format!("Unknown {name} value: {text}"))),
    }
}

fn level(text: &str) -> Result<String> {
    let level = text.to_ascii_lowercase();
    match level.as_str() {
        "not_bounded" | "request_plus" | "statement_plus" | "at_plus" => Ok(level),
        _ => Err(Error::new(1040, format!("Unknown value for scan_consistency: {text}"))),
    }
}

/// Reads `namespace:bucket.scope` or `namespace:bucket`; empty means none.
fn context(text: &str) -> Result<Option<Path>> {
    if text.is_empty() || text == "default:" {
        return Ok(None);
    }
    let wrong =
        || Error::new(1065, format!("Unrecognized parameter in request: query_context {text}"));
    let path = parts_of(text.trim_start_matches(':')).ok_or_else(wrong)?;
    if path.parts.len() <= 2 { Ok(Some(path)) } else { Err(wrong()) }
}

/// Returns the parts of a path whose names need no quotes: only `:` and `.` separate them.
fn parts_of(text: &str) -> Option<Path> {
    let (mut namespace, mut parts, mut part) = (None, Vec::new(), String::new());
    let mut is_quoted = false;
    for c in text.chars() {
        match c {
            '`' => is_quoted = !is_quoted,
            ':' if !is_quoted && namespace.is_none() && parts.is_empty() => {
                namespace = Some(Name::from(std::mem::take(&mut part)));
            }
            '.' if !is_quoted => parts.push(Name::from(std::mem::take(&mut part))),
            c => part.push(c),
        }
    }
    parts.push(part.into());
    let is_whole = !is_quoted && parts.iter().chain(&namespace).all(|part| !part.is_empty());
    is_whole.then_some(Path { namespace, parts })
}

/// Reads a limit in milliseconds; `None` for 0 and negative values, which mean no limit.
fn limit_ms(text: &str) -> Result<Option<u64>> {
    if let Some(below) = text.strip_prefix('-') {
        duration_ms(below)?;
        return Ok(None);
    }
    Ok(Some(duration_ms(text)?).filter(|ms| *ms > 0))
}

/// Reads a duration in Go's notation, such as `8000ms`, `1.5s` or `1m14.9s`, in milliseconds; a number without unit is in
/// seconds.
fn duration_ms(text: &str) -> Result<u64> {
    let wrong = || Error::new(1040, format!("Unable to parse the duration: {text}"));
    let (mut rest, mut total) = (text, 0.0);
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = match unit {
            "ns" => 1e-6,
            "us" | "µs" => 1e-3,
            "ms" => 1.0,
            "s" => 1000.0,
            "" if rest.len() == text.len() => 1000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            _ => return Err(wrong()),
        };
        total += number.parse::<f64>().map_err(|_| wrong())? * scale;
        rest = tail;
        if rest.is_empty() {
            return Ok(total.ceil() as u64);
        }
    }
}

fn decoded_pair(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    (!name.is_empty()).then(|| (decoded(name), decoded(value)))
}

/// Decodes a part of a form: `+` is a space, `%` begins a byte. An invalid byte remains unchanged.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        let digits = tail.first_chunk::<2>().and_then(|digits| str::from_utf8(digits).ok());
        match (byte, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(decoded)) => {
                bytes.push(decoded);
                rest = &tail[2..];
            }
            (b'+', _) => bytes.push(b' '),
            (&byte, _) => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_syntax_of_go() {
        for (text, ms) in [
            ("8000ms", 8000),
            ("1.5s", 1500),
            ("1m14.9s", 74_900),
            ("2", 2000),
            ("1h0m1s", 3_601_000),
        ] {
            assert_eq!(duration_ms(text).ok(), Some(ms), "{text}");
        }
        for text in ["", "s", "1x", "1m3", "-1s", "1..2s", "soon"] {
            assert!(duration_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_limit_of_zero_or_less_means_unlimited() {
        for (text, ms) in
            [("5s", Some(5000)), ("0", None), ("0s", None), ("-1", None), ("-2m", None)]
        {
            assert_eq!(limit_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "-", "-x", "--1s", "soon"] {
            assert!(limit_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_documented_parameter_is_honoured_or_refused() {
        // Source: Couchbase's reference of the query REST API. Each parameter has a valid value and an invalid one.
        for (name, fits, wrong) in [
            ("args", "[1]", "7"),
            ("atrcollection", "default:b.s.c", "true"),
            ("auto_execute", "true", "1"),
            ("client_context_id", "c", "true"),
            ("compression", "none", "zip"),
            ("controls", "true", "some"),
            ("creds", "[]", "7"),
            ("durability_level", "majority", "true"),
            ("encoding", "UTF-8", "latin1"),
            ("error_limit", "3", "few"),
            ("format", "JSON", "XML"),
            ("kvtimeout", "10ms", "soon"),
            ("max_parallelism", "3", "many"),
            ("memory_quota", "4", "much"),
            ("metrics", "false", "no"),
            ("namespace", "default", "other"),
            ("numatrs", "20", "x"),
            ("pipeline_batch", "64", "x"),
            ("pipeline_cap", "1024", "x"),
            ("prepared", "p", "true"),
            ("preserve_expiry", "true", "1"),
            ("pretty", "true", "1"),
            ("profile", "timings", "full"),
            ("query_context", "default:b.s", "b.s.c"),
            ("readonly", "true", "1"),
            ("scan_cap", "-1", "x"),
            ("scan_consistency", "request_plus", "sometimes"),
            ("scan_vector", "{}", "{"),
            ("scan_vectors", "{}", "{"),
            ("scan_wait", "30m", "x"),
            ("signature", "true", "1"),
            ("sort_projection", "true", "1"),
            ("statement", "SELECT 1", "true"),
            ("timeout", "30m", "x"),
            ("txdata", "{}", "[]"),
            ("txid", "t", "true"),
            ("tximplicit", "true", "1"),
            ("txstmtnum", "10", "-1"),
            ("txtimeout", "30m", "x"),
            ("use_cbo", "true", "1"),
            ("use_fts", "true", "1"),
            ("use_replica", "on", "sometimes"),
        ] {
            let of = |value| Request::from_pairs([(name, value)]).map_err(|error| error.code);
            assert!(of(fits).is_ok(), "{name}={fits}: {:?}", of(fits).err());
            let refused = of(wrong).err();
            assert!(refused.is_some_and(|code| [1030, 1040, 1065, 1070].contains(&code)), "{name}");
        }
        for name in
            ["natural", "natural_cred", "natural_orgid", "natural_output", "natural_context"]
        {
            assert_eq!(Request::from_pairs([(name, "x")]).unwrap_err().code, 1065, "{name}");
        }
    }

    #[test]
    fn names_of_a_query_context_need_no_quotes() {
        for (text, bucket, scope) in [
            ("default:travel.inventory", "travel", "inventory"),
            ("default:my-bucket.test-scope", "my-bucket", "test-scope"),
            ("default:`my.bucket`.`s`", "my.bucket", "s"),
            ("travel.select", "travel", "select"),
            (":travel.9", "travel", "9"),
        ] {
            let path = context(text).unwrap().unwrap();
            assert_eq!(path.parts, [Name::from(bucket), Name::from(scope)], "{text}");
        }
        for text in ["default:my-bucket", "my-bucket", "`my-bucket`"] {
            let path = context(text).unwrap().unwrap();
            assert_eq!(path.parts, [Name::from("my-bucket")], "{text}");
        }
        for text in ["default:a.b.c", "a..b", "default:a.", "a.`b"] {
            assert_eq!(context(text).unwrap_err().code, 1065, "{text}");
        }
    }

    #[test]
    fn forms_are_decoded() {
        assert_eq!(decoded("SELECT+1%2B%e4%B8%80%2"), "SELECT 1+一%2");
        assert_eq!(decoded_pair("a=b=c"), Some(("a".into(), "b=c".into())));
        assert_eq!(decoded_pair("=x"), None);
    }

    #[test]
    fn arguments_of_a_form_are_json_with_either_prefix() {
        let request = Request::from_form(["statement=SELECT+1&$a=%22x%22&@b=true&$c=[1]"]).unwrap();
        let named = &request.settings.named;
        let expected =
            [("a", "x".into()), ("b", Value::Bool(true)), ("c", vec![Value::Int(1)].into())];
        for (name, value) in expected {
            assert_eq!(named.get(&Name::from(name)), Some(&value), "{name}");
        }
        for form in ["statement=SELECT+1&$a={x", "statement=SELECT+1&@a={x"] {
            assert_eq!(Request::from_form([form]).unwrap_err().code, 1040, "{form}");
        }
    }
}
