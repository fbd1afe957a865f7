//! Writes that are only done when a majority of a vBucket's copies has them.
//!
//! The copies are the active one and the replicas that the bucket is to have, whether a node for them exists or not.
//! One node holds one copy: where that is the majority, a write in memory is a write on the majority; where it is not,
//! no wait would help. The levels that also wait for the disk need writes that readers do not see until then, which
//! do not exist yet.

use nacre_protocol::{Request, Status};

/// In memory on a majority of the copies.
const MAJORITY: u8 = 1;
/// The same, and on disk at the active one.
const PERSIST_TO_ACTIVE: u8 = 2;
/// The highest level there is: on disk on a majority of the copies.
const PERSIST_TO_MAJORITY: u8 = 3;

/// Whether `request` may be carried out at once at this level, in a bucket with that many replicas.
pub(super) fn check(level: u8, request: &Request<'_>, replicas: u8) -> Result<(), Status> {
    let mutates = matches!(
        request,
        Request::Store { .. }
            | Request::Extend { .. }
            | Request::Delete
            | Request::Counter { .. }
            | Request::Mutate { .. }
    );
    let copies = 1 + u32::from(replicas);
    let majority = copies / 2 + 1;
    match level {
        _ if !mutates => Err(Status::InvalidArguments),
        MAJORITY if majority == 1 => Ok(()),
        MAJORITY => Err(Status::DurabilityImpossible),
        PERSIST_TO_ACTIVE | PERSIST_TO_MAJORITY => Err(Status::NotSupported),
        _ => Err(Status::DurabilityInvalidLevel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_is_a_majority_only_where_there_are_no_replicas() {
        assert_eq!(check(1, &Request::Delete, 0), Ok(()));
        for replicas in 1..=3 {
            assert_eq!(check(1, &Request::Delete, replicas), Err(Status::DurabilityImpossible));
        }
    }

    #[test]
    fn levels_that_wait_for_the_disk_and_unknown_ones_are_refused() {
        assert_eq!(check(2, &Request::Delete, 0), Err(Status::NotSupported));
        assert_eq!(check(3, &Request::Delete, 0), Err(Status::NotSupported));
        for level in [0, 4, 255] {
            assert_eq!(check(level, &Request::Delete, 0), Err(Status::DurabilityInvalidLevel));
        }
    }

    #[test]
    fn only_mutations_are_durable() {
        assert_eq!(check(1, &Request::Get, 0), Err(Status::InvalidArguments));
    }
}
