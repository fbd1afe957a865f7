//! Functions that need information from outside of an expression: about the user, the node and the
//! schema.

use crate::administer;
use crate::curl;
use crate::infer;
use crate::resolve::resolve;
use crate::run::Run;
use nacre_sql::ast::Statement;
use nacre_sql::{Error, Name, Result, Value, parse};

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-nacre");

/// The catalog with a single row for the answering node; users cannot write its name without quotes.
const NODE: &str = "#node";

/// Evaluates a function.
pub(crate) fn call(name: &str, args: &[Value], run: &Run<'_>) -> Result<Value> {
    match name {
        "ADVISOR" => advisor(&args[0], run),
        "CURL" => curl::call(args, run),
        "CURRENT_USERS" => Ok(users(run)),
        "DS_VERSION" => Ok(VERSION.into()),
        "EVALUATE" => evaluate(args, run),
        "EXTRACTDDL" => definitions(args, run),
        "FORMALIZE" => Ok(formalize(&args[0])),
        "NEXTVAL" | "PREVVAL" => administer::value_of_sequence(name, args, run),
        "NODE_NAME" => Ok(node(run)?.field("name")),
        "NODE_UUID" => Ok(node(run)?.field("uuid")),
        "QUERY_CONTEXT" => {
            let context = run.settings.context.as_ref();
            Ok(context.map_or("default:".into(), |path| unquoted(&path.to_string())))
        }
        other => Err(Error::new(10101, format!("Function not found: {other}"))),
    }
}

fn unquoted(path: &str) -> Value {
    let path = path.replace('`', "");
    if path.contains(':') { path.into() } else { format!("default:{path}").into() }
}

fn users(run: &Run<'_>) -> Value {
    let user = run.store.user();
    let users = if user.is_empty() { Vec::new() } else { vec![format!("local:{user}").into()] };
    Value::array(users)
}

pub(crate) fn node(run: &Run<'_>) -> Result<Value> {
    let rows = run.store.catalog(NODE)?.unwrap_or_default();
    Ok(rows.into_iter().next().map_or(Value::Null, |(_, row)| row))
}

/// Runs a read-only statement and returns its rows.
fn evaluate(args: &[Value], run: &Run<'_>) -> Result<Value> {
    let Some(text) = args[0].as_str() else { return Ok(Value::Null) };
    let text = if text.trim_start().is_empty() { return Ok(Value::Null) } else { text };
    // An expression is evaluated as the projection of a query.
    let statement =
        parse(text).or_else(|error| parse(&format!("SELECT RAW {text}")).map_err(|_| error))?;
    let mut settings = run.settings.clone();
    settings.readonly = true;
    match args.get(1) {
        None => {}
        Some(Value::Array(args)) => settings.positional = args.to_vec(),
        Some(Value::Object(args)) => {
            let named = args.iter();
            settings.named = named
                .map(|(name, value)| (name.trim_start_matches('$').into(), value.clone()))
                .collect();
        }
        Some(_) => return Ok(Value::Null),
    }
    if !matches!(statement, Statement::Select(_)) {
        return Err(Error::execution("EVALUATE takes a query"));
    }
    run.nested(|| {
        let inner = Run { settings: &settings, ..*run };
        let rows = inner.service.rows_of(statement, &inner, &inner.context())?;
        Ok(Value::array(rows))
    })
}

/// Returns advice for one or more statements.
fn advisor(argument: &Value, run: &Run<'_>) -> Result<Value> {
    if argument.as_object().is_some() {
        let message = "ADVISOR has no sessions: give it a statement, or an array of statements";
        return Err(Error::execution(message));
    }
    let of = |text: &Value| -> Result<Value> {
        let Some(text) = text.as_str() else { return Ok(Value::Null) };
        let mut statement = parse(text)?;
        resolve(&mut statement)?;
        Ok(infer::advise(&statement, text, run))
    };
    let statements = argument.as_array().unwrap_or(std::slice::from_ref(argument));
    let mut recommended: Vec<Value> = Vec::new();
    for statement in statements {
        let advice = of(statement)?.field("adviseinfo").field("recommended_indexes");
        for index in advice.field("indexes").as_array().unwrap_or_default() {
            let entry = Value::object([
                ("index", index.field("index_statement")),
                (
                    "statements",
                    vec![Value::object([
                        ("statement", statement.clone()),
                        ("run_count", Value::Int(1)),
                    ])]
                    .into(),
                ),
            ]);
            if !recommended.contains(&entry) {
                recommended.push(entry);
            }
        }
    }
    Ok(Value::object([("recommended_indexes", Value::array(recommended))]))
}

/// Returns a query in canonical form, or the text of another statement.
fn formalize(text: &Value) -> Value {
    let Some(text) = text.as_str() else { return Value::Null };
    match parse(text) {
        Ok(Statement::Select(select)) => select.to_string().into(),
        Ok(_) => text.into(),
        Err(_) => Value::Null,
    }
}

/// Returns the statements that create the schema: `EXTRACTDDL(bucket, {"flags": […]})`.
fn definitions(args: &[Value], run: &Run<'_>) -> Result<Value> {
    let bucket = args.first().and_then(Value::as_str).filter(|name| !name.is_empty());
    let flags = args.get(1).map(|options| options.field("flags")).unwrap_or_default();
    let wants = |kind: &str| match flags.as_array() {
        None | Some([]) => true,
        Some(flags) => flags.iter().any(|flag| flag.as_str() == Some(kind)),
    };
    let mut statements: Vec<Value> = Vec::new();
    let rows = |name: &str| -> Result<Vec<(Name, Value)>> {
        Ok(run.store.catalog(name)?.unwrap_or_default())
    };
    let of_bucket = |row: &Value| {
        let name = match row.field("bucket").is_missing() {
            true if row.field("bucket_id").is_missing() => row.field("name"),
            true => row.field("bucket_id"),
            false => row.field("bucket"),
        };
        bucket.is_none_or(|bucket| name.as_str() == Some(bucket))
    };
    let path = |row: &Value, names: &[&str]| {
        let parts =
            names.iter().map(|name| format!("`{}`", row.field(name).as_str().unwrap_or_default()));
        parts.collect::<Vec<_>>().join(".")
    };
    let is_own = |name: Value| name.as_str().is_some_and(|name| !name.starts_with('_'));
    if wants("scope") {
        let scopes = rows("scopes")?.into_iter().map(|(_, row)| row);
        let scopes = scopes.filter(|row| of_bucket(row) && is_own(row.field("name")));
        statements.extend(
            scopes.map(|row| format!("CREATE SCOPE {};", path(&row, &["bucket", "name"])).into()),
        );
    }
    let keyspaces: Vec<Value> = rows("keyspaces")?.into_iter().map(|(_, row)| row).collect();
    if wants("collection") {
        let own = keyspaces.iter().filter(|row| of_bucket(row) && is_own(row.field("name")));
        let own = own.filter(|row| !row.field("scope").is_missing());
        statements.extend(own.map(|row| {
            format!("CREATE COLLECTION {};", path(row, &["bucket", "scope", "name"])).into()
        }));
    }
    if wants("index") {
        for row in keyspaces.iter().filter(|row| of_bucket(row)) {
            let Some(text) = row.field("path").as_str().map(str::to_owned) else { continue };
            let Ok(keyspace) = nacre_sql::parse_path(&text).and_then(|path| run.keyspace(&path))
            else {
                continue;
            };
            let indexes = run.store.indexes(&keyspace)?;
            statements.extend(indexes.iter().map(|index| format!("{};", index.definition).into()));
        }
    }
    if wants("function") {
        let functions = run.store.functions()?.into_iter();
        let wanted = functions.filter(|(path, _)| {
            bucket.is_none_or(|bucket| path.scope.as_ref().is_some_and(|(of, _)| **of == *bucket))
        });
        statements.extend(wanted.map(|(_, text)| format!("{text};").into()));
    }
    Ok(Value::array(statements))
}
