//! Token filters.

use crate::{Kind, Token, language};
use frostem::{Algorithm, Stemmer};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use unicode_normalization::UnicodeNormalization;

/// Words, such as stop words.
pub type Words = Arc<BTreeSet<String>>;

/// Maximum length of a prefix of a path in bytes. Indexes leave out such long terms.
const PATH_MAX: usize = 32 << 10;

/// A Unicode normalization form.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Composed.
    Nfc,
    /// Decomposed.
    Nfd,
    /// Composed, with compatibility characters replaced.
    Nfkc,
    /// Decomposed, with compatibility characters replaced.
    Nfkd,
}

/// A token filter.
#[derive(Debug)]
pub enum Filter {
    /// Removes the first apostrophe and the text after it.
    Apostrophe,
    /// Splits a word where its case changes.
    CamelCase,
    /// Adds the words of a dictionary that a word contains.
    Compound { words: Words, word: usize, least: usize, most: usize, longest: bool },
    /// Returns the prefixes or suffixes of words.
    EdgeNgram { min: usize, max: usize, back: bool },
    /// Removes articles before an apostrophe.
    Elision(Words),
    /// Returns the prefixes of a path.
    Hierarchy { delimiter: String, max: usize, split: bool },
    /// Marks words that stemmers must not change.
    KeywordMarker(Words),
    /// Drops words that are shorter or longer, in characters; 0 means no limit.
    Length { min: usize, max: usize },
    /// Converts to lower case.
    LowerCase,
    /// Returns n-grams of the characters of words.
    Ngram { min: usize, max: usize },
    /// Normalizes the spelling of words of a language.
    Normalize(language::Normalizer),
    /// Removes English genitive endings.
    Possessive,
    /// Reverses the characters.
    Reverse,
    /// Joins consecutive words.
    Shingle { min: usize, max: usize, original: bool, separator: String, filler: String },
    /// Stems words.
    Stem(Algorithm),
    /// Drops words.
    Stop(Words),
    /// Truncates words to a number of characters.
    Truncate(usize),
    /// Applies a Unicode normalization form.
    Unicode(Form),
    /// Drops repeated words.
    Unique,
    /// Joins pairs of characters in Chinese, Japanese and Korean text.
    CjkBigram(bool),
    /// Converts full-width ASCII to half width, and half-width Katakana to full width.
    CjkWidth,
}

impl Filter {
    /// Returns the filtered tokens.
    pub fn apply(&self, mut tokens: Vec<Token>) -> Vec<Token> {
        match self {
            Filter::Apostrophe => each(tokens, |term| {
                let cut = term.find(['\'', '’']);
                cut.map(|at| term[..at].to_owned())
            }),
            Filter::LowerCase => each(tokens, |term| {
                let is_lower = term.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase());
                (!is_lower).then(|| lower(term))
            }),
            Filter::Possessive => each(tokens, |term| {
                let tails = ["'s", "'S", "’s", "’S", "＇s", "＇S"];
                tails.iter().find_map(|tail| term.strip_suffix(tail)).map(str::to_owned)
            }),
            Filter::Reverse => each(tokens, |term| Some(term.chars().rev().collect())),
            Filter::Elision(articles) => each(tokens, |term| {
                let at = term.find(['\'', '’'])?;
                let rest = term[at..].chars().next()?.len_utf8();
                let is_article = articles.contains(&term[..at].to_lowercase());
                is_article.then(|| term[at + rest..].to_owned())
            }),
            Filter::Truncate(length) => each(tokens, |term| {
                term.char_indices().nth(*length).map(|(at, _)| term[..at].to_owned())
            }),
            Filter::Unicode(form) => each(tokens, |term| Some(normalize(*form, term))),
            Filter::CjkWidth => each(tokens, |term| Some(language::width(term))),
            Filter::Normalize(normalizer) => each(tokens, |term| Some(normalizer.apply(term))),
            Filter::Stem(algorithm) => {
                let stemmer = Stemmer::new(*algorithm);
                for token in tokens.iter_mut().filter(|token| !token.keyword) {
                    if let std::borrow::Cow::Owned(stem) = stemmer.stem(&token.term) {
                        token.term = stem;
                    } else {
                        let length = stemmer.stem(&token.term).len();
                        token.term.truncate(length);
                    }
                }
                tokens
            }
            Filter::KeywordMarker(words) => {
                for token in &mut tokens {
                    token.keyword |= words.contains(&token.term);
                }
                tokens
            }
            Filter::Stop(words) => {
                tokens.retain(|token| !words.contains(&token.term));
                tokens
            }
            Filter::Length { min, max } => {
                tokens.retain(|token| {
                    let length = token.term.chars().count();
                    length >= *min && (*max == 0 || length <= *max)
                });
                tokens
            }
            Filter::Unique => {
                let mut seen = BTreeSet::new();
                tokens.retain(|token| seen.insert(token.term.clone()));
                tokens
            }
            Filter::CamelCase => camel_case(&tokens),
            Filter::Compound { words, word, least, most, longest } => {
                compound(tokens, words, *word, *least, *most, *longest)
            }
            Filter::EdgeNgram { min, max, back } => flat(tokens, |characters| {
                let length = characters.len();
                let sizes = *min..=(*max).min(length);
                sizes.map(|size| if *back { length - size..length } else { 0..size }).collect()
            }),
            Filter::Ngram { min, max } => flat(tokens, |characters| {
                let length = characters.len();
                let starts = 0..length;
                starts
                    .flat_map(|start| {
                        (*min..=*max)
                            .map(move |size| start..start + size)
                            .filter(move |range| range.end <= length)
                    })
                    .collect()
            }),
            Filter::Hierarchy { delimiter, max, split } => {
                hierarchy(&tokens, delimiter, *max, *split)
            }
            Filter::Shingle { min, max, original, separator, filler } => {
                shingle(&tokens, *min, *max, *original, separator, filler)
            }
            Filter::CjkBigram(unigrams) => bigrams(tokens, *unigrams),
        }
    }
}

fn each(mut tokens: Vec<Token>, change: impl Fn(&str) -> Option<String>) -> Vec<Token> {
    for token in &mut tokens {
        if let Some(term) = change(&token.term) {
            token.term = term;
        }
    }
    tokens
}

/// Converts to lower case character by character, so that the result does not depend on surrounding
/// characters.
fn lower(term: &str) -> String {
    term.chars()
        .flat_map(|c| if c == 'İ' { 'i'.to_lowercase() } else { c.to_lowercase() })
        .collect()
}

fn normalize(form: Form, term: &str) -> String {
    match form {
        Form::Nfc => term.nfc().collect(),
        Form::Nfd => term.nfd().collect(),
        Form::Nfkc => term.nfkc().collect(),
        Form::Nfkd => term.nfkd().collect(),
    }
}

/// Returns tokens for ranges of the characters of each token, at the position of the token.
fn flat(tokens: Vec<Token>, ranges: impl Fn(&[char]) -> Vec<std::ops::Range<usize>>) -> Vec<Token> {
    let mut output = Vec::with_capacity(tokens.len());
    for token in tokens {
        let characters: Vec<char> = token.term.chars().collect();
        for range in ranges(&characters) {
            let term = characters[range].iter().collect();
            output.push(Token { term, ..token.clone() });
        }
    }
    output
}

fn camel_case(tokens: &[Token]) -> Vec<Token> {
    #[derive(Clone, Copy, PartialEq)]
    enum Class {
        Lower,
        Upper,
        Number,
        Other,
    }
    let class = |c: char| match c {
        _ if c.is_lowercase() => Class::Lower,
        _ if c.is_uppercase() => Class::Upper,
        _ if c.is_numeric() => Class::Number,
        _ => Class::Other,
    };
    let mut output = Vec::new();
    for token in tokens {
        let characters: Vec<(usize, char)> = token.term.char_indices().collect();
        let mut start = 0;
        for at in 1..=characters.len() {
            let is_cut = at == characters.len() || {
                let (before, here) = (class(characters[at - 1].1), class(characters[at].1));
                let next = characters.get(at + 1).map(|(_, c)| class(*c));
                match (before, here) {
                    (Class::Upper, Class::Lower) => false,
                    // The last capital letter of a sequence belongs to the following word.
                    (Class::Upper, Class::Upper) => next == Some(Class::Lower),
                    (before, here) => before != here,
                }
            };
            if !is_cut {
                continue;
            }
            let end = characters.get(at).map_or(token.term.len(), |(byte, _)| *byte);
            let from = characters[start].0;
            output.push(Token {
                term: token.term[from..end].to_owned(),
                start: token.start + from,
                end: token.start + end,
                position: position(output.len()),
                ..token.clone()
            });
            start = at;
        }
    }
    output
}

fn position(before: usize) -> u32 {
    u32::try_from(before + 1).unwrap_or(u32::MAX)
}

fn compound(
    tokens: Vec<Token>,
    words: &Words,
    word: usize,
    least: usize,
    most: usize,
    longest: bool,
) -> Vec<Token> {
    let mut output = Vec::with_capacity(tokens.len());
    for token in tokens {
        let characters: Vec<char> = token.term.chars().collect();
        output.push(token.clone());
        if characters.len() < word {
            continue;
        }
        for start in 0..characters.len() {
            let mut best = None;
            for size in least..=most.min(characters.len() - start) {
                let part: String = characters[start..start + size].iter().collect();
                if !words.contains(&part) {
                    continue;
                }
                let before: usize = characters[..start].iter().map(|c| c.len_utf8()).sum();
                let from = token.start + before;
                let found =
                    Token { start: from, end: from + part.len(), term: part, ..token.clone() };
                if longest {
                    best = Some(found);
                } else {
                    output.push(found);
                }
            }
            output.extend(best);
        }
    }
    output
}

fn hierarchy(tokens: &[Token], delimiter: &str, max: usize, split: bool) -> Vec<Token> {
    let mut output = Vec::new();
    let mut path = String::new();
    let mut end = 0;
    let parts = tokens.iter().flat_map(|token| {
        let pieces: Vec<&str> =
            if split { token.term.split(delimiter).collect() } else { vec![&*token.term] };
        pieces.into_iter().map(move |piece| (token, piece)).collect::<Vec<_>>()
    });
    for (level, (token, part)) in parts.take(max).enumerate() {
        if level > 0 {
            path.push_str(delimiter);
            end += delimiter.len();
        }
        path.push_str(part);
        end += part.len();
        if path.len() > PATH_MAX {
            break;
        }
        let (start, kind) = (0, Kind::Joined);
        // All prefixes begin at the first word.
        output.push(Token { term: path.clone(), start, end, position: 1, kind, ..token.clone() });
    }
    output
}

fn shingle(
    tokens: &[Token],
    min: usize,
    max: usize,
    original: bool,
    separator: &str,
    filler: &str,
) -> Vec<Token> {
    let mut output = Vec::new();
    let mut window: VecDeque<Option<&Token>> = VecDeque::with_capacity(max);
    let mut last = 0;
    for token in tokens {
        if original {
            output.push(token.clone());
        }
        // Words that an earlier filter removed count as gaps, as far as the window reaches.
        let gap = token.position.saturating_sub(last + 1) as usize;
        last = token.position;
        let gaps = std::iter::repeat_n(None, gap.min(max));
        for next in gaps.chain([Some(token)]) {
            window.push_back(next);
            if window.len() > max {
                window.pop_front();
            }
            for size in min..=max.min(window.len()) {
                let part = window.range(window.len() - size..);
                output.extend(joined(part.copied(), separator, filler));
            }
        }
    }
    output.sort_by_key(|token| token.position);
    output
}

/// Joins the words of a window, in which gaps are `None`. A window of gaps alone is no token.
fn joined<'a>(
    part: impl Iterator<Item = Option<&'a Token>> + Clone,
    separator: &str,
    filler: &str,
) -> Option<Token> {
    let terms: Vec<&str> =
        part.clone().map(|token| token.map_or(filler, |token| &*token.term)).collect();
    let first = part.clone().flatten().next()?;
    let last = part.flatten().last()?;
    Some(Token {
        term: terms.join(separator),
        start: first.start,
        end: last.end,
        position: first.position,
        keyword: false,
        kind: Kind::Joined,
    })
}

fn bigrams(tokens: Vec<Token>, unigrams: bool) -> Vec<Token> {
    let mut output = Vec::with_capacity(tokens.len());
    let mut run: Vec<Token> = Vec::new();
    let finish = |run: &mut Vec<Token>, output: &mut Vec<Token>| {
        if unigrams || run.len() == 1 {
            output.extend(run.iter().cloned());
        }
        for pair in run.windows(2) {
            output.push(Token {
                term: format!("{}{}", pair[0].term, pair[1].term),
                end: pair[1].end,
                kind: Kind::Joined,
                ..pair[0].clone()
            });
        }
        run.clear();
    };
    for token in tokens {
        let adjacent = run.last().is_none_or(|last| last.end == token.start);
        if token.kind != Kind::Ideographic || !adjacent {
            finish(&mut run, &mut output);
        }
        if token.kind != Kind::Ideographic {
            output.push(token);
            continue;
        }
        // The tokenizer returns a sequence of Katakana as one word.
        let mut start = token.start;
        for character in token.term.chars() {
            let end = start + character.len_utf8();
            run.push(Token { term: character.into(), start, end, ..token.clone() });
            start = end;
        }
        if let Some(last) = run.last_mut() {
            last.end = token.end;
        }
    }
    finish(&mut run, &mut output);
    if unigrams {
        output.sort_by_key(|token| (token.start, token.end));
    }
    for (at, token) in output.iter_mut().enumerate() {
        token.position = position(at);
    }
    output
}
