//! Memory that a connection holds for its client, charged to the node's budget for requests and answers.
//!
//! A connection with short frames whose client reads its answers is not charged: it holds less than [`FREE_BYTES`].

use super::session::{Answer, Session};
use nacre_budget::{Account, Permit, Purpose};
use nacre_protocol::{HEADER_BYTES, Magic, Opcode, Reply, Status};
use std::sync::Arc;

/// Bytes that a connection may hold without being charged: the size of one read.
pub const FREE_BYTES: usize = 64 << 10;
/// Smaller answers are sent even when no memory is left.
const LARGE_ANSWER_BYTES: usize = 32 << 10;

/// The memory charged to a connection.
#[derive(Default)]
pub(super) struct Memory {
    /// The account of the logged-in user.
    account: Option<Arc<Account>>,
    /// Frames that are incomplete.
    input: Option<Permit>,
    /// Answers that the client has not read.
    output: Option<Permit>,
    /// Parked requests.
    parked: Option<Permit>,
    /// True if the user has exhausted the account.
    is_exhausted: bool,
}

impl Memory {
    /// Drops the reference to the account, because another user may log in.
    pub fn forget_account(&mut self) {
        self.account = None;
    }
}

/// Sets the size of a permit; a permit of zero bytes is dropped.
fn set(permit: &mut Option<Permit>, account: &Arc<Account>, purpose: Purpose, bytes: usize) {
    match bytes {
        0 => *permit = None,
        bytes => permit.get_or_insert_with(|| account.permit(purpose)).set(bytes),
    }
}

impl Session {
    /// Returns the account of the logged-in user.
    fn account(&mut self) -> Arc<Account> {
        let name = self.user_name();
        if let Some(account) = &self.memory.account
            && (self.is_node || account.name() == name)
        {
            return Arc::clone(account);
        }
        let budgets = self.env.budgets();
        let account = if self.is_node { budgets.of_nodes() } else { budgets.of_user(name) };
        // Memory already held stays charged to its original account.
        self.memory.account = Some(Arc::clone(&account));
        account
    }

    /// Checks whether the account is exhausted: one atomic load while the user holds little.
    pub(super) fn check_memory(&mut self) {
        if self.memory.account.is_none() && self.user.is_some() {
            self.account();
        }
        self.memory.is_exhausted =
            self.memory.account.as_ref().is_some_and(|account| account.is_exhausted());
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.memory.is_exhausted
    }

    /// Reserves memory for `bytes` of incomplete frames. Returns false when no memory is left: the caller answers by
    /// [`Session::refuse_frame`] and skips the rest of the frame.
    pub fn reserve_input(&mut self, bytes: usize) -> bool {
        if bytes <= FREE_BYTES {
            self.memory.input = None;
            return true;
        }
        let account = self.account();
        let permit = self.memory.input.get_or_insert_with(|| account.permit(Purpose::Request));
        permit.try_set(bytes).is_ok()
    }

    /// Charges `bytes` of unread answers. Returns false when no memory is left: the caller should stop reading requests
    /// until the client has read some answers.
    pub fn hold_output(&mut self, bytes: usize) -> bool {
        if bytes <= FREE_BYTES && self.memory.output.is_none() {
            return true;
        }
        let held = if bytes <= FREE_BYTES { 0 } else { bytes };
        let account = self.account();
        set(&mut self.memory.output, &account, Purpose::Answer, held);
        held == 0 || !account.is_exhausted()
    }

    /// Charges the parked requests plus one more of `bytes`. Refuses that one when no memory is left, unless `must` is
    /// set.
    pub(super) fn hold_parked(&mut self, bytes: usize, must: bool) -> bool {
        let all = bytes + self.parked_bytes();
        if all <= FREE_BYTES {
            self.memory.parked = None;
            return true;
        }
        let account = self.account();
        let permit = self.memory.parked.get_or_insert_with(|| account.permit(Purpose::Request));
        if must {
            permit.set(all);
            return true;
        }
        permit.try_set(all).is_ok()
    }

    /// Releases the memory of parked requests that were answered.
    pub(super) fn release_parked(&mut self) {
        if self.memory.parked.is_some() {
            self.hold_parked(0, true);
        }
    }

    /// Answers the request whose frame begins with `head` that no memory is left. Returns false when the frame is not a
    /// request: the connection must then be closed.
    pub fn refuse_frame(&mut self, head: &[u8], out: &mut Vec<u8>) -> bool {
        self.memory.input = None;
        let Some(header) = head.get(..HEADER_BYTES) else { return false };
        let is_request = [Magic::Request as u8, Magic::FlexRequest as u8].contains(&header[0]);
        let opaque = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
        if is_request {
            let status = Status::TemporaryFailure;
            Reply { opcode: header[1], opaque, status, ..Reply::default() }.encode(out);
        }
        is_request
    }
}

/// Returns true if a request only reads and can be repeated, so that its answer may be refused.
fn only_reads(opcode: u8) -> bool {
    use Opcode::{Get, GetK, GetKQ, GetQ, GetRandomKey, GetReplica, SubdocGet, SubdocMultiLookup};
    let reads = [Get, GetQ, GetK, GetKQ, GetReplica, GetRandomKey, SubdocGet, SubdocMultiLookup];
    reads.iter().any(|known| *known as u8 == opcode)
}

impl Answer<'_> {
    /// Returns true if no memory is left for an answer with a value of this size.
    pub(super) fn is_refused(&self, value_bytes: usize) -> bool {
        self.is_exhausted && value_bytes >= LARGE_ANSWER_BYTES && only_reads(self.opcode)
    }
}
