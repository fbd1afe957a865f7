//! A connection's answers, sent from their original memory: long documents are not copied.

use nacre_bucket::kv::{Session, ZeroCopyBody};

/// Maximum number of buffers per system call. Source: `UIO_MAXIOV` of Linux.
const PIECES_MAX: usize = 1024;

/// Answers in sending order: bytes, interleaved with long bodies of documents.
#[derive(Default)]
pub(super) struct Answers {
    pub bytes: Vec<u8>,
    pub bodies: Vec<ZeroCopyBody>,
    /// Total number of bytes.
    pub length: usize,
}

impl Answers {
    /// Lets a session append answers.
    pub fn add<T>(
        &mut self,
        session: &mut Session,
        answer: impl FnOnce(&mut Session, &mut Vec<u8>) -> T,
    ) -> T {
        let before = self.bytes.len();
        let outcome = answer(session, &mut self.bytes);
        self.length += self.bytes.len() - before;
        for body in session.take_zero_copy_bodies() {
            self.length += body.document.body().len();
            self.bodies.push(body);
        }
        outcome
    }

    /// Returns the answers as buffers, without the first `from` bytes.
    pub fn pieces(&self, mut from: usize) -> impl Iterator<Item = &[u8]> {
        let mut begin = 0;
        let last = (self.bytes.len(), &[][..]);
        let bodies = self.bodies.iter().map(|body| (body.at, body.document.body()));
        let pieces = bodies.chain([last]).flat_map(move |(at, body)| {
            let bytes = &self.bytes[begin..at];
            begin = at;
            [bytes, body]
        });
        pieces.filter_map(move |piece| {
            let skipped = from.min(piece.len());
            from -= skipped;
            Some(&piece[skipped..]).filter(|rest| !rest.is_empty())
        })
    }
}

/// A scattered message for the kernel.
pub(super) struct Message {
    header: libc::msghdr,
    pieces: Vec<libc::iovec>,
}

impl Message {
    pub fn new() -> Message {
        // SAFETY: a message without address, pieces and control data is all zeros.
        Message { header: unsafe { std::mem::zeroed() }, pieces: Vec::new() }
    }

    /// Sets the buffers, which must not move until the message is sent.
    pub fn of<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> *const libc::msghdr {
        let piece = |piece: &[u8]| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        };
        self.pieces.clear();
        self.pieces.extend(pieces.map(piece).take(PIECES_MAX));
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len();
        &raw const self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Document, Meta};

    #[test]
    fn pieces_continue_the_output_from_any_byte() {
        let body = |at, body: &[u8]| {
            let document = Document::new(Meta::default(), b"\0k", body);
            ZeroCopyBody { at, document }
        };
        let bodies = vec![body(0, b"first"), body(3, b"in"), body(3, b""), body(7, b"last")];
        let answers = Answers { bytes: b"abcdefg".to_vec(), bodies, length: 18 };
        let whole = b"firstabcindefglast";
        for from in 0..=whole.len() {
            let pieces: Vec<&[u8]> = answers.pieces(from).collect();
            assert_eq!(pieces.concat(), whole[from..], "from {from} on");
            assert!(pieces.iter().all(|piece| !piece.is_empty()));
        }
    }
}
