//! Which superseded versions a vBucket has its store keep: those of some collections, from a seqno on.
//!
//! Memory keeps every version anyway, for as long as it keeps that part of history.

use crate::vbucket::Vbucket;
use nacre_types::{CollectionId, Seqno};
use std::sync::Arc;

/// What is to be kept.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    /// Ascending; none when no history is kept.
    collections: Arc<[CollectionId]>,
    start: Option<Seqno>,
    /// Whether the store does not know of `start` yet.
    is_news: bool,
}

impl Retention {
    /// As a vBucket's record has it, before it is said which collections keep history.
    pub fn starting_at(start: Option<Seqno>) -> Retention {
        Retention { start, ..Retention::default() }
    }

    fn set_start(&mut self, start: Option<Seqno>) {
        self.is_news |= self.start != start;
        self.start = start;
    }
}

impl Vbucket {
    /// Has the versions of these collections (ascending) kept, from where history begins already or else from now on.
    /// `None` has all history forgotten.
    pub fn keep_history(&mut self, collections: Option<Arc<[CollectionId]>>) {
        let next = self.high_seqno().next();
        let start = collections.as_ref().map(|_| self.retention.start.unwrap_or(next));
        self.retention.set_start(start);
        self.retention.collections = collections.unwrap_or_default();
    }

    /// Has history begin at `start`, if it is kept and began before.
    pub fn forget_history(&mut self, start: Seqno) {
        if let Some(known) = self.retention.start {
            self.retention.set_start(Some(start.max(known)));
        }
    }

    /// From which seqno on superseded versions are kept; `None` when none are.
    pub fn history_start(&self) -> Option<Seqno> {
        self.retention.start
    }

    /// The collections that keep history, ascending.
    pub fn history_collections(&self) -> &Arc<[CollectionId]> {
        &self.retention.collections
    }

    /// Whether the store is to be told where history begins.
    pub fn has_history_news(&self) -> bool {
        self.retention.is_news
    }

    /// Takes note that the next commit tells the store where history begins.
    pub fn take_history_news(&mut self) {
        self.retention.is_news = false;
    }
}
