//! Statements embedded in JavaScript code, as in Couchbase's handlers and libraries: each becomes a call.
//!
//! ```text
//! var rows = SELECT name FROM hotels WHERE city = $city;
//! var rows = N1QL("SELECT name FROM hotels WHERE city = $city", {"city": city});
//! ```
//!
//! A statement begins with one of its keywords, ends with `;`, and is recognised only if the parser accepts it. Named parameters
//! are variables of the code. Line numbers are preserved. All these keywords are also valid names in JavaScript: a word that the
//! code uses as a name is left alone, and so is one that is not followed by a blank, or is followed by an operator.

use crate::ast::Statement;
use crate::lexer::{Spanned, Token, lex_statement};
use crate::parser::parse;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::{Range, RangeInclusive};

/// First words of statements.
const WORDS: [&str; 15] = [
    "ALTER", "BUILD", "CREATE", "DELETE", "DROP", "EXECUTE", "EXPLAIN", "INFER", "INSERT", "MERGE",
    "PREPARE", "SELECT", "UPDATE", "UPSERT", "WITH",
];
/// JavaScript keywords after which an operand follows, so that a `/` begins a regular expression.
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

/// Text that looks like a statement but is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Its lines in the code, from 1.
    pub lines: RangeInclusive<u32>,
    /// The error.
    pub message: String,
}

/// JavaScript keywords whose parentheses are followed by a statement, and therefore by an operand.
const BEFORE_PARENTHESES: [&str; 4] = ["if", "while", "for", "with"];
/// JavaScript keywords that precede the declaration of a name.
const BEFORE_NAME: [&str; 7] = ["var", "let", "const", "function", "class", "import", "as"];

/// Returns the code with its statements as calls of `N1QL`. Also returns text that looks like a statement and was left alone,
/// because it may be JavaScript.
pub fn as_calls(code: &str) -> (Cow<'_, str>, Vec<Mistake>) {
    let (mut out, mut mistakes) = (String::new(), Vec::new());
    let names = names(code);
    let mut scanner = Scanner::new(code);
    let mut copied = 0;
    while let Some(word) = scanner.next_word() {
        if !may_begin(code, &word) || names.contains(&code[word.clone()]) {
            continue;
        }
        let (end, read) = read_statement(code, &word);
        let tokens = match read {
            Ok(tokens) => tokens,
            Err(message) => {
                let line = |at: usize| 1 + code[..at].matches('\n').count() as u32;
                mistakes.push(Mistake { lines: line(word.start)..=line(end), message });
                continue;
            }
        };
        out.push_str(&code[copied..word.start]);
        push_call(&mut out, &code[word.start..end], &tokens);
        copied = end;
        scanner.at = end;
    }
    if copied == 0 {
        return (Cow::Borrowed(code), mistakes);
    }
    out.push_str(&code[copied..]);
    (Cow::Owned(out), mistakes)
}

/// Returns the statements embedded in the code.
pub fn statements(code: &str) -> Vec<Statement> {
    let mut found = Vec::new();
    let names = names(code);
    let mut scanner = Scanner::new(code);
    while let Some(word) = scanner.next_word() {
        if !may_begin(code, &word) || names.contains(&code[word.clone()]) {
            continue;
        }
        if let (end, Ok(_)) = read_statement(code, &word)
            && let Ok(statement) = parse(&code[word.start..end])
        {
            found.push(statement);
            scanner.at = end;
        }
    }
    found
}

/// Words of JavaScript code outside of its texts and comments, except members of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words<'a> {
    /// All words.
    pub used: BTreeSet<&'a str>,
    /// Words that the code declares, or that it assigns a value to.
    pub replaced: BTreeSet<&'a str>,
}

/// Returns the words of the code.
pub fn words(code: &str) -> Words<'_> {
    let mut words = Words::default();
    let mut scanner = Scanner::new(code);
    while let Some(word) = scanner.next_word() {
        if is_member(code, &word) {
            continue;
        }
        let text = &code[word.clone()];
        let (before, behind) = (&code[..word.start], code[word.end..].trim_start());
        let is_assigned =
            behind.starts_with('=') && !behind.starts_with("==") && !behind.starts_with("=>");
        words.used.insert(text);
        if is_assigned || BEFORE_NAME.contains(&word_before(before)) {
            words.replaced.insert(text);
        }
    }
    words
}

/// Returns the word at the end of the code, without the `*` of a generator.
fn word_before(code: &str) -> &str {
    let declaring = code.trim_end().trim_end_matches('*').trim_end();
    declaring.rsplit(|c| !is_word(c) && c != '$').next().unwrap_or_default()
}

/// Returns the end of the statement that begins with `word`, and its tokens or the error.
fn read_statement(code: &str, word: &Range<usize>) -> (usize, Result<Vec<Spanned>, String>) {
    match lex_statement(&code[word.start..]) {
        Err(error) => (word.end, Err(error.message)),
        Ok(None) => (word.end, Err("a statement ends with ;".to_owned())),
        Ok(Some(tokens)) => {
            let end = word.start + tokens.last().map_or(0, |semicolon| semicolon.at);
            let parsed = parse(&code[word.start..end]);
            (end, parsed.map(|_| tokens).map_err(|error| error.message))
        }
    }
}

fn begins_statements(text: &str) -> bool {
    WORDS.iter().any(|known| text.eq_ignore_ascii_case(known))
}

/// Returns true if a word of the code may be the first of a statement.
fn may_begin(code: &str, word: &Range<usize>) -> bool {
    let (text, behind) = (&code[word.clone()], &code[word.end..]);
    // JavaScript has the same keyword.
    let deletes = || {
        let next = behind.split_whitespace().next();
        next.is_some_and(|next| next.eq_ignore_ascii_case("FROM"))
    };
    let is_apart = behind.starts_with(char::is_whitespace) || behind.starts_with("/*");
    let goes_on = |c: char| is_word(c) || "\"'`$@([{*".contains(c);
    is_apart
        && !is_member(code, word)
        && begins_statements(text)
        && without_blanks(behind).starts_with(goes_on)
        && (!text.eq_ignore_ascii_case("DELETE") || deletes())
}

fn is_member(code: &str, word: &Range<usize>) -> bool {
    code[..word.start].trim_end().ends_with('.')
}

/// Returns the rest of a statement after leading white space and comments.
fn without_blanks(statement: &str) -> &str {
    let mut rest = statement.trim_start();
    loop {
        let comment = match rest.starts_with("--") {
            true => Some(rest.find('\n').unwrap_or(rest.len())),
            false => comment_length(rest),
        };
        let Some(length) = comment else { return rest };
        rest = rest[length..].trim_start();
    }
}

/// Returns those first words of statements that the code uses as names: declared, imported or assigned.
fn names(code: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut scanner = Scanner::new(code);
    while let Some(word) = scanner.next_word() {
        let text = &code[word.clone()];
        if begins_statements(text) && is_name(&code[..word.start], &code[word.end..]) {
            names.insert(text);
        }
    }
    names
}

/// Returns true if a word between these two texts can only be a name, as in `let x`, `f(a, x)`, `{ x, y }` and `x => 1`.
fn is_name(before: &str, behind: &str) -> bool {
    let (before, behind) = (before.trim_end(), behind.trim_start());
    let is_listed = before.ends_with(|c| ",([{:".contains(c)) || before.ends_with("...");
    BEFORE_NAME.contains(&word_before(before))
        || behind.starts_with("=>")
        || is_listed && behind.starts_with(|c| ",)]}=;".contains(c))
}

fn push_call(out: &mut String, statement: &str, tokens: &[Spanned]) {
    let text = serde_json::to_string(statement).unwrap_or_default();
    let pairs: Vec<String> =
        parameters(tokens).iter().map(|name| format!("\"{name}\": {name}")).collect();
    let _ = write!(out, "N1QL({text}, {{{}}}", pairs.join(", "));
    out.extend(statement.chars().filter(|c| *c == '\n'));
    out.push(')');
}

/// Returns the names of parameters that are variables.
fn parameters(tokens: &[Spanned]) -> BTreeSet<&str> {
    let names = tokens.iter().filter_map(|spanned| match &spanned.token {
        Token::Parameter(name) => Some(&**name),
        _ => None,
    });
    names.filter(|name| !name.starts_with(|c: char| c.is_ascii_digit())).collect()
}

/// Returns the length of the string at the beginning of `text`, which ends at the latest with its line. A quote after a backslash
/// does not end it.
fn quoted_length(text: &str) -> usize {
    let mut chars = text.char_indices();
    let quote = chars.next().map(|(_, c)| c);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '\n' => return at,
            c if Some(c) == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a `/* */` comment at the beginning of `text`.
fn comment_length(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("/*")?;
    Some(inside.find("*/").map_or(text.len(), |end| end + 4))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reads JavaScript code word by word, and skips quoted text.
struct Scanner<'a> {
    code: &'a str,
    at: usize,
    /// True if an operand may come next, so that `/` begins a regular expression and is not a division.
    is_operand_next: bool,
    /// True if the last word has parentheses that are followed by a statement.
    is_control: bool,
    /// For each open parenthesis, true if a statement follows it.
    open: Vec<bool>,
}

impl<'a> Scanner<'a> {
    fn new(code: &'a str) -> Scanner<'a> {
        Scanner { code, at: 0, is_operand_next: true, is_control: false, open: Vec::new() }
    }

    /// Returns the range of the next word: an identifier, a keyword or a number.
    fn next_word(&mut self) -> Option<Range<usize>> {
        loop {
            let rest = &self.code[self.at..];
            let first = rest.chars().next()?;
            match first {
                c if is_word(c) || c == '$' => return Some(self.word(rest)),
                '"' | '\'' => self.skip(quoted_length(rest), false),
                '`' => self.skip(template_length(rest), false),
                '/' if rest.starts_with("//") => {
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                '/' if rest.starts_with("/*") => {
                    self.at += comment_length(rest).unwrap_or(rest.len());
                }
                '/' if self.is_operand_next => self.skip(regex_length(rest), false),
                // `++` and `--` do not change whether an operand may come next.
                '+' | '-' if rest[1..].starts_with(first) => self.skip(2, self.is_operand_next),
                '(' => {
                    self.open.push(self.is_control);
                    self.skip(1, true);
                }
                ')' => {
                    let is_statement_next = self.open.pop().unwrap_or(false);
                    self.skip(1, is_statement_next);
                }
                c if c.is_whitespace() => self.at += c.len_utf8(),
                c => self.skip(c.len_utf8(), !matches!(c, ']' | '}')),
            }
        }
    }

    /// Skips the word at the beginning of `rest`.
    fn word(&mut self, rest: &str) -> Range<usize> {
        let length = rest.find(|c| !is_word(c) && c != '$').unwrap_or(rest.len());
        let word = self.at..self.at + length;
        // A keyword after a dot is a member name.
        let is_keyword = !is_member(self.code, &word);
        let text = &rest[..length];
        self.skip(length, is_keyword && BEFORE_OPERAND.contains(&text));
        // for await (…)
        self.is_control = is_keyword && (BEFORE_PARENTHESES.contains(&text) || text == "await");
        word
    }

    fn skip(&mut self, length: usize, is_operand_next: bool) {
        self.at += length;
        self.is_operand_next = is_operand_next;
        self.is_control = false;
    }
}

/// Returns the length of a regular expression without its flags; within a class, `/` does not end it.
fn regex_length(text: &str) -> usize {
    let mut in_class = false;
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return at + 1,
            // A regular expression ends on its line, so this was a division.
            '\n' => return 1,
            _ => {}
        }
    }
    1
}

/// Returns the length of a template, including its expressions and nested templates.
fn template_length(text: &str) -> usize {
    // The open constructs: `None` for a template, or the number of open braces of an expression.
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
        insta::assert_snapshot!(made("SELECT a$b, -- it's; \"$x\n @y FROM `c\\` WHERE d = 'e'';' AND f = $z; g('SELECT 1;');"), @r#"
    N1QL("SELECT a$b, -- it's; \"$x\n @y FROM `c\\` WHERE d = 'e'';' AND f = $z", {"y": y, "z": z}
    ); g('SELECT 1;');
    "#);
        insta::assert_snapshot!(made("x = 'a\nSELECT /*+ */ 1;"), @r#"
    x = 'a
    N1QL("SELECT /*+ */ 1", {});
    "#);
        insta::assert_snapshot!(made("f({update: 1}); SELECT a, b FROM c WHERE d IN (SELECT e FROM f); MERGE INTO b USING c ON KEY c.k WHEN MATCHED THEN DELETE; update b set c = 1; DELETE FROM b;"), @r#"f({update: 1}); N1QL("SELECT a, b FROM c WHERE d IN (SELECT e FROM f)", {}); N1QL("MERGE INTO b USING c ON KEY c.k WHEN MATCHED THEN DELETE", {}); N1QL("update b set c = 1", {}); N1QL("DELETE FROM b", {});"#);
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
            "function execute(doc) {} execute(doc); execute (doc); select(rows); select[0]; select - 1; select < 1;",
            "const { select, update: merge } = api; select (rows); select [0]; merge (x);",
            "function f(doc, select) { select (doc); } function* execute() {} execute (1);",
            "rows.map(select => select [0]); try {} catch (update) { update (1); }",
            "import { select } from 'x'; select `SELECT 1;`; import * as merge from 'y'; merge (a, b);",
            "const select = String.raw; select`SELECT 1;`; class execute {} execute (1);",
            "const o = { select, execute : 1 }; o?.select; let a = 1, prepare; prepare (a);",
            "x = i++ / 2; y = 'SELECT 1; / '; x = i-- / 2; y = 'SELECT 1; / ';",
            "if (x) /'/.test(y); else while (f(z)) /\"/.exec(z); y = 'SELECT 1;';",
            "x = a.with(b) / 2; y = 'SELECT 1; / '; x = a.of / 2; y = 'SELECT 1; / ';",
        ] {
            assert_eq!(as_calls(code).0, code);
        }
    }

    #[test]
    fn words_of_code_exclude_texts_and_members() {
        let code = "// old()\nconst log = (x) => x.curl; function* crc64() {} couchbase = `new`; a == b; f(c => 'd');";
        let Words { used, replaced } = words(code);
        assert!(
            ["log", "crc64", "couchbase", "a", "b", "f", "c", "x"]
                .iter()
                .all(|word| used.contains(word))
        );
        assert!(["old", "curl", "new", "d"].iter().all(|word| !used.contains(word)));
        assert_eq!(Vec::from_iter(replaced), ["couchbase", "crc64", "log"]);
    }

    #[test]
    fn text_that_looks_like_a_statement_is_reported() {
        insta::assert_snapshot!(made("a;\nvar r = SELECT * FRM b\nWHERE c;"), @r#"
    a;
    var r = SELECT * FRM b
    WHERE c;
    2..=3 syntax error - line 1, column 10, at: FRM (expected the end of the statement)
    "#);
    }

    #[test]
    fn no_text_makes_it_panic() {
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
