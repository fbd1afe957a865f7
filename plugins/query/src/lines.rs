//! Finds the lines of a JavaScript function with queries, that is, with `N1QL(`.
//!
//! The code is scanned only superficially: comments, strings, templates and regular expressions are skipped, and braces
//! are counted. Calls of `N1QL` by another name are not found.

/// The name of the query function.
const QUERY: &str = "N1QL";

/// Returns the lines of the function `name` with queries, from 1, counted from the beginning of the function; those of
/// the whole code if there is no `function name`.
pub(crate) fn of_queries(code: &str, name: &str) -> Vec<usize> {
    let tokens = Tokens::new(code).collect::<Vec<_>>();
    let begins = (0..tokens.len()).find(|at| {
        let text = |after: usize| tokens.get(at + after).map_or("", |token| token.text);
        text(0) == "function" && (text(1) == name || text(1) == "*" && text(2) == name)
    });
    let (own, first) = match begins {
        Some(at) => (body(&tokens[at..]), tokens[at].line),
        None => (&tokens[..], 1),
    };
    let mut lines: Vec<usize> = Vec::new();
    for (at, pair) in own.windows(2).enumerate() {
        let is_member = at > 0 && own[at - 1].text == ".";
        let line = pair[0].line + 1 - first;
        if pair[0].text == QUERY && pair[1].text == "(" && !is_member && lines.last() != Some(&line)
        {
            lines.push(line);
        }
    }
    lines
}

/// Returns the tokens up to the brace that closes the body.
fn body<'a, 'b>(tokens: &'a [Token<'b>]) -> &'a [Token<'b>] {
    let (mut depth, mut parentheses) = (0_usize, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" => parentheses += 1,
            ")" => parentheses = parentheses.saturating_sub(1),
            // Braces in the defaults of parameters do not begin a body.
            "{" if parentheses == 0 || depth > 0 => depth += 1,
            "}" if depth == 1 => return &tokens[..=at],
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    tokens
}

/// A word, a number, or a single character of another kind.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

struct Tokens<'a> {
    rest: &'a str,
    line: usize,
    /// The previous token; a slash begins a regular expression unless it follows a value.
    last: &'a str,
    /// For each open template, the number of open braces in the expression within.
    templates: Vec<usize>,
}

impl<'a> Tokens<'a> {
    fn new(code: &'a str) -> Tokens<'a> {
        Tokens { rest: code, line: 1, last: "", templates: Vec::new() }
    }

    /// Consumes `bytes` of the code.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    /// Skips text up to `end`, or all the rest; a backslash escapes the next character.
    fn skip_to(&mut self, end: impl Fn(&str) -> Option<usize>) {
        let mut at = 0;
        while let Some(next) = self.rest[at..].chars().next() {
            if next == '\\' {
                at += 1 + self.rest[at + 1..].chars().next().map_or(0, char::len_utf8);
                continue;
            }
            if let Some(bytes) = end(&self.rest[at..]) {
                self.take(at + bytes);
                return;
            }
            at += next.len_utf8();
        }
        self.take(self.rest.len());
    }

    /// Skips the rest of a template, up to its end or an expression within.
    fn skip_template(&mut self) {
        let ends = |rest: &str| match rest.as_bytes() {
            [b'`', ..] => Some(1),
            [b'$', b'{', ..] => Some(2),
            _ => None,
        };
        let before = self.rest;
        self.skip_to(ends);
        if before[..before.len() - self.rest.len()].ends_with("${") {
            self.templates.push(0);
        }
    }

    fn skip_regex(&mut self) {
        let is_in_class = std::cell::Cell::new(false);
        self.skip_to(|rest| match rest.as_bytes()[0] {
            b'[' => {
                is_in_class.set(true);
                None
            }
            b']' => {
                is_in_class.set(false);
                None
            }
            // A regular expression cannot continue on the next line.
            b'\n' => Some(1),
            b'/' if !is_in_class.get() => Some(1),
            _ => None,
        });
    }

    /// Returns true if a slash is a division here.
    fn is_after_value(&self) -> bool {
        let is_word =
            |word: &str| word.starts_with(|c: char| c.is_alphanumeric() || "_$".contains(c));
        let keywords = [
            "return", "typeof", "case", "in", "of", "delete", "void", "do", "else", "await",
            "yield",
        ];
        matches!(self.last, ")" | "]" | "}" | "text")
            || is_word(self.last) && !keywords.contains(&self.last)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = self.rest;
            let first = rest.chars().next()?;
            let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
            if first.is_whitespace() {
                self.take(first.len_utf8());
            } else if rest.starts_with("//") {
                self.take(rest.find('\n').unwrap_or(rest.len()));
            } else if let Some(inside) = rest.strip_prefix("/*") {
                self.take(inside.find("*/").map_or(rest.len(), |at| at + 4));
            } else if matches!(first, '"' | '\'') {
                self.take(1);
                self.skip_to(|rest| rest.starts_with(first).then_some(1));
                self.last = "text";
            } else if first == '`' {
                self.take(1);
                self.skip_template();
                self.last = "text";
            } else if first == '}' && self.templates.last() == Some(&0) {
                self.templates.pop();
                self.take(1);
                self.skip_template();
                self.last = "text";
            } else if first == '/' && !self.is_after_value() {
                self.take(1);
                self.skip_regex();
                self.last = "text";
            } else {
                let bytes = match is_word(first) {
                    true => rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()),
                    false => first.len_utf8(),
                };
                let line = self.line;
                let text = self.take(bytes);
                match (text, self.templates.last_mut()) {
                    ("{", Some(open)) => *open += 1,
                    ("}", Some(open)) => *open -= 1,
                    _ => {}
                }
                self.last = text;
                return Some(Token { text, line });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_the_start_of_the_function() {
        let code = "const one = 1;\nfunction other() { N1QL('x'); }\nfunction f(a = {}) {\n  \
            let b = N1QL('a'), c = N1QL('b');\n  for (const r of\n    N1QL (`c`)) {}\n}\nN1QL('after');";
        assert_eq!(of_queries(code, "f"), [2, 4]);
        assert_eq!(of_queries(code, "other"), [1]);
        assert_eq!(of_queries("const f = () => {\n return N1QL('x'); };", "f"), [2]);
        assert_eq!(of_queries("function f() { return 1; }", "f"), [0; 0]);
        let code = "const a = 2 * f();\nfunction* f() {\n N1QL('x'); }";
        assert_eq!(of_queries(code, "f"), [2]);
    }

    #[test]
    fn text_without_calls_is_skipped() {
        for no_call in [
            "// N1QL('x')",
            "/* N1QL(\n */",
            "'N1QL(\\'x'",
            "\"N1QL(\"",
            "`N1QL( ${'N1QL('} `",
            "/[/]N1QL(/.test(a)",
            "a.N1QL('x')",
            "N1QL",
            "myN1QL('x')",
        ] {
            assert_eq!(
                of_queries(&format!("function f() {{\n{no_call}\n}}"), "f"),
                [0; 0],
                "{no_call}"
            );
        }
        for call in [
            "`${N1QL('x')}`",
            "`${{a: 1}} ${N1QL('x')}`",
            "a / N1QL('x') / b",
            "[1] / 2; N1QL('/')",
        ] {
            assert_eq!(of_queries(&format!("function f() {{\n{call}\n}}"), "f"), [2], "{call}");
        }
    }

    #[test]
    fn code_that_does_not_end_is_read_to_its_end() {
        for code in
            ["'", "`", "`${", "/", "/*", "//", "\\", "'\\", "function f( {", "}}}", "`${`${"]
        {
            assert_eq!(of_queries(code, "f"), [0; 0], "{code}");
        }
    }
}
