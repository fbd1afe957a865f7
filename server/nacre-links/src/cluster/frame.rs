//! Frames on a link between nodes.
//!
//! ```text
//! bytes     4       1     8     length
//! field   length  kind   id    payload     numbers are big-endian
//! ```
//!
//! The connecting node sends messages and requests; the other node answers with the ID of the request.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The largest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Length, kind and id.
const HEADER_BYTES: usize = 13;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message to the other node without an answer; an empty one is only a sign of life.
    Message = 0,
    /// Raft: entries or a heartbeat.
    Append = 1,
    /// Raft: a candidate's request for a vote.
    Vote = 2,
    /// Raft: a piece of a snapshot.
    Snapshot = 3,
    /// A request that only the leader can carry out.
    Lead = 4,
    /// The answer to a request.
    Answer = 5,
    /// The reason why a request has no answer, as a sentence.
    Failure = 6,
    /// A question about vBuckets that the receiving node serves.
    Ask = 7,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::*;
        let all = [Message, Append, Vote, Snapshot, Lead, Answer, Failure, Ask];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind.
    pub kind: Kind,
    /// ID chosen by the requester; 0 in messages.
    pub id: u64,
    /// Payload. Its form depends on the kind.
    pub payload: Vec<u8>,
}

/// Reads the next frame; `None` at the end of the connection.
///
/// # Errors
/// Fails when the connection breaks within a frame, or the bytes are not a frame.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Frame>> {
    let mut header = [0; HEADER_BYTES];
    match from.read_exact(&mut header).await {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let [a, b, c, d, kind, id @ ..] = header;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let kind =
        Kind::of(kind).ok_or_else(|| invalid(format!("there are no frames of kind {kind}")))?;
    if length > PAYLOAD_BYTES_MAX {
        return Err(invalid(format!("a frame announces {length} bytes")));
    }
    let mut payload = Vec::new();
    // Memory grows with the received bytes, not with the announced length.
    from.take(length as u64).read_to_end(&mut payload).await?;
    if payload.len() < length {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(Frame { kind, id: u64::from_be_bytes(id), payload }))
}

/// Writes a frame and flushes it.
///
/// # Errors
/// Fails when the connection breaks, or the payload is too large.
pub async fn write(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> std::io::Result<()> {
    if frame.payload.len() > PAYLOAD_BYTES_MAX {
        return Err(invalid(format!("{} bytes do not fit into a frame", frame.payload.len())));
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + frame.payload.len());
    bytes.extend((frame.payload.len() as u32).to_be_bytes());
    bytes.push(frame.kind as u8);
    bytes.extend(frame.id.to_be_bytes());
    bytes.extend(&frame.payload);
    to.write_all(&bytes).await?;
    to.flush().await
}

fn invalid(reason: String) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(mut bytes: &[u8]) -> std::io::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        while let Some(frame) = read(&mut bytes).await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[tokio::test]
    async fn frames_read_back_as_written_and_other_bytes_are_refused() {
        let frame = Frame { kind: Kind::Vote, id: 7, payload: b"abc".to_vec() };
        let mut bytes = Vec::new();
        write(&mut bytes, &frame).await.unwrap();
        assert_eq!(bytes, b"\0\0\0\x03\x02\0\0\0\0\0\0\0\x07abc");
        assert_eq!(read_all(&bytes).await.unwrap(), [frame]);
        for end in 14..bytes.len() {
            assert!(read_all(&bytes[..end]).await.is_err(), "cut after {end} bytes");
        }
        bytes[4] = 8;
        assert!(read_all(&bytes).await.is_err(), "a kind that there is not");
        bytes[..5].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 2]);
        assert!(read_all(&bytes).await.is_err(), "more than may come");
    }
}
