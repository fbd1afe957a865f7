//! Splits the text of an expression into tokens.

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name or keyword without quotes.
    Word(String),
    /// A name in backticks.
    Quoted(String),
    /// Text in single or double quotes.
    Text(String),
    Int(i64),
    Float(f64),
    Symbol(&'static str),
    End,
}

/// A token, and the position of its first character, from 1.
pub(super) type Placed = (Token, usize);

/// Longer symbols first: the first match wins.
const SYMBOLS: &[&str] = &[
    "==", "!=", "<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",",
    ".",
];

/// Splits `text` into tokens; the last one is [`Token::End`].
///
/// # Errors
/// A sentence with the position of the invalid token.
pub(super) fn split(text: &str) -> Result<Vec<Placed>, String> {
    let (mut tokens, mut rest, mut place) = (Vec::new(), text, 1);
    loop {
        let trimmed = rest.trim_start();
        place += rest[..rest.len() - trimmed.len()].chars().count();
        let (token, length) = next(trimmed).map_err(|reason| at(place, &reason))?;
        let is_last = token == Token::End;
        tokens.push((token, place));
        if is_last {
            return Ok(tokens);
        }
        place += trimmed[..length].chars().count();
        rest = &trimmed[length..];
    }
}

/// Prefixes a message with its position.
pub(super) fn at(place: usize, reason: &str) -> String {
    format!("character {place}: {reason}")
}

/// Returns the first token of `text` and its length in bytes.
fn next(text: &str) -> Result<(Token, usize), String> {
    let Some(first) = text.chars().next() else { return Ok((Token::End, 0)) };
    match first {
        '"' | '\'' => quoted(text, first),
        '`' => name_in_backticks(text),
        '0'..='9' => number(text),
        _ if first.is_alphabetic() || first == '_' => {
            let is_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
            let length = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
            Ok((Token::Word(text[..length].to_owned()), length))
        }
        _ => match SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
            Some(symbol) => Ok((Token::Symbol(symbol), symbol.len())),
            None => Err(format!("unexpected {first}")),
        },
    }
}

/// Reads text in quotes. A backslash before a character that it does not escape is kept, so `\d` in a regular
/// expression can be written with one backslash or two.
fn quoted(text: &str, quote: char) -> Result<(Token, usize), String> {
    let mut read = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((offset, character)) = characters.next() {
        if character == quote {
            return Ok((Token::Text(read), offset + 1));
        }
        if character != '\\' {
            read.push(character);
            continue;
        }
        match characters.next() {
            Some((_, escaped @ ('\\' | '"' | '\''))) => read.push(escaped),
            Some((_, 'n')) => read.push('\n'),
            Some((_, 't')) => read.push('\t'),
            Some((_, other)) => read.extend(['\\', other]),
            None => break,
        }
    }
    Err("the text has no end".to_owned())
}

/// Reads a name in backticks; a doubled backtick inside stands for one.
fn name_in_backticks(text: &str) -> Result<(Token, usize), String> {
    let mut read = String::new();
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((offset, character)) = characters.next() {
        if character != '`' {
            read.push(character);
        } else if characters.next_if(|(_, next)| *next == '`').is_some() {
            read.push('`');
        } else {
            return Ok((Token::Quoted(read), offset + 1));
        }
    }
    Err("the name has no end".to_owned())
}

fn number(text: &str) -> Result<(Token, usize), String> {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        rest.bytes().take_while(u8::is_ascii_digit).count()
    };
    let mut length = digits(0);
    let mut is_whole = true;
    if text[length..].starts_with('.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
        is_whole = false;
    }
    if text[length..].starts_with(['e', 'E']) {
        let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
            is_whole = false;
        }
    }
    let written = &text[..length];
    match written.parse::<i64>() {
        Ok(number) if is_whole => Ok((Token::Int(number), length)),
        _ => match written.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok((Token::Float(number), length)),
            _ => Err(format!("{written} is not a number")),
        },
    }
}
