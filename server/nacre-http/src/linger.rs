//! Connections that the node closes while their client is still sending.
//!
//! The node may answer a request without reading the rest of its body, for instance if the body is too large or the user is unknown. If
//! it then closed the connection, its system would answer the client's next bytes with a reset, and the client's system would discard the
//! answer before the client reads it. The node therefore closes only its own side, and discards incoming bytes until the client closes
//! its side.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Longest time during which bytes are discarded.
const LINGER_MAX: Duration = Duration::from_secs(30);
/// Longest pause between incoming bytes. A client that has the whole answer closes its side at once, or waits until the
/// node closes.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Maximum number of discarded bytes: twice the maximum size of a body.
const DISCARDED_BYTES_MAX: usize = 64 << 20;
/// Number of bytes per read.
const READ_BYTES: usize = 16 << 10;

/// A stream whose close lets the client read everything that was sent.
pub struct Lingering<S> {
    stream: S,
    /// Set once the node has closed its own side.
    rest: Option<Rest>,
}

struct Rest {
    until: Instant,
    /// Fires when the pause, or the whole time, is too long.
    late: Pin<Box<Sleep>>,
    left_bytes: usize,
}

impl<S> Lingering<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Lingering<S> {
        Lingering { stream, rest: None }
    }

    /// Returns the wrapped stream.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
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
        let Lingering { stream, rest } = &mut *self;
        if rest.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
            let now = Instant::now();
            let late = Box::pin(sleep_until(now + SILENCE_MAX));
            *rest = Some(Rest { until: now + LINGER_MAX, late, left_bytes: DISCARDED_BYTES_MAX });
        }
        let rest = rest.as_mut().expect("it was set");
        let mut buffer = [0; READ_BYTES];
        loop {
            if rest.left_bytes == 0 || rest.late.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut buffer);
            let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer));
            let count = buffer.filled().len();
            if read.is_err() || count == 0 {
                return Poll::Ready(Ok(()));
            }
            rest.left_bytes = rest.left_bytes.saturating_sub(count);
            rest.late.as_mut().reset(rest.until.min(Instant::now() + SILENCE_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// Sends the answer and closes. Returns the time that this takes.
    async fn close(near: DuplexStream) -> Duration {
        let begun = Instant::now();
        let mut near = Lingering::new(near);
        near.write_all(b"413").await.unwrap();
        near.shutdown().await.unwrap();
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_before_it_reads_gets_the_answer() {
        let (near, mut far) = duplex(1000);
        let client = tokio::spawn(async move {
            far.write_all(&vec![0; 5 << 20]).await.unwrap();
            let mut answer = String::new();
            far.read_to_string(&mut answer).await.unwrap();
            answer
        });
        assert!(close(near).await < SILENCE_MAX, "it ends with the client's side");
        assert_eq!(client.await.unwrap(), "413");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_neither_sends_nor_closes_is_disconnected() {
        let (near, _far) = duplex(1000);
        assert_eq!(close(near).await.as_secs(), SILENCE_MAX.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_without_end_is_disconnected() {
        let (near, mut far) = duplex(1 << 20);
        let client = tokio::spawn(async move {
            let (piece, mut sent) = ([0; 16 << 10], 0);
            while far.write_all(&piece).await.is_ok() {
                sent += piece.len();
            }
            sent
        });
        assert!(close(near).await < SILENCE_MAX);
        assert!(
            (DISCARDED_BYTES_MAX..DISCARDED_BYTES_MAX + (2 << 20)).contains(&client.await.unwrap())
        );
        let (near, mut far) = duplex(1000);
        let client = tokio::spawn(async move {
            while far.write_all(&[0]).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        assert_eq!(close(near).await.as_secs(), LINGER_MAX.as_secs(), "a byte now and then");
        client.await.unwrap();
    }
}
