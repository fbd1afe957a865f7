//! Parses query strings: `+name:"red wine"^2 -price:>10 drink~1 gla*`.

use super::{Fuzziness, Leaf, Query, Range};
use crate::error::{Error, Result};

/// Characters that a backslash can escape.
const SPECIAL: &str = "+-=&|><!(){}[]^\"~*?:\\/ ";

#[derive(Clone, Copy, PartialEq)]
enum Occurrence {
    Should,
    Must,
    MustNot,
}

/// The condition of an item.
enum Item {
    /// A quoted text.
    Phrase(String),
    /// Anything else: the text without backslashes, which may be a plain text, a number, a regular expression or a
    /// wildcard pattern.
    Text(String),
    Number(String),
    Regexp(String),
    Wildcard(String),
    /// A comparison with a number or a date.
    Compare {
        greater: bool,
        inclusive: bool,
        value: String,
        quoted: bool,
    },
}

/// Parses a query string.
///
/// # Errors
/// A quote is not closed, or a boost or fuzziness is not a number.
pub fn parse(text: &str, boost: f32) -> Result<Query> {
    let mut reader = Reader { rest: text };
    let (mut must, mut should, mut must_not) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        reader.rest = reader.rest.trim_start();
        if reader.rest.is_empty() {
            break;
        }
        let (occurrence, query) = reader.item()?;
        match occurrence {
            Occurrence::Must => must.push(query),
            Occurrence::Should => should.push(query),
            Occurrence::MustNot => must_not.push(query),
        }
    }
    if must.is_empty() && should.is_empty() && must_not.is_empty() {
        return Ok(Query::None);
    }
    let any = |parts: Vec<Query>| {
        let is_some = !parts.is_empty();
        let query = Query::Disjunction { parts, min: 0, boost: 1.0, lenient: false };
        is_some.then(|| Box::new(query))
    };
    let all = (!must.is_empty()).then(|| Box::new(Query::Conjunction { parts: must, boost: 1.0 }));
    Ok(Query::Boolean {
        must: all,
        should: any(should),
        must_not: any(must_not),
        filter: None,
        boost,
    })
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn item(&mut self) -> Result<(Occurrence, Query)> {
        let occurrence = match self.rest.as_bytes()[0] {
            b'+' => Occurrence::Must,
            b'-' => Occurrence::MustNot,
            _ => Occurrence::Should,
        };
        if occurrence != Occurrence::Should {
            self.rest = &self.rest[1..];
        }
        let (first, mut item) = self.value(false)?;
        let mut field = None;
        if let Some(rest) = self.rest.strip_prefix(':') {
            if !matches!(item, Item::Text(_) | Item::Number(_)) {
                return Err(Error::request("parse error: syntax error"));
            }
            field = Some(first);
            self.rest = rest;
            (_, item) = self.value(true)?;
            if self.rest.starts_with(':') {
                return Err(Error::request("parse error: syntax error"));
            }
        }
        let fuzziness = self.suffix('~', "fuzziness")?;
        let boost = self.suffix('^', "boost")?.unwrap_or(1.0);
        // Only white space may follow.
        if !self.rest.is_empty() && !self.rest.starts_with(char::is_whitespace) {
            return Err(Error::request("parse error: syntax error"));
        }
        Ok((occurrence, query(item, field, fuzziness, boost as f32)?))
    }

    /// Parses a value: its text and its kind. Comparisons are only allowed after the name of a field.
    fn value(&mut self, after_field: bool) -> Result<(String, Item)> {
        if self.rest.starts_with('"') {
            let text = self.quoted()?;
            return Ok((String::new(), Item::Phrase(text)));
        }
        if self.rest.starts_with('/')
            && let Some(regexp) = self.regexp()
        {
            return Ok((String::new(), Item::Regexp(regexp)));
        }
        if after_field && self.rest.starts_with(['>', '<']) {
            let greater = self.rest.starts_with('>');
            self.rest = &self.rest[1..];
            let inclusive = self.rest.starts_with('=');
            if inclusive {
                self.rest = &self.rest[1..];
            }
            let quoted = self.rest.starts_with('"');
            let value = if quoted { self.quoted()? } else { self.plain().0 };
            return Ok((String::new(), Item::Compare { greater, inclusive, value, quoted }));
        }
        let (text, is_wildcard) = self.plain();
        if text.is_empty() && !is_wildcard {
            return Err(Error::request("parse error: syntax error"));
        }
        let item = if is_wildcard {
            Item::Wildcard(text.clone())
        } else if text.parse::<f64>().is_ok_and(f64::is_finite) && text.starts_with(is_numeric) {
            Item::Number(text.clone())
        } else {
            Item::Text(text.clone())
        };
        Ok((text, item))
    }

    /// Parses a text up to white space, a colon, a tilde or a circumflex.
    fn plain(&mut self) -> (String, bool) {
        let (mut text, mut is_wildcard) = (String::new(), false);
        let mut characters = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some((_, escaped)) if SPECIAL.contains(escaped) => text.push(escaped),
                    Some((_, other)) => text.extend(['\\', other]),
                    None => text.push('\\'),
                },
                ':' | '^' | '~' => {
                    end = at;
                    break;
                }
                c if c.is_whitespace() => {
                    end = at;
                    break;
                }
                '*' | '?' => {
                    is_wildcard = true;
                    text.push(character);
                }
                character => text.push(character),
            }
        }
        self.rest = &self.rest[end..];
        (text, is_wildcard)
    }

    fn quoted(&mut self) -> Result<String> {
        let mut text = String::new();
        let mut characters = self.rest[1..].char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.rest = &self.rest[at + 2..];
                    return Ok(text);
                }
                '\\' => match characters.next() {
                    Some((_, escaped)) if SPECIAL.contains(escaped) => text.push(escaped),
                    Some((_, other)) => text.extend(['\\', other]),
                    None => {}
                },
                character => text.push(character),
            }
        }
        Err(Error::request("parse error: unterminated quote"))
    }

    fn regexp(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut characters = self.rest[1..].char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '/' => {
                    self.rest = &self.rest[at + 2..];
                    return Some(text);
                }
                '\\' => match characters.next() {
                    Some((_, '/')) => text.push('/'),
                    Some((_, other)) => text.extend(['\\', other]),
                    None => return None,
                },
                character => text.push(character),
            }
        }
        None
    }

    fn suffix(&mut self, sign: char, what: &str) -> Result<Option<f64>> {
        let Some(rest) = self.rest.strip_prefix(sign) else { return Ok(None) };
        let mut end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        if sign == '~' {
            end = end.min(rest.find('^').unwrap_or(end));
        }
        let text = &rest[..end];
        self.rest = &rest[end..];
        if text.is_empty() {
            return Ok(Some(1.0));
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| {
            Error::request(format!(
                "parse error: invalid {what} value: strconv.ParseFloat: parsing \"{text}\": invalid syntax"
            ))
        })
    }
}

fn is_numeric(character: char) -> bool {
    character.is_ascii_digit() || "-.".contains(character)
}

fn query(item: Item, field: Option<String>, fuzziness: Option<f64>, boost: f32) -> Result<Query> {
    let fuzziness = match fuzziness {
        None => Fuzziness::Exact(0),
        Some(count) if count > 2.0 => return Err(Error::request("fuzziness exceeds max (2)")),
        Some(count) => Fuzziness::Exact(count.max(0.0) as u8),
    };
    let matching =
        |text: String| Leaf::Match { text, analyzer: None, prefix: 0, fuzziness, all: false };
    let leaf = match item {
        Item::Text(text) => matching(text),
        Item::Phrase(text) => Leaf::MatchPhrase { text, analyzer: None, fuzziness },
        Item::Regexp(text) => Leaf::Regexp(text),
        Item::Wildcard(text) => Leaf::Wildcard(text),
        Item::Number(text) => {
            let number: f64 = text.parse().unwrap_or_default();
            let equal = Range {
                min: Some(number),
                max: Some(number),
                inclusive_min: true,
                inclusive_max: true,
            };
            let of = |leaf| Query::Leaf { field: field.clone(), leaf, boost: 1.0 };
            let parts = vec![of(matching(text)), of(Leaf::Numbers(equal))];
            return Ok(Query::Disjunction { parts, min: 0, boost, lenient: true });
        }
        Item::Compare { greater, inclusive, value, quoted } => {
            fn bounds<T>(value: T, greater: bool, inclusive: bool) -> Range<T> {
                let (min, max) = if greater { (Some(value), None) } else { (None, Some(value)) };
                Range { min, max, inclusive_min: inclusive, inclusive_max: inclusive }
            }
            if quoted {
                Leaf::Dates { range: bounds(value, greater, inclusive), parser: None }
            } else {
                let number: f64 = value
                    .parse()
                    .ok()
                    .filter(|number: &f64| number.is_finite())
                    .ok_or_else(|| Error::request("parse error: syntax error"))?;
                Leaf::Numbers(bounds(number, greater, inclusive))
            }
        }
    };
    Ok(Query::Leaf { field, leaf, boost })
}
