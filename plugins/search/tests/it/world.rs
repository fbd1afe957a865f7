//! An index in memory.

use nacre_search::{
    Blobs, Change, Definition, Error, Index, MemoryBlobs, Place, Request, merge, search,
};
use serde_json::Value;
use std::sync::Arc;

/// An index with documents.
pub struct World {
    pub blobs: MemoryBlobs,
    pub index: Index,
}

impl World {
    /// Creates an empty index.
    pub fn new(params: &Value) -> Result<World, Error> {
        let definition = Arc::new(Definition::parse(params)?);
        let blobs = MemoryBlobs::default();
        let shared: Arc<dyn Blobs> = Arc::new(blobs.clone());
        let index = Index::create(definition, shared, 1)?;
        Ok(World { blobs, index })
    }

    /// Indexes documents in batches of a given size.
    pub fn add<'a>(
        &mut self,
        documents: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        batch: usize,
    ) {
        self.add_to("_default", "_default", documents, batch);
    }

    /// Like [`World::add`], into a collection.
    pub fn add_to<'a>(
        &mut self,
        scope: &str,
        collection: &str,
        documents: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        batch: usize,
    ) {
        let place = Place { scope, collection };
        let changes: Vec<Change<'_>> = documents
            .into_iter()
            .map(|(id, body)| Change { vb: vbucket(id), id, body: Some(body), place })
            .collect();
        for batch in changes.chunks(batch) {
            self.index.apply(batch).unwrap();
        }
    }

    /// Deletes a document.
    pub fn delete(&mut self, id: &str) {
        self.index
            .apply(&[Change { vb: vbucket(id), id, body: None, place: Place::default() }])
            .unwrap();
    }

    /// Returns the response to a request.
    pub fn search(&self, request: &Value) -> Result<Value, Error> {
        let request = Request::parse(request.to_string().as_bytes())?;
        let partial = search(&self.index, &request, &mut || false)?;
        let response =
            merge(&request, vec![("world_0123456789abcdef_01234567".into(), Ok(partial))]);
        Ok(response.to_json(&request, 1))
    }

    /// Returns the IDs of all hits of a query.
    pub fn ids(&self, query: &Value) -> Result<Vec<String>, Error> {
        let answer =
            self.search(&serde_json::json!({"query": query, "size": 10_000, "sort": ["_id"]}))?;
        Ok(ids(&answer))
    }
}

/// Returns a vBucket for an ID.
pub fn vbucket(id: &str) -> u16 {
    id.bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte))) % 64
}

/// Returns the IDs of the hits in a response, in order.
pub fn ids(answer: &Value) -> Vec<String> {
    let hits = answer["hits"].as_array().unwrap();
    hits.iter().map(|hit| hit["id"].as_str().unwrap().to_owned()).collect()
}
