//! Patterns of keys and collections, which the rows of a file fill.
//!
//! ```text
//! order_%id%_%address.city%      values of fields, also of nested ones
//! order_#MONO_INCR#              the number of the row, from 1; #MONO_INCR[100]# counts from 100
//! order_#UUID#                   a new identifier
//! 100%% of ##1                   100% of #1
//! ```
//!
//! Source: the key generators of cbimport.

use serde_json::Value;

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The value of a field.
    Field(String),
    /// The number of the row, if rows are counted from this number.
    Number(u64),
    /// A new identifier.
    Unique,
}

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Piece>);

impl Pattern {
    /// Reads a pattern with the delimiters of fields and of generators. A text between delimiters of generators that is not the name of a
    /// generator remains as it is.
    ///
    /// # Errors
    /// A sentence if the name of a field does not end: all rows would have the same key.
    pub fn read(text: &str, [field, generator]: [char; 2]) -> Result<Pattern, String> {
        if field == generator {
            return Err(format!("fields and generators are both between two {field}"));
        }
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            rest = after;
            if c != field && c != generator {
                push(&mut pieces, c);
                continue;
            }
            if let Some(behind) = after.strip_prefix(c) {
                push(&mut pieces, c);
                rest = behind;
                continue;
            }
            match after.split_once(c) {
                Some((name, behind)) if c == field => {
                    pieces.push(Piece::Field(name.to_owned()));
                    rest = behind;
                }
                None if c == field => {
                    return Err(format!(
                        "{text:?}: the name of a field is between two {field}, one of them is missing"
                    ));
                }
                found => match found.and_then(|(name, behind)| Some((generator_of(name)?, behind)))
                {
                    Some((piece, behind)) => {
                        pieces.push(piece);
                        rest = behind;
                    }
                    None => push(&mut pieces, c),
                },
            }
        }
        Ok(Pattern(pieces))
    }

    /// Fills the pattern from a row, a JSON object; rows count from 1.
    ///
    /// # Errors
    /// The field that the row does not have, or whose value is an object, an array or null.
    pub fn fill(&self, row: u64, document: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut fields: Option<Value> = None;
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Number(first) => {
                    let number = first.saturating_add(row.saturating_sub(1));
                    filled.push_str(&number.to_string());
                }
                Piece::Unique => filled.push_str(&uuid(rand::random())),
                Piece::Field(name) => {
                    let fields = fields
                        .get_or_insert_with(|| serde_json::from_str(document).unwrap_or_default());
                    match field_of(fields, name) {
                        Some(Value::String(text)) => filled.push_str(text),
                        Some(value @ (Value::Number(_) | Value::Bool(_))) => {
                            filled.push_str(&value.to_string());
                        }
                        _ => return Err(format!("it has no field {name:?} to make a key of")),
                    }
                }
            }
        }
        Ok(filled)
    }
}

/// Appends a character to the text at the end of a pattern.
fn push(pieces: &mut Vec<Piece>, c: char) {
    match pieces.last_mut() {
        Some(Piece::Text(text)) => text.push(c),
        _ => pieces.push(Piece::Text(c.to_string())),
    }
}

/// Returns the generator of a name.
fn generator_of(name: &str) -> Option<Piece> {
    match name {
        "UUID" => Some(Piece::Unique),
        "MONO_INCR" => Some(Piece::Number(1)),
        _ => {
            let first = name.strip_prefix("MONO_INCR[")?.strip_suffix(']')?;
            first.parse().ok().map(Piece::Number)
        }
    }
}

/// Returns the field of a name, or the nested field of a path.
fn field_of<'a>(fields: &'a Value, name: &str) -> Option<&'a Value> {
    let nested = || name.split('.').try_fold(fields, |value, part| value.get(part));
    fields.get(name).or_else(nested)
}

/// A random identifier in the usual form (version 4 of RFC 9562).
fn uuid(random: u128) -> String {
    let bits = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: [char; 2] = ['%', '#'];

    fn filled(pattern: &str) -> Result<String, String> {
        let document =
            r#"{"iata":"SFO","gate":7,"none":null,"at":{"city":"Paris","x.y":1},"a.b":2}"#;
        Pattern::read(pattern, USUAL)?.fill(3, document)
    }

    #[test]
    fn fields_and_numbers_of_rows_fill_a_pattern() {
        for (pattern, expected) in [
            ("airport_%iata%_%gate%", "airport_SFO_7"),
            ("flight_#MONO_INCR#", "flight_3"),
            ("flight_#MONO_INCR[100]#_#MONO_INCR#", "flight_102_3"),
            ("%at.city%%a.b%", "Paris2"),
            ("100%% ##%gate%", "100% #7"),
            ("order#%gate%#%iata%", "order#7#SFO"),
            ("#OTHER#", "#OTHER#"),
            ("", ""),
        ] {
            assert_eq!(filled(pattern).as_deref(), Ok(expected), "{pattern}");
        }
    }

    #[test]
    fn a_field_that_cannot_be_in_a_key_is_named() {
        for (pattern, name) in [
            ("%none%", "\"none\""),
            ("%at%", "\"at\""),
            ("%at.x.y%", "\"at.x.y\""),
            ("%iata.x%", "\"iata.x\""),
        ] {
            let refused = filled(pattern).unwrap_err();
            assert!(refused.contains(name), "{refused}");
        }
        assert!(filled("airport_%iata").unwrap_err().contains("one of them is missing"));
    }

    #[test]
    fn delimiters_can_be_other_characters() {
        let read =
            |pattern: &str, delimiters| Pattern::read(pattern, delimiters)?.fill(1, r#"{"a":1}"#);
        assert_eq!(read("%_§a§_$MONO_INCR$", ['§', '$']).as_deref(), Ok("%_1_1"));
        assert!(read("a", ['%', '%']).unwrap_err().contains("both between two %"));
    }

    #[test]
    fn identifiers_have_the_usual_form() {
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        let key = || filled("x_#UUID#").unwrap();
        assert_ne!(key(), key());
        assert_eq!(key().len(), 38);
    }
}
