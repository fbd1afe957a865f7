//! Tokens of a field as one text, which the tokenizer of tantivy takes apart again: no token is an allocation of its own.

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// The name of the tokenizer.
pub const NAME: &str = "encoded";

/// Tokens in the making: the path, a zero, then for each token the distance of its position, its length and its term.
#[derive(Debug)]
pub struct Encoder {
    text: String,
    position: u32,
}

impl Encoder {
    /// No tokens of a path.
    pub fn new(path: &str) -> Encoder {
        let mut text = path.replace('\0', "\u{4}");
        text.push('\0');
        Encoder { text, position: 0 }
    }

    /// Adds a token; positions do not fall.
    pub fn push(&mut self, position: u32, term: &str) {
        let position = position.max(self.position);
        self.text.push(encode(position - self.position));
        self.text.push(encode(u32::try_from(term.len()).unwrap_or(u32::MAX)));
        self.text.push_str(term);
        self.position = position;
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

/// The greatest number that a character stands for: surrogates are left out.
const MAX: u32 = 0x10_FFFF - 0x800;

/// The longest term that can be encoded, in bytes.
pub const TERM_MAX: usize = 32_000;

fn encode(number: u32) -> char {
    let number = number.min(MAX);
    char::from_u32(if number < 0xD800 { number } else { number + 0x800 }).expect("no surrogate")
}

fn decode(character: char) -> u32 {
    let code = u32::from(character);
    if code < 0xD800 { code } else { code - 0x800 }
}

/// Takes the text of an [`Encoder`] apart.
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
