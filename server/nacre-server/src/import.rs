//! `nacre import`: documents from a JSON or CSV file into a collection.

use crate::client::Client;
use crate::loader::Loader;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use nacre_types::{leb128_encode, name_bytes_max};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

/// Bad rows that are shown one by one.
const SHOWN_ERRORS_MAX: u64 = 10;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A JSON array of objects, or one object a line
    Json,
    /// Values separated by commas, names in the first line
    Csv,
}

/// Options of `nacre import`.
#[derive(Args, Clone, Debug)]
pub struct Import {
    /// What the file holds
    format: Format,
    /// The file
    file: PathBuf,
    /// Key-value address of the server, any node of a cluster
    #[arg(long, default_value = "127.0.0.1:11210")]
    server: String,
    /// User
    #[arg(long, env = "NACRE_USER", default_value = "Administrator")]
    user: String,
    /// Password
    #[arg(long, env = "NACRE_PASSWORD", hide_env_values = true)]
    password: String,
    /// Bucket
    #[arg(long)]
    bucket: String,
    /// Collection, as scope.name
    #[arg(long, default_value = "_default._default")]
    collection: String,
    /// How keys are made: %field% is the value of a field, #MONO_INCR# the number of the row
    #[arg(long, default_value = "#MONO_INCR#")]
    key: String,
    /// Make numbers and booleans of CSV values that look like them
    #[arg(long)]
    infer_types: bool,
    /// Stop after this many documents
    #[arg(long)]
    limit: Option<u64>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// Loads a file.
///
/// # Errors
/// A sentence: what could not be read or written. Rows that are no documents are counted and end it with an error, after
/// all others were loaded.
pub fn import(options: &Import) -> Result<(), String> {
    check_pattern(&options.key)?;
    let connect =
        |server: &str| Client::connect(server, &options.user, &options.password, &options.bucket);
    let mut client = connect(&options.server)?;
    let mut prefix = Vec::new();
    leb128_encode(client.collection_id(&options.collection)?, &mut prefix);
    let bar = if options.quiet { ProgressBar::hidden() } else { ProgressBar::no_length() };
    let style = ProgressStyle::with_template("{spinner} {human_pos} documents, {per_sec}")
        .expect("the template is valid");
    bar.set_style(style);

    let name_max = name_bytes_max(prefix == [0]);
    let mut loader = Loader::open(&connect, &options.server, client, prefix, bar.clone())?;
    let mut rows = 0;
    let mut bad = 0;
    read(options, &mut |row| {
        if options.limit.is_some_and(|limit| rows >= limit) {
            return Ok(false);
        }
        rows += 1;
        match row
            .and_then(|document| Ok((key_of(&options.key, rows, &document, name_max)?, document)))
        {
            Ok((key, document)) => loader.write(key, document)?,
            Err(reason) => {
                bad += 1;
                if bad <= SHOWN_ERRORS_MAX {
                    bar.suspend(|| eprintln!("row {rows}: {reason}"));
                }
            }
        }
        Ok(true)
    })?;
    loader.finish()?;
    bar.finish_and_clear();
    println!("imported {} documents into {}.{}", rows - bad, options.bucket, options.collection);
    if bad > 0 { Err(format!("{bad} of {rows} rows were not imported")) } else { Ok(()) }
}

/// Calls `each` with every row's document (JSON text), or with why it is none, until it says stop.
fn read(
    options: &Import,
    each: &mut dyn FnMut(Result<String, String>) -> Result<bool, String>,
) -> Result<(), String> {
    let path = options.file.display();
    let file = std::fs::File::open(&options.file)
        .map_err(|error| format!("cannot open {path}: {error}"))?;
    match options.format {
        Format::Csv => read_csv(options, file, each),
        Format::Json => read_json(&options.file, BufReader::new(file), each),
    }
}

fn read_csv(
    options: &Import,
    file: std::fs::File,
    each: &mut dyn FnMut(Result<String, String>) -> Result<bool, String>,
) -> Result<(), String> {
    let mut reader = csv::ReaderBuilder::new().flexible(false).from_reader(file);
    let header = reader.headers().map_err(|error| format!("the first line: {error}"))?.clone();
    for record in reader.records() {
        let document = record.map_err(|error| error.to_string()).map(|record| {
            let fields = header.iter().zip(&record);
            let object: Map<String, Value> = fields
                .map(|(name, text)| (name.to_owned(), csv_value(text, options.infer_types)))
                .collect();
            Value::Object(object).to_string()
        });
        if !each(document)? {
            break;
        }
    }
    Ok(())
}

/// A number is only taken for one when it is written plainly: codes such as `0E0` and `0E8` would both become 0.
fn csv_value(text: &str, infer: bool) -> Value {
    let plain = !text.contains(['e', 'E']);
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) if infer && plain => value,
        Ok(value @ Value::Bool(_)) if infer => value,
        _ => Value::String(text.to_owned()),
    }
}

fn read_json(
    path: &std::path::Path,
    mut file: BufReader<std::fs::File>,
    each: &mut dyn FnMut(Result<String, String>) -> Result<bool, String>,
) -> Result<(), String> {
    let cannot = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
    let start = file.fill_buf().map_err(|error| cannot(&error))?;
    let is_array = start.trim_ascii_start().first() == Some(&b'[');
    if is_array {
        let text = std::io::read_to_string(file).map_err(|error| cannot(&error))?;
        let rows: Vec<&RawValue> = serde_json::from_str(&text)
            .map_err(|error| format!("{} is not JSON: {error}", path.display()))?;
        for row in rows {
            if !each(Ok(row.get().to_owned()))? {
                break;
            }
        }
        return Ok(());
    }
    for line in file.lines() {
        let line = line.map_err(|error| cannot(&error))?;
        if line.trim().is_empty() {
            continue;
        }
        let document = serde_json::from_str::<&RawValue>(&line)
            .map(|_| line.clone())
            // The line of the file is the row's; that within its text is always the first.
            .map_err(|error| {
                let reason = error.to_string().replace("line 1 column", "column");
                format!("not JSON, of which each line is one document: {reason}")
            });
        if !each(document)? {
            break;
        }
    }
    Ok(())
}

/// Refuses a pattern in which a field's name does not end: all rows would have the same key.
fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.matches('%').count().is_multiple_of(2) {
        return Ok(());
    }
    Err(format!(
        "--key {pattern:?}: the name of a field stands between two %, one of them is missing"
    ))
}

/// Fills the pattern of keys for one row; a key has at most `bytes_max`.
fn key_of(pattern: &str, row: u64, document: &str, bytes_max: usize) -> Result<String, String> {
    let mut key = String::new();
    let mut fields: Option<Value> = None;
    for (index, part) in pattern.replace("#MONO_INCR#", &row.to_string()).split('%').enumerate() {
        if index % 2 == 0 {
            key.push_str(part);
            continue;
        }
        let fields =
            fields.get_or_insert_with(|| serde_json::from_str(document).unwrap_or_default());
        match fields.get(part) {
            Some(Value::String(text)) => key.push_str(text),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => key.push_str(&value.to_string()),
            _ => return Err(format!("it has no field {part:?} to make a key of")),
        }
    }
    let length = key.len();
    if (1..=bytes_max).contains(&length) {
        Ok(key)
    } else {
        Err(format!("its key would have {length} bytes, which is not 1 to {bytes_max}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_of_fields_and_row_numbers() {
        let document = r#"{"iata":"SFO","gate":7,"none":null}"#;
        let key_of = |pattern: &str| key_of(pattern, 3, document, 13);
        assert_eq!(key_of("airport_%iata%_%gate%").unwrap(), "airport_SFO_7");
        assert!(key_of("airports_%iata%_%gate%").unwrap_err().contains("14 bytes"));
        assert_eq!(key_of("flight_#MONO_INCR#").unwrap(), "flight_3");
        assert!(key_of("%none%").unwrap_err().contains("no field \"none\""));
        assert!(key_of("%%").is_err());
        assert!(check_pattern("airport_%iata%_%gate%").is_ok());
        assert!(check_pattern("airport_%iata").unwrap_err().contains("one of them is missing"));
    }

    #[test]
    fn csv_values_are_text_unless_types_are_inferred() {
        assert_eq!(csv_value("31.95", true), serde_json::json!(31.95));
        assert_eq!(csv_value("31.95", false), serde_json::json!("31.95"));
        assert_eq!(csv_value("00M", true), serde_json::json!("00M"));
        assert_eq!(csv_value("0E8", true), serde_json::json!("0E8"), "the code of an airport");
        assert_eq!(csv_value("true", true), serde_json::json!(true));
    }
}
