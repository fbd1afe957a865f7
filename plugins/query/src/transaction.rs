//! Requests that belong to a transaction: which one, what they may do in it, and how it goes on after them.
//!
//! ```text
//! BEGIN                          a new one; the answer has its id
//! any statement with `txid`      join ─► the statement ─► leave: what it changed is kept, or undone when it failed
//! a statement with `tximplicit`  begin ─► join ─► the statement ─► commit
//! EXECUTE __get, __insert, …     the same for one document, as SDKs ask within a transaction
//! ```

use crate::request::Request;
use crate::run::Run;
use crate::service::{Begun, Source, read_only};
use nacre_datastore::{Action, Keyspace, Mutation, Refusal, TransactionSettings, TransactionStep};
use nacre_sql::ast::{Expr, Statement, TransactionStatement};
use nacre_sql::{Error, Name, Result, Value, parse_path};

/// What a request says of transactions.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// `txid`: the transaction that it belongs to.
    pub id: Option<String>,
    /// `tximplicit`: the statement is a transaction by itself.
    pub implicit: bool,
    /// `txstmtnum`: statements of a transaction have rising numbers.
    pub number: Option<u64>,
    /// How one is begun.
    pub settings: TransactionSettings,
    /// `txdata`: what an SDK says beside the statement.
    pub data: Value,
}

impl Transaction {
    /// Whether the statement is part of one.
    pub fn is_given(&self) -> bool {
        self.id.is_some() || self.implicit
    }
}

/// Codes of errors. Source: Couchbase's list.
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

/// Whether an error is one of transactions, whose details clients look for elsewhere.
pub(crate) fn is_of_transactions(error: &Error) -> bool {
    code::ALL.contains(&error.code)
}

/// Begins a statement where the request wants it: `begin` does, in a transaction or outside of any.
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
    // What makes its rows as they are asked for stays in the transaction until the last.
    match begun {
        Ok(Begun { source: Source::Rows { .. }, .. }) => begun,
        Ok(begun) => end(request, true, run).map(|()| begun),
        Err(error) => {
            // The statement's error is what matters.
            let _ = end(request, false, run);
            Err(error)
        }
    }
}

/// Ends the statement's part in its transaction, if it has one still.
///
/// # Errors
/// A statement that is a transaction by itself cannot be committed.
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

/// Checks that a statement may stand in a transaction.
///
/// # Errors
/// Code 17002.
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

/// SDKs decide by the cause what to do with a transaction that has ended: there is nothing left to roll back.
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
    // To send the same statement again is of no use: it is the transaction that may be tried again.
    Error { retry: false, ..error.with_reason(cause) }
}

fn start(transaction: &Transaction, run: &Run<'_>) -> Result<Begun> {
    let id = step(run, &TransactionStep::Begin(transaction.settings.clone()))?;
    Ok(Begun::values(vec![Value::object([("txid", Value::from(id))])]))
}

/// A statement about the transaction itself.
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
        // There is no other level.
        TransactionStatement::SetIsolation => Ok(String::new()),
    }?;
    if is_over {
        run.state.in_transaction.set(false);
    }
    Ok(Begun::values(Vec::new()))
}

/// What a document was refused with, within a transaction.
pub(crate) fn refused(id: &str, refusal: Refusal) -> Error {
    match refusal {
        Refusal::Exists => Error::new(code::DUPLICATE_KEY, format!("Duplicate Key: {id}")),
        Refusal::NotFound => Error::new(code::KEY_NOT_FOUND, format!("Key not found : {id}")),
        Refusal::CasMismatch => Error::new(code::CAS_MISMATCH, format!("cas mismatch for {id}")),
        Refusal::Other(error) => error,
    }
}

/// Statements that stand for operations on one document. Source: the SDKs.
const KV_CALLS: [&str; 4] = ["__get", "__insert", "__update", "__delete"];

/// The name of a statement that stands for an operation on one document.
fn kv_call(statement: &Statement) -> Option<&str> {
    match statement {
        Statement::Execute { name: Expr::Literal(Value::String(name)), using: None } => {
            Some(&**name).filter(|name| KV_CALLS.contains(name))
        }
        _ => None,
    }
}

/// An operation on one document: of the collection and with the key that are its first arguments.
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

/// The version that an SDK has read; 0 when it does not say.
fn version(request: &Request) -> Result<u64> {
    let told = request.transaction.data.field("scas");
    match told.as_str() {
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
