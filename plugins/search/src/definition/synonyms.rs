//! Synonym sources: collections whose documents name words that are found in place of others.
//!
//! The words of `{"synonyms": ["car", "auto"]}` are found in place of each other. With `{"input": ["pet"], "synonyms": ["cat"]}`, a
//! query for `pet` also finds `cat`, but not the reverse. The index contains the pairs as terms of [`SYNONYMS`]; a document of such a
//! collection is no hit.

use super::Definition;
use crate::document::{Field, FieldValue, Mapped, Place};
use crate::error::{Error, Result};
use nacre_text::Analyzer;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The field with the pairs.
pub const SYNONYMS: &str = "_$synonyms";
/// The term of each document that defines synonyms.
pub const SYNONYM_MARK: &str = "*";
/// Maximum number of pairs of a document. Further ones are ignored.
const PAIRS_MAX: usize = 10_000;

/// A source of synonyms.
#[derive(Clone, Debug)]
pub struct SynonymSource {
    /// The collection of the documents.
    pub collection: String,
    /// The analyzer of their words.
    pub analyzer: String,
}

impl SynonymSource {
    /// Parses the member `synonym_sources` of an analysis.
    ///
    /// # Errors
    /// A source does not name its collection or its analyzer.
    pub fn parse_all(value: &Value) -> Result<BTreeMap<String, SynonymSource>> {
        let mut sources = BTreeMap::new();
        for (name, source) in value.as_object().into_iter().flatten() {
            let text = |key: &str| -> Result<String> {
                let text = source[key].as_str().filter(|text| !text.is_empty());
                let missing = || Error::request(format!("must specify {key}"));
                text.map(str::to_owned).ok_or_else(missing)
            };
            let (collection, analyzer) = (text("collection")?, text("analyzer")?);
            sources.insert(name.clone(), SynonymSource { collection, analyzer });
        }
        Ok(sources)
    }
}

/// Returns the common prefix of the terms for the synonyms of a word. The synonym follows.
pub fn synonym_prefix(source: &str, word: &str) -> String {
    format!("{source}\u{1}{word}\u{1}")
}

/// Returns the pairs that a document defines: a word, and a word that is found in its place.
fn pairs(document: &Value, analyzer: &Analyzer) -> BTreeSet<(String, String)> {
    // A text that the analyzer splits or drops has no synonyms.
    let word = |text: &str| -> Option<String> {
        let mut tokens = analyzer.analyze(text);
        if tokens.len() == 1 { tokens.pop().map(|token| token.term) } else { None }
    };
    let words = |key: &str| -> BTreeSet<String> {
        let texts = document[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.filter_map(word).collect()
    };
    let synonyms = words("synonyms");
    let has_input = document["input"].as_array().is_some_and(|input| !input.is_empty());
    let input = if has_input { words("input") } else { synonyms.clone() };
    let mut pairs = BTreeSet::new();
    for word in &input {
        for synonym in synonyms.iter().filter(|synonym| *synonym != word) {
            if pairs.len() == PAIRS_MAX {
                return pairs;
            }
            pairs.insert((word.clone(), synonym.clone()));
        }
    }
    pairs
}

impl Definition {
    /// Returns the field of a document that defines synonyms, or `None` for documents of other collections.
    ///
    /// # Errors
    /// The definition lacks an analyzer; its validation excludes this.
    pub(crate) fn map_synonyms(
        &self,
        document: &Value,
        place: Place<'_>,
    ) -> Result<Option<Mapped>> {
        if !self.doc_config.by_collection {
            return Ok(None);
        }
        let collection = if place.collection.is_empty() { "_default" } else { place.collection };
        let mut terms = Vec::new();
        for (name, source) in &self.mapping.synonyms {
            if source.collection != collection {
                continue;
            }
            terms.push(SYNONYM_MARK.to_owned());
            let analyzer = self.mapping.registry.analyzer(&source.analyzer)?;
            for (word, synonym) in pairs(document, &analyzer) {
                terms.push(synonym_prefix(name, &word) + &synonym);
            }
        }
        if terms.is_empty() {
            return Ok(None);
        }
        let field = Field {
            name: SYNONYMS.to_owned(),
            positions: Vec::new(),
            value: FieldValue::Terms(terms),
            index: true,
            store: false,
            term_vectors: false,
            in_all: false,
            doc_values: false,
        };
        Ok(Some(Mapped { fields: vec![field], skipped: 0 }))
    }
}
