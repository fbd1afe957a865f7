//! `nacre export`: documents of a running cluster as JSON lines, CSV or Parquet.
//!
//! A line has a document, or with `--with-meta` all that makes a document, so that `nacre import --with-meta` writes the same again:
//!
//! ```text
//! {"key":"k","scope":"_default","collection":"_default","cas":"1","rev":2,"flags":0,"expiry":0,"xattrs":{"x":1},"body":{"a":1}}
//! ```
//!
//! A key that is no text is `key_base64`, a body that is no JSON `body_base64`.

use crate::backup::{Failure, Source, counted, present_collections, stream_vbucket};
use crate::parquet_writer::{Cell, Kind, ParquetWriter};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use flate2::Compression;
use flate2::write::GzEncoder;
use indicatif::ProgressBar;
use nacre_backup::{Record, VbucketTake};
use nacre_cli::{Cluster, Server};
use nacre_types::{DATATYPE_JSON, DATATYPE_XATTR};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One document a line
    Json,
    /// Values separated by commas, names in the first line
    Csv,
    /// Columns with types, compressed, for tools that analyse data; read by pandas, Arrow, Spark and DuckDB
    Parquet,
}

/// Options of `nacre export`.
#[derive(Args, Clone, Debug)]
pub struct Export {
    /// Format
    format: Format,
    #[command(flatten)]
    server: Server,
    /// Bucket
    #[arg(long)]
    bucket: String,
    /// Collection, as scope.name; repeatable (default: all collections)
    #[arg(long)]
    collection: Vec<String>,
    /// Write JSON as one array instead of one document per line
    #[arg(long, conflicts_with = "with_meta")]
    array: bool,
    /// Output file; - is standard output. A file whose name ends with .gz is compressed
    #[arg(short, long, default_value = "-")]
    output: PathBuf,
    /// Include keys, metadata and extended attributes, so that nothing is lost
    #[arg(long, conflicts_with_all = ["include_key", "scope_field", "collection_field", "fields"])]
    with_meta: bool,
    /// Add the key to the document, under this name
    #[arg(long, value_name = "NAME")]
    include_key: Option<String>,
    /// Add the name of the scope to the document, under this name
    #[arg(long, value_name = "NAME")]
    scope_field: Option<String>,
    /// Add the name of the collection to the document, under this name
    #[arg(long, value_name = "NAME")]
    collection_field: Option<String>,
    /// Columns of CSV and Parquet, separated by commas: fields of documents, and the names given by
    /// --include-key, --scope-field and --collection-field. Columns of Parquet may have a type, as
    /// in price:double: text, integer, double or boolean (default: text). Without this option,
    /// Parquet files have the columns key, scope, collection and document
    #[arg(long, value_delimiter = ',')]
    fields: Vec<String>,
    /// Number of parallel streams
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// Extended attributes in their order: names, and values as JSON.
type Xattrs<'a> = Vec<(&'a str, &'a RawValue)>;

/// A document in the format of the output.
#[derive(Debug, PartialEq)]
enum Row {
    /// A line of text.
    Line(Vec<u8>),
    /// Cells of Parquet, and how many members of the document are not of the type of their column.
    Cells(Vec<Cell>, u64),
}

impl Row {
    /// Makes a line an element of an array, with the bracket or comma before it.
    fn in_array(self, is_first: bool) -> Row {
        match self {
            Row::Line(line) => {
                let begin: &[u8] = if is_first { b"[\n" } else { b",\n" };
                Row::Line([begin, line.trim_ascii_end()].concat())
            }
            cells @ Row::Cells(..) => cells,
        }
    }
}

/// Documents of a vBucket by collection and key: each newer version takes the place of the one before. `None` stands for one that the
/// format cannot express.
type Rows = BTreeMap<(u32, Vec<u8>), Option<Row>>;

/// Name and type of a column of Parquet.
type Column = (String, Kind);

/// Documents that were written or not.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    written: u64,
    skipped: u64,
    /// Values that are null, as they are not of the type of their column.
    misfits: u64,
}

/// Writes the documents of a bucket.
///
/// # Errors
/// A sentence.
pub fn export(options: &Export) -> Result<(), String> {
    check(options)?;
    let cluster = Cluster::open(&options.server)?;
    let source = Source::open(&cluster, &options.bucket, options.threads)?;
    let (collections, columns) = (collections(options)?, columns(options));
    let name = options.output.display().to_string();
    let cannot = |error: std::io::Error| format!("cannot write {name}: {error}");
    let mut file = open(options, &columns).map_err(cannot)?;
    if options.format == Format::Csv {
        let header = csv_row(options.fields.iter().map(String::as_str));
        file.write(&Row::Line(header)).map_err(cannot)?;
    }
    let written = Mutex::new((file, Counts::default()));
    let remaining: Mutex<BTreeSet<u16>> = Mutex::new((0..source.vbuckets).collect());
    let bar = if options.quiet {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(source.vbuckets.into())
    };
    source.stream_all(
        || remaining.lock().iter().copied().collect(),
        || (),
        |(), consumer, vbid, high| {
            let mut take = VbucketTake::new(vbid, Vec::new(), high);
            // All of a vBucket, so that one that has to be begun again is not written twice.
            let mut rows = Rows::new();
            stream_vbucket(consumer, &mut take, |take, record| {
                if let Some(place) = collections.get(&record.collection) {
                    let key = (record.collection, record.key.to_vec());
                    match record.is_document() {
                        true => drop(rows.insert(key, row(options, &columns, place, record))),
                        false => drop(rows.remove(&key)),
                    }
                }
                take.advanced(record.seqno).map_err(Failure::from)
            })?;
            let (file, counts) = &mut *written.lock();
            for row in rows.into_values() {
                counts.add(row.as_ref());
                let Some(row) = row else { continue };
                let row = if options.array { row.in_array(counts.written == 1) } else { row };
                file.write(&row).map_err(|error| Failure::Fatal(cannot(error)))?;
            }
            remaining.lock().remove(&vbid);
            bar.inc(1);
            Ok(())
        },
        |()| Ok(()),
    )?;
    bar.finish_and_clear();
    let (mut file, counts) = written.into_inner();
    if options.array {
        let end = if counts.written == 0 { "[]\n" } else { "\n]\n" };
        file.write(&Row::Line(end.into())).map_err(cannot)?;
    }
    file.finish().map_err(cannot)?;
    report(options, counts);
    Ok(())
}

/// Refuses options that do not go together.
fn check(options: &Export) -> Result<(), String> {
    match options.format {
        Format::Csv if options.fields.is_empty() => {
            Err("--fields is missing: it names the columns of CSV, such as id,name".to_owned())
        }
        Format::Csv | Format::Parquet if options.array => {
            Err("--array makes JSON: leave it out, or name the format json".to_owned())
        }
        Format::Csv | Format::Parquet if options.with_meta => {
            Err("--with-meta makes JSON: leave it out, or name the format json".to_owned())
        }
        Format::Parquet if is_gzip(options) => {
            Err("Parquet is compressed already: name a file that does not end with .gz".to_owned())
        }
        _ => Ok(()),
    }
}

fn report(options: &Export, counts: Counts) {
    eprintln!("exported {} of {}", counted(counts.written, "document"), options.bucket);
    if counts.skipped > 0 {
        eprintln!(
            "left out {}, not JSON objects: the format json with --with-meta keeps them",
            counted(counts.skipped, "document")
        );
    }
    if counts.misfits > 0 {
        eprintln!(
            "{} not of the type of the column, and null: the type text keeps them",
            counted(counts.misfits, "value")
        );
    }
}

impl Counts {
    fn add(&mut self, row: Option<&Row>) {
        match row {
            None => self.skipped += 1,
            Some(Row::Line(_)) => self.written += 1,
            Some(Row::Cells(_, misfits)) => {
                self.written += 1;
                self.misfits += misfits;
            }
        }
    }
}

/// Scope and name of each collection that is wanted.
fn collections(options: &Export) -> Result<BTreeMap<u32, (String, String)>, String> {
    let present = present_collections(&options.server, &options.bucket)?;
    for wanted in &options.collection {
        if !present.iter().any(|found| format!("{}.{}", found.scope, found.name) == *wanted) {
            return Err(format!("the bucket {} has no collection {wanted}", options.bucket));
        }
    }
    let is_wanted =
        |path: String| options.collection.is_empty() || options.collection.contains(&path);
    Ok(present
        .into_iter()
        .filter(|found| is_wanted(format!("{}.{}", found.scope, found.name)))
        // What the system keeps for itself is in no export, unless it is named.
        .filter(|found| found.scope != "_system" || !options.collection.is_empty())
        .map(|found| (found.id, (found.scope, found.name)))
        .collect())
}

/// Names and types of the columns of Parquet.
fn columns(options: &Export) -> Vec<Column> {
    if options.fields.is_empty() {
        let named = |name: &Option<String>, default: &str| {
            (name.clone().unwrap_or_else(|| default.to_owned()), Kind::Text)
        };
        return vec![
            named(&options.include_key, "key"),
            named(&options.scope_field, "scope"),
            named(&options.collection_field, "collection"),
            ("document".to_owned(), Kind::Text),
        ];
    }
    options.fields.iter().map(|field| column(field)).collect()
}

/// Reads `name` or `name:type`. A name may have colons.
fn column(field: &str) -> Column {
    let (name, kind) = match field.rsplit_once(':') {
        Some((name, "text")) => (name, Kind::Text),
        Some((name, "integer")) => (name, Kind::Integer),
        Some((name, "double")) => (name, Kind::Double),
        Some((name, "boolean")) => (name, Kind::Boolean),
        _ => (field, Kind::Text),
    };
    (name.to_owned(), kind)
}

type File = Box<dyn Write + Send>;

/// A file, compressed or not.
enum Output {
    Plain(File),
    Gzip(Box<GzEncoder<File>>),
    Parquet(Box<ParquetWriter<File>>),
}

impl Output {
    fn write(&mut self, row: &Row) -> std::io::Result<()> {
        match (self, row) {
            (Output::Plain(file), Row::Line(line)) => file.write_all(line),
            (Output::Gzip(file), Row::Line(line)) => file.write_all(line),
            (Output::Parquet(file), Row::Cells(cells, _)) => file.write(cells),
            _ => Err(std::io::Error::other("a row is of another format than the file")),
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            Output::Plain(mut file) => file.flush(),
            Output::Gzip(file) => file.finish()?.flush(),
            Output::Parquet(file) => file.finish()?.flush(),
        }
    }
}

fn is_gzip(options: &Export) -> bool {
    options.output.extension().is_some_and(|extension| extension == "gz")
}

fn open(options: &Export, columns: &[Column]) -> std::io::Result<Output> {
    let file: File = match options.output.as_os_str() == "-" {
        true => Box::new(BufWriter::new(std::io::stdout())),
        false => Box::new(BufWriter::new(std::fs::File::create(&options.output)?)),
    };
    Ok(match options.format {
        Format::Parquet => Output::Parquet(Box::new(ParquetWriter::new(file, columns)?)),
        Format::Json | Format::Csv if is_gzip(options) => {
            Output::Gzip(Box::new(GzEncoder::new(file, Compression::fast())))
        }
        Format::Json | Format::Csv => Output::Plain(file),
    })
}

/// A document in the format of the output; `None` for one that the format cannot express.
fn row(
    options: &Export,
    columns: &[Column],
    place: &(String, String),
    record: &Record<'_>,
) -> Option<Row> {
    match options.format {
        Format::Json | Format::Csv => line(options, place, record).map(Row::Line),
        Format::Parquet => cells(options, columns, place, record),
    }
}

/// The cells of a document, one for each column.
fn cells(
    options: &Export,
    columns: &[Column],
    place: &(String, String),
    record: &Record<'_>,
) -> Option<Row> {
    let (_, body) = split_xattrs(record)?;
    let text = json_text(record, body)?;
    let key = String::from_utf8_lossy(record.key);
    if options.fields.is_empty() {
        let texts = [&*key, &place.0, &place.1, text.trim()];
        return Some(Row::Cells(texts.map(|text| Cell::Text(text.to_owned())).to_vec(), 0));
    }
    let mut object: Map<String, Value> = serde_json::from_str(text).ok()?;
    let added = added(options, &key, place).into_iter();
    object.extend(added.map(|(name, value)| (name.to_owned(), value.into())));
    let (mut cells, mut misfits) = (Vec::with_capacity(columns.len()), 0);
    for (name, kind) in columns {
        let value = object.get(name).unwrap_or(&Value::Null);
        let cell = cell(*kind, value);
        misfits += u64::from(cell == Cell::Null && !value.is_null());
        cells.push(cell);
    }
    Some(Row::Cells(cells, misfits))
}

/// The cell of a value; null for one of another type than the column. Text has every value, those that are no text as JSON.
fn cell(kind: Kind, value: &Value) -> Cell {
    match (kind, value) {
        (_, Value::Null) => Cell::Null,
        (Kind::Text, Value::String(text)) => Cell::Text(text.clone()),
        (Kind::Text, value) => Cell::Text(value.to_string()),
        (Kind::Integer, value) => value.as_i64().map_or(Cell::Null, Cell::Integer),
        (Kind::Double, value) => value.as_f64().map_or(Cell::Null, Cell::Double),
        (Kind::Boolean, value) => value.as_bool().map_or(Cell::Null, Cell::Boolean),
    }
}

/// The text of a body that is JSON.
fn json_text<'a>(record: &Record<'_>, body: &'a [u8]) -> Option<&'a str> {
    let is_json =
        record.datatype & DATATYPE_JSON != 0 || serde_json::from_slice::<&RawValue>(body).is_ok();
    std::str::from_utf8(body).ok().filter(|_| is_json)
}

/// Members that options add to a document.
fn added<'a>(
    options: &'a Export,
    key: &'a str,
    (scope, collection): &'a (String, String),
) -> Vec<(&'a str, &'a str)> {
    let all = [
        (&options.include_key, key),
        (&options.scope_field, scope.as_str()),
        (&options.collection_field, collection.as_str()),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.as_deref()?, value))).collect()
}

/// The line of a document; `None` for one that the format cannot express.
fn line(options: &Export, place: &(String, String), record: &Record<'_>) -> Option<Vec<u8>> {
    let (xattrs, body) = split_xattrs(record)?;
    if options.with_meta {
        return Some(line_with_meta(place, record, xattrs, body));
    }
    let text = json_text(record, body)?;
    let key = String::from_utf8_lossy(record.key);
    let added = added(options, &key, place).into_iter();
    if options.format == Format::Csv {
        let mut object: Map<String, Value> = serde_json::from_str(text).ok()?;
        object.extend(added.map(|(name, value)| (name.to_owned(), value.into())));
        let cell = |field: &String| match object.get(field) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        let cells: Vec<String> = options.fields.iter().map(cell).collect();
        return Some(csv_row(cells.iter().map(String::as_str)));
    }
    let mut members: Vec<String> = Vec::new();
    for (name, value) in added {
        members.push(format!("{}:{}", Value::from(name), Value::from(value)));
    }
    // A document may be written over several lines.
    let compact = match text.contains(['\n', '\r']) {
        true => serde_json::from_str::<Value>(text).ok()?.to_string(),
        false => text.trim().to_owned(),
    };
    let line = match (members.is_empty(), compact.strip_prefix('{')) {
        (true, _) => compact,
        (false, Some(rest)) if rest.trim_start() == "}" => format!("{{{}}}", members.join(",")),
        (false, Some(rest)) => format!("{{{},{rest}", members.join(",")),
        (false, None) => return None,
    };
    Some(format!("{line}\n").into_bytes())
}

fn line_with_meta(
    (scope, collection): &(String, String),
    record: &Record<'_>,
    xattrs: Xattrs<'_>,
    body: &[u8],
) -> Vec<u8> {
    let mut members = Vec::new();
    let mut add = |name: &str, value: String| members.push(format!("\"{name}\":{value}"));
    match std::str::from_utf8(record.key) {
        Ok(key) => add("key", Value::from(key).to_string()),
        Err(_) => add("key_base64", Value::from(STANDARD.encode(record.key)).to_string()),
    }
    add("scope", Value::from(scope.as_str()).to_string());
    add("collection", Value::from(collection.as_str()).to_string());
    // Other languages read numbers of 64 bits inexactly.
    add("cas", format!("\"{}\"", record.cas));
    add("rev", record.rev.to_string());
    add("flags", record.flags.to_string());
    add("expiry", record.expiry.to_string());
    if !xattrs.is_empty() {
        let each: Vec<String> = xattrs
            .iter()
            .map(|(name, value)| format!("{}:{}", Value::from(*name), one_line(value.get())))
            .collect();
        add("xattrs", format!("{{{}}}", each.join(",")));
    }
    let text = std::str::from_utf8(body).ok();
    // JSON that is written over several lines would not be the same bytes on one.
    let plain = text.filter(|text| {
        !text.contains(['\n', '\r'])
            && text.trim() == *text
            && serde_json::from_str::<&RawValue>(text).is_ok()
    });
    match plain {
        Some(text) => add("body", text.to_owned()),
        None => add("body_base64", Value::from(STANDARD.encode(body)).to_string()),
    }
    format!("{{{}}}\n", members.join(",")).into_bytes()
}

fn one_line(json: &str) -> String {
    match json.contains(['\n', '\r']) {
        true => serde_json::from_str::<Value>(json)
            .map_or_else(|_| json.to_owned(), |value| value.to_string()),
        false => json.to_owned(),
    }
}

/// Separates extended attributes from the body; `None` if they are malformed.
fn split_xattrs<'a>(record: &Record<'a>) -> Option<(Xattrs<'a>, &'a [u8])> {
    if record.datatype & DATATYPE_XATTR == 0 {
        return Some((Vec::new(), record.value));
    }
    let (length, rest) = record.value.split_first_chunk::<4>()?;
    let (mut section, body) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let mut xattrs = Vec::new();
    while !section.is_empty() {
        let (length, rest) = section.split_first_chunk::<4>()?;
        let (pair, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let mut parts = pair.strip_suffix(b"\0")?.splitn(2, |byte| *byte == 0);
        let (name, value) = (parts.next()?, parts.next()?);
        xattrs.push((std::str::from_utf8(name).ok()?, serde_json::from_slice(value).ok()?));
        section = rest;
    }
    Some((xattrs, body))
}

fn csv_row<'a>(cells: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // A row in memory cannot fail to be written.
    let _ = writer.write_record(cells);
    writer.into_inner().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use nacre_backup::RecordKind;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        export: Export,
    }

    fn in_format(arguments: &str, datatype: u8, value: &[u8]) -> Option<Row> {
        let arguments = ["export"].into_iter().chain(arguments.split(' ')).chain(["--bucket", "b"]);
        let options = Command::try_parse_from(arguments).unwrap().export;
        let (kind, key) = (RecordKind::Set, &b"k\"1"[..]);
        let record = Record {
            kind,
            seqno: 1,
            cas: u64::MAX,
            rev: 2,
            flags: 3,
            expiry: 4,
            datatype,
            collection: 0,
            key,
            value,
        };
        let place = ("s".to_owned(), "c".to_owned());
        row(&options, &columns(&options), &place, &record)
    }

    fn shown(arguments: &str, datatype: u8, value: &[u8]) -> Option<String> {
        match in_format(arguments, datatype, value)? {
            Row::Line(line) => Some(String::from_utf8(line).unwrap()),
            Row::Cells(..) => panic!("{arguments}: a row of Parquet"),
        }
    }

    #[test]
    fn a_line_is_the_document_with_the_requested_fields() {
        let of = |arguments: &str, value: &str| shown(arguments, 1, value.as_bytes());
        assert_eq!(of("json", "{\"a\": 1}").unwrap(), "{\"a\": 1}\n");
        assert_eq!(of("json", "{\n\"a\":\r\n1}").unwrap(), "{\"a\":1}\n");
        assert_eq!(of("json", "[1]").unwrap(), "[1]\n");
        let fields = "json --include-key _id --scope-field s --collection-field c";
        let expected = "{\"_id\":\"k\\\"1\",\"s\":\"s\",\"c\":\"c\"";
        assert_eq!(of(fields, "{\"a\":1}").unwrap(), format!("{expected},\"a\":1}}\n"));
        assert_eq!(of(fields, "{ }").unwrap(), format!("{expected}}}\n"));
        assert_eq!(of(fields, "[1]"), None);
        assert_eq!(shown("json", 0, b"\xff"), None);
        let csv = "csv --fields a,_id,b --include-key _id";
        assert_eq!(of(csv, "{\"a\":\"x,y\",\"b\":[1]}").unwrap(), "\"x,y\",\"k\"\"1\",[1]\n");
    }

    #[test]
    fn lines_are_elements_of_an_array() {
        let line = |text: &str| Row::Line(text.into());
        assert_eq!(line("{\"a\":1}\n").in_array(true), line("[\n{\"a\":1}"));
        assert_eq!(line("2\n").in_array(false), line(",\n2"));
    }

    #[test]
    fn cells_have_the_types_of_their_columns() {
        let of = |arguments: &str, value: &str| in_format(arguments, 1, value.as_bytes());
        let text = |text: &str| Cell::Text(text.to_owned());
        let all = [text("k\"1"), text("s"), text("c"), text("{\"a\": 1}")];
        assert_eq!(of("parquet", " {\"a\": 1}\n"), Some(Row::Cells(all.to_vec(), 0)));
        assert_eq!(in_format("parquet", 0, b"\xff"), None);
        let fields = "parquet --include-key _id --fields _id,n:integer,x:double,is:boolean,t,a:b";
        let value = "{\"n\":-1,\"x\":2,\"is\":true,\"t\":[1],\"a:b\":\"c\"}";
        let cells = [
            text("k\"1"),
            Cell::Integer(-1),
            Cell::Double(2.0),
            Cell::Boolean(true),
            text("[1]"),
            text("c"),
        ];
        assert_eq!(of(fields, value), Some(Row::Cells(cells.to_vec(), 0)));
        let value = "{\"n\":1.5,\"x\":\"2\",\"is\":null}";
        let mut cells = vec![Cell::Null; 6];
        cells[0] = text("k\"1");
        assert_eq!(of(fields, value), Some(Row::Cells(cells, 2)));
        assert_eq!(of(fields, "[1]"), None);
    }

    #[test]
    fn incompatible_options_are_refused() {
        for (words, arguments) in [
            ("--fields is missing", "csv"),
            ("--fields is missing", "csv --with-meta"),
            ("--with-meta makes JSON", "parquet --with-meta"),
            ("compressed already", "parquet -o a.parquet.gz"),
        ] {
            let arguments = arguments.split(' ').chain(["--bucket", "b"]);
            let options = Command::try_parse_from(["export"].into_iter().chain(arguments));
            let refused = check(&options.unwrap().export).unwrap_err();
            assert!(refused.contains(words), "{words}: {refused}");
        }
    }

    #[test]
    fn nothing_is_lost_with_metadata() {
        let meta = "{\"key\":\"k\\\"1\",\"scope\":\"s\",\"collection\":\"c\",\"cas\":\"18446744073709551615\",\"rev\":2,\"flags\":3,\"expiry\":4";
        let of = |datatype, value: &[u8]| shown("json --with-meta", datatype, value).unwrap();
        assert_eq!(of(1, b"{\"a\":1.0}"), format!("{meta},\"body\":{{\"a\":1.0}}}}\n"));
        assert_eq!(of(0, b"\xff"), format!("{meta},\"body_base64\":\"/w==\"}}\n"));
        assert_eq!(of(1, b"1\n"), format!("{meta},\"body_base64\":\"MQo=\"}}\n"));
        let value = b"\0\0\0\x0c\0\0\0\x08xy\0true\0{}";
        assert_eq!(of(5, value), format!("{meta},\"xattrs\":{{\"xy\":true}},\"body\":{{}}}}\n"));
        for length in 1..value.len() - 2 {
            assert_eq!(shown("json --with-meta", 5, &value[..length]), None, "{length}");
        }
    }
}
