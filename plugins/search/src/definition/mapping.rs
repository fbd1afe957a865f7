//! The mapping of documents to indexed fields: the member `mapping` of a definition.

use crate::error::{Error, Result};
use crate::vector::{Effort, Metric};
use nacre_text::Registry;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The formula of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scoring {
    /// Frequency of the term times its rarity, the default.
    TfIdf,
    /// BM25 with k1 1.2 and b 0.75.
    Bm25,
}

/// The kind of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Analysed text.
    Text,
    /// A number.
    Number,
    /// A date.
    DateTime,
    /// True or false.
    Boolean,
    /// A place.
    GeoPoint,
    /// A shape on Earth.
    GeoShape,
    /// An internet address.
    Ip,
    /// A vector, as an array of numbers.
    Vector,
    /// A vector, as a text.
    VectorBase64,
}

/// A field of a property.
#[derive(Clone, Debug)]
pub struct FieldMapping {
    /// The last element of the name of the field; empty for that of the property.
    pub name: String,
    /// Its kind.
    pub kind: FieldKind,
    /// The analyzer of a text; empty for the default.
    pub analyzer: String,
    /// The date parser; empty for the default.
    pub date_format: String,
    /// Its value is returned.
    pub store: bool,
    /// It can be searched.
    pub index: bool,
    /// Its tokens can be highlighted and located.
    pub term_vectors: bool,
    /// It is part of the composite field.
    pub in_all: bool,
    /// Facets and sorts read its values.
    pub doc_values: bool,
    /// The dimensions of a vector.
    pub dims: u32,
    /// How vectors are compared.
    pub metric: Metric,
    /// How many of a segment's vectors a search compares.
    pub effort: Effort,
}

/// Mapping of an object.
#[derive(Clone, Debug)]
pub struct DocumentMapping {
    /// Anything at all.
    pub enabled: bool,
    /// Also properties that it does not name.
    pub dynamic: bool,
    /// The properties it names.
    pub properties: BTreeMap<String, DocumentMapping>,
    /// The fields of the value itself.
    pub fields: Vec<FieldMapping>,
    /// The analyzer of texts below; empty for that of the mapping around.
    pub default_analyzer: String,
}

/// Mapping of documents.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// By type.
    pub types: BTreeMap<String, DocumentMapping>,
    /// For documents whose type has none.
    pub default_mapping: DocumentMapping,
    /// The type of documents that have none.
    pub default_type: String,
    /// The field of queries that name none.
    pub default_field: String,
    /// The analyzer of texts.
    pub default_analyzer: String,
    /// The date parser.
    pub default_date_parser: String,
    /// Fields that no mapping names are indexed.
    pub index_dynamic: bool,
    /// Their values are returned.
    pub store_dynamic: bool,
    /// Facets and sorts read their values.
    pub doc_values_dynamic: bool,
    /// The formula of scores.
    pub scoring: Scoring,
    /// Analyzers and date parsers.
    pub registry: Registry,
}

impl Default for DocumentMapping {
    fn default() -> DocumentMapping {
        DocumentMapping {
            enabled: true,
            dynamic: true,
            properties: BTreeMap::new(),
            fields: Vec::new(),
            default_analyzer: String::new(),
        }
    }
}

impl Mapping {
    /// The member `mapping`; `null` indexes everything.
    ///
    /// # Errors
    /// A member of a wrong type, an unknown kind of field, or a component of analysis that is not there.
    pub fn parse(value: &Value) -> Result<Mapping> {
        let empty = Map::new();
        let members = match value {
            Value::Null => &empty,
            Value::Object(members) => members,
            _ => return Err(Error::request("mapping must be an object")),
        };
        let flag = |key: &str| boolean(members, key, true);
        let analysis = members.get("analysis").unwrap_or(&Value::Null);
        let scoring = match text(members, "scoring_model")?.unwrap_or_default() {
            "" | "tf-idf" => Scoring::TfIdf,
            "bm25" => Scoring::Bm25,
            other => return Err(Error::request(format!("unsupported scoring model: {other}"))),
        };
        let named = |key: &str, default: &str| -> Result<String> {
            Ok(text(members, key)?.filter(|text| !text.is_empty()).unwrap_or(default).to_owned())
        };
        let mut types = BTreeMap::new();
        for (name, mapping) in object(members, "types")? {
            types.insert(name.clone(), DocumentMapping::parse(mapping)?);
        }
        let default_mapping = match members.get("default_mapping") {
            None | Some(Value::Null) => DocumentMapping::default(),
            Some(mapping) => DocumentMapping::parse(mapping)?,
        };
        let mut mapping = Mapping {
            types,
            default_mapping,
            default_type: named("default_type", "_default")?,
            default_field: named("default_field", "_all")?,
            default_analyzer: named("default_analyzer", "standard")?,
            default_date_parser: named("default_datetime_parser", "dateTimeOptional")?,
            index_dynamic: flag("index_dynamic")?,
            store_dynamic: flag("store_dynamic")?,
            doc_values_dynamic: flag("docvalues_dynamic")?,
            scoring,
            registry: Registry::new(analysis)?,
        };
        mapping.check()?;
        Ok(mapping)
    }

    /// Has all components be ready that the mapping names.
    fn check(&mut self) -> Result<()> {
        let mut registry = std::mem::take(&mut self.registry);
        registry.require_analyzer(&self.default_analyzer)?;
        registry.require_date_parser(&self.default_date_parser)?;
        for mapping in self.types.values().chain([&self.default_mapping]) {
            mapping.check(&mut registry)?;
        }
        self.registry = registry;
        Ok(())
    }

    /// The mapping of a type; `None` when documents of the type are not indexed.
    #[must_use]
    pub fn of_type(&self, name: &str) -> Option<&DocumentMapping> {
        let mapping = self.types.get(name).unwrap_or(&self.default_mapping);
        mapping.enabled.then_some(mapping)
    }

    /// The name of the analyzer of queries of a field: that of the field where a mapping names it, else the default of what is around.
    #[must_use]
    pub fn analyzer_of(&self, field: &str) -> &str {
        let all = || self.types.values().chain([&self.default_mapping]);
        for mapping in all() {
            if let Some(analyzer) = mapping.analyzer_of_field("", field) {
                return analyzer;
            }
        }
        for mapping in all() {
            let name = mapping.analyzer_of_path(field);
            if !name.is_empty() {
                return name;
            }
        }
        &self.default_analyzer
    }

    /// The name of the date parser of queries of a field.
    #[must_use]
    pub fn date_parser_of(&self, field: &str) -> &str {
        for mapping in self.types.values().chain([&self.default_mapping]) {
            if let Some(found) = mapping.field("", field)
                && !found.date_format.is_empty()
            {
                return &found.date_format;
            }
        }
        &self.default_date_parser
    }

    /// A field where a mapping names it.
    #[must_use]
    pub fn field_of(&self, field: &str) -> Option<&FieldMapping> {
        let mut all = self.types.values().chain([&self.default_mapping]);
        all.find_map(|mapping| mapping.field("", field))
    }

    /// Returns true if a mapping has a field with vectors.
    #[must_use]
    pub fn has_vectors(&self) -> bool {
        fn any(mapping: &DocumentMapping) -> bool {
            mapping.fields.iter().any(FieldMapping::is_vector)
                || mapping.properties.values().any(any)
        }
        self.types.values().chain([&self.default_mapping]).any(any)
    }

    /// The names of fields with terms that are not part of the composite field; `None` if a name may be that of another field, which is.
    #[must_use]
    pub fn outside_of_all(&self) -> Option<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        let mut are_unique = true;
        let enabled =
            || self.types.values().chain([&self.default_mapping]).filter(|one| one.enabled);
        for mapping in enabled() {
            mapping.collect_outside("", &mut names, &mut are_unique);
        }
        (names.is_empty() || are_unique && enabled().count() == 1).then_some(names)
    }
}

impl DocumentMapping {
    /// Collects the names of indexed fields that are not part of the composite field, and whether each is that of its property.
    fn collect_outside(&self, path: &str, names: &mut BTreeSet<String>, are_unique: &mut bool) {
        let outside = self.fields.iter().filter(|field| field.index && !field.in_all);
        for field in outside {
            // Another field of the property may be part of it, and so may a property of the name.
            *are_unique &= field.name.is_empty() || path.rsplit('.').next() == Some(&*field.name);
            *are_unique &= self.fields.len() == 1;
            names.insert(path.to_owned());
        }
        for (name, property) in self.properties.iter().filter(|(_, property)| property.enabled) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            property.collect_outside(&path, names, are_unique);
        }
    }

    fn parse(value: &Value) -> Result<DocumentMapping> {
        let members = value
            .as_object()
            .ok_or_else(|| Error::request("a document mapping must be an object"))?;
        let mut properties = BTreeMap::new();
        for (name, mapping) in object(members, "properties")? {
            properties.insert(name.clone(), DocumentMapping::parse(mapping)?);
        }
        let fields = match members.get("fields") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(fields)) => {
                fields.iter().map(FieldMapping::parse).collect::<Result<_>>()?
            }
            Some(_) => return Err(Error::request("'fields' must be an array")),
        };
        Ok(DocumentMapping {
            enabled: boolean(members, "enabled", true)?,
            dynamic: boolean(members, "dynamic", true)?,
            properties,
            fields,
            default_analyzer: text(members, "default_analyzer")?.unwrap_or_default().to_owned(),
        })
    }

    fn check(&self, registry: &mut Registry) -> Result<()> {
        if !self.default_analyzer.is_empty() {
            registry.require_analyzer(&self.default_analyzer)?;
        }
        for field in &self.fields {
            if !field.analyzer.is_empty() {
                registry.require_analyzer(&field.analyzer)?;
            }
            if !field.date_format.is_empty() {
                registry.require_date_parser(&field.date_format)?;
            }
        }
        self.properties.values().try_for_each(|mapping| mapping.check(registry))
    }

    /// The field of a name, with the names of properties up to here.
    fn field(&self, path: &str, name: &str) -> Option<&FieldMapping> {
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        for field in &self.fields {
            let own = match (&*field.name, parent) {
                ("", _) => path.to_owned(),
                (own, "") => own.to_owned(),
                (own, parent) => format!("{parent}.{own}"),
            };
            if own == name {
                return Some(field);
            }
        }
        self.properties.iter().find_map(|(property, mapping)| {
            let below =
                if path.is_empty() { property.clone() } else { format!("{path}.{property}") };
            // A field stands below its property's parent.
            let parent = below.rsplit_once('.').map_or("", |(parent, _)| parent);
            name.starts_with(parent).then(|| mapping.field(&below, name)).flatten()
        })
    }

    fn analyzer_of_field(&self, path: &str, name: &str) -> Option<&str> {
        self.field(path, name).map(|field| &*field.analyzer).filter(|name| !name.is_empty())
    }

    /// The default analyzer along a path; empty when none is named.
    pub(crate) fn analyzer_of_path(&self, path: &str) -> &str {
        let (mut mapping, mut name) = (self, &*self.default_analyzer);
        for element in path.split('.') {
            let Some(below) = mapping.properties.get(element) else { break };
            mapping = below;
            if !mapping.default_analyzer.is_empty() {
                name = &mapping.default_analyzer;
            }
        }
        name
    }
}

impl FieldMapping {
    /// Returns true if the values of the field are vectors.
    #[must_use]
    pub fn is_vector(&self) -> bool {
        matches!(self.kind, FieldKind::Vector | FieldKind::VectorBase64)
    }

    fn parse(value: &Value) -> Result<FieldMapping> {
        let members =
            value.as_object().ok_or_else(|| Error::request("a field mapping must be an object"))?;
        let flag = |key: &str| boolean(members, key, false);
        let owned = |key: &str| text(members, key).map(|text| text.unwrap_or_default().to_owned());
        let kind = match text(members, "type")?.unwrap_or_default() {
            "text" => FieldKind::Text,
            "number" => FieldKind::Number,
            "datetime" => FieldKind::DateTime,
            "boolean" => FieldKind::Boolean,
            "geopoint" => FieldKind::GeoPoint,
            "geoshape" => FieldKind::GeoShape,
            "IP" => FieldKind::Ip,
            "vector" => FieldKind::Vector,
            "vector_base64" => FieldKind::VectorBase64,
            other => return Err(Error::request(format!("unknown field type: '{other}'"))),
        };
        let dims = members.get("dims").and_then(Value::as_u64).unwrap_or(0);
        if matches!(kind, FieldKind::Vector | FieldKind::VectorBase64) {
            let name = owned("name")?;
            if !(1..=4096).contains(&dims) {
                return Err(Error::request(format!(
                    "field: '{name}', invalid vector dimension: {dims}, value should be in range [1, 4096]"
                )));
            }
            let similarity = text(members, "similarity")?.unwrap_or("");
            if Metric::parse(similarity).is_none() {
                return Err(Error::request(format!(
                    "field: '{name}', invalid similarity metric: '{similarity}', valid metrics are: [cosine dot_product l2_norm]"
                )));
            }
        }
        Ok(FieldMapping {
            name: owned("name")?,
            kind,
            analyzer: owned("analyzer")?,
            date_format: owned("date_format")?,
            store: flag("store")?,
            index: flag("index")?,
            term_vectors: flag("include_term_vectors")?,
            in_all: flag("include_in_all")?,
            doc_values: flag("docvalues")?,
            dims: u32::try_from(dims).unwrap_or(u32::MAX),
            metric: text(members, "similarity")?.and_then(Metric::parse).unwrap_or(Metric::L2),
            // Names of other kinds of indexes ask for nothing that a search here could do.
            effort: text(members, "vector_index_optimized_for")?
                .and_then(Effort::parse)
                .unwrap_or_default(),
        })
    }
}

fn wrong(key: &str, wanted: &str) -> Error {
    Error::request(format!("'{key}' must be {wanted}"))
}

fn boolean(members: &Map<String, Value>, key: &str, default: bool) -> Result<bool> {
    match members.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value.as_bool().ok_or_else(|| wrong(key, "a boolean")),
    }
}

fn text<'a>(members: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>> {
    match members.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or_else(|| wrong(key, "a string")),
    }
}

fn object<'a>(
    members: &'a Map<String, Value>,
    key: &str,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)>> {
    let found = match members.get(key) {
        None | Some(Value::Null) => None,
        Some(value) => Some(value.as_object().ok_or_else(|| wrong(key, "an object"))?),
    };
    Ok(found.into_iter().flatten())
}
