//! Parses statements in general, and those that change documents.

use super::Parser;
use super::admin::{flush, grant};
use super::ddl::{alter, build, create, drop_statement, with_options};
use super::hints::{give, optimizer_hints};
use super::statistics::statistics;
use super::transaction::transaction;
use crate::ast::{
    Changes, Delete, Expr, Infer, Insert, InsertSource, Merge, On, OptimizerHint, Prepare,
    Projection, Row, Set, Source, Statement, Update,
};
use crate::lexer::Token;
use crate::{Error, Name, Result, Value};

pub(super) fn statement(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.deeper(1, statement_inside)
}

fn statement_inside(parser: &mut Parser<'_>) -> Result<Statement> {
    if parser.starts_select() {
        return Ok(Statement::Select(Box::new(parser.select()?)));
    }
    let Token::Word(word) = parser.peek().clone() else {
        if parser.is_symbol("(") {
            return Ok(Statement::Select(Box::new(parser.select()?)));
        }
        return parser.fail("expected a statement");
    };
    parser.advance();
    let hints = optimizer_hints(parser);
    match word.to_ascii_uppercase().as_str() {
        "INSERT" => insert(parser, false),
        "UPSERT" => insert(parser, true),
        "UPDATE" if parser.word("STATISTICS") => statistics(parser),
        "ANALYZE" => statistics(parser),
        "UPDATE" => update(parser, &hints),
        "DELETE" => delete(parser, &hints),
        "MERGE" => merge(parser),
        "EXPLAIN" if parser.word("FUNCTION") => Ok(Statement::ExplainFunction(parser.path()?)),
        "EXPLAIN" => Ok(Statement::Explain(Box::new(statement(parser)?))),
        "ADVISE" => {
            let _ = parser.word("INDEX");
            Ok(Statement::Advise(Box::new(statement(parser)?)))
        }
        "PREPARE" => prepare(parser),
        "EXECUTE" => execute(parser),
        "INFER" => {
            let _ = parser.word("COLLECTION") || parser.word("KEYSPACE");
            infer(parser)
        }
        "CREATE" => create(parser),
        "DROP" => drop_statement(parser),
        "BUILD" => build(parser),
        "ALTER" => alter(parser),
        "GRANT" => grant(parser, false),
        "REVOKE" => grant(parser, true),
        "FLUSH" | "TRUNCATE" => flush(parser),
        "BEGIN" | "START" | "COMMIT" | "ROLLBACK" | "SAVEPOINT" | "SET" => {
            parser.at -= 1;
            transaction(parser).map(Statement::Transaction)
        }
        _ => {
            parser.at -= 1;
            parser.fail("expected a statement")
        }
    }
}

fn infer(parser: &mut Parser<'_>) -> Result<Statement> {
    let is_path = matches!(parser.peek(), Token::Word(word) if !super::is_reserved(word))
        || matches!(parser.peek(), Token::Quoted(..));
    let start = parser.at;
    let mut source = None;
    if is_path
        && let Ok(path) = parser.path()
        && matches!(parser.peek(), Token::End | Token::Symbol(";") | Token::Word(_))
    {
        source = Some(Source::Keyspace(path));
    }
    let source = match source {
        Some(source) => source,
        None => {
            parser.at = start;
            Source::Expr(parser.expr()?)
        }
    };
    let _ = parser.word("USING DEFAULT");
    let with = with_options(parser)?;
    Ok(Statement::Infer(Box::new(Infer { source, with })))
}

fn insert(parser: &mut Parser<'_>, upsert: bool) -> Result<Statement> {
    parser.expect_word("INTO")?;
    let (keyspace, alias) = parser.keyspace_and_alias()?;
    let labels = labels(parser);
    let source = if parser.is_symbol("(") && !labels {
        let row = row_of_select(parser)?;
        let select = parser.select()?;
        InsertSource::Select(row, Box::new(select))
    } else {
        InsertSource::Values(values(parser)?)
    };
    let returning = returning(parser)?;
    Ok(Statement::Insert(Box::new(Insert { upsert, keyspace, alias, source, returning })))
}

/// Parses `(KEY, VALUE, OPTIONS)`, which only labels the values after VALUES.
fn labels(parser: &mut Parser<'_>) -> bool {
    let start = parser.at;
    let found = parser.symbol("(")
        && (parser.word("PRIMARY KEY") || parser.word("KEY"))
        && parser.symbol(",")
        && parser.word("VALUE")
        && (!parser.symbol(",") || parser.word("OPTIONS"))
        && parser.symbol(")")
        && parser.is_word("VALUES");
    if !found {
        parser.at = start;
    }
    found
}

/// Parses `(KEY k, VALUE v, OPTIONS o)`, with the labels that are also allowed before VALUES.
fn row_of_select(parser: &mut Parser<'_>) -> Result<Row> {
    parser.expect("(")?;
    let _ = parser.word("PRIMARY");
    parser.expect_word("KEY")?;
    let key = parser.expr()?;
    let (value, options) = value_and_options(parser)?;
    parser.expect(")")?;
    // Without VALUE, each row is a document.
    let value = value.unwrap_or(Expr::Literal(Value::Missing));
    Ok(Row { key, value, options })
}

/// Parses `, VALUE v, OPTIONS o`; both are optional.
fn value_and_options(parser: &mut Parser<'_>) -> Result<(Option<Expr>, Option<Expr>)> {
    let (mut value, mut options) = (None, None);
    while options.is_none() && parser.symbol(",") {
        if value.is_none() && parser.word("VALUE") {
            value = Some(parser.expr()?);
        } else {
            parser.expect_word("OPTIONS")?;
            options = Some(parser.expr()?);
        }
    }
    Ok((value, options))
}

fn values(parser: &mut Parser<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    parser.expect_word("VALUES")?;
    loop {
        parser.expect("(")?;
        let _ = parser.word("KEY");
        let key = parser.expr()?;
        parser.expect(",")?;
        let _ = parser.word("VALUE");
        let value = parser.expr()?;
        let options = if parser.symbol(",") {
            let _ = parser.word("OPTIONS");
            Some(parser.expr()?)
        } else {
            None
        };
        parser.expect(")")?;
        rows.push(Row { key, value, options });
        if !parser.symbol(",") {
            return Ok(rows);
        }
        let _ = parser.word("VALUES");
    }
}

fn returning(parser: &mut Parser<'_>) -> Result<Option<Projection>> {
    if parser.word("RETURNING") { Ok(Some(parser.projection()?)) } else { Ok(None) }
}

fn update(parser: &mut Parser<'_>, hints: &[OptimizerHint]) -> Result<Statement> {
    let mut target = parser.target()?;
    give(hints, &mut target, true);
    let changes = changes(parser)?;
    let condition = condition(parser)?;
    let (limit, offset) = parser.limit_and_offset()?;
    let returning = returning(parser)?;
    let update = Update { target, changes, condition, limit, offset, returning };
    Ok(Statement::Update(Box::new(update)))
}

fn condition(parser: &mut Parser<'_>) -> Result<Option<Expr>> {
    if parser.word("WHERE") { Ok(Some(parser.expr()?)) } else { Ok(None) }
}

fn changes(parser: &mut Parser<'_>) -> Result<Changes> {
    let mut changes = Changes::default();
    if parser.word("SET") {
        changes.set = parser.list(|p| set(p, true))?;
    }
    if parser.word("UNSET") {
        changes.unset = parser.list(|p| set(p, false))?;
    }
    if changes.set.is_empty() && changes.unset.is_empty() {
        return parser.fail("expected SET or UNSET");
    }
    Ok(changes)
}

fn set(parser: &mut Parser<'_>, with_value: bool) -> Result<Set> {
    let path = path_expr(parser)?;
    let value = if with_value {
        parser.expect("=")?;
        parser.expr()?
    } else {
        Expr::Literal(Value::Missing)
    };
    let mut each = Vec::new();
    while parser.word("FOR") {
        each.push(parser.bindings()?);
    }
    let condition =
        if !each.is_empty() && parser.word("WHEN") { Some(parser.expr()?) } else { None };
    if !each.is_empty() {
        parser.expect_word("END")?;
    }
    Ok(Set { path, value, each, condition })
}

/// Parses a path into a document; `=` ends it.
fn path_expr(parser: &mut Parser<'_>) -> Result<Expr> {
    let start = parser.at;
    let expr = parser.deeper(1, |p| {
        let mut path = p.prefix_of_path()?;
        loop {
            let before = p.at;
            path = p.step(path)?;
            if p.at == before {
                return Ok(path);
            }
        }
    })?;
    let mut at = &expr;
    loop {
        match at {
            Expr::Ident(_) => return Ok(expr),
            Expr::Call(function, _) if function.name == "META" => return Ok(expr),
            Expr::Field(of, ..) | Expr::Element(of, _) => at = of,
            _ => {
                parser.at = start;
                return parser.fail("expected a path into the document");
            }
        }
    }
}

fn delete(parser: &mut Parser<'_>, hints: &[OptimizerHint]) -> Result<Statement> {
    parser.expect_word("FROM")?;
    let mut target = parser.target()?;
    give(hints, &mut target, true);
    let condition = condition(parser)?;
    let (limit, offset) = parser.limit_and_offset()?;
    let returning = returning(parser)?;
    Ok(Statement::Delete(Box::new(Delete { target, condition, limit, offset, returning })))
}

fn merge(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.expect_word("INTO")?;
    let target = parser.target()?;
    parser.expect_word("USING")?;
    let source = parser.term_of_from()?;
    let on = parser.on()?;
    let mut merge = Merge {
        target,
        source,
        on,
        update: None,
        delete: None,
        insert: None,
        limit: None,
        returning: None,
    };
    while parser.word("WHEN") {
        if parser.word("NOT MATCHED") {
            parser.expect_word("THEN")?;
            parser.expect_word("INSERT")?;
            let row = merge_row(parser)?;
            merge.insert = Some((row, condition(parser)?));
            continue;
        }
        parser.expect_word("MATCHED")?;
        parser.expect_word("THEN")?;
        if parser.word("DELETE") {
            merge.delete = Some(condition(parser)?);
        } else {
            parser.expect_word("UPDATE")?;
            let changes = changes(parser)?;
            merge.update = Some((changes, condition(parser)?));
        }
    }
    merge.limit = parser.limit_and_offset()?.0;
    merge.returning = returning(parser)?;
    check_merge(&merge)?;
    Ok(Statement::Merge(Box::new(merge)))
}

/// Parses the row that MERGE inserts: a value (`ON KEY`), or key, value and options in parentheses.
fn merge_row(parser: &mut Parser<'_>) -> Result<Row> {
    let start = parser.at;
    if parser.symbol("(") {
        if parser.word("KEY") {
            let key = parser.expr()?;
            let (value, options) = value_and_options(parser)?;
            parser.expect(")")?;
            // The SQL++ reference, MERGE, defines this default.
            let value = value.unwrap_or_else(|| Expr::Object(Vec::new()));
            return Ok(Row { key, value, options });
        }
        let key = parser.expr()?;
        if parser.symbol(",") {
            let value = parser.expr()?;
            let options = if parser.symbol(",") { Some(parser.expr()?) } else { None };
            parser.expect(")")?;
            return Ok(Row { key, value, options });
        }
        parser.at = start;
    }
    let value = parser.expr()?;
    Ok(Row { key: Expr::Literal(Value::Missing), value, options: None })
}

fn prepare(parser: &mut Parser<'_>) -> Result<Statement> {
    let start = parser.tokens[parser.at.saturating_sub(1)].at;
    let force = parser.word("FORCE");
    let mut name = None;
    let named = matches!(parser.peek_at(1), Token::Word(w) if w.eq_ignore_ascii_case("FROM") || w.eq_ignore_ascii_case("AS"));
    if named {
        name = Some(statement_name(parser)?);
        parser.advance();
    }
    let from = parser.offset();
    let statement = statement(parser)?;
    if matches!(statement, Statement::Prepare(_) | Statement::Execute { .. }) {
        return parser.fail("expected a statement that can be prepared");
    }
    let (text, full_text) = (parser.text_since(from), parser.text_since(start));
    Ok(Statement::Prepare(Box::new(Prepare { name, force, statement, text, full_text })))
}

fn statement_name(parser: &mut Parser<'_>) -> Result<Name> {
    match parser.peek().clone() {
        Token::String(name) => {
            parser.advance();
            Ok(name)
        }
        _ => parser.name(),
    }
}

fn execute(parser: &mut Parser<'_>) -> Result<Statement> {
    if parser.word("FUNCTION") {
        let path = parser.path()?;
        parser.expect("(")?;
        let args = if parser.is_symbol(")") { Vec::new() } else { parser.list(|p| p.expr())? };
        parser.expect(")")?;
        return Ok(Statement::ExecuteFunction { path, args });
    }
    let name = match parser.peek() {
        Token::Word(_) | Token::Quoted(..) | Token::String(_) => {
            Expr::Literal(Value::String(statement_name(parser)?))
        }
        _ => parser.expr()?,
    };
    let using = if parser.word("USING") { Some(parser.expr()?) } else { None };
    Ok(Statement::Execute { name, using })
}

/// Refuses clauses that MERGE cannot have. Source: Couchbase's codes.
fn check_merge(merge: &Merge) -> Result<()> {
    let refused = |code, message: &str| Err(Error::new(code, message));
    let is_keyed = matches!(merge.on, On::Keys(_));
    let hints = &merge.target.hints;
    if hints.keys.is_some() {
        return refused(3120, "MERGE cannot have USE KEYS on its target.");
    }
    if hints.hash.is_some() {
        return refused(3190, "MERGE cannot have a join hint on its target.");
    }
    if is_keyed && hints.has_indexes() {
        return refused(3180, "MERGE with ON KEY cannot have USE INDEX on its target.");
    }
    if is_keyed && merge.source.hints.hash.is_some() {
        return refused(3190, "MERGE with ON KEY cannot have a join hint on its source.");
    }
    let has_key = |row: &Row| row.key != Expr::Literal(Value::Missing);
    match &merge.insert {
        Some((row, _)) if is_keyed && has_key(row) => {
            refused(3150, "MERGE with ON KEY cannot have the key of a document in INSERT.")
        }
        Some((row, _)) if !is_keyed && !has_key(row) => {
            refused(3160, "MERGE with ON needs the key of a document in INSERT.")
        }
        _ => Ok(()),
    }
}
