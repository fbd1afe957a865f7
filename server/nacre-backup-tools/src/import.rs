//! `nacre import`: documents from a JSON, CSV or Parquet file into a collection, or into several.

mod rows;

use crate::backup::{ExportedVersion, VersionImporter};
use crate::key_pattern::Pattern;
use crate::loader::{Existing, Loaded, Loader};
use crate::parquet_reader::read_parquet;
use clap::{Args, ValueEnum};
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use nacre_cli::{Cluster, Failure, Server};
use nacre_client::{BASIC_FEATURES, Connection};
use rows::{Collections, Rows};
use serde::Deserializer as _;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bad rows that are shown one by one.
const SHOWN_ERRORS_MAX: u64 = 10;
/// Byte order mark, with which some editors begin a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// First bytes of a file that is compressed with gzip. Source: RFC 1952.
const GZIP_MAGIC: &[u8] = b"\x1f\x8b";

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A JSON array of objects, or objects one after the other, such as one a line
    Json,
    /// Values separated by commas, names in the first line
    Csv,
    /// A file of Apache Parquet; each row is a document
    Parquet,
}

/// Options of `nacre import`.
#[derive(Args, Clone, Debug)]
pub struct Import {
    /// Format of the file
    format: Format,
    /// File to load; - reads JSON or CSV from standard input. JSON and CSV files may be compressed
    /// with gzip
    file: PathBuf,
    #[command(flatten)]
    server: Server,
    /// Bucket
    #[arg(short, long, env = "NACRE_BUCKET", default_value = "default")]
    bucket: String,
    /// Collection, as scope.name
    #[arg(short = 'C', long, env = "NACRE_COLLECTION", default_value = "_default._default")]
    collection: String,
    /// Pattern of the collection of each row, as %scope%.%collection%; the collections must exist
    #[arg(
        long,
        alias = "scope-collection-exp",
        value_name = "PATTERN",
        conflicts_with = "collection"
    )]
    into: Option<String>,
    /// Pattern of document keys: %field% or %field.inner% inserts the value of a field, #UUID# a random UUID, #MONO_INCR# the number
    /// of the row in the file, #MONO_INCR[100]# counts from 100; %% is %, ## is #
    #[arg(long, alias = "generate-key", short_alias = 'g')]
    key: Option<String>,
    /// Character around fields in patterns
    #[arg(long, value_name = "C", default_value = "%")]
    field_delimiter: char,
    /// Character around generators in patterns
    #[arg(long, value_name = "C", default_value = "#")]
    generator_delimiter: char,
    /// Read the output of `nacre export --with-meta`, including keys, metadata and extended attributes; newer documents in the bucket
    /// are kept
    #[arg(long, conflicts_with_all = ["key", "into", "insert_only", "infer_types", "collection", "ignore_fields", "errors", "skip"])]
    with_meta: bool,
    /// Field of each row that contains the document as JSON text: `document` in files of `nacre
    /// export parquet`
    #[arg(long, value_name = "FIELD", conflicts_with = "with_meta")]
    document_field: Option<String>,
    /// Keep documents that already exist
    #[arg(long)]
    insert_only: bool,
    /// Fields to leave out of the documents, separated by commas; patterns can still use them
    #[arg(long, value_delimiter = ',', value_name = "FIELDS")]
    ignore_fields: Vec<String>,
    /// Convert CSV values that look like numbers or booleans
    #[arg(long)]
    infer_types: bool,
    /// Leave out CSV values that are empty
    #[arg(long)]
    omit_empty: bool,
    /// Character between CSV values, or tab
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = separator)]
    field_separator: u8,
    /// File for the rows that are not imported, each as a line of JSON with its number, the reason and the document
    #[arg(long, alias = "errors-log", short_alias = 'e', value_name = "FILE")]
    errors: Option<PathBuf>,
    /// Skip this number of rows at the beginning of the file
    #[arg(long, alias = "skip-docs", alias = "skip-rows", default_value_t = 0)]
    skip: u64,
    /// Stop after this many documents
    #[arg(long, alias = "limit-docs", alias = "limit-rows")]
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
pub fn import(options: &Import) -> Result<(), Failure> {
    if options.with_meta {
        return import_versions(options);
    }
    let key = options.key.as_deref().ok_or(
        "--key is missing: it says how keys are made, such as customer_%id% of the field id, or #UUID# for new ones",
    )?;
    let delimiters = [options.field_delimiter, options.generator_delimiter];
    let key = Pattern::read(key, delimiters).map_err(|reason| format!("--key {reason}"))?;
    let into = options.into.as_deref().map(|text| Pattern::read(text, delimiters)).transpose();
    let into = into.map_err(|reason| format!("--into {reason}"))?;
    let errors = options.errors.as_deref().map(rows::create).transpose()?;
    let keys = options.server.keys()?;
    let (user, password) = options.server.login()?;
    let tls = keys.is_encrypted.then(|| options.server.trust()?.client_config()).transpose()?;
    let login = [user, password, &options.bucket];
    let connect = |server: &str| {
        Connection::connect(server, tls.as_ref(), login, BASIC_FEATURES).map_err(String::from)
    };
    let mut connection = connect(&keys.address)?;
    let collections = match into {
        None => Collections::one(connection.collection_id(&options.collection)?),
        Some(pattern) => Collections::of_rows(pattern, connect(&keys.address)?),
    };
    let bar = if options.quiet { ProgressBar::hidden() } else { ProgressBar::no_length() };
    let style = ProgressStyle::with_template("{spinner} {human_pos} documents, {per_sec}")
        .expect("the template is valid");
    bar.set_style(style);

    let existing = if options.insert_only { Existing::Keep } else { Existing::Replace };
    let loader = Loader::open(&connect, &keys.address, connection, existing, bar.clone())?;
    let bar_of_rows = bar.clone();
    let mut rows =
        Rows { options, key, collections, loader, bar: bar_of_rows, errors, seen: 0, bad: 0 };
    let outcome = read(options, &mut |row| rows.take(row)).and_then(|()| rows.finish());
    bar.finish_and_clear();
    let place = match &options.into {
        None => format!("{}.{}", options.bucket, options.collection),
        Some(_) => options.bucket.clone(),
    };
    println!("{}", summary(&rows.loader.loaded(), &place));
    if let Err(reason) = outcome {
        return Err(match rows.loader.is_full() {
            true => format!("{reason}: {}", why_full(options)).into(),
            false => reason.into(),
        });
    }
    match (rows.bad, rows.seen.saturating_sub(options.skip)) {
        (0, _) => Ok(()),
        (bad, seen) => Err(format!("{bad} of {seen} rows were not imported").into()),
    }
}

/// Loads lines of an export with metadata.
fn import_versions(options: &Import) -> Result<(), Failure> {
    if options.format != Format::Json {
        return Err("--with-meta reads JSON: name the format json".into());
    }
    let cluster = Cluster::open(&options.server)?;
    let mut importer = VersionImporter::open(&cluster, &options.bucket)?;
    let (mut rows, mut bad) = (0, 0);
    let mut each = |row: Result<String, String>| {
        if options.limit.is_some_and(|limit| rows >= limit) {
            return Ok(false);
        }
        rows += 1;
        match row.and_then(|line| ExportedVersion::read(&line)) {
            Ok(version) => importer.write(&version)?,
            Err(reason) => {
                bad += 1;
                if bad <= SHOWN_ERRORS_MAX {
                    eprintln!("row {rows}: {reason}");
                }
            }
        }
        Ok(true)
    };
    read(options, &mut each)?;
    let (written, kept) = importer.finish()?;
    let plural = if written == 1 { "" } else { "s" };
    println!(
        "imported {written} document{plural} into {}, left {kept} that were there already or newer",
        options.bucket
    );
    if bad > 0 { Err(format!("{bad} of {rows} rows were not imported").into()) } else { Ok(()) }
}

/// `imported 3 documents into b.s.c, 2 in place of others`.
fn summary(loaded: &Loaded, place: &str) -> String {
    let count = loaded.added + loaded.replaced;
    let plural = if count == 1 { "" } else { "s" };
    let mut text = format!("imported {count} document{plural} into {place}");
    if loaded.replaced > 0 {
        text.push_str(&format!(", {} in place of existing ones", loaded.replaced));
    }
    if loaded.kept > 0 {
        text.push_str(&format!(", left {} existing as they are", loaded.kept));
    }
    text
}

/// Explains why a node has refused writes for a while, from what the management knows of the bucket.
fn why_full(options: &Import) -> String {
    let unknown = || {
        "the memory of the bucket or the disk of the node is full, or it cannot keep up".to_owned()
    };
    let path = format!("/pools/default/buckets/{}", options.bucket);
    let Ok(bucket) = options.server.call("GET", &path, b"") else { return unknown() };
    let mib = |value: &Value| value.as_u64().map(|bytes| bytes >> 20);
    let (quota, used) = (mib(&bucket["quota"]["rawRAM"]), mib(&bucket["basicStats"]["memUsed"]));
    let nodes = bucket["nodes"].as_array().map_or(1, Vec::len).max(1) as u64;
    match (quota, used) {
        // From three quarters on, a node lets documents leave memory, or refuses new ones.
        (Some(quota), Some(used)) if used * 4 >= quota * 3 => format!(
            "the bucket {} is full: {used} of {quota} MiB of memory are used; raise its ramQuotaMB, which is {}, or remove documents",
            options.bucket,
            quota / nodes
        ),
        (Some(_), Some(_)) => {
            "the disk of a node is full or cannot keep up: its log says which".to_owned()
        }
        _ => unknown(),
    }
}

/// Calls `each` with the document of every row (JSON text), or the reason why the row has none, until it returns false.
fn read(
    options: &Import,
    each: &mut dyn FnMut(Result<String, String>) -> Result<bool, String>,
) -> Result<(), String> {
    let is_stdin = options.file.as_os_str() == "-";
    let name =
        if is_stdin { "standard input".to_owned() } else { options.file.display().to_string() };
    if options.format == Format::Parquet {
        return match is_stdin {
            true => Err("a Parquet file is read from its end: name a file".to_owned()),
            false => read_parquet(&name, open(&options.file, &name)?, each),
        };
    }
    let input: Box<dyn Read> = match is_stdin {
        true => Box::new(std::io::stdin()),
        false => Box::new(open(&options.file, &name)?),
    };
    let mut input: BufReader<Box<dyn Read>> = BufReader::new(input);
    let cannot = |error: std::io::Error| format!("cannot read {name}: {error}");
    if input.fill_buf().map_err(cannot)?.starts_with(GZIP_MAGIC) {
        let plain: Box<dyn Read> = Box::new(MultiGzDecoder::new(input));
        input = BufReader::new(plain);
    }
    let start = input.fill_buf().map_err(cannot)?;
    if start.starts_with(BYTE_ORDER_MARK) {
        input.consume(BYTE_ORDER_MARK.len());
    }
    match options.format {
        Format::Csv => read_csv(options, &mut input, each),
        _ => read_json(&name, &mut input, each),
    }
}

fn open(path: &Path, name: &str) -> Result<File, String> {
    File::open(path).map_err(|error| format!("cannot open {name}: {error}"))
}

fn read_csv(
    options: &Import,
    file: &mut dyn BufRead,
    each: &mut dyn FnMut(Result<String, String>) -> Result<bool, String>,
) -> Result<(), String> {
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.flexible(false).delimiter(options.field_separator).from_reader(file);
    let header = reader.headers().map_err(|error| format!("the first line: {error}"))?.clone();
    for record in reader.records() {
        let document = record.map_err(|error| error.to_string()).map(|record| {
            let fields = header.iter().zip(&record);
            let kept = fields.filter(|(_, text)| !(options.omit_empty && text.is_empty()));
            let object: Map<String, Value> = kept
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
    name: &str,
    file: &mut dyn BufRead,
    each: &mut dyn FnMut(Result<String, String>) -> Result<bool, String>,
) -> Result<(), String> {
    let cannot = |error: &dyn std::fmt::Display| format!("cannot read {name}: {error}");
    let start = file.fill_buf().map_err(|error| cannot(&error))?;
    let is_array = start.trim_ascii_start().first() == Some(&b'[');
    if is_array {
        return read_array(name, file, each);
    }
    let mut first = String::new();
    while first.trim().is_empty() {
        first.clear();
        if file.read_line(&mut first).map_err(|error| cannot(&error))? == 0 {
            return Ok(());
        }
    }
    let is_whole = serde_json::from_str::<&RawValue>(&first).map_or_else(|e| !e.is_eof(), |_| true);
    if !is_whole {
        // Documents of several lines: one that is wrong ends it, as nobody knows where the next one begins.
        let rest = first.as_bytes().chain(file);
        for row in serde_json::Deserializer::from_reader(rest).into_iter::<Box<RawValue>>() {
            let row = row.map_err(|error| format!("{name} is not JSON: {error}"))?;
            if !each(Ok(row.get().to_owned()))? {
                break;
            }
        }
        return Ok(());
    }
    first.truncate(first.trim_end_matches(['\n', '\r']).len());
    for line in std::iter::once(Ok(first)).chain(file.lines()) {
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

/// Reads the elements of an array one after the other, however many there are.
fn read_array(
    name: &str,
    file: &mut dyn BufRead,
    each: &mut dyn FnMut(Result<String, String>) -> Result<bool, String>,
) -> Result<(), String> {
    let mut reader = serde_json::Deserializer::from_reader(file);
    let mut end = None;
    let read = reader.deserialize_seq(Elements { each, end: &mut end });
    match end {
        Some(end) => end,
        None => {
            read.and_then(|()| reader.end()).map_err(|error| format!("{name} is not JSON: {error}"))
        }
    }
}

/// Elements of an array. `end` is set when no more of them are wanted.
struct Elements<'a> {
    each: &'a mut dyn FnMut(Result<String, String>) -> Result<bool, String>,
    end: &'a mut Option<Result<(), String>>,
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an array of documents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<Box<RawValue>>()? {
            let outcome = (self.each)(Ok(element.get().to_owned()));
            if !matches!(outcome, Ok(true)) {
                *self.end = Some(outcome.map(drop));
                return Err(A::Error::custom("no more elements are wanted"));
            }
        }
        Ok(())
    }
}

/// Reads the separator of CSV values.
fn separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => {
            Err("it is tab, or one ASCII character other than quotation mark and line break"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_is_one_character() {
        assert_eq!((separator(";"), separator("tab")), (Ok(b';'), Ok(b'\t')));
        assert_eq!(separator("\\t"), Ok(b'\t'));
        for wrong in ["", "\"", "\n", ";;", "é"] {
            assert!(separator(wrong).is_err(), "{wrong:?}");
        }
    }

    fn rows(text: &str) -> Result<Vec<Result<String, String>>, String> {
        let mut rows = Vec::new();
        read_json("file", &mut text.as_bytes(), &mut |row| {
            rows.push(row);
            Ok(true)
        })?;
        Ok(rows)
    }

    #[test]
    fn json_is_an_array_or_concatenated_documents() {
        let two = vec![Ok("{\"a\":1}".to_owned()), Ok("{\"a\":2}".to_owned())];
        assert_eq!(rows("[{\"a\":1},{\"a\":2}]").unwrap(), two);
        assert_eq!(rows("\n{\"a\":1}\n\n{\"a\":2}").unwrap(), two);
        assert_eq!(rows("{\"a\":1}\r\n{\"a\":2}\r\n").unwrap(), two);
        assert_eq!(rows("{\n  \"a\": 1\n}\n").unwrap(), [Ok("{\n  \"a\": 1\n}".to_owned())]);
        assert_eq!(rows("{\n\"a\": 1}\n{\n\"a\": 2}\n").unwrap().len(), 2);
        let partly = rows("{\"a\":1}\n{\"a\":\n{\"a\":3}\n").unwrap();
        assert_eq!(partly.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        assert!(rows("[{\"a\":1},").unwrap_err().contains("file is not JSON"));
        assert!(rows("[{\"a\":1}] x").unwrap_err().contains("file is not JSON"));
        assert!(rows("{\n\"a\": }\n").unwrap_err().contains("file is not JSON"));
        assert_eq!(rows("\n"), Ok(Vec::new()));
    }

    #[test]
    fn an_array_is_read_up_to_the_limit_of_rows() {
        let mut count = 0;
        let mut text = "[1, 2, 3, oops".as_bytes();
        let read = read_json("file", &mut text, &mut |_| {
            count += 1;
            Ok(count < 2)
        });
        assert_eq!((read, count), (Ok(()), 2));
        let failed = read_json("file", &mut "[1]".as_bytes(), &mut |_| Err("full".to_owned()));
        assert_eq!(failed, Err("full".to_owned()));
    }

    #[test]
    fn the_summary_counts_existing_documents() {
        let told = |added, replaced, kept| summary(&Loaded { added, replaced, kept }, "b.s.c");
        assert_eq!(told(1, 0, 0), "imported 1 document into b.s.c");
        assert_eq!(told(2, 1, 0), "imported 3 documents into b.s.c, 1 in place of existing ones");
        assert_eq!(told(0, 0, 2), "imported 0 documents into b.s.c, left 2 existing as they are");
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
