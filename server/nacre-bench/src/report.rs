//! Reports measurements: as a table for people, as CSV for programs, and as a picture.

use super::plot;
use clap::Args;
use hdrhistogram::Histogram;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where figures go.
#[derive(Args, Clone, Debug)]
pub struct Files {
    /// Write the figures to this file as CSV; - prints them in place of the table
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw latency by percentile into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Names of the columns with latencies, in microseconds. They follow the columns that describe the measurement.
pub const LATENCIES: [&str; 5] = ["p50_us", "p90_us", "p99_us", "p99.9_us", "max_us"];

/// Collects measurements.
pub struct Report<'a> {
    files: &'a Files,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    curves: Vec<plot::Curve>,
}

impl<'a> Report<'a> {
    /// Creates a report without measurements; `columns` are those of the table and of the CSV file.
    pub fn new(files: &'a Files, columns: Vec<&'static str>) -> Report<'a> {
        Report { files, columns, rows: Vec::new(), curves: Vec::new() }
    }

    fn prints_csv(&self) -> bool {
        self.files.csv.as_deref() == Some(Path::new("-"))
    }

    /// Adds a measurement, and prints it unless CSV is printed. `row` has the values of the columns before and after
    /// the latencies, which are in nanoseconds; `label` is the name of the curve.
    ///
    /// # Errors
    /// Fails if it cannot be printed.
    pub fn add(
        &mut self,
        mut row: Vec<String>,
        label: String,
        latencies: &Histogram<u64>,
    ) -> Result<(), String> {
        let before = self.columns.iter().position(|column| *column == LATENCIES[0]);
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
        let quantiles = [0.5, 0.9, 0.99, 0.999].map(|share| us(latencies.value_at_quantile(share)));
        let at = before.unwrap_or(row.len());
        row.splice(at..at, quantiles.into_iter().chain([us(latencies.max())]));
        if !self.prints_csv() {
            if self.rows.is_empty() {
                self.print(&self.columns)?;
            }
            self.print(&row)?;
        }
        self.rows.push(row);
        let us = plot::QUANTILES
            .map(|(quantile, _)| latencies.value_at_quantile(quantile) as f64 / 1000.0);
        self.curves.push(plot::Curve { label, us });
        Ok(())
    }

    fn print(&self, cells: &[impl AsRef<str>]) -> Result<(), String> {
        let mut line = String::new();
        for (cell, column) in cells.iter().zip(&self.columns) {
            // A name that is longer than its column shifts the other columns instead of overlapping them.
            let cell = cell.as_ref();
            let width = column.len().max(9).max(cell.len()) + 2;
            line.push_str(&format!("{cell:>width$}"));
        }
        // A closed pipe ends the command with an error instead of a panic.
        writeln!(std::io::stdout(), "{line}").map_err(|error| format!("cannot print: {error}"))
    }

    /// Writes the requested files.
    ///
    /// # Errors
    /// The file that cannot be written.
    pub fn finish(&self) -> Result<(), String> {
        let failed = |path: &Path, error: &dyn std::fmt::Display| {
            format!("cannot write {}: {error}", path.display())
        };
        if let Some(path) = &self.files.csv {
            let target: Box<dyn Write> = if self.prints_csv() {
                Box::new(std::io::stdout())
            } else {
                Box::new(File::create(path).map_err(|error| failed(path, &error))?)
            };
            let mut writer = csv::Writer::from_writer(target);
            writer.write_record(&self.columns).map_err(|error| failed(path, &error))?;
            for row in &self.rows {
                writer.write_record(row).map_err(|error| failed(path, &error))?;
            }
            writer.flush().map_err(|error| failed(path, &error))?;
        }
        if let Some(path) = &self.files.plot {
            std::fs::write(path, plot::svg(&self.curves)).map_err(|error| failed(path, &error))?;
        }
        Ok(())
    }
}
