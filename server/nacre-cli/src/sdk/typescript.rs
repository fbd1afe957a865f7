//! Types as TypeScript interfaces.

use super::shape::{Document, Field, Kind, Shape, in_comment, is_identifier};
use serde_json::Value;
use std::fmt::Write;

/// Writes the types of documents as a module.
pub(super) fn write(bucket: &str, sample: u32, documents: &[Document]) -> String {
    let mut text = format!(
        "// Types of documents in the bucket {}, which `nacre sdk types` has inferred from up to {sample} of each collection.\n",
        in_comment(bucket)
    );
    for document in documents {
        for (name, flavor) in &document.flavors {
            let about = flavor.about(&document.collection);
            write!(text, "\n/** {about} */\nexport interface {name} ").expect("text takes all");
            text.push_str(&object(flavor.fields(), 0));
            text.push('\n');
        }
        if document.flavors.len() != 1 || !document.others.kinds.is_empty() {
            let mut kinds: Vec<String> =
                document.flavors.iter().map(|(name, _)| name.clone()).collect();
            kinds.extend(document.others.kinds.iter().map(|kind| of_kind(kind, 0)));
            let union = if kinds.is_empty() { "unknown".into() } else { kinds.join(" | ") };
            let place = in_comment(&document.collection);
            writeln!(
                text,
                "\n/** Documents of {place} */\nexport type {} = {union}",
                document.name
            )
            .expect("text takes all");
        }
    }
    text
}

fn object(fields: &[Field], depth: usize) -> String {
    if fields.is_empty() {
        return "{}".into();
    }
    let margin = "  ".repeat(depth);
    let mut text = String::from("{\n");
    for Field { name, shape, is_optional } in fields {
        // A quoted name may be any text, and JSON strings are also TypeScript string literals.
        let quoted = Value::from(name.as_str()).to_string();
        let name = if is_identifier(name) { name } else { &quoted };
        let mark = if *is_optional { "?" } else { "" };
        writeln!(text, "{margin}  {name}{mark}: {}", of_shape(shape, depth + 1))
            .expect("text takes all");
    }
    text + &margin + "}"
}

fn of_shape(shape: &Shape, depth: usize) -> String {
    match shape.kinds.as_slice() {
        [] => "unknown".into(),
        kinds => kinds.iter().map(|kind| of_kind(kind, depth)).collect::<Vec<_>>().join(" | "),
    }
}

fn of_kind(kind: &Kind, depth: usize) -> String {
    match kind {
        Kind::Null => "null".into(),
        Kind::Boolean => "boolean".into(),
        Kind::Number => "number".into(),
        Kind::Text => "string".into(),
        Kind::List(items) if items.kinds.len() > 1 => format!("({})[]", of_shape(items, depth)),
        Kind::List(items) => format!("{}[]", of_shape(items, depth)),
        Kind::Object(fields) if fields.is_empty() => "Record<string, unknown>".into(),
        Kind::Object(fields) => object(fields, depth),
    }
}
