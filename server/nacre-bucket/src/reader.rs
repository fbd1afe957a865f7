//! What a reader of a bucket's history is told: which vBuckets were written to.

use crate::Waiter;
use nacre_types::Vbid;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A set of vBuckets that have news for one reader, and what wakes it.
pub struct News {
    bits: Box<[AtomicU64]>,
    /// Those that the reader wants to hear of.
    heeded: Box<[AtomicU64]>,
    waiter: Arc<dyn Waiter>,
}

/// As many words, each with these bits.
fn words(vbucket_count: usize, bits: u64) -> Box<[AtomicU64]> {
    (0..vbucket_count.div_ceil(64)).map(|_| AtomicU64::new(bits)).collect()
}

impl News {
    /// No news of `vbucket_count` vBuckets so far, for one who wants to hear of each.
    pub(crate) fn of_all(vbucket_count: usize, waiter: Arc<dyn Waiter>) -> News {
        let (bits, heeded) = (words(vbucket_count, 0), words(vbucket_count, u64::MAX));
        News { bits, heeded, waiter }
    }

    /// The same for one who wants to hear of none until [`News::heed`].
    pub(crate) fn of_none(vbucket_count: usize, waiter: Arc<dyn Waiter>) -> News {
        let (bits, heeded) = (words(vbucket_count, 0), words(vbucket_count, 0));
        News { bits, heeded, waiter }
    }

    /// From now on the reader wants to hear of `vbid`, if there is such a vBucket.
    pub fn heed(&self, vbid: Vbid) {
        if let Some(word) = self.heeded.get(vbid.index() / 64) {
            word.fetch_or(1 << (vbid.index() % 64), Ordering::AcqRel);
        }
    }

    /// Has the reader look.
    pub fn wake(&self) {
        self.waiter.wake();
    }

    /// Whether no vBucket has news.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }

    /// Notes that `vbid` has news, if that is wanted. Does not wake: callers wake once for all they noted.
    pub fn note(&self, vbid: Vbid) {
        let (word, bit) = (vbid.index() / 64, 1 << (vbid.index() % 64));
        if self.heeded[word].load(Ordering::Acquire) & bit == 0 {
            return;
        }
        // Most writes find the bit set: look before writing to a line that other threads read.
        if self.bits[word].load(Ordering::Relaxed) & bit == 0 {
            self.bits[word].fetch_or(bit, Ordering::Release);
        }
    }

    /// Takes one vBucket out of the set, looking from `from` on and around.
    pub fn take(&self, from: usize) -> Option<Vbid> {
        self.take_among(from, u64::MAX)
    }

    /// As [`News::take`], among the vBuckets whose bit is set in `wanted`: that of the number modulo 64.
    pub fn take_among(&self, from: usize, wanted: u64) -> Option<Vbid> {
        let words = self.bits.len();
        for step in 0..=words {
            let index = (from / 64 + step) % words;
            let mut word = self.bits[index].load(Ordering::Acquire) & wanted;
            if step == 0 {
                word &= u64::MAX << (from % 64);
            }
            if word != 0 {
                let bit = word.trailing_zeros() as usize;
                self.bits[index].fetch_and(!(1 << bit), Ordering::AcqRel);
                return Some(Vbid((index * 64 + bit) as u16));
            }
        }
        None
    }
}

/// Those who read what a bucket's vBuckets have.
pub struct Readers {
    vbucket_count: usize,
    all: RwLock<Vec<Arc<News>>>,
}

impl Readers {
    /// None so far, of as many vBuckets.
    pub fn of(vbucket_count: usize) -> Readers {
        Readers { vbucket_count, all: RwLock::default() }
    }

    /// Registers one who hears of every vBucket.
    pub fn add(&self, waiter: Arc<dyn Waiter>) -> Arc<News> {
        self.register(News::of_all(self.vbucket_count, waiter))
    }

    /// Registers one who hears of the vBuckets that it [heeds](News::heed).
    pub(crate) fn add_listener(&self, waiter: Arc<dyn Waiter>) -> Arc<News> {
        self.register(News::of_none(self.vbucket_count, waiter))
    }

    /// Registers one who hears of these vBuckets, and has news of each at first.
    pub fn add_reader(
        &self,
        vbids: impl Iterator<Item = Vbid>,
        waiter: Arc<dyn Waiter>,
    ) -> Arc<News> {
        let news = self.add_listener(waiter);
        for vbid in vbids {
            news.heed(vbid);
            news.note(vbid);
        }
        news.wake();
        news
    }

    fn register(&self, news: News) -> Arc<News> {
        let news = Arc::new(news);
        self.all.write().push(Arc::clone(&news));
        news
    }

    /// Forgets one.
    pub fn remove(&self, news: &Arc<News>) {
        self.all.write().retain(|known| !Arc::ptr_eq(known, news));
    }

    /// Tells each that `vbid` has news. Does not wake.
    pub fn note(&self, vbid: Vbid) {
        self.all.read().iter().for_each(|news| news.note(vbid));
    }

    /// Wakes those who have news.
    pub fn wake(&self) {
        self.all.read().iter().filter(|news| !news.is_empty()).for_each(|news| news.wake());
    }

    /// Wakes each, since something else than history has changed for some.
    pub fn have_look(&self) {
        self.all.read().iter().for_each(|news| news.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signal;

    fn news(vbucket_count: usize) -> News {
        News::of_all(vbucket_count, Arc::new(Signal::default()))
    }

    #[test]
    fn what_is_not_heeded_is_no_news() {
        let news = News::of_none(1024, Arc::new(Signal::default()));
        news.note(Vbid(65));
        assert!(news.is_empty());
        news.heed(Vbid(65));
        (64..67).for_each(|vbid| news.note(Vbid(vbid)));
        assert_eq!((news.take(0), news.take(0)), (Some(Vbid(65)), None));
    }

    #[test]
    fn news_are_taken_once_and_in_turn() {
        let news = news(1024);
        for vbid in [3, 64, 700] {
            news.note(Vbid(vbid));
            news.note(Vbid(vbid));
        }
        assert!(!news.is_empty());
        assert_eq!(news.take(65), Some(Vbid(700)));
        assert_eq!(news.take(701), Some(Vbid(3)));
        assert_eq!(news.take(4), Some(Vbid(64)));
        assert_eq!(news.take(0), None);
        assert!(news.is_empty());
    }

    #[test]
    fn others_are_left_where_they_are() {
        let news = news(1024);
        for vbid in [3, 16, 700, 704] {
            news.note(Vbid(vbid));
        }
        let sixteenth = 1 | 1 << 16 | 1 << 32 | 1 << 48;
        assert_eq!(news.take_among(17, sixteenth), Some(Vbid(704)));
        assert_eq!(news.take_among(705, sixteenth), Some(Vbid(16)));
        assert_eq!(news.take_among(17, sixteenth), None);
        assert_eq!(news.take(17), Some(Vbid(700)));
    }

    #[test]
    fn a_bit_below_the_start_is_found_on_the_way_round() {
        let news = news(64);
        news.note(Vbid(2));
        assert_eq!(news.take(5), Some(Vbid(2)));
    }
}
