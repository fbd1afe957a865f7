//! Encodes the tokens of a field into one text, which the tantivy tokenizer decodes. Tokens then need no allocations of
//! their own.

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// The name of the tokenizer.
pub const NAME: &str = "encoded";

/// An encoder. Its text is the path and a zero, and for each token the distance of its position, its length and its
/// term.
#[derive(Debug)]
pub struct Encoder {
    text: String,
    position: u32,
}

impl Encoder {
    /// Creates an encoder without tokens for a path.
    pub fn new(path: &str) -> Encoder {
        let mut text = path.replace('\0', "\u{4}");
        text.push('\0');
        Encoder { text, position: 0 }
    }

    /// Adds a token. Positions must not decrease.
    pub fn push(&mut self, position: u32, term: &str) {
        let position = position.max(self.position);
        self.text.push(encode(position - self.position));
        self.text.push(encode(u32::try_from(term.len()).unwrap_or(u32::MAX)));
        self.text.push_str(term);
        self.position = position;
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.text
    }
}

/// The largest number that a character can encode: surrogates are excluded.
const MAX: u32 = 0x10_FFFF - 0x800;

/// Maximum length of a term in bytes.
pub const TERM_MAX: usize = 32_000;

fn encode(number: u32) -> char {
    let number = number.min(MAX);
    char::from_u32(if number < 0xD800 { number } else { number + 0x800 }).expect("no surrogate")
}

fn decode(character: char) -> u32 {
    let code = u32::from(character);
    if code < 0xD800 { code } else { code - 0x800 }
}

/// Decodes the text of an [`Encoder`].
#[derive(Clone, Default)]
pub struct EncodedTokenizer {
    token: Token,
}

/// The tokens of a text.
pub struct EncodedStream<'a> {
    path: &'a str,
    rest: &'a str,
    token: &'a mut Token,
}

impl Tokenizer for EncodedTokenizer {
    type TokenStream<'a> = EncodedStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> EncodedStream<'a> {
        self.token.reset();
        self.token.position = 0;
        self.token.position_length = 1;
        let end = text.find('\0').map_or(text.len(), |at| at + 1);
        EncodedStream { path: &text[..end], rest: &text[end..], token: &mut self.token }
    }
}

impl TokenStream for EncodedStream<'_> {
    fn advance(&mut self) -> bool {
        let mut characters = self.rest.chars();
        let (Some(distance), Some(length)) = (characters.next(), characters.next()) else {
            return false;
        };
        let rest = characters.as_str();
        let length = decode(length) as usize;
        let Some(term) = rest.get(..length) else { return false };
        self.token.position += decode(distance) as usize;
        self.token.text.clear();
        self.token.text.push_str(self.path);
        self.token.text.push_str(term);
        self.rest = &rest[length..];
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}
