//! Runs of `nacre bench kv`, and their output.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xtask_setup::command::{output, wrapped};
use xtask_setup::node::{self, Node, PASSWORD, USER};

/// The bucket for measurements.
pub const BUCKET: &str = "bench";
/// Interval at which the memory of a process is read.
const LOOK: Duration = Duration::from_millis(10);

/// The figures of one run; latencies in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Operations per second.
    pub ops: f64,
    /// Median latency.
    pub p50: f64,
    /// 99th percentile of latency.
    pub p99: f64,
    /// Requests sent again after temporary failures.
    pub retries: f64,
}

/// A line of output, by column names.
pub type Row = BTreeMap<String, String>;

/// Returns the options that make `nacre bench kv` use the bucket of a node.
pub fn target(node: &Node) -> Vec<String> {
    let server = format!("127.0.0.1:{}", node.kv_port());
    let options = ["--server", &server, "--user", USER, "--password", PASSWORD, "--bucket", BUCKET];
    options.map(str::to_owned).into()
}

/// Measures with `options`, on the processors that `wrapper` allows.
///
/// # Errors
/// Reports what the server refused, or that the output cannot be parsed.
pub fn measure(
    binary: &Path,
    wrapper: &[&str],
    target: &[String],
    options: &[&str],
) -> Result<Figures, String> {
    let options: Vec<String> =
        target.iter().cloned().chain(options.iter().map(|option| (*option).to_owned())).collect();
    let rows = rows(binary, wrapper, "kv", &options)?;
    let row = rows.first().ok_or("the measurement printed nothing")?;
    let (ops, p50, p99) =
        (figure(row, "ops_per_s")?, figure(row, "p50_us")?, figure(row, "p99_us")?);
    Ok(Figures { ops, p50, p99, retries: figure(row, "retries")? })
}

/// Runs `nacre bench` for `what`; returns the printed rows.
///
/// # Errors
/// As for [`measure`].
pub fn rows(
    binary: &Path,
    wrapper: &[&str],
    what: &str,
    options: &[String],
) -> Result<Vec<Row>, String> {
    let mut command = wrapped(binary, wrapper);
    command.args(["bench", what, "--csv", "-"]).args(options);
    let text = output(&mut command, "measure")?;
    let unreadable = |error: csv::Error| format!("cannot read {text:?}: {error}");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().collect::<Result<_, _>>().map_err(unreadable)
}

/// Returns a figure of a row.
///
/// # Errors
/// Fails when the column does not exist or is not a number.
pub fn figure(row: &Row, name: &str) -> Result<f64, String> {
    let value = row.get(name).and_then(|value| value.parse().ok());
    value.ok_or_else(|| format!("no {name} in {row:?}"))
}

/// Returns the median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Creates the bucket for measurements.
///
/// # Errors
/// Reports the node's refusal.
pub fn create_bucket(node: &Node, kind: &str, quota_mb: u32) -> Result<(), String> {
    let quota = quota_mb.to_string();
    let form = [("name", BUCKET), ("ramQuotaMB", quota.as_str()), ("bucketType", kind)];
    let created = node.rest("POST", "/pools/default/buckets", &form)?;
    if created.status == 202 {
        Ok(())
    } else {
        Err(format!("cannot create the bucket: {}", created.text()))
    }
}

/// Runs `work`; returns its result, and the maximum growth of the memory of process `id` meanwhile, in bytes.
///
/// # Errors
/// The errors of `work`; fails if there is no such process.
pub fn with_memory<T>(
    id: u32,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<(T, u64), String> {
    let before = node::memory_bytes(id)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = before;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(node::memory_bytes(id).unwrap_or(0));
                std::thread::sleep(LOOK);
            }
            most - before
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        let grown = watch.join().map_err(|_| "the memory was not watched")?;
        Ok((done?, grown))
    })
}
