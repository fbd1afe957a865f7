//! Parses tokens into a tree: recursive descent, with precedence climbing for expressions.
//!
//! [`Parser`] handles the elements that all statements share: tokens, paths, expressions and queries. Statements are functions
//! over it, one file per kind.
//!
//! The height of a tree is counted while it grows, so that no text can exhaust the stack of code that walks it.

mod admin;
mod ddl;
mod dml;
mod expr;
mod from;
mod hints;
mod select;
mod statistics;
mod transaction;

use self::dml::statement;
pub(crate) use self::from::no_keys_of;
use crate::ast::{Expr, Path, Statement};
use crate::lexer::{Spanned, Token, lex, syntax_error};
use crate::{Name, Result};

/// Maximum height of a statement's tree: each level costs the parser, evaluator and printer a stack frame.
pub const HEIGHT_MAX: usize = 200;

/// Maximum nesting of the text. It is higher because a tree is printed with parentheses around each operator, and printed text
/// must be readable.
const DEPTH_MAX: usize = 2 * HEIGHT_MAX;

/// Height that a query adds, because running one takes many more frames than an operator.
const SELECT_HEIGHT: usize = 12;

/// Words that are names only if they are quoted or follow a dot.
const RESERVED: &str = " ADVISE ALL ALTER ANALYZE AND ANY ARRAY AS ASC BEGIN BETWEEN BINARY BOOLEAN BREAK BUCKET BUILD BY \
    CALL CASE CAST CLUSTER COLLATE COLLECTION COMMIT CONNECT CONTINUE CORRELATED COVER CREATE DATABASE DATASET \
    DATASTORE DECLARE DECREMENT DELETE DERIVED DESC DESCRIBE DISTINCT DO DROP EACH ELEMENT ELSE END EVERY EXCEPT \
    EXCLUDE EXECUTE EXISTS EXPLAIN FALSE FETCH FIRST FLATTEN FLUSH FOR FORCE FROM FUNCTION GRANT GROUP GSI HAVING IF \
    IGNORE ILIKE IN INCLUDE INCREMENT INDEX INFER INLINE INNER INSERT INTERSECT INTO IS JOIN KEY KEYS KEYSPACE KNOWN \
    LAST LATERAL LEFT LET LETTING LIKE LIMIT LSM MAP MAPPING MATCHED MATERIALIZED MERGE MINUS MISSING NAMESPACE NEST \
    NOT NULL NUMBER OBJECT OFFSET ON OPTION OPTIONS OR ORDER OUTER OVER PARSE PARTITION PASSWORD PATH POOL PREPARE \
    PRIMARY PRIVATE PRIVILEGE PROCEDURE PUBLIC RAW REALM REDUCE RENAME RETURN RETURNING REVOKE RIGHT ROLE ROLLBACK \
    SATISFIES SCHEMA SCOPE SELECT SELF SEMI SET SHOW SOME START STATISTICS STRING SYSTEM THEN TO TRANSACTION TRIGGER \
    TRUE TRUNCATE UNDER UNION UNIQUE UNKNOWN UNNEST UNSET UPDATE UPSERT USE USER USING VALIDATE VALUE VALUED VALUES \
    VIA VIEW WHEN WHERE WHILE WINDOW WITH WITHIN WORK XOR ";

/// Returns true if `word` must be quoted to be a name.
pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&format!(" {} ", word.to_ascii_uppercase()))
}

/// Parses a statement, which may end with one `;`.
///
/// # Errors
/// Code 3000 with line, column and the expected text.
pub fn parse(text: &str) -> Result<Statement> {
    let mut parser = Parser::new(text)?;
    let statement = statement(&mut parser)?;
    parser.symbol(";");
    parser.end()?;
    Ok(statement)
}

/// Parses a statement of analytics, which has the operators of queries as well as MOD, DIV and CROSS JOIN.
///
/// # Errors
/// As for [`parse`].
pub fn parse_analytics(text: &str) -> Result<Statement> {
    let mut parser = Parser { is_analytics: true, ..Parser::new(text)? };
    let statement = statement(&mut parser)?;
    parser.symbol(";");
    parser.end()?;
    Ok(statement)
}

/// Parses a standalone expression, such as an index key.
///
/// # Errors
/// As for [`parse`].
pub fn parse_expr(text: &str) -> Result<Expr> {
    let mut parser = Parser::new(text)?;
    let expr = parser.expr()?;
    parser.end()?;
    Ok(expr)
}

/// Parses the path of a keyspace or scope, such as a query context.
///
/// # Errors
/// As for [`parse`].
pub fn parse_path(text: &str) -> Result<Path> {
    let mut parser = Parser::new(text)?;
    let path = parser.path()?;
    parser.end()?;
    Ok(path)
}

pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Spanned>,
    at: usize,
    /// Current nesting depth of the parser.
    depth: usize,
    /// Height of the tree that has been parsed at this level.
    height: usize,
    /// Number of `?` so far.
    question_marks: usize,
    /// True within an array key of an index, where arrays may be nested.
    in_array_key: bool,
    /// True if the parser accepts the operators of analytics.
    is_analytics: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>> {
        let tokens = lex(text)?;
        Ok(Parser {
            text,
            tokens,
            at: 0,
            depth: 0,
            height: 0,
            question_marks: 0,
            in_array_key: false,
            is_analytics: false,
        })
    }

    fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> &Token {
        &self.tokens[(self.at + ahead).min(self.tokens.len() - 1)].token
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// Returns the offset of the next token.
    fn offset(&self) -> usize {
        self.tokens[self.at].at
    }

    /// Returns the text from `from` to the end of the last token read.
    fn text_since(&self, from: usize) -> String {
        let end = if self.at == 0 { from } else { self.tokens[self.at - 1].end };
        self.text[from..end.max(from)].to_owned()
    }

    fn fail<T>(&self, what: &str) -> Result<T> {
        let spanned = &self.tokens[self.at];
        Err(syntax_error(self.text, spanned.at, what, &self.text[spanned.at..spanned.end]))
    }

    fn end(&mut self) -> Result<()> {
        if *self.peek() == Token::End {
            Ok(())
        } else {
            self.fail("expected the end of the statement")
        }
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(s) if *s == symbol)
    }

    fn symbol(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(symbol);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.symbol(symbol) { Ok(()) } else { self.fail(&format!("expected {symbol}")) }
    }

    fn is_word_at(&self, ahead: usize, word: &str) -> bool {
        matches!(self.peek_at(ahead), Token::Word(w) if w.eq_ignore_ascii_case(word))
    }

    fn is_word(&self, word: &str) -> bool {
        self.is_word_at(0, word)
    }

    /// Consumes these words, which are separated by blanks, if they are next.
    fn word(&mut self, words: &str) -> bool {
        let count = words.split(' ').count();
        let found = words.split(' ').enumerate().all(|(ahead, word)| self.is_word_at(ahead, word));
        if found {
            self.at += count;
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.word(word) { Ok(()) } else { self.fail(&format!("expected {word}")) }
    }

    /// Consumes a name, if one is next.
    fn name_if_any(&mut self) -> Option<Name> {
        let name = match self.peek() {
            Token::Word(word) if !is_reserved(word) => word.clone(),
            Token::Quoted(name, _) => name.clone(),
            _ => return None,
        };
        self.advance();
        Some(name)
    }

    fn name(&mut self) -> Result<Name> {
        match self.name_if_any() {
            Some(name) => Ok(name),
            None => match self.peek() {
                Token::Word(_) => {
                    self.fail("expected a name; this is a reserved word: put it in back quotes")
                }
                _ => self.fail("expected a name"),
            },
        }
    }

    /// Parses a name where keywords are allowed, as after a dot.
    fn any_name(&mut self) -> Result<Name> {
        match self.peek().clone() {
            Token::Word(word) => {
                self.advance();
                Ok(word)
            }
            _ => self.name(),
        }
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.symbol(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Parses `namespace:bucket.scope.collection`, or a part of it.
    fn path(&mut self) -> Result<Path> {
        let mut namespace = None;
        let system = self.is_word("system") && matches!(self.peek_at(1), Token::Symbol(":"));
        let mut parts = vec![if system { self.any_name()? } else { self.name()? }];
        if self.symbol(":") {
            namespace = parts.pop();
            parts.push(self.any_name()?);
        }
        while self.symbol(".") {
            parts.push(self.any_name()?);
        }
        Ok(Path { namespace, parts })
    }

    /// Runs `inner` one level deeper, and adds `cost` to the height of what it parses.
    fn deeper<T>(&mut self, cost: usize, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += cost;
        if self.depth > DEPTH_MAX {
            return self.fail("nested too deeply");
        }
        let outside = std::mem::take(&mut self.height);
        let result = inner(self)?;
        self.raise(cost)?;
        self.height = self.height.max(outside);
        self.depth -= cost;
        Ok(result)
    }

    fn raise(&mut self, cost: usize) -> Result<()> {
        self.height += cost;
        if self.height > HEIGHT_MAX { self.fail("nested too deeply") } else { Ok(()) }
    }
}
