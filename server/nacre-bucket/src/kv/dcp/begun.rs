//! The initial value of a stream between nodes: the failover log, and the durable writes in progress.

use nacre_types::{FailoverLog, Seqno, VbUuid};
use nacre_vbucket::UnderWay;

/// Appends the writes in progress to the failover log that begins a stream to a copy. They are encoded as branches
/// without a UUID: the end of history, then each prepare.
pub(super) fn append_under_way(under_way: &UnderWay, value: &mut Vec<u8>) {
    for seqno in std::iter::once(&under_way.high_seqno).chain(&under_way.prepares) {
        value.extend([[0; 8], seqno.0.to_be_bytes()].as_flattened());
    }
}

/// Parses the failover log and the writes in progress that begin a stream to a copy; `None` for malformed bytes.
pub fn read_begun(value: &[u8]) -> Option<(FailoverLog, UnderWay)> {
    let (entries, []) = value.as_chunks::<16>() else { return None };
    let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
    let entry =
        |entry: &[u8; 16]| Some((VbUuid(number(&entry[..8])?), Seqno(number(&entry[8..])?)));
    let mut branches: Vec<_> = entries.iter().map(entry).collect::<Option<_>>()?;
    let named = branches.iter().take_while(|(vb_uuid, _)| vb_uuid.0 != 0).count();
    let mut seqnos = branches.split_off(named).into_iter().map(|(_, seqno)| seqno);
    let high_seqno = seqnos.next()?;
    Some((
        FailoverLog::from_entries(branches)?,
        UnderWay { high_seqno, prepares: seqnos.collect() },
    ))
}
