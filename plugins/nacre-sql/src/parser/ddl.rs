//! Indexes, scopes, collections and functions.

use super::Parser;
use crate::ast::{CreateFunction, CreateIndex, Expr, FunctionBody, IndexKey, Path, Statement};
use crate::lexer::Token;
use crate::{Error, Name, Result, SEMANTICS, Value};

/// Why an index of vectors is refused.
fn no_vectors() -> Error {
    let message = "Indexes of SQL++ have no vectors: make a search index that has the field as a vector, and ask it by knn";
    Error::new(SEMANTICS, message)
}

impl Parser<'_> {
    fn if_exists(&mut self) -> bool {
        self.word("IF EXISTS")
    }

    fn if_not_exists(&mut self) -> bool {
        self.word("IF NOT EXISTS")
    }

    /// `WITH {…}`, whose values are constant; an empty object without it.
    pub(super) fn with_options(&mut self) -> Result<Value> {
        if !self.word("WITH") {
            return Ok(Value::object::<Name>([]));
        }
        let expr = self.expr()?;
        match constant(&expr) {
            Some(value @ Value::Object(_)) => Ok(value),
            _ => self.fail("expected an object of constants"),
        }
    }

    pub(super) fn create(&mut self) -> Result<Statement> {
        let replace = self.word("OR REPLACE");
        if self.word("FUNCTION") {
            return self.create_function(replace);
        }
        if replace {
            return self.fail("expected FUNCTION");
        }
        if let Some(statement) = self.create_admin()? {
            return Ok(statement);
        }
        match () {
            () if self.word("PRIMARY INDEX") => self.create_index(true),
            () if self.word("INDEX") => self.create_index(false),
            () if self.word("VECTOR INDEX") => Err(no_vectors()),
            () if self.word("SCOPE") => {
                let before = self.if_not_exists();
                let path = self.path()?;
                Ok(Statement::CreateScope { path, if_not_exists: before || self.if_not_exists() })
            }
            () if self.word("COLLECTION") => {
                let before = self.if_not_exists();
                let path = self.path()?;
                let if_not_exists = before || self.if_not_exists();
                let with = self.with_options()?;
                Ok(Statement::CreateCollection { path, if_not_exists, with })
            }
            () => self.fail("expected INDEX, PRIMARY INDEX, SCOPE, COLLECTION or FUNCTION"),
        }
    }

    fn create_index(&mut self, primary: bool) -> Result<Statement> {
        let before = self.if_not_exists();
        let name = if primary { self.name_if_any() } else { Some(self.name()?) };
        let if_not_exists = before || self.if_not_exists();
        self.expect_word("ON")?;
        let keyspace = self.path()?;
        let mut keys = Vec::new();
        if !primary {
            self.expect("(")?;
            keys = self.list(|p| p.index_key())?;
            self.expect(")")?;
        }
        let mut partition = Vec::new();
        let mut condition = None;
        loop {
            if partition.is_empty() && self.word("PARTITION BY") {
                self.expect_word("HASH")?;
                self.expect("(")?;
                partition = self.list(|p| p.expr())?;
                self.expect(")")?;
            } else if partition.is_empty() && self.word("USING HASH") {
                partition = self.spread_by(&keys)?;
            } else if partition.is_empty() && self.word("USING CLUSTERED") {
                partition = self.spread_by(&keys[..keys.len().min(1)])?;
            } else if self.word("WHERE") {
                condition = Some(self.expr()?);
            } else if !self.word("USING GSI") {
                break;
            }
        }
        let with = self.with_options()?;
        Ok(Statement::CreateIndex(Box::new(CreateIndex {
            name,
            primary,
            keyspace,
            if_not_exists,
            keys,
            condition,
            partition,
            with,
        })))
    }

    /// Expressions that spread the entries of an index: `USING HASH` means all of its keys, `USING CLUSTERED` the first one, within which the
    /// others are sorted. Both are printed as PARTITION BY.
    fn spread_by(&self, keys: &[IndexKey]) -> Result<Vec<Expr>> {
        if keys.is_empty() || keys.iter().any(|key| key.array.is_some()) {
            return self
                .fail("expected an index on paths or expressions that are no arrays before USING");
        }
        Ok(keys.iter().map(|key| key.expr.clone()).collect())
    }

    pub(super) fn index_key(&mut self) -> Result<IndexKey> {
        let in_parentheses =
            self.is_symbol("(") && (self.is_word_at(1, "DISTINCT") || self.is_word_at(1, "ALL"));
        if in_parentheses {
            self.expect("(")?;
        }
        let array = match () {
            () if self.word("DISTINCT") => Some(true),
            () if self.word("ALL DISTINCT") => Some(true),
            () if self.word("ALL") => Some(false),
            () => None,
        };
        let outside = std::mem::replace(&mut self.in_array_key, array.is_some());
        let expr = self.expr()?;
        self.in_array_key = outside;
        if self.is_word("VECTOR") {
            return Err(no_vectors());
        }
        if in_parentheses {
            self.expect(")")?;
        }
        let (descending, include_missing) = self.key_attributes();
        Ok(IndexKey { expr, array, descending, include_missing, joined: false })
    }

    /// ASC, DESC and INCLUDE MISSING in any order: whether there were the latter two.
    pub(super) fn key_attributes(&mut self) -> (bool, bool) {
        let (mut descending, mut include_missing) = (false, false);
        loop {
            if self.word("DESC") {
                descending = true;
            } else if self.word("INCLUDE MISSING") {
                include_missing = true;
            } else if !self.word("ASC") {
                return (descending, include_missing);
            }
        }
    }

    pub(super) fn drop_statement(&mut self) -> Result<Statement> {
        if self.word("PRIMARY INDEX") {
            return self.drop_primary();
        }
        if let Some(statement) = self.drop_admin()? {
            return Ok(statement);
        }
        match () {
            () if self.word("INDEX") => self.drop_index(),
            () if self.word("SCOPE") => {
                let before = self.if_exists();
                let path = self.path()?;
                Ok(Statement::DropScope { path, if_exists: before || self.if_exists() })
            }
            () if self.word("COLLECTION") => {
                let before = self.if_exists();
                let path = self.path()?;
                Ok(Statement::DropCollection { path, if_exists: before || self.if_exists() })
            }
            () if self.word("FUNCTION") => {
                let before = self.if_exists();
                let path = self.path()?;
                Ok(Statement::DropFunction { path, if_exists: before || self.if_exists() })
            }
            () => self.fail("expected INDEX, PRIMARY INDEX, SCOPE, COLLECTION or FUNCTION"),
        }
    }

    fn drop_primary(&mut self) -> Result<Statement> {
        let before = self.if_exists();
        let name = self.name_if_any().unwrap_or_else(|| "#primary".into());
        let if_exists = before || self.if_exists();
        self.expect_word("ON")?;
        let keyspace = self.path()?;
        let _ = self.word("USING GSI");
        Ok(Statement::DropIndex { name, keyspace, if_exists, primary: true })
    }

    fn drop_index(&mut self) -> Result<Statement> {
        let before = self.if_exists();
        let path = self.path()?;
        let if_exists = before || self.if_exists();
        let (name, keyspace) = self.index_of(path)?;
        let _ = self.word("USING GSI");
        Ok(Statement::DropIndex { name, keyspace, if_exists, primary: false })
    }

    /// Both ways of naming an index: `index ON keyspace` and `keyspace.index`.
    pub(super) fn index_of(&mut self, mut path: Path) -> Result<(Name, Path)> {
        if path.parts.len() == 1 && path.namespace.is_none() {
            self.expect_word("ON")?;
            return Ok((path.parts.remove(0), self.path()?));
        }
        match path.parts.pop() {
            Some(name) if !path.parts.is_empty() => Ok((name, path)),
            _ => self.fail("expected a keyspace, a dot and an index"),
        }
    }

    pub(super) fn build(&mut self) -> Result<Statement> {
        self.expect_word("INDEX")?;
        self.expect_word("ON")?;
        let keyspace = self.path()?;
        let names = self.index_names()?;
        let _ = self.word("USING GSI");
        Ok(Statement::BuildIndex { keyspace, names })
    }

    /// Names of indexes in parentheses, or expressions that give some.
    pub(super) fn index_names(&mut self) -> Result<Vec<Expr>> {
        self.expect("(")?;
        let names = self.list(|p| match p.name_if_any() {
            Some(name) => Ok(Expr::Literal(Value::String(name))),
            None => p.expr(),
        })?;
        self.expect(")")?;
        Ok(names)
    }

    pub(super) fn alter(&mut self) -> Result<Statement> {
        if let Some(statement) = self.alter_admin()? {
            return Ok(statement);
        }
        self.expect_word("INDEX")?;
        let path = self.path()?;
        let (name, keyspace) = self.index_of(path)?;
        let _ = self.word("USING GSI");
        Ok(Statement::AlterIndex { name, keyspace, with: self.with_options()? })
    }

    fn create_function(&mut self, replace: bool) -> Result<Statement> {
        let before = self.if_not_exists();
        let path = self.path()?;
        self.expect("(")?;
        let parameters = match () {
            () if self.is_symbol(")") => Some(Vec::new()),
            () if self.symbol(".") => {
                self.expect(".")?;
                self.expect(".")?;
                None
            }
            () => Some(self.list(|p| p.name())?),
        };
        self.expect(")")?;
        let if_not_exists = before || self.if_not_exists();
        let body = self.function_body()?;
        let function = CreateFunction { path, replace, if_not_exists, parameters, body };
        Ok(Statement::CreateFunction(Box::new(function)))
    }

    fn function_body(&mut self) -> Result<FunctionBody> {
        if self.symbol("{") {
            let body = self.expr_as_written()?;
            self.expect("}")?;
            return Ok(body);
        }
        if self.word("LANGUAGE JAVASCRIPT") {
            return self.script();
        }
        if self.word("LANGUAGE WASM") {
            return self.deployed();
        }
        if self.word("LANGUAGE") && !self.word("INLINE") {
            return self.fail("expected INLINE, JAVASCRIPT or WASM");
        }
        self.expect_word("AS")?;
        self.expr_as_written()
    }

    fn script(&mut self) -> Result<FunctionBody> {
        self.expect_word("AS")?;
        let code = self.string("expected JavaScript, or the name of a function, in quotes")?;
        Ok(match self.word("AT") {
            true => FunctionBody::External(code, self.string("expected the name of a library")?),
            false => FunctionBody::Script(code),
        })
    }

    fn deployed(&mut self) -> Result<FunctionBody> {
        self.expect_word("AS")?;
        let function = self.string("expected the name of a function in quotes")?;
        self.expect_word("AT")?;
        let deployment = self.string("expected the name of a deployment in quotes")?;
        Ok(FunctionBody::Deployed(function, deployment))
    }

    fn expr_as_written(&mut self) -> Result<FunctionBody> {
        let from = self.offset();
        let body = self.expr()?;
        Ok(FunctionBody::Expr(body, self.text_since(from)))
    }

    fn string(&mut self, wanted: &str) -> Result<Name> {
        let Token::String(text) = self.peek().clone() else { return self.fail(wanted) };
        self.advance();
        Ok(text)
    }
}

/// The value of an expression of literals alone.
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
