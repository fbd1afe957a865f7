//! A session whose request belongs to a transaction: it sees the transaction's changes over the stored documents, and changes
//! only the transaction.

use super::failure::{code, failure};
use super::session::Session;
use super::transaction::{
    Attempt, Changes, Durability, Mark, Stored, Takeover, Transaction, failure_of, timeout_of,
};
use crate::NodeQueries;
use nacre_auth::Privilege;
use nacre_node::scatter_gather::Owners;
use nacre_sandbox::{
    Body, DatabaseKeyspace, Failure, Mutation, Row, RowRefusal, TransactionSettings,
    TransactionStep,
};
use nacre_types::Vbid;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum time of a commit's step on one document.
const STEP_PATIENCE: Duration = Duration::from_secs(10);

/// A transaction in use by a request.
pub struct JoinedTransaction {
    transaction: Box<Transaction>,
    /// Position in the undo log at the beginning of the request.
    mark: Mark,
}

/// Returns the number of documents of a collection including the changes of a transaction; `count` is the number without them.
pub fn counted(count: u64, changes: &Changes, keyspace: &DatabaseKeyspace) -> u64 {
    changes.of(keyspace).fold(count, |count, (_, staged)| match staged.growth() {
        1 => count + 1,
        -1 => count.saturating_sub(1),
        _ => count,
    })
}

impl Session {
    /// Passes the changes of the request's transaction to `look`, if it belongs to one.
    pub(super) fn with_changes<T>(&self, look: impl FnOnce(Option<&Changes>) -> T) -> T {
        let joined = self.transaction.lock();
        look(joined.as_ref().map(|joined| &joined.transaction.changes))
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.transaction.lock().is_some()
    }

    /// Executes a step of a transaction.
    pub(super) fn do_step(&self, step: TransactionStep, left: Duration) -> Result<String, Failure> {
        match step {
            TransactionStep::Begin(settings) => return self.begin(&settings, left),
            TransactionStep::Join(id, number) => self.join(&id, number)?,
            TransactionStep::Leave(keep) => self.leave(keep),
            TransactionStep::Savepoint(name) => {
                self.joined(|joined| {
                    joined.transaction.changes.set_savepoint(name);
                    joined.mark = joined.transaction.changes.mark();
                })?;
            }
            TransactionStep::RollbackTo(name) => {
                let is_back = self.joined(|joined| {
                    let is_back = joined.transaction.changes.back_to_savepoint(&name);
                    joined.mark = joined.transaction.changes.mark();
                    is_back
                })?;
                if !is_back {
                    let message = format!("{name} savepoint is not defined");
                    return Err(failure(code::NO_SAVEPOINT, message));
                }
            }
            TransactionStep::Commit => self.commit()?,
            TransactionStep::Rollback => self.roll_back()?,
        }
        Ok(String::new())
    }

    fn joined<T>(&self, change: impl FnOnce(&mut JoinedTransaction) -> T) -> Result<T, Failure> {
        self.transaction.lock().as_mut().map(change).ok_or_else(outside)
    }

    fn take(&self) -> Result<Box<Transaction>, Failure> {
        self.transaction.lock().take().map(|joined| joined.transaction).ok_or_else(outside)
    }

    fn join(&self, id: &str, number: Option<u64>) -> Result<(), Failure> {
        // A request belongs to at most one transaction.
        self.leave(false);
        let now = self.requester.node.now();
        let transaction = self.requester.node.queries().transactions.join(
            id,
            number,
            &self.requester.user,
            now,
        )?;
        let mark = transaction.changes.mark();
        *self.transaction.lock() = Some(JoinedTransaction { transaction, mark });
        Ok(())
    }

    /// Returns the transaction to the node. The request's changes are undone unless `keep` is true.
    pub(super) fn leave(&self, keep: bool) {
        let Some(JoinedTransaction { mut transaction, mark }) = self.transaction.lock().take()
        else {
            return;
        };
        if !keep {
            transaction.changes.back_to(mark);
        }
        self.requester.node.queries().transactions.leave(transaction, self.requester.node.now());
    }

    fn begin(&self, settings: &TransactionSettings, left: Duration) -> Result<String, Failure> {
        let refuse =
            |why: String| failure(code::BEGIN, format!("Start Transaction statement error: {why}"));
        let durability = Durability::of_name(&settings.durability);
        let durability = durability
            .ok_or_else(|| refuse(format!("unknown durability level {}", settings.durability)))?;
        let records = match settings.records.as_str() {
            "" => None,
            path => Some(
                keyspace_of(path).ok_or_else(|| refuse(format!("{path} is not a valid path")))?,
            ),
        };
        let handed = match settings.staged.as_str() {
            "" => None,
            text => Some(Takeover::read(text).map_err(|why| refuse(format!("txdata: {why}")))?),
        };
        let id = self.requester.node.new_transaction_id();
        let mut attempt =
            Attempt { transaction: id.clone(), id, records, record: None, durability };
        let mut timeout = timeout_of(settings.timeout);
        let now = self.requester.node.now();
        let mut changes = Changes::new(now.unix_ns);
        if let Some(handed) = handed {
            for document in &handed.documents {
                self.requester.require_changing(document.action(), &document.place.keyspace)?;
            }
            let stored = Stored { node: &self.requester.node, patience: left.min(STEP_PATIENCE) };
            for (place, staged) in handed.staged(&stored).map_err(refuse)? {
                changes.take_over(place, staged);
            }
            timeout = timeout.min(handed.left.unwrap_or(timeout));
            attempt = Attempt {
                transaction: handed.transaction,
                id: handed.attempt,
                records: attempt.records.or(handed.records),
                record: handed.record,
                durability: handed.durability.unwrap_or(durability),
            };
        }
        let record = attempt.record.as_ref().map(|record| &record.keyspace);
        for keyspace in attempt.records.iter().chain(record) {
            self.may_record(keyspace)?;
        }
        let id = attempt.id.clone();
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let ends_ns = now.monotonic_ns.saturating_add(timeout_ns);
        let transaction = Box::new(Transaction { attempt, changes, ends_ns });
        let all = &self.requester.node.queries().transactions;
        let account = self.requester.account();
        all.check_size(&transaction, &account)?;
        all.add(transaction, &account, timeout, now)?;
        Ok(id)
    }

    /// Checks that a user who chooses a collection for records may write there. Any right to write suffices, because records are
    /// documents of the system.
    fn may_record(&self, records: &DatabaseKeyspace) -> Result<(), Failure> {
        let writes = [Privilege::WriteData, Privilege::QueryInsert, Privilege::QueryDelete];
        match writes.into_iter().any(|privilege| self.requester.may(privilege, records)) {
            true => Ok(()),
            false => self.requester.require(Privilege::QueryUpdate, records),
        }
    }

    fn commit(&self) -> Result<(), Failure> {
        let mut transaction = self.take()?;
        let stored = Stored { node: &self.requester.node, patience: STEP_PATIENCE };
        let ends_ns = transaction.ends_ns;
        let left =
            || Duration::from_nanos(ends_ns.saturating_sub(self.requester.node.now().monotonic_ns));
        let Transaction { attempt, changes, .. } = &mut *transaction;
        let committed = attempt.commit(changes, &stored, &left);
        self.requester.node.queries().transactions.end(&attempt.id);
        match committed {
            Ok(is_finished) => {
                if !is_finished {
                    tracing::warn!(attempt = %attempt.id, "a transaction is left to be finished");
                }
                Ok(())
            }
            Err(stopped) => Err(failure_of(stopped)),
        }
    }

    fn roll_back(&self) -> Result<(), Failure> {
        let transaction = self.take()?;
        let stored = Stored { node: &self.requester.node, patience: STEP_PATIENCE };
        transaction.attempt.roll_back(&transaction.changes, &stored);
        self.requester.node.queries().transactions.end(&transaction.attempt.id);
        Ok(())
    }

    /// Returns documents by ID, including changes.
    pub(super) fn read_changed(
        &self,
        changes: &Changes,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        ids: &[String],
        left: Duration,
    ) -> Result<Vec<Option<Row>>, Failure> {
        let staged: BTreeMap<&str, Option<Row>> =
            changes.of(keyspace).map(|(id, staged)| (id, staged.row(id))).collect();
        let others = ids.iter().filter(|id| !staged.contains_key(id.as_str()));
        let others: Vec<String> = others.cloned().collect();
        let mut stored = self.committed().read(owners, keyspace, &others, left)?.into_iter();
        let row = |id: &String| match staged.get(id.as_str()) {
            Some(row) => row.clone(),
            None => stored.next().flatten(),
        };
        Ok(ids.iter().map(row).collect())
    }

    /// Returns documents by vBucket and ID, including changes.
    #[expect(clippy::too_many_arguments, reason = "those of a scan, and what it is made over")]
    pub(super) fn scan_changed(
        &self,
        changes: &Changes,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        left: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let order = |id: &str| (owners.vbid_of(id.as_bytes()), id.to_owned());
        let mut after = after.map(str::to_owned);
        loop {
            let found =
                self.committed().scan(owners, keyspace, after.as_deref(), bodies, limit, left)?;
            let (stored, is_whole) = found;
            let last = stored.last().map(|row| row.id.clone());
            let (from, until) = (after.as_deref().map(order), last.as_deref().map(order));
            let mut rows: BTreeMap<(Vbid, String), Row> =
                stored.into_iter().map(|row| (order(&row.id), row)).collect();
            for (id, staged) in changes.of(keyspace) {
                let place = order(id);
                let is_behind = from.as_ref().is_none_or(|from| *from < place);
                let is_within = is_whole || until.as_ref().is_some_and(|until| place <= *until);
                rows.remove(&place);
                if let Some(mut row) = staged.row(id).filter(|_| is_behind && is_within) {
                    if !bodies {
                        row.body = Body::default();
                    }
                    rows.insert(place, row);
                }
            }
            if rows.is_empty() && !is_whole {
                after = last.or(after);
                continue;
            }
            return Ok(rows.into_values().take(limit).collect());
        }
    }

    /// Applies mutations within the transaction.
    pub(super) fn change_in_transaction(
        &self,
        owners: &Owners,
        keyspace: &DatabaseKeyspace,
        mutations: Vec<Mutation>,
        left: Duration,
    ) -> Result<Vec<Result<u64, RowRefusal>>, Failure> {
        let unknown: Vec<String> = self.with_changes(|changes| {
            let known = |id: &String| changes.is_some_and(|changes| changes.knows(keyspace, id));
            mutations.iter().map(|mutation| &mutation.id).filter(|id| !known(id)).cloned().collect()
        });
        let stored = self.committed().read(owners, keyspace, &unknown, left)?;
        let stored: BTreeMap<String, u64> =
            stored.into_iter().flatten().map(|row| (row.id, row.cas)).collect();
        let account = self.requester.account();
        self.joined(|joined| {
            let changes = &mut joined.transaction.changes;
            let outcomes = mutations.into_iter().map(|mutation| {
                let committed = stored.get(&mutation.id).copied();
                changes.apply(keyspace, mutation, committed)
            });
            let outcomes = outcomes.collect();
            self.requester.node.queries().transactions.check_size(&joined.transaction, &account)?;
            Ok(outcomes)
        })?
    }
}

fn outside() -> Failure {
    failure(code::NO_TRANSACTION, "Transaction context error: the request belongs to none")
}

/// Returns the collection of a path in the notation of SDKs: `bucket.scope.collection`, or only a bucket. Only a bucket's name
/// may contain dots.
fn keyspace_of(path: &str) -> Option<DatabaseKeyspace> {
    let path = path.strip_prefix("default:").unwrap_or(path).replace('`', "");
    let keyspace = |bucket: &str, scope: &str, collection: &str| DatabaseKeyspace {
        bucket: bucket.to_owned(),
        scope: scope.to_owned(),
        collection: collection.to_owned(),
    };
    match *path.rsplitn(3, '.').collect::<Vec<_>>() {
        [collection, scope, bucket] => Some(keyspace(bucket, scope, collection)),
        [bucket] if !bucket.is_empty() => Some(keyspace(bucket, "_default", "_default")),
        _ => None,
    }
}
