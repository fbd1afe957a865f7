//! Users, groups, roles, buckets and sequences.

use super::Parser;
use crate::ast::{
    AdminStatement, Expr, Grant, GroupChange, Path, SequenceOptions, Statement, UserChange,
};
use crate::lexer::Token;
use crate::{Error, Name, Result, Value, functions};

impl Parser<'_> {
    /// What follows CREATE, if it makes a user, a group or a sequence.
    pub(super) fn create_admin(&mut self) -> Result<Option<Statement>> {
        let statement = match () {
            () if self.word("USER") => AdminStatement::PutUser(self.user_change(true)?),
            () if self.word("GROUP") => AdminStatement::PutGroup(self.group_change(true)?),
            () if self.word("BUCKET") || self.word("DATABASE") => {
                let before = self.word("IF NOT EXISTS");
                let name = self.bucket_name()?;
                let if_not_exists = before || self.word("IF NOT EXISTS");
                let with = self.with_options()?;
                AdminStatement::CreateBucket { name, if_not_exists, with }
            }
            () if self.word("SEQUENCE") => {
                let before = self.word("IF NOT EXISTS");
                let path = self.path()?;
                let if_not_exists = before || self.word("IF NOT EXISTS");
                let options = self.sequence_options(false)?;
                AdminStatement::CreateSequence { path, if_not_exists, options }
            }
            () => return Ok(None),
        };
        Ok(Some(Statement::Admin(Box::new(statement))))
    }

    /// The same after ALTER.
    pub(super) fn alter_admin(&mut self) -> Result<Option<Statement>> {
        let statement = match () {
            () if self.word("USER") => AdminStatement::PutUser(self.user_change(false)?),
            () if self.word("GROUP") => AdminStatement::PutGroup(self.group_change(false)?),
            () if self.word("BUCKET") || self.word("DATABASE") => {
                let name = self.bucket_name()?;
                let with = self.with_options()?;
                if with.as_object().is_none_or(indexmap::IndexMap::is_empty) {
                    return self.fail("expected WITH and options");
                }
                AdminStatement::AlterBucket { name, with }
            }
            () if self.word("SEQUENCE") => {
                let path = self.path()?;
                AdminStatement::AlterSequence { path, options: self.sequence_options(true)? }
            }
            () if self.word("COLLECTION") => {
                let path = self.path()?;
                let with = self.with_options()?;
                if with.as_object().is_none_or(indexmap::IndexMap::is_empty) {
                    return self.fail("expected WITH and options");
                }
                AdminStatement::AlterCollection { path, with }
            }
            () => return Ok(None),
        };
        Ok(Some(Statement::Admin(Box::new(statement))))
    }

    /// The same after DROP.
    pub(super) fn drop_admin(&mut self) -> Result<Option<Statement>> {
        let statement = match () {
            () if self.word("USER") => {
                let before = self.word("IF EXISTS");
                let name = self.user_name()?;
                AdminStatement::DropUser { name, if_exists: before || self.word("IF EXISTS") }
            }
            () if self.word("GROUP") => {
                let before = self.word("IF EXISTS");
                let name = self.user_name()?;
                AdminStatement::DropGroup { name, if_exists: before || self.word("IF EXISTS") }
            }
            () if self.word("BUCKET") || self.word("DATABASE") => {
                let before = self.word("IF EXISTS");
                let name = self.bucket_name()?;
                AdminStatement::DropBucket { name, if_exists: before || self.word("IF EXISTS") }
            }
            () if self.word("SEQUENCE") => {
                let before = self.word("IF EXISTS");
                let path = self.path()?;
                AdminStatement::DropSequence { path, if_exists: before || self.word("IF EXISTS") }
            }
            () => return Ok(None),
        };
        Ok(Some(Statement::Admin(Box::new(statement))))
    }

    /// The name of a bucket, which may stand behind its namespace.
    fn bucket_name(&mut self) -> Result<Name> {
        let name = self.name()?;
        if self.symbol(":") { self.any_name() } else { Ok(name) }
    }

    /// FLUSH COLLECTION and TRUNCATE COLLECTION, behind their first words.
    pub(super) fn flush(&mut self) -> Result<Statement> {
        if !self.word("COLLECTION") && !self.word("KEYSPACE") {
            return self.fail("expected COLLECTION");
        }
        let path = self.path()?;
        Ok(Statement::Admin(Box::new(AdminStatement::FlushCollection(path))))
    }

    /// GRANT and REVOKE, behind their first words.
    pub(super) fn grant(&mut self, revoke: bool) -> Result<Statement> {
        let _ = self.word("ROLE") || self.word("ROLES");
        let names = self.list(|p| p.role_name())?;
        let on = if self.word("ON") { self.list(|p| p.role_keyspace())? } else { Vec::new() };
        self.expect_word(if revoke { "FROM" } else { "TO" })?;
        let to_groups = self.word("GROUP") || self.word("GROUPS");
        let _ = to_groups || self.word("USER") || self.word("USERS");
        let grantees = self.list(|p| p.user_name())?;
        let grant = Grant { roles: roles_on(&names, &on), to_groups, grantees, revoke };
        Ok(Statement::Admin(Box::new(AdminStatement::Grant(grant))))
    }

    /// The name of a role; `select` and its kin are those of queries.
    fn role_name(&mut self) -> Result<String> {
        let Token::Word(word) = self.peek().clone() else {
            return self.name().map(|name| name.to_string());
        };
        self.advance();
        let lower = word.to_ascii_lowercase();
        Ok(match lower.as_str() {
            "select" | "insert" | "update" | "delete" => format!("query_{lower}"),
            _ => lower,
        })
    }

    fn role_keyspace(&mut self) -> Result<Path> {
        let _ = self.word("BUCKET") || self.word("SCOPE") || self.word("COLLECTION");
        self.path()
    }

    /// The name of a user or group, which may stand behind its domain.
    fn user_name(&mut self) -> Result<Name> {
        let name = match self.peek().clone() {
            Token::String(name) => {
                self.advance();
                name
            }
            _ => self.any_name()?,
        };
        if !self.symbol(":") {
            return Ok(name);
        }
        if !name.eq_ignore_ascii_case("local") {
            return Err(Error::new(5210, format!("There are no users of the domain {name}")));
        }
        self.any_name()
    }

    fn text_option(&mut self) -> Result<Name> {
        match self.peek().clone() {
            Token::String(text) => {
                self.advance();
                Ok(text)
            }
            _ => self.fail("expected a text"),
        }
    }

    fn user_change(&mut self, is_new: bool) -> Result<UserChange> {
        let name = self.user_name()?;
        let mut change =
            UserChange { name, is_new, password: None, display_name: None, groups: None };
        loop {
            match () {
                () if self.word("PASSWORD") => change.password = Some(self.text_option()?),
                () if self.word("WITH NAME") || self.word("WITH") || self.word("NAME") => {
                    change.display_name = Some(self.text_option()?);
                }
                () if self.word("GROUPS") || self.word("GROUP") => {
                    change.groups = Some(self.list(|p| p.user_name())?);
                }
                () if self.word("NO GROUPS") => change.groups = Some(Vec::new()),
                () => return Ok(change),
            }
        }
    }

    fn group_change(&mut self, is_new: bool) -> Result<GroupChange> {
        let name = self.user_name()?;
        let mut change = GroupChange { name, is_new, description: None, roles: None };
        loop {
            match () {
                () if self.word("WITH") || self.word("DESC") => {
                    change.description = Some(self.text_option()?);
                }
                () if self.word("NO ROLES") => change.roles = Some(Vec::new()),
                () if self.word("ROLES") || self.word("ROLE") => {
                    let roles = self.list(|p| {
                        let name = p.role_name()?;
                        let on = if p.word("ON") { vec![p.role_keyspace()?] } else { Vec::new() };
                        Ok(roles_on(&[name], &on))
                    })?;
                    change.roles = Some(roles.concat());
                }
                () => return Ok(change),
            }
        }
    }

    /// A whole number, which may be below zero.
    fn whole_number(&mut self) -> Result<i64> {
        match super::ddl::constant(&self.expr()?) {
            Some(Value::Int(number)) => Ok(number),
            _ => self.fail("expected a whole number"),
        }
    }

    fn sequence_options(&mut self, may_restart: bool) -> Result<SequenceOptions> {
        let mut options = SequenceOptions::default();
        loop {
            match () {
                () if self.word("START WITH") => options.start = Some(self.whole_number()?),
                () if may_restart && self.word("RESTART") => {
                    options.restart = true;
                    if self.word("WITH") {
                        options.restart_with = Some(self.whole_number()?);
                    }
                }
                () if self.word("INCREMENT BY") => options.increment = Some(self.whole_number()?),
                () if self.word("NO MAXVALUE") => options.max = Some(i64::MAX),
                () if self.word("MAXVALUE") => options.max = Some(self.whole_number()?),
                () if self.word("NO MINVALUE") => options.min = Some(i64::MIN),
                () if self.word("MINVALUE") => options.min = Some(self.whole_number()?),
                () if self.word("NO CYCLE") => options.cycle = Some(false),
                () if self.word("CYCLE") => options.cycle = Some(true),
                () if self.word("NO CACHE") => options.cache = Some(1),
                () if self.word("CACHE") => options.cache = Some(self.whole_number()?),
                () if self.is_word("WITH") => {
                    let with = self.with_options()?;
                    self.options_of_object(&with, &mut options, may_restart)?;
                }
                () => return Ok(options),
            }
        }
    }

    fn options_of_object(
        &self,
        with: &Value,
        options: &mut SequenceOptions,
        may_restart: bool,
    ) -> Result<()> {
        for (name, value) in with.as_object().into_iter().flatten() {
            match (&**name, value) {
                ("start", Value::Int(number)) => options.start = Some(*number),
                ("restart", Value::Int(number)) if may_restart => {
                    (options.restart, options.restart_with) = (true, Some(*number));
                }
                ("increment", Value::Int(number)) => options.increment = Some(*number),
                ("max", Value::Int(number)) => options.max = Some(*number),
                ("min", Value::Int(number)) => options.min = Some(*number),
                ("cycle", Value::Bool(cycle)) => options.cycle = Some(*cycle),
                ("cache", Value::Int(number)) => options.cache = Some(*number),
                _ => return self.fail(&format!("a sequence has no option {name} of {value}")),
            }
        }
        Ok(())
    }

    /// `NEXTVAL FOR s` and `NEXT VALUE FOR s`, and the same of the value before; none where something else stands.
    pub(super) fn value_of_sequence(&mut self) -> Result<Option<Expr>> {
        let name = match () {
            () if self.word("NEXTVAL FOR") || self.word("NEXT VALUE FOR") => "NEXTVAL",
            () if self.word("PREVVAL FOR") || self.word("PREV VALUE FOR") => "PREVVAL",
            () => return Ok(None),
        };
        let path = self.path()?.to_string();
        let function = functions::find(name).expect("it is in the table");
        Ok(Some(Expr::Call(function, vec![Expr::Literal(path.into())])))
    }
}

/// The texts of roles on what they are given for.
fn roles_on(names: &[String], on: &[Path]) -> Vec<String> {
    let of = |name: &String| -> Vec<String> {
        let place = |path: &Path| format!("{name}[{}]", path.parts.join(":"));
        if on.is_empty() { vec![name.clone()] } else { on.iter().map(place).collect() }
    };
    names.iter().flat_map(of).collect()
}
