//! Converts batches of the engine to rows of JSON.

use super::Out;
use super::evaluate::{Argument, value_at};
use super::scope::Leaf;
use crate::error::{Error, Result};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use nacre_sql::{Name, Value, write_string};

/// The shape of a row, with the columns of a batch.
enum Written {
    Value(ArrayRef, Argument),
    /// JSON text, which is copied unchanged.
    Json(ArrayRef),
    /// Fields, each with its name as JSON text and a colon.
    Object(Vec<(String, Written)>),
    Fields(ArrayRef),
}

fn bound(out: &Out, batch: &RecordBatch) -> Result<Written> {
    let array = |leaf: &Leaf| {
        let found = batch.column_by_name(&leaf.column).cloned();
        found.ok_or_else(|| Error::internal(format!("the plan has no column {}", leaf.column)))
    };
    Ok(match out {
        Out::Leaf(leaf) => match &leaf.typed {
            Some(typed) => {
                Written::Value(array(leaf)?, Argument::Typed { is_missing: typed.missing })
            }
            None => Written::Json(array(leaf)?),
        },
        Out::Fields(leaf) => Written::Fields(array(leaf)?),
        Out::Object(fields) => {
            let field = |(name, out): &(Name, Out)| {
                let mut text = String::new();
                write_string(name, &mut text);
                text.push(':');
                Ok((text, bound(out, batch)?))
            };
            Written::Object(fields.iter().map(field).collect::<Result<_>>()?)
        }
    })
}

/// Passes the rows of a batch to `take`.
///
/// # Errors
/// The errors of `take`.
pub fn write(
    batch: &RecordBatch,
    out: &Out,
    take: &mut dyn FnMut(String) -> Result<()>,
) -> Result<()> {
    let written = bound(out, batch)?;
    let mut length = 0;
    for row in 0..batch.num_rows() {
        // Rows have similar lengths.
        let mut text = String::with_capacity(length);
        if !put(&written, row, &mut text) {
            text.push_str("null");
        }
        length = text.len();
        take(text)?;
    }
    Ok(())
}

fn json(array: &ArrayRef, row: usize) -> Option<&str> {
    (!array.is_null(row)).then(|| array.as_string_view().value(row))
}

/// Returns the text of a row, if the array has texts and this row has one.
fn text_at(array: &ArrayRef, row: usize) -> Option<&str> {
    let texts = array.as_string_view_opt()?;
    texts.is_valid(row).then(|| texts.value(row))
}

/// Appends a value; returns false if it is MISSING.
fn put(written: &Written, row: usize, text: &mut String) -> bool {
    match written {
        Written::Value(array, argument) => match (text_at(array, row), argument) {
            (Some(found), Argument::Typed { .. }) => {
                write_string(found, text);
                true
            }
            _ => match value_at(array, *argument, row) {
                Value::Missing => false,
                value => {
                    value.write_json(text);
                    true
                }
            },
        },
        Written::Json(array) => match json(array, row) {
            Some(json) => {
                text.push_str(json);
                true
            }
            None => false,
        },
        // Only objects have fields.
        Written::Fields(array) => {
            let json = json(array, row).filter(|json| json.starts_with('{'));
            text.push_str(json.unwrap_or("{}"));
            true
        }
        Written::Object(fields) => {
            text.push('{');
            let begin = text.len();
            for (name, value) in fields {
                let before = text.len();
                if text.len() > begin {
                    text.push(',');
                }
                text.push_str(name);
                if !put(value, row, text) {
                    text.truncate(before);
                }
            }
            text.push('}');
            true
        }
    }
}
