//! The mapping of documents to indexed fields: the member `mapping` of a definition.

use super::SynonymSource;
use crate::error::{Error, Result};
use crate::vector::{Effort, Metric};
use nacre_text::Registry;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The scoring formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scoring {
    /// Term frequency times inverse document frequency, the default.
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
    /// A geographic point.
    GeoPoint,
    /// A geographic shape.
    GeoShape,
    /// An IP address.
    Ip,
    /// A vector, as an array of numbers.
    Vector,
    /// A vector, as base64 text.
    VectorBase64,
}

/// A field of a property.
#[derive(Clone, Debug)]
pub struct FieldMapping {
    /// The last element of the field's name; empty for the name of the property.
    pub name: String,
    /// The kind of the field.
    pub kind: FieldKind,
    /// The analyzer of a text field; empty for the default.
    pub analyzer: String,
    /// The date parser; empty for the default.
    pub date_format: String,
    /// True if hits can return its value.
    pub store: bool,
    /// True if it can be searched.
    pub index: bool,
    /// True if its terms can be highlighted and located.
    pub term_vectors: bool,
    /// True if it belongs to the composite field `_all`.
    pub in_all: bool,
    /// True if facets and sorts can read its values.
    pub doc_values: bool,
    /// Number of dimensions of a vector.
    pub dims: u32,
    /// How vectors are compared.
    pub metric: Metric,
    /// How many vectors of a segment a search compares.
    pub effort: Effort,
    /// The source of synonyms for queries; empty for the default.
    pub synonym_source: String,
}

/// The mapping of an object.
#[derive(Clone, Debug)]
pub struct DocumentMapping {
    /// False if nothing in the object is indexed.
    pub enabled: bool,
    /// True if properties without a mapping are indexed too.
    pub dynamic: bool,
    /// The mapped properties.
    pub properties: BTreeMap<String, DocumentMapping>,
    /// The fields of the value itself.
    pub fields: Vec<FieldMapping>,
    /// The analyzer of texts below; empty for that of the enclosing mapping.
    pub default_analyzer: String,
    /// The source of synonyms for fields below; empty for that of the enclosing mapping.
    pub default_synonym_source: String,
}

/// The mapping of documents.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Mappings by type.
    pub types: BTreeMap<String, DocumentMapping>,
    /// The mapping of documents whose type has no mapping.
    pub default_mapping: DocumentMapping,
    /// The type of documents without a type.
    pub default_type: String,
    /// The field of queries that do not name one.
    pub default_field: String,
    /// The default analyzer of texts.
    pub default_analyzer: String,
    /// The default date parser.
    pub default_date_parser: String,
    /// True if fields without a mapping are indexed.
    pub index_dynamic: bool,
    /// True if hits can return the values of such fields.
    pub store_dynamic: bool,
    /// True if facets and sorts can read the values of such fields.
    pub doc_values_dynamic: bool,
    /// The scoring formula.
    pub scoring: Scoring,
    /// Analyzers and date parsers.
    pub registry: Registry,
    /// The sources of synonyms, by name.
    pub synonyms: BTreeMap<String, SynonymSource>,
    /// The source of synonyms for fields without one; empty for none.
    pub default_synonym_source: String,
}

impl Default for DocumentMapping {
    fn default() -> DocumentMapping {
        DocumentMapping {
            enabled: true,
            dynamic: true,
            properties: BTreeMap::new(),
            fields: Vec::new(),
            default_analyzer: String::new(),
            default_synonym_source: String::new(),
        }
    }
}

impl Mapping {
    /// Parses the member `mapping`; `null` means that everything is indexed.
    ///
    /// # Errors
    /// A member has the wrong type, a kind of field is unknown, or a component of analysis does not exist.
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
            synonyms: SynonymSource::parse_all(&analysis["synonym_sources"])?,
            default_synonym_source: named("default_synonym_source", "")?,
        };
        mapping.check()?;
        Ok(mapping)
    }

    /// Creates all analysis components that the mapping refers to.
    fn check(&mut self) -> Result<()> {
        let mappings = self.types.values().chain([&self.default_mapping]);
        let sources = mappings.flat_map(DocumentMapping::synonym_sources);
        for name in sources.chain([&*self.default_synonym_source]) {
            if !name.is_empty() && !self.synonyms.contains_key(name) {
                return Err(Error::request(format!(
                    "no synonym source with name or type '{name}' registered"
                )));
            }
        }
        let mut registry = std::mem::take(&mut self.registry);
        for source in self.synonyms.values() {
            registry.require_analyzer(&source.analyzer)?;
        }
        registry.require_analyzer(&self.default_analyzer)?;
        registry.require_date_parser(&self.default_date_parser)?;
        for mapping in self.types.values().chain([&self.default_mapping]) {
            mapping.check(&mut registry)?;
        }
        self.registry = registry;
        Ok(())
    }

    /// Returns the mapping of a type, or `None` if documents of the type are not indexed.
    #[must_use]
    pub fn of_type(&self, name: &str) -> Option<&DocumentMapping> {
        let mapping = self.types.get(name).unwrap_or(&self.default_mapping);
        mapping.enabled.then_some(mapping)
    }

    /// Returns the name of the analyzer for queries of a field: that of the field if a mapping names it, else the default of the
    /// enclosing mapping.
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

    /// Returns the name of the source of synonyms for queries of a field: that of the field if a mapping names it, else the default of
    /// the enclosing mapping.
    #[must_use]
    pub fn synonym_source_of(&self, field: &str) -> Option<&str> {
        if self.synonyms.is_empty() {
            return None;
        }
        let all = || self.types.values().chain([&self.default_mapping]);
        let own = all().filter_map(|mapping| mapping.field("", field));
        let own = own.map(|found| &*found.synonym_source);
        let inherited = all().map(|mapping| mapping.synonym_source_of_path(field));
        let mut names = own.chain(inherited).chain([&*self.default_synonym_source]);
        names.find(|name| !name.is_empty())
    }

    /// Returns the name of the date parser for queries of a field.
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

    /// Returns a field if a mapping names it.
    #[must_use]
    pub fn field_of(&self, field: &str) -> Option<&FieldMapping> {
        let mut all = self.types.values().chain([&self.default_mapping]);
        all.find_map(|mapping| mapping.field("", field))
    }

    /// Returns true if a mapping has a vector field.
    #[must_use]
    pub fn has_vectors(&self) -> bool {
        fn any(mapping: &DocumentMapping) -> bool {
            mapping.fields.iter().any(FieldMapping::is_vector)
                || mapping.properties.values().any(any)
        }
        self.types.values().chain([&self.default_mapping]).any(any)
    }

    /// Returns the names of indexed fields outside the composite field, or `None` if another field with such a name may belong to it.
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
    /// Collects the names of indexed fields outside the composite field. Clears `are_unique` if the name of one differs from
    /// its property's name.
    fn collect_outside(&self, path: &str, names: &mut BTreeSet<String>, are_unique: &mut bool) {
        let outside = self.fields.iter().filter(|field| field.index && !field.in_all);
        for field in outside {
            // Another field of the property may belong to the composite field, and so may a property with that name.
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
            default_synonym_source: text(members, "default_synonym_source")?
                .unwrap_or_default()
                .to_owned(),
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

    /// Returns the field with a name; `path` contains the names of the enclosing properties.
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
            // The full name of a field begins with the path of the parent of its property.
            let parent = below.rsplit_once('.').map_or("", |(parent, _)| parent);
            name.starts_with(parent).then(|| mapping.field(&below, name)).flatten()
        })
    }

    /// Returns the names of the sources of synonyms that the mapping refers to; some are empty.
    fn synonym_sources(&self) -> Vec<&str> {
        let mut names = vec![&*self.default_synonym_source];
        names.extend(self.fields.iter().map(|field| &*field.synonym_source));
        for property in self.properties.values() {
            names.extend(property.synonym_sources());
        }
        names
    }

    /// Returns the default source of synonyms along a path; empty if no mapping names one.
    fn synonym_source_of_path(&self, path: &str) -> &str {
        let (mut mapping, mut name) = (self, &*self.default_synonym_source);
        for element in path.split('.') {
            let Some(below) = mapping.properties.get(element) else { break };
            mapping = below;
            if !mapping.default_synonym_source.is_empty() {
                name = &mapping.default_synonym_source;
            }
        }
        name
    }

    fn analyzer_of_field(&self, path: &str, name: &str) -> Option<&str> {
        self.field(path, name).map(|field| &*field.analyzer).filter(|name| !name.is_empty())
    }

    /// Returns the default analyzer along a path; empty if no mapping names one.
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
            // Names for other kinds of vector indexes are ignored: they have no equivalent here.
            effort: text(members, "vector_index_optimized_for")?
                .and_then(Effort::parse)
                .unwrap_or_default(),
            synonym_source: owned("synonym_source")?,
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
