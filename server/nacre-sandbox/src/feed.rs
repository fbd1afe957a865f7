//! Feeds a writer with documents or timers, and finds the item that kills it.

use crate::abi::exports::nacre::plugin::projection;
use crate::abi::exports::nacre::plugin::timer_handler::Due;
use crate::call::{CallView, CurrentItem, Failure};
use crate::capsule::{Bytes, Call, DueTimer};
use crate::instance::Instance;
use crate::pack::{event_bytes, pack, previous_bytes};
use crate::status::{DeadLetter, DeadTimer, DocumentError, Report};
use crate::{Error, Limits};
use nacre_dcp::Previous;
use nacre_state::{Entry, Home, IndexForm, Refused, State, Timer, View, Writes};
use nacre_types::{Document, Now, Vbid};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of events per call, equal to the limit of feed batches.
pub const CALL_EVENTS_MAX: usize = 8192;
/// Maximum size of a call in bytes, unless a single document or timer is larger.
const CALL_BYTES_MAX: usize = 16 << 20;

/// The state after a part of a batch, which is not visible yet.
pub struct Fed {
    pub state: State,
    pub writes: Writes,
}

impl Fed {
    /// Creates the result of an empty batch.
    pub fn new(state: State) -> Fed {
        Fed { state, writes: Writes::default() }
    }

    /// Adds the results of a call.
    pub fn take(&mut self, call: CallView) {
        if let Some(current_item) = call.current_item {
            self.take_done(current_item);
        }
        self.take_view(call.view);
    }

    /// Adds changes made by the host itself.
    pub fn take_view(&mut self, view: View) {
        self.state = view.state;
        self.writes.extend(view.writes.unwrap_or_default());
    }

    /// Adds the results of the items that were processed before a call ended.
    fn take_done(&mut self, current_item: CurrentItem) {
        self.state = current_item.state;
        self.writes.extend(current_item.writes);
    }
}

/// A call that ended early.
pub struct Halt {
    error: Error,
    /// The index of the current item among all items, if the plugin named it. The items before it are processed, and
    /// their results are added.
    at_work: Option<usize>,
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt { error, at_work: None }
    }
}

/// The parts of a partition that the feed needs.
pub trait Writer {
    fn limits(&self) -> Limits;

    /// Runs `call` on the writer instance with a view of `state`, and returns its results. Replaces the instance if the
    /// call fails. The plugin may name the current one of `items_count` items.
    fn call<T>(
        &mut self,
        state: State,
        items_count: usize,
        call: impl FnOnce(&mut Instance, CallView) -> Result<T, Error>,
    ) -> Result<(T, CallView), Error>;

    /// Runs a change of the state by the host itself, limited to `bytes_max` bytes, and converts the error if it is
    /// refused.
    fn fold<T>(
        &self,
        bytes_max: usize,
        work: impl FnOnce() -> Result<T, Refused>,
    ) -> Result<T, Error>;

    /// Takes the current item of the last failed call, and the items that could not be processed.
    fn take_current_item(&mut self) -> Option<(CurrentItem, Vec<Failure>)>;

    /// Keeps a capsule of the last failed call.
    fn keep(&mut self, call: Call, error: &Error);

    /// Returns the reason why no more calls may be made for now, if there is one.
    fn interrupted(&self) -> Option<Error>;
}

/// Items that are passed to a plugin in order, several at a time.
pub trait Work {
    /// Name of the items.
    const ITEMS: &'static str;

    fn count(&self) -> usize;

    /// Returns the size of the item at `at` in a call, in bytes.
    fn bytes(&self, at: usize) -> usize;

    /// Passes some items to the plugin.
    fn call(
        &self,
        items: Range<usize>,
        writer: &mut impl Writer,
        fed: &mut Fed,
        report: &mut Report,
    ) -> Result<(), Halt>;

    /// Skips the item at `at`, which killed its instance alone.
    fn park(&self, at: usize, fed: &mut Fed, report: &mut Report, reason: String);

    /// Returns the call with only the item at `at`.
    fn call_of(&self, at: usize) -> Call;
}

/// The division of work into calls, preserved between batches.
pub struct Cut {
    /// Number of items in the next call.
    items: usize,
    /// Number of consecutive items that killed their instance.
    poison_run: u32,
}

impl Default for Cut {
    fn default() -> Cut {
        Cut { items: CALL_EVENTS_MAX, poison_run: 0 }
    }
}

impl Cut {
    /// Feeds `work` in calls of bounded size. Returns the number of processed items, and the error that stopped it.
    ///
    /// `fed` and `report` contain the results of the processed items.
    ///
    /// A call that kills its instance is repeated with half of its items, until a single one is left: this item is
    /// poison, and is parked. A call with many items that exceeds its deadline may just be too large, so the smaller
    /// size is kept until the suspects are processed and the next batch begins. If the plugin names the current item,
    /// the items before it are processed, and it is the only suspect.
    pub fn feed<W: Work>(
        &mut self,
        writer: &mut impl Writer,
        work: &W,
        fed: &mut Fed,
        report: &mut Report,
    ) -> (usize, Result<(), Error>) {
        let mut at = 0;
        // The end of the range that failed last: it contains poison, or its calls were too large.
        let mut suspects_end = 0;
        let mut too_large = false;
        self.items = (self.items * 2).min(CALL_EVENTS_MAX);
        while at < work.count() {
            // Each poison item takes time, and there may be many.
            if let Some(interrupted) = writer.interrupted() {
                return (at, Err(interrupted));
            }
            let end = match at < suspects_end {
                true => suspects_end.min(at + self.items),
                false => at + self.items,
            };
            let items = cut(work, at..end.min(work.count()));
            let Halt { error, at_work } = match work.call(items.clone(), writer, fed, report) {
                Ok(()) => {
                    at = items.end;
                    self.poison_run = 0;
                    if at >= suspects_end && !too_large {
                        self.items = (self.items * 2).min(CALL_EVENTS_MAX);
                    }
                    continue;
                }
                Err(halt) => halt,
            };
            if at_work.is_some_and(|index| index > at) {
                self.poison_run = 0;
            }
            at = at_work.unwrap_or(at);
            if !error.is_poison() {
                return (at, Err(error));
            }
            let is_deadline = matches!(error, Error::Deadline { .. });
            // If the plugin names the current item, an exceeded deadline is that of this item. Other failures may be
            // caused by earlier items.
            let is_alone = items.len() == 1 || (is_deadline && at_work.is_some());
            if !is_alone {
                suspects_end = at_work.map_or(items.end, |index| index + 1);
                too_large = is_deadline;
                self.items = if at_work.is_some() { 1 } else { items.len().div_ceil(2) };
                continue;
            }
            // The item is not the cause if others have taken the memory.
            if error.is_retryable() {
                return (at, Err(error));
            }
            writer.keep(work.call_of(at), &error);
            work.park(at, fed, report, error.reason());
            at += 1;
            suspects_end = at;
            too_large = false;
            self.poison_run += 1;
            if self.poison_run >= writer.limits().errors_max {
                return (at, Err(error.in_a_row(self.poison_run, W::ITEMS)));
            }
        }
        (at, Ok(()))
    }
}

/// Returns the leading part of `items` that fits into one call.
fn cut(work: &impl Work, items: Range<usize>) -> Range<usize> {
    let mut bytes = 0;
    let fits = |at: &usize| {
        bytes += work.bytes(*at);
        bytes <= CALL_BYTES_MAX
    };
    let count = items.clone().take_while(fits).count();
    items.start..items.end.min(items.start + count.max(1))
}

/// Documents for `feed.on-batch`.
pub struct Documents<'a> {
    pub documents: &'a [(Vbid, Document)],
    /// The previous versions, for plugins that request them.
    pub previous: &'a Previous,
    pub now: Now,
}

impl Work for Documents<'_> {
    const ITEMS: &'static str = "documents";

    fn count(&self) -> usize {
        self.documents.len()
    }

    fn bytes(&self, at: usize) -> usize {
        let (vbid, document) = &self.documents[at];
        let previous = self.previous.get(&(*vbid, document.meta.seqno));
        event_bytes(document) + previous.map_or(0, previous_bytes)
    }

    fn call(
        &self,
        items: Range<usize>,
        writer: &mut impl Writer,
        fed: &mut Fed,
        report: &mut Report,
    ) -> Result<(), Halt> {
        let documents = &self.documents[items.clone()];
        let buffer = pack(documents, self.previous, self.now);
        let called = writer.call(fed.state.clone(), documents.len(), |instance, view| {
            instance.call(view, |exports, store| exports.feed()?.call_on_batch(store, &buffer))
        });
        let (outcome, mut view) = called.map_err(|error| {
            let Some((current_item, failures)) = writer.take_current_item() else {
                return error.into();
            };
            let (at_work, done) =
                (Some(items.start + current_item.index), &documents[..current_item.index]);
            report.documents += current_item.index as u64;
            report.errors.extend(errors(done, failures));
            fed.take_done(current_item);
            Halt { error, at_work }
        })?;
        let reported = outcome.errors.iter().map(|error| Failure::new(error.index, &error.message));
        let failures = std::mem::take(&mut view.failures).into_iter().chain(reported);
        report.documents += documents.len() as u64;
        report.errors.extend(errors(documents, failures));
        fed.take(view);
        Ok(())
    }

    fn park(&self, at: usize, _: &mut Fed, report: &mut Report, reason: String) {
        let (vbid, document) = &self.documents[at];
        report.dead_letters.push(DeadLetter {
            vbid: *vbid,
            seqno: document.meta.seqno,
            key: document.name().to_vec(),
            reason,
        });
    }

    fn call_of(&self, at: usize) -> Call {
        Call::OnBatch { buffer: Bytes(pack(&self.documents[at..=at], self.previous, self.now)) }
    }
}

/// Returns the errors of documents that could not be processed. Ignores documents that the plugin named but that do not
/// exist.
fn errors(
    documents: &[(Vbid, Document)],
    failures: impl IntoIterator<Item = Failure>,
) -> impl Iterator<Item = DocumentError> {
    failures.into_iter().filter_map(|Failure { index, message }| {
        let (vbid, document) = documents.get(index)?;
        let (seqno, key) = (document.meta.seqno, document.name().to_vec());
        Some(DocumentError { vbid: *vbid, seqno, key, message })
    })
}

/// Documents for `projection.project`, whose entries the host stores.
pub struct Projected<'a>(pub Documents<'a>, pub &'a IndexForm);

impl Work for Projected<'_> {
    const ITEMS: &'static str = Documents::ITEMS;

    fn count(&self) -> usize {
        self.0.count()
    }

    fn bytes(&self, at: usize) -> usize {
        self.0.bytes(at)
    }

    fn call(
        &self,
        items: Range<usize>,
        writer: &mut impl Writer,
        fed: &mut Fed,
        report: &mut Report,
    ) -> Result<(), Halt> {
        let documents = &self.0.documents[items];
        let buffer = pack(documents, self.0.previous, self.0.now);
        let (entries, mut view) = writer.call(fed.state.clone(), 0, |instance, view| {
            instance.call(view, |exports, store| exports.projection()?.call_project(store, &buffer))
        })?;
        let entries = entries.into_iter().map(|entry| {
            let projection::Entry { event, key, value } = entry;
            Entry { event, key, value }
        });
        let (entries, bytes_max) = (entries.collect(), view.bytes_max);
        let too_large =
            writer.fold(bytes_max, || nacre_state::fold(&mut view, documents, entries, self.1))?;
        fed.take(view);
        report.documents += documents.len() as u64;
        report.errors.extend(too_large.into_iter().map(|at| {
            let (vbid, document) = &documents[at];
            DocumentError {
                vbid: *vbid,
                seqno: document.meta.seqno,
                key: document.name().to_vec(),
                message: nacre_state::too_large(),
            }
        }));
        Ok(())
    }

    fn park(&self, at: usize, fed: &mut Fed, report: &mut Report, reason: String) {
        // Its existing entries belong to an earlier version, so they are removed.
        let mut view = View::writing(fed.state.clone(), usize::MAX);
        nacre_state::fold(&mut view, &self.0.documents[at..=at], Vec::new(), self.1)
            .expect("what only removes is never refused");
        fed.take_view(view);
        self.0.park(at, fed, report, reason);
    }

    fn call_of(&self, at: usize) -> Call {
        Call::Project {
            buffer: Bytes(pack(&self.0.documents[at..=at], self.0.previous, self.0.now)),
        }
    }
}

/// Timers for `timer-handler.on-timer`.
pub struct DueTimers {
    pub timers: Vec<(Home, Arc<str>, Arc<Timer>)>,
    pub now_us: u64,
}

impl DueTimers {
    /// Removes a timer that must not fire again.
    fn remove(home: Home, name: &Arc<str>, state: &mut State, writes: &mut Writes) {
        state.timers.cancel(home, name);
        writes.timers.insert((home, Arc::clone(name)), None);
    }

    /// Adds the results of fired `timers`. The others remain set, except those that were set again or cancelled.
    fn take_done(
        timers: &[&(Home, Arc<str>, Arc<Timer>)],
        current_item: CurrentItem,
        fed: &mut Fed,
    ) {
        let (fired, others) = timers.split_at(current_item.index);
        for (home, name, _) in fired {
            fed.writes.timers.insert((*home, Arc::clone(name)), None);
        }
        fed.take_done(current_item);
        for (home, name, timer) in others {
            if !fed.writes.timers.contains_key(&(*home, Arc::clone(name))) {
                fed.state.timers.set(*home, Arc::clone(name), Arc::clone(timer));
            }
        }
    }
}

impl Work for DueTimers {
    const ITEMS: &'static str = "timers";

    fn count(&self) -> usize {
        self.timers.len()
    }

    fn bytes(&self, at: usize) -> usize {
        let (_, name, timer) = &self.timers[at];
        name.len() + timer.payload.len()
    }

    fn call(
        &self,
        items: Range<usize>,
        writer: &mut impl Writer,
        fed: &mut Fed,
        report: &mut Report,
    ) -> Result<(), Halt> {
        // An earlier call with these timers may have cancelled or moved some of them.
        let still_set = |(home, name, timer): &&(Home, Arc<str>, Arc<Timer>)| {
            fed.state.timers.get(*home, name).is_some_and(|now| *now == **timer)
        };
        let first = items.start;
        let timers = self.timers[items].iter().enumerate().filter(|(_, timer)| still_set(timer));
        let (places, timers): (Vec<_>, Vec<_>) = timers.unzip();
        let due = |(home, name, timer): &(Home, Arc<str>, Arc<Timer>)| Due {
            vb: home.map(|vbid| vbid.0),
            name: name.to_string(),
            due_us: timer.due_us,
            payload: timer.payload.clone(),
        };
        let due: Vec<_> = timers.iter().copied().map(due).collect();
        // A timer is removed before the plugin is called, so that the plugin can set it again.
        let (mut state, mut fired) = (fed.state.clone(), Writes::default());
        for (home, name, _) in &timers {
            DueTimers::remove(*home, name, &mut state, &mut fired);
        }
        let called = writer.call(state, due.len(), |instance, view| {
            instance.call(view, |exports, store| {
                exports.timer_handler()?.call_on_timer(store, self.now_us, &due)
            })
        });
        let ((), view) = called.map_err(|error| {
            let Some((current_item, _)) = writer.take_current_item() else { return error.into() };
            let at_work = Some(first + places[current_item.index]);
            report.timers += current_item.index as u64;
            DueTimers::take_done(&timers, current_item, fed);
            Halt { error, at_work }
        })?;
        fed.writes.extend(fired);
        fed.take(view);
        report.timers += timers.len() as u64;
        Ok(())
    }

    fn park(&self, at: usize, fed: &mut Fed, report: &mut Report, reason: String) {
        let (home, name, timer) = &self.timers[at];
        DueTimers::remove(*home, name, &mut fed.state, &mut fed.writes);
        let name = name.to_string();
        report.dead_timers.push(DeadTimer { name, due_us: timer.due_us, reason });
    }

    fn call_of(&self, at: usize) -> Call {
        let (home, name, timer) = &self.timers[at];
        Call::OnTimer { now_us: self.now_us, timers: vec![DueTimer::new(*home, name, timer)] }
    }
}
