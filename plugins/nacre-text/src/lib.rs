//! Text analysis for search: char filters, then a tokenizer, then token filters; and dates, which are text in documents.
//!
//! ```text
//! Registry::new(definitions) ─► Registry ─ analyzer(name) ─► Analyzer ─ analyze(text) ─► Tokens
//! ```
//!
//! Names and chains are those of Couchbase Search. The crate uses no clock, file or randomness. Any text is valid; it may have no
//! tokens.

mod builtin;
mod char_filter;
mod dates;
mod error;
mod filter;
mod language;
mod registry;
mod tokenizer;
mod unit;

pub use dates::{DateParser, format_rfc3339, parse_rfc3339};
pub use error::{Error, Result};
pub use registry::Registry;
pub use unit::Unit;

use char_filter::CharFilter;
use filter::Filter;
use std::sync::Arc;
use tokenizer::Tokenizer;

/// The kind of a token, which some filters depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Letters.
    Word,
    /// Digits.
    Number,
    /// A character of Chinese, Japanese or Korean script.
    Ideographic,
    /// Several tokens joined.
    Joined,
}

/// A token of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The text that is indexed.
    pub term: String,
    /// Start in the text, in bytes.
    pub start: usize,
    /// End in the text, in bytes.
    pub end: usize,
    /// The ordinal number of the word, from 1.
    pub position: u32,
    /// True if stemmers must not change it.
    pub keyword: bool,
    /// Its kind.
    pub kind: Kind,
}

/// A chain of char filters, a tokenizer and token filters.
#[derive(Clone, Debug)]
pub struct Analyzer {
    char_filters: Vec<Arc<CharFilter>>,
    tokenizer: Arc<Tokenizer>,
    filters: Vec<Arc<Filter>>,
}

impl Analyzer {
    /// Returns the tokens of a text, ordered by position.
    #[must_use]
    pub fn analyze(&self, text: &str) -> Vec<Token> {
        let mut filtered = None;
        for filter in &self.char_filters {
            filtered = Some(filter.apply(filtered.as_deref().unwrap_or(text)));
        }
        let mut tokens = self.tokenizer.tokenize(filtered.as_deref().unwrap_or(text));
        for filter in &self.filters {
            tokens = filter.apply(tokens);
        }
        tokens
    }
}

/// Size in bytes of the parts into which longer texts are split.
const PART: usize = 256 << 10;

impl Analyzer {
    /// Passes the tokens of a text to `take`, part by part if the text is long, so that the tokens of a text of many megabytes
    /// are never in memory all at once. Filters over several tokens do not cross the boundary of two parts, which is white space.
    pub fn analyze_in_parts(&self, text: &str, mut take: impl FnMut(Vec<Token>)) {
        if text.len() <= 4 * PART || matches!(*self.tokenizer, Tokenizer::Single) {
            take(self.analyze(text));
            return;
        }
        let (mut start, mut position) = (0, 0);
        while start < text.len() {
            let least = text.ceil_char_boundary(start + PART);
            let end = text[least..].find(char::is_whitespace).map_or(text.len(), |at| least + at);
            let mut tokens = self.analyze(&text[start..end]);
            let last = tokens.iter().map(|token| token.position).max().unwrap_or(0);
            for token in &mut tokens {
                token.start += start;
                token.end += start;
                token.position += position;
            }
            take(tokens);
            (start, position) = (end, position + last);
        }
    }
}
