//! One client of a run, and what a pattern is to it.

use super::connections::Connections;
use super::measurements::Measurements;
use super::retry::{Failure, RetryPolicy};
use rand::Rng;
use rand::rngs::StdRng;
use std::time::Instant;

/// A workload: documents that are loaded first, and transactions.
pub trait Pattern: Sync {
    /// Makes what must be there before documents are, such as indexes.
    fn prepare(&self, _client: &mut Client) -> Result<(), Failure> {
        Ok(())
    }

    /// Number of steps that load documents.
    fn loads(&self) -> u64;

    /// Takes the step `number` of loading, from 0 on.
    ///
    /// # Errors
    /// Why nothing can be recorded. A failure of the server is recorded.
    fn load(&self, client: &mut Client, number: u64) -> Result<(), String>;

    /// Waits until what was loaded can be found.
    fn settle(&self, _client: &mut Client) -> Result<(), Failure> {
        Ok(())
    }

    /// Carries out the transaction `number`, from 0 on; numbers are unique in a run.
    ///
    /// # Errors
    /// Why nothing can be recorded. A failure of the server is recorded.
    fn transact(&self, client: &mut Client, number: u64) -> Result<(), String>;
}

/// A client: it does one thing after the other.
pub struct Client {
    /// Its connections.
    pub connections: Connections,
    /// Measurements of this client.
    pub measurements: Measurements,
    /// Its own randomness.
    pub random: StdRng,
    /// Where it is in pages that only it reads.
    pub page: Option<u64>,
    /// How requests are repeated.
    pub policy: RetryPolicy,
}

impl Client {
    /// Sends a request, again while the policy says so.
    ///
    /// # Errors
    /// The last failure.
    pub fn submit<T>(
        &mut self,
        mut request: impl FnMut(&mut Connections) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Client { connections, measurements, policy, .. } = self;
        policy.run(&mut measurements.retries, std::thread::sleep, || request(connections))
    }

    /// Carries out a transaction of one or more requests, and records how long it took.
    ///
    /// # Errors
    /// Why it cannot be recorded.
    pub fn transaction(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Client) -> Result<(), Failure>,
    ) -> Result<(), String> {
        let begun = Instant::now();
        let outcome = work(self);
        self.measurements.record(name, begun.elapsed(), outcome)
    }

    /// Letters, as many bytes.
    pub fn text(&mut self, bytes: usize) -> String {
        (0..bytes).map(|_| char::from(self.random.random_range(b'a'..=b'z'))).collect()
    }

    /// A UUID of random bits, in its usual form.
    ///
    /// Source: RFC 4122, version 4.
    pub fn uuid(&mut self) -> String {
        let bits: u128 = self.random.random();
        // The version is 4, the variant binary 10.
        let bits = bits & !(0xf << 76) | 4 << 76;
        let bits = bits & !(0b11 << 62) | 0b10 << 62;
        let digits = format!("{bits:032x}");
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        parts.join("-")
    }

    /// A user as the workloads have it: twenty fields and what `more` names, as JSON.
    pub fn user(&mut self, more: &[(&str, String)], field_bytes: usize) -> String {
        let mut user = String::from(r#"{"doctype":"user""#);
        for (name, value) in more {
            user.push_str(&format!(r#","{name}":{value}"#));
        }
        for number in 1..=20 {
            user.push_str(&format!(r#","field{number}":"{}""#, self.text(field_bytes)));
        }
        user + "}"
    }
}
