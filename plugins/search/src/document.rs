//! Converts documents into fields according to a mapping.

use crate::definition::{Definition, DocumentMapping, FieldKind, FieldMapping, Mapping};
use crate::error::Result;
use crate::geo;
use crate::vector;
use nacre_text::{Analyzer, DateParser};
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of fields of a document. Further fields are counted as skipped.
pub const FIELDS_MAX: usize = 1_000_000;

/// The value of a field.
#[derive(Clone, Debug)]
pub enum FieldValue {
    /// A text, and its analyzer.
    Text(String, Arc<Analyzer>),
    /// A number.
    Number(f64),
    /// A date in nanoseconds since 1970, and its original text.
    Date(i64, String),
    /// True or false.
    Boolean(bool),
    /// A point: longitude and latitude in degrees.
    Point(f64, f64),
    /// A shape, as GeoJSON.
    Shape(Value),
    /// Vectors, each prepared for its metric.
    Vectors(Vec<Vec<f32>>),
    /// An IPv6 address, or an IPv4 address mapped into IPv6.
    Ip(u128),
    /// Terms as they are indexed.
    Terms(Vec<String>),
}

/// A value of a document's field. A field in arrays has one value for each element.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name: names of members joined by dots.
    pub name: String,
    /// The index in each enclosing array.
    pub positions: Vec<u32>,
    /// The value.
    pub value: FieldValue,
    /// True if it can be searched.
    pub index: bool,
    /// True if hits can return it.
    pub store: bool,
    /// True if it can be located.
    pub term_vectors: bool,
    /// True if it belongs to the composite field.
    pub in_all: bool,
    /// True if facets and sorts can read it.
    pub doc_values: bool,
}

/// A document after its mapping.
#[derive(Clone, Debug, Default)]
pub struct Mapped {
    /// The fields in the order of the document.
    pub fields: Vec<Field>,
    /// Number of values that are in no field although the mapping has one, because the type differs or there are too
    /// many.
    pub skipped: u64,
}

/// The collection of a document.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// The scope; empty for `_default`.
    pub scope: &'a str,
    /// The collection; empty for `_default`.
    pub collection: &'a str,
}

impl Definition {
    /// Returns the fields of a document, or `None` if documents of its type are not indexed. A document that is not
    /// JSON counts as `{}`.
    ///
    /// # Errors
    /// The definition lacks a component of analysis; its validation excludes this.
    pub fn map(&self, id: &str, body: &[u8], place: Place<'_>) -> Result<Option<Mapped>> {
        let document =
            serde_json::from_slice(body).unwrap_or_else(|_| Value::Object(Default::default()));
        if let Some(mapped) = self.map_synonyms(&document, place)? {
            return Ok(Some(mapped));
        }
        let kind = self.doc_config.document_type(id, &document);
        let mapping = if self.doc_config.by_collection {
            let or = |name: &'static str, given: &str| {
                if given.is_empty() { name.to_owned() } else { given.to_owned() }
            };
            let (scope, collection) =
                (or("_default", place.scope), or("_default", place.collection));
            let whole = format!("{scope}.{collection}");
            let types = &self.mapping.types;
            let found = types
                .get(&format!("{whole}.{kind}"))
                .filter(|_| !kind.is_empty())
                .or_else(|| types.get(&whole));
            let default = (whole == "_default._default").then_some(&self.mapping.default_mapping);
            found.or(default).filter(|mapping| mapping.enabled)
        } else {
            let kind = if kind.is_empty() { &self.mapping.default_type } else { &kind };
            self.mapping.of_type(kind)
        };
        let Some(root) = mapping else { return Ok(None) };
        let mut walk = Walk {
            mapping: &self.mapping,
            root,
            date_parser: self.mapping.registry.date_parser(&self.mapping.default_date_parser)?,
            mapped: Mapped::default(),
            path: Vec::new(),
            positions: Vec::new(),
        };
        if document.is_object() {
            walk.members(&document, Some(root), root)?;
        }
        Ok(Some(walk.mapped))
    }
}

fn prepared(mut vectors: Vec<Vec<f32>>, field: &FieldMapping) -> FieldValue {
    vectors.iter_mut().for_each(|vector| field.metric.prepare(vector));
    FieldValue::Vectors(vectors)
}

struct Walk<'a> {
    mapping: &'a Mapping,
    root: &'a DocumentMapping,
    date_parser: Arc<DateParser>,
    mapped: Mapped,
    path: Vec<String>,
    positions: Vec<u32>,
}

impl<'a> Walk<'a> {
    fn members(
        &mut self,
        object: &Value,
        exact: Option<&'a DocumentMapping>,
        closest: &'a DocumentMapping,
    ) -> Result<()> {
        for (name, value) in object.as_object().into_iter().flatten() {
            self.path.push(name.clone());
            let below = exact.and_then(|mapping| mapping.properties.get(name));
            self.property(value, below, below.unwrap_or(closest))?;
            self.path.pop();
        }
        Ok(())
    }

    /// Indexes a value at the current path. `exact` is the mapping of this path; `closest` is the mapping of the
    /// nearest mapped ancestor.
    fn property(
        &mut self,
        value: &Value,
        exact: Option<&'a DocumentMapping>,
        closest: &'a DocumentMapping,
    ) -> Result<()> {
        if !closest.enabled {
            return Ok(());
        }
        match value {
            Value::Null => {}
            Value::Object(_) => {
                self.fields(value, exact, |kind| {
                    matches!(kind, FieldKind::GeoPoint | FieldKind::GeoShape)
                })?;
                self.members(value, exact, closest)?;
            }
            Value::Array(elements) => {
                self.fields(value, exact, |kind| {
                    matches!(kind, FieldKind::GeoPoint | FieldKind::Vector)
                })?;
                if exact.is_some_and(|mapping| mapping.fields.iter().any(FieldMapping::is_vector)) {
                    return Ok(());
                }
                for (at, element) in elements.iter().enumerate() {
                    self.positions.push(u32::try_from(at).unwrap_or(u32::MAX));
                    self.property(element, exact, closest)?;
                    self.positions.pop();
                }
            }
            value if exact.is_some() => self.fields(value, exact, |_| true)?,
            value if closest.dynamic => self.dynamic(value)?,
            _ => {}
        }
        Ok(())
    }

    fn fields(
        &mut self,
        value: &Value,
        exact: Option<&'a DocumentMapping>,
        wanted: impl Fn(FieldKind) -> bool,
    ) -> Result<()> {
        for field in exact.into_iter().flat_map(|mapping| &mapping.fields) {
            if !wanted(field.kind) {
                continue;
            }
            match self.value(field, value)? {
                Some(value) => {
                    let name = self.name(&field.name);
                    self.push(Field {
                        name,
                        positions: self.positions.clone(),
                        value,
                        index: field.index,
                        store: field.store,
                        term_vectors: field.term_vectors,
                        in_all: field.in_all,
                        doc_values: field.doc_values,
                    });
                }
                None if self.is_part_of_points(field, value) => {}
                None => self.mapped.skipped += 1,
            }
        }
        Ok(())
    }

    /// Returns true if a value is no value of the field because it is an array of points, or a number in a point.
    fn is_part_of_points(&self, field: &FieldMapping, value: &Value) -> bool {
        field.kind == FieldKind::GeoPoint
            && (value.is_array() || value.is_number() && !self.positions.is_empty())
    }

    fn value(&self, field: &FieldMapping, value: &Value) -> Result<Option<FieldValue>> {
        let registry = &self.mapping.registry;
        Ok(match (field.kind, value) {
            (FieldKind::Text, Value::String(text)) => {
                let name =
                    if field.analyzer.is_empty() { self.analyzer() } else { &field.analyzer };
                Some(FieldValue::Text(text.clone(), registry.analyzer(name)?))
            }
            (FieldKind::DateTime, Value::String(text)) => {
                let parser = if field.date_format.is_empty() {
                    self.date_parser.clone()
                } else {
                    registry.date_parser(&field.date_format)?
                };
                parser.parse(text).map(|nanos| FieldValue::Date(nanos, text.clone()))
            }
            (FieldKind::Ip, Value::String(text)) => {
                crate::query::parse_address(text).map(FieldValue::Ip)
            }
            (FieldKind::Number, Value::Number(number)) => number.as_f64().map(FieldValue::Number),
            (FieldKind::Boolean, Value::Bool(flag)) => Some(FieldValue::Boolean(*flag)),
            (FieldKind::GeoPoint, value) => {
                geo::parse_point(value).map(|(lon, lat)| FieldValue::Point(lon, lat))
            }
            (FieldKind::Vector, value @ Value::Array(_)) => {
                let vectors = vector::parse(value, field.dims as usize);
                vectors
                    .filter(|vectors| !vectors.is_empty())
                    .map(|vectors| prepared(vectors, field))
            }
            (FieldKind::VectorBase64, Value::String(text)) => {
                let vector =
                    vector::decode(text).filter(|vector| vector.len() == field.dims as usize);
                vector.map(|vector| prepared(vec![vector], field))
            }
            (FieldKind::GeoShape, value @ Value::Object(_)) => {
                geo::Shape::parse(value).is_ok().then(|| FieldValue::Shape(value.clone()))
            }
            _ => None,
        })
    }

    /// Returns the default analyzer at the current path.
    fn analyzer(&self) -> &'a str {
        match self.root.analyzer_of_path(&self.path.join(".")) {
            "" => &self.mapping.default_analyzer,
            name => name,
        }
    }

    fn dynamic(&mut self, value: &Value) -> Result<()> {
        let value = match value {
            Value::String(text) => match self.date_parser.parse(text) {
                Some(nanos) => FieldValue::Date(nanos, text.clone()),
                None => {
                    FieldValue::Text(text.clone(), self.mapping.registry.analyzer(self.analyzer())?)
                }
            },
            Value::Number(number) => FieldValue::Number(number.as_f64().unwrap_or(0.0)),
            Value::Bool(flag) => FieldValue::Boolean(*flag),
            _ => return Ok(()),
        };
        self.push(Field {
            name: self.path.join("."),
            positions: self.positions.clone(),
            value,
            index: self.mapping.index_dynamic,
            store: self.mapping.store_dynamic,
            term_vectors: true,
            in_all: true,
            doc_values: self.mapping.doc_values_dynamic,
        });
        Ok(())
    }

    fn name(&self, own: &str) -> String {
        if own.is_empty() {
            return self.path.join(".");
        }
        let parents = &self.path[..self.path.len().saturating_sub(1)];
        parents.iter().map(String::as_str).chain([own]).collect::<Vec<_>>().join(".")
    }

    fn push(&mut self, field: Field) {
        if self.mapped.fields.len() < FIELDS_MAX {
            self.mapped.fields.push(field);
        } else {
            self.mapped.skipped += 1;
        }
    }
}
