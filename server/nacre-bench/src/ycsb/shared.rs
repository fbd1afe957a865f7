//! Clients that share a connection: requests and answers of several clients pass through the kernel together.

use super::couchbase::{AGAIN_AFTER, Couchbase};
use super::workload::{Source, Task};
use super::{Latencies, Run, there};
use std::collections::VecDeque;
use std::time::Instant;

/// A client.
struct Client<'a> {
    source: Source<'a>,
    /// Current operation and its start; `None` when the run is over.
    current: Option<(Task<'a>, Instant)>,
    /// Number of answered steps.
    taken: usize,
}

impl<'a> Client<'a> {
    /// Draws the next operation and sends its first step.
    fn begin(&mut self, number: u32, run: &Run<'a>, store: &mut Couchbase) {
        self.current = run.task(&mut self.source).map(|task| (task, Instant::now()));
        self.taken = 0;
        self.send(number, store);
    }

    /// Sends the next step. Returns true if there is one.
    fn send(&self, number: u32, store: &mut Couchbase) -> bool {
        let step = self.current.as_ref().and_then(|(task, _)| Some((task, task.step(self.taken)?)));
        step.map(|(task, step)| store.send(number, &task.key, step)).is_some()
    }
}

/// Runs clients with one operation in flight each. Returns the latencies of all.
///
/// # Errors
/// Fails if the connection breaks, or a request is refused.
pub fn run(run: &Run<'_>, clients: usize, mut store: Couchbase) -> Result<Latencies, String> {
    store.allow_any_order()?;
    let client = |number| Ok(Client { source: run.source(number)?, current: None, taken: 0 });
    let mut clients = (0..clients).map(client).collect::<Result<Vec<_>, String>>()?;
    for (number, client) in (0..).zip(&mut clients) {
        client.begin(number, run, &mut store);
    }
    let mut all = Latencies::default();
    let mut busy = clients.iter().filter(|client| client.current.is_some()).count();
    // Clients with a temporary refusal, and the time of their retry.
    let mut refused: VecDeque<(Instant, u32)> = VecDeque::new();
    while busy > 0 {
        if let Some((due, _)) = refused.front().filter(|_| refused.len() == busy) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        while let Some((_, number)) = refused.pop_front_if(|(due, _)| *due <= Instant::now()) {
            clients[number as usize].send(number, &mut store);
        }
        let (number, found) = store.answer()?;
        let client = clients.get_mut(number as usize).filter(|client| client.current.is_some());
        let client = client.ok_or("the server sent an unexpected response")?;
        let Some(found) = found else {
            refused.push_back((Instant::now() + AGAIN_AFTER, number));
            continue;
        };
        let task = client.current.as_ref().map(|(task, _)| task);
        task.map_or(Ok(()), |task| there(found, task))?;
        client.taken += 1;
        if client.send(number, &mut store) {
            continue;
        }
        if let Some((task, begun)) = client.current.take() {
            all.record(task.operation, begun.elapsed())?;
            run.records.done(&task);
        }
        client.begin(number, run, &mut store);
        busy -= usize::from(client.current.is_none());
    }
    Ok(all)
}
