//! Connections that the node closes if their client does not read.
//!
//! The connection and the source of an answer hold unsent bytes. A client that keeps a connection open without reading
//! would otherwise hold them forever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Number of bytes that a client must read within the time limit, unless fewer are waiting. A client that reads single bytes now and
/// then is therefore disconnected too; the slowest networks transfer this amount in seconds.
const TAKEN_BYTES_MIN: usize = 16 << 10;

/// A stream whose writes fail if they make no progress for some time.
pub struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Set while bytes wait to be written.
    stall: Option<Stall>,
}

struct Stall {
    /// Fires when the time limit is over.
    late: Pin<Box<Sleep>>,
    /// Number of bytes read by the client since the time limit began.
    taken_bytes: usize,
}

impl<S> Patient<S> {
    /// Wraps a stream. `patience` is the time limit for the client to read written bytes.
    pub fn new(stream: S, patience: Duration) -> Patient<S> {
        Patient { stream, patience, stall: None }
    }

    /// Returns the wrapped stream.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Updates the time limit after a write of `wanted_bytes`.
    fn judge(
        &mut self,
        written: Poll<io::Result<usize>>,
        wanted_bytes: usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(outcome) = written {
            let bytes = outcome?;
            if let Some(stall) = &mut self.stall {
                stall.taken_bytes += bytes;
                if bytes == wanted_bytes || stall.taken_bytes >= TAKEN_BYTES_MIN {
                    self.stall = None;
                }
            }
            return Poll::Ready(Ok(bytes));
        }
        ready!(self.wait(context));
        let reason = "the client does not read the answer";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }

    /// Ready once the time limit is over.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let patience = self.patience;
        let stall = self.stall.get_or_insert_with(|| {
            let late = Box::pin(tokio::time::sleep_until(Instant::now() + patience));
            Stall { late, taken_bytes: 0 }
        });
        stall.late.as_mut().poll(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, bytes.len(), context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(written, slices.iter().map(|slice| slice.len()).sum(), context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A TLS stream may still hold written bytes.
        let flushed = Pin::new(&mut self.stream).poll_flush(context).map_ok(|()| 0);
        self.judge(flushed, 0, context).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context).map_ok(|()| 0);
        self.judge(shut, 0, context).map_ok(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (near, _far) = tokio::io::duplex(1000);
        let mut near = Patient::new(near, PATIENCE);
        let begun = Instant::now();
        let outcome = near.write_all(&[0; 5000]).await;
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_a_byte_now_and_then_is_disconnected() {
        let (near, mut far) = tokio::io::duplex(1000);
        let mut near = Patient::new(near, PATIENCE);
        let reads = tokio::spawn(async move {
            while far.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let begun = Instant::now();
        near.write_all(&[0; 5000]).await.unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), 60);
        drop(near);
        reads.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_served_to_the_end() {
        let (near, mut far) = tokio::io::duplex(4096);
        let mut near = Patient::new(near, PATIENCE);
        let reads = tokio::spawn(async move {
            let (mut all, mut buffer) = (0, [0; 4096]);
            while let Ok(count @ 1..) = far.read(&mut buffer).await {
                all += count;
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            all
        });
        near.write_all(&vec![0; 1 << 20]).await.unwrap();
        // A pause between answers does not count as a stall.
        tokio::time::sleep(10 * PATIENCE).await;
        near.write_all(&[0; 10_000]).await.unwrap();
        drop(near);
        assert_eq!(reads.await.unwrap(), (1 << 20) + 10_000);
    }
}
