//! Suggestions: completions of a word that is being typed, and corrections of the words in a text.
//!
//! Both use only the dictionary of a field, not the documents. The counts therefore include replaced documents until segments are
//! merged, and cover all collections of the index.

use super::expand::{TERMS_MAX, looks_like};
use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::index::Segment;
use crate::query::{Fuzziness, kind};
use nacre_text::Token;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of terms in a suggestion.
const SIZE_MAX: u64 = 100;
/// Maximum number of terms that the search reads in a segment: millions may begin with one letter.
const LOOKED_AT_MAX: usize = 100_000;
/// Maximum length of a word for correction, in characters: the automaton grows with it.
const WORD_LENGTH_MAX: usize = 64;
/// Maximum number of words for correction in a text.
const WORDS_MAX: usize = 32;

/// A requested suggestion.
#[derive(Clone, Debug)]
pub struct SuggestRequest {
    field: String,
    what: What,
    size: usize,
}

#[derive(Clone, Debug)]
enum What {
    /// Terms with this prefix.
    Prefix(String),
    /// Terms similar to those words of the text that the index does not contain.
    Text { text: String, fuzziness: Fuzziness },
}

/// A suggested term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Term {
    term: String,
    /// Number of documents with the term.
    count: u64,
    /// Number of edits between the term and the word in the text.
    distance: u8,
}

/// A word in the text.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Word {
    term: String,
    start: usize,
    end: usize,
    /// Number of documents with the word. A word that documents contain is not corrected.
    count: u64,
    terms: Vec<Term>,
}

/// A suggestion of one partition or of several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Suggestion {
    terms: Vec<Term>,
    words: Vec<Word>,
}

impl SuggestRequest {
    /// Parses a suggestion.
    ///
    /// # Errors
    /// A member has the wrong type, or both `prefix` and `text` are missing.
    pub fn parse(value: &Value) -> Result<SuggestRequest> {
        let text = |key: &str| match &value[key] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            other => {
                Err(Error::request(format!("suggest: {key} is a {}, not a string", kind(other))))
            }
        };
        let Some(field) = text("field")?.filter(|field| !field.is_empty()) else {
            return Err(Error::request("suggest: field is missing"));
        };
        let size = match &value["size"] {
            Value::Null => 5,
            size => size
                .as_u64()
                .filter(|size| (1..=SIZE_MAX).contains(size))
                .ok_or_else(|| Error::request(format!("suggest: size must be 1 to {SIZE_MAX}")))?,
        };
        let fuzziness = match &value["fuzziness"] {
            Value::Null => Fuzziness::Auto,
            Value::String(text) if text == "auto" => Fuzziness::Auto,
            number => match number.as_u64() {
                Some(number @ 1..=2) => Fuzziness::Exact(number as u8),
                _ => return Err(Error::request("suggest: fuzziness must be 1, 2 or auto")),
            },
        };
        let what = match (text("prefix")?, text("text")?) {
            (Some(prefix), None) => What::Prefix(prefix),
            (None, Some(text)) => What::Text { text, fuzziness },
            _ => return Err(Error::request("suggest: either prefix or text is needed")),
        };
        Ok(SuggestRequest { field, what, size: size as usize })
    }

    /// Returns the suggestion of a partition's segments.
    ///
    /// # Errors
    /// The text has too many words, or a file is corrupt.
    pub fn suggest(
        &self,
        definition: &Definition,
        segments: &[Arc<Segment>],
    ) -> Result<Suggestion> {
        match &self.what {
            What::Prefix(prefix) => {
                let mut found: BTreeMap<String, u64> = BTreeMap::new();
                for segment in segments {
                    let mut left = LOOKED_AT_MAX;
                    segment.each_term(&self.field, prefix, |term, info| {
                        let is_wanted = term.starts_with(&**prefix) && left > 0;
                        if is_wanted {
                            left -= 1;
                            *found.entry(term.to_owned()).or_default() += u64::from(info.doc_freq);
                        }
                        is_wanted
                    })?;
                }
                let terms =
                    found.into_iter().map(|(term, count)| Term { term, count, distance: 0 });
                Ok(Suggestion { terms: best(terms.collect(), TERMS_MAX), words: Vec::new() })
            }
            What::Text { text, fuzziness } => {
                let mapping = &definition.mapping;
                let analyzer = mapping.registry.analyzer(mapping.analyzer_of(&self.field))?;
                let tokens = analyzer.analyze(text);
                if tokens.len() > WORDS_MAX {
                    return Err(Error::request(format!(
                        "suggest: the text has more than {WORDS_MAX} words"
                    )));
                }
                let words = tokens.into_iter().map(|token| self.word(segments, token, *fuzziness));
                Ok(Suggestion { terms: Vec::new(), words: words.collect::<Result<_>>()? })
            }
        }
    }

    fn word(&self, segments: &[Arc<Segment>], token: Token, fuzziness: Fuzziness) -> Result<Word> {
        // A longer token is not a word.
        let is_word = token.term.chars().count() <= WORD_LENGTH_MAX;
        let distance = if is_word { fuzziness.of(&token.term) } else { 0 };
        let found = match distance {
            0 => Vec::new(),
            distance => looks_like(segments, &self.field, &token.term, distance, LOOKED_AT_MAX)?,
        };
        let mut count = 0;
        for segment in segments {
            let info = segment.term(&self.field, &token.term)?;
            count += info.map_or(0, |info| u64::from(info.doc_freq));
        }
        let others = found.into_iter().filter(|found| found.term != token.term);
        let terms = others.map(|found| Term {
            term: found.term,
            count: found.documents,
            distance: found.distance,
        });
        Ok(Word {
            count,
            terms: best(terms.collect(), TERMS_MAX),
            term: token.term,
            start: token.start,
            end: token.end,
        })
    }

    /// Returns the suggestion as JSON: terms, or words with their corrections, and the text with the best corrections.
    pub fn answer(&self, suggestion: &Suggestion) -> Value {
        let rows = |terms: &[Term], shows_distance: bool| -> Vec<Value> {
            let best = best(terms.to_vec(), self.size).into_iter();
            best.map(|Term { term, count, distance }| {
                let mut row = json!({"term": term, "count": count});
                if shows_distance {
                    row["distance"] = distance.into();
                }
                row
            })
            .collect()
        };
        let What::Text { text, .. } = &self.what else {
            return json!({"field": self.field, "terms": rows(&suggestion.terms, false)});
        };
        let (mut corrected, mut at, mut words) = (String::new(), 0, Vec::new());
        for word in suggestion.words.iter().filter(|word| word.count == 0) {
            let terms = rows(&word.terms, true);
            if let Some(term) = terms.first().and_then(|row| row["term"].as_str())
                && let Some(between) = text.get(at..word.start)
            {
                corrected.push_str(between);
                corrected.push_str(term);
                at = word.end;
            }
            words.push(json!({
                "term": word.term, "start": word.start, "end": word.end, "terms": terms,
            }));
        }
        corrected.push_str(text.get(at..).unwrap_or_default());
        json!({"field": self.field, "text": corrected, "words": words})
    }
}

/// Returns the best terms: those with the fewest edits and, among these, those with the most documents.
fn best(mut terms: Vec<Term>, count: usize) -> Vec<Term> {
    terms.sort_by(|a, b| {
        let order = a.distance.cmp(&b.distance).then(b.count.cmp(&a.count));
        order.then_with(|| a.term.cmp(&b.term))
    });
    terms.truncate(count);
    terms
}

/// Adds the terms of another partition. For terms in both, adds their counts.
fn sum(ours: &mut Vec<Term>, others: Vec<Term>) {
    let known: BTreeMap<String, usize> =
        ours.iter().enumerate().map(|(at, term)| (term.term.clone(), at)).collect();
    for term in others {
        match known.get(&term.term) {
            Some(at) => ours[*at].count += term.count,
            None => ours.push(term),
        }
    }
}

impl Suggestion {
    /// Adds the suggestion of another partition.
    pub fn merge(&mut self, other: Suggestion) {
        sum(&mut self.terms, other.terms);
        // All partitions split a text into the same words.
        if self.words.is_empty() {
            self.words = other.words;
            return;
        }
        for (ours, other) in self.words.iter_mut().zip(other.words) {
            ours.count += other.count;
            sum(&mut ours.terms, other.terms);
        }
    }
}
