//! Repeats failed requests according to the rules of the dissertation's clients.
//!
//! A request is tried `tries` times. The first repetition is immediate; before the others a client pauses 2, 4, 8, …
//! milliseconds, at most `max_backoff`. Listed failures are not repeated. Source: C. H. Costa, "Scalability Patterns for
//! Distributed NoSQL Databases", section 4.1, and the code of its clients.

use nacre_protocol::Status;
use std::time::Duration;

/// The failure of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name by which a policy can list it: the symbol of a status, such as `ETMPFAIL`, or `connection`, `query` or `answer`.
    pub name: String,
    /// A message for the terminal.
    pub text: String,
}

impl Failure {
    /// Creates a failure outside of the key-value protocol.
    pub fn new(name: &str, text: impl Into<String>) -> Failure {
        Failure { name: name.to_owned(), text: text.into() }
    }

    /// Returns true if the document has another CAS than required, or already exists.
    pub fn is_conflict(&self) -> bool {
        self.name == symbol(Status::KeyExists as u16)
    }
}

impl From<nacre_client::Error> for Failure {
    fn from(error: nacre_client::Error) -> Failure {
        let name = error.status().map_or_else(|| "connection".to_owned(), symbol);
        Failure { name, text: error.to_string() }
    }
}

/// Returns the symbol of a status as in the error map.
fn symbol(status: u16) -> String {
    let known = Status::TABLE.iter().find(|(known, ..)| *known as u16 == status);
    known.map_or_else(|| format!("0x{status:02x}"), |(_, symbol, ..)| (*symbol).to_owned())
}

/// The policy for repeating requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of tries of a request, at least 1.
    pub tries: u64,
    /// Maximum pause.
    pub max_backoff: Duration,
    /// Names of failures that are not repeated.
    pub not_retried: Vec<String>,
}

/// Counts of repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retries {
    /// Tries after the first.
    pub repeated: u64,
    /// Requests that were abandoned.
    pub given_up: u64,
}

impl RetryPolicy {
    /// Tries a request until it succeeds or the policy abandons it. `pause` waits.
    ///
    /// # Errors
    /// The last failure.
    pub fn run<T>(
        &self,
        retries: &mut Retries,
        mut pause: impl FnMut(Duration),
        mut request: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut tried = 0;
        loop {
            let failure = match request() {
                Ok(found) => return Ok(found),
                Err(failure) => failure,
            };
            tried += 1;
            if tried >= self.tries || self.not_retried.contains(&failure.name) {
                retries.given_up += 1;
                return Err(failure);
            }
            retries.repeated += 1;
            // Pauses double, so 40 of them already exceed a thousand years.
            let exponent = u32::try_from(tried - 1).unwrap_or(u32::MAX).min(40);
            if exponent > 0 {
                pause(Duration::from_millis(1 << exponent).min(self.max_backoff));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(tries: u64) -> RetryPolicy {
        let not_retried = vec!["KEY_EEXISTS".to_owned()];
        RetryPolicy { tries, max_backoff: Duration::from_millis(1000), not_retried }
    }

    /// Fails with each of `failures` and then succeeds. Returns the outcome, tries, pauses in milliseconds, and counts.
    fn outcome(
        policy: &RetryPolicy,
        failures: &[&str],
    ) -> (Result<(), String>, usize, Vec<u128>, Retries) {
        let (mut retries, mut pauses, mut tried) = (Retries::default(), Vec::new(), 0);
        let request = || {
            tried += 1;
            let failure = failures.get(tried - 1);
            failure.map_or(Ok(()), |name| Err(Failure::new(name, *name)))
        };
        let done = policy.run(&mut retries, |pause| pauses.push(pause.as_millis()), request);
        (done.map_err(|failure| failure.name), tried, pauses, retries)
    }

    #[test]
    fn a_request_that_fails_twice_is_tried_three_times() {
        let (done, tried, pauses, retries) = outcome(&policy(10), &["ETMPFAIL", "ETMPFAIL"]);
        assert_eq!((done, tried), (Ok(()), 3));
        assert_eq!(pauses, [2], "the first repetition is immediate");
        assert_eq!(retries, Retries { repeated: 2, given_up: 0 });
    }

    #[test]
    fn a_listed_failure_is_tried_once() {
        let (done, tried, pauses, retries) = outcome(&policy(10), &["KEY_EEXISTS"]);
        assert_eq!((done, tried), (Err("KEY_EEXISTS".to_owned()), 1));
        assert_eq!((pauses.len(), retries), (0, Retries { repeated: 0, given_up: 1 }));
    }

    #[test]
    fn pauses_double_up_to_a_maximum_until_the_last_attempt() {
        let (done, tried, pauses, retries) = outcome(&policy(13), &["ETMPFAIL"; 13]);
        assert_eq!((done, tried), (Err("ETMPFAIL".to_owned()), 13));
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]);
        assert_eq!(retries, Retries { repeated: 12, given_up: 1 });
    }

    #[test]
    fn failures_are_named_by_the_symbols_of_statuses() {
        let refused = |status| nacre_client::Error::Refused {
            purpose: "count".into(),
            opcode: nacre_protocol::Opcode::Increment,
            status,
        };
        assert_eq!(Failure::from(refused(0x06)).name, "DELTA_BADVAL");
        assert!(Failure::from(refused(0x02)).is_conflict());
        assert_eq!(Failure::from(refused(0x7777)).name, "0x7777");
        assert_eq!(Failure::from(nacre_client::Error::Closed).name, "connection");
    }
}
