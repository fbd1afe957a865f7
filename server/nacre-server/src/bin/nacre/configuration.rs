//! `nacre.toml`: options of `nacre serve` in a file.
//!
//! ```toml
//! data-dir = "/var/lib/nacre"
//! buckets = ["shop", "till"]
//! memory = "4GiB"
//! ```
//!
//! Each key is the name of a flag without its hyphens at the start. A flag counts first, then its variable, then the file, then the
//! default. The file is turned into variables before the command line is parsed, so that a value is checked in one place.

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::path::Path;
use toml::Value;

/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Flags whose values are not shown.
const SECRETS: [&str; 2] = ["password", "claim-token"];
/// Flags that are about the file.
const ABOUT: [&str; 4] = ["config", "print-config", "help", "version"];

/// Sets the variables of the options in the file `path` that are not set. Returns their names.
///
/// To be called by the only thread, before the command line is parsed.
///
/// # Errors
/// A sentence that names the file and the key: it is unknown, or its value is not one of an option.
pub fn read(serve: &Command, path: &Path) -> Result<Vec<String>, String> {
    use std::io::Read;
    let named = |reason: String| format!("{}: {reason}", path.display());
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| named(format!("{error}: name another file with --config")))?;
    let mut set = Vec::new();
    for (variable, value) in variables(serve, &text).map_err(named)? {
        if std::env::var_os(&variable).is_none() {
            // SAFETY: no other thread runs yet.
            unsafe { std::env::set_var(&variable, value) };
            set.push(variable);
        }
    }
    Ok(set)
}

/// Returns the variables of the options in a file, with their values.
fn variables(serve: &Command, text: &str) -> Result<Vec<(String, String)>, String> {
    let file: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let error = error.to_string();
        format!(
            "{}\n`nacre serve --print-config` prints a file in the right form",
            error.trim_end()
        )
    })?;
    let mut variables = Vec::new();
    for (key, value) in &file {
        let flag = key.replace('_', "-");
        let known = |argument: &&clap::Arg| argument.get_long() == Some(&flag);
        let argument = serve.get_arguments().find(known).filter(|_| !ABOUT.contains(&&*flag));
        let variable = argument.and_then(|argument| argument.get_env()?.to_str());
        let variable = variable.ok_or_else(|| unknown(serve, key))?;
        let is_switch =
            argument.is_some_and(|argument| matches!(argument.get_action(), ArgAction::SetTrue));
        variables.push((variable.to_owned(), value_of(key, value, is_switch)?));
    }
    Ok(variables)
}

/// Returns a value as a variable has it.
fn value_of(key: &str, value: &Value, is_switch: bool) -> Result<String, String> {
    match value {
        Value::Boolean(value) if is_switch => Ok(value.to_string()),
        _ if is_switch => Err(format!("{key} is true or false, as {key} = true")),
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Array(values) => {
            let text = |value: &Value| {
                let text = value.as_str().filter(|text| !text.contains(','));
                text.map(str::to_owned).ok_or_else(|| {
                    format!("{key} is a list of texts, as {key} = [\"one\", \"two\"]")
                })
            };
            Ok(values.iter().map(text).collect::<Result<Vec<_>, _>>()?.join(","))
        }
        other => {
            let kind = other.type_str();
            Err(format!("{key} cannot be a {kind}: write a text or a number, as {key} = \"…\""))
        }
    }
}

/// Says which option a key may have been meant for.
fn unknown(serve: &Command, key: &str) -> String {
    let flags = serve.get_arguments().filter_map(|argument| argument.get_long());
    let mut flags: Vec<&str> = flags.filter(|flag| !ABOUT.contains(flag)).collect();
    flags.sort_by_key(|flag| distance(flag, key));
    let nearest = flags.first().copied().unwrap_or_default();
    format!(
        "{key} is not an option of nacre serve; did you mean {nearest}? `nacre serve --help` lists them"
    )
}

/// Number of single changes that make one text of another (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, character) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (at, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(*other != character);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(row[at + 1] + 1);
        }
    }
    row[right.len()]
}

/// Returns where a value that the command line refuses comes from, if it is one of the file at `path`; `from_file` has the variables
/// that the file has set.
pub fn place_of(
    serve: &Command,
    error: &clap::Error,
    path: &Path,
    from_file: &[String],
) -> Option<String> {
    let ContextValue::String(argument) = error.get(ContextKind::InvalidArg)? else { return None };
    let flag = argument.strip_prefix("--")?.split(' ').next()?;
    let known = serve.get_arguments().find(|known| known.get_long() == Some(flag))?;
    let variable = known.get_env()?.to_str()?;
    let is_of_file = from_file.iter().any(|set| set == variable);
    is_of_file.then(|| format!("the value of {flag} is in {}: correct it there", path.display()))
}

/// Returns the options that count, as a file that sets them, with the source of each; `from_file` has the variables that a file has set.
pub fn describe(serve: &Command, matches: &ArgMatches, from_file: &[String]) -> String {
    let mut text = String::new();
    for argument in serve.get_arguments() {
        let (Some(flag), Some(variable)) = (argument.get_long(), argument.get_env()) else {
            continue;
        };
        if ABOUT.contains(&flag) {
            continue;
        }
        let variable = variable.to_str().unwrap_or_default();
        let source = match matches.value_source(argument.get_id().as_str()) {
            Some(ValueSource::CommandLine) => "flag".to_owned(),
            Some(ValueSource::EnvVariable) if from_file.iter().any(|set| set == variable) => {
                "file".to_owned()
            }
            Some(ValueSource::EnvVariable) => variable.to_owned(),
            _ => "default".to_owned(),
        };
        let values = matches.get_raw(argument.get_id().as_str());
        let values: Vec<OsString> =
            values.into_iter().flatten().map(std::ffi::OsStr::to_owned).collect();
        let line = match shown(argument, &values) {
            Some(_) if SECRETS.contains(&flag) => format!("# {flag} is set"),
            Some(value) => format!("{flag} = {value}"),
            None => format!("# {flag} is not set"),
        };
        text.push_str(&format!("{line:<50} # {source}\n"));
    }
    text
}

/// Returns the values of an option as a file has them.
fn shown(argument: &clap::Arg, values: &[OsString]) -> Option<String> {
    let text = |value: &OsString| Value::String(value.to_string_lossy().into_owned()).to_string();
    let first = values.first()?;
    let plain = first.to_string_lossy();
    Some(match argument.get_action() {
        ArgAction::SetTrue => (!matches!(&*plain, "false" | "0" | "no" | "off" | "")).to_string(),
        ArgAction::Append => {
            format!("[{}]", values.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        _ if plain.parse::<i64>().is_ok() => plain.into_owned(),
        _ => text(first),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    fn serve() -> Command {
        nacre_server::Serve::augment_args(Command::new("serve").no_binary_name(true))
    }

    #[test]
    fn a_file_sets_the_variables_of_its_options() {
        let text =
            "data-dir = \"/srv\"\nkv_threads = 4\nbuckets = [\"a\", \"b\"]\nno-io-uring = true\n";
        let mut variables = variables(&serve(), text).unwrap();
        variables.sort();
        let expected = [
            ("NACRE_BUCKETS", "a,b"),
            ("NACRE_DATA_DIR", "/srv"),
            ("NACRE_KV_THREADS", "4"),
            ("NACRE_NO_IO_URING", "true"),
        ];
        assert_eq!(variables, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn an_unknown_option_is_named_with_the_closest_one() {
        let refused = |text: &str| variables(&serve(), text).unwrap_err();
        assert!(refused("data_dri = 1").contains("did you mean data-dir?"));
        assert!(refused("buckets = [1]").contains("buckets is a list of texts"));
        assert!(refused("no-io-uring = \"yes\"").contains("no-io-uring is true or false"));
        assert!(refused("data-dir = ").contains("line 1"));
        assert!(refused("[server]\nport = 1").contains("server is not an option"));
    }

    #[test]
    fn a_refused_value_of_the_file_is_named_with_the_file() {
        let refused = |arguments: &[&str]| {
            serve().try_get_matches_from(arguments.iter().copied()).unwrap_err()
        };
        let error = refused(&["--kv-threads", "many"]);
        let path = Path::new("/etc/nacre.toml");
        let place = |from_file: &[String]| place_of(&serve(), &error, path, from_file);
        let expected = "the value of kv-threads is in /etc/nacre.toml: correct it there";
        assert_eq!(place(&["NACRE_KV_THREADS".to_owned()]).as_deref(), Some(expected));
        assert_eq!(place(&[]), None);
        assert_eq!(place_of(&serve(), &refused(&["--no-such-flag"]), path, &[]), None);
    }

    #[test]
    fn effective_options_are_shown_with_their_source_and_without_secrets() {
        let arguments = ["--data-dir", "/srv", "--password", "secret", "--buckets", "a,b"];
        let matches = serve().try_get_matches_from(arguments).unwrap();
        let shown = describe(&serve(), &matches, &[]);
        let line = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(line("data-dir").contains("\"/srv\"") && line("data-dir").ends_with("# flag"));
        assert!(line("buckets").contains("[\"a\", \"b\"]"), "{shown}");
        assert!(line("bucket-ram-mb = 256").ends_with("# default"));
        assert!(line("# password is set").ends_with("# flag") && !shown.contains("secret"));
    }
}
