//! Requests in a transaction: joining it, checking statements, and leaving it.
//!
//! ```text
//! BEGIN                          begins a transaction; the answer has its ID
//! any statement with `txid`      join ─► the statement ─► leave: its changes are kept, or undone if it failed
//! a statement with `tximplicit`  begin ─► join ─► the statement ─► commit
//! EXECUTE __get, __insert, …     the same for one document; SDKs use this within a transaction
//! ```

use crate::request::Request;
use crate::run::Run;
use crate::service::{Begun, Source, read_only};
use nacre_datastore::{Action, Keyspace, Mutation, Refusal, TransactionSettings, TransactionStep};
use nacre_sql::ast::{Expr, Statement, TransactionStatement};
use nacre_sql::{Error, Name, Result, Value, parse_path};

/// The transaction parameters of a request.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// `txid`: the transaction that it belongs to.
    pub id: Option<String>,
    /// `tximplicit`: true if the statement is a transaction by itself.
    pub implicit: bool,
    /// `txstmtnum`: the number of the statement; numbers increase within a transaction.
    pub number: Option<u64>,
    /// The settings of a new transaction.
    pub settings: TransactionSettings,
    /// `txdata`: additional data from an SDK.
    pub data: Value,
}

impl Transaction {
    /// Returns true if the statement belongs to a transaction.
    pub fn is_given(&self) -> bool {
        self.id.is_some() || self.implicit
    }
}

/// Error codes. Source: Couchbase's list.
mod code {
    pub const NOT_SUPPORTED: u32 = 17002;
    pub const COMMIT: u32 = 17007;
    pub const EXPIRED: u32 = 17010;
    pub const DUPLICATE_KEY: u32 = 17012;
    pub const KEY_NOT_FOUND: u32 = 17014;
    pub const CAS_MISMATCH: u32 = 17015;
    pub const AMBIGUOUS_COMMIT: u32 = 17019;
    pub const ALL: std::ops::Range<u32> = 17000..18000;
}

/// Returns true if an error is one of transactions, whose details clients look up in a different member.
pub(crate) fn is_of_transactions(error: &Error) -> bool {
    code::ALL.contains(&error.code)
}

/// Starts a statement by `begin`, within the request's transaction if it has one.
pub(crate) fn within(
    statement: &Statement,
    request: &Request,
    run: &Run<'_>,
    begin: impl FnOnce() -> Result<Begun>,
) -> Result<Begun> {
    let transaction = &request.transaction;
    let is_of_transaction =
        transaction.is_given() || matches!(statement, Statement::Transaction(_));
    let writes = kv_call(statement).is_some_and(|name| name != "__get");
    if run.settings.keeps_nothing && is_of_transaction || run.settings.readonly && writes {
        return Err(read_only());
    }
    if !transaction.is_given() {
        return match statement {
            Statement::Transaction(TransactionStatement::Begin) => start(transaction, run),
            Statement::Transaction(other) => Err(unsupported(name(other), "outside")),
            _ => begin(),
        };
    }
    let id = match &transaction.id {
        Some(id) => id.clone(),
        None => step(run, &TransactionStep::Begin(transaction.settings.clone()))?,
    };
    step(run, &TransactionStep::Join(id, transaction.number))?;
    run.state.in_transaction.set(true);
    let begun = match (statement, kv_call(statement)) {
        (Statement::Transaction(statement), _) => carry_out(statement, request, run),
        (_, Some(name)) => call(name, request, run).map(|row| Begun::values(vec![row])),
        _ => begin(),
    };
    // A statement that produces rows on demand stays in the transaction until its last row.
    match begun {
        Ok(Begun { source: Source::Rows { .. }, .. }) => begun,
        Ok(begun) => end(request, true, run).map(|()| begun),
        Err(error) => {
            // The statement's own error takes precedence.
            let _ = end(request, false, run);
            Err(error)
        }
    }
}

/// Ends the statement's part in its transaction, if it is still in one.
///
/// # Errors
/// Fails if an implicit transaction cannot be committed.
pub(crate) fn end(request: &Request, is_well: bool, run: &Run<'_>) -> Result<()> {
    if !run.state.in_transaction.replace(false) {
        return Ok(());
    }
    let last = match (request.transaction.id.is_none(), is_well) {
        (true, true) => TransactionStep::Commit,
        (true, false) => TransactionStep::Rollback,
        (false, is_well) => TransactionStep::Leave(is_well),
    };
    step(run, &last).map(drop)
}

/// Checks that a statement is allowed in a transaction.
///
/// # Errors
/// Code 17002 if it is not allowed.
pub(crate) fn check(statement: &Statement, run: &Run<'_>) -> Result<()> {
    let allowed = match statement {
        Statement::Select(_)
        | Statement::Insert(_)
        | Statement::Update(_)
        | Statement::Delete(_)
        | Statement::Merge(_)
        | Statement::Explain(_)
        | Statement::Advise(_)
        | Statement::Prepare(_)
        | Statement::Execute { .. }
        | Statement::ExecuteFunction { .. }
        | Statement::ExplainFunction(_) => return Ok(()),
        Statement::Transaction(statement) => return Err(unsupported(name(statement), "within")),
        other => crate::service::statement_name(other),
    };
    match run.state.in_transaction.get() {
        true => Err(unsupported(allowed, "within")),
        false => Ok(()),
    }
}

fn unsupported(name: &str, place: &str) -> Error {
    let message = format!("{name} statement is not supported {place} the transaction");
    Error::new(code::NOT_SUPPORTED, message)
}

fn name(statement: &TransactionStatement) -> &'static str {
    match statement {
        TransactionStatement::Begin => "START_TRANSACTION",
        TransactionStatement::Commit => "COMMIT",
        TransactionStatement::Rollback(None) => "ROLLBACK",
        TransactionStatement::Rollback(Some(_)) => "ROLLBACK_SAVEPOINT",
        TransactionStatement::Savepoint(_) => "SAVEPOINT",
        TransactionStatement::SetIsolation => "SET_TRANSACTION_ISOLATION",
    }
}

fn step(run: &Run<'_>, step: &TransactionStep) -> Result<String> {
    run.store.transact(step).map_err(with_cause)
}

/// Adds the cause, from which SDKs decide what to do with a transaction that has ended; there is nothing left
/// to roll back.
fn with_cause(error: Error) -> Error {
    let raise = match error.code {
        code::COMMIT => "failed",
        code::EXPIRED => "expired",
        code::AMBIGUOUS_COMMIT => "commit_ambiguous",
        _ => return error,
    };
    let cause = Value::object([
        ("cause", Value::from(error.message.as_str())),
        ("raise", raise.into()),
        ("retry", error.retry.into()),
        ("rollback", false.into()),
    ]);
    // Repeating the statement is useless; the whole transaction may be retried.
    Error { retry: false, ..error.with_reason(cause) }
}

fn start(transaction: &Transaction, run: &Run<'_>) -> Result<Begun> {
    let id = step(run, &TransactionStep::Begin(transaction.settings.clone()))?;
    Ok(Begun::values(vec![Value::object([("txid", Value::from(id))])]))
}

/// Executes a statement about the transaction itself.
fn carry_out(statement: &TransactionStatement, request: &Request, run: &Run<'_>) -> Result<Begun> {
    if request.transaction.implicit {
        return Err(unsupported(name(statement), "within"));
    }
    let is_over =
        matches!(statement, TransactionStatement::Commit | TransactionStatement::Rollback(None));
    match statement {
        TransactionStatement::Begin => return Err(unsupported(name(statement), "within")),
        TransactionStatement::Commit => step(run, &TransactionStep::Commit),
        TransactionStatement::Rollback(None) => step(run, &TransactionStep::Rollback),
        TransactionStatement::Rollback(Some(name)) => {
            step(run, &TransactionStep::RollbackTo(name.clone()))
        }
        TransactionStatement::Savepoint(name) => {
            step(run, &TransactionStep::Savepoint(name.clone()))
        }
        // There is only one level.
        TransactionStatement::SetIsolation => Ok(String::new()),
    }?;
    if is_over {
        run.state.in_transaction.set(false);
    }
    Ok(Begun::values(Vec::new()))
}

/// Returns the error for a refused document within a transaction.
pub(crate) fn refused(id: &str, refusal: Refusal) -> Error {
    match refusal {
        Refusal::Exists => Error::new(code::DUPLICATE_KEY, format!("Duplicate Key: {id}")),
        Refusal::NotFound => Error::new(code::KEY_NOT_FOUND, format!("Key not found : {id}")),
        Refusal::CasMismatch => Error::new(code::CAS_MISMATCH, format!("cas mismatch for {id}")),
        Refusal::Other(error) => error,
    }
}

/// Statements that represent operations on one document. Source: the SDKs.
const KV_CALLS: [&str; 4] = ["__get", "__insert", "__update", "__delete"];

/// Returns the name of a statement that represents an operation on one document.
fn kv_call(statement: &Statement) -> Option<&str> {
    match statement {
        Statement::Execute { name: Expr::Literal(Value::String(name)), using: None } => {
            Some(&**name).filter(|name| KV_CALLS.contains(name))
        }
        _ => None,
    }
}

/// Executes an operation on one document. Its first arguments are the collection and the key.
fn call(name: &str, request: &Request, run: &Run<'_>) -> Result<Value> {
    let args = &request.settings.positional;
    let text = |at: usize| {
        let text = args.get(at).and_then(Value::as_str);
        text.ok_or_else(|| Error::new(5010, format!("{name} needs a text as argument {}", at + 1)))
    };
    let path = parse_path(text(0)?)?;
    let keyspace = run.keyspace(&path)?;
    let id = Name::from(text(1)?);
    let value = || {
        let value = args.get(2).cloned();
        value.ok_or_else(|| Error::new(5010, format!("{name} needs a document as argument 3")))
    };
    match name {
        "__get" => get(&keyspace, &id, run),
        "__insert" => change(&keyspace, &id, Action::Insert, Some(value()?), run),
        "__update" => {
            change(&keyspace, &id, Action::Replace(version(request)?), Some(value()?), run)
        }
        _ => change(&keyspace, &id, Action::Remove(version(request)?), None, run),
    }
}

/// Returns the CAS that an SDK has read; 0 if it is not given.
fn version(request: &Request) -> Result<u64> {
    let cas = request.transaction.data.field("scas");
    match cas.as_str() {
        None => Ok(0),
        Some(text) => text
            .parse()
            .map_err(|_| Error::new(1070, format!("scas has to be a number and not {text}"))),
    }
}

fn get(keyspace: &Keyspace, id: &Name, run: &Run<'_>) -> Result<Value> {
    let found = run.store.fetch(keyspace, std::slice::from_ref(id))?.pop().flatten();
    let document = found.ok_or_else(|| refused(id, Refusal::NotFound))?;
    let value = Value::parse(&document.body)
        .map_err(|_| Error::new(5010, format!("document {id} is not JSON")))?;
    Ok(Value::object([("scas", document.cas.to_string().into()), ("doc", value)]))
}

fn change(
    keyspace: &Keyspace,
    id: &Name,
    action: Action,
    value: Option<Value>,
    run: &Run<'_>,
) -> Result<Value> {
    let body = value.as_ref().map_or_else(Vec::new, |value| value.to_json().into_bytes());
    let mutation = Mutation { action, id: id.clone(), body, expiration: None };
    let written = run.store.mutate(keyspace, &[mutation])?.pop();
    let written = written.ok_or_else(|| Error::new(5000, "the store has not answered"))?;
    let cas = written.map_err(|refusal| refused(id, refusal))?;
    run.state.mutation_count.set(run.state.mutation_count.get() + 1);
    let doc = value.unwrap_or_default();
    Ok(Value::object([("scas", Value::from(cas.to_string())), ("doc", doc)]))
}
