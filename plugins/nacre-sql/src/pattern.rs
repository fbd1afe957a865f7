//! LIKE patterns: `%` matches any text, `_` any character.

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Piece {
    Char(char),
    One,
    Any,
}

/// Splits a pattern into pieces; the character after `escape` is literal.
fn pieces(pattern: &str, escape: char) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        pieces.push(match c {
            _ if c == escape => Piece::Char(chars.next().unwrap_or(escape)),
            '%' => Piece::Any,
            '_' => Piece::One,
            _ => Piece::Char(c),
        });
    }
    pieces
}

/// Returns true if all of `text` matches.
pub(crate) fn like(text: &str, pattern: &str, escape: char) -> bool {
    let pieces = pieces(pattern, escape);
    let text: Vec<char> = text.chars().collect();
    let mut parts = pieces.split(|piece| *piece == Piece::Any);
    let first = parts.next().unwrap_or_default();
    let Some(last) = parts.next_back() else {
        return text.len() == first.len() && fits(first, &text);
    };
    if text.len() < first.len() + last.len() || !fits(first, &text[..first.len()]) {
        return false;
    }
    let (mut middle, end) = text[first.len()..].split_at(text.len() - first.len() - last.len());
    // For a part between two `%`, the leftmost match is as good as any other.
    for part in parts.filter(|part| !part.is_empty()) {
        let Some(at) = middle.windows(part.len()).position(|window| fits(part, window)) else {
            return false;
        };
        middle = &middle[at + part.len()..];
    }
    fits(last, end)
}

/// Returns true if a pattern is literal text, without `%` and `_`.
pub(crate) fn is_literal(pattern: &str, escape: char) -> bool {
    pieces(pattern, escape).iter().all(|piece| matches!(piece, Piece::Char(_)))
}

fn fits(part: &[Piece], text: &[char]) -> bool {
    part.iter().zip(text).all(|(piece, c)| *piece == Piece::One || *piece == Piece::Char(*c))
}

/// Returns the common prefix of all matches, and true if the pattern requires nothing else.
pub fn prefix(pattern: &str, escape: char) -> (String, bool) {
    let pieces = pieces(pattern, escape);
    let mut prefix = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Char(c) => prefix.push(*c),
            Piece::Any => return (prefix, at + 1 == pieces.len()),
            Piece::One => return (prefix, false),
        }
    }
    (prefix, true)
}
