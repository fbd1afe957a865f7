//! The durable side of a plugin's partition, in a space of the node.
//!
//! Rows: `s` and the plugin's key hold its state; `t` and a name hold a timer (when it is due, u64, and its payload); `p`
//! and a vBucket's number hold where the feed stands there (UUID, seqno, start and end of its snapshot, each u64). Numbers
//! are big-endian.

use nacre_dcp::ResumePoint;
use nacre_plugin_host::{Changes, Loaded, StateStorage, Timer};
use nacre_store::Space;
use nacre_types::{Seqno, VbUuid, Vbid};
use std::sync::Arc;

const STATE: u8 = b's';
const TIMER: u8 = b't';
const PROGRESS: u8 = b'p';

/// One partition's rows in a space of its own.
pub(crate) struct SpaceStorage(pub Arc<dyn Space>);

impl StateStorage for SpaceStorage {
    fn load(&mut self) -> Result<Loaded, String> {
        let mut loaded = Loaded::default();
        for (key, value) in self.0.load().map_err(|error| error.to_string())? {
            match key.split_first() {
                Some((&STATE, rest)) => loaded.entries.push((rest.to_vec(), value)),
                Some((&TIMER, rest)) => {
                    let row = timer(rest, &value).ok_or("a row of a timer is damaged")?;
                    loaded.timers.push(row);
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
        let state = changes
            .entries
            .iter()
            .map(|(key, value)| ([&[STATE], &key[..]].concat(), value.clone()));
        let timers = changes.timers.iter().map(|(name, timer)| {
            let value = timer
                .as_ref()
                .map(|timer| [&timer.due_us.to_be_bytes()[..], &timer.payload].concat());
            ([&[TIMER], name.as_bytes()].concat(), value)
        });
        let progress = changes.progress.iter().map(|(vbid, point)| {
            let ResumePoint { vb_uuid, seqno, snapshot_start, snapshot_end } = *point;
            let numbers = [vb_uuid.0, seqno.0, snapshot_start.0, snapshot_end.0];
            let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
            ([&[PROGRESS], &vbid.0.to_be_bytes()[..]].concat(), Some(value))
        });
        let rows: Vec<_> = state.chain(timers).chain(progress).collect();
        // State can be rebuilt from history, so that it need not survive a power cut; but it must not tear.
        self.0.apply(&rows, false).map_err(|error| error.to_string())
    }

    fn clear(&mut self) -> Result<(), String> {
        self.0.clear().map_err(|error| error.to_string())
    }
}

fn timer(name: &[u8], value: &[u8]) -> Option<(String, Timer)> {
    let (due_us, payload) = value.split_first_chunk()?;
    let timer = Timer { due_us: u64::from_be_bytes(*due_us), payload: payload.to_vec() };
    Some((str::from_utf8(name).ok()?.to_owned(), timer))
}

fn decode(key: &[u8], value: &[u8]) -> Option<(Vbid, ResumePoint)> {
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
    (value.len() == 32).then_some((vbid, point))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_store::{MemorySpaces, Spaces};

    #[test]
    fn state_timers_and_progress_read_back_as_committed() {
        let spaces = MemorySpaces::default();
        let mut storage = SpaceStorage(spaces.open("partition").unwrap());
        let point = ResumePoint {
            vb_uuid: VbUuid(1),
            seqno: Seqno(2),
            snapshot_start: Seqno(1),
            snapshot_end: Seqno(3),
        };
        let changes = Changes {
            entries: vec![(b"k".to_vec(), Some(b"v".to_vec()))],
            timers: vec![("a".into(), Some(Timer { due_us: 7, payload: b"p".to_vec() }))],
            progress: vec![(Vbid(700), point)],
        };
        storage.commit(&changes).unwrap();
        let loaded = storage.load().unwrap();
        assert_eq!(loaded.entries, [(b"k".to_vec(), b"v".to_vec())]);
        assert_eq!(loaded.timers, [("a".into(), Timer { due_us: 7, payload: b"p".to_vec() })]);
        assert_eq!(loaded.progress, [(Vbid(700), point)]);
        storage
            .commit(&Changes { timers: vec![("a".into(), None)], ..Changes::default() })
            .unwrap();
        assert!(storage.load().unwrap().timers.is_empty());
    }
}
