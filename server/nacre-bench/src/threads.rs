//! Clients as threads.

/// Runs a function in a thread each for the numbers below `count`, and gives what came of them, in their order.
///
/// # Errors
/// The first of them that failed.
pub fn each_of<T: Send>(
    count: usize,
    run: impl Fn(usize) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || run(number))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        };
        threads.into_iter().map(join).collect()
    })
}
