//! Rows as a table, as JSON or as CSV.

use super::text::{Members, cell, compact, indented};
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets::UTF8_HORIZONTAL_ONLY};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::io::{self, Write};

/// The name of the only column when rows are not objects.
const LONE_COLUMN: &str = "value";
/// If columns would be narrower than this number of characters, each row is drawn vertically.
const COLUMN_WIDTH_MIN: usize = 6;

/// Form in which rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns for people
    Table,
    /// One array
    Json,
    /// One value a line
    Jsonl,
    /// Values separated by commas, names in the first line
    Csv,
}

/// Writes `rows`. A table is at most `width` characters wide; JSON has one line per member when `pretty`.
///
/// # Errors
/// Errors of `out`.
pub fn write_rows(
    output: Output,
    rows: &[Box<RawValue>],
    pretty: bool,
    width: Option<u16>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match output {
        Output::Table if rows.is_empty() => Ok(()),
        Output::Table => write_table(&Grid::of(rows), width, out),
        Output::Json => write_json(rows, pretty, out),
        Output::Jsonl => rows.iter().try_for_each(|row| writeln!(out, "{}", compact(row))),
        Output::Csv => write_csv(&Grid::of(rows), out),
    }
}

/// Rows in columns, in the order of the columns' first occurrence.
struct Grid {
    names: Vec<String>,
    rows: Vec<Vec<Option<Box<RawValue>>>>,
}

impl Grid {
    fn of(rows: &[Box<RawValue>]) -> Grid {
        let members: Option<Vec<Members>> = rows.iter().map(|row| Members::of(row)).collect();
        let Some(members) = members else {
            let rows = rows.iter().map(|row| vec![Some(row.clone())]).collect();
            return Grid { names: vec![LONE_COLUMN.to_owned()], rows };
        };
        let mut names: Vec<String> = Vec::new();
        let mut columns: HashMap<String, usize> = HashMap::new();
        let mut grid = Vec::with_capacity(members.len());
        for Members(members) in members {
            let mut row = vec![None; names.len()];
            for (name, value) in members {
                let column = *columns.entry(name).or_insert_with_key(|name| {
                    names.push(name.clone());
                    row.push(None);
                    names.len() - 1
                });
                row[column] = Some(value);
            }
            grid.push(row);
        }
        Grid { names, rows: grid }
    }
}

fn text_of(row: &[Option<Box<RawValue>>], column: usize) -> String {
    row.get(column).and_then(Option::as_ref).map(|value| cell(value)).unwrap_or_default()
}

fn write_table(grid: &Grid, width: Option<u16>, out: &mut dyn Write) -> io::Result<()> {
    let room = width.map_or(usize::MAX, usize::from);
    let mut table = table(width);
    let columns = 0..grid.names.len();
    let name = |column: usize| super::text::printable(&grid.names[column]);
    if grid.names.len().saturating_mul(COLUMN_WIDTH_MIN) <= room {
        table.set_header(columns.clone().map(name));
        for row in &grid.rows {
            table.add_row(columns.clone().map(|column| text_of(row, column)));
        }
        return writeln!(out, "{}", table.trim_fmt());
    }
    for (number, row) in grid.rows.iter().enumerate() {
        let mut table = self::table(width);
        table.set_header([format!("row {}", number + 1), String::new()]);
        for column in columns.clone().filter(|column| row.get(*column).is_some_and(Option::is_some))
        {
            table.add_row([name(column), text_of(row, column)]);
        }
        writeln!(out, "{}", table.trim_fmt())?;
    }
    Ok(())
}

fn table(width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY);
    if let Some(width) = width {
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
    }
    table
}

fn write_json(rows: &[Box<RawValue>], pretty: bool, out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "[]");
    }
    writeln!(out, "[")?;
    for (index, row) in rows.iter().enumerate() {
        let text = if pretty { indented(row, 1) } else { compact(row) };
        let comma = if index + 1 < rows.len() { "," } else { "" };
        writeln!(out, "  {text}{comma}")?;
    }
    writeln!(out, "]")
}

fn write_csv(grid: &Grid, out: &mut dyn Write) -> io::Result<()> {
    if grid.names.is_empty() {
        return Ok(());
    }
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(&grid.names)?;
    for row in &grid.rows {
        let fields = (0..grid.names.len()).map(|column| {
            let value = row.get(column).and_then(Option::as_ref);
            value.filter(|value| value.get() != "null").map_or_else(String::new, |value| {
                serde_json::from_str(value.get()).unwrap_or_else(|_| compact(value))
            })
        });
        writer.write_record(fields)?;
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [&str; 3] = [
        r#"{"name":"SFO","gates":115,"at":{"lat":37.6,"lon":-122.4}}"#,
        r#"{"name":"a, \"b\"\n","x":null}"#,
        r#"{"gates":1}"#,
    ];

    fn written(output: Output, rows: &[&str], width: Option<u16>) -> String {
        let rows: Vec<_> =
            rows.iter().map(|row| RawValue::from_string((*row).to_owned()).unwrap()).collect();
        let mut out = Vec::new();
        write_rows(output, &rows, true, width, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn objects_are_rows_and_their_members_columns() {
        insta::assert_snapshot!(written(Output::Table, &ROWS, None));
    }

    #[test]
    fn a_table_is_not_wider_than_the_terminal() {
        let text = written(Output::Table, &ROWS, Some(40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn rows_with_more_columns_than_fit_are_drawn_one_below_the_other() {
        insta::assert_snapshot!(written(Output::Table, &ROWS, Some(20)));
    }

    #[test]
    fn rows_that_are_not_objects_are_one_column() {
        insta::assert_snapshot!(written(Output::Csv, &["1", "[1, 2]", "\"a b\""], None), @r#"
        value
        1
        "[1,2]"
        a b
        "#);
    }

    #[test]
    fn csv_cells_of_null_and_missing_are_empty() {
        insta::assert_snapshot!(written(Output::Csv, &ROWS, None), @r#"
        name,gates,at,x
        SFO,115,"{""lat"":37.6,""lon"":-122.4}",
        "a, ""b""
        ",,,
        ,1,,
        "#);
    }

    #[test]
    fn json_is_one_array_or_one_value_per_line() {
        insta::assert_snapshot!(written(Output::Json, &["{\"a\": [1]}", "2"], None), @r#"
        [
          {
            "a": [
              1
            ]
          },
          2
        ]
        "#);
        assert_eq!(written(Output::Jsonl, &["{\"a\": [1]}", "2"], None), "{\"a\":[1]}\n2\n");
        assert_eq!(written(Output::Json, &[], None), "[]\n");
    }
}
