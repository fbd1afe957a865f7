//! Statements, and among them those that change documents.

use super::Parser;
use super::hints::give;
use crate::ast::{
    Changes, Delete, Expr, Hints, Infer, Insert, InsertSource, Merge, On, OptimizerHint, Prepare,
    Projection, Row, Set, Source, Statement, Update,
};
use crate::lexer::Token;
use crate::{Error, Name, Result, Value};

impl Parser<'_> {
    pub(super) fn statement(&mut self) -> Result<Statement> {
        self.deeper(1, |p| p.statement_inside())
    }

    fn statement_inside(&mut self) -> Result<Statement> {
        if self.starts_select() {
            return Ok(Statement::Select(Box::new(self.select()?)));
        }
        let Token::Word(word) = self.peek().clone() else {
            if self.is_symbol("(") {
                return Ok(Statement::Select(Box::new(self.select()?)));
            }
            return self.fail("expected a statement");
        };
        self.advance();
        let hints = self.optimizer_hints();
        match word.to_ascii_uppercase().as_str() {
            "INSERT" => self.insert(false),
            "UPSERT" => self.insert(true),
            "UPDATE" if self.word("STATISTICS") => self.statistics(),
            "ANALYZE" => self.statistics(),
            "UPDATE" => self.update(&hints),
            "DELETE" => self.delete(&hints),
            "MERGE" => self.merge(),
            "EXPLAIN" if self.word("FUNCTION") => Ok(Statement::ExplainFunction(self.path()?)),
            "EXPLAIN" => Ok(Statement::Explain(Box::new(self.statement()?))),
            "ADVISE" => {
                let _ = self.word("INDEX");
                Ok(Statement::Advise(Box::new(self.statement()?)))
            }
            "PREPARE" => self.prepare(),
            "EXECUTE" => self.execute(),
            "INFER" => {
                let _ = self.word("COLLECTION") || self.word("KEYSPACE");
                self.infer()
            }
            "CREATE" => self.create(),
            "DROP" => self.drop_statement(),
            "BUILD" => self.build(),
            "ALTER" => self.alter(),
            "GRANT" => self.grant(false),
            "REVOKE" => self.grant(true),
            "FLUSH" | "TRUNCATE" => self.flush(),
            "BEGIN" | "START" | "COMMIT" | "ROLLBACK" | "SAVEPOINT" | "SET" => {
                self.at -= 1;
                self.transaction().map(Statement::Transaction)
            }
            _ => {
                self.at -= 1;
                self.fail("expected a statement")
            }
        }
    }

    fn infer(&mut self) -> Result<Statement> {
        let is_path = matches!(self.peek(), Token::Word(word) if !super::is_reserved(word))
            || matches!(self.peek(), Token::Quoted(..));
        let start = self.at;
        let mut source = None;
        if is_path
            && let Ok(path) = self.path()
            && matches!(self.peek(), Token::End | Token::Symbol(";") | Token::Word(_))
        {
            source = Some(Source::Keyspace(path));
        }
        let source = match source {
            Some(source) => source,
            None => {
                self.at = start;
                Source::Expr(self.expr()?)
            }
        };
        let _ = self.word("USING DEFAULT");
        let with = self.with_options()?;
        Ok(Statement::Infer(Box::new(Infer { source, with })))
    }

    fn insert(&mut self, upsert: bool) -> Result<Statement> {
        self.expect_word("INTO")?;
        let (keyspace, alias) = self.keyspace_and_alias()?;
        let labels = self.labels();
        let source = if self.is_symbol("(") && !labels {
            let row = self.row_of_select()?;
            let select = self.select()?;
            InsertSource::Select(row, Box::new(select))
        } else {
            InsertSource::Values(self.values()?)
        };
        let returning = self.returning()?;
        Ok(Statement::Insert(Box::new(Insert { upsert, keyspace, alias, source, returning })))
    }

    /// Takes `(KEY, VALUE, OPTIONS)`, which only says what stands in VALUES.
    fn labels(&mut self) -> bool {
        let start = self.at;
        let found = self.symbol("(")
            && (self.word("PRIMARY KEY") || self.word("KEY"))
            && self.symbol(",")
            && self.word("VALUE")
            && (!self.symbol(",") || self.word("OPTIONS"))
            && self.symbol(")")
            && self.is_word("VALUES");
        if !found {
            self.at = start;
        }
        found
    }

    /// `(KEY k, VALUE v, OPTIONS o)` with the labels that may stand before VALUES too.
    fn row_of_select(&mut self) -> Result<Row> {
        self.expect("(")?;
        let _ = self.word("PRIMARY");
        self.expect_word("KEY")?;
        let key = self.expr()?;
        let (value, options) = self.value_and_options()?;
        self.expect(")")?;
        // Without VALUE, each row is a document.
        let value = value.unwrap_or(Expr::Literal(Value::Missing));
        Ok(Row { key, value, options })
    }

    /// `, VALUE v, OPTIONS o`, of which either may be left out.
    fn value_and_options(&mut self) -> Result<(Option<Expr>, Option<Expr>)> {
        let (mut value, mut options) = (None, None);
        while options.is_none() && self.symbol(",") {
            if value.is_none() && self.word("VALUE") {
                value = Some(self.expr()?);
            } else {
                self.expect_word("OPTIONS")?;
                options = Some(self.expr()?);
            }
        }
        Ok((value, options))
    }

    fn values(&mut self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        self.expect_word("VALUES")?;
        loop {
            self.expect("(")?;
            let _ = self.word("KEY");
            let key = self.expr()?;
            self.expect(",")?;
            let _ = self.word("VALUE");
            let value = self.expr()?;
            let options = if self.symbol(",") {
                let _ = self.word("OPTIONS");
                Some(self.expr()?)
            } else {
                None
            };
            self.expect(")")?;
            rows.push(Row { key, value, options });
            if !self.symbol(",") {
                return Ok(rows);
            }
            let _ = self.word("VALUES");
        }
    }

    fn returning(&mut self) -> Result<Option<Projection>> {
        if self.word("RETURNING") { Ok(Some(self.projection()?)) } else { Ok(None) }
    }

    fn update(&mut self, hints: &[OptimizerHint]) -> Result<Statement> {
        let mut target = self.target()?;
        give(hints, &mut target, true);
        let changes = self.changes()?;
        let condition = self.condition()?;
        let (limit, offset) = self.limit_and_offset()?;
        let returning = self.returning()?;
        let update = Update { target, changes, condition, limit, offset, returning };
        Ok(Statement::Update(Box::new(update)))
    }

    fn condition(&mut self) -> Result<Option<Expr>> {
        if self.word("WHERE") { Ok(Some(self.expr()?)) } else { Ok(None) }
    }

    fn changes(&mut self) -> Result<Changes> {
        let mut changes = Changes::default();
        if self.word("SET") {
            changes.set = self.list(|p| p.set(true))?;
        }
        if self.word("UNSET") {
            changes.unset = self.list(|p| p.set(false))?;
        }
        if changes.set.is_empty() && changes.unset.is_empty() {
            return self.fail("expected SET or UNSET");
        }
        Ok(changes)
    }

    fn set(&mut self, with_value: bool) -> Result<Set> {
        let path = self.path_expr()?;
        let value = if with_value {
            self.expect("=")?;
            self.expr()?
        } else {
            Expr::Literal(Value::Missing)
        };
        let mut each = Vec::new();
        while self.word("FOR") {
            each.push(self.bindings()?);
        }
        let condition =
            if !each.is_empty() && self.word("WHEN") { Some(self.expr()?) } else { None };
        if !each.is_empty() {
            self.expect_word("END")?;
        }
        Ok(Set { path, value, each, condition })
    }

    /// A path into a document, and nothing else: `=` ends it.
    fn path_expr(&mut self) -> Result<Expr> {
        let start = self.at;
        let expr = self.deeper(1, |p| {
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
                    self.at = start;
                    return self.fail("expected a path into the document");
                }
            }
        }
    }

    fn delete(&mut self, hints: &[OptimizerHint]) -> Result<Statement> {
        self.expect_word("FROM")?;
        let mut target = self.target()?;
        give(hints, &mut target, true);
        let condition = self.condition()?;
        let (limit, offset) = self.limit_and_offset()?;
        let returning = self.returning()?;
        Ok(Statement::Delete(Box::new(Delete { target, condition, limit, offset, returning })))
    }

    fn merge(&mut self) -> Result<Statement> {
        self.expect_word("INTO")?;
        let target = self.target()?;
        self.expect_word("USING")?;
        let source = self.term_of_from()?;
        let on = self.on()?;
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
        while self.word("WHEN") {
            if self.word("NOT MATCHED") {
                self.expect_word("THEN")?;
                self.expect_word("INSERT")?;
                let row = self.merge_row()?;
                merge.insert = Some((row, self.condition()?));
                continue;
            }
            self.expect_word("MATCHED")?;
            self.expect_word("THEN")?;
            if self.word("DELETE") {
                merge.delete = Some(self.condition()?);
            } else {
                self.expect_word("UPDATE")?;
                let changes = self.changes()?;
                merge.update = Some((changes, self.condition()?));
            }
        }
        merge.limit = self.limit_and_offset()?.0;
        merge.returning = self.returning()?;
        check_merge(&merge)?;
        Ok(Statement::Merge(Box::new(merge)))
    }

    /// What MERGE inserts: a value (`ON KEY`), or key, value and options in parentheses.
    fn merge_row(&mut self) -> Result<Row> {
        let start = self.at;
        if self.symbol("(") {
            if self.word("KEY") {
                let key = self.expr()?;
                let (value, options) = self.value_and_options()?;
                self.expect(")")?;
                // Source: SQL++ reference, MERGE.
                let value = value.unwrap_or_else(|| Expr::Object(Vec::new()));
                return Ok(Row { key, value, options });
            }
            let key = self.expr()?;
            if self.symbol(",") {
                let value = self.expr()?;
                let options = if self.symbol(",") { Some(self.expr()?) } else { None };
                self.expect(")")?;
                return Ok(Row { key, value, options });
            }
            self.at = start;
        }
        let value = self.expr()?;
        Ok(Row { key: Expr::Literal(Value::Missing), value, options: None })
    }

    fn prepare(&mut self) -> Result<Statement> {
        let start = self.tokens[self.at.saturating_sub(1)].at;
        let force = self.word("FORCE");
        let mut name = None;
        let named = matches!(self.peek_at(1), Token::Word(w) if w.eq_ignore_ascii_case("FROM") || w.eq_ignore_ascii_case("AS"));
        if named {
            name = Some(self.statement_name()?);
            self.advance();
        }
        let from = self.offset();
        let statement = self.statement()?;
        if matches!(statement, Statement::Prepare(_) | Statement::Execute { .. }) {
            return self.fail("expected a statement that can be prepared");
        }
        let (text, whole) = (self.text_since(from), self.text_since(start));
        Ok(Statement::Prepare(Box::new(Prepare { name, force, statement, text, whole })))
    }

    fn statement_name(&mut self) -> Result<Name> {
        match self.peek().clone() {
            Token::String(name) => {
                self.advance();
                Ok(name)
            }
            _ => self.name(),
        }
    }

    fn execute(&mut self) -> Result<Statement> {
        if self.word("FUNCTION") {
            let path = self.path()?;
            self.expect("(")?;
            let args = if self.is_symbol(")") { Vec::new() } else { self.list(|p| p.expr())? };
            self.expect(")")?;
            return Ok(Statement::ExecuteFunction { path, args });
        }
        let name = match self.peek() {
            Token::Word(_) | Token::Quoted(..) | Token::String(_) => {
                Expr::Literal(Value::String(self.statement_name()?))
            }
            _ => self.expr()?,
        };
        let using = if self.word("USING") { Some(self.expr()?) } else { None };
        Ok(Statement::Execute { name, using })
    }
}

/// Refuses what MERGE cannot have. Source: Couchbase's codes.
fn check_merge(merge: &Merge) -> Result<()> {
    let refused = |code, message: &str| Err(Error::new(code, message));
    let is_keyed = matches!(merge.on, On::Keys(_));
    let Hints { keys, indexes, hash } = &merge.target.hints;
    if keys.is_some() {
        return refused(3120, "MERGE cannot have USE KEYS on its target.");
    }
    if hash.is_some() {
        return refused(3190, "MERGE cannot have a join hint on its target.");
    }
    if is_keyed && !indexes.is_empty() {
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
