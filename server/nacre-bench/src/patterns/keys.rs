//! Keys of new documents: numbers of a counter, or UUIDs.

use super::client::{Client, Pattern};
use super::retry::Failure;

const COUNTER: &str = "counter::usercounter";

/// Users whose numbers come from a counter.
pub struct IncrementingKey {
    /// Place of the cluster that has the counter; users are in the first one.
    pub counter: usize,
    /// Bytes of a field of a user.
    pub field_bytes: usize,
}

impl Pattern for IncrementingKey {
    fn loads(&self) -> u64 {
        1
    }

    fn load(&self, client: &mut Client, _: u64) -> Result<(), String> {
        client.transaction("INSERT-COUNTER", |client| {
            client
                .submit(|connections| connections.count(self.counter, COUNTER, 0, Some(0)))
                .map(drop)
        })
    }

    fn transact(&self, client: &mut Client, _: u64) -> Result<(), String> {
        let user = client.user(&[], self.field_bytes);
        client.transaction("USER-REGISTRATION", |client| {
            let number =
                client.submit(|connections| connections.count(self.counter, COUNTER, 1, None))?;
            // As in the original workload, the number is a field, too.
            let user = user.replacen('{', &format!(r#"{{"user_id":{number},"#), 1);
            insert(client, &format!("user::{number}"), &user)
        })
    }
}

/// Users whose keys clients make by themselves.
pub struct UuidKey {
    /// Bytes of a field of a user.
    pub field_bytes: usize,
}

impl Pattern for UuidKey {
    fn loads(&self) -> u64 {
        0
    }

    fn load(&self, _: &mut Client, _: u64) -> Result<(), String> {
        Ok(())
    }

    fn transact(&self, client: &mut Client, _: u64) -> Result<(), String> {
        let id = client.uuid();
        let user = client.user(&[("user_id", format!("\"{id}\""))], self.field_bytes);
        client.transaction("USER-REGISTRATION", |client| {
            insert(client, &format!("user::{id}"), &user)
        })
    }
}

fn insert(client: &mut Client, key: &str, user: &str) -> Result<(), Failure> {
    client.submit(|connections| connections.insert(key, user)).map(drop)
}
