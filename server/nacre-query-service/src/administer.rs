//! Statements about users, groups, roles, buckets, collections and sequences, and CURL. The instance sends them as JSON, and this
//! module executes them with the rights of the request's user.

use super::buckets::{Fields, alter_bucket, create_bucket, drop_bucket};
use super::curl::{CurlRequest, curl};
use super::failure::{code, failure, refused};
use super::requester::{Requester, lacks};
use super::session::Terms;
use super::statistics;
use super::transaction::Durability;
use super::vector_indexes;
use crate::NodeQueries;
use nacre_auth::{
    Credentials, Domain, Edit, Keyspace, Login, Privilege, Refused, Role, UserChange, UserEdit,
};
use nacre_bucket::before_blocking;
use nacre_cluster::{BucketChange, Change, FunctionId, QueryChange, Refusal, Sequence};
use nacre_node::Error;
use nacre_node::agreement::keyspace_exists;
use nacre_sandbox::{DatabaseKeyspace, Failure};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Code of a parameter value that is not valid. Source: Couchbase's list of error codes.
const UNKNOWN_VALUE: u32 = 1030;

/// How often a node tries to reserve values of a sequence from which other nodes reserve values too.
const TRIES_MAX: u32 = 64;

/// A statement.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Request {
    PutUser {
        name: String,
        is_new: bool,
        password: Option<String>,
        display_name: Option<String>,
        groups: Option<Vec<String>>,
    },
    DropUser {
        name: String,
    },
    PutGroup {
        name: String,
        is_new: bool,
        description: Option<String>,
        roles: Option<Vec<String>>,
    },
    DropGroup {
        name: String,
    },
    Grant {
        roles: Vec<String>,
        users: Vec<String>,
        groups: Vec<String>,
        revoke: bool,
    },
    CreateBucket {
        name: String,
        fields: Fields,
        if_not_exists: bool,
    },
    AlterBucket {
        name: String,
        fields: Fields,
    },
    DropBucket {
        name: String,
    },
    Curl(CurlRequest),
    /// Creates or drops a vector index.
    VectorIndex {
        bucket: String,
        scope: String,
        collection: String,
        change: Value,
    },
    /// Asks for the rows of vector indexes in `system:indexes`.
    VectorIndexes,
    /// Sets the terms of the request's reads and writes.
    SetTerms {
        scan_wait_ms: Option<u64>,
        durability: Option<String>,
    },
    /// Stores the statistics of a collection; without a row they are removed.
    PutStatistics {
        bucket: String,
        scope: String,
        collection: String,
        row: Option<Value>,
    },
    AlterCollection {
        bucket: String,
        scope: String,
        collection: String,
        max_ttl: i32,
    },
    CreateSequence {
        #[serde(flatten)]
        path: SequencePath,
        options: SequenceOptions,
    },
    AlterSequence {
        #[serde(flatten)]
        path: SequencePath,
        options: SequenceOptions,
    },
    DropSequence {
        #[serde(flatten)]
        path: SequencePath,
    },
    NextValue {
        #[serde(flatten)]
        path: SequencePath,
    },
    PreviousValue {
        #[serde(flatten)]
        path: SequencePath,
    },
}

#[derive(Deserialize)]
struct SequencePath {
    bucket: String,
    scope: String,
    name: String,
}

impl SequencePath {
    fn id(&self) -> FunctionId {
        let scope = Some((self.bucket.clone(), self.scope.clone()));
        FunctionId { scope, name: self.name.clone() }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SequenceOptions {
    start: Option<i64>,
    increment: Option<i64>,
    min: Option<i64>,
    max: Option<i64>,
    cycle: Option<bool>,
    cache: Option<u32>,
    /// True to restart, at `restart_with` if that is given.
    restart: bool,
    restart_with: Option<i64>,
}

/// Default number of values that a node reserves at a time. Source: Couchbase.
const CACHE: u32 = 50;

/// Values of a sequence that this node has reserved but not returned yet.
#[derive(Default)]
pub(super) struct ReservedValues {
    epoch: u64,
    increment: i64,
    /// The next value, and the number of remaining values.
    next: i64,
    left: u32,
    previous: Option<i64>,
}

/// Sequences of which this node has reserved values.
pub(super) type ReservedSequences = BTreeMap<String, ReservedValues>;

/// Executes a statement. `terms` are those of the request, which a statement may set.
pub(super) fn administer(
    requester: &Requester,
    terms: &Mutex<Terms>,
    request: &str,
    left: Duration,
) -> Result<String, Failure> {
    let unreadable =
        |error| failure(code::INTERNAL, format!("the statement cannot be read: {error}"));
    let request: Request = serde_json::from_str(request).map_err(unreadable)?;
    let answer = match request {
        Request::PutUser { name, is_new, password, display_name, groups } => {
            put_user(requester, &name, is_new, password.as_deref(), display_name, groups)?
        }
        Request::DropUser { name } => {
            edit_users(requester, Edit::RemoveUser { domain: Domain::Local, name })?
        }
        Request::PutGroup { name, is_new, description, roles } => {
            put_group(requester, &name, is_new, description, roles)?
        }
        Request::DropGroup { name } => edit_users(requester, Edit::RemoveGroup(name))?,
        Request::Grant { roles, users, groups, revoke } => {
            requester.require_whole(Privilege::AdministerUsers)?;
            let roles = roles_of(requester, &roles)?;
            edit_users(requester, Edit::Grant { roles, users, groups, revoke })?
        }
        Request::CreateBucket { name, fields, if_not_exists } => {
            create_bucket(requester, &name, &fields, if_not_exists)?
        }
        Request::AlterBucket { name, fields } => alter_bucket(requester, &name, &fields)?,
        Request::DropBucket { name } => drop_bucket(requester, &name)?,
        Request::Curl(request) => curl(requester, request, left)?,
        Request::VectorIndex { bucket, scope, collection, change } => {
            let keyspace = DatabaseKeyspace { bucket, scope, collection };
            vector_indexes::change(requester, &keyspace, &change, left)?
        }
        Request::VectorIndexes => vector_indexes::list(requester, left)?,
        Request::SetTerms { scan_wait_ms, durability } => {
            set_terms(terms, scan_wait_ms, durability.as_deref())?
        }
        Request::PutStatistics { bucket, scope, collection, row } => {
            let keyspace = DatabaseKeyspace { bucket, scope, collection };
            statistics::put(requester, &keyspace, row)?;
            Value::Null
        }
        Request::AlterCollection { bucket, scope, collection, max_ttl } => {
            requester.require_scope(Privilege::AdministerCollections, &bucket, &scope)?;
            let (max_ttl, history) = (Some(max_ttl), None);
            let change = Change::Buckets(BucketChange::UpdateCollection {
                bucket,
                scope,
                collection,
                max_ttl,
                history,
            });
            requester.change(&change)?;
            Value::Null
        }
        Request::CreateSequence { path, options } => create_sequence(requester, &path, &options)?,
        Request::AlterSequence { path, options } => alter_sequence(requester, &path, &options)?,
        Request::DropSequence { path } => {
            requester.require_scope(Privilege::AdministerCollections, &path.bucket, &path.scope)?;
            requester.change(&Change::Query(QueryChange::DropSequence { id: path.id() }))?;
            Value::Null
        }
        Request::NextValue { path } => next_value(requester, &path)?.into(),
        Request::PreviousValue { path } => previous_value(requester, &path)?,
    };
    Ok(answer.to_string())
}

/// Sets the terms of the request's reads and writes.
fn set_terms(
    terms: &Mutex<Terms>,
    scan_wait_ms: Option<u64>,
    durability: Option<&str>,
) -> Result<Value, Failure> {
    let durability = match durability {
        // The default means the usual durability in transactions, and none elsewhere.
        None | Some("") => Durability::None,
        Some(name) => Durability::of_name(name).ok_or_else(|| {
            failure(UNKNOWN_VALUE, format!("Unknown durability_level value: {name}"))
        })?,
    };
    let scan_wait = scan_wait_ms.map(Duration::from_millis);
    *terms.lock() = Terms { scan_wait, durability };
    Ok(Value::Null)
}

/// Checks that the user has an SQL++ privilege on the documents of a scope, which permits the use of its sequences.
fn require_sequences(requester: &Requester, bucket: &str, scope: &str) -> Result<(), Failure> {
    let keyspace = Keyspace { bucket: Some(bucket), scope: Some(scope), ..Keyspace::default() };
    if requester.may_query(keyspace) { Ok(()) } else { Err(lacks(Privilege::Query)) }
}

fn put_user(
    requester: &Requester,
    name: &str,
    is_new: bool,
    password: Option<&str>,
    display_name: Option<String>,
    groups: Option<Vec<String>>,
) -> Result<Value, Failure> {
    requester.require_whole(Privilege::AdministerUsers)?;
    check_name(name)?;
    if let Some(password) = password {
        let checked = requester.node.password_policy().check(password);
        checked.map_err(|reason| failure(code::INTERNAL, reason.to_string()))?;
    }
    let mut edit = UserEdit {
        name: name.to_owned(),
        creates: is_new,
        is_new,
        display_name,
        groups,
        at: u64::from(requester.node.now().unix_s()),
        ..UserEdit::default()
    };
    // The change is checked first, so that no password is hashed for a refused one.
    let change = UserChange { by: Some(login(requester)?), edit: Edit::User(edit.clone()) };
    requester.node.users().permit(&change).map_err(|refused| users_refused(&refused))?;
    if let Some(password) = password {
        before_blocking();
        edit.credentials = Some(Credentials::derive(password, requester.node.new_salt()));
    }
    edit_users(requester, Edit::User(edit))
}

/// Returns the login of the request's user.
fn login(requester: &Requester) -> Result<Login, Failure> {
    requester.login.clone().ok_or_else(|| users_refused(&Refused::LoginEnded))
}

/// Changes users for the request's user. The rights are checked when the change is applied.
fn edit_users(requester: &Requester, edit: Edit) -> Result<Value, Failure> {
    let change = UserChange { by: Some(login(requester)?), edit };
    requester.node.change_users(change).map_err(failed)?;
    Ok(Value::Null)
}

fn put_group(
    requester: &Requester,
    name: &str,
    is_new: bool,
    description: Option<String>,
    roles: Option<Vec<String>>,
) -> Result<Value, Failure> {
    requester.require_whole(Privilege::AdministerUsers)?;
    check_name(name)?;
    let roles = roles.map(|roles| roles_of(requester, &roles)).transpose()?;
    edit_users(requester, Edit::Group { name: name.to_owned(), is_new, description, roles })
}

/// Parses roles. Their keyspaces must exist, as in the management API.
fn roles_of(requester: &Requester, texts: &[String]) -> Result<Vec<Role>, Failure> {
    let cluster = requester.node.cluster();
    let role = |text: &String| {
        let role = text.parse::<Role>().ok();
        let role = role.filter(|role| keyspace_exists(&cluster, role.keyspace()));
        role.ok_or_else(|| {
            failure(code::ROLE_NOT_FOUND, format!("Role {text} is not there, or not on this"))
        })
    };
    texts.iter().map(role).collect()
}

fn create_sequence(
    requester: &Requester,
    path: &SequencePath,
    options: &SequenceOptions,
) -> Result<Value, Failure> {
    requester.require_scope(Privilege::AdministerCollections, &path.bucket, &path.scope)?;
    let increment = options.increment.unwrap_or(1);
    let (min, max) = (options.min.unwrap_or(i64::MIN), options.max.unwrap_or(i64::MAX));
    let first = match (increment > 0, options.min, options.max) {
        (true, Some(min), _) => min,
        (false, _, Some(max)) => max,
        _ => 0i64.clamp(min.min(max), max.max(min)),
    };
    let start = options.start.unwrap_or(first);
    let cycle = options.cycle.unwrap_or(false);
    let cache = options.cache.unwrap_or(CACHE).max(1);
    let (next, epoch) = (Some(start), 0);
    let sequence = Sequence { start, increment, min, max, cycle, cache, next, epoch };
    let id = path.id();
    requester.change(&Change::Query(QueryChange::PutSequence { id, sequence, replace: false }))?;
    Ok(Value::Null)
}

fn alter_sequence(
    requester: &Requester,
    path: &SequencePath,
    options: &SequenceOptions,
) -> Result<Value, Failure> {
    requester.require_scope(Privilege::AdministerCollections, &path.bucket, &path.scope)?;
    let id = path.id();
    let known = requester.node.cluster().sequences.get(&id).cloned();
    let missing = || refused(&Refusal::SequenceNotFound { name: path.name.clone() });
    let mut sequence = known.ok_or_else(missing)?;
    sequence.increment = options.increment.unwrap_or(sequence.increment);
    sequence.min = options.min.unwrap_or(sequence.min);
    sequence.max = options.max.unwrap_or(sequence.max);
    sequence.cycle = options.cycle.unwrap_or(sequence.cycle);
    sequence.cache = options.cache.unwrap_or(sequence.cache).max(1);
    if options.restart {
        sequence.start = options.restart_with.unwrap_or(sequence.start);
        sequence.next = Some(sequence.start);
    }
    requester.change(&Change::Query(QueryChange::PutSequence { id, sequence, replace: true }))?;
    Ok(Value::Null)
}

fn next_value(requester: &Requester, path: &SequencePath) -> Result<i64, Failure> {
    require_sequences(requester, &path.bucket, &path.scope)?;
    let id = path.id();
    let key = id.to_string();
    let missing = || refused(&Refusal::SequenceNotFound { name: path.name.clone() });
    let mut all = requester.node.queries().sequences.lock();
    for _ in 0..TRIES_MAX {
        let cluster = requester.node.cluster();
        let sequence = cluster.sequences.get(&id).ok_or_else(missing)?;
        let taken = all.entry(key.clone()).or_default();
        if taken.epoch == sequence.epoch && taken.left > 0 {
            let value = taken.next;
            taken.left -= 1;
            taken.next = value.wrapping_add(taken.increment);
            taken.previous = Some(value);
            return Ok(value);
        }
        let Some(block) = sequence.block() else {
            let message = format!("Sequence '{}' has been exhausted", path.name);
            return Err(failure(code::SEQUENCE_EXHAUSTED, message));
        };
        let (epoch, from) = (sequence.epoch, block.from);
        match requester.node.change(&Change::Query(QueryChange::AdvanceSequence {
            id: id.clone(),
            epoch,
            from,
        })) {
            Ok(_) => {
                let increment = sequence.increment;
                let previous = taken.previous;
                let (next, left) = (from, block.count);
                *taken = ReservedValues { epoch, increment, next, left, previous };
            }
            // Another node has reserved the values.
            Err(Error::Refused(Refusal::SequenceMoved { .. })) => requester.node.catch_up(),
            Err(error) => return Err(failed(error)),
        }
    }
    let message = format!("The values of sequence '{}' were taken by others", path.name);
    Err(Failure { retry: true, ..failure(code::SEQUENCE, message) })
}

/// Returns the last value that this node has returned; NULL if there is none.
fn previous_value(requester: &Requester, path: &SequencePath) -> Result<Value, Failure> {
    require_sequences(requester, &path.bucket, &path.scope)?;
    let id = path.id();
    let missing = || refused(&Refusal::SequenceNotFound { name: path.name.clone() });
    requester.node.cluster().sequences.get(&id).map(drop).ok_or_else(missing)?;
    let all = requester.node.queries().sequences.lock();
    let previous = all.get(&id.to_string()).and_then(|taken| taken.previous);
    Ok(previous.map_or(Value::Null, Value::from))
}

/// Returns the rows of `system:sequences` for the scopes that the user may query.
pub(super) fn of_sequences(requester: &Requester) -> Vec<(String, String)> {
    let cluster = requester.node.cluster();
    let row = |(id, sequence): (FunctionId, &Sequence)| {
        let (bucket, scope) = id.scope.clone()?;
        require_sequences(requester, &bucket, &scope).ok()?;
        let path = format!("`default`:`{bucket}`.`{scope}`.`{}`", id.name);
        let row = json!({
            "namespace": "default",
            "namespace_id": "default",
            "bucket": bucket,
            "scope_id": scope,
            "name": id.name,
            "path": path,
            "start": sequence.start,
            "increment": sequence.increment,
            "min": sequence.min,
            "max": sequence.max,
            "cycle": sequence.cycle,
            "cache": sequence.cache,
            "value": {"~next_block": sequence.next},
        });
        Some((path, row.to_string()))
    };
    cluster.sequences.iter().filter_map(row).collect()
}

/// Checks the name of a user or group. Source: the names that the management API accepts.
fn check_name(name: &str) -> Result<(), Failure> {
    let is_strange = |character: char| {
        character.is_control() || character == ' ' || "()<>,;:\\\"/[]?={}".contains(character)
    };
    let is_name = (1..=128).contains(&name.len()) && !name.starts_with('@');
    if is_name && !name.contains(is_strange) {
        return Ok(());
    }
    Err(failure(code::INTERNAL, format!("{name} cannot be the name of a user or group")))
}

fn no_user(name: &str) -> Failure {
    failure(code::USER_NOT_FOUND, format!("Unable to find user {name}"))
}

fn no_group(name: &str) -> Failure {
    failure(code::USER_NOT_FOUND, format!("Unable to find group {name}"))
}

/// Returns the failure of a refused change of users.
fn users_refused(refused: &Refused) -> Failure {
    match refused {
        Refused::UserNotFound(name) => no_user(name),
        Refused::GroupNotFound(name) | Refused::GroupsNotFound(name) => no_group(name),
        Refused::PasswordRequired => failure(code::INTERNAL, "A new user needs a PASSWORD"),
        Refused::Forbidden(privilege) => lacks(*privilege),
        other => failure(code::INTERNAL, other.to_string()),
    }
}

fn failed(error: Error) -> Failure {
    match error {
        Error::Refused(refusal) => refused(&refusal),
        Error::Users(refused) => users_refused(&refused),
        other => failure(code::INTERNAL, other.to_string()),
    }
}
