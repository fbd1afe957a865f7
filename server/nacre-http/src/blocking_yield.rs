//! Connections whose requests are answered by the thread that has read them, such as query connections. Handing a short query to
//! another thread and back would take longer than answering it.
//!
//! One thread per processor serves all these connections. When a request takes long or waits, its thread makes room
//! ([`make_room`]): another thread takes over the connections, and the first thread ends with its request.

use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// Maximum number of slow requests and of answers that are sent piece by piece. Further ones delay other requests.
const THREADS_MAX: usize = 4096;
/// Maximum length of [`YIELDED`].
const YIELDED_MAX: usize = 1024;
/// Longest time that a thread waits for another one to take over. The thread must not continue earlier, however busy
/// the machine is, because it may be the last one that serves connections. The wait reaches this limit only if no
/// thread can be created.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(5);

/// Held while a thread makes room. A thread that learns that another one has taken over checks whether its own place is
/// still free, and takes it back if so. Without the lock, it might find the place that the other thread frees for a
/// third one.
static MAKES_ROOM: Mutex<()> = Mutex::new(());
/// Tells the thread that makes room that another thread has taken over.
static SERVES: Mutex<Option<mpsc::SyncSender<()>>> = Mutex::new(None);

/// Reports that this thread has taken over.
fn serves() {
    if let Some(tell) = SERVES.lock().take() {
        let _ = tell.send(());
    }
}

thread_local! {
    /// The connection that the thread is serving.
    static AT: RefCell<Option<At>> = const { RefCell::new(None) };
    /// The connection whose request the thread answered last, identified by the address of its [`At::client`].
    static ANSWERED: Cell<usize> = const { Cell::new(0) };
    /// Tasks that continue once the thread has nothing else to do. Some may have continued elsewhere in the meantime;
    /// waking them is harmless.
    static YIELDED: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

struct At {
    client: Arc<TcpStream>,
    has_made_room: bool,
}

/// Marks the connection that the thread is serving, until the value is dropped.
struct ServedConnection;

impl ServedConnection {
    fn new(client: &Arc<TcpStream>) -> ServedConnection {
        serves();
        AT.set(Some(At { client: Arc::clone(client), has_made_room: false }));
        ServedConnection
    }
}

impl Drop for ServedConnection {
    fn drop(&mut self) {
        AT.set(None);
    }
}

/// Starts the threads for such connections, with a stack of `stack_bytes` each. `on_thread_start` runs on each of them before
/// its first connection; it should install a hook that calls [`make_room`] before blocking work.
///
/// # Errors
/// If the threads cannot be started.
pub fn threads(
    stack_bytes: usize,
    on_thread_start: impl Fn() + Send + Sync + 'static,
) -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(1, usize::from))
        .thread_name("query")
        .thread_stack_size(stack_bytes)
        .max_blocking_threads(THREADS_MAX)
        .on_thread_start(on_thread_start)
        .enable_all()
        .build()
}

/// Serves a connection on `threads` until `converse` ends.
pub fn serve<C: Future<Output = ()> + Send>(
    threads: &Handle,
    stream: TcpStream,
    converse: impl FnOnce(tokio::net::TcpStream) -> C + Send + 'static,
) {
    threads.spawn(async move {
        // Both fail if the process has run out of descriptors: the client then sees a closed connection.
        let Ok(client) = stream.try_clone().map(Arc::new) else { return };
        let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
        let mut conversation = pin!(converse(stream));
        poll_fn(|context| {
            let _turn = ServedConnection::new(&client);
            conversation.as_mut().poll(context)
        })
        .await;
    });
}

/// Makes room if this thread serves connections: schedules a task, so that an idle worker wakes up and takes them over.
/// Call it when a request takes long, and before it waits.
pub fn make_room() {
    let is_needed = AT.with_borrow(|at| at.as_ref().is_some_and(|at| !at.has_made_room));
    if is_needed {
        let _one_at_a_time = MAKES_ROOM.lock();
        let (sender, receiver) = mpsc::sync_channel(1);
        *SERVES.lock() = Some(sender);
        // Otherwise these tasks would wait until this thread has nothing else to do.
        YIELDED.take().into_iter().for_each(Waker::wake);
        // This wakes an idle worker, which takes over the connections.
        tokio::spawn(async { serves() });
        let taken_over = tokio::task::block_in_place(|| receiver.recv_timeout(TAKEN_OVER_WITHIN));
        let has_made_room = taken_over.is_ok();
        AT.with_borrow_mut(|at| at.iter_mut().for_each(|at| at.has_made_room = has_made_room));
    }
}

/// Returns the connection that this thread is serving, if there is one.
pub fn client() -> Option<Arc<TcpStream>> {
    AT.with_borrow(|at| at.as_ref().map(|at| Arc::clone(&at.client)))
}

/// Returns true if the client has closed its connection.
pub fn is_gone(client: &Arc<TcpStream>) -> bool {
    // This never blocks, because the runtime has made the socket non-blocking.
    match client.peek(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => !matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
        ),
    }
}

/// Waits until the requests that have already arrived are answered too, so that the answers wake a client once instead
/// of one by one. Continues immediately if the thread has answered no other connection since the last request of this
/// one: otherwise, checking for other requests would wake another thread that checks as well.
pub async fn yield_to_others() {
    let client = AT.with_borrow(|at| at.as_ref().map(|at| Arc::as_ptr(&at.client).addr()));
    let Some(client) = client else { return };
    if ANSWERED.replace(client) == client {
        return;
    }
    with_waker(|waker| {
        let yielded = YIELDED.with_borrow_mut(|yielded| {
            yielded.push(waker.clone());
            (yielded.len() > YIELDED_MAX).then(|| std::mem::take(yielded))
        });
        yielded.into_iter().flatten().for_each(Waker::wake);
    })
    .await;
    tokio::task::yield_now().await;
    with_waker(|waker| {
        YIELDED.with_borrow_mut(|yielded| {
            // The last task that yielded continues first, and on the same thread unless another thread steals it.
            if let Some(at) = yielded.iter().rposition(|other| other.will_wake(waker)) {
                yielded.swap_remove(at);
            }
        });
    })
    .await;
}

async fn with_waker(mut work: impl FnMut(&Waker)) {
    poll_fn(|context| {
        work(context.waker());
        Poll::Ready(())
    })
    .await;
}

/// Runs `work` on this thread if the thread can make room; otherwise returns `work`.
///
/// The result is an error if `work` has panicked.
pub fn here<T, W: FnOnce() -> T>(work: W) -> Result<std::thread::Result<T>, W> {
    match AT.with_borrow(Option::is_some) {
        true => Ok(catch_unwind(AssertUnwindSafe(work))),
        false => Err(work),
    }
}
