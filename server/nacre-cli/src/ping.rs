//! `nacre ping`: checks the services of a node and measures their latency.

use crate::failure::{Failure, Kind};
use crate::listing::{Format, Listing};
use crate::statement;
use crate::target::Server;
use clap::Args;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The pause between two attempts of `--wait`.
const PAUSE: Duration = Duration::from_millis(100);

/// Options of `nacre ping`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    server: Server,
    /// Wait up to so many seconds until the management, key-value and query services respond
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
    #[command(flatten)]
    format: Format,
}

/// The answer of a service.
struct ServiceAnswer {
    service: &'static str,
    /// The address; empty if unknown.
    address: String,
    outcome: Result<Duration, Failure>,
}

/// Runs `nacre ping`.
///
/// # Errors
/// The reason, if a service does not answer.
pub fn run(options: &Options) -> Result<(), Failure> {
    let begun = Instant::now();
    let patience = Duration::from_secs(options.wait.unwrap_or(0));
    let answers = loop {
        // Each attempt determines the node again: `nacre dev` may have started in this folder
        // meanwhile.
        let server = options.server.again();
        let is_over = begun.elapsed() >= patience;
        if is_over || server.has_password() {
            let answers = ping(&server);
            if is_over || answers.iter().all(|answer| answer.outcome.is_ok()) {
                break answers;
            }
        }
        std::thread::sleep(PAUSE);
    };
    let mut listing = Listing::new(&["service", "address", "status", "ms"]);
    let mut failure = None;
    for ServiceAnswer { service, address, outcome } in answers {
        let (status, ms) = match outcome {
            Ok(elapsed) => ("ok".to_owned(), Value::from(millis(elapsed))),
            Err(error) => (failure.get_or_insert(error).reason.clone(), Value::Null),
        };
        listing.add([service.into(), address.into(), status.into(), ms]);
    }
    options.format.show(&listing);
    match failure {
        None => Ok(()),
        Some(failure) if failure.kind == Kind::Denied => Err(failure),
        Some(failure) => Err(Failure::new(Kind::Unreachable, failure.reason)),
    }
}

/// Options of `nacre health`.
#[derive(Args, Clone, Debug)]
pub struct Health {
    #[command(flatten)]
    server: Server,
    /// Fail unless the node can serve clients, not only if it does not respond
    #[arg(long)]
    ready: bool,
}

/// Runs `nacre health`.
///
/// # Errors
/// The reason, if the node does not answer or is not ready.
pub fn health(options: &Health) -> Result<(), Failure> {
    let path = if options.ready { "/ready" } else { "/health" };
    let (status, answer) = options.server.probe(path)?;
    if status == 200 {
        println!("{}", answer["status"].as_str().unwrap_or("ok"));
        return Ok(());
    }
    let reasons = answer["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let reasons: Vec<&str> = reasons.collect();
    Err(match reasons.is_empty() {
        true => format!("the node answers {status} to {path}").into(),
        false => reasons.join("; ").into(),
    })
}

/// Returns milliseconds with two decimal places.
fn millis(elapsed: Duration) -> f64 {
    (elapsed.as_secs_f64() * 1e5).round() / 1e2
}

fn ping(server: &Server) -> Vec<ServiceAnswer> {
    let address = server.address().map(ToString::to_string).unwrap_or_default();
    let begun = Instant::now();
    let management = server.call("GET", "/pools/default", b"").map(|_| begun.elapsed());
    let is_up = management.is_ok();
    let mut answers = vec![ServiceAnswer { service: "management", address, outcome: management }];
    // Without management, the addresses of the other services are unknown.
    if !is_up {
        return answers;
    }
    let keys = server.keys();
    let address = keys.as_ref().map(|keys| keys.address.clone()).unwrap_or_default();
    let begun = Instant::now();
    let outcome = keys.and_then(|_| server.open_keys()).map(|()| begun.elapsed());
    answers.push(ServiceAnswer { service: "keys", address, outcome });
    let address = server.queries().unwrap_or_default();
    let begun = Instant::now();
    let outcome = statement::rows(server, "SELECT RAW 1", &[]).map(|_| begun.elapsed());
    answers.push(ServiceAnswer { service: "queries", address, outcome });
    answers
}
