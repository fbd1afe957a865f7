//! Output of commands that read: a table for people, JSON for programs.

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use serde_json::{Map, Value};

/// Option of commands that read.
#[derive(Args, Clone, Copy, Debug)]
pub struct Format {
    /// Output format
    #[arg(long, value_enum, default_value = "table", value_name = "FORM")]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Columns for people
    Table,
    /// An array of objects, for programs
    Json,
}

/// Rows with named columns.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Listing {
    /// Creates a listing without rows. The column names are also the member names in JSON, so they are an interface.
    pub fn new(columns: &[&'static str]) -> Listing {
        Listing { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn add<const N: usize>(&mut self, row: [Value; N]) {
        assert_eq!(N, self.columns.len(), "a row has a value for each column");
        self.rows.push(row.into());
    }

    /// Returns the rows as JSON: an array of objects.
    pub fn json(&self) -> Value {
        let member = |(name, value): (&&str, &Value)| ((*name).to_owned(), value.clone());
        let object = |row: &Vec<Value>| {
            Value::Object(self.columns.iter().zip(row).map(member).collect::<Map<_, _>>())
        };
        self.rows.iter().map(object).collect()
    }
}

impl Format {
    /// Returns true if the output is JSON.
    pub fn is_json(self) -> bool {
        self.output == Form::Json
    }

    /// Writes a listing to standard output.
    pub fn show(self, listing: &Listing) {
        match self.output {
            Form::Table => print!("{}", aligned(listing)),
            Form::Json => println!("{}", pretty(&listing.json())),
        }
    }

    /// Writes one object; a table has a row for each member.
    pub fn show_one(self, object: &Value) {
        match self.output {
            Form::Json => println!("{}", pretty(object)),
            Form::Table => {
                let mut table = Table::new();
                table.load_preset(presets::NOTHING);
                for (name, value) in object.as_object().into_iter().flatten() {
                    table.add_row([name.clone(), shown(value)]);
                }
                for line in table.to_string().lines() {
                    println!("{}", line.strip_prefix(' ').unwrap_or(line).trim_end());
                }
            }
        }
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON is text")
}

fn aligned(listing: &Listing) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(listing.columns.clone());
    for row in &listing.rows {
        table.add_row(row.iter().map(shown));
    }
    let text = table.to_string();
    text.lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned() + "\n")
        .collect()
}

/// Returns a value in the form of a table cell.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_listing_is_a_table_for_people_and_objects_for_programs() {
        let mut listing = Listing::new(&["name", "documents"]);
        listing.add(["travel".into(), 801.into()]);
        listing.add([Value::Null, json!(["a", "b"])]);
        assert_eq!(aligned(&listing), "name    documents\ntravel  801\n        a,b\n");
        assert_eq!(
            listing.json(),
            json!([{"name": "travel", "documents": 801}, {"name": null, "documents": ["a", "b"]}])
        );
    }
}
