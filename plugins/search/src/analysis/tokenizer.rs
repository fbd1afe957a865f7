//! Tokenizers: how a text is cut.

use super::{Kind, Token};
use regex_automata::meta::Regex;
use std::sync::Arc;
use unicode_segmentation::UnicodeSegmentation;

/// How a text is cut into tokens.
#[derive(Debug)]
pub enum Tokenizer {
    /// Words as Unicode Standard Annex 29 defines them.
    Unicode,
    /// Runs of letters.
    Letter,
    /// Runs of anything but white space.
    Whitespace,
    /// The whole text.
    Single,
    /// Tokens are the matches of a pattern.
    Regexp(Regex),
    /// Matches stay whole; another tokenizer cuts the rest.
    Exception(Regex, Arc<Tokenizer>),
}

impl Tokenizer {
    /// The tokens of a text.
    pub fn tokenize(&self, text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        self.cut(text, 0, &mut tokens);
        for (at, token) in tokens.iter_mut().enumerate() {
            token.position = u32::try_from(at + 1).unwrap_or(u32::MAX);
        }
        tokens
    }

    fn cut(&self, text: &str, offset: usize, tokens: &mut Vec<Token>) {
        let mut push = |start: usize, piece: &str, kind: Kind| {
            let (start, end) = (offset + start, offset + start + piece.len());
            tokens.push(Token {
                term: piece.to_owned(),
                start,
                end,
                position: 0,
                keyword: false,
                kind,
            });
        };
        match self {
            Tokenizer::Unicode => {
                for (start, word) in text.unicode_word_indices() {
                    push(start, word, kind(word));
                }
            }
            Tokenizer::Letter => runs(text, char::is_alphabetic, &mut push),
            Tokenizer::Whitespace => runs(text, |c| !c.is_whitespace(), &mut push),
            Tokenizer::Single => push(0, text, Kind::Word),
            Tokenizer::Regexp(regex) => {
                for found in regex.find_iter(text).filter(|found| !found.is_empty()) {
                    let piece = &text[found.range()];
                    push(found.start(), piece, kind(piece));
                }
            }
            Tokenizer::Exception(regex, rest) => {
                let mut end = 0;
                for found in regex.find_iter(text).filter(|found| !found.is_empty()) {
                    rest.cut(&text[end..found.start()], offset + end, tokens);
                    tokens.push(Token {
                        term: text[found.range()].to_owned(),
                        start: offset + found.start(),
                        end: offset + found.end(),
                        position: 0,
                        keyword: false,
                        kind: Kind::Word,
                    });
                    end = found.end();
                }
                rest.cut(&text[end..], offset + end, tokens);
            }
        }
    }
}

fn runs(text: &str, inside: impl Fn(char) -> bool, push: &mut impl FnMut(usize, &str, Kind)) {
    let mut start = None;
    for (at, character) in text.char_indices() {
        match (inside(character), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                push(from, &text[from..at], Kind::Word);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        push(from, &text[from..], Kind::Word);
    }
}

fn kind(word: &str) -> Kind {
    let first = word.chars().next().unwrap_or(' ');
    if is_ideographic(first) {
        Kind::Ideographic
    } else if word.chars().all(|c| c.is_numeric() || ".,".contains(c)) {
        Kind::Number
    } else {
        Kind::Word
    }
}

/// Han, Hiragana and Katakana, half width included.
fn is_ideographic(character: char) -> bool {
    matches!(u32::from(character),
        0x3040..=0x30FF | 0x31F0..=0x31FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF
        | 0xFF66..=0xFF9F | 0x20000..=0x2FA1F)
}
