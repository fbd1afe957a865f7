//! Connections with a thread of their own, as those for queries have it: a request is answered where it was read. Between threads a
//! short query would take longer to be handed over, there and back, than to be answered.
//!
//! There are not more than so many; the connections after them share threads, as those of the other ports do.

use std::cell::RefCell;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections that have a thread of their own.
const THREADS_MAX: usize = 64;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The connection that the thread is for.
    static CLIENT: RefCell<Option<Arc<TcpStream>>> = const { RefCell::new(None) };
}

/// One of the threads; counted while it lives.
struct Counted;

impl Counted {
    fn new() -> Option<Counted> {
        let more = |count: usize| (count < THREADS_MAX).then_some(count + 1);
        THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection on a thread of its own until `converse` ends; gives it back where there is no thread for it.
pub(super) fn serve<C: Future<Output = ()>>(
    stream: TcpStream,
    converse: impl FnOnce(tokio::net::TcpStream) -> C + Send + 'static,
) -> Result<(), TcpStream> {
    let (Some(counted), Ok(client)) = (Counted::new(), stream.try_clone()) else {
        return Err(stream);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("query")
        .thread_stack_size(crate::serve::STACK_BYTES)
        .build();
    let Ok(runtime) = runtime else { return Err(stream) };
    let (give, given) = std::sync::mpsc::channel::<TcpStream>();
    let work = move || {
        let _counted = counted;
        CLIENT.set(Some(Arc::new(client)));
        let Ok(stream) = given.recv() else { return };
        runtime.block_on(async {
            // Fails when there are no descriptors left: the client sees a connection that is closed.
            if let Ok(stream) = tokio::net::TcpStream::from_std(stream) {
                converse(stream).await;
            }
        });
        // What is still being sent from another thread must not hold up this one.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new();
    match thread.name("query".into()).stack_size(crate::serve::STACK_BYTES).spawn(work) {
        Ok(_) => give.send(stream).map_err(|unsent| unsent.0),
        Err(_) => Err(stream),
    }
}

/// The connection that this thread is for, if it is for one.
pub(super) fn client() -> Option<Arc<TcpStream>> {
    CLIENT.with_borrow(Clone::clone)
}

/// Whether nobody is left on the other side of a connection.
pub(super) fn is_gone(client: &Arc<TcpStream>) -> bool {
    // Never blocks, as the runtime has made it so.
    match client.peek(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => !matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
        ),
    }
}

/// Does `work` here, if nobody but its own client waits for the thread; gives it back otherwise.
///
/// The outcome is an error when it has panicked.
pub(super) fn here<T, W: FnOnce() -> T>(work: W) -> Result<std::thread::Result<T>, W> {
    match CLIENT.with_borrow(Option::is_some) {
        true => Ok(catch_unwind(AssertUnwindSafe(work))),
        false => Err(work),
    }
}
