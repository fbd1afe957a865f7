//! Shapes of documents, from the output of INFER.

use serde_json::Value;

/// The documents of a collection.
pub(super) struct Document {
    /// The name of the type.
    pub(super) name: String,
    /// The collection, as scope.name.
    pub(super) collection: String,
    /// Groups of documents that differ in most of their fields. A single flavor has the name of the document.
    pub(super) flavors: Vec<(String, Flavor)>,
    /// Documents that are not objects.
    pub(super) others: Shape,
}

/// Objects that have most of their fields in common.
pub(super) struct Flavor {
    /// The distinguishing fields: those with the same value in all of the objects.
    mark: String,
    shape: Shape,
}

/// The kinds of values at a path; empty if unknown.
#[derive(Default)]
pub(super) struct Shape {
    pub(super) kinds: Vec<Kind>,
}

/// The kind of a value.
pub(super) enum Kind {
    Null,
    Boolean,
    Number,
    Text,
    List(Shape),
    Object(Vec<Field>),
}

/// A member of an object.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) shape: Shape,
    /// True if some of the objects lack it.
    pub(super) is_optional: bool,
}

impl Flavor {
    /// Describes the documents of a collection with this flavor. The text fits a one-line comment and cannot end it.
    pub(super) fn about(&self, collection: &str) -> String {
        let parts = [collection, self.mark.as_str()].map(in_comment);
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!("Documents of {}", parts.join(": "))
    }

    /// Returns the fields of the objects.
    pub(super) fn fields(&self) -> &[Field] {
        match self.shape.kinds.first() {
            Some(Kind::Object(fields)) => fields,
            _ => &[],
        }
    }
}

/// Returns text for a comment: without line breaks, and without the end of a comment.
pub(super) fn in_comment(text: &str) -> String {
    let is_break = |c: char| c.is_control() || c == '\u{2028}' || c == '\u{2029}';
    text.replace(is_break, " ").replace("*/", "* /")
}

/// Returns the documents with a name for each flavor.
pub(super) fn document(name: String, collection: String, flavors: Vec<Flavor>) -> Document {
    let is_object = |flavor: &Flavor| matches!(flavor.shape.kinds.as_slice(), [Kind::Object(_)]);
    let (objects, rest): (Vec<_>, Vec<_>) = flavors.into_iter().partition(is_object);
    let others = Shape { kinds: rest.into_iter().flat_map(|flavor| flavor.shape.kinds).collect() };
    let is_single = objects.len() == 1 && others.kinds.is_empty();
    let names =
        (1..).map(|number| if is_single { name.clone() } else { format!("{name}{number}") });
    let flavors = names.zip(objects).collect();
    Document { name, collection, flavors, others }
}

/// Returns the flavors in a row of INFER.
pub(super) fn flavors(row: &Value) -> Vec<Flavor> {
    let each = |schema: &Value| Flavor {
        mark: schema["Flavor"].as_str().unwrap_or_default().to_owned(),
        shape: shape(schema, schema["#docs"].as_u64()),
    };
    row.as_array().into_iter().flatten().map(each).collect()
}

/// Returns the shape at a path, from its schema. `count` is the number of objects seen there, if known.
fn shape(schema: &Value, count: Option<u64>) -> Shape {
    let one = std::slice::from_ref(&schema["type"]);
    let names = schema["type"].as_array().map_or(one, Vec::as_slice);
    let kind = |(index, name): (usize, &Value)| {
        let of_kind = match &schema["#docs"] {
            Value::Array(counts) => counts.get(index).and_then(Value::as_u64),
            _ => count,
        };
        Some(match name.as_str()? {
            "null" => Kind::Null,
            "boolean" => Kind::Boolean,
            "number" => Kind::Number,
            "string" => Kind::Text,
            "array" => Kind::List(shape(&schema["items"], None)),
            "object" => Kind::Object(fields(&schema["properties"], of_kind)),
            _ => return None,
        })
    };
    Shape { kinds: names.iter().enumerate().filter_map(kind).collect() }
}

fn fields(properties: &Value, all: Option<u64>) -> Vec<Field> {
    let field = |(name, schema): (&String, &Value)| {
        let count = sum(&schema["#docs"]).map(|count| count as u64);
        let is_optional = match (all, count) {
            (Some(all), Some(count)) => count < all,
            _ => is_partial(&schema["%docs"]),
        };
        Field { name: name.clone(), shape: shape(schema, count), is_optional }
    };
    properties.as_object().into_iter().flatten().map(field).collect()
}

/// Returns the sum of a number over all kinds; the number may also be a single one for all kinds.
fn sum(number: &Value) -> Option<f64> {
    match number {
        Value::Array(each) => each.iter().map(Value::as_f64).sum(),
        one => one.as_f64(),
    }
}

/// Returns true if a share in percent, rounded to hundredths for each kind, is less than 100.
fn is_partial(share: &Value) -> bool {
    let kinds = share.as_array().map_or(1, Vec::len);
    sum(share).is_none_or(|sum| sum < 100.0 - 0.005 * kinds as f64)
}

/// Returns the name of a type, made of the words in the given names.
pub(super) fn type_name(parts: &[&str]) -> String {
    let mut name = String::new();
    for word in parts.iter().flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric())) {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, 'T');
    }
    name
}

/// Returns true if a name is an identifier in both languages.
pub(super) fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
