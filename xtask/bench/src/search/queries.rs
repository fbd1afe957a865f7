//! Queries of eleven kinds, built from words of the documents by a seed.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Queries per kind.
pub const PER_KIND: usize = 50;
const SEED: u64 = 56;
/// Letters of a prefix. With four, some prefixes match more than the 1,024 words that a query may have.
const PREFIX_LETTERS: usize = 5;

/// Queries of one kind.
pub struct Kind {
    /// The name of the kind.
    pub name: &'static str,
    /// The requests.
    pub requests: Vec<Value>,
    /// The words of each query, for engines with another query language; empty where the words do not determine
    /// the query.
    pub words: Vec<Vec<String>>,
}

/// Words of documents, by the number of documents that contain them.
struct Words {
    common: Vec<String>,
    middling: Vec<String>,
    rare: Vec<String>,
    pairs: Vec<[String; 2]>,
}

/// Returns sequences of letters in lower case, which all engines consider to be words.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace()
        .filter(|word| word.len() > 3 && word.bytes().all(|byte| byte.is_ascii_alphabetic()))
        .map(str::to_ascii_lowercase)
}

/// Returns the number of documents that contain each word.
fn counts(bodies: &[&str]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for body in bodies {
        let words: BTreeSet<String> = words_of(body).collect();
        for word in words {
            *counts.entry(word).or_default() += 1;
        }
    }
    counts
}

/// Returns the words in many documents, including those that analyzers ignore.
pub fn frequent(bodies: &[&str]) -> Vec<String> {
    let counts = counts(bodies).into_iter();
    counts.filter(|(_, count)| *count > bodies.len() / 400).map(|(word, _)| word).collect()
}

impl Words {
    fn of(bodies: &[&str], stop_words: &BTreeSet<String>, random: &mut StdRng) -> Words {
        let counts = counts(bodies);
        let mut pairs = Vec::new();
        for body in bodies {
            // Adjacent words with a single blank between them.
            let mut neighbours = body.split(' ').zip(body.split(' ').skip(1));
            let pair = neighbours.nth(random.random_range(5..40));
            let plain =
                |word: &str| words_of(word).next().filter(|word| !stop_words.contains(word));
            pairs.extend(pair.and_then(|(a, b)| Some([plain(a)?, plain(b)?])));
        }
        let with = |least: usize, most: usize| {
            let mut found: Vec<String> = counts
                .iter()
                .filter(|(word, count)| {
                    (least..most).contains(*count)
                        && word.len() > 4
                        && !stop_words.contains(word.as_str())
                })
                .map(|(word, _)| word.clone())
                .collect();
            found.sort();
            found
        };
        let count = bodies.len();
        let (common, middling, rare) =
            (with(count / 50, count / 4), with(count / 400, count / 50), with(3, 20));
        Words { common, middling, rare, pairs }
    }
}

/// Builds queries from words of documents.
struct QueryGenerator {
    words: Words,
    count: u64,
    random: StdRng,
}

/// The words of a query.
#[derive(Clone, Copy)]
enum Of {
    Common,
    Middling,
    Rare,
}

fn term(word: &str) -> Value {
    json!({"term": word, "field": "body"})
}

fn terms(words: &[String]) -> Value {
    words.iter().map(|word| term(word)).collect()
}

fn request(query: Value) -> Value {
    json!({"query": query, "size": 10})
}

impl QueryGenerator {
    fn pick(&mut self, of: Of) -> String {
        let words = match of {
            Of::Common => &self.words.common,
            Of::Middling => &self.words.middling,
            Of::Rare => &self.words.rare,
        };
        words.choose(&mut self.random).expect("the corpus has such words").clone()
    }

    /// Returns a kind whose queries all have the given number of words.
    fn texts(
        &mut self,
        name: &'static str,
        of: Of,
        count: usize,
        make: fn(&[String]) -> Value,
    ) -> Kind {
        let (words, requests) = (0..PER_KIND)
            .map(|_| {
                let words: Vec<String> = (0..count).map(|_| self.pick(of)).collect();
                let request = make(&words);
                (words, request)
            })
            .unzip();
        Kind { name, requests, words }
    }

    /// Returns a range query for a tenth of the documents, by their numbers.
    fn range(&mut self) -> Value {
        let least = self.random.random_range(0..self.count * 9 / 10);
        json!({"min": least, "max": least + self.count / 10, "field": "number"})
    }

    fn phrases(&mut self) -> Kind {
        let pairs: Vec<[String; 2]> =
            self.words.pairs.choose_multiple(&mut self.random, PER_KIND).cloned().collect();
        let phrase =
            |pair: &[String; 2]| request(json!({"match_phrase": pair.join(" "), "field": "body"}));
        Kind {
            name: "phrase of 2",
            requests: pairs.iter().map(phrase).collect(),
            words: pairs.iter().map(|pair| pair.to_vec()).collect(),
        }
    }

    fn ranges(&mut self) -> Kind {
        let requests = (0..PER_KIND).map(|_| request(self.range())).collect();
        Kind { name: "numeric range", requests, words: Vec::new() }
    }

    fn combinations(&mut self) -> Kind {
        let mut combination = || {
            let must = json!({"conjuncts": [term(&self.pick(Of::Common)), self.range()]});
            let must_not = json!({"disjuncts": [term(&self.pick(Of::Common))], "min": 1});
            request(json!({"must": must, "must_not": must_not}))
        };
        let requests = (0..PER_KIND).map(|_| combination()).collect();
        Kind { name: "must, range, must_not", requests, words: Vec::new() }
    }
}

/// Returns the queries for documents with the given bodies. `stop_words` are the words that the analyzer ignores.
///
/// # Panics
/// Panics when the documents have too few words.
pub fn kinds(bodies: &[&str], stop_words: &BTreeSet<String>) -> Vec<Kind> {
    let mut random = StdRng::seed_from_u64(SEED);
    let words = Words::of(bodies, stop_words, &mut random);
    let mut maker = QueryGenerator { words, count: bodies.len() as u64, random };
    let mut prefixes = maker.texts("prefix", Of::Middling, 1, |words| {
        request(json!({"prefix": &words[0][..PREFIX_LETTERS], "field": "body"}))
    });
    // Other engines search for the prefix as well.
    prefixes.words.iter_mut().flatten().for_each(|word| word.truncate(PREFIX_LETTERS));
    vec![
        maker.texts("term, common", Of::Common, 1, |words| request(term(&words[0]))),
        maker.texts("term, rare", Of::Rare, 1, |words| request(term(&words[0]))),
        maker.texts("and of 2", Of::Common, 2, |words| request(json!({"conjuncts": terms(words)}))),
        maker.texts("or of 3", Of::Common, 3, |words| {
            request(json!({"disjuncts": terms(words), "min": 1}))
        }),
        maker.phrases(),
        prefixes,
        maker.texts("fuzzy, distance 1", Of::Middling, 1, |words| {
            request(json!({"term": words[0], "fuzziness": 1, "field": "body"}))
        }),
        maker.ranges(),
        maker.combinations(),
        maker.texts("term and facet", Of::Common, 1, |words| {
            let facet = json!({"field": "kind", "size": 10});
            json!({"query": term(&words[0]), "size": 10, "facets": {"kinds": facet}})
        }),
        maker.texts("or, highlighted", Of::Middling, 2, |words| {
            let query = json!({"disjuncts": terms(words), "min": 1});
            json!({"query": query, "size": 10, "highlight": {"fields": ["body"]}})
        }),
    ]
}

/// Returns the words of queries by kind, for engines with another query language.
pub fn words(kinds: &[Kind]) -> BTreeMap<&'static str, &[Vec<String>]> {
    let with_words = kinds.iter().filter(|kind| !kind.words.is_empty());
    with_words.map(|kind| (kind.name, &kind.words[..])).collect()
}
