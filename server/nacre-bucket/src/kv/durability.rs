//! The durability requirement of a request.

use crate::Bucket;
use crate::durability::{self, Unattainable};
use nacre_protocol::{Request, Status};
use nacre_types::Vbid;
use nacre_vbucket::Level;

/// Default timeout of a durable write, in milliseconds.
const TIMEOUT_MS_DEFAULT: u16 = 30_000;

/// A durability requirement: the write is complete only at this level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Durability {
    pub level: Level,
    /// Nanoseconds after which the write is aborted.
    pub timeout_ns: u64,
}

/// Returns the durability of `request`, given the requested level and timeout in milliseconds. `None` when the write is
/// complete as soon as it is in memory.
pub(super) fn of_request(
    asked: Option<(u8, Option<u16>)>,
    request: &Request<'_>,
    bucket: &Bucket,
    vbid: Vbid,
) -> Result<Option<Durability>, Status> {
    let level = match asked {
        None => None,
        Some(_) if !mutates(request) => return Err(Status::InvalidArguments),
        Some((1, _)) => Some(Level::Majority),
        Some((2, _)) => Some(Level::MajorityAndPersistToActive),
        Some((3, _)) => Some(Level::PersistToMajority),
        Some(_) => return Err(Status::DurabilityInvalidLevel),
    };
    if !mutates(request) {
        return Ok(None);
    }
    let timeout_ms = match asked.and_then(|(_, timeout)| timeout) {
        None => TIMEOUT_MS_DEFAULT,
        Some(0 | u16::MAX) => return Err(Status::InvalidArguments),
        Some(timeout) => timeout,
    };
    let level = durability::level_for(bucket, level, vbid).map_err(|reason| match reason {
        Unattainable::NeedsStore => Status::DurabilityInvalidLevel,
        Unattainable::TooFewCopies => Status::DurabilityImpossible,
    })?;
    let timeout_ns = u64::from(timeout_ms) * 1_000_000;
    Ok(level.map(|level| Durability { level, timeout_ns }))
}

fn mutates(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Store { .. }
            | Request::Extend { .. }
            | Request::Delete
            | Request::Counter { .. }
            | Request::Mutate { .. }
    )
}
