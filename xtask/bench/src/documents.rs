//! A client that writes numbered documents in batches.

use nacre_conformance::kv::{KvClient, Request};
use std::ops::Range;
use xtask_setup::node::{Node, PASSWORD, USER};

/// Requests sent before their replies are read.
const PIPELINE: usize = 64;
const GET: u8 = 0x00;
const SET: u8 = 0x01;

/// A client for one collection.
pub struct Documents {
    client: KvClient,
    id: u32,
    body: fn(u64) -> Vec<u8>,
}

impl Documents {
    /// Connects to `_default.{collection}` of a bucket; `body` creates the document for a number.
    ///
    /// # Errors
    /// Fails when there is no such collection.
    pub fn open(
        node: &Node,
        bucket: &str,
        collection: &str,
        body: fn(u64) -> Vec<u8>,
    ) -> Result<Documents, String> {
        let client = KvClient::connect(("127.0.0.1", node.kv_port()), USER, PASSWORD, bucket);
        let mut client = client.map_err(|error| error.to_string())?;
        let id = client.collection_id(&format!("_default.{collection}"));
        Ok(Documents { client, id: id.map_err(|error| error.to_string())?, body })
    }

    fn request(&self, opcode: u8, number: u64) -> Request {
        let name = format!("document-{number}");
        let (vbid, key) =
            (self.client.vbid(name.as_bytes()), self.client.wire_key(self.id, name.as_bytes()));
        Request { opcode, vbid, key, ..Request::default() }
    }

    /// Writes the documents with these numbers.
    ///
    /// # Errors
    /// Fails when one is refused.
    pub fn write(&mut self, numbers: Range<u64>) -> Result<(), String> {
        let mut numbers = numbers.peekable();
        while numbers.peek().is_some() {
            let write = |number| {
                let value = (self.body)(number);
                Request { extras: vec![0; 8], value, ..self.request(SET, number) }
            };
            let requests: Vec<Request> = numbers.by_ref().take(PIPELINE).map(write).collect();
            self.client.send_all(&requests).map_err(|error| error.to_string())?;
            for _ in requests {
                let reply = self.client.receive().map_err(|error| error.to_string())?;
                if !reply.is_success() {
                    return Err(format!("a document was refused: {}", reply.text()));
                }
            }
        }
        Ok(())
    }

    /// Returns true if the document with a number exists.
    ///
    /// # Errors
    /// Fails when the node does not answer.
    pub fn holds(&mut self, number: u64) -> Result<bool, String> {
        let request = self.request(GET, number);
        let reply = self.client.call(&request).map_err(|error| error.to_string())?;
        Ok(reply.is_success())
    }
}
