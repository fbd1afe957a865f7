//! The memory that a connection holds for its client, taken from the node's memory for requests and answers.
//!
//! A connection whose frames are short and whose client reads its answers is not looked at: it holds less than [`FREE_BYTES`].

use super::session::{Answer, Session};
use nacre_budget::{Account, Permit, Purpose};
use nacre_protocol::{HEADER_BYTES, Magic, Opcode, Reply, Status};
use std::sync::Arc;

/// Bytes that a connection may hold without being accounted for: what is read at a time.
pub const FREE_BYTES: usize = 64 << 10;
/// Answers of fewer bytes are given also when there is no memory.
const LARGE_ANSWER_BYTES: usize = 32 << 10;

/// What a connection holds.
#[derive(Default)]
pub(super) struct Memory {
    /// Of the user who has logged in.
    account: Option<Arc<Account>>,
    /// Frames that are being read.
    input: Option<Permit>,
    /// Answers that the client has not taken.
    output: Option<Permit>,
    /// Requests that wait for something.
    parked: Option<Permit>,
    /// Whether the user holds as much as he may.
    is_exhausted: bool,
}

impl Memory {
    /// Another user may log in.
    pub fn forget_account(&mut self) {
        self.account = None;
    }
}

/// Sets what a permit stands for, and drops one that stands for nothing.
fn set(permit: &mut Option<Permit>, account: &Arc<Account>, purpose: Purpose, bytes: usize) {
    match bytes {
        0 => *permit = None,
        bytes => permit.get_or_insert_with(|| account.permit(purpose)).set(bytes),
    }
}

impl Session {
    /// The account of who has logged in.
    fn account(&mut self) -> Arc<Account> {
        let name = self.user_name();
        if let Some(account) = &self.memory.account
            && (self.is_node || account.name() == name)
        {
            return Arc::clone(account);
        }
        let budgets = self.env.budgets();
        let account = if self.is_node { budgets.of_nodes() } else { budgets.of_user(name) };
        // What is held already stays with whom it was held for.
        self.memory.account = Some(Arc::clone(&account));
        account
    }

    /// Looks whether the user holds as much as he may. One atomic load while he holds little.
    pub(super) fn look_at_memory(&mut self) {
        if self.memory.account.is_none() && self.user.is_some() {
            self.account();
        }
        self.memory.is_exhausted =
            self.memory.account.as_ref().is_some_and(|account| account.is_exhausted());
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.memory.is_exhausted
    }

    /// Reserves memory for `bytes` of frames that have not come to their end. Gives false when there is none: then
    /// [`Session::refuse_frame`] answers, and what is left of the frame is to be skipped.
    pub fn reserve_input(&mut self, bytes: usize) -> bool {
        if bytes <= FREE_BYTES {
            self.memory.input = None;
            return true;
        }
        let account = self.account();
        let permit = self.memory.input.get_or_insert_with(|| account.permit(Purpose::Request));
        permit.try_set(bytes).is_ok()
    }

    /// Accounts for `bytes` of answers that the client has not taken. Gives false when there is no more memory: then no more
    /// requests should be taken from the connection until its client has taken some.
    pub fn hold_output(&mut self, bytes: usize) -> bool {
        if bytes <= FREE_BYTES && self.memory.output.is_none() {
            return true;
        }
        let held = if bytes <= FREE_BYTES { 0 } else { bytes };
        let account = self.account();
        set(&mut self.memory.output, &account, Purpose::Answer, held);
        held == 0 || !account.is_exhausted()
    }

    /// Accounts for the requests that wait; refuses one more of `bytes` where there is no memory, unless it `must` wait.
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

    /// Requests that waited have been answered.
    pub(super) fn release_parked(&mut self) {
        if self.memory.parked.is_some() {
            self.hold_parked(0, true);
        }
    }

    /// Answers the request whose frame begins with `head` that there is no memory for it. Gives false when it is no request: then the
    /// connection is to be closed.
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

/// Whether a request only reads, and can be made again: its answer may be refused.
fn only_reads(opcode: u8) -> bool {
    use Opcode::{Get, GetK, GetKQ, GetQ, GetRandomKey, GetReplica, SubdocGet, SubdocMultiLookup};
    let reads = [Get, GetQ, GetK, GetKQ, GetReplica, GetRandomKey, SubdocGet, SubdocMultiLookup];
    reads.iter().any(|known| *known as u8 == opcode)
}

impl Answer<'_> {
    /// Returns true if an answer with a value of so many bytes is not to be given, as there is no memory for it.
    pub(super) fn is_refused(&self, value_bytes: usize) -> bool {
        self.is_exhausted && value_bytes >= LARGE_ANSWER_BYTES && only_reads(self.opcode)
    }
}
