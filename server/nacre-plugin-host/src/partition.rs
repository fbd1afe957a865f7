//! A partition of a deployment: one writer, and the state that it folds the change stream into.

use crate::feed::{Cut, Fed, Writer};
use crate::instance::Instance;
use crate::reader::{Published, Reader, Shared};
use crate::space::{KeySpace, View, Writes};
use crate::status::{Report, Status};
use crate::{Error, Limits, Plugin, StateStorage};
use nacre_dcp::{Batch, ResumePoint};
use nacre_types::{Now, Seqno, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A partition. There is one writer; [`Partition::reader`] gives any number of readers.
pub struct Partition {
    slot: Slot,
    storage: Box<dyn StateStorage>,
    progress: BTreeMap<Vbid, ResumePoint>,
    status: Status,
    cut: Cut,
}

/// The place of the writer instance, which comes and goes.
struct Slot {
    shared: Arc<Shared>,
    instance: Option<Instance>,
    traps: u64,
    calls: u64,
}

impl Writer for Slot {
    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn with_instance<T>(
        &mut self,
        call: impl FnOnce(&mut Instance) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => self.shared.instance()?,
        };
        self.calls += 1;
        let outcome = call(&mut instance);
        self.shared.add_log(instance.take_log());
        match outcome {
            Ok(_) => self.instance = Some(instance),
            // What an instance remembers of a call that came to nothing is not true.
            Err(_) => self.traps += 1,
        }
        outcome
    }
}

impl Partition {
    /// Opens the partition that `storage` holds, new or not, for the deployment `deployment`.
    ///
    /// # Errors
    /// [`Error::Config`] when the plugin refuses `config`, [`Error::Storage`] when the state cannot be loaded;
    /// others as for any call.
    pub fn open(
        plugin: Plugin,
        deployment: &str,
        config: &str,
        limits: Limits,
        mut storage: Box<dyn StateStorage>,
    ) -> Result<Partition, Error> {
        let shared = Arc::new(Shared::new(plugin, deployment, config, limits));
        let instance = shared.instance()?;
        let loaded = storage
            .load()
            .map_err(|message| Error::Storage { deployment: deployment.into(), message })?;
        let space = KeySpace::from_entries(loaded.entries);
        *shared.published.write() = Published { space, stopped: None };
        Ok(Partition {
            slot: Slot { shared, instance: Some(instance), traps: 0, calls: 0 },
            storage,
            progress: loaded.progress.into_iter().collect(),
            status: Status::default(),
            cut: Cut::default(),
        })
    }

    /// Where the feed of a vBucket goes on.
    pub fn progress(&self, vbid: Vbid) -> ResumePoint {
        self.progress.get(&vbid).copied().unwrap_or_default()
    }

    /// Where the feed goes on, for all vBuckets that were ever fed, in order.
    pub fn progress_of_all(&self) -> impl Iterator<Item = (Vbid, ResumePoint)> {
        self.progress.iter().map(|(vbid, point)| (*vbid, *point))
    }

    /// Whether it was ever fed, or told where to begin.
    pub fn is_begun(&self) -> bool {
        !self.progress.is_empty()
    }

    /// Begins somewhere else than with the first mutation of each vBucket.
    ///
    /// # Errors
    /// [`Error::Storage`]; the partition is stopped then.
    pub fn begin_at(&mut self, points: &[(Vbid, ResumePoint)]) -> Result<(), Error> {
        self.running()?;
        let space = self.slot.shared.published.read().space.clone();
        self.commit(space, Writes::new(), points)
    }

    /// Folds a batch into the state: its writes and its progress become visible in one commit.
    ///
    /// Documents that fail are in the report, and documents that kill the plugin are parked and skipped; both
    /// are part of the commit.
    ///
    /// # Errors
    /// [`Error::Retry`] or [`Error::Busy`]: nothing happened, try again. Any other error has stopped the
    /// partition, without any effect of this batch.
    pub fn on_batch(&mut self, batch: &Batch, now: Now) -> Result<Report, Error> {
        self.running()?;
        let space = self.slot.shared.published.read().space.clone();
        let mut report = Report::default();
        match self.cut.feed(&mut self.slot, &batch.documents, space, now, &mut report) {
            Ok(Fed { space, writes }) => {
                self.commit(space, writes, &batch.progress)?;
                self.status.add(&report);
                Ok(report)
            }
            Err(error) => {
                // The documents were not taken, but what they did to the plugin is worth knowing.
                self.status.add(&Report { documents: 0, ..report });
                Err(self.stop_unless_retryable(error))
            }
        }
    }

    /// Cuts the state back to `to` in the history of `vbid`; gives where the feed goes on, `to` or earlier.
    ///
    /// # Errors
    /// As for [`Partition::on_batch`].
    pub fn rollback(&mut self, vbid: Vbid, to: ResumePoint) -> Result<ResumePoint, Error> {
        self.running()?;
        let mut fed =
            Fed { space: self.slot.shared.published.read().space.clone(), writes: Writes::new() };
        let reached = loop {
            match self.rollback_part(vbid, to.seqno, &mut fed) {
                Ok(Some(reached)) => break reached,
                Ok(None) => {}
                Err(error) => return Err(self.stop_unless_retryable(error)),
            }
        };
        let point = match reached {
            Seqno::ZERO => ResumePoint::default(),
            reached if reached == to.seqno => to,
            reached if reached < to.seqno => {
                ResumePoint { seqno: reached, snapshot_start: reached, snapshot_end: reached, ..to }
            }
            beyond => {
                let message = format!("rolled back {vbid} to {beyond}, not to {}", to.seqno);
                let deployment = self.slot.shared.deployment.to_string();
                return Err(self.stop_unless_retryable(Error::Fatal { deployment, message }));
            }
        };
        self.commit(fed.space, fed.writes, &[(vbid, point)])?;
        Ok(point)
    }

    /// One call of a rollback; gives the seqno reached, or none when there is more to do.
    fn rollback_part(
        &mut self,
        vbid: Vbid,
        to: Seqno,
        fed: &mut Fed,
    ) -> Result<Option<Seqno>, Error> {
        let view = View::writing(fed.space.clone(), self.slot.shared.limits.state_bytes);
        let (reached, view) = self.slot.with_instance(|instance| {
            let reached = instance.call(view, |service, store| {
                service.nacre_plugin_feed().call_rollback(store, vbid.0, to.0)
            })?;
            Ok((reached, instance.take_view()))
        })?;
        let writes = view.writes.unwrap_or_default();
        if reached.is_none() && writes.is_empty() {
            let message = format!("the rollback of {vbid} makes no progress");
            return Err(Error::Fatal {
                deployment: self.slot.shared.deployment.to_string(),
                message,
            });
        }
        fed.space = view.space;
        fed.writes.extend(writes);
        Ok(reached.map(Seqno))
    }

    /// Forgets state and progress, so that the feed starts over; a stopped partition runs again.
    ///
    /// # Errors
    /// [`Error::Storage`] when the storage could not be cleared; the partition is stopped then.
    pub fn clear(&mut self) -> Result<(), Error> {
        if let Err(message) = self.storage.clear() {
            let deployment = self.slot.shared.deployment.to_string();
            return Err(self.stop_unless_retryable(Error::Storage { deployment, message }));
        }
        self.progress.clear();
        self.cut = Cut::default();
        *self.slot.shared.published.write() = Published::default();
        Ok(())
    }

    /// A reader of this partition; outlives it.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.slot.shared))
    }

    /// Counters and recent events.
    pub fn status(&self) -> Status {
        let published = self.slot.shared.published.read();
        Status {
            traps: self.slot.traps,
            calls: self.slot.calls,
            state_bytes: published.space.bytes(),
            stopped: published.stopped.clone(),
            log: self.slot.shared.log(),
            ..self.status.clone()
        }
    }

    fn running(&self) -> Result<(), Error> {
        self.slot.shared.snapshot().map(drop)
    }

    fn commit(
        &mut self,
        space: KeySpace,
        writes: Writes,
        progress: &[(Vbid, ResumePoint)],
    ) -> Result<(), Error> {
        let writes: Vec<_> = writes
            .into_iter()
            .map(|(key, value)| (key.to_vec(), value.map(|value| value.to_vec())))
            .collect();
        if let Err(message) = self.storage.commit(&writes, progress) {
            let deployment = self.slot.shared.deployment.to_string();
            return Err(self.stop_unless_retryable(Error::Storage { deployment, message }));
        }
        self.progress.extend(progress.iter().copied());
        self.slot.shared.published.write().space = space;
        Ok(())
    }

    fn stop_unless_retryable(&mut self, error: Error) -> Error {
        if !error.is_retryable() {
            self.slot.instance = None;
            self.slot.shared.published.write().stopped = Some(error.reason());
        }
        error
    }
}
