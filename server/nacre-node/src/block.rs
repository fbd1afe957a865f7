//! Waiting for a future on a thread that may block.

use crate::platform::Platform;
use nacre_bucket::Signal;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

struct BlockedThread(Signal);

impl Wake for BlockedThread {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// Returns the output of `future`, or `None` if the future does not complete within `left`.
pub fn on<T>(
    platform: &dyn Platform,
    future: impl Future<Output = T>,
    left: Duration,
) -> Option<T> {
    let signal = Signal::default();
    let waker = Waker::from(Arc::new(BlockedThread(signal.clone())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    let end_ns = platform.now().monotonic_ns.saturating_add(left_ns);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left_ns = end_ns.checked_sub(platform.now().monotonic_ns).filter(|left| *left > 0)?;
        signal.wait_at_most(Duration::from_nanos(left_ns));
    }
}
