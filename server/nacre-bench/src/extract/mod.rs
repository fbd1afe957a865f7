//! `nacre bench extract`: converts runs in logs of YCSB to CSV, one line per run.
//!
//! A log has one block per run. Older versions of YCSB begin a block with their name, followed by their command line; newer ones
//! have the command line first, and write both to standard error, which must be part of the log:
//!
//! ```text
//! YCSB Client 0.1                            Command line: -db … -threads 20 -t
//! Command line: -db … -threads 10 -t         YCSB Client 0.17.0
//! [OVERALL], Throughput(ops/sec), 348.3      [OVERALL], Throughput(ops/sec), 348.3
//! ```
//!
//! `nacre bench patterns --log` writes such blocks. Names of options and properties are those of YCSBtoCSV, a program of the
//! dissertation that the patterns come from.

mod charset;
mod log;

use super::patterns::Properties;
use charset::Charset;
use clap::{Args, ValueEnum};
use log::{Block, blocks};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// First words of a block, in all versions of YCSB.
const MARKER: &str = "YCSB Client ";
/// Maximum number of decimal places.
const DECIMAL_PLACES_MAX: usize = 17;

/// Unit of latencies in a log.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds, as the names of metrics say
    Us,
    /// Milliseconds, as some programs write them under the same names; they become microseconds
    Ms,
}

#[derive(Args, Clone, Debug)]
pub struct Extract {
    /// The log (property inputFile)
    #[arg(short, long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// The CSV file; - prints it (property outputFile)
    #[arg(short, long, value_name = "FILE")]
    output_file: Option<PathBuf>,
    /// Parameters of command lines, separated by commas: threads for -threads, x for -p x=… (property ycsbParams)
    #[arg(short = 'p', long, value_delimiter = ',', value_name = "NAME")]
    ycsb_params: Vec<String>,
    /// Results, separated by commas: OVERALL.Throughput(ops/sec), READ.AverageLatency(us) (property ycsbResults)
    #[arg(short = 'r', long, value_delimiter = ',', value_name = "SECTION.METRIC")]
    ycsb_results: Vec<String>,
    /// Beginning of the first line of a block (property blockStartMarker; default "YCSB Client ")
    #[arg(short = 'm', long, value_name = "TEXT")]
    block_start_marker: Option<String>,
    /// Characters of both files: utf-8, us-ascii, iso-8859-1, utf-16, utf-16be or utf-16le (property charset; default utf-8)
    #[arg(short = 'e', long, value_name = "NAME")]
    charset: Option<String>,
    /// Digits behind the decimal symbol (property decimalPlaces; default 2)
    #[arg(short = 'd', long, value_name = "COUNT")]
    decimal_places: Option<usize>,
    /// Decimal symbol (property decimalSymbol; default .)
    #[arg(short = 's', long, value_name = "CHARACTER")]
    decimal_symbol: Option<char>,
    /// Separator of columns (property csvSeparator; default ,)
    #[arg(short, long, value_name = "CHARACTER")]
    csv_separator: Option<char>,
    /// A file with these properties; options are preferred
    #[arg(short = 'P', long, value_name = "FILE")]
    properties_file: Option<PathBuf>,
    /// Unit of the latencies in the log
    #[arg(long, value_enum, default_value = "us")]
    latencies_in: Unit,
}

/// The settings from options and properties.
struct Settings {
    input: PathBuf,
    output: PathBuf,
    parameters: Vec<String>,
    results: Vec<String>,
    marker: String,
    charset: Charset,
    format: NumberFormat,
    separator: u8,
    unit: Unit,
}

/// The format of numbers.
#[derive(Clone, Copy)]
struct NumberFormat {
    places: usize,
    symbol: char,
}

impl NumberFormat {
    fn write(self, number: f64) -> String {
        let text = format!("{number:.*}", self.places);
        text.replacen('.', self.symbol.encode_utf8(&mut [0; 4]), 1)
    }
}

impl Extract {
    pub fn run(&self) -> Result<(), String> {
        let settings = self.settings()?;
        let failed = |path: &Path, what: &str, error: &dyn std::fmt::Display| {
            format!("cannot {what} {}: {error}", path.display())
        };
        let bytes = std::fs::read(&settings.input)
            .map_err(|error| failed(&settings.input, "read", &error))?;
        let text = settings
            .charset
            .decode(&bytes)
            .map_err(|reason| failed(&settings.input, "read", &reason))?;
        let csv = settings.charset.encode(&settings.csv(&blocks(&text, &settings.marker))?)?;
        let output = &settings.output;
        let written = match output == Path::new("-") {
            true => std::io::stdout().write_all(&csv),
            false => File::create(output).and_then(|mut file| file.write_all(&csv)),
        };
        written.map_err(|error| failed(output, "write", &error))
    }

    fn settings(&self) -> Result<Settings, String> {
        let files: Vec<&Path> = self.properties_file.iter().map(PathBuf::as_path).collect();
        let properties = Properties::read(&files, &[])?;
        let path = |given: &Option<PathBuf>, name: &str| {
            given.clone().or_else(|| properties.text(name).map(PathBuf::from))
        };
        let list = |given: &[String], name: &str| match given {
            [] => properties.list(name).into_iter().map(str::to_owned).collect(),
            given => given.to_vec(),
        };
        let character = |given: Option<char>, name: &str, default| match given {
            Some(given) => Ok(given),
            None => properties.get(name, default),
        };
        let marker = self.block_start_marker.as_deref().or(properties.text("blockStartMarker"));
        let charset = self.charset.as_deref().or(properties.text("charset")).unwrap_or("utf-8");
        let places = match self.decimal_places {
            Some(places) => places,
            None => properties.get("decimalPlaces", 2)?,
        };
        if places > DECIMAL_PLACES_MAX {
            return Err(format!("decimal places go from 0 to {DECIMAL_PLACES_MAX}"));
        }
        let separator = character(self.csv_separator, "csvSeparator", ',')?;
        let symbol = character(self.decimal_symbol, "decimalSymbol", '.')?;
        let results = list(&self.ycsb_results, "ycsbResults");
        if let Some(odd) = results.iter().find(|result| !result.contains('.')) {
            return Err(format!("{odd:?} is not a result: write SECTION.METRIC"));
        }
        Ok(Settings {
            input: path(&self.input_file, "inputFile").ok_or("name the log: --input-file FILE")?,
            output: path(&self.output_file, "outputFile").unwrap_or_else(|| PathBuf::from("-")),
            parameters: list(&self.ycsb_params, "ycsbParams"),
            results,
            // Property files have the marker in quotes, which are not part of it.
            marker: marker.unwrap_or(MARKER).trim_matches('"').to_owned(),
            charset: Charset::of(charset)?,
            format: NumberFormat { places, symbol },
            separator: u8::try_from(separator)
                .map_err(|_| format!("{separator:?} cannot separate columns"))?,
            unit: self.latencies_in,
        })
    }
}

impl Settings {
    /// Returns the names of the columns, and a row for each block. Missing values are empty cells.
    fn csv(&self, blocks: &[Block<'_>]) -> Result<String, String> {
        let mut writer =
            csv::WriterBuilder::new().delimiter(self.separator).from_writer(Vec::new());
        let mut add = |row: Vec<String>| {
            writer.write_record(row).map_err(|error| format!("cannot write a row: {error}"))
        };
        add(self.parameters.iter().chain(&self.results).cloned().collect())?;
        for block in blocks {
            let parameters = self
                .parameters
                .iter()
                .map(|name| block.parameter(name).unwrap_or_default().to_owned());
            let results = self.results.iter().map(|name| self.result(block, name));
            add(parameters.chain(results).collect())?;
        }
        let csv = writer.into_inner().map_err(|error| format!("cannot write a row: {error}"))?;
        String::from_utf8(csv).map_err(|error| error.to_string())
    }

    fn result(&self, block: &Block<'_>, name: &str) -> String {
        let (section, metric) = name.split_once('.').unwrap_or((name, ""));
        let Some(value) = block.result(section, metric) else { return String::new() };
        let Ok(number) = value.parse::<f64>() else { return value.to_owned() };
        let is_latency = metric.ends_with("(us)");
        let number = if is_latency && self.unit == Unit::Ms { number * 1000.0 } else { number };
        self.format.write(number)
    }
}

#[cfg(test)]
mod tests;
