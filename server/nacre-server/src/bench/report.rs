//! What a measurement says: a table for people, CSV for programs, a picture.

use super::load::Outcome;
use super::{Cell, Kv, plot};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Names of the columns, in the table and in the CSV file; latencies are in microseconds.
const COLUMNS: [&str; 13] = [
    "connections",
    "depth",
    "value_bytes",
    "read_percent",
    "operations",
    "ops_per_s",
    "p50_us",
    "p90_us",
    "p99_us",
    "p99.9_us",
    "max_us",
    "retries",
    "mib_per_s",
];

/// Collects what is measured.
pub struct Report<'a> {
    options: &'a Kv,
    rows: Vec<[String; COLUMNS.len()]>,
    curves: Vec<plot::Curve>,
}

impl Report<'_> {
    /// A report without a measurement.
    pub fn new(options: &Kv) -> Report<'_> {
        Report { options, rows: Vec::new(), curves: Vec::new() }
    }

    fn prints_csv(&self) -> bool {
        self.options.csv.as_deref() == Some(Path::new("-"))
    }

    /// Adds a measurement, and prints it unless CSV is printed.
    ///
    /// # Errors
    /// When it cannot be printed.
    pub fn add(&mut self, cell: Cell, outcome: &Outcome) -> Result<(), String> {
        let Cell { connections, depth, value_bytes } = cell;
        let latencies = &outcome.latencies;
        let operations = latencies.len();
        let per_s = operations as f64 / outcome.elapsed.as_secs_f64().max(1e-9);
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
        let quantile = |share: f64| us(latencies.value_at_quantile(share));
        let row = [
            connections.to_string(),
            depth.to_string(),
            value_bytes.to_string(),
            if self.options.seconds == 0.0 { 0 } else { self.options.read_percent }.to_string(),
            operations.to_string(),
            format!("{per_s:.0}"),
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            quantile(0.999),
            us(latencies.max()),
            outcome.retries.to_string(),
            format!("{:.1}", per_s * value_bytes as f64 / f64::from(1 << 20)),
        ];
        if !self.prints_csv() {
            if self.rows.is_empty() {
                print_line(&COLUMNS)?;
            }
            print_line(&row.each_ref().map(String::as_str))?;
        }
        self.rows.push(row);
        self.curves.push(plot::Curve {
            label: format!("{connections} x {depth}, {value_bytes} B: {per_s:.0}/s"),
            us: plot::QUANTILES
                .map(|(quantile, _)| latencies.value_at_quantile(quantile) as f64 / 1000.0),
        });
        Ok(())
    }

    /// Writes the files that were asked for.
    ///
    /// # Errors
    /// Which one cannot be written.
    pub fn finish(&self) -> Result<(), String> {
        let failed = |path: &Path, error: &dyn std::fmt::Display| {
            format!("cannot write {}: {error}", path.display())
        };
        if let Some(path) = &self.options.csv {
            let target: Box<dyn Write> = if self.prints_csv() {
                Box::new(std::io::stdout())
            } else {
                Box::new(File::create(path).map_err(|error| failed(path, &error))?)
            };
            let mut writer = csv::Writer::from_writer(target);
            writer.write_record(COLUMNS).map_err(|error| failed(path, &error))?;
            for row in &self.rows {
                writer.write_record(row).map_err(|error| failed(path, &error))?;
            }
            writer.flush().map_err(|error| failed(path, &error))?;
        }
        if let Some(path) = &self.options.plot {
            std::fs::write(path, plot::svg(&self.curves)).map_err(|error| failed(path, &error))?;
        }
        Ok(())
    }
}

fn print_line(cells: &[&str; COLUMNS.len()]) -> Result<(), String> {
    let mut line = String::new();
    for (cell, column) in cells.iter().zip(COLUMNS) {
        line.push_str(&format!("{cell:>width$}", width = column.len().max(9) + 2));
    }
    // A closed pipe ends the command like any other failure, rather than with a panic.
    writeln!(std::io::stdout(), "{line}").map_err(|error| format!("cannot print: {error}"))
}
