//! Statements that stand in code in JavaScript, as Couchbase's handlers and libraries have them: each becomes a call.
//!
//! ```text
//! var rows = SELECT name FROM hotels WHERE city = $city;
//! var rows = N1QL("SELECT name FROM hotels WHERE city = $city", {"city": city});
//! ```
//!
//! A statement begins with one of its words, ends with `;`, and is taken for one only if the parser reads it as one. Named
//! parameters are variables of the code. Lines keep their numbers.

use crate::parser::parse;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::{Range, RangeInclusive};

/// What statements begin with.
const WORDS: [&str; 15] = [
    "ALTER", "BUILD", "CREATE", "DELETE", "DROP", "EXECUTE", "EXPLAIN", "INFER", "INSERT", "MERGE",
    "PREPARE", "SELECT", "UPDATE", "UPSERT", "WITH",
];
/// Words of JavaScript behind which a `/` begins a regular expression, as an operand follows.
const BEFORE_OPERAND: [&str; 13] = [
    "return",
    "typeof",
    "instanceof",
    "in",
    "of",
    "new",
    "delete",
    "void",
    "throw",
    "case",
    "do",
    "else",
    "yield",
];

/// Something that looks like a statement and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The lines of the code, from 1, that it is on.
    pub lines: RangeInclusive<u32>,
    /// What is wrong with it.
    pub message: String,
}

/// The code with its statements as calls of `N1QL`, and what looks like a statement and was left alone: it may be JavaScript.
pub fn as_calls(code: &str) -> (Cow<'_, str>, Vec<Mistake>) {
    let (mut out, mut mistakes) = (String::new(), Vec::new());
    let mut scanner = Scanner { code, at: 0, is_operand_next: true };
    let mut copied = 0;
    while let Some(word) = scanner.next_word() {
        if !may_begin(code, &word) {
            continue;
        }
        let (end, wrong) = match statement_length(&code[word.start..]) {
            None => (word.end, Some("a statement ends with ;".to_owned())),
            Some(length) => {
                let end = word.start + length;
                (end, parse(&code[word.start..end]).err().map(|error| error.message))
            }
        };
        if let Some(message) = wrong {
            let line = |at: usize| 1 + code[..at].matches('\n').count() as u32;
            mistakes.push(Mistake { lines: line(word.start)..=line(end), message });
            continue;
        }
        out.push_str(&code[copied..word.start]);
        push_call(&mut out, &code[word.start..end]);
        copied = end;
        scanner.at = end;
    }
    if copied == 0 {
        return (Cow::Borrowed(code), mistakes);
    }
    out.push_str(&code[copied..]);
    (Cow::Owned(out), mistakes)
}

/// Whether a word of the code may be the first of a statement.
fn may_begin(code: &str, word: &Range<usize>) -> bool {
    let is = |text: &str, known: &str| text.eq_ignore_ascii_case(known);
    let text = &code[word.clone()];
    let is_member = code[..word.start].trim_end().ends_with('.');
    // JavaScript has the same word.
    let deletes = || {
        let next = code[word.end..].split_whitespace().next();
        next.is_some_and(|next| is(next, "FROM"))
    };
    !is_member && WORDS.iter().any(|known| is(text, known)) && (!is(text, "DELETE") || deletes())
}

fn push_call(out: &mut String, statement: &str) {
    let text = serde_json::to_string(statement).unwrap_or_default();
    let pairs: Vec<String> =
        parameters(statement).iter().map(|name| format!("\"{name}\": {name}")).collect();
    let _ = write!(out, "N1QL({text}, {{{}}}", pairs.join(", "));
    out.extend(statement.chars().filter(|c| *c == '\n'));
    out.push(')');
}

/// Where a quoted part that begins with `text` ends; a quote is within it when it stands behind a backslash.
fn quoted_length(text: &str) -> usize {
    let mut chars = text.char_indices();
    let quote = chars.next().map(|(_, c)| c);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if Some(c) == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The length of a comment of the form `/* */` at the beginning of `text`.
fn comment_length(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("/*")?;
    Some(inside.find("*/").map_or(text.len(), |end| end + 4))
}

/// The parts of a statement that are neither quoted nor comments, each with where it begins.
fn bare_chars(statement: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &statement[at..];
            let first = rest.chars().next()?;
            let skipped = match first {
                '"' | '\'' | '`' => quoted_length(rest),
                _ => comment_length(rest).unwrap_or(0),
            };
            if skipped == 0 {
                at += first.len_utf8();
                return Some((at - first.len_utf8(), first));
            }
            at += skipped;
        }
    })
}

/// Bytes before the `;` that ends the statement at the beginning of `text`, if one does.
fn statement_length(text: &str) -> Option<usize> {
    bare_chars(text).find(|(_, c)| *c == ';').map(|(at, _)| at)
}

/// The names of parameters that are variables.
fn parameters(statement: &str) -> BTreeSet<&str> {
    let signs = bare_chars(statement).filter(|(_, c)| *c == '$');
    let names = signs.filter_map(|(at, _)| {
        let rest = &statement[at + 1..];
        let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
    });
    names.collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Goes through code in JavaScript from word to word, past what is quoted.
struct Scanner<'a> {
    code: &'a str,
    at: usize,
    /// Whether an operand may come next, so that `/` begins a regular expression and is no division.
    is_operand_next: bool,
}

impl Scanner<'_> {
    /// Where the next word is: an identifier, a keyword or a number.
    fn next_word(&mut self) -> Option<Range<usize>> {
        loop {
            let rest = &self.code[self.at..];
            let first = rest.chars().next()?;
            let start = self.at;
            match first {
                c if is_word(c) || c == '$' => {
                    let length = rest.find(|c| !is_word(c) && c != '$').unwrap_or(rest.len());
                    self.at += length;
                    self.is_operand_next = BEFORE_OPERAND.contains(&&rest[..length]);
                    return Some(start..self.at);
                }
                '"' | '\'' => self.skip(quoted_length(rest), false),
                '`' => self.skip(template_length(rest), false),
                '/' if rest.starts_with("//") => {
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                '/' if rest.starts_with("/*") => {
                    self.at += comment_length(rest).unwrap_or(rest.len());
                }
                '/' if self.is_operand_next => self.skip(regex_length(rest), false),
                c if c.is_whitespace() => self.at += c.len_utf8(),
                c => self.skip(c.len_utf8(), !matches!(c, ')' | ']' | '}')),
            }
        }
    }

    fn skip(&mut self, length: usize, is_operand_next: bool) {
        self.at += length;
        self.is_operand_next = is_operand_next;
    }
}

/// Bytes of a regular expression without its flags; within a class, `/` does not end it.
fn regex_length(text: &str) -> usize {
    let mut in_class = false;
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return at + 1,
            // None goes on behind its line: it was a division.
            '\n' => return 1,
            _ => {}
        }
    }
    1
}

/// Bytes of a template, with the expressions in it, and the templates in these.
fn template_length(text: &str) -> usize {
    // What is open: a template, or an expression with so many braces.
    let mut open = vec![None];
    let mut at = 1;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let Some(innermost) = open.last_mut() else { return at };
        at += match (innermost, first) {
            (None, '\\') => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (None, '$') if rest.starts_with("${") => {
                open.push(Some(0));
                2
            }
            (Some(_), '"' | '\'') => quoted_length(rest),
            (Some(_), '`') => {
                open.push(None);
                1
            }
            (Some(braces), '{') => {
                *braces += 1;
                1
            }
            (Some(braces @ 1..), '}') => {
                *braces -= 1;
                1
            }
            (None, '`') | (Some(_), '}') => {
                open.pop();
                1
            }
            _ => first.len_utf8(),
        };
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(code: &str) -> String {
        let (made, mistakes) = as_calls(code);
        assert_eq!(
            made.matches('\n').count(),
            code.matches('\n').count(),
            "lines keep their numbers"
        );
        let mistakes =
            mistakes.iter().map(|mistake| format!("\n{:?} {}", mistake.lines, mistake.message));
        made.into_owned() + &mistakes.collect::<String>()
    }

    #[test]
    fn statements_become_calls() {
        insta::assert_snapshot!(made("var r = SELECT * FROM b WHERE x = $x AND y > $x OR z = $doc.z;"), @r#"var r = N1QL("SELECT * FROM b WHERE x = $x AND y > $x OR z = $doc.z", {"doc": doc, "x": x});"#);
        insta::assert_snapshot!(made("if (a) delete from `a;b` where c = 'it;s $n' /* ; $m */ and d = \"e\"; f();"), @r#"if (a) N1QL("delete from `a;b` where c = 'it;s $n' /* ; $m */ and d = \"e\"", {}); f();"#);
        insta::assert_snapshot!(made("x(); UPDATE b\n  SET a = $a\n  WHERE c;\ny();"), @r#"
    x(); N1QL("UPDATE b\n  SET a = $a\n  WHERE c", {"a": a}

    );
    y();
    "#);
        insta::assert_snapshot!(made("{ WITH t AS (SELECT 1) SELECT * FROM t; }"), @r#"{ N1QL("WITH t AS (SELECT 1) SELECT * FROM t", {}); }"#);
        insta::assert_snapshot!(made("INSERT INTO b (KEY, VALUE) VALUES ($k, {'a': $1}); SELECT 1;"), @r#"N1QL("INSERT INTO b (KEY, VALUE) VALUES ($k, {'a': $1})", {"k": k}); N1QL("SELECT 1", {});"#);
    }

    #[test]
    fn javascript_is_left_alone() {
        for code in [
            "delete doc.x; delete doc['y'];",
            "var update = 1; update; select = update / 2; build(create);",
            "a.select; a.with.delete; log('SELECT 1;'); log(\"SELECT 1;\"); // SELECT 1;\n/* SELECT 1; */",
            "`SELECT 1; ${ {a: `}` + '}'} } SELECT 1;`",
            "x = /SELECT 1;/; y = a / 2; z = [/[/]SELECT 1;/g]; return /'/; ",
            "with (Math) { log(max(1, 2)); }",
            "SELECT 1",
        ] {
            assert_eq!(as_calls(code).0, code);
        }
    }

    #[test]
    fn what_looks_like_a_statement_is_said_to_be_none() {
        insta::assert_snapshot!(made("a;\nvar r = SELECT * FRM b\nWHERE c;"), @r#"
    a;
    var r = SELECT * FRM b
    WHERE c;
    2..=3 syntax error - line 1, column 10, at: FRM (expected the end of the statement)
    "#);
    }

    #[test]
    fn no_text_makes_it_fall() {
        for text in [
            "`",
            "`${",
            "`${`",
            "/",
            "/[",
            "'",
            "\\",
            "`\\",
            "$",
            "SELECT '",
            "SELECT $;",
            "é`${é}`;",
            "/*",
            "WITH `;",
        ] {
            for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
                as_calls(&text[..end]);
                as_calls(&format!("SELECT {}; x", &text[..end]));
            }
        }
    }
}
