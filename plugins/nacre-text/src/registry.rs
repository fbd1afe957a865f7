//! The components of an index by name: those of its definition, and the predefined ones.

use crate::builtin;
use crate::char_filter::CharFilter;
use crate::dates::{self, DateParser};
use crate::filter::{Filter, Form, Words};
use crate::tokenizer::Tokenizer;
use crate::{Analyzer, language};
use crate::{Error, Result};
use regex_automata::meta::{Config, Regex};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum depth of references between definitions of components.
const DEPTH_MAX: usize = 32;
/// Maximum number of levels of a hierarchy. The terms of all levels together grow with its square.
const LEVELS_MAX: usize = 1_000;
/// Maximum memory of a regular expression in a definition, in bytes.
const REGEXP_MAX: usize = 10 << 20;

/// The components of an index.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    analyzers: BTreeMap<String, Arc<Analyzer>>,
    date_parsers: BTreeMap<String, Arc<DateParser>>,
}

struct Builder<'a> {
    analysis: &'a Value,
    depth: usize,
}

impl Registry {
    /// Creates the components of the member `analysis` of a mapping.
    ///
    /// # Errors
    /// A component of unknown type, a missing component, or a missing or invalid parameter.
    pub fn new(analysis: &Value) -> Result<Registry> {
        let mut builder = Builder { analysis, depth: 0 };
        let mut registry = Registry::default();
        for name in builder.names("token_maps") {
            builder.token_map(&name)?;
        }
        for name in builder.names("char_filters") {
            builder.char_filter(&name)?;
        }
        for name in builder.names("tokenizers") {
            builder.tokenizer(&name)?;
        }
        for name in builder.names("token_filters") {
            builder.filter(&name)?;
        }
        for name in builder.names("analyzers") {
            registry.analyzers.insert(name.clone(), Arc::new(builder.analyzer(&name)?));
        }
        for name in builder.names("date_time_parsers") {
            registry.date_parsers.insert(name.clone(), Arc::new(builder.date_parser(&name)?));
        }
        Ok(registry)
    }

    /// Prepares a predefined analyzer.
    ///
    /// # Errors
    /// Fails if no analyzer has that name.
    pub fn require_analyzer(&mut self, name: &str) -> Result<()> {
        if !self.analyzers.contains_key(name) {
            let analyzer = Builder { analysis: &Value::Null, depth: 0 }.analyzer(name)?;
            self.analyzers.insert(name.to_owned(), Arc::new(analyzer));
        }
        Ok(())
    }

    /// Prepares a predefined date parser.
    ///
    /// # Errors
    /// Fails if no date parser has that name.
    pub fn require_date_parser(&mut self, name: &str) -> Result<()> {
        if !self.date_parsers.contains_key(name) {
            let parser = Builder { analysis: &Value::Null, depth: 0 }.date_parser(name)?;
            self.date_parsers.insert(name.to_owned(), Arc::new(parser));
        }
        Ok(())
    }

    /// Returns the analyzer with that name.
    ///
    /// # Errors
    /// Fails if no analyzer has that name.
    pub fn analyzer(&self, name: &str) -> Result<Arc<Analyzer>> {
        match self.analyzers.get(name) {
            Some(analyzer) => Ok(analyzer.clone()),
            None => Builder { analysis: &Value::Null, depth: 0 }.analyzer(name).map(Arc::new),
        }
    }

    /// Returns the date parser with that name.
    ///
    /// # Errors
    /// Fails if no date parser has that name.
    pub fn date_parser(&self, name: &str) -> Result<Arc<DateParser>> {
        match self.date_parsers.get(name) {
            Some(parser) => Ok(parser.clone()),
            None => Builder { analysis: &Value::Null, depth: 0 }.date_parser(name).map(Arc::new),
        }
    }
}

/// Compiles a regular expression of a definition.
pub fn compile(pattern: &str) -> Result<Regex> {
    let config = Config::new().nfa_size_limit(Some(REGEXP_MAX));
    Regex::builder().configure(config).build(pattern).map_err(|error| {
        Error::new(format!("unable to build regexp: error parsing regexp: `{pattern}`: {error}"))
    })
}

fn missing(what: &str, name: &str) -> Error {
    Error::new(format!("no {what} with name or type '{name}' registered"))
}

impl Builder<'_> {
    fn names(&self, kind: &str) -> Vec<String> {
        let members = self.analysis[kind].as_object();
        members.map(|members| members.keys().cloned().collect()).unwrap_or_default()
    }

    fn definition(&self, kind: &str, name: &str) -> Option<&Map<String, Value>> {
        self.analysis[kind][name].as_object()
    }

    fn enter(&mut self, name: &str) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Error::new(format!("definitions of '{name}' refer to each other")));
        }
        Ok(())
    }

    fn analyzer(&mut self, name: &str) -> Result<Analyzer> {
        let Some(definition) = self.definition("analyzers", name).cloned() else {
            let (char_filters, tokenizer, filters) =
                builtin::analyzer(name).ok_or_else(|| missing("analyzer", name))?;
            return self.chain(
                char_filters.iter().map(|name| (*name).to_owned()),
                tokenizer,
                filters.iter().map(|name| (*name).to_owned()),
            );
        };
        match definition.get("type").and_then(Value::as_str) {
            Some("custom") => {}
            Some(kind) if builtin::analyzer(kind).is_some() => {
                let (char_filters, tokenizer, filters) =
                    builtin::analyzer(kind).expect("it is some");
                return self.chain(
                    char_filters.iter().map(|name| (*name).to_owned()),
                    tokenizer,
                    filters.iter().map(|name| (*name).to_owned()),
                );
            }
            Some(kind) => return Err(missing("analyzer", kind)),
            None => return Err(Error::new("must specify type")),
        }
        let list = |key: &str| -> Result<Vec<String>> {
            let strings = match definition.get(key) {
                None | Some(Value::Null) => return Ok(Vec::new()),
                Some(value) => value.as_array().map(|all| {
                    all.iter()
                        .map(|one| one.as_str().map(str::to_owned))
                        .collect::<Option<Vec<_>>>()
                }),
            };
            strings
                .flatten()
                .ok_or_else(|| Error::new(format!("{key} must be an array of strings")))
        };
        let tokenizer = definition
            .get("tokenizer")
            .and_then(Value::as_str)
            .ok_or_else(|| Error::new("must specify tokenizer"))?;
        self.chain(list("char_filters")?.into_iter(), tokenizer, list("token_filters")?.into_iter())
    }

    fn chain(
        &mut self,
        char_filters: impl Iterator<Item = String>,
        tokenizer: &str,
        filters: impl Iterator<Item = String>,
    ) -> Result<Analyzer> {
        Ok(Analyzer {
            char_filters: char_filters
                .map(|name| self.char_filter(&name).map(Arc::new))
                .collect::<Result<_>>()?,
            tokenizer: Arc::new(self.tokenizer(tokenizer)?),
            filters: filters.map(|name| self.filter(&name).map(Arc::new)).collect::<Result<_>>()?,
        })
    }

    fn char_filter(&mut self, name: &str) -> Result<CharFilter> {
        let Some(definition) = self.definition("char_filters", name) else {
            return builtin::char_filter(name).ok_or_else(|| missing("char filter", name));
        };
        match kind(definition)? {
            "regexp" => {
                let pattern =
                    text(definition, "regexp").ok_or_else(|| Error::new("must specify regexp"))?;
                let replacement = text(definition, "replace").unwrap_or_default();
                Ok(CharFilter::Regexp(compile(pattern)?, replacement.to_owned()))
            }
            kind => builtin::char_filter(kind).ok_or_else(|| missing("char filter", kind)),
        }
    }

    fn tokenizer(&mut self, name: &str) -> Result<Tokenizer> {
        let Some(definition) = self.definition("tokenizers", name).cloned() else {
            return builtin::tokenizer(name).ok_or_else(|| missing("tokenizer", name));
        };
        self.enter(name)?;
        let tokenizer = match kind(&definition)? {
            "regexp" => {
                let pattern =
                    text(&definition, "regexp").ok_or_else(|| Error::new("must specify regexp"))?;
                Tokenizer::Regexp(compile(pattern)?)
            }
            "exception" => {
                let patterns = definition.get("exceptions").and_then(Value::as_array);
                let patterns: Option<Vec<String>> = patterns.and_then(|all| {
                    all.iter().map(|one| one.as_str().map(|one| format!("(?:{one})"))).collect()
                });
                let patterns = patterns.ok_or_else(|| Error::new("must specify exceptions"))?;
                if patterns.is_empty() {
                    return Err(Error::new("no pattern found in 'exception' property"));
                }
                let rest = text(&definition, "tokenizer")
                    .ok_or_else(|| Error::new("must specify tokenizer for remaining input"))?
                    .to_owned();
                let rest = self.tokenizer(&rest)?;
                Tokenizer::Exception(compile(&patterns.join("|"))?, Arc::new(rest))
            }
            kind => builtin::tokenizer(kind).ok_or_else(|| missing("tokenizer", kind))?,
        };
        self.depth -= 1;
        Ok(tokenizer)
    }

    fn token_map(&mut self, name: &str) -> Result<Words> {
        let Some(definition) = self.definition("token_maps", name) else {
            return builtin::token_map(name).ok_or_else(|| missing("token map", name));
        };
        if kind(definition)? != "custom" {
            return Err(missing("token map", kind(definition)?));
        }
        let tokens = definition.get("tokens").and_then(Value::as_array);
        let tokens: Option<_> = tokens.map(|all| {
            all.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<_>>()
        });
        match tokens {
            Some(Some(tokens)) => Ok(Arc::new(tokens)),
            Some(None) => Err(Error::new("tokens must be an array of strings")),
            None => Err(Error::new("must specify filename or list of tokens for token map")),
        }
    }

    fn filter(&mut self, name: &str) -> Result<Filter> {
        let Some(definition) = self.definition("token_filters", name).cloned() else {
            return builtin::filter(name).ok_or_else(|| missing("token filter", name));
        };
        let definition = &definition;
        let mut words = |key: &str| -> Result<Words> {
            let name =
                text(definition, key).ok_or_else(|| Error::new(format!("must specify {key}")))?;
            self.token_map(name)
                .map_err(|error| Error::new(format!("error building {key} filter: {error}")))
        };
        let size = |key: &str| definition.get(key).and_then(Value::as_f64).map(|n| n as usize);
        let flag = |key: &str| definition.get(key).and_then(Value::as_bool);
        let range = |what: &str, default: (usize, usize)| -> Result<(usize, usize)> {
            let (min, max) = (size("min").unwrap_or(default.0), size("max").unwrap_or(default.1));
            if min > max {
                return Err(Error::new(format!(
                    "{what} min {min} must not be greater than max {max}"
                )));
            }
            Ok((min, max.min(4096)))
        };
        Ok(match kind(definition)? {
            "dict_compound" => Filter::Compound {
                words: words("dict_token_map")?,
                word: size("min_word_size").unwrap_or(5),
                least: size("min_subword_size").unwrap_or(2).max(1),
                most: size("max_subword_size").unwrap_or(15),
                longest: flag("only_longest_match").unwrap_or(false),
            },
            "edge_ngram" => {
                let (min, max) = range("edge_ngram", (1, 4096))?;
                let back = flag("back").unwrap_or(false);
                Filter::EdgeNgram { min: min.max(1), max, back }
            }
            "elision" => Filter::Elision(words("articles_token_map")?),
            "hierarchy" => Filter::Hierarchy {
                delimiter: text(definition, "delimiter")
                    .ok_or_else(|| Error::new("must specify delimiter"))?
                    .to_owned(),
                max: size("max").unwrap_or(LEVELS_MAX).min(LEVELS_MAX),
                split: flag("split_input").unwrap_or(true),
            },
            "keyword_marker" => Filter::KeywordMarker(words("keywords_token_map")?),
            "length" => {
                let (min, max) = (size("min").unwrap_or(0), size("max").unwrap_or(0));
                if min == 0 && max == 0 {
                    return Err(Error::new("either min or max must be non-zero"));
                }
                if max != 0 && min > max {
                    return Err(Error::new("min can't be greater than max"));
                }
                Filter::Length { min, max }
            }
            "ngram" => {
                let (min, max) = range("ngram", (1, 2))?;
                Filter::Ngram { min: min.max(1), max }
            }
            "shingle" => {
                let needs =
                    |key| size(key).ok_or_else(|| Error::new(format!("must specify {key}")));
                needs("min")?;
                needs("max")?;
                let (min, max) = range("shingle", (2, 2))?;
                Filter::Shingle {
                    min: min.max(1),
                    max: max.min(64),
                    original: flag("output_original").unwrap_or(false),
                    separator: text(definition, "separator").unwrap_or(" ").to_owned(),
                    filler: text(definition, "filler").unwrap_or("_").to_owned(),
                }
            }
            "stemmer_snowball" => {
                let name = text(definition, "language")
                    .ok_or_else(|| Error::new("must specify language"))?;
                let algorithm = language::stemmer(name)
                    .ok_or_else(|| Error::new(format!("unsupported snowball language {name}")))?;
                Filter::Stem(algorithm)
            }
            "stop_tokens" => Filter::Stop(words("stop_token_map")?),
            "truncate_token" => {
                Filter::Truncate(size("length").ok_or_else(|| Error::new("must specify length"))?)
            }
            "normalize_unicode" => match text(definition, "form").unwrap_or_default() {
                "nfc" => Filter::Unicode(Form::Nfc),
                "nfd" => Filter::Unicode(Form::Nfd),
                "nfkc" => Filter::Unicode(Form::Nfkc),
                "nfkd" => Filter::Unicode(Form::Nfkd),
                "" => return Err(Error::new("must specify form")),
                form => return Err(Error::new(format!("no form named {form}"))),
            },
            "cjk_bigram" => Filter::CjkBigram(flag("output_unigram").unwrap_or(false)),
            kind => builtin::filter(kind).ok_or_else(|| missing("token filter", kind))?,
        })
    }

    fn date_parser(&mut self, name: &str) -> Result<DateParser> {
        let Some(definition) = self.definition("date_time_parsers", name) else {
            return builtin::date_parser(name).ok_or_else(|| missing("date time parser", name));
        };
        let kind = kind(definition)?;
        let parse = match kind {
            "flexiblego" | "sanitizedgo" => |layout: &str| Ok(dates::go(layout)),
            "isostyle" => dates::iso,
            "percentstyle" => dates::percent,
            kind => {
                return builtin::date_parser(kind).ok_or_else(|| missing("date time parser", kind));
            }
        };
        let layouts = definition
            .get("layouts")
            .and_then(Value::as_array)
            .ok_or_else(|| Error::new("must specify layouts"))?;
        let layouts = layouts.iter().filter_map(Value::as_str).map(parse);
        Ok(DateParser::Layouts(layouts.collect::<Result<_>>()?))
    }
}

fn kind(definition: &Map<String, Value>) -> Result<&str> {
    text(definition, "type").ok_or_else(|| Error::new("must specify type"))
}

fn text<'a>(definition: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    definition.get(key).and_then(Value::as_str)
}
