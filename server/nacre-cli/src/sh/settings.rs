//! Settings of the shell, which `\set` changes.

use super::output::Output;
use clap::ValueEnum;
use serde_json::Value;
use std::collections::BTreeMap;

/// Settings of requests and of output.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The form in which rows are written.
    pub output: Output,
    /// True to show the time of each statement.
    pub timing: bool,
    /// True to indent JSON.
    pub pretty: bool,
    /// True to draw EXPLAIN as a tree.
    pub plan: bool,
    /// The consistency of indexes; `None` for the node's default.
    pub consistency: Option<String>,
    /// The scope for collection names without one.
    pub context: Option<Context>,
    /// The timeout of a statement, in the node's syntax.
    pub timeout: Option<String>,
    /// The timeout of a transaction, in the node's syntax; takes effect with the next BEGIN WORK.
    pub txtimeout: Option<String>,
    /// Named arguments of statements, by name without the `$`.
    pub arguments: BTreeMap<String, Value>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            output: Output::Table,
            timing: true,
            pretty: true,
            plan: true,
            consistency: None,
            context: None,
            timeout: None,
            txtimeout: None,
            arguments: BTreeMap::new(),
        }
    }
}

/// The names of the settings. Arguments are not listed.
pub const NAMES: [&str; 8] =
    ["output", "timing", "pretty", "plan", "consistency", "context", "timeout", "txtimeout"];

const CONSISTENCIES: [&str; 2] = ["not_bounded", "request_plus"];

impl Settings {
    /// Sets a setting, or an argument if `name` begins with `$`.
    ///
    /// # Errors
    /// The possible names or values, if the name or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if let Some(argument) = name.strip_prefix('$') {
            let value = serde_json::from_str(value)
                .map_err(|error| format!("the value of ${argument} is not JSON: {error}"))?;
            self.arguments.insert(argument_name(argument)?, value);
            return Ok(());
        }
        match name {
            "output" => {
                self.output = Output::from_str(value, true)
                    .map_err(|_| "output is table, json, jsonl or csv".to_owned())?;
            }
            "timing" => self.timing = switch(name, value)?,
            "pretty" => self.pretty = switch(name, value)?,
            "plan" => self.plan = switch(name, value)?,
            "consistency" if CONSISTENCIES.contains(&value) => {
                self.consistency = Some(value.to_owned());
            }
            "consistency" => return Err("consistency is not_bounded or request_plus".to_owned()),
            "context" => self.context = Some(Context::parse(value)?),
            "timeout" if is_duration(value) => self.timeout = Some(value.to_owned()),
            "txtimeout" if is_duration(value) => self.txtimeout = Some(value.to_owned()),
            "timeout" | "txtimeout" => {
                return Err(format!("{name} is a duration such as 500ms, 10s or 2m"));
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Resets a setting to its default, or removes an argument.
    ///
    /// # Errors
    /// The reason, if there is no such setting.
    pub fn unset(&mut self, name: &str) -> Result<(), String> {
        if let Some(argument) = name.strip_prefix('$') {
            let removed = self.arguments.remove(argument);
            return removed.map(drop).ok_or_else(|| format!("${argument} is not set"));
        }
        let first = Settings::default();
        match name {
            "output" => self.output = first.output,
            "timing" => self.timing = first.timing,
            "pretty" => self.pretty = first.pretty,
            "plan" => self.plan = first.plan,
            "consistency" => self.consistency = None,
            "context" => self.context = None,
            "timeout" => self.timeout = None,
            "txtimeout" => self.txtimeout = None,
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Returns names and values, for people.
    pub fn shown(&self) -> Vec<(String, String)> {
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        let output = self.output.to_possible_value().map(|value| value.get_name().to_owned());
        let values = [
            output.unwrap_or_default(),
            switch(self.timing),
            switch(self.pretty),
            switch(self.plan),
            self.consistency.clone().unwrap_or_default(),
            self.context.as_ref().map(Context::path).unwrap_or_default(),
            self.timeout.clone().unwrap_or_default(),
            self.txtimeout.clone().unwrap_or_default(),
        ];
        let settings = NAMES.iter().map(|name| (*name).to_owned()).zip(values);
        let arguments =
            self.arguments.iter().map(|(name, value)| (format!("${name}"), value.to_string()));
        settings.chain(arguments).collect()
    }
}

fn unknown(name: &str) -> String {
    format!("there is no setting {name:?}: {} or an argument such as $name", NAMES.join(", "))
}

fn switch(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{name} is on or off")),
    }
}

fn argument_name(name: &str) -> Result<String, String> {
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then(|| name.to_owned()).ok_or_else(|| {
        format!("${name} is not a valid name: use letters, digits and _ after the $")
    })
}

fn is_duration(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    digits.parse::<u32>().is_ok() && matches!(unit, "ms" | "s" | "m" | "h")
}

/// The scope for collection names without one.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// Name of the bucket.
    pub bucket: String,
    /// Name of the scope.
    pub scope: String,
}

impl Context {
    /// Parses `bucket.scope`, or `bucket` for its default scope; both parts may be in back quotes. Only bucket names
    /// contain dots, so the last dot separates the parts.
    ///
    /// # Errors
    /// The reason, if the text has neither form.
    pub fn parse(text: &str) -> Result<Context, String> {
        let text = text.strip_prefix("default:").unwrap_or(text);
        let outside = text.bytes().scan(false, |quoted, byte| {
            *quoted ^= byte == b'`';
            Some(!*quoted && byte == b'.')
        });
        let dot = outside.enumerate().filter_map(|(at, is_dot)| is_dot.then_some(at)).last();
        let (bucket, scope) = match dot {
            Some(dot) => (&text[..dot], &text[dot + 1..]),
            None => (text, "_default"),
        };
        let plain = |name: &str| {
            let inner = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
            inner.unwrap_or(name).to_owned()
        };
        let (bucket, scope) = (plain(bucket), plain(scope));
        let is_name = |name: &str| {
            !name.is_empty() && !name.contains(|c: char| c == '`' || c.is_whitespace())
        };
        if is_name(&bucket) && is_name(&scope) {
            Ok(Context { bucket, scope })
        } else {
            Err(format!("{text:?} is not a query context: write bucket.scope"))
        }
    }

    /// Returns `bucket.scope`, for people.
    pub fn path(&self) -> String {
        format!("{}.{}", self.bucket, self.scope)
    }

    /// Returns the context in the form of a request.
    pub fn query_context(&self) -> String {
        format!("default:`{}`.`{}`", self.bucket, self.scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_a_bucket_and_a_scope() {
        let parsed = |text: &str| Context::parse(text).map(|context| context.query_context()).ok();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parsed("travel-sample.inventory"), some("default:`travel-sample`.`inventory`"));
        assert_eq!(parsed("default:`a.b`.`c`"), some("default:`a.b`.`c`"));
        assert_eq!(parsed("a.b.c"), some("default:`a.b`.`c`"));
        assert_eq!(parsed("a"), some("default:`a`.`_default`"));
        for text in ["", ".", "a.", ".a", "a b.c", "`a", "a.`b` c"] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_invalid_value_of_a_setting_changes_nothing() {
        let mut settings = Settings::default();
        for (name, value) in [
            ("output", "xml"),
            ("timing", "maybe"),
            ("consistency", "at_plus"),
            ("timeout", "soon"),
            ("txtimeout", "soon"),
            ("timeout", "-1s"),
            ("context", "."),
            ("colour", "red"),
            ("$a", "{"),
            ("$", "1"),
            ("$a b", "1"),
        ] {
            assert!(settings.set(name, value).is_err(), "{name} {value}");
        }
        assert_eq!(settings.shown(), Settings::default().shown());
    }
}
