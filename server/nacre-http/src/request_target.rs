//! Request targets as people write them: `?key="martin"` with a raw quote, as curl and the raw options of SDKs send it.
//!
//! The HTTP parser refuses bytes that a URI must not contain, before any handler sees the request. [`Lenient`] is a stream below the
//! parser. It percent-encodes these bytes in the first line of each request, and passes on everything else unchanged.
//!
//! *Invariant:* the stream changes bytes in first lines only. It knows where the next request begins only as long as each head is
//! complete, parses, and states its body length in at most one `Content-Length`. After any other head, the stream changes nothing more.

use bytes::{Buf, Bytes, BytesMut};
use percent_encoding::{AsciiSet, percent_encode};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum size of a head that the stream examines, in bytes. The parser refuses larger heads.
const HEAD_BYTES_MAX: usize = super::HEADER_BYTES_MAX;
/// Maximum number of headers of a request that the stream examines. The parser has the same limit.
const HEADERS_MAX: usize = 100;
/// Number of bytes per read.
const READ_BYTES: usize = 16 << 10;

/// The kind of the client's next bytes.
enum Next {
    /// The head of a request.
    Head,
    /// The given number of bytes of a body, followed by a head.
    Body(u64),
    /// Anything: the rest of the connection passes unchanged.
    Anything,
}

/// A stream that percent-encodes request targets where necessary.
pub struct Lenient<S> {
    stream: S,
    next: Next,
    /// A head whose end has not arrived yet.
    head: BytesMut,
    /// Bytes that are ready for the reader.
    ready: Bytes,
}

impl<S> Lenient<S> {
    /// Wraps a stream from which no byte has been read yet.
    pub fn new(stream: S) -> Lenient<S> {
        Lenient { stream, next: Next::Head, head: BytesMut::new(), ready: Bytes::new() }
    }

    /// Returns the wrapped stream.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Processes bytes of the client, and moves complete ones to the reader.
    fn take(&mut self, mut read: BytesMut) {
        let mut ready = BytesMut::new();
        while !read.is_empty() {
            match self.next {
                Next::Anything => ready.unsplit(read.split()),
                Next::Body(left) => {
                    let count =
                        usize::try_from(left).map_or(read.len(), |left| left.min(read.len()));
                    ready.unsplit(read.split_to(count));
                    let left = left - count as u64;
                    self.next = if left == 0 { Next::Head } else { Next::Body(left) };
                }
                Next::Head => {
                    // The end of a head may be split over two reads.
                    let searched = self.head.len().saturating_sub(3);
                    self.head.unsplit(read.split());
                    if !may_begin_head(&self.head) {
                        // The client may speak TLS, for example. The parser refuses it at once.
                        self.next = Next::Anything;
                        ready.unsplit(self.head.split());
                        continue;
                    }
                    let Some(end) = end_of_head(&self.head, searched) else {
                        if self.head.len() > HEAD_BYTES_MAX {
                            self.next = Next::Anything;
                            ready.unsplit(self.head.split());
                        }
                        continue;
                    };
                    read = self.head.split_off(end);
                    let head = with_encoded_target(&self.head.split());
                    self.next = what_follows(&head);
                    ready.extend_from_slice(&head);
                }
            }
        }
        self.ready = ready.freeze();
    }

    /// Passes an incomplete head to the reader if the client sends no more.
    fn end(&mut self) {
        self.next = Next::Anything;
        self.ready = self.head.split().freeze();
    }
}

/// Returns true if a request can begin like this: with a method, possibly after empty lines.
fn may_begin_head(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|byte| byte.is_ascii_alphabetic() || b"\r\n".contains(byte))
}

/// Returns the length of the head at the start of `bytes`, including the empty line at its end.
fn end_of_head(bytes: &[u8], searched: usize) -> Option<usize> {
    let end = bytes[searched..].windows(4).position(|four| four == b"\r\n\r\n");
    end.map(|at| searched + at + 4)
}

/// Bytes that a URI cannot contain literally, except the space, which ends the URI. Source: RFC 3986, section 2.
const ENCODED: &AsciiSet = &AsciiSet::EMPTY
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Returns the head with its first line percent-encoded where necessary.
fn with_encoded_target(head: &[u8]) -> Vec<u8> {
    let line = head.iter().position(|byte| *byte == b'\r').unwrap_or(head.len());
    let encoded = percent_encode(&head[..line], ENCODED).map(str::as_bytes);
    encoded.chain([&head[line..]]).collect::<Vec<_>>().concat()
}

/// Returns the kind of bytes that follow a head.
fn what_follows(head: &[u8]) -> Next {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = request.parse(head) else {
        return Next::Anything;
    };
    if length != head.len() {
        return Next::Anything;
    }
    let mut lengths =
        request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("content-length"));
    let is_plain = !request.headers.iter().any(|header| {
        ["transfer-encoding", "upgrade"].iter().any(|name| header.name.eq_ignore_ascii_case(name))
    });
    match (is_plain, lengths.next(), lengths.next()) {
        (true, None, None) => Next::Head,
        (true, Some(only), None) => {
            let digits = only.value.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(only.value).ok().filter(|_| digits);
            match length.and_then(|length| length.parse().ok()) {
                Some(0) => Next::Head,
                Some(length) => Next::Body(length),
                None => Next::Anything,
            }
        }
        _ => Next::Anything,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lenient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.ready.is_empty() {
                let count = self.ready.len().min(buffer.remaining());
                buffer.put_slice(&self.ready[..count]);
                self.ready.advance(count);
                return Poll::Ready(Ok(()));
            }
            if matches!(self.next, Next::Anything) && self.head.is_empty() {
                return Pin::new(&mut self.stream).poll_read(context, buffer);
            }
            let mut read = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut read);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                if self.head.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                self.end();
            } else {
                self.take(BytesMut::from(read.filled()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lenient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::Lenient;
    use tokio::io::AsyncReadExt;

    /// Returns what a reader receives from a stream whose bytes arrive in two reads.
    fn read(first: &[u8], second: &[u8]) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut all = Vec::new();
        let mut stream = Lenient::new(first.chain(second));
        runtime.block_on(stream.read_to_end(&mut all)).unwrap();
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn raw_quotes_in_a_target_are_encoded() {
        assert_eq!(
            read(b"GET /v?key=\"m\"&a=<b> HTTP/1.1\r\nHost: h\r\nX: \"y\"\r\n\r\n", b""),
            "GET /v?key=%22m%22&a=%3Cb%3E HTTP/1.1\r\nHost: h\r\nX: \"y\"\r\n\r\n"
        );
        assert_eq!(read("GET /é HTTP/1.1\r\n\r\n".as_bytes(), b""), "GET /%C3%A9 HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn bytes_that_begin_no_request_are_not_held_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut client, server) = tokio::io::duplex(100);
        runtime.block_on(async {
            tokio::io::AsyncWriteExt::write_all(&mut client, b"\x16\x03\x01").await.unwrap();
            let mut read = [0; 3];
            Lenient::new(server).read_exact(&mut read).await.unwrap();
            assert_eq!(read, *b"\x16\x03\x01");
        });
    }

    #[test]
    fn bodies_and_later_requests_keep_their_places() {
        let first = b"POST /a?\"x\" HTTP/1.1\r\nContent-Length: 9\r\n\r\n{\"b\":\"c\"}";
        let second = b"GET /d?\"e\" HTTP/1.1\r\n\r\n";
        let expected = "POST /a?%22x%22 HTTP/1.1\r\nContent-Length: 9\r\n\r\n{\"b\":\"c\"}GET /d?%22e%22 HTTP/1.1\r\n\r\n";
        let whole = [&first[..], second].concat();
        assert_eq!(read(&whole, b""), expected);
        // Wherever the bytes are split.
        for at in 1..whole.len() {
            assert_eq!(read(&whole[..at], &whole[at..]), expected, "cut at {at}");
        }
    }

    #[test]
    fn nothing_changes_after_a_head_whose_length_is_unclear() {
        for header in [
            "Transfer-Encoding: chunked",
            "Content-Length: 3\r\nContent-Length: 4",
            "Content-Length: +3",
            "Content-Length: 99999999999999999999999",
            "Upgrade: nacre",
            "no header",
        ] {
            let rest = "\"<>\" HTTP/1.1\r\n\r\n\"";
            let text = format!("POST /a HTTP/1.1\r\n{header}\r\n\r\n{rest}");
            assert_eq!(read(text.as_bytes(), b""), text, "{header}");
        }
    }

    #[test]
    fn a_head_that_does_not_end_passes() {
        assert_eq!(read(b"GET /\"a", b""), "GET /\"a");
        let long = format!("GET /\"a HTTP/1.1\r\nX: {}", "x".repeat(super::HEAD_BYTES_MAX));
        assert_eq!(read(long.as_bytes(), b""), long);
    }
}
