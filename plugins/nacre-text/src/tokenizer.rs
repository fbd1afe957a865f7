//! Tokenizers: split a text into tokens.

use crate::{Kind, Token};
use regex_automata::meta::Regex;
use std::sync::Arc;
use unicode_segmentation::UnicodeSegmentation;

/// The rule for splitting a text.
#[derive(Debug)]
pub enum Tokenizer {
    /// Words according to Unicode Standard Annex 29.
    Unicode,
    /// Sequences of letters.
    Letter,
    /// Sequences of characters other than white space.
    Whitespace,
    /// The whole text.
    Single,
    /// The matches of a pattern.
    Regexp(Regex),
    /// Matches are kept whole; another tokenizer splits the rest.
    Exception(Regex, Arc<Tokenizer>),
}

impl Tokenizer {
    /// Returns the tokens of a text.
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
            Tokenizer::Unicode => words(text, &mut push),
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

/// Splits a text into words according to Unicode Standard Annex 29. Words never contain a space, and most text between two spaces
/// is a single word of plain letters and digits: for such pieces the tables are not consulted.
fn words(text: &str, push: &mut impl FnMut(usize, &str, Kind)) {
    let mut rest = 0;
    while rest < text.len() {
        let length = text[rest..].bytes().position(|byte| byte == b' ' || byte == b'\n');
        let end = length.map_or(text.len(), |length| rest + length);
        let piece = &text[rest..end];
        let is_around = |character: char| character.is_ascii_punctuation() && character != '_';
        let word = piece.trim_start_matches(is_around);
        let start = rest + piece.len() - word.len();
        let word = word.trim_end_matches(is_around);
        match plain(word) {
            Some(kind) if !word.is_empty() => push(start, word, kind),
            Some(_) => {}
            None => {
                for (at, word) in piece.unicode_word_indices() {
                    push(rest + at, word, kind(word));
                }
            }
        }
        rest = end + 1;
    }
}

/// Returns the kind of a text of letters and digits that no rule splits: ASCII, and the letters of the Latin, Greek and Cyrillic
/// scripts.
fn plain(word: &str) -> Option<Kind> {
    let mut kind = Kind::Number;
    for character in word.chars() {
        match character {
            '0'..='9' => {}
            'a'..='z' | 'A'..='Z' => kind = Kind::Word,
            '\u{D7}' | '\u{F7}' => return None,
            '\u{C0}'..='\u{24F}' | '\u{3B1}'..='\u{3C9}' | '\u{400}'..='\u{481}' => {
                kind = Kind::Word
            }
            _ => return None,
        }
    }
    Some(kind)
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

/// Returns true for Han, Hiragana and Katakana, including half width.
fn is_ideographic(character: char) -> bool {
    matches!(u32::from(character),
        0x3040..=0x30FF | 0x31F0..=0x31FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF
        | 0xFF66..=0xFF9F | 0x20000..=0x2FA1F)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};

    #[test]
    fn words_follow_the_unicode_annex() {
        // Letters of several scripts, digits, characters that join or separate words, combining marks, and line ends.
        let characters: Vec<char> =
            "aZ09_'.,:;-\"!?()  \n\n\r\t\u{301}\u{308}\u{200d}\u{ad}éßłñ×÷ªαωςЖяё中のカ한ไ\u{2019}\u{b7}\u{a0}\u{2003}\u{5d0}\u{5f3}🙂🇩🇪½²"
                .chars()
                .collect();
        let mut random = StdRng::seed_from_u64(29);
        for _ in 0..200_000 {
            let length = random.random_range(0..12);
            let text: String =
                (0..length).map(|_| *characters.choose(&mut random).unwrap()).collect();
            let mut found = Vec::new();
            words(&text, &mut |start, word, kind| found.push((start, word.to_owned(), kind)));
            let wanted: Vec<_> = text
                .unicode_word_indices()
                .map(|(start, word)| (start, word.to_owned(), kind(word)))
                .collect();
            assert_eq!(found, wanted, "{text:?}");
        }
    }
}
