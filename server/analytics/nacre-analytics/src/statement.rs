//! Statements of analytics in addition to queries: definitions, links and settings. Everything else is a query, whose text is
//! passed on.
//!
//! They have a separate grammar, so that the statements of the query service on port 8093 stay unchanged.

use crate::error::{Error, Result};
use std::fmt;

/// The name of an analytics scope: one part, or bucket and scope joined by `/`.
pub type ScopeName = String;

/// The scope that always exists, and to which names without a scope belong.
pub const DEFAULT_SCOPE: &str = "Default";

/// A name, optionally with its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qualified {
    /// The scope; `None` for that of the request.
    pub scope: Option<ScopeName>,
    /// Name.
    pub name: String,
}

impl fmt::Display for Qualified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Some(scope) => write!(f, "{scope}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A field of an index, with its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexField {
    /// The path of names.
    pub path: Vec<String>,
    /// The type, in lower case.
    pub kind: String,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named as in the statements")]
pub enum Statement {
    /// A query, or text that is refused as one.
    Query(String),
    /// USE: the scope of the following statements.
    Use(ScopeName),
    /// SET, which has no effect here.
    Set { name: String, value: String },
    /// CREATE DATAVERSE, CREATE ANALYTICS SCOPE.
    CreateScope { name: ScopeName, if_not_exists: bool },
    /// DROP of a scope.
    DropScope { name: ScopeName, if_exists: bool },
    /// CREATE DATASET, CREATE ANALYTICS COLLECTION.
    CreateCollection {
        name: Option<Qualified>,
        source: Vec<String>,
        link: Option<String>,
        condition: Option<String>,
        if_not_exists: bool,
    },
    /// DROP of a collection.
    DropCollection { name: Qualified, if_exists: bool },
    /// ALTER COLLECTION … ENABLE ANALYTICS, or DISABLE.
    Enable { source: Vec<String>, enable: bool },
    /// CREATE ANALYTICS SYNONYM.
    CreateSynonym { name: Qualified, target: Qualified, if_not_exists: bool },
    /// DROP of a synonym.
    DropSynonym { name: Qualified, if_exists: bool },
    /// CREATE INDEX.
    CreateIndex {
        name: String,
        collection: Qualified,
        fields: Vec<IndexField>,
        is_array: bool,
        if_not_exists: bool,
    },
    /// DROP INDEX.
    DropIndex { collection: Qualified, name: String, if_exists: bool },
    /// CONNECT LINK, or DISCONNECT.
    Link { links: Vec<Qualified>, connect: bool },
}

impl Statement {
    /// Returns true for a statement that changes definitions.
    pub fn is_definition(&self) -> bool {
        !matches!(self, Statement::Query(_) | Statement::Use(_) | Statement::Set { .. })
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Quoted(String),
    Text(String),
    Symbol(char),
}

#[derive(Clone, Debug)]
struct Spanned {
    token: Token,
    from: usize,
    to: usize,
}

/// Splits a request into its statements.
///
/// # Errors
/// Code 24000 for text that is not a statement, 21004 when there is none, 24122 for a statement that writes documents.
pub fn parse_all(text: &str) -> Result<Vec<Statement>> {
    let tokens = lex(text)?;
    let statements = tokens.split(|spanned| spanned.token == Token::Symbol(';'));
    let statements: Vec<Statement> = statements
        .filter(|tokens| !tokens.is_empty())
        .map(|tokens| Parser { text, tokens, at: 0 }.statement())
        .collect::<Result<_>>()?;
    match statements.is_empty() {
        true => Err(Error::new(21004, "No statement provided.")),
        false => Ok(statements),
    }
}

fn lex(text: &str) -> Result<Vec<Spanned>> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let from = at;
        let rest = &text[at..];
        match byte {
            _ if rest.starts_with("/*") => {
                let end = rest[2..].find("*/").ok_or_else(|| unclosed("comment", text, from))?;
                at += end + 4;
                continue;
            }
            _ if rest.starts_with("--") || rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            b'`' | b'"' | b'\'' => {
                let (content, length) =
                    quoted(rest).ok_or_else(|| unclosed("quote", text, from))?;
                at += length;
                let token =
                    if *byte == b'`' { Token::Quoted(content) } else { Token::Text(content) };
                tokens.push(Spanned { token, from, to: at });
                continue;
            }
            _ => {}
        }
        let first = rest.chars().next().expect("there is a byte");
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let token = match length {
            0 => {
                at += first.len_utf8();
                Token::Symbol(first)
            }
            length => {
                at += length;
                Token::Word(rest[..length].to_owned())
            }
        };
        tokens.push(Spanned { token, from, to: at });
    }
    Ok(tokens)
}

/// Returns content and length of the quoted text at the beginning of `text`. A doubled or escaped quote does not end it.
fn quoted(text: &str) -> Option<(String, usize)> {
    let quote = text.chars().next()?;
    let mut content = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quote != '`' => {
                content.push(c);
                content.push(chars.next()?.1);
            }
            c if c == quote && chars.peek().is_some_and(|(_, next)| *next == quote) => {
                content.push(chars.next()?.1);
            }
            c if c == quote => return Some((content, at + 1)),
            c => content.push(c),
        }
    }
    None
}

fn position(text: &str, at: usize) -> String {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    format!("(in line {line}, at column {column})")
}

fn unclosed(what: &str, text: &str, at: usize) -> Error {
    Error::syntax(format!("Syntax error: {what} is not closed {}", position(text, at)))
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Spanned],
    at: usize,
}

impl Parser<'_> {
    fn statement(mut self) -> Result<Statement> {
        let statement = self.begin()?;
        match statement {
            Statement::Query(_) => Ok(statement),
            _ if self.at == self.tokens.len() => Ok(statement),
            _ => self.fail("the end of the statement"),
        }
    }

    fn begin(&mut self) -> Result<Statement> {
        match () {
            () if self.words("USE") => {
                self.words("DATAVERSE");
                Ok(Statement::Use(self.scope_name()?))
            }
            () if self.words("SET") => self.set(),
            () if self.words("CREATE") => self.create(),
            () if self.words("DROP") => self.drop(),
            () if self.words("ALTER") => self.alter(),
            () if self.words("CONNECT LINK") => self.link(true),
            () if self.words("DISCONNECT LINK") => self.link(false),
            () if ["INSERT", "UPSERT", "UPDATE", "DELETE", "MERGE"]
                .iter()
                .any(|word| self.is_word(0, word)) =>
            {
                Err(Error::new(
                    24122,
                    "DML statements are not supported by analytics: write documents by key or by the query service.",
                ))
            }
            () => {
                let from = self.tokens.first().map_or(0, |spanned| spanned.from);
                let to = self.tokens.last().map_or(from, |spanned| spanned.to);
                Ok(Statement::Query(self.text[from..to].to_owned()))
            }
        }
    }

    fn create(&mut self) -> Result<Statement> {
        match () {
            () if self.words("DATAVERSE") || self.words("ANALYTICS SCOPE") => {
                let before = self.words("IF NOT EXISTS");
                let name = self.scope_name()?;
                let if_not_exists = self.words("IF NOT EXISTS") || before;
                Ok(Statement::CreateScope { name, if_not_exists })
            }
            () if self.words("DATASET") || self.words("ANALYTICS COLLECTION") => {
                self.create_collection()
            }
            () if self.words("ANALYTICS SYNONYM") || self.words("SYNONYM") => {
                let before = self.words("IF NOT EXISTS");
                let name = self.qualified()?;
                let if_not_exists = self.words("IF NOT EXISTS") || before;
                self.expect_word("FOR")?;
                Ok(Statement::CreateSynonym { name, target: self.qualified()?, if_not_exists })
            }
            () if self.words("INDEX") || self.words("ANALYTICS INDEX") => self.create_index(),
            () => self.fail(
                "DATAVERSE, DATASET, INDEX, or ANALYTICS with SCOPE, COLLECTION, SYNONYM or INDEX",
            ),
        }
    }

    fn create_collection(&mut self) -> Result<Statement> {
        let mut if_not_exists = self.words("IF NOT EXISTS");
        let is_named = !self.is_word(0, "ON") && !self.is_word(0, "WITH");
        let name = is_named.then(|| self.qualified()).transpose()?;
        if_not_exists |= self.words("IF NOT EXISTS");
        if self.words("WITH") {
            self.skip_object()?;
        }
        self.expect_word("ON")?;
        let source = self.path()?;
        let link = self.words("AT").then(|| self.name()).transpose()?;
        let condition = match self.words("WHERE") {
            true => Some(self.rest()?),
            false => None,
        };
        Ok(Statement::CreateCollection { name, source, link, condition, if_not_exists })
    }

    fn create_index(&mut self) -> Result<Statement> {
        let mut if_not_exists = self.words("IF NOT EXISTS");
        let name = self.name()?;
        if_not_exists |= self.words("IF NOT EXISTS");
        self.expect_word("ON")?;
        let collection = self.qualified()?;
        self.expect('(')?;
        let mut fields = Vec::new();
        let mut is_array = false;
        loop {
            let mut prefix = Vec::new();
            let in_parentheses = self.is_symbol('(') && {
                self.at += 1;
                true
            };
            while self.words("UNNEST") {
                is_array = true;
                prefix.extend(self.path()?);
            }
            if is_array && self.words("SELECT") {
                loop {
                    fields.push(self.index_field(&prefix)?);
                    if !self.is_word(1, ":") && !self.symbol(',') {
                        break;
                    }
                }
            } else if is_array {
                self.expect(':')?;
                fields.push(IndexField { path: prefix, kind: self.name()?.to_lowercase() });
            } else {
                fields.push(self.index_field(&[])?);
            }
            if in_parentheses {
                self.expect(')')?;
            }
            if !self.symbol(',') {
                break;
            }
        }
        self.expect(')')?;
        let _ = self.words("EXCLUDE UNKNOWN KEY") || self.words("INCLUDE UNKNOWN KEY");
        Ok(Statement::CreateIndex { name, collection, fields, is_array, if_not_exists })
    }

    fn index_field(&mut self, prefix: &[String]) -> Result<IndexField> {
        let path = [prefix, &self.path()?].concat();
        self.expect(':')?;
        let kind = self.name()?.to_lowercase();
        const KINDS: [&str; 8] =
            ["bigint", "int", "double", "string", "date", "time", "datetime", "int64"];
        match KINDS.contains(&kind.as_str()) {
            true => Ok(IndexField { path, kind }),
            false => Err(Error::new(24002, format!("Cannot index field of type {kind}."))),
        }
    }

    fn drop(&mut self) -> Result<Statement> {
        match () {
            () if self.words("DATAVERSE") || self.words("ANALYTICS SCOPE") => {
                let name = self.scope_name()?;
                Ok(Statement::DropScope { name, if_exists: self.words("IF EXISTS") })
            }
            () if self.words("DATASET") || self.words("ANALYTICS COLLECTION") => {
                let name = self.qualified()?;
                Ok(Statement::DropCollection { name, if_exists: self.words("IF EXISTS") })
            }
            () if self.words("ANALYTICS SYNONYM") || self.words("SYNONYM") => {
                let name = self.qualified()?;
                Ok(Statement::DropSynonym { name, if_exists: self.words("IF EXISTS") })
            }
            () if self.words("INDEX") || self.words("ANALYTICS INDEX") => {
                let mut path = self.path()?;
                let if_exists = self.words("IF EXISTS");
                let name = path.pop().unwrap_or_default();
                match path.is_empty() {
                    true => self.fail("collection.index"),
                    false => {
                        Ok(Statement::DropIndex { collection: qualified_of(path), name, if_exists })
                    }
                }
            }
            () => self.fail(
                "DATAVERSE, DATASET, INDEX, or ANALYTICS with SCOPE, COLLECTION, SYNONYM or INDEX",
            ),
        }
    }

    fn alter(&mut self) -> Result<Statement> {
        self.words("ANALYTICS");
        self.expect_word("COLLECTION")?;
        let source = self.path()?;
        let enable = self.words("ENABLE");
        if !enable {
            self.expect_word("DISABLE")?;
        }
        self.expect_word("ANALYTICS")?;
        if enable && self.words("WITH") {
            self.skip_object()?;
        }
        Ok(Statement::Enable { source, enable })
    }

    fn link(&mut self, connect: bool) -> Result<Statement> {
        let mut links = vec![self.qualified()?];
        while self.symbol(',') {
            links.push(self.qualified()?);
        }
        if connect && self.words("WITH") {
            self.skip_object()?;
        }
        Ok(Statement::Link { links, connect })
    }

    fn set(&mut self) -> Result<Statement> {
        let name = self.path()?.join(".");
        match self.tokens.get(self.at).map(|spanned| spanned.token.clone()) {
            Some(Token::Text(value)) => {
                self.at += 1;
                Ok(Statement::Set { name, value })
            }
            _ => {
                Err(Error::new(24128, format!("Invalid value for SET {name}: a string is needed.")))
            }
        }
    }

    /// Skips a JSON object: its options have no effect here.
    fn skip_object(&mut self) -> Result<()> {
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.tokens.get(self.at).map(|spanned| &spanned.token) {
                Some(Token::Symbol('{')) => depth += 1,
                Some(Token::Symbol('}')) => depth -= 1,
                Some(_) => {}
                None => return self.fail("}"),
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Returns the rest of the statement as text.
    fn rest(&mut self) -> Result<String> {
        let Some(first) = self.tokens.get(self.at) else { return self.fail("an expression") };
        let to = self.tokens.last().expect("there is a first").to;
        self.at = self.tokens.len();
        Ok(self.text[first.from..to].to_owned())
    }

    fn scope_name(&mut self) -> Result<ScopeName> {
        let path = self.path()?;
        match path.len() {
            1 | 2 => Ok(path.join("/")),
            _ => self.fail("a scope of one or two parts"),
        }
    }

    fn qualified(&mut self) -> Result<Qualified> {
        Ok(qualified_of(self.path()?))
    }

    fn path(&mut self) -> Result<Vec<String>> {
        let mut path = vec![self.name()?];
        while self.symbol('.') {
            path.push(self.name()?);
        }
        Ok(path)
    }

    fn name(&mut self) -> Result<String> {
        match self.tokens.get(self.at).map(|spanned| spanned.token.clone()) {
            Some(Token::Word(name) | Token::Quoted(name)) if !name.is_empty() => {
                self.at += 1;
                Ok(name)
            }
            _ => self.fail("a name"),
        }
    }

    fn is_word(&self, ahead: usize, word: &str) -> bool {
        let token = self.tokens.get(self.at + ahead).map(|spanned| &spanned.token);
        matches!(token, Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
    }

    /// Consumes these words, which are separated by blanks, if they are next.
    fn words(&mut self, words: &str) -> bool {
        let count = words.split(' ').count();
        let found = words.split(' ').enumerate().all(|(ahead, word)| self.is_word(ahead, word));
        self.at += if found { count } else { 0 };
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.words(word) { Ok(()) } else { self.fail(word) }
    }

    fn is_symbol(&self, symbol: char) -> bool {
        self.tokens.get(self.at).is_some_and(|spanned| spanned.token == Token::Symbol(symbol))
    }

    fn symbol(&mut self, symbol: char) -> bool {
        let found = self.is_symbol(symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: char) -> Result<()> {
        if self.symbol(symbol) { Ok(()) } else { self.fail(&symbol.to_string()) }
    }

    fn fail<T>(&self, expected: &str) -> Result<T> {
        let at = match self.tokens.get(self.at) {
            Some(spanned) => spanned.from,
            None => self.tokens.last().map_or(self.text.len(), |spanned| spanned.to),
        };
        let place = position(self.text, at);
        Err(Error::syntax(format!("Syntax error: expected {expected} {place}")))
    }
}

fn qualified_of(mut path: Vec<String>) -> Qualified {
    let name = path.pop().unwrap_or_default();
    Qualified { scope: (!path.is_empty()).then(|| path.join("/")), name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Statement {
        parse_all(text).unwrap().remove(0)
    }

    fn of(scope: Option<&str>, name: &str) -> Qualified {
        Qualified { scope: scope.map(str::to_owned), name: name.to_owned() }
    }

    #[test]
    fn definitions_are_read_as_sdks_write_them() {
        assert_eq!(
            one("CREATE DATAVERSE `b`.`s` IF NOT EXISTS"),
            Statement::CreateScope { name: "b/s".into(), if_not_exists: true },
        );
        assert_eq!(
            one("CREATE DATASET IF NOT EXISTS `Default`.`ds` ON `b` "),
            Statement::CreateCollection {
                name: Some(of(Some("Default"), "ds")),
                source: vec!["b".into()],
                link: None,
                condition: None,
                if_not_exists: true,
            },
        );
        assert_eq!(
            one(
                "CREATE DATASET d WITH {\"a\": {\"b\": \"}\"}} ON b.s.c AT Local WHERE type = 'x;y'"
            ),
            Statement::CreateCollection {
                name: Some(of(None, "d")),
                source: ["b", "s", "c"].map(String::from).to_vec(),
                link: Some("Local".into()),
                condition: Some("type = 'x;y'".into()),
                if_not_exists: false,
            },
        );
        assert_eq!(
            one("CONNECT LINK `Default`.`Local` WITH {\"force\": true}"),
            Statement::Link { links: vec![of(Some("Default"), "Local")], connect: true },
        );
        let field = IndexField { path: vec!["f".into()], kind: "string".into() };
        assert_eq!(
            one("CREATE INDEX `i` IF NOT EXISTS ON `dv`.`ds` (f:string)"),
            Statement::CreateIndex {
                name: "i".into(),
                collection: of(Some("dv"), "ds"),
                fields: vec![field],
                is_array: false,
                if_not_exists: true,
            },
        );
        let Statement::CreateIndex { fields, is_array: true, .. } = one(
            "CREATE INDEX i ON orders (UNNEST o_orderline SELECT ol_i_id:BIGINT) EXCLUDE UNKNOWN KEY",
        ) else {
            panic!("no array index")
        };
        assert_eq!(fields[0].path, ["o_orderline", "ol_i_id"]);
    }

    #[test]
    fn a_request_can_have_several_statements() {
        let all =
            parse_all("USE a; /* ; */ SELECT ';' FROM x -- ;\n; DROP DATASET x.`y;z` IF EXISTS;")
                .unwrap();
        assert_eq!(
            all,
            [
                Statement::Use("a".into()),
                Statement::Query("SELECT ';' FROM x".into()),
                Statement::DropCollection { name: of(Some("x"), "y;z"), if_exists: true },
            ],
        );
    }

    #[test]
    fn invalid_statements_are_refused_with_their_position() {
        for (text, code) in [
            ("", 21004),
            (" ; ", 21004),
            ("CREATE DATASET", 24000),
            ("CREATE DATASET d ON", 24000),
            ("CREATE DATASET d ON b WITH", 24000),
            ("CREATE DATASET d WITH { ON b", 24000),
            ("CREATE INDEX i ON d (f:object)", 24002),
            ("SELECT 'x", 24000),
            ("SET a 1", 24128),
            ("DELETE FROM x", 24122),
        ] {
            assert_eq!(parse_all(text).unwrap_err().code, code, "{text}");
        }
        let message = parse_all("CREATE\n  NONSENSE x").unwrap_err().message;
        assert!(message.ends_with("(in line 2, at column 3)"), "{message}");
    }
}
