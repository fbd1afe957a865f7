//! Splits text into tokens, each with its position.

use crate::{Error, Name, Result, SYNTAX};

/// The kinds of tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// An unquoted name or keyword.
    Word(Name),
    /// A name in back quotes; the flag is true if it is case-insensitive (`x`i).
    Quoted(Name, bool),
    String(Name),
    Int(i64),
    Float(f64),
    /// `$name`, `@name` or `$1`, without the sign.
    Parameter(Name),
    /// The text in `/*+ … */` or after `--+`, where hints are allowed.
    Hint(Name),
    Symbol(&'static str),
    End,
}

/// A token with the offset of its first byte.
#[derive(Clone, Debug)]
pub(crate) struct Spanned {
    pub token: Token,
    pub at: usize,
    pub end: usize,
}

// Longer symbols first, because the first match is taken.
const SYMBOLS: &[&str] = &[
    "||", "==", "!=", "<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]",
    "{", "}", ",", ".", ":", ";", "?",
];

/// Splits `text` into tokens; the last is always [`Token::End`].
pub(crate) fn lex(text: &str) -> Result<Vec<Spanned>> {
    lex_to(text, |token| *token == Token::End)
}

/// Returns the tokens of the statement at the beginning of `text` up to and including the `;` that ends it; `None` if there is no
/// `;`.
///
/// # Errors
/// As for [`lex`], for the statement only; the text after it may be anything.
pub(crate) fn lex_statement(text: &str) -> Result<Option<Vec<Spanned>>> {
    let tokens = lex_to(text, |token| matches!(token, Token::End | Token::Symbol(";")))?;
    let is_ended = tokens.last().is_some_and(|last| last.token != Token::End);
    Ok(is_ended.then_some(tokens))
}

/// Returns the tokens of `text` up to and including the first one for which `is_last` returns true.
fn lex_to(text: &str, is_last: impl Fn(&Token) -> bool) -> Result<Vec<Spanned>> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        let may_hint = tokens.last().is_some_and(takes_hints);
        lexer.skip_blanks(may_hint)?;
        let at = lexer.at;
        let token = if may_hint { lexer.hint()? } else { None };
        let token = token.map_or_else(|| lexer.token(), Ok)?;
        let done = is_last(&token);
        tokens.push(Spanned { token, at, end: lexer.at });
        if done {
            return Ok(tokens);
        }
    }
}

/// Returns true if hints are allowed after a token.
fn takes_hints(Spanned { token, .. }: &Spanned) -> bool {
    const VERBS: [&str; 6] = ["SELECT", "INSERT", "UPSERT", "UPDATE", "DELETE", "MERGE"];
    matches!(token, Token::Word(word) if VERBS.iter().any(|verb| word.eq_ignore_ascii_case(verb)))
}

/// Returns line and column of an offset, both from 1; columns count characters.
pub(crate) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Returns the syntax error at an offset.
pub(crate) fn syntax_error(text: &str, at: usize, what: &str, near: &str) -> Error {
    let (line, column) = line_and_column(text, at);
    let near = if near.is_empty() { "at end of input".to_owned() } else { format!("at: {near}") };
    let message = format!("syntax error - line {line}, column {column}, {near} ({what})");
    let reason = crate::Value::object([
        ("line", crate::Value::Int(line as i64)),
        ("column", crate::Value::Int(column as i64)),
    ]);
    Error::new(SYNTAX, message).with_reason(reason)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn fail<T>(&self, at: usize, what: &str) -> Result<T> {
        let near: String = self.text[at..].chars().take(20).collect();
        Err(syntax_error(self.text, at, what, &near))
    }

    /// Reads a hint if one begins here.
    fn hint(&mut self) -> Result<Option<Token>> {
        let rest = self.rest();
        if let Some(hint) = rest.strip_prefix("/*+") {
            let Some(length) = hint.find("*/") else {
                return self.fail(self.at, "comment is not closed");
            };
            self.at += length + 5;
            return Ok(Some(Token::Hint(hint[..length].trim().into())));
        }
        let Some(hint) = rest.strip_prefix("--+") else { return Ok(None) };
        let length = hint.find('\n').unwrap_or(hint.len());
        self.at += length + 3;
        Ok(Some(Token::Hint(hint[..length].trim().into())))
    }

    /// Skips blanks and comments, up to a hint if `to_hint` is true.
    fn skip_blanks(&mut self, to_hint: bool) -> Result<()> {
        loop {
            self.take_while(char::is_whitespace);
            let rest = self.rest();
            if to_hint && (rest.starts_with("/*+") || rest.starts_with("--+")) {
                return Ok(());
            }
            if rest.starts_with("--") {
                self.take_while(|c| c != '\n');
            } else if let Some(comment) = rest.strip_prefix("/*") {
                match comment.find("*/") {
                    Some(length) => self.at += length + 4,
                    None => return self.fail(self.at, "comment is not closed"),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Token> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        let second = rest.chars().nth(1).unwrap_or(' ');
        match first {
            '"' | '\'' => self.string(first),
            '`' => self.quoted(),
            '0'..='9' => self.number(),
            '.' if second.is_ascii_digit() => self.number(),
            '$' | '@' if is_word(second) => {
                self.at += 1;
                Ok(Token::Parameter(self.take_while(is_word).into()))
            }
            _ if first.is_alphabetic() || first == '_' => {
                Ok(Token::Word(self.take_while(|c| is_word(c) || c == '$').into()))
            }
            _ => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => {
                    self.at += symbol.len();
                    Ok(Token::Symbol(symbol))
                }
                None => self.fail(self.at, "unexpected character"),
            },
        }
    }

    fn number(&mut self) -> Result<Token> {
        let from = self.at;
        self.take_while(|c| c.is_ascii_digit());
        let mut integral = true;
        let after_dot = self.rest().strip_prefix('.').and_then(|rest| rest.chars().next());
        if after_dot.is_some_and(|c| c.is_ascii_digit()) {
            integral = false;
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        let rest = self.rest();
        if rest.starts_with(['e', 'E']) {
            let sign = usize::from(rest[1..].starts_with(['+', '-']));
            if rest[1 + sign..].starts_with(|c: char| c.is_ascii_digit()) {
                integral = false;
                self.at += 1 + sign;
                self.take_while(|c| c.is_ascii_digit());
            }
        }
        let text = &self.text[from..self.at];
        if let (true, Ok(number)) = (integral, text.parse()) {
            return Ok(Token::Int(number));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Token::Float(number)),
            _ => self.fail(from, "number is out of range"),
        }
    }

    fn quoted(&mut self) -> Result<Token> {
        let from = self.at;
        self.at += 1;
        let mut name = String::new();
        loop {
            name.push_str(self.take_while(|c| c != '`'));
            if !self.rest().starts_with('`') {
                return self.fail(from, "quoted name is not closed");
            }
            self.at += 1;
            if !self.rest().starts_with('`') {
                break;
            }
            name.push('`');
            self.at += 1;
        }
        let rest = self.rest();
        let folded = rest.starts_with('i') && !rest[1..].starts_with(is_word);
        self.at += usize::from(folded);
        Ok(Token::Quoted(name.into(), folded))
    }

    fn string(&mut self, quote: char) -> Result<Token> {
        let from = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            text.push_str(self.take_while(|c| c != quote && c != '\\'));
            let rest = self.rest();
            if rest.starts_with('\\') {
                self.escape(&mut text)?;
            } else if rest.starts_with(quote) {
                self.at += 1;
                // A doubled quote is a literal quote.
                if !self.rest().starts_with(quote) {
                    return Ok(Token::String(text.into()));
                }
                text.push(quote);
                self.at += 1;
            } else {
                return self.fail(from, "string is not closed");
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<()> {
        let from = self.at;
        let Some(letter) = self.rest().chars().nth(1) else {
            return self.fail(from, "string is not closed");
        };
        self.at += 1 + letter.len_utf8();
        let character = match letter {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '"' | '\'' | '\\' | '/' | '`' => letter,
            'u' => return self.unicode(from, text),
            // `\%` and `\_` are passed to LIKE unchanged.
            _ => {
                text.push('\\');
                letter
            }
        };
        text.push(character);
        Ok(())
    }

    fn unicode(&mut self, from: usize, text: &mut String) -> Result<()> {
        let mut units = vec![self.hex4(from)?];
        if (0xD800..0xDC00).contains(&units[0]) && self.rest().starts_with("\\u") {
            self.at += 2;
            units.push(self.hex4(from)?);
        }
        match String::from_utf16(&units) {
            Ok(decoded) => text.push_str(&decoded),
            Err(_) => return self.fail(from, "escape is not a character"),
        }
        Ok(())
    }

    fn hex4(&mut self, from: usize) -> Result<u16> {
        let digits = self.rest().get(..4).unwrap_or_default();
        match u16::from_str_radix(digits, 16) {
            Ok(unit) if !digits.starts_with('+') => {
                self.at += 4;
                Ok(unit)
            }
            _ => self.fail(from, "escape needs four hexadecimal digits"),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
