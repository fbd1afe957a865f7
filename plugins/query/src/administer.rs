//! Statements about users, groups, roles, buckets, collections and sequences: converts them into requests to
//! the store.

use crate::run::Run;
use crate::statistics;
use nacre_datastore::{Action, Keyspace, Mutation, Rights};
use nacre_sql::ast::{AdminStatement, Path, SequenceOptions};
use nacre_sql::{Context, Error, Name, Result, SEMANTICS, Value, parse_path};

/// Number of documents removed at a time.
const BATCH: usize = 512;

/// Error codes of sequences. Source: Couchbase's list.
const SEQUENCE_NAME: u32 = 19116;
const SEQUENCE_RANGE: u32 = 19104;
const SEQUENCE_CACHE: u32 = 19105;
const SEQUENCE_NOT_FOUND: u32 = 19106;
const SEQUENCE_EXISTS: u32 = 19108;
const READ_ONLY: u32 = 19114;
const USER_NOT_FOUND: u32 = 5210;
const BUCKET_NOT_FOUND: u32 = 12020;
/// Code of an invalid bucket option. Source: Couchbase's list.
const BUCKET_ACTION: u32 = 5502;

/// Executes a statement.
pub(crate) fn administer(
    statement: &AdminStatement,
    run: &Run<'_>,
    context: &Context<'_>,
) -> Result<()> {
    let names = |names: &[Name]| -> Value {
        names.iter().cloned().map(Value::from).collect::<Vec<_>>().into()
    };
    let texts = |texts: &[String]| -> Value {
        texts.iter().map(|text| text.as_str().into()).collect::<Vec<_>>().into()
    };
    let text = |text: &Option<Name>| text.clone().map_or(Value::Missing, Value::from);
    match statement {
        AdminStatement::PutUser(change) => ask(
            run,
            "put_user",
            vec![
                ("name", change.name.clone().into()),
                ("is_new", change.is_new.into()),
                ("password", text(&change.password)),
                ("display_name", text(&change.display_name)),
                ("groups", change.groups.as_deref().map_or(Value::Missing, names)),
            ],
        ),
        AdminStatement::DropUser { name, if_exists } => {
            let done = ask(run, "drop_user", vec![("name", name.clone().into())]);
            unless(*if_exists, USER_NOT_FOUND, done)
        }
        AdminStatement::PutGroup(change) => ask(
            run,
            "put_group",
            vec![
                ("name", change.name.clone().into()),
                ("is_new", change.is_new.into()),
                ("description", text(&change.description)),
                ("roles", change.roles.as_deref().map_or(Value::Missing, texts)),
            ],
        ),
        AdminStatement::DropGroup { name, if_exists } => {
            let done = ask(run, "drop_group", vec![("name", name.clone().into())]);
            unless(*if_exists, USER_NOT_FOUND, done)
        }
        AdminStatement::Grant(grant) => {
            let (mut users, mut groups) = (names(&grant.grantees), Value::array(Vec::new()));
            if grant.to_groups {
                std::mem::swap(&mut users, &mut groups);
            }
            let fields = vec![
                ("roles", texts(&grant.roles)),
                ("users", users),
                ("groups", groups),
                ("revoke", grant.revoke.into()),
            ];
            ask(run, "grant", fields)
        }
        AdminStatement::CreateBucket { name, if_not_exists, with } => {
            let forgives = ("if_not_exists", Value::Bool(*if_not_exists));
            ask(run, "create_bucket", [bucket(name, with)?, vec![forgives]].concat())
        }
        AdminStatement::AlterBucket { name, with } => ask(run, "alter_bucket", bucket(name, with)?),
        AdminStatement::DropBucket { name, if_exists } => {
            let done = ask(run, "drop_bucket", vec![("name", name.clone().into())]);
            unless(*if_exists, BUCKET_NOT_FOUND, done)
        }
        AdminStatement::Statistics(statistics) => statistics::update(statistics, run, context),
        AdminStatement::AlterCollection { path, with } => alter_collection(path, with, run),
        AdminStatement::FlushCollection(path) => flush(&run.keyspace(path)?, run),
        AdminStatement::CreateSequence { path, if_not_exists, options } => {
            let mut fields = sequence(path, run)?;
            fields.push(("options", options_of(options)?));
            unless(*if_not_exists, SEQUENCE_EXISTS, ask(run, "create_sequence", fields))
        }
        AdminStatement::AlterSequence { path, options } => {
            let mut fields = sequence(path, run)?;
            fields.push(("options", options_of(options)?));
            ask(run, "alter_sequence", fields)
        }
        AdminStatement::DropSequence { path, if_exists } => {
            let done = ask(run, "drop_sequence", sequence(path, run)?);
            unless(*if_exists, SEQUENCE_NOT_FOUND, done)
        }
    }
}

/// Evaluates NEXTVAL and PREVVAL.
pub(crate) fn value_of_sequence(name: &str, args: &[Value], run: &Run<'_>) -> Result<Value> {
    let Some(text) = args[0].as_str() else { return Ok(Value::Null) };
    if run.settings.readonly && name == "NEXTVAL" {
        let message = "Sequences cannot be used in read-only requests";
        return Err(Error::new(READ_ONLY, message));
    }
    let what = if name == "NEXTVAL" { "next_value" } else { "previous_value" };
    asked(run, what, sequence(&parse_path(text)?, run)?)
}

fn asked(run: &Run<'_>, what: &'static str, fields: Vec<(&'static str, Value)>) -> Result<Value> {
    let fields = std::iter::once(("do", Value::from(what))).chain(fields);
    run.store.administer(&Value::object(fields))
}

fn ask(run: &Run<'_>, what: &'static str, fields: Vec<(&'static str, Value)>) -> Result<()> {
    asked(run, what, fields).map(drop)
}

/// Ignores an error if the statement allows it.
fn unless(is_forgiven: bool, code: u32, done: Result<()>) -> Result<()> {
    match done {
        Err(error) if is_forgiven && error.code == code => Ok(()),
        done => done,
    }
}

/// Returns bucket, scope and name of a sequence.
fn sequence(path: &Path, run: &Run<'_>) -> Result<Vec<(&'static str, Value)>> {
    let context = run.settings.context.as_ref().map(|context| &context.parts[..]);
    let (bucket, scope, name) = match (&path.parts[..], context) {
        ([name], Some([bucket, scope])) if path.namespace.is_none() => (bucket, scope, name),
        ([bucket, scope, name], _) => (bucket, scope, name),
        _ => {
            let message = format!(
                "A sequence is bucket.scope.name, or a name within a query context, and not {path}"
            );
            return Err(Error::new(SEQUENCE_NAME, message));
        }
    };
    Ok(vec![
        ("bucket", bucket.clone().into()),
        ("scope", scope.clone().into()),
        ("name", name.clone().into()),
    ])
}

fn options_of(options: &SequenceOptions) -> Result<Value> {
    if options.increment == Some(0)
        || options.min.zip(options.max).is_some_and(|(min, max)| min > max)
    {
        return Err(Error::new(SEQUENCE_RANGE, "Invalid range of a sequence"));
    }
    if options.cache.is_some_and(|cache| !(0..=1 << 20).contains(&cache)) {
        return Err(Error::new(SEQUENCE_CACHE, "Invalid cache of a sequence"));
    }
    let number = |number: Option<i64>| number.map_or(Value::Missing, Value::Int);
    Ok(Value::object([
        ("start", number(options.start)),
        ("increment", number(options.increment)),
        ("min", number(options.min)),
        ("max", number(options.max)),
        ("cycle", options.cycle.map_or(Value::Missing, Value::Bool)),
        ("cache", number(options.cache)),
        ("restart", options.restart.into()),
        ("restart_with", number(options.restart_with)),
    ]))
}

/// Returns a bucket, with settings named as in the management API.
fn bucket(name: &Name, with: &Value) -> Result<Vec<(&'static str, Value)>> {
    let mut fields = Vec::new();
    for (option, value) in with.as_object().into_iter().flatten() {
        let text: Value = match value {
            Value::String(_) => value.clone(),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => value.to_string().into(),
            _ => {
                let message = format!("Bucket {name}: {option} cannot be {value}");
                return Err(Error::new(BUCKET_ACTION, message));
            }
        };
        fields.push(vec![option.clone().into(), text].into());
    }
    Ok(vec![("name", name.clone().into()), ("fields", Value::array(fields))])
}

fn alter_collection(path: &Path, with: &Value, run: &Run<'_>) -> Result<()> {
    let keyspace = run.keyspace(path)?;
    if let Some((name, _)) =
        with.as_object().into_iter().flatten().find(|(name, _)| &***name != "maxTTL")
    {
        return Err(Error::new(SEMANTICS, format!("ALTER COLLECTION has no option {name}")));
    }
    let max_ttl = with.field("maxTTL").as_i64().filter(|ttl| i32::try_from(*ttl).is_ok());
    let max_ttl = max_ttl.ok_or_else(|| Error::new(SEMANTICS, "maxTTL is a number of seconds"))?;
    let fields = vec![
        ("bucket", keyspace.bucket.into()),
        ("scope", keyspace.scope.into()),
        ("collection", keyspace.collection.into()),
        ("max_ttl", Value::Int(max_ttl)),
    ];
    ask(run, "alter_collection", fields)
}

/// Removes all documents of a keyspace.
fn flush(keyspace: &Keyspace, run: &Run<'_>) -> Result<()> {
    run.store.authorize(keyspace, Rights::DELETE)?;
    loop {
        nacre_sql::Host::tick(run)?;
        let consistency = &run.settings.consistency;
        let found = run.store.scan(keyspace, None, false, BATCH, consistency)?;
        if found.is_empty() {
            return Ok(());
        }
        let removal = |id: Name| Mutation {
            action: Action::Remove(0),
            id,
            body: Vec::new(),
            expiration: None,
        };
        let removals: Vec<Mutation> =
            found.into_iter().map(|document| removal(document.id)).collect();
        for removed in run.store.mutate(keyspace, &removals)? {
            match removed {
                Ok(_) => run.state.mutation_count.set(run.state.mutation_count.get() + 1),
                // Another client has removed it.
                Err(nacre_datastore::Refusal::NotFound) => {}
                Err(nacre_datastore::Refusal::Other(error)) => return Err(error),
                Err(other) => return Err(Error::execution(format!("{other:?}"))),
            }
        }
    }
}
