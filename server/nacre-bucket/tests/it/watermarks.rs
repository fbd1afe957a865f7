//! Waiting for a watermark.

use nacre_bucket::Watermarks;
use nacre_types::{Seqno, Vbid};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_waiter_is_woken_by_a_publish_and_ends_when_its_seqno_is_reached() {
    let watermarks = Watermarks::new(2);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut reached = pin!(watermarks.reached(Vbid(1), Seqno(2), || false));
    assert_eq!(reached.as_mut().poll(&mut context), Poll::Pending);
    watermarks.raise(Vbid(1), Seqno(1));
    assert_eq!(count.0.load(Ordering::Relaxed), 0, "raising alone wakes nobody");
    watermarks.publish();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(reached.as_mut().poll(&mut context), Poll::Pending);
    watermarks.raise(Vbid(1), Seqno(2));
    watermarks.publish();
    assert_eq!(reached.as_mut().poll(&mut context), Poll::Ready(true));
}

#[test]
fn a_publish_between_the_call_and_the_first_poll_is_not_missed() {
    let watermarks = Watermarks::new(1);
    let mut context = Context::from_waker(Waker::noop());
    let mut moved = pin!(watermarks.moved());
    watermarks.publish();
    assert_eq!(moved.as_mut().poll(&mut context), Poll::Ready(()));
}

#[test]
fn a_waiter_ends_without_its_seqno_once_it_can_never_be_reached() {
    let (watermarks, has_ended) = (Watermarks::new(1), AtomicBool::new(false));
    let mut context = Context::from_waker(Waker::noop());
    let ended = || has_ended.load(Ordering::Relaxed);
    let mut reached = pin!(watermarks.reached(Vbid(0), Seqno(1), ended));
    assert_eq!(reached.as_mut().poll(&mut context), Poll::Pending);
    has_ended.store(true, Ordering::Relaxed);
    watermarks.publish();
    assert_eq!(reached.as_mut().poll(&mut context), Poll::Ready(false));
}
