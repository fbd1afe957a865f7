//! Optimizer hints: `/*+ INDEX(alias name …) USE_HASH(alias) */` or a JSON object, after SELECT, UPDATE and DELETE.

use super::Parser;
use crate::ast::{FromTerm, HintKind, OptimizerHint};
use crate::lexer::Token;
use crate::{Name, Value};

/// Known hints. Source: SQL++ reference, Optimizer hints. Hints about services that do not exist are never followed.
const NAMES: &[(&str, HintKind)] = &[
    ("index", HintKind::Index),
    ("index_all", HintKind::Index),
    ("index_combine", HintKind::Index),
    ("no_index", HintKind::Other),
    ("avoid_index", HintKind::Other),
    ("index_fts", HintKind::Other),
    ("no_index_fts", HintKind::Other),
    ("use_hash", HintKind::UseHash),
    ("no_use_hash", HintKind::UseLoop),
    ("avoid_hash", HintKind::UseLoop),
    ("use_nl", HintKind::UseLoop),
    ("no_use_nl", HintKind::UseHash),
    ("avoid_nl", HintKind::UseHash),
    ("ordered", HintKind::Ordered),
    ("join_filter", HintKind::Other),
    ("no_join_filter", HintKind::Other),
];

fn kind_of(name: &str) -> Option<HintKind> {
    let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, kind)| *kind)
}

/// Parses hints, if there are any here. Invalid hints are reported and have no effect.
pub(super) fn optimizer_hints(parser: &mut Parser<'_>) -> Vec<OptimizerHint> {
    let Token::Hint(text) = parser.peek().clone() else { return Vec::new() };
    parser.advance();
    match Value::parse(text.trim().as_bytes()) {
        Ok(object) if object.as_object().is_some() => of_object(&object),
        _ => of_text(&text),
    }
}

fn invalid(text: &str) -> OptimizerHint {
    let text = text.trim().to_owned();
    OptimizerHint { kind: HintKind::Invalid, alias: None, names: Vec::new(), text }
}

/// Parses a sequence of `name` and `name(alias word …)`.
fn of_text(text: &str) -> Vec<OptimizerHint> {
    let mut hints = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let behind = behind.trim_start();
        let (inside, left) = match behind.strip_prefix('(').and_then(|open| open.split_once(')')) {
            Some((inside, left)) => (Some(inside), left),
            None => (None, behind),
        };
        let Some(kind) = kind_of(name).filter(|_| !behind.starts_with('(') || inside.is_some())
        else {
            hints.push(invalid(rest));
            return hints;
        };
        let words = inside.unwrap_or_default().split(|c: char| c.is_whitespace() || c == ',');
        let mut words = words.map(|word| word.trim_matches('`')).filter(|word| !word.is_empty());
        // The text after the slash names the build side.
        let alias = words.next().map(|word| word.split('/').next().unwrap_or_default());
        let alias = alias.map(Name::from);
        let names = words.map(Name::from).collect();
        let text = match inside {
            Some(inside) => format!("{}({})", name.to_ascii_uppercase(), inside.trim()),
            None => name.to_ascii_uppercase(),
        };
        let needs_alias = kind != HintKind::Ordered;
        hints.push(match needs_alias && alias.is_none() {
            true => invalid(&text),
            false => OptimizerHint { kind, alias, names, text },
        });
        rest = left.trim_start();
    }
    hints
}

/// Parses `{"index": {"keyspace": "a", "indexes": […]}, "ordered": true}`; several hints of a kind are an array.
fn of_object(object: &Value) -> Vec<OptimizerHint> {
    let mut hints = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        let Some(kind) = kind_of(name) else {
            hints.push(invalid(&Value::object([(name.clone(), value.clone())]).to_json()));
            continue;
        };
        for one in value.as_array().unwrap_or(std::slice::from_ref(value)) {
            let of = |field: &str| match one.field(field) {
                Value::String(alias) => Some(alias),
                _ => None,
            };
            let alias = of("keyspace").or_else(|| of("alias"));
            let indexes = one.field("indexes");
            let names = indexes.as_array().unwrap_or(std::slice::from_ref(&indexes));
            let names = names.iter().filter_map(|name| name.as_str().map(Name::from)).collect();
            let text = Value::object([(name.clone(), one.clone())]).to_json();
            hints.push(match kind != HintKind::Ordered && alias.is_none() {
                true => invalid(&text),
                false => OptimizerHint { kind, alias, names, text },
            });
        }
    }
    hints
}

/// Applies hints to a term, unless it has hints of its own.
pub(super) fn give(hints: &[OptimizerHint], term: &mut FromTerm, is_first: bool) {
    let of_term = hints.iter().filter(|hint| hint.alias.as_ref() == Some(&term.alias));
    for hint in of_term {
        let own = &mut term.hints;
        match hint.kind {
            HintKind::Index if own.keys.is_none() && own.indexes.is_empty() => {
                own.indexes.clone_from(&hint.names);
            }
            // The first term is not joined to anything.
            HintKind::UseHash if !is_first => own.hash = own.hash.or(Some(true)),
            HintKind::UseLoop if !is_first => own.hash = own.hash.or(Some(false)),
            _ => {}
        }
    }
}
