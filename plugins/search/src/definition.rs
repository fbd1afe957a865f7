//! Definitions of indexes: `params` with the members `doc_config` and `mapping`.

mod doc_config;
mod mapping;
mod stored;
mod synonyms;

pub use doc_config::DocConfig;
pub use mapping::{DocumentMapping, FieldKind, FieldMapping, Mapping, Scoring};
pub use synonyms::{SYNONYM_MARK, SYNONYMS, SynonymSource, synonym_prefix};

use crate::document::{FieldValue, Place};
use crate::error::{Error, Result};
use nacre_text::Token;
use serde_json::{Map, Value, json};

/// Definition of an index: which documents it contains, and how it indexes them.
#[derive(Clone, Debug)]
pub struct Definition {
    /// How the type of a document is determined.
    pub doc_config: DocConfig,
    /// Mapping of documents by type.
    pub mapping: Mapping,
}

impl Definition {
    /// Parses the member `params` of an index: an object, a text that contains one, or `null` for an index of everything.
    ///
    /// # Errors
    /// Errors that the vendor reports too, in its words, after `ValidateIndex, `.
    pub fn parse(params: &Value) -> Result<Definition> {
        let parsed;
        let params = match params {
            Value::String(text) if text.trim().is_empty() => &Value::Null,
            Value::String(text) => {
                parsed = serde_json::from_str(text)
                    .map_err(|error| Error::request(format!("ValidateIndex, Params: {error}")))?;
                &parsed
            }
            params => params,
        };
        if !params.is_object() && !params.is_null() {
            return Err(Error::request("ValidateIndex, Params: params must be an object"));
        }
        let failed = |part: &str, error: Error| Error {
            text: format!("ValidateIndex, {part}: {}", error.text),
            ..error
        };
        let doc_config = DocConfig::parse(&params["doc_config"])
            .map_err(|error| failed("DocConfig err", error))?;
        let mapping =
            Mapping::parse(&params["mapping"]).map_err(|error| failed("Mapping err", error))?;
        let any = mapping.default_mapping.enabled || mapping.types.values().any(|t| t.enabled);
        if !any {
            return Err(Error::request("ValidateIndex, Params: no valid type mappings found"));
        }
        let definition = Definition { doc_config, mapping };
        let (_, collections) = definition.scopes()?.unwrap_or_default();
        let mut sources = definition.mapping.synonyms.values();
        if let Some(source) = sources.find(|source| collections.contains(&source.collection)) {
            return Err(Error::request(format!(
                "collection_utils: synonym collection: '{}' cannot be a indexed with a type mapping",
                source.collection
            )));
        }
        Ok(definition)
    }

    /// Parses the member `params` of a stored index. Earlier versions accepted `hierarchy` filters without a delimiter, and ignored
    /// synonyms, so that stored ones may be invalid.
    ///
    /// # Errors
    /// As for [`Definition::parse`].
    pub fn parse_stored(params: &Value) -> Result<Definition> {
        Definition::parse(params).or_else(|error| {
            let mut params: Value = match params {
                Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
                params => params.clone(),
            };
            stored::add_delimiters(&mut params);
            let parsed = Definition::parse(&params).or_else(|_| {
                stored::remove_synonyms(&mut params);
                Definition::parse(&params)
            });
            parsed.map_err(|_| error)
        })
    }

    /// Returns the indexed collections as `(scope, collections)`, or `None` if the types are not based on collections.
    ///
    /// # Errors
    /// The types belong to several scopes.
    pub fn scopes(&self) -> Result<Option<(String, Vec<String>)>> {
        if !self.doc_config.by_collection {
            return Ok(None);
        }
        let mut scope: Option<String> = None;
        let mut collections = Vec::new();
        let mut add = |of: &str, collection: &str| -> Result<()> {
            match &scope {
                Some(scope) if scope != of => {
                    return Err(Error::request(format!(
                        "collection_utils: multiple scopes found: '{scope}', '{of}'; index can only span collections on a single scope"
                    )));
                }
                _ => scope = Some(of.to_owned()),
            }
            if !collections.iter().any(|one| one == collection) {
                collections.push(collection.to_owned());
            }
            Ok(())
        };
        if self.mapping.default_mapping.enabled {
            add("_default", "_default")?;
        }
        for (name, mapping) in &self.mapping.types {
            if !mapping.enabled {
                continue;
            }
            let mut parts = name.splitn(3, '.');
            let of = parts.next().unwrap_or_default();
            add(of, parts.next().unwrap_or("_default"))?;
        }
        Ok(scope.map(|scope| (scope, collections)))
    }

    /// Returns the tokens into which an analyzer of the definition splits a text.
    ///
    /// # Errors
    /// The analyzer does not exist.
    pub fn analyze(&self, analyzer: &str, text: &str) -> Result<Vec<Token>> {
        Ok(self.mapping.registry.analyzer(analyzer)?.analyze(text))
    }

    /// Returns the terms of a document: an object for each indexed value, with the positions of each term.
    ///
    /// # Errors
    /// As [`Definition::map`].
    pub fn analyze_document(&self, id: &str, body: &[u8], place: Place<'_>) -> Result<Value> {
        use base64::Engine;
        let base64 = base64::engine::general_purpose::STANDARD;
        let mapped = self.map(id, body, place)?.unwrap_or_default();
        let mut analyzed = Vec::new();
        for field in mapped.fields.iter().filter(|field| field.index) {
            let mut terms: Map<String, Value> = Map::new();
            let mut add = |term: &str, start: usize, end: usize, position: u32| {
                let entry = terms
                    .entry(term)
                    .or_insert_with(|| json!({"Term": base64.encode(term), "Locations": []}));
                let array = (!field.positions.is_empty()).then_some(&field.positions);
                let location = json!({"Field": field.name, "ArrayPositions": array, "Start": start, "End": end, "Position": position});
                if let Some(locations) = entry["Locations"].as_array_mut() {
                    locations.push(location);
                }
            };
            match &field.value {
                FieldValue::Text(text, analyzer) => analyzer.analyze_in_parts(text, |tokens| {
                    for token in tokens {
                        add(&token.term, token.start, token.end, token.position);
                    }
                }),
                FieldValue::Boolean(flag) => add(if *flag { "T" } else { "F" }, 0, 1, 1),
                FieldValue::Number(number) => {
                    let text = number.to_string();
                    add(&text, 0, text.len(), 1);
                }
                FieldValue::Date(_, text) => add(text, 0, text.len(), 1),
                FieldValue::Ip(address) => add(&format!("{address:032x}"), 0, 16, 1),
                FieldValue::Point(..)
                | FieldValue::Shape(_)
                | FieldValue::Vectors(_)
                | FieldValue::Terms(_) => {}
            }
            analyzed.push(terms.into());
        }
        Ok(Value::Array(analyzed))
    }
}
