//! Feeding documents to a writer, and finding the one that kills it.

use crate::instance::Instance;
use crate::pack::{event_bytes, pack};
use crate::space::{KeySpace, View, Writes};
use crate::status::{DeadLetter, DocumentError, Report};
use crate::{Error, Limits};
use nacre_types::{Document, Now, Vbid};
use std::sync::Arc;

/// Events of one call at most. From 64 on the cost of a call no longer shows.
pub const CALL_EVENTS_MAX: usize = 1024;
/// Bytes of one call at most, unless a single document is larger.
const CALL_BYTES_MAX: usize = 8 << 20;
/// Characters of an error message that are kept.
const MESSAGE_CHARS_MAX: usize = 2000;

type Documents<'a> = &'a [(Vbid, Arc<Document>)];

/// What a batch makes of the state; nothing of it is visible yet.
pub struct Fed {
    pub space: KeySpace,
    pub writes: Writes,
}

/// What the feed needs of its partition.
pub trait Writer {
    fn limits(&self) -> Limits;

    /// Runs `call` on the writer instance; replaces the instance when it fails.
    fn with_instance<T>(
        &mut self,
        call: impl FnOnce(&mut Instance) -> Result<T, Error>,
    ) -> Result<T, Error>;
}

/// How the feed is cut into calls; kept from batch to batch.
pub struct Cut {
    /// Events of the next call.
    events: usize,
    /// Documents in a row that killed their instance.
    poison_run: u32,
}

impl Default for Cut {
    fn default() -> Cut {
        Cut { events: CALL_EVENTS_MAX, poison_run: 0 }
    }
}

impl Cut {
    /// Feeds `documents` in calls of bounded size.
    ///
    /// `report` is filled as far as the feed comes, also when it ends with an error.
    ///
    /// A call that kills its instance is made again with half of its documents, until a single one is left:
    /// that is poison, and is parked. A call that passes its deadline with many documents may just be too large,
    /// so the smaller size is kept until the suspects are through and the next batch begins.
    pub fn feed(
        &mut self,
        writer: &mut impl Writer,
        documents: Documents<'_>,
        space: KeySpace,
        now: Now,
        report: &mut Report,
    ) -> Result<Fed, Error> {
        let mut fed = Fed { space, writes: Writes::new() };
        let mut at = 0;
        // The end of the range that failed last: poison lies before it, or its calls were too large.
        let mut suspects_end = 0;
        let mut too_large = false;
        self.events = (self.events * 2).min(CALL_EVENTS_MAX);
        while at < documents.len() {
            let end = match at < suspects_end {
                true => suspects_end.min(at + self.events),
                false => at + self.events,
            };
            let call = cut(&documents[at..end.min(documents.len())]);
            match call_with(writer, call, &mut fed, now, report) {
                Ok(()) => {
                    at += call.len();
                    self.poison_run = 0;
                    if at >= suspects_end && !too_large {
                        self.events = (self.events * 2).min(CALL_EVENTS_MAX);
                    }
                }
                Err(error) if error.is_poison() && call.len() > 1 => {
                    suspects_end = at + call.len();
                    too_large = matches!(error, Error::Deadline { .. });
                    self.events = call.len().div_ceil(2);
                }
                Err(error) if error.is_poison() => {
                    let (vbid, document) = &call[0];
                    report.dead_letters.push(DeadLetter {
                        vbid: *vbid,
                        seqno: document.meta.seqno,
                        key: document.name().to_vec(),
                        reason: error.reason(),
                    });
                    at += 1;
                    suspects_end = at;
                    too_large = false;
                    self.poison_run += 1;
                    if self.poison_run >= writer.limits().errors_max {
                        return Err(error.in_a_row(self.poison_run));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(fed)
    }
}

/// The first documents of `documents` that make one call.
fn cut(documents: Documents<'_>) -> Documents<'_> {
    let mut bytes = 0;
    let fits = |(_, document): &&(Vbid, Arc<Document>)| {
        bytes += event_bytes(document);
        bytes <= CALL_BYTES_MAX
    };
    let count = documents.iter().take_while(fits).count();
    &documents[..count.max(1).min(documents.len())]
}

fn call_with(
    writer: &mut impl Writer,
    documents: Documents<'_>,
    fed: &mut Fed,
    now: Now,
    report: &mut Report,
) -> Result<(), Error> {
    let buffer = pack(documents, now);
    let view = View::writing(fed.space.clone(), writer.limits().state_bytes);
    let (outcome, view) = writer.with_instance(|instance| {
        let outcome = instance.call(view, |service, store| {
            service.nacre_plugin_feed().call_on_batch(store, &buffer)
        })?;
        Ok((outcome, instance.take_view()))
    })?;
    fed.space = view.space;
    fed.writes.extend(view.writes.unwrap_or_default());
    report.documents += documents.len() as u64;
    // A plugin may name an event that does not exist; there is nobody to tell.
    let errors = outcome.errors.into_iter().filter_map(|error| {
        let (vbid, document) = documents.get(error.index as usize)?;
        Some(DocumentError {
            vbid: *vbid,
            seqno: document.meta.seqno,
            key: document.name().to_vec(),
            message: error.message.chars().take(MESSAGE_CHARS_MAX).collect(),
        })
    });
    report.errors.extend(errors);
    Ok(())
}
