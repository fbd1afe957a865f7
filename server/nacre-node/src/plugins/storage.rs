//! The durable side of a plugin's partition, in a space of the node.
//!
//! Rows: `s` and the plugin's key hold its state; `t` and a name hold a timer (when it is due, u64, and its payload), `v`, a
//! vBucket's number (u16) and a name one that belongs to that; `p` and a vBucket's number hold where the feed stands there
//! (UUID, seqno, start and end of its snapshot, each u64), and of what is told to other nodes as of which moment (term, time
//! and count, each u64). Numbers are big-endian.
//!
//! What acts on nothing but its own state may be kept back for a while: after a crash it is folded from history once more,
//! from a state and a progress that belong together. Rows that are written again meanwhile, as the pages of trees are all
//! the time, are then written once.

use nacre_dcp::ResumePoint;
use nacre_plugin_host::{Changes, Home, KeySpace, Loaded, Moment, Standing, StateStorage, Timer};
use nacre_store::{Space, Write};
use nacre_types::{Seqno, VbUuid, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;

const STATE: u8 = b's';
const TIMER: u8 = b't';
const VBUCKET_TIMER: u8 = b'v';
const PROGRESS: u8 = b'p';

/// Bytes of rows that are kept back at most.
const KEPT_BACK_BYTES_MAX: usize = 64 << 20;

/// One partition's rows in a space of its own.
pub(crate) struct SpaceStorage {
    space: Arc<dyn Space>,
    /// Whether commits may be kept back.
    keeps_back: bool,
    kept_back: KeptBack,
}

/// Commits that are not in the space yet: what they touched, and what became of it.
#[derive(Default)]
struct KeptBack {
    state: KeySpace,
    touched: KeySpace,
    timers: BTreeMap<(Home, String), Option<Timer>>,
    progress: BTreeMap<Vbid, Standing>,
    /// Of the rows, about.
    bytes: usize,
}

impl KeptBack {
    fn take(&mut self, changes: &Changes) {
        for key in changes.touched.keys() {
            if self.touched.add(key) {
                let value = changes.state.get(key);
                self.bytes += key.len() + value.map_or(0, |value| value.bytes().len());
            }
        }
        self.state = changes.state.clone();
        for (key, timer) in &changes.timers {
            self.bytes += key.1.len() + timer.as_ref().map_or(0, |timer| timer.payload.len());
            self.timers.insert(key.clone(), timer.clone());
        }
        self.progress.extend(changes.progress.iter().copied());
    }

    fn rows(&self) -> Vec<Write> {
        let entry = |key| (key, self.state.get(key).map(|value| value.bytes().to_vec()));
        let state = self.touched.keys().map(entry);
        let state = state.map(|(key, value)| ([&[STATE], key].concat(), value));
        let timers = self.timers.iter().map(|((home, name), timer)| {
            let value = timer
                .as_ref()
                .map(|timer| [&timer.due_us.to_be_bytes()[..], &timer.payload].concat());
            let key = match home {
                Some(Vbid(vbid)) => {
                    [&[VBUCKET_TIMER], &vbid.to_be_bytes()[..], name.as_bytes()].concat()
                }
                None => [&[TIMER], name.as_bytes()].concat(),
            };
            (key, value)
        });
        let progress = self.progress.iter().map(|(vbid, Standing { moment, point })| {
            let ResumePoint { vb_uuid, seqno, snapshot_start, snapshot_end } = *point;
            let mut numbers = vec![vb_uuid.0, seqno.0, snapshot_start.0, snapshot_end.0];
            if *moment != Moment::default() {
                numbers.extend([moment.term, moment.begun, moment.count]);
            }
            let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
            ([&[PROGRESS], &vbid.0.to_be_bytes()[..]].concat(), Some(value))
        });
        state.chain(timers).chain(progress).collect()
    }
}

impl SpaceStorage {
    /// Rows in `space`. When `keeps_back` is set, commits reach it when they are large together, or at
    /// [`StateStorage::settle`].
    pub fn new(space: Arc<dyn Space>, keeps_back: bool) -> SpaceStorage {
        SpaceStorage { space, keeps_back, kept_back: KeptBack::default() }
    }
}

impl StateStorage for SpaceStorage {
    fn load(&mut self) -> Result<Loaded, String> {
        let mut loaded = Loaded::default();
        for (key, value) in self.space.load().map_err(|error| error.to_string())? {
            match key.split_first() {
                Some((&STATE, rest)) => loaded.entries.push((rest.to_vec(), value)),
                Some((&TIMER, rest)) => {
                    let row = timer(None, rest, &value).ok_or(DAMAGED_TIMER)?;
                    loaded.timers.push(row);
                }
                Some((&VBUCKET_TIMER, rest)) => {
                    let (vbid, name) = rest.split_first_chunk().ok_or(DAMAGED_TIMER)?;
                    let home = Some(Vbid(u16::from_be_bytes(*vbid)));
                    loaded.timers.push(timer(home, name, &value).ok_or(DAMAGED_TIMER)?);
                }
                Some((&PROGRESS, rest)) => {
                    let row = decode(rest, &value).ok_or("a row of progress is damaged")?;
                    loaded.progress.push(row);
                }
                _ => return Err("a row of an unknown kind".into()),
            }
        }
        Ok(loaded)
    }

    fn commit(&mut self, changes: &Changes) -> Result<(), String> {
        self.kept_back.take(changes);
        if self.keeps_back && self.kept_back.bytes < KEPT_BACK_BYTES_MAX {
            return Ok(());
        }
        self.settle()
    }

    fn settle(&mut self) -> Result<(), String> {
        let rows = std::mem::take(&mut self.kept_back).rows();
        if rows.is_empty() {
            return Ok(());
        }
        // State can be rebuilt from history, so that it need not survive a power cut; but it must not tear.
        self.space.apply(&rows, false).map_err(|error| error.to_string())
    }

    fn clear(&mut self) -> Result<(), String> {
        self.kept_back = KeptBack::default();
        self.space.clear().map_err(|error| error.to_string())
    }
}

const DAMAGED_TIMER: &str = "a row of a timer is damaged";

fn timer(home: Home, name: &[u8], value: &[u8]) -> Option<(Home, String, Timer)> {
    let (due_us, payload) = value.split_first_chunk()?;
    let timer = Timer { due_us: u64::from_be_bytes(*due_us), payload: payload.to_vec() };
    Some((home, str::from_utf8(name).ok()?.to_owned(), timer))
}

fn decode(key: &[u8], value: &[u8]) -> Option<(Vbid, Standing)> {
    let vbid = Vbid(u16::from_be_bytes(key.try_into().ok()?));
    let number = |index: usize| {
        Some(u64::from_be_bytes(value.get(8 * index..8 * index + 8)?.try_into().ok()?))
    };
    let point = ResumePoint {
        vb_uuid: VbUuid(number(0)?),
        seqno: Seqno(number(1)?),
        snapshot_start: Seqno(number(2)?),
        snapshot_end: Seqno(number(3)?),
    };
    let moment = match value.len() {
        32 => Moment::default(),
        56 => Moment { term: number(4)?, begun: number(5)?, count: number(6)? },
        _ => return None,
    };
    Some((vbid, Standing { moment, point }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_store::{MemorySpaces, Spaces};

    #[test]
    fn state_timers_and_progress_read_back_as_committed() {
        let spaces = MemorySpaces::default();
        let mut storage = SpaceStorage::new(spaces.open("partition").unwrap(), false);
        let point = ResumePoint {
            vb_uuid: VbUuid(1),
            seqno: Seqno(2),
            snapshot_start: Seqno(1),
            snapshot_end: Seqno(3),
        };
        let timer = |due_us| Some(Timer { due_us, payload: b"p".to_vec() });
        let plain = Standing { point, ..Standing::default() };
        let standing = Standing { moment: Moment { term: 4, begun: 5, count: 6 }, point };
        let changes = Changes {
            state: KeySpace::load([(&b"k"[..], &b"v"[..])].into_iter()).unwrap(),
            touched: KeySpace::load([(&b"k"[..], &b""[..])].into_iter()).unwrap(),
            timers: vec![((None, "a".into()), timer(7)), ((Some(Vbid(3)), "a".into()), timer(8))],
            progress: vec![(Vbid(700), standing), (Vbid(701), plain)],
        };
        storage.commit(&changes).unwrap();
        let loaded = storage.load().unwrap();
        assert_eq!(loaded.entries, [(b"k".to_vec(), b"v".to_vec())]);
        let of_vbucket = (Some(Vbid(3)), "a".into(), timer(8).unwrap());
        assert_eq!(loaded.timers, [(None, "a".into(), timer(7).unwrap()), of_vbucket.clone()]);
        assert_eq!(loaded.progress, [(Vbid(700), standing), (Vbid(701), plain)]);
        storage
            .commit(&Changes { timers: vec![((None, "a".into()), None)], ..Changes::default() })
            .unwrap();
        assert_eq!(storage.load().unwrap().timers, [of_vbucket]);
    }

    #[test]
    fn what_is_kept_back_is_there_all_at_once() {
        let spaces = MemorySpaces::default();
        let mut storage = SpaceStorage::new(spaces.open("partition").unwrap(), true);
        let change = |value: Option<&[u8]>, seqno| Changes {
            state: KeySpace::load(value.map(|value| (&b"k"[..], value)).into_iter()).unwrap(),
            touched: KeySpace::load([(&b"k"[..], &b""[..])].into_iter()).unwrap(),
            timers: Vec::new(),
            progress: vec![(
                Vbid(1),
                Standing {
                    point: ResumePoint { seqno: Seqno(seqno), ..Default::default() },
                    ..Default::default()
                },
            )],
        };
        storage.commit(&change(Some(b"v"), 1)).unwrap();
        storage.commit(&change(Some(b"w"), 2)).unwrap();
        let loaded = || SpaceStorage::new(spaces.open("partition").unwrap(), true).load().unwrap();
        assert_eq!(loaded(), Loaded::default(), "it would be folded again after a crash");
        storage.settle().unwrap();
        assert_eq!(loaded().entries, [(b"k".to_vec(), b"w".to_vec())]);
        assert_eq!(loaded().progress[0].1.point.seqno, Seqno(2));
        storage.commit(&change(Some(&vec![0; KEPT_BACK_BYTES_MAX]), 3)).unwrap();
        assert_eq!(loaded().progress[0].1.point.seqno, Seqno(3), "too much to be kept back");
        storage.commit(&change(None, 4)).unwrap();
        storage.clear().unwrap();
        storage.settle().unwrap();
        assert_eq!(loaded(), Loaded::default());
    }
}
