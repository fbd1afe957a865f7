//! One deployment at work: what it has processed, how it is doing, and answers from its state.

use super::spec::Spec;
use crate::bucket::Bucket;
use crate::node::Node;
use crate::platform::Platform;
use crate::watermark::Watermarks;
use nacre_plugin_host::{Answer, Capsule, LOG_LINES_MAX, LogLine, Reader, Request, Status};
use nacre_types::{Now, Seqno, Vbid};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// How a deployment is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It follows the bucket.
    Running,
    /// It takes no documents, and answers from the state it has.
    Paused,
    /// Another version goes on with its state.
    HandedOver,
    /// It was replaced or removed, and its state goes.
    Removed,
    /// It cannot go on: the reason, for whoever deployed it.
    Failed(String),
}

/// One deployment at work.
pub struct Deployment {
    /// As messages name it: `bucket/design document`, or the name it was deployed under.
    pub name: String,
    pub(super) spec: Spec,
    pub(super) bucket: Arc<Bucket>,
    pub(super) reader: Option<Reader>,
    /// Up to where each vBucket is reflected in the state.
    pub processed: Watermarks,
    progress: Mutex<Progress>,
    /// What the plugin's host counted when the writer came last.
    status: Mutex<Status>,
    /// What the deployment whose state this one goes on with has said.
    earlier_log: Mutex<VecDeque<LogLine>>,
    /// Whether the feed still uses the space.
    feeding: Mutex<bool>,
    fed: Condvar,
    pub(super) node: Weak<Node>,
}

impl Deployment {
    pub(super) fn new(
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        spec: Spec,
        reader: Option<Reader>,
        status: Status,
        progress: Progress,
    ) -> Deployment {
        let feeding = progress == Progress::Running;
        Deployment {
            name: spec.name.clone(),
            spec,
            bucket: Arc::clone(bucket),
            reader,
            processed: Watermarks::new(usize::from(bucket.vbucket_count())),
            progress: Mutex::new(progress),
            status: Mutex::new(status),
            earlier_log: Mutex::default(),
            feeding: Mutex::new(feeding),
            fed: Condvar::new(),
            node: Arc::downgrade(node),
        }
    }

    /// How it is doing.
    pub fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    /// Whether another one answers in its place, or none.
    pub fn is_replaced(&self) -> bool {
        matches!(self.progress(), Progress::Removed | Progress::HandedOver)
    }

    /// The package version it runs; empty for what comes with the binary.
    pub fn version(&self) -> &str {
        &self.spec.version
    }

    /// Documents that it has yet to process, counted by seqnos: versions that were superseded count too.
    pub fn lag(&self) -> u64 {
        self.lags().map(|(_, lag)| lag).sum()
    }

    /// The same for each vBucket that has documents.
    pub fn lags(&self) -> impl Iterator<Item = (Vbid, u64)> {
        self.bucket.high_seqnos().into_iter().enumerate().filter_map(|(index, high)| {
            let vbid = Vbid(index as u16);
            let processed = self.processed.get(vbid);
            (high > Seqno::ZERO).then(|| (vbid, high.0.saturating_sub(processed.0)))
        })
    }

    /// What the plugin's host counts.
    pub fn status(&self) -> Status {
        let of_writer = self.status.lock();
        let mut status = match &self.reader {
            Some(reader) => reader.status(&of_writer),
            None => of_writer.clone(),
        };
        drop(of_writer);
        for line in self.earlier_log.lock().iter().rev() {
            if status.log.len() >= LOG_LINES_MAX {
                break;
            }
            status.log.push_front(line.clone());
        }
        status
    }

    /// Goes on with what another one has said.
    pub(super) fn remember(&self, before: &Deployment) {
        *self.earlier_log.lock() = before.status().log;
    }

    pub(super) fn set_status(&self, status: Status) {
        *self.status.lock() = status;
    }

    pub(super) fn is_ended(&self) -> bool {
        *self.progress.lock() != Progress::Running
    }

    pub(super) fn end(&self, progress: Progress) {
        let mut current = self.progress.lock();
        if matches!(*current, Progress::Running | Progress::Paused) {
            *current = progress;
        }
        drop(current);
        self.processed.publish();
        self.bucket.wake_readers();
        self.forget_if_idle();
    }

    /// The feed is gone: the state of a removed deployment goes too.
    pub(super) fn feed_ended(&self) {
        *self.feeding.lock() = false;
        self.forget_if_idle();
        self.fed.notify_all();
    }

    fn forget_if_idle(&self) {
        let feeding = self.feeding.lock();
        let gone = !*feeding && *self.progress.lock() == Progress::Removed;
        if let (true, Some(node)) = (gone, self.node.upgrade())
            && let Err(error) = node.platform.spaces().remove(&self.spec.space)
        {
            tracing::warn!("{}: its state could not be removed: {error}", self.name);
        }
    }

    pub(super) fn is_feeding(&self) -> bool {
        *self.feeding.lock()
    }

    /// Waits until the feed of a deployment that was removed has ended, and its state is gone: after the batch at hand.
    /// Not for a thread that others wait for.
    pub fn wait_for_feed(&self) {
        let mut feeding = self.feeding.lock();
        while *feeding {
            self.fed.wait(&mut feeding);
        }
    }

    /// Waits until the state reflects everything that the bucket held when this was called.
    ///
    /// # Errors
    /// The reason, when the deployment ends before.
    pub async fn catch_up(&self) -> Result<(), String> {
        for (index, high_seqno) in self.bucket.high_seqnos().into_iter().enumerate() {
            let vbid = Vbid(index as u16);
            if high_seqno > Seqno::ZERO
                && !self.processed.reached(vbid, high_seqno, || self.is_ended()).await
            {
                break;
            }
        }
        match self.progress() {
            Progress::Running => Ok(()),
            Progress::Paused => Err("it is paused".into()),
            Progress::Removed | Progress::HandedOver => {
                Err("it was replaced or deleted meanwhile".into())
            }
            Progress::Failed(reason) => Err(reason),
        }
    }

    /// Answers a request, or begins to; takes as long as the plugin does, so not for a thread that others wait for.
    ///
    /// # Errors
    /// What stopped the plugin, or why it cannot answer.
    pub fn handle(&self, request: &Request, now: Now) -> Result<Answer, String> {
        if let Progress::Failed(reason) = self.progress() {
            return Err(reason);
        }
        let reader = self.reader.as_ref().ok_or("the plugin does not run")?;
        reader.handle(request, now).map_err(|error| {
            if let Some(node) = self.node.upgrade() {
                keep_capsules(&*node.platform, &self.name, reader.take_capsules());
            }
            error.to_string()
        })
    }
}

/// Calls that failed are kept, so that their author can make them fail again.
pub(super) fn keep_capsules(platform: &dyn Platform, name: &str, capsules: Vec<Capsule>) {
    for capsule in capsules {
        match platform.keep_capsule(&capsule) {
            Ok(place) => tracing::warn!(
                "{name}: {}; `nacre plugin test --replay {place}` makes the call again",
                capsule.reason
            ),
            Err(error) => {
                tracing::warn!("{name}: {}; the call could not be kept: {error}", capsule.reason);
            }
        }
    }
}
