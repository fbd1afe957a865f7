//! Slow requests of the key-value protocol, for the slow-operation log.
//!
//! Most requests are answered from memory within the socket read that brought them. A slow request has either waited for a known
//! event, or its thread had no processor; in the second case all requests of the read are slow together.

use super::session::{Session, Until};
use crate::{SlowOperation, SlowService};
use nacre_protocol::{Feature, Frame};
use nacre_types::Now;
use std::time::Duration;

/// Returns the reason why a request has waited; `None` if the node is not the cause.
pub(super) fn wait(until: &Until) -> Option<&'static str> {
    match until {
        Until::Persisted(_) => Some("write to disk"),
        Until::Fetched(_) => Some("read from disk"),
        Until::HandedOver(_) => Some("handover of the vBucket"),
        Until::Scanned(_) => Some("range scan"),
        Until::Decided(_) => Some("conflict resolver"),
        Until::Durable(..) => Some("durability"),
        // Answers to failed logins are delayed on purpose.
        Until::LoggedIn(_) => None,
    }
}

/// Records a request that was answered at `now`, if it was slow.
pub(super) fn note_one(
    session: &Session,
    frame: &Frame<'_>,
    waited: &'static str,
    [received, now]: [Now; 2],
) {
    let elapsed_ns = now.monotonic_ns.saturating_sub(received.monotonic_ns);
    let Some(log) = session.env.slow_log() else { return };
    if !log.is_slow(SlowService::Kv, elapsed_ns) {
        return;
    }
    let has_prefix = session.features.has(Feature::Collections);
    let key = if has_prefix { without_collection(frame.key) } else { frame.key };
    let opcode = frame.opcode().map_or_else(
        || format!("opcode {:#04x}", frame.opcode_byte),
        |opcode| format!("{opcode:?}"),
    );
    let target = String::from_utf8_lossy(key).into_owned();
    log.note(operation(session, opcode, target, elapsed_ns, waited), now);
}

/// Records the requests of one read that were answered at `now`, if they were slow.
pub(super) fn note_read(session: &Session, count: usize, [received, now]: [Now; 2]) {
    let elapsed_ns = now.monotonic_ns.saturating_sub(received.monotonic_ns);
    let Some(log) = session.env.slow_log() else { return };
    if log.is_slow(SlowService::Kv, elapsed_ns) {
        let what = format!("{count} requests of one read");
        log.note(operation(session, what, String::new(), elapsed_ns, "processor or locks"), now);
    }
}

fn operation(
    session: &Session,
    operation: String,
    target: String,
    elapsed_ns: u64,
    waited: &'static str,
) -> SlowOperation {
    let elapsed = Duration::from_nanos(elapsed_ns);
    SlowOperation {
        service: SlowService::Kv,
        operation,
        bucket: session.selected.as_ref().map_or_else(String::new, |s| s.bucket.name.clone()),
        target,
        user: session.user_name().to_owned(),
        elapsed,
        spent: vec![(waited, elapsed)],
        unix_ms: 0,
    }
}

/// Returns the key without its collection prefix, which is a LEB128 number.
fn without_collection(key: &[u8]) -> &[u8] {
    let end = key.iter().position(|byte| byte & 0x80 == 0).map_or(0, |last| last + 1);
    &key[end..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_follows_the_number_of_its_collection() {
        assert_eq!(without_collection(b"\0key"), b"key");
        assert_eq!(without_collection(b"\x81\x01key"), b"key");
        assert_eq!(without_collection(b""), b"");
        assert_eq!(without_collection(b"\xff"), b"\xff");
    }
}
