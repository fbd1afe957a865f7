//! Parses statements about users, groups, roles, buckets and sequences.

use super::Parser;
use super::ddl::with_options;
use crate::ast::{
    AdminStatement, Expr, Grant, GroupChange, Path, SequenceOptions, Statement, UserChange,
};
use crate::lexer::Token;
use crate::{Error, Name, Result, Value, functions};

/// Parses the rest of a CREATE statement for a user, a group, a bucket or a sequence.
pub(super) fn create_admin(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let statement = match () {
        () if parser.word("USER") => AdminStatement::PutUser(user_change(parser, true)?),
        () if parser.word("GROUP") => AdminStatement::PutGroup(group_change(parser, true)?),
        () if parser.word("BUCKET") || parser.word("DATABASE") => {
            let before = parser.word("IF NOT EXISTS");
            let name = bucket_name(parser)?;
            let if_not_exists = before || parser.word("IF NOT EXISTS");
            let with = with_options(parser)?;
            AdminStatement::CreateBucket { name, if_not_exists, with }
        }
        () if parser.word("SEQUENCE") => {
            let before = parser.word("IF NOT EXISTS");
            let path = parser.path()?;
            let if_not_exists = before || parser.word("IF NOT EXISTS");
            let options = sequence_options(parser, false)?;
            AdminStatement::CreateSequence { path, if_not_exists, options }
        }
        () => return Ok(None),
    };
    Ok(Some(Statement::Admin(Box::new(statement))))
}

/// Parses the rest of an ALTER statement for one of these.
pub(super) fn alter_admin(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let statement = match () {
        () if parser.word("USER") => AdminStatement::PutUser(user_change(parser, false)?),
        () if parser.word("GROUP") => AdminStatement::PutGroup(group_change(parser, false)?),
        () if parser.word("BUCKET") || parser.word("DATABASE") => {
            let name = bucket_name(parser)?;
            let with = with_options(parser)?;
            if with.as_object().is_none_or(indexmap::IndexMap::is_empty) {
                return parser.fail("expected WITH and options");
            }
            AdminStatement::AlterBucket { name, with }
        }
        () if parser.word("SEQUENCE") => {
            let path = parser.path()?;
            AdminStatement::AlterSequence { path, options: sequence_options(parser, true)? }
        }
        () if parser.word("COLLECTION") => {
            let path = parser.path()?;
            let with = with_options(parser)?;
            if with.as_object().is_none_or(indexmap::IndexMap::is_empty) {
                return parser.fail("expected WITH and options");
            }
            AdminStatement::AlterCollection { path, with }
        }
        () => return Ok(None),
    };
    Ok(Some(Statement::Admin(Box::new(statement))))
}

/// Parses the rest of a DROP statement for one of these.
pub(super) fn drop_admin(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let statement = match () {
        () if parser.word("USER") => {
            let before = parser.word("IF EXISTS");
            let name = user_name(parser)?;
            AdminStatement::DropUser { name, if_exists: before || parser.word("IF EXISTS") }
        }
        () if parser.word("GROUP") => {
            let before = parser.word("IF EXISTS");
            let name = user_name(parser)?;
            AdminStatement::DropGroup { name, if_exists: before || parser.word("IF EXISTS") }
        }
        () if parser.word("BUCKET") || parser.word("DATABASE") => {
            let before = parser.word("IF EXISTS");
            let name = bucket_name(parser)?;
            AdminStatement::DropBucket { name, if_exists: before || parser.word("IF EXISTS") }
        }
        () if parser.word("SEQUENCE") => {
            let before = parser.word("IF EXISTS");
            let path = parser.path()?;
            AdminStatement::DropSequence { path, if_exists: before || parser.word("IF EXISTS") }
        }
        () => return Ok(None),
    };
    Ok(Some(Statement::Admin(Box::new(statement))))
}

/// Parses the name of a bucket, with an optional namespace.
fn bucket_name(parser: &mut Parser<'_>) -> Result<Name> {
    let name = parser.name()?;
    if parser.symbol(":") { parser.any_name() } else { Ok(name) }
}

/// Parses FLUSH COLLECTION and TRUNCATE COLLECTION after their first word.
pub(super) fn flush(parser: &mut Parser<'_>) -> Result<Statement> {
    if !parser.word("COLLECTION") && !parser.word("KEYSPACE") {
        return parser.fail("expected COLLECTION");
    }
    let path = parser.path()?;
    Ok(Statement::Admin(Box::new(AdminStatement::FlushCollection(path))))
}

/// Parses GRANT and REVOKE after their first word.
pub(super) fn grant(parser: &mut Parser<'_>, revoke: bool) -> Result<Statement> {
    let _ = parser.word("ROLE") || parser.word("ROLES");
    let names = parser.list(role_name)?;
    let on = if parser.word("ON") { parser.list(role_keyspace)? } else { Vec::new() };
    parser.expect_word(if revoke { "FROM" } else { "TO" })?;
    let to_groups = parser.word("GROUP") || parser.word("GROUPS");
    let _ = to_groups || parser.word("USER") || parser.word("USERS");
    let grantees = parser.list(user_name)?;
    let grant = Grant { roles: roles_on(&names, &on), to_groups, grantees, revoke };
    Ok(Statement::Admin(Box::new(AdminStatement::Grant(grant))))
}

/// Parses the name of a role; `select`, `insert` and others mean the query roles.
fn role_name(parser: &mut Parser<'_>) -> Result<String> {
    let Token::Word(word) = parser.peek().clone() else {
        return parser.name().map(|name| name.to_string());
    };
    parser.advance();
    let lower = word.to_ascii_lowercase();
    Ok(match lower.as_str() {
        "select" | "insert" | "update" | "delete" => format!("query_{lower}"),
        _ => lower,
    })
}

fn role_keyspace(parser: &mut Parser<'_>) -> Result<Path> {
    let _ = parser.word("BUCKET") || parser.word("SCOPE") || parser.word("COLLECTION");
    parser.path()
}

/// Parses the name of a user or group, with an optional domain.
fn user_name(parser: &mut Parser<'_>) -> Result<Name> {
    let name = match parser.peek().clone() {
        Token::String(name) => {
            parser.advance();
            name
        }
        _ => parser.any_name()?,
    };
    if !parser.symbol(":") {
        return Ok(name);
    }
    if !name.eq_ignore_ascii_case("local") {
        return Err(Error::new(5210, format!("There are no users of the domain {name}")));
    }
    parser.any_name()
}

fn text_option(parser: &mut Parser<'_>) -> Result<Name> {
    match parser.peek().clone() {
        Token::String(text) => {
            parser.advance();
            Ok(text)
        }
        _ => parser.fail("expected a text"),
    }
}

fn user_change(parser: &mut Parser<'_>, is_new: bool) -> Result<UserChange> {
    let name = user_name(parser)?;
    let mut change = UserChange { name, is_new, password: None, display_name: None, groups: None };
    loop {
        match () {
            () if parser.word("PASSWORD") => change.password = Some(text_option(parser)?),
            () if parser.word("WITH NAME") || parser.word("WITH") || parser.word("NAME") => {
                change.display_name = Some(text_option(parser)?);
            }
            () if parser.word("GROUPS") || parser.word("GROUP") => {
                change.groups = Some(parser.list(user_name)?);
            }
            () if parser.word("NO GROUPS") => change.groups = Some(Vec::new()),
            () => return Ok(change),
        }
    }
}

fn group_change(parser: &mut Parser<'_>, is_new: bool) -> Result<GroupChange> {
    let name = user_name(parser)?;
    let mut change = GroupChange { name, is_new, description: None, roles: None };
    loop {
        match () {
            () if parser.word("WITH") || parser.word("DESC") => {
                change.description = Some(text_option(parser)?);
            }
            () if parser.word("NO ROLES") => change.roles = Some(Vec::new()),
            () if parser.word("ROLES") || parser.word("ROLE") => {
                let roles = parser.list(|p| {
                    let name = role_name(p)?;
                    let on = if p.word("ON") { vec![role_keyspace(p)?] } else { Vec::new() };
                    Ok(roles_on(&[name], &on))
                })?;
                change.roles = Some(roles.concat());
            }
            () => return Ok(change),
        }
    }
}

/// Parses an integer, which may be negative.
fn whole_number(parser: &mut Parser<'_>) -> Result<i64> {
    match super::ddl::constant(&parser.expr()?) {
        Some(Value::Int(number)) => Ok(number),
        _ => parser.fail("expected a whole number"),
    }
}

fn sequence_options(parser: &mut Parser<'_>, may_restart: bool) -> Result<SequenceOptions> {
    let mut options = SequenceOptions::default();
    loop {
        match () {
            () if parser.word("START WITH") => options.start = Some(whole_number(parser)?),
            () if may_restart && parser.word("RESTART") => {
                options.restart = true;
                if parser.word("WITH") {
                    options.restart_with = Some(whole_number(parser)?);
                }
            }
            () if parser.word("INCREMENT BY") => options.increment = Some(whole_number(parser)?),
            () if parser.word("NO MAXVALUE") => options.max = Some(i64::MAX),
            () if parser.word("MAXVALUE") => options.max = Some(whole_number(parser)?),
            () if parser.word("NO MINVALUE") => options.min = Some(i64::MIN),
            () if parser.word("MINVALUE") => options.min = Some(whole_number(parser)?),
            () if parser.word("NO CYCLE") => options.cycle = Some(false),
            () if parser.word("CYCLE") => options.cycle = Some(true),
            () if parser.word("NO CACHE") => options.cache = Some(1),
            () if parser.word("CACHE") => options.cache = Some(whole_number(parser)?),
            () if parser.is_word("WITH") => {
                let with = with_options(parser)?;
                options_of_object(parser, &with, &mut options, may_restart)?;
            }
            () => return Ok(options),
        }
    }
}

fn options_of_object(
    parser: &Parser<'_>,
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
            _ => return parser.fail(&format!("a sequence has no option {name} of {value}")),
        }
    }
    Ok(())
}

/// Parses `NEXTVAL FOR s` and `NEXT VALUE FOR s`, and the same forms for the previous value; `None` for other
/// text.
pub(super) fn value_of_sequence(parser: &mut Parser<'_>) -> Result<Option<Expr>> {
    let name = match () {
        () if parser.word("NEXTVAL FOR") || parser.word("NEXT VALUE FOR") => "NEXTVAL",
        () if parser.word("PREVVAL FOR") || parser.word("PREV VALUE FOR") => "PREVVAL",
        () => return Ok(None),
    };
    let path = parser.path()?.to_string();
    let function = functions::find(name).expect("it is in the table");
    Ok(Some(Expr::Call(function, vec![Expr::Literal(path.into())])))
}

/// Returns the texts of roles with the keyspaces that they are limited to.
fn roles_on(names: &[String], on: &[Path]) -> Vec<String> {
    let of = |name: &String| -> Vec<String> {
        let place = |path: &Path| format!("{name}[{}]", path.parts.join(":"));
        if on.is_empty() { vec![name.clone()] } else { on.iter().map(place).collect() }
    };
    names.iter().flat_map(of).collect()
}
