//! The durable side of a plugin's partition, in a space of the node.
//!
//! Rows: `s` and the plugin's key hold its state; `p` and a vBucket's number hold where the feed stands there
//! (UUID, seqno, start and end of its snapshot, each u64, big-endian).

use nacre_dcp::ResumePoint;
use nacre_plugin_host::{Loaded, StateStorage};
use nacre_store::Space;
use nacre_types::{Seqno, VbUuid, Vbid};
use std::sync::Arc;

const STATE: u8 = b's';
const PROGRESS: u8 = b'p';

/// One partition's rows in a space of its own.
pub(crate) struct SpaceStorage(pub Arc<dyn Space>);

impl StateStorage for SpaceStorage {
    fn load(&mut self) -> Result<Loaded, String> {
        let mut loaded = Loaded::default();
        for (key, value) in self.0.load().map_err(|error| error.to_string())? {
            match key.split_first() {
                Some((&STATE, rest)) => loaded.entries.push((rest.to_vec(), value)),
                Some((&PROGRESS, rest)) => {
                    let row = decode(rest, &value).ok_or("a row of progress is damaged")?;
                    loaded.progress.push(row);
                }
                _ => return Err("a row of an unknown kind".into()),
            }
        }
        Ok(loaded)
    }

    fn commit(
        &mut self,
        writes: &[(Vec<u8>, Option<Vec<u8>>)],
        progress: &[(Vbid, ResumePoint)],
    ) -> Result<(), String> {
        let state =
            writes.iter().map(|(key, value)| ([&[STATE], &key[..]].concat(), value.clone()));
        let progress = progress.iter().map(|(vbid, point)| {
            let ResumePoint { vb_uuid, seqno, snapshot_start, snapshot_end } = *point;
            let numbers = [vb_uuid.0, seqno.0, snapshot_start.0, snapshot_end.0];
            let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
            ([&[PROGRESS], &vbid.0.to_be_bytes()[..]].concat(), Some(value))
        });
        let rows: Vec<_> = state.chain(progress).collect();
        // State can be rebuilt from history, so that it need not survive a power cut; but it must not tear.
        self.0.apply(&rows, false).map_err(|error| error.to_string())
    }

    fn clear(&mut self) -> Result<(), String> {
        self.0.clear().map_err(|error| error.to_string())
    }
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
    fn state_and_progress_read_back_as_committed() {
        let spaces = MemorySpaces::default();
        let mut storage = SpaceStorage(spaces.open("partition").unwrap());
        let point = ResumePoint {
            vb_uuid: VbUuid(1),
            seqno: Seqno(2),
            snapshot_start: Seqno(1),
            snapshot_end: Seqno(3),
        };
        storage.commit(&[(b"k".to_vec(), Some(b"v".to_vec()))], &[(Vbid(700), point)]).unwrap();
        let loaded = storage.load().unwrap();
        assert_eq!(loaded.entries, [(b"k".to_vec(), b"v".to_vec())]);
        assert_eq!(loaded.progress, [(Vbid(700), point)]);
    }
}
