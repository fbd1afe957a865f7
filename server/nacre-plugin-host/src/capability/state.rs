//! `state`: the plugin's own key space.

use crate::abi::nacre::plugin::state::{Entry, Host};
use crate::capability::Capability;
use crate::instance::Data;
use wasmtime::Result;

impl Host for Data {
    fn get(&mut self, key: Vec<u8>) -> Result<Option<Vec<u8>>> {
        self.count(Capability::State)?;
        let value = self.view.get(&key);
        self.journal.get(key);
        Ok(value)
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.count(Capability::State)?;
        self.view.put(key, value).map_err(wasmtime::Error::new)
    }

    fn delete(&mut self, key: Vec<u8>) -> Result<()> {
        self.count(Capability::State)?;
        self.view.delete(key).map_err(wasmtime::Error::new)
    }

    fn scan(
        &mut self,
        start: Vec<u8>,
        end: Vec<u8>,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<Entry>> {
        self.count(Capability::State)?;
        let entries = self.view.scan(&start, &end, limit, reverse);
        self.journal.scan(start, end, limit, reverse, &entries);
        Ok(entries.into_iter().map(|(key, value)| Entry { key, value }).collect())
    }
}
