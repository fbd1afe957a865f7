//! Expands patterns into the matching terms of dictionaries.

use crate::error::{Error, Result};
use crate::index::{Segment, prefix_key};
use crate::query::Range;
use levenshtein_automata::{DFA, Distance, LevenshteinAutomatonBuilder, SINK_STATE};
use regex_automata::Anchored;
use regex_automata::MatchKind;
use regex_automata::dfa::{Automaton as _, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tantivy_fst::Automaton;

/// Maximum number of terms into which a pattern may expand.
pub const TERMS_MAX: usize = 1024;
/// Maximum memory of a regular expression's automaton, in bytes.
const AUTOMATON_MAX: usize = 10 << 20;

/// A term and the number of its documents.
#[derive(Clone, Debug)]
pub struct Found {
    /// The term.
    pub term: String,
    /// Number of documents with the term.
    pub documents: u64,
    /// Number of edits between the term and the query.
    pub distance: u8,
}

/// A pattern of terms.
pub enum Pattern<'a> {
    /// Terms with this prefix.
    Prefix(&'a str),
    /// Terms in this range.
    Range(&'a Range<String>),
    /// Terms that a regular expression matches completely.
    Regexp(&'a Regexp),
    /// Terms similar to a given term.
    Fuzzy { term: &'a str, prefix: usize, distance: u8 },
}

/// A regular expression for whole terms.
pub struct Regexp {
    automaton: dense::DFA<Vec<u32>>,
    start: StateID,
}

impl Regexp {
    /// Compiles a regular expression.
    ///
    /// # Errors
    /// The pattern is not a regular expression, has assertions, or needs too much memory.
    pub fn new(pattern: &str) -> Result<Regexp> {
        let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
        if is_lazy(pattern) {
            return Err(Error::request("lazy quantifiers are not allowed"));
        }
        let failed = |error: &dyn std::fmt::Display| {
            Error::request(format!("error parsing regexp: {error}: `{pattern}`"))
        };
        let config = thompson::Config::new().nfa_size_limit(Some(AUTOMATON_MAX)).utf8(true);
        let nfa =
            thompson::Compiler::new().configure(config).build(pattern).map_err(
                |error| match error.size_limit() {
                    Some(_) => Error::request("too many instructions"),
                    None => failed(&error),
                },
            )?;
        if !nfa.look_set_any().is_empty() {
            return Err(Error::request("zero width assertions not allowed"));
        }
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(regex_automata::dfa::StartKind::Anchored)
            .dfa_size_limit(Some(AUTOMATON_MAX))
            .determinize_size_limit(Some(AUTOMATON_MAX));
        let automaton = dense::Builder::new()
            .configure(config)
            .build_from_nfa(&nfa)
            .map_err(|_| Error::request("too many instructions"))?;
        let start = automaton
            .start_state(&start::Config::new().anchored(Anchored::Yes))
            .map_err(|error| failed(&error))?;
        Ok(Regexp { automaton, start })
    }

    /// Compiles a pattern with `*` and `?`.
    ///
    /// # Errors
    /// The pattern needs too much memory.
    pub fn wildcard(pattern: &str) -> Result<Regexp> {
        let mut regexp = String::from("(?s)");
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            match character {
                '*' => regexp.push_str(".*"),
                '?' => regexp.push('.'),
                '\\' => match characters.next() {
                    Some(escaped @ ('*' | '?' | '\\')) => regexp.extend(['\\', escaped]),
                    Some(other) => {
                        regexp.push_str("\\\\");
                        push_literal(&mut regexp, other);
                    }
                    None => regexp.push_str("\\\\"),
                },
                character => push_literal(&mut regexp, character),
            }
        }
        Regexp::new(&regexp)
    }

    /// Returns true if the expression matches a whole term.
    pub fn matches(&self, term: &str) -> bool {
        let end =
            term.bytes().fold(self.start, |state, byte| self.automaton.next_state(state, byte));
        self.automaton.is_match_state(self.automaton.next_eoi_state(end))
    }
}

fn push_literal(regexp: &mut String, character: char) {
    if r"\.+*?()|[]{}^$#&-~".contains(character) {
        regexp.push('\\');
    }
    regexp.push(character);
}

/// Returns true if a question mark follows a quantifier.
fn is_lazy(pattern: &str) -> bool {
    let (mut before, mut in_class) = (' ', false);
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                characters.next();
                before = ' ';
                continue;
            }
            '[' => in_class = true,
            ']' => in_class = false,
            '?' if !in_class && "*+?}".contains(before) => return true,
            _ => {}
        }
        before = if in_class { ' ' } else { character };
    }
    false
}

impl Automaton for &Regexp {
    type State = StateID;

    fn start(&self) -> StateID {
        self.start
    }

    fn is_match(&self, state: &StateID) -> bool {
        self.automaton.is_match_state(self.automaton.next_eoi_state(*state))
    }

    fn can_match(&self, state: &StateID) -> bool {
        !self.automaton.is_dead_state(*state)
    }

    fn accept(&self, state: &StateID, byte: u8) -> StateID {
        self.automaton.next_state(*state, byte)
    }
}

struct Fuzzy(DFA);

impl Automaton for &Fuzzy {
    type State = u32;

    fn start(&self) -> u32 {
        self.0.initial_state()
    }

    fn is_match(&self, state: &u32) -> bool {
        matches!(self.0.distance(*state), Distance::Exact(_))
    }

    fn can_match(&self, state: &u32) -> bool {
        *state != SINK_STATE
    }

    fn accept(&self, state: &u32, byte: u8) -> u32 {
        self.0.transition(*state, byte)
    }
}

fn fuzzy(term: &str, distance: u8) -> Fuzzy {
    static BUILDERS: [OnceLock<LevenshteinAutomatonBuilder>; 3] =
        [OnceLock::new(), OnceLock::new(), OnceLock::new()];
    let builder = BUILDERS[usize::from(distance)]
        .get_or_init(|| LevenshteinAutomatonBuilder::new(distance, true));
    Fuzzy(builder.build_dfa(term))
}

/// Matches a path followed by what another automaton matches.
struct Below<'a, A> {
    path: &'a [u8],
    inner: A,
}

#[derive(Clone)]
enum State<S> {
    Path(usize),
    Inner(S),
    Dead,
}

impl<A: Automaton> Automaton for Below<'_, A> {
    type State = State<A::State>;

    fn start(&self) -> Self::State {
        State::Path(0)
    }

    fn is_match(&self, state: &Self::State) -> bool {
        matches!(state, State::Inner(inner) if self.inner.is_match(inner))
    }

    fn can_match(&self, state: &Self::State) -> bool {
        match state {
            State::Path(_) => true,
            State::Inner(inner) => self.inner.can_match(inner),
            State::Dead => false,
        }
    }

    fn accept(&self, state: &Self::State, byte: u8) -> Self::State {
        match state {
            State::Path(at) if self.path[*at] != byte => State::Dead,
            State::Path(at) if at + 1 == self.path.len() => State::Inner(self.inner.start()),
            State::Path(at) => State::Path(at + 1),
            State::Inner(inner) => State::Inner(self.inner.accept(inner, byte)),
            State::Dead => State::Dead,
        }
    }
}

/// Refuses a disjunction, or a pattern that expands into one, with too many parts.
///
/// # Errors
/// There are too many parts.
pub fn check_count(path: &str, count: usize) -> Result<()> {
    if count <= TERMS_MAX {
        return Ok(());
    }
    Err(Error::request(format!(
        "TooManyClauses over field: `{path}` [{count} > maxClauseCount, which is set to {TERMS_MAX}]"
    )))
}

/// Returns the matching terms of a path in all segments, in order.
///
/// # Errors
/// There are too many terms, or a file is corrupt.
pub fn expand(segments: &[Arc<Segment>], path: &str, pattern: &Pattern<'_>) -> Result<Vec<Found>> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let mut distances = None;
    for segment in segments {
        // Returns true to continue.
        let mut take = |term: &str, documents: u32| {
            *found.entry(term.to_owned()).or_default() += u64::from(documents);
            found.len() <= TERMS_MAX
        };
        match pattern {
            Pattern::Prefix(prefix) => segment.each_term(path, prefix, |term, info| {
                term.starts_with(prefix) && take(term, info.doc_freq)
            })?,
            Pattern::Range(range) => {
                let from = range.min.as_deref().unwrap_or_default();
                segment.each_term(path, from, |term, info| {
                    if !range.inclusive_min && range.min.as_deref() == Some(term) {
                        return true;
                    }
                    let within = range
                        .max
                        .as_deref()
                        .is_none_or(|max| term < max || range.inclusive_max && term == max);
                    within && take(term, info.doc_freq)
                })?;
            }
            Pattern::Regexp(regexp) => scan(segment, path, "", *regexp, take)?,
            Pattern::Fuzzy { term, prefix, distance } => {
                let end = term.char_indices().nth(*prefix).map_or(term.len(), |(at, _)| at);
                let automaton = fuzzy(term, *distance);
                scan(segment, path, &term[..end], &automaton, take)?;
                distances = Some(automaton);
            }
        }
        check_count(path, found.len())?;
    }
    let distance = |term: &str| match distances.as_ref().map(|automaton| automaton.0.eval(term)) {
        Some(Distance::Exact(distance)) => distance,
        _ => 0,
    };
    let found = found.into_iter();
    Ok(found
        .map(|(term, documents)| Found { distance: distance(&term), term, documents })
        .collect())
}

/// Returns the terms of a path in all segments that are similar to a term, in order. The number of terms per segment is
/// limited.
///
/// # Errors
/// A file is corrupt.
pub fn looks_like(
    segments: &[Arc<Segment>],
    path: &str,
    term: &str,
    distance: u8,
    most: usize,
) -> Result<Vec<Found>> {
    let automaton = fuzzy(term, distance);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for segment in segments {
        let mut left = most;
        scan(segment, path, "", &automaton, |term, documents| {
            *found.entry(term.to_owned()).or_default() += u64::from(documents);
            left = left.saturating_sub(1);
            left > 0
        })?;
    }
    let distance = |term: &str| match automaton.0.eval(term) {
        Distance::Exact(distance) | Distance::AtLeast(distance) => distance,
    };
    let found = found.into_iter();
    Ok(found
        .map(|(term, documents)| Found { distance: distance(&term), term, documents })
        .collect())
}

fn scan<A: Automaton>(
    segment: &Segment,
    path: &str,
    prefix: &str,
    automaton: A,
    mut take: impl FnMut(&str, u32) -> bool,
) -> Result<()>
where
    A::State: Clone,
{
    let key = prefix_key(path);
    let automaton = Below { path: &key, inner: automaton };
    let start = [&key[..], prefix.as_bytes()].concat();
    let mut stream = segment.terms(path).terms().search(automaton).ge(&start).into_stream()?;
    while stream.advance() {
        if !stream.key().starts_with(&start) {
            break;
        }
        let term = std::str::from_utf8(&stream.key()[key.len()..]).map_err(Error::internal)?;
        if !take(term, stream.value().doc_freq) {
            break;
        }
    }
    Ok(())
}
