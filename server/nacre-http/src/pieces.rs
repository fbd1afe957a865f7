//! Bodies that are sent piece by piece, at the pace of the client.
//!
//! The channel body of `http-body-util` loses the last piece if its sender is dropped during a poll for that piece. It also
//! treats an early drop of the sender, for instance after a panic, as a proper end.

use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// Returns a body and the sender of its pieces. At most one piece waits for the client.
pub fn pieces() -> (Sender, Pieces) {
    let (sender, receiver) = mpsc::channel(1);
    let is_whole = Arc::new(AtomicBool::new(false));
    (Sender { sender, is_whole: Arc::clone(&is_whole) }, Pieces { receiver, is_whole })
}

/// Sends the pieces of a body. Dropping the sender before [`Sender::finish`] aborts the body, so that a client does not
/// mistake it for complete.
pub struct Sender {
    sender: mpsc::Sender<Bytes>,
    is_whole: Arc<AtomicBool>,
}

impl Sender {
    /// Sends a piece as soon as the client has taken the previous one. Returns false if the connection is closed.
    pub async fn send(&self, piece: impl Into<Bytes>) -> bool {
        self.sender.send(piece.into()).await.is_ok()
    }

    /// Returns true if the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns once the connection is closed.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }

    /// Marks the body as complete.
    pub fn finish(self) {
        self.is_whole.store(true, Ordering::Release);
    }
}

/// The pieces of a [`Sender`].
pub struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    is_whole: Arc<AtomicBool>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        Poll::Ready(match ready!(self.receiver.poll_recv(context)) {
            Some(piece) => Some(Ok(Frame::data(piece))),
            None if self.is_whole.load(Ordering::Acquire) => None,
            None => Some(Err("the answer breaks off".into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::cell::RefCell;
    use std::task::{RawWaker, RawWakerVTable, Waker};

    #[tokio::test]
    async fn a_body_ends_once_its_sender_says_so_and_breaks_off_otherwise() {
        for finishes in [true, false] {
            let (sender, body) = pieces();
            let sending = tokio::spawn(async move {
                for piece in ["a", "b", "c"] {
                    assert!(sender.send(piece).await);
                }
                if finishes {
                    sender.finish();
                }
            });
            let collected = body.collect().await.map(|body| body.to_bytes());
            sending.await.unwrap();
            assert_eq!(collected.ok(), finishes.then(|| Bytes::from("abc")));
        }
    }

    thread_local! {
        /// Runs whenever a waker is cloned, which happens in the middle of a poll for the next piece.
        static MEANWHILE: RefCell<Box<dyn FnMut()>> = RefCell::new(Box::new(|| {}));
    }

    const WAKER: RawWakerVTable = RawWakerVTable::new(
        |nothing| {
            MEANWHILE.with_borrow_mut(|meanwhile| meanwhile());
            RawWaker::new(nothing, &WAKER)
        },
        |_| {},
        |_| {},
        |_| {},
    );

    #[test]
    fn a_piece_that_arrives_during_a_poll_is_not_lost() {
        // SAFETY: the functions of the waker use no data.
        let waker = unsafe { Waker::new(std::ptr::null(), &WAKER) };
        let mut context = Context::from_waker(&waker);
        for at in 1..4 {
            let (sender, mut body) = pieces();
            let (mut sender, mut clones) = (Some(sender), 0);
            MEANWHILE.set(Box::new(move || {
                clones += 1;
                if clones == at {
                    let sender = sender.take().unwrap();
                    sender.sender.try_send("last".into()).unwrap();
                    sender.finish();
                }
            }));
            let mut read = Vec::new();
            loop {
                match Pin::new(&mut body).poll_frame(&mut context) {
                    Poll::Ready(Some(frame)) => read.push(frame.unwrap().into_data().unwrap()),
                    Poll::Ready(None) => break,
                    Poll::Pending => {}
                }
            }
            assert_eq!(read, ["last"]);
        }
    }

    #[tokio::test]
    async fn a_sender_is_notified_when_its_reader_is_gone() {
        let (sender, body) = pieces();
        drop(body);
        assert!(!sender.send("a").await);
    }
}
