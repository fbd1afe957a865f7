//! Transactions of statements. The node on which a transaction begins keeps it, and receives all of its statements.
//!
//! ```text
//! BEGIN ─► Transactions ◄─ join, leave ─► Session: statements see Changes over the stored documents
//!                │
//! COMMIT ────────┴─► Attempt: writes the stored documents, with the SDKs' protocol
//! ```
//!
//! Until it commits, a transaction that begins here exists only in the memory of its node: if the node stops, the transaction
//! is lost without a trace. A transaction that an SDK has begun may have staged documents, which the SDK then cleans up.

mod attempt;
mod changes;
mod lost;
mod record;
mod step;
mod stored;
mod takeover;

pub use attempt::{Attempt, Stopped};
pub use changes::{Changes, Mark, Staged};
pub use lost::finish_lost_transactions;
pub use record::KEY_PREFIX;
pub use step::{Durability, Step, StepReply};
pub use stored::{Stored, answer_step, records_in};
pub use takeover::Takeover;

use super::failure::{code, failure, retry};
use nacre_sandbox::{Account, Failure, Permit, Purpose};
use nacre_types::Now;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of transactions on a node.
const COUNT_MAX: usize = 1024;
/// Maximum size of the changes of a transaction, in bytes.
const BYTES_MAX: usize = 128 << 20;
/// Maximum size of the changes of all transactions, in bytes.
const ALL_BYTES_MAX: usize = 512 << 20;
/// Maximum number of simultaneous transactions of a user.
const COUNT_OF_USER_MAX: usize = COUNT_MAX / 4;
/// Maximum size of the changes of a user's transactions, in bytes.
const BYTES_OF_USER_MAX: usize = ALL_BYTES_MAX / 2;
/// Default timeout of a transaction. Source: Couchbase's `txtimeout`.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// How long an ended transaction is remembered.
const MEMORY_OF_ENDED: Duration = Duration::from_secs(60);

/// A transaction.
pub struct Transaction {
    /// Its attempt to commit.
    pub attempt: Attempt,
    /// Its changes.
    pub changes: Changes,
    /// The time of its expiry, in monotonic nanoseconds.
    pub ends_ns: u64,
}

/// A transaction and its owner.
struct Slot {
    user: String,
    /// Permit for the memory of its changes.
    permit: Permit,
    durability: Durability,
    timeout: Duration,
    ends_ns: u64,
    /// The time of its expiry in milliseconds since 1970.
    ends_ms: u64,
    /// The number of the last numbered statement.
    number: u64,
    statements: u64,
    bytes: usize,
    /// The transaction; `None` while a request uses it, or after it expired.
    at_rest: Option<Box<Transaction>>,
}

/// The transactions of a node.
#[derive(Default)]
pub struct Transactions(Mutex<BTreeMap<String, Slot>>);

impl Transactions {
    /// Adds a transaction of the user with that account.
    ///
    /// # Errors
    /// Code 17006 if there are too many transactions, on the node or of the user, or the ID exists.
    pub fn add(
        &self,
        transaction: Box<Transaction>,
        account: &Arc<Account>,
        timeout: Duration,
        now: Now,
    ) -> Result<(), Failure> {
        let mut all = self.0.lock();
        let id = transaction.attempt.id.clone();
        if all.contains_key(&id) {
            return Err(failure(code::BEGIN, format!("transaction {id} has begun already")));
        }
        if all.len() >= COUNT_MAX {
            let why = format!("there are {COUNT_MAX} transactions on this node already");
            return Err(retry(code::BEGIN, why));
        }
        let user = account.name();
        if all.values().filter(|slot| slot.user == user).count() >= COUNT_OF_USER_MAX {
            let why = format!("{user} has {COUNT_OF_USER_MAX} transactions on this node already");
            return Err(retry(code::BEGIN, why));
        }
        let mut permit = account.permit(Purpose::Transaction);
        permit.set(transaction.changes.bytes());
        let slot = Slot {
            user: user.to_owned(),
            permit,
            durability: transaction.attempt.durability,
            timeout,
            ends_ns: transaction.ends_ns,
            ends_ms: now.unix_ns / 1_000_000
                + u64::try_from(timeout.as_millis()).unwrap_or_default(),
            number: 0,
            statements: 0,
            bytes: transaction.changes.bytes(),
            at_rest: Some(transaction),
        };
        all.insert(id, slot);
        Ok(())
    }

    /// Lends a transaction to a request.
    ///
    /// # Errors
    /// Code 17004 if `user` has no transaction with this ID, 17005 if the statement is out of order, 17010 if the transaction
    /// has expired, 17013 if another request uses it.
    pub fn join(
        &self,
        id: &str,
        number: Option<u64>,
        user: &str,
        now: Now,
    ) -> Result<Box<Transaction>, Failure> {
        let mut all = self.0.lock();
        prune(&mut all, now);
        let slot = all.get_mut(id).filter(|slot| slot.user == user);
        let Some(slot) = slot else {
            let message = format!("Transaction context error: transaction {id} is not known here");
            return Err(failure(code::NO_TRANSACTION, message));
        };
        if slot.ends_ns <= now.monotonic_ns {
            return Err(failure(code::EXPIRED, "Transaction timeout"));
        }
        if slot.at_rest.is_none() {
            let message = "Parallel execution of statements are not allowed within the transaction";
            return Err(failure(code::IN_USE, message));
        }
        if let Some(number) = number {
            if number <= slot.number {
                let last = slot.number;
                let message = format!("Transaction statement is out of order ({number}, {last})");
                return Err(failure(code::OUT_OF_ORDER, message));
            }
            slot.number = number;
        }
        slot.statements += 1;
        Ok(slot.at_rest.take().expect("it was there just now"))
    }

    /// Takes a transaction back from a request.
    pub fn leave(&self, transaction: Box<Transaction>, now: Now) {
        let mut all = self.0.lock();
        if let Some(slot) = all.get_mut(&transaction.attempt.id) {
            slot.bytes = transaction.changes.bytes();
            slot.permit.set(slot.bytes);
            slot.at_rest = Some(transaction);
        }
        prune(&mut all, now);
    }

    /// Removes a transaction that a request has ended.
    pub fn end(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// Drops expired transactions.
    pub fn prune(&self, now: Now) {
        prune(&mut self.0.lock(), now);
    }

    /// Checks the size of a transaction's changes. `account` is that of the user.
    ///
    /// # Errors
    /// Code 17016 if the changes are too large.
    pub fn check_size(&self, transaction: &Transaction, account: &Account) -> Result<(), Failure> {
        let (all, bytes) = (self.0.lock(), transaction.changes.bytes());
        let others = all.iter().filter(|(id, _)| **id != transaction.attempt.id);
        let others: Vec<(&str, usize)> =
            others.map(|(_, slot)| (slot.user.as_str(), slot.bytes)).collect();
        let sum_of = |user: Option<&str>| {
            let counted = others.iter().filter(|(of, _)| user.is_none_or(|user| *of == user));
            counted.map(|(_, bytes)| bytes).sum::<usize>()
        };
        let user = account.name();
        let of_user = BYTES_OF_USER_MAX.saturating_sub(sum_of(Some(user)));
        let held = all.get(&transaction.attempt.id).map_or(0, |slot| slot.permit.bytes());
        let of_node = account.room().saturating_add(held);
        let quota =
            BYTES_MAX.min(ALL_BYTES_MAX.saturating_sub(sum_of(None))).min(of_user).min(of_node);
        if bytes <= quota {
            return Ok(());
        }
        let message = format!("Transaction memory ({bytes}) exceeded quota ({quota})");
        Err(failure(code::TRANSACTION_MEMORY, message))
    }

    /// Returns the rows of `system:transactions`: those of `user`, or of all users if `None`.
    pub fn rows(&self, user: Option<&str>, node: &str, now: Now) -> Vec<(String, Value)> {
        let mut all = self.0.lock();
        prune(&mut all, now);
        let shown = all.iter().filter(|(_, slot)| {
            slot.ends_ns > now.monotonic_ns && user.is_none_or(|user| slot.user == user)
        });
        let row = |(id, slot): (&String, &Slot)| {
            let row = json!({
                "id": id,
                "node": node,
                "users": slot.user,
                "isolationLevel": "READ COMMITTED",
                "durabilityLevel": slot.durability.name(),
                "timeout": format!("{}ms", slot.timeout.as_millis()),
                "expiryTimeMs": slot.ends_ms,
                "numStmts": slot.statements,
                "usedMemory": slot.bytes,
                "status": if slot.at_rest.is_some() { "idle" } else { "running" },
            });
            (id.clone(), row)
        };
        shown.map(row).collect()
    }
}

/// Drops the changes of expired transactions, and removes the transactions some time later. A transaction that a request uses
/// is dropped when it is returned.
fn prune(all: &mut BTreeMap<String, Slot>, now: Now) {
    let memory_ns = u64::try_from(MEMORY_OF_ENDED.as_nanos()).unwrap_or(u64::MAX);
    all.retain(|_, slot| {
        if slot.ends_ns <= now.monotonic_ns && slot.at_rest.take().is_some() {
            slot.bytes = 0;
            slot.permit.set(0);
        }
        slot.ends_ns.saturating_add(memory_ns) > now.monotonic_ns
    });
}

/// Returns the timeout of a transaction.
pub fn timeout_of(wanted: Option<Duration>) -> Duration {
    wanted.filter(|wanted| !wanted.is_zero()).unwrap_or(TIMEOUT).min(TIMEOUT_MAX)
}

/// Returns the failure of a transaction that did not commit, for its client.
pub fn failure_of(stopped: Stopped) -> Failure {
    match stopped {
        Stopped::Conflict(why) => {
            retry(code::COMMIT, format!("Commit Transaction statement error: {why}"))
        }
        Stopped::Failed(why) => {
            failure(code::COMMIT, format!("Commit Transaction statement error: {why}"))
        }
        Stopped::Expired => failure(code::EXPIRED, "Transaction timeout"),
        Stopped::Ambiguous(why) => {
            failure(code::AMBIGUOUS_COMMIT, format!("Commit was ambiguous: {why}"))
        }
    }
}

#[cfg(test)]
mod tests;
