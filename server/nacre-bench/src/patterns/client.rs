//! A client of a run, and the interface of patterns.

use super::connections::Connections;
use super::measurements::Measurements;
use super::retry::{Failure, RetryPolicy};
use rand::Rng;
use rand::rngs::StdRng;
use std::time::Instant;

/// A workload: documents that are loaded first, and transactions.
pub trait Pattern: Sync {
    /// Creates what documents need, such as indexes.
    fn prepare(&self, _client: &mut Client) -> Result<(), Failure> {
        Ok(())
    }

    /// Number of steps that load documents.
    fn loads(&self) -> u64;

    /// Executes step `number` of loading, from 0.
    ///
    /// # Errors
    /// Why results cannot be recorded. A failure of the server is recorded.
    fn load(&self, client: &mut Client, number: u64) -> Result<(), String>;

    /// Waits until loaded documents can be found.
    fn settle(&self, _client: &mut Client) -> Result<(), Failure> {
        Ok(())
    }

    /// Executes transaction `number`, from 0; numbers are unique in a run.
    ///
    /// # Errors
    /// Why results cannot be recorded. A failure of the server is recorded.
    fn transact(&self, client: &mut Client, number: u64) -> Result<(), String>;
}

/// A client, which executes one operation at a time.
pub struct Client {
    /// Its connections.
    pub connections: Connections,
    /// Measurements of this client.
    pub measurements: Measurements,
    /// Its random number generator.
    pub random: StdRng,
    /// The position in pages that only this client reads.
    pub page: Option<u64>,
    /// The policy for repeating requests.
    pub policy: RetryPolicy,
}

impl Client {
    /// Sends a request, and repeats it according to the policy.
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

    /// Executes a transaction of one or more requests, and records its duration.
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

    /// Returns random letters of this length.
    pub fn text(&mut self, bytes: usize) -> String {
        (0..bytes).map(|_| char::from(self.random.random_range(b'a'..=b'z'))).collect()
    }

    /// Returns a random UUID in text form.
    ///
    /// Source: RFC 4122, version 4.
    pub fn uuid(&mut self) -> String {
        let bits: u128 = self.random.random();
        // The version is 4, the variant is binary 10.
        let bits = bits & !(0xf << 76) | 4 << 76;
        let bits = bits & !(0b11 << 62) | 0b10 << 62;
        let digits = format!("{bits:032x}");
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        parts.join("-")
    }

    /// Returns a user document of the workloads as JSON: twenty fields and the members in `more`.
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
