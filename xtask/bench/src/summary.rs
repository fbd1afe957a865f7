//! `cargo xtask bench summary`: draws the first table of `docs/reference/figures.md` as a chart.
//!
//! The rows are written by hand from the sections below them, each of which names its command. A test compares the chart in the
//! repository with the table.

use plotters::prelude::*;
use std::error::Error;
use std::fs;
use std::path::Path;
use xtask_setup::command::workspace;

const PAGE: &str = "docs/reference/figures.md";
const CHART: &str = "docs/images/figures.svg";
/// The heading of the section with the table.
const SECTION: &str = "## Compared with other programs";
/// The axis of ratios: logarithmic, and wide enough for every row.
const LEAST: f64 = 0.25;
const MOST: f64 = 512.0;
const ROW_HEIGHT: u32 = 26;
const LABELS_WIDTH: u32 = 430;

/// A row of the table.
struct Row {
    measurement: String,
    peer: String,
    /// How many times as good nacre is as the peer.
    ratio: f64,
}

/// Draws the chart and writes it.
///
/// # Errors
/// Reports a table that cannot be read, or a file that cannot be written.
pub fn run() -> Result<(), String> {
    let path = workspace().join(CHART);
    fs::write(&path, chart(&workspace())?)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    println!("written into {CHART}");
    Ok(())
}

/// Draws the table of the page in a workspace.
fn chart(workspace: &Path) -> Result<String, String> {
    let path = workspace.join(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let rows = rows(&page)?;
    drawn(&rows).map_err(|error| format!("the chart cannot be drawn: {error}"))
}

/// Reads the table of the section.
fn rows(page: &str) -> Result<Vec<Row>, String> {
    let section = page.split_once(SECTION).map(|(_, rest)| rest);
    let section = section.ok_or_else(|| format!("{PAGE} has no section {SECTION:?}"))?;
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let table = lines.take_while(|line| line.starts_with('|'));
    // The first two lines are the names of the columns and a ruler.
    let rows: Result<Vec<Row>, String> = table.skip(2).map(row).collect();
    rows.and_then(|rows| match rows.is_empty() {
        true => Err(format!("{PAGE} has no table in {SECTION:?}")),
        false => Ok(rows),
    })
}

fn row(line: &str) -> Result<Row, String> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [measurement, peer, ratio] = cells[..] else {
        return Err(format!("{PAGE}: {line:?} does not have three cells"));
    };
    let ratio = ratio.parse().ok().filter(|ratio| (LEAST..=MOST).contains(ratio));
    let ratio = ratio.ok_or_else(|| format!("{PAGE}: {line:?} has no ratio in {LEAST}..{MOST}"))?;
    Ok(Row { measurement: measurement.to_owned(), peer: peer.to_owned(), ratio })
}

/// Draws a bar for each row, from 1 to its ratio.
fn drawn(rows: &[Row]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let height = ROW_HEIGHT * (rows.len() as u32 + 2);
        let root = SVGBackend::with_string(&mut svg, (900, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(LABELS_WIDTH)
            .build_cartesian_2d((LEAST..MOST).log_scale().base(2.0), 0.0..rows.len() as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .max_light_lines(0)
            .x_labels(12)
            .y_labels(0)
            .x_label_formatter(&|ratio| format!("{ratio}x"))
            .x_desc("nacre against the other program; further right is better")
            .draw()?;
        for (place, row) in rows.iter().rev().enumerate() {
            let (bottom, top) = (place as f64 + 0.2, place as f64 + 0.8);
            let colour =
                if row.ratio < 1.0 { RGBColor(176, 74, 56) } else { RGBColor(46, 111, 149) };
            let bar = Rectangle::new([(1.0, bottom), (row.ratio, top)], colour.filled());
            chart.draw_series([bar])?;
            let at = chart.backend_coord(&(row.ratio.max(1.0), place as f64 + 0.5));
            let text = ("sans-serif", 13).into_font();
            root.draw_text(
                &format!("{}", row.ratio),
                &text.clone().color(&BLACK),
                (at.0 + 4, at.1 - 6),
            )?;
            let label = format!("{}, {}", row.measurement, row.peer);
            root.draw_text(&label, &text.color(&BLACK), (8, at.1 - 6))?;
        }
        root.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_shows_the_table() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let stored = fs::read_to_string(workspace.join(CHART)).unwrap();
        assert!(stored == chart(&workspace).unwrap(), "run cargo xtask bench summary");
    }

    #[test]
    fn a_row_without_a_ratio_is_refused() {
        for line in ["| a | b |", "| a | b | fast |", "| a | b | 0 |", "| a | b | 1e9 |"] {
            assert!(row(line).is_err(), "{line}");
        }
        let page =
            format!("{SECTION}\n\n| a | b | c |\n|---|---|---|\n| x | y | 2.5 |\n\n| other |");
        let rows = rows(&page).unwrap();
        assert_eq!((rows.len(), rows[0].measurement.as_str(), rows[0].ratio), (1, "x", 2.5));
        assert!(super::rows("no table").is_err());
    }
}
