//! Regular expressions as trees, which are formatted for the engine and matched here by exhaustive search.

use super::document::word;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeSet;

/// A regular expression.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// This character.
    Letter(char),
    /// Any character.
    Any,
    /// One of these characters, or any other if the flag is set.
    Class(Vec<char>, bool),
    /// A concatenation.
    Sequence(Vec<Pattern>),
    /// An alternation.
    Choice(Vec<Pattern>),
    /// A repetition with a minimum and a maximum; `None` for no maximum.
    Repeat(Box<Pattern>, usize, Option<usize>),
}

impl Pattern {
    /// A random pattern, which is often part of a word.
    pub fn random(random: &mut StdRng, depth: u32) -> Pattern {
        if depth == 0 {
            return match random.random_range(0..5) {
                0 => Pattern::Any,
                1 => {
                    let letters = word(random).chars().collect();
                    Pattern::Class(letters, random.random_bool(0.3))
                }
                _ => {
                    let letters: Vec<char> = word(random).chars().collect();
                    Pattern::Letter(*letters.choose(random).unwrap())
                }
            };
        }
        let inner = |random: &mut StdRng| Pattern::random(random, depth - 1);
        match random.random_range(0..6) {
            0 => {
                let letters: Vec<Pattern> = word(random).chars().map(Pattern::Letter).collect();
                Pattern::Sequence(letters)
            }
            1 | 2 => {
                let count = random.random_range(1..4);
                Pattern::Sequence((0..count).map(|_| inner(random)).collect())
            }
            3 => {
                let count = random.random_range(1..4);
                Pattern::Choice((0..count).map(|_| inner(random)).collect())
            }
            _ => {
                let least = random.random_range(0..3);
                let most = random.random_bool(0.4).then(|| least + random.random_range(0..3));
                Pattern::Repeat(Box::new(inner(random)), least, most)
            }
        }
    }

    /// Formats the expression.
    pub fn text(&self) -> String {
        let all = |parts: &[Pattern]| parts.iter().map(Pattern::text).collect::<Vec<_>>();
        match self {
            Pattern::Letter(letter) => letter.to_string(),
            Pattern::Any => ".".to_owned(),
            Pattern::Class(letters, is_negated) => {
                let sign = if *is_negated { "^" } else { "" };
                format!("[{sign}{}]", letters.iter().collect::<String>())
            }
            Pattern::Sequence(parts) => all(parts).concat(),
            Pattern::Choice(parts) => format!("({})", all(parts).join("|")),
            Pattern::Repeat(inner, least, most) => {
                let sign = match (least, most) {
                    (0, None) => "*".to_owned(),
                    (1, None) => "+".to_owned(),
                    (0, Some(1)) => "?".to_owned(),
                    (least, None) => format!("{{{least},}}"),
                    (least, Some(most)) => format!("{{{least},{most}}}"),
                };
                format!("({}){sign}", inner.text())
            }
        }
    }

    /// Returns true if the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        self.ends(&text, 0).contains(&text.len())
    }

    /// Returns the possible ends of a match that begins at `start`.
    fn ends(&self, text: &[char], start: usize) -> BTreeSet<usize> {
        let one = |fits: bool| fits.then_some(start + 1).into_iter().collect();
        match self {
            Pattern::Letter(letter) => one(text.get(start) == Some(letter)),
            Pattern::Any => one(start < text.len()),
            Pattern::Class(letters, is_negated) => {
                one(text.get(start).is_some_and(|found| letters.contains(found) != *is_negated))
            }
            Pattern::Sequence(parts) => {
                parts.iter().fold(BTreeSet::from([start]), |starts, part| {
                    starts.into_iter().flat_map(|start| part.ends(text, start)).collect()
                })
            }
            Pattern::Choice(parts) => {
                parts.iter().flat_map(|part| part.ends(text, start)).collect()
            }
            Pattern::Repeat(inner, least, most) => {
                // More repetitions than characters reach no new position.
                let rounds = most.unwrap_or(least + text.len() + 1);
                let (mut current, mut found) = (BTreeSet::from([start]), BTreeSet::new());
                for round in 0..=rounds {
                    if round >= *least {
                        found.extend(&current);
                    }
                    current = current.iter().flat_map(|start| inner.ends(text, *start)).collect();
                }
                found
            }
        }
    }
}
