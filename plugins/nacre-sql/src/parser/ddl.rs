//! Parses statements about indexes, scopes, collections and functions.

use super::Parser;
use super::admin::{alter_admin, create_admin, drop_admin};
use crate::ast::{CreateFunction, CreateIndex, Expr, FunctionBody, IndexKey, Path, Statement};
use crate::lexer::Token;
use crate::{Error, Name, Result, SEMANTICS, Value};

/// The kinds of CREATE INDEX.
#[derive(Clone, Copy, PartialEq)]
enum IndexKind {
    Primary,
    Secondary,
    Vector,
}

fn if_exists(parser: &mut Parser<'_>) -> bool {
    parser.word("IF EXISTS")
}

fn if_not_exists(parser: &mut Parser<'_>) -> bool {
    parser.word("IF NOT EXISTS")
}

/// Parses `WITH {…}`, whose values must be constant; returns an empty object without it.
pub(super) fn with_options(parser: &mut Parser<'_>) -> Result<Value> {
    if !parser.word("WITH") {
        return Ok(Value::object::<Name>([]));
    }
    let expr = parser.expr()?;
    match constant(&expr) {
        Some(value @ Value::Object(_)) => Ok(value),
        _ => parser.fail("expected an object of constants"),
    }
}

pub(super) fn create(parser: &mut Parser<'_>) -> Result<Statement> {
    let replace = parser.word("OR REPLACE");
    if parser.word("FUNCTION") {
        return create_function(parser, replace);
    }
    if replace {
        return parser.fail("expected FUNCTION");
    }
    if let Some(statement) = create_admin(parser)? {
        return Ok(statement);
    }
    match () {
        () if parser.word("PRIMARY INDEX") => create_index(parser, IndexKind::Primary),
        () if parser.word("INDEX") => create_index(parser, IndexKind::Secondary),
        () if parser.word("VECTOR INDEX") => create_index(parser, IndexKind::Vector),
        () if parser.word("SCOPE") => {
            let before = if_not_exists(parser);
            let path = parser.path()?;
            Ok(Statement::CreateScope { path, if_not_exists: before || if_not_exists(parser) })
        }
        () if parser.word("COLLECTION") => {
            let before = if_not_exists(parser);
            let path = parser.path()?;
            let if_not_exists = before || if_not_exists(parser);
            let with = with_options(parser)?;
            Ok(Statement::CreateCollection { path, if_not_exists, with })
        }
        () => parser
            .fail("expected INDEX, PRIMARY INDEX, VECTOR INDEX, SCOPE, COLLECTION or FUNCTION"),
    }
}

fn create_index(parser: &mut Parser<'_>, kind: IndexKind) -> Result<Statement> {
    let primary = kind == IndexKind::Primary;
    let before = if_not_exists(parser);
    let name = if primary { parser.name_if_any() } else { Some(parser.name()?) };
    let if_not_exists = before || if_not_exists(parser);
    parser.expect_word("ON")?;
    let keyspace = parser.path()?;
    let (keys, vector) = if primary { (Vec::new(), None) } else { index_keys(parser)? };
    if kind == IndexKind::Vector && vector.is_none() {
        let message = "CREATE VECTOR INDEX needs a key with VECTOR";
        return Err(Error::new(SEMANTICS, message));
    }
    let (mut partition, mut include) = (Vec::new(), Vec::new());
    let mut condition = None;
    loop {
        if kind == IndexKind::Vector && include.is_empty() && parser.word("INCLUDE") {
            parser.expect("(")?;
            include = parser.list(|p| p.expr())?;
            parser.expect(")")?;
        } else if partition.is_empty() && parser.word("PARTITION BY") {
            parser.expect_word("HASH")?;
            parser.expect("(")?;
            partition = parser.list(|p| p.expr())?;
            parser.expect(")")?;
        } else if partition.is_empty() && parser.word("USING HASH") {
            partition = spread_by(parser, &keys)?;
        } else if partition.is_empty() && parser.word("USING CLUSTERED") {
            partition = spread_by(parser, &keys[..keys.len().min(1)])?;
        } else if parser.word("WHERE") {
            condition = Some(parser.expr()?);
        } else if !parser.word("USING GSI") {
            break;
        }
    }
    let with = with_options(parser)?;
    Ok(Statement::CreateIndex(Box::new(CreateIndex {
        name,
        primary,
        keyspace,
        if_not_exists,
        keys,
        condition,
        partition,
        with,
        vector,
        is_vector_index: kind == IndexKind::Vector,
        include,
    })))
}

/// Parses the keys of an index, in parentheses. Also returns the position of the key with VECTOR, if there is one.
fn index_keys(parser: &mut Parser<'_>) -> Result<(Vec<IndexKey>, Option<usize>)> {
    parser.expect("(")?;
    let parsed = parser.list(key_or_vector)?;
    parser.expect(")")?;
    let mut vectors = parsed.iter().enumerate().filter(|(_, (_, is_vector))| *is_vector);
    let vector = vectors.next().map(|(at, _)| at);
    if vectors.next().is_some() {
        return Err(Error::new(SEMANTICS, "an index can have only one key with VECTOR"));
    }
    Ok((parsed.into_iter().map(|(key, _)| key).collect(), vector))
}

/// Returns the partition expressions: `USING HASH` means all keys of the index, `USING CLUSTERED` the first one, within which the
/// others are sorted. Both are printed as PARTITION BY.
fn spread_by(parser: &Parser<'_>, keys: &[IndexKey]) -> Result<Vec<Expr>> {
    if keys.is_empty() || keys.iter().any(|key| key.array.is_some()) {
        return parser
            .fail("expected an index on paths or on expressions that are not arrays before USING");
    }
    Ok(keys.iter().map(|key| key.expr.clone()).collect())
}

pub(super) fn index_key(parser: &mut Parser<'_>) -> Result<IndexKey> {
    match key_or_vector(parser)? {
        (key, false) => Ok(key),
        (_, true) => Err(Error::new(SEMANTICS, "only keys of indexes can have VECTOR")),
    }
}

/// Parses a key of an index. Also returns true if it has the attribute VECTOR.
fn key_or_vector(parser: &mut Parser<'_>) -> Result<(IndexKey, bool)> {
    let in_parentheses =
        parser.is_symbol("(") && (parser.is_word_at(1, "DISTINCT") || parser.is_word_at(1, "ALL"));
    if in_parentheses {
        parser.expect("(")?;
    }
    let array = match () {
        () if parser.word("DISTINCT") => Some(true),
        () if parser.word("ALL DISTINCT") => Some(true),
        () if parser.word("ALL") => Some(false),
        () => None,
    };
    let outside = std::mem::replace(&mut parser.in_array_key, array.is_some());
    let expr = parser.expr()?;
    parser.in_array_key = outside;
    if in_parentheses {
        parser.expect(")")?;
    }
    let is_vector = parser.word("VECTOR");
    let (descending, include_missing) = key_attributes(parser);
    // The attributes have no order.
    let is_vector = is_vector || parser.word("VECTOR");
    Ok((IndexKey { expr, array, descending, include_missing, joined: false }, is_vector))
}

/// Parses ASC, DESC and INCLUDE MISSING in any order. Returns true for each of the latter two if it is present.
pub(super) fn key_attributes(parser: &mut Parser<'_>) -> (bool, bool) {
    let (mut descending, mut include_missing) = (false, false);
    loop {
        if parser.word("DESC") {
            descending = true;
        } else if parser.word("INCLUDE MISSING") {
            include_missing = true;
        } else if !parser.word("ASC") {
            return (descending, include_missing);
        }
    }
}

pub(super) fn drop_statement(parser: &mut Parser<'_>) -> Result<Statement> {
    if parser.word("PRIMARY INDEX") {
        return drop_primary(parser);
    }
    if let Some(statement) = drop_admin(parser)? {
        return Ok(statement);
    }
    match () {
        () if parser.word("INDEX") => drop_index(parser),
        () if parser.word("SCOPE") => {
            let before = if_exists(parser);
            let path = parser.path()?;
            Ok(Statement::DropScope { path, if_exists: before || if_exists(parser) })
        }
        () if parser.word("COLLECTION") => {
            let before = if_exists(parser);
            let path = parser.path()?;
            Ok(Statement::DropCollection { path, if_exists: before || if_exists(parser) })
        }
        () if parser.word("FUNCTION") => {
            let before = if_exists(parser);
            let path = parser.path()?;
            Ok(Statement::DropFunction { path, if_exists: before || if_exists(parser) })
        }
        () => parser.fail("expected INDEX, PRIMARY INDEX, SCOPE, COLLECTION or FUNCTION"),
    }
}

fn drop_primary(parser: &mut Parser<'_>) -> Result<Statement> {
    let before = if_exists(parser);
    let name = parser.name_if_any().unwrap_or_else(|| "#primary".into());
    let if_exists = before || if_exists(parser);
    parser.expect_word("ON")?;
    let keyspace = parser.path()?;
    let _ = parser.word("USING GSI");
    Ok(Statement::DropIndex { name, keyspace, if_exists, primary: true })
}

fn drop_index(parser: &mut Parser<'_>) -> Result<Statement> {
    let before = if_exists(parser);
    let path = parser.path()?;
    let if_exists = before || if_exists(parser);
    let (name, keyspace) = index_of(parser, path)?;
    let _ = parser.word("USING GSI");
    Ok(Statement::DropIndex { name, keyspace, if_exists, primary: false })
}

/// Parses both notations for an index: `index ON keyspace` and `keyspace.index`.
pub(super) fn index_of(parser: &mut Parser<'_>, mut path: Path) -> Result<(Name, Path)> {
    if path.parts.len() == 1 && path.namespace.is_none() {
        parser.expect_word("ON")?;
        return Ok((path.parts.remove(0), parser.path()?));
    }
    match path.parts.pop() {
        Some(name) if !path.parts.is_empty() => Ok((name, path)),
        _ => parser.fail("expected a keyspace, a dot and an index"),
    }
}

pub(super) fn build(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.expect_word("INDEX")?;
    parser.expect_word("ON")?;
    let keyspace = parser.path()?;
    let names = index_names(parser)?;
    let _ = parser.word("USING GSI");
    Ok(Statement::BuildIndex { keyspace, names })
}

/// Parses names of indexes in parentheses, or expressions that return names.
pub(super) fn index_names(parser: &mut Parser<'_>) -> Result<Vec<Expr>> {
    parser.expect("(")?;
    let names = parser.list(|p| match p.name_if_any() {
        Some(name) => Ok(Expr::Literal(Value::String(name))),
        None => p.expr(),
    })?;
    parser.expect(")")?;
    Ok(names)
}

pub(super) fn alter(parser: &mut Parser<'_>) -> Result<Statement> {
    if let Some(statement) = alter_admin(parser)? {
        return Ok(statement);
    }
    parser.expect_word("INDEX")?;
    let path = parser.path()?;
    let (name, keyspace) = index_of(parser, path)?;
    let _ = parser.word("USING GSI");
    Ok(Statement::AlterIndex { name, keyspace, with: with_options(parser)? })
}

fn create_function(parser: &mut Parser<'_>, replace: bool) -> Result<Statement> {
    let before = if_not_exists(parser);
    let path = parser.path()?;
    parser.expect("(")?;
    let parameters = match () {
        () if parser.is_symbol(")") => Some(Vec::new()),
        () if parser.symbol(".") => {
            parser.expect(".")?;
            parser.expect(".")?;
            None
        }
        () => Some(parser.list(|p| p.name())?),
    };
    parser.expect(")")?;
    let if_not_exists = before || if_not_exists(parser);
    let body = function_body(parser)?;
    let function = CreateFunction { path, replace, if_not_exists, parameters, body };
    Ok(Statement::CreateFunction(Box::new(function)))
}

fn function_body(parser: &mut Parser<'_>) -> Result<FunctionBody> {
    if parser.symbol("{") {
        let body = expr_as_written(parser)?;
        parser.expect("}")?;
        return Ok(body);
    }
    if parser.word("LANGUAGE JAVASCRIPT") {
        return script(parser);
    }
    if parser.word("LANGUAGE WASM") {
        return deployed(parser);
    }
    if parser.word("LANGUAGE") && !parser.word("INLINE") {
        return parser.fail("expected INLINE, JAVASCRIPT or WASM");
    }
    parser.expect_word("AS")?;
    expr_as_written(parser)
}

fn script(parser: &mut Parser<'_>) -> Result<FunctionBody> {
    parser.expect_word("AS")?;
    let code = string(parser, "expected JavaScript, or the name of a function, in quotes")?;
    Ok(match parser.word("AT") {
        true => FunctionBody::External(code, string(parser, "expected the name of a library")?),
        false => FunctionBody::Script(code),
    })
}

fn deployed(parser: &mut Parser<'_>) -> Result<FunctionBody> {
    parser.expect_word("AS")?;
    let function = string(parser, "expected the name of a function in quotes")?;
    parser.expect_word("AT")?;
    let deployment = string(parser, "expected the name of a deployment in quotes")?;
    Ok(FunctionBody::Deployed(function, deployment))
}

fn expr_as_written(parser: &mut Parser<'_>) -> Result<FunctionBody> {
    let from = parser.offset();
    let body = parser.expr()?;
    Ok(FunctionBody::Expr(body, parser.text_since(from)))
}

fn string(parser: &mut Parser<'_>, wanted: &str) -> Result<Name> {
    let Token::String(text) = parser.peek().clone() else { return parser.fail(wanted) };
    parser.advance();
    Ok(text)
}

/// Returns the value of an expression that consists only of literals.
pub(crate) fn constant(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::Literal(value) => Some(value.clone()),
        Expr::Array(elements) => {
            Some(Value::array(elements.iter().map(constant).collect::<Option<_>>()?))
        }
        Expr::Object(fields) => {
            let pairs: Option<Vec<(Name, Value)>> = fields
                .iter()
                .map(|(name, value)| match constant(name)? {
                    Value::String(name) => Some((name, constant(value)?)),
                    _ => None,
                })
                .collect();
            Some(Value::object(pairs?))
        }
        _ => None,
    }
}
