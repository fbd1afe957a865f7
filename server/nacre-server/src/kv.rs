//! Sockets of the key-value protocol: threads with an event loop each, and a plain loop for each connection.

use bytes::{Buf, BytesMut};
use nacre_node::Node;
use nacre_node::kv::{Next, Session};
use std::net::TcpListener;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Bytes read at a time. All whole frames among them are handled before anything is written.
const READ_BYTES: usize = 64 << 10;
/// Buffers that grew beyond this for one large document are given back afterwards.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Serves `listener` with `threads` threads until the process ends.
///
/// # Errors
/// When the listener cannot be used.
pub fn serve(node: &Arc<Node>, listener: TcpListener, threads: usize) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut listener = Some(listener);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..threads).map(|_| mpsc::unbounded_channel()).unzip();
    for (index, receiver) in receivers.into_iter().enumerate() {
        let node = Arc::clone(node);
        // The first thread also accepts; connections go round, so that few of them still use every thread.
        let accepting = listener.take().map(|listener| (listener, senders.clone()));
        std::thread::Builder::new().name(format!("kv-{index}")).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("the machine has room for another event loop");
            tokio::task::LocalSet::new().block_on(&runtime, async {
                if let Some((listener, senders)) = accepting {
                    tokio::task::spawn_local(accept(listener, senders));
                }
                converse(node, receiver).await;
            });
        })?;
    }
    Ok(())
}

async fn accept(listener: TcpListener, senders: Vec<mpsc::UnboundedSender<std::net::TcpStream>>) {
    let listener =
        tokio::net::TcpListener::from_std(listener).expect("the listener was made non-blocking");
    for turn in 0.. {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: others must close before there can be another connection.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(crate::ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(stream) = stream.into_std() else { continue };
        if senders[turn % senders.len()].send(stream).is_err() {
            return;
        }
    }
}

async fn converse(node: Arc<Node>, mut streams: mpsc::UnboundedReceiver<std::net::TcpStream>) {
    while let Some(stream) = streams.recv().await {
        let node = Arc::clone(&node);
        tokio::task::spawn_local(async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let peer = stream.peer_addr();
            if let Err(reason) = connection(node, stream).await {
                let peer = peer.map_or("somebody".to_owned(), |peer| peer.to_string());
                tracing::warn!("closed the connection of {peer}: {reason}");
            }
        });
    }
}

/// Handles one connection to its end; the error says why the server closed it.
async fn connection(node: Arc<Node>, mut stream: TcpStream) -> Result<(), String> {
    // Answers are written once for all requests that were read together; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let mut session = Session::new(Arc::clone(&node));
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let mut output = Vec::with_capacity(READ_BYTES);
    let mut next = Next::More;
    loop {
        match next {
            Next::More => {
                input.reserve(READ_BYTES);
                tokio::select! {
                    read = stream.read_buf(&mut input) => match read {
                        // The peer went away, properly or not.
                        Ok(0) | Err(_) => return Ok(()),
                        Ok(_) => {}
                    },
                    () = session.ready(), if session.has_parked() => {
                        session.resume(&mut output, node.now());
                    }
                }
            }
            Next::Wait => {
                session.ready().await;
                session.resume(&mut output, node.now());
            }
            Next::Flush => {}
            Next::Close(reason) => return reason.map_or(Ok(()), Err),
        }
        let (consumed, then) = session.receive(&input, &mut output, node.now());
        input.advance(consumed);
        next = then;
        if stream.write_all(&output).await.is_err() {
            return Ok(());
        }
        output.clear();
        output.shrink_to(BUFFER_BYTES_KEPT);
        if input.is_empty() && input.capacity() > BUFFER_BYTES_KEPT {
            input = BytesMut::with_capacity(READ_BYTES);
        }
    }
}
