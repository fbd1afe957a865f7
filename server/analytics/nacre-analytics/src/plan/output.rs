//! Converts batches of the engine to rows of JSON.

use super::Out;
use super::evaluate::{Argument, value_at};
use super::scope::Leaf;
use crate::error::{Error, Result};
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use nacre_sql::{Name, Value, write_string};

/// The shape of a row, with the columns of a batch.
enum Written {
    Value(ArrayRef, Argument),
    /// JSON text, which is copied unchanged.
    Json(ArrayRef),
    Object(Vec<(Name, Written)>),
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
            let fields = fields.iter().map(|(name, out)| Ok((name.clone(), bound(out, batch)?)));
            Written::Object(fields.collect::<Result<_>>()?)
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
    for row in 0..batch.num_rows() {
        let mut text = String::new();
        if !put(&written, row, &mut text) {
            text.push_str("null");
        }
        take(text)?;
    }
    Ok(())
}

fn json(array: &ArrayRef, row: usize) -> Option<&str> {
    use datafusion::arrow::array::AsArray;
    (!array.is_null(row)).then(|| array.as_string_view().value(row))
}

/// Appends a value; returns false if it is MISSING.
fn put(written: &Written, row: usize, text: &mut String) -> bool {
    match written {
        Written::Value(array, argument) => match value_at(array, *argument, row) {
            Value::Missing => false,
            value => {
                value.write_json(text);
                true
            }
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
                write_string(name, text);
                text.push(':');
                if !put(value, row, text) {
                    text.truncate(before);
                }
            }
            text.push('}');
            true
        }
    }
}
