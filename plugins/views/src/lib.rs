//! Map/reduce views: indexes written in JavaScript, kept up to date from the change stream.
//!
//! A deployment is one design document. Each of its views maps every document to rows (`emit(key, value)`),
//! kept in a B-tree in the order of their keys; a view with a reduce function keeps reductions in the inner
//! nodes of the tree, so that a range is summarised without reading it.
//!
//! ```text
//! change of a document ─► rows it had (back index) are removed
//!                       ─► map of each view ─► rows are inserted, and noted in the back index
//!
//! state   d <vb> <id>                 what rows the document has: view number and tree key of each
//!         v <view> …                  the B-tree of the view
//! tree    key   collated(key) ‖ id ‖ number of the emit
//!         value vBucket ‖ length of key ‖ key as JSON ‖ value as JSON
//! ```
//!
//! Configuration: `{"name": "d", "views": {"v": {"map": "function (doc, meta) {…}", "reduce": "_count"}}}`;
//! other members are ignored. `reduce` is left out, `_count`, `_sum`, `_stats`, or a function.
//!
//! Requests: `GET /` tells about the views, `GET` or `POST /{view}` queries one, with the parameters of
//! Couchbase's view queries. `stale` means nothing here: who calls has waited for the feed.
//!
//! Invariants: a document whose map fails has no rows in that view, and keeps those in the others; the rows in
//! the trees are exactly those in the back index.

mod answer;
mod body;
mod design;
mod header;
mod index;
mod listing;
mod mask;
mod query;
mod reduction;
mod row;
mod scan;

use answer::{Answered, answer};
use design::Design;
use listing::Listing;
use nacre_js::{Engine, Limits};
use nacre_plugin::{
    Chunk, DocumentError, Events, Fault, Request, Response, Service, State, StateMut, collate,
};
use std::cell::RefCell;

/// The views plugin: one instance serves one design document.
pub struct Views {
    design: Design,
    // Reductions are made while a tree is read or written, which only borrows the reducer.
    engine: RefCell<Engine>,
    /// The answer that is given piece by piece.
    listing: Option<Box<Listing>>,
}

/// A piece of an answer ends with the row that brings it here.
const PIECE_BYTES: usize = 256 << 10;

/// A cursor needs to say nothing: it comes back to the instance that has the answer.
const MORE: &[u8] = b"more";

/// The limits of user code, as `describe` shows them.
const LIMITS: Limits = Limits {
    memory_bytes: 128 << 20,
    stack_bytes: 256 << 10,
    steps_max: 10_000_000,
    json_depth_max: 512,
    emit_key_bytes_max: 4096,
    emit_bytes_max: 1 << 20,
    result_bytes_max: 64 << 10,
};

impl Service for Views {
    fn describe() -> String {
        serde_json::json!({
            "name": "views",
            "version": env!("CARGO_PKG_VERSION"),
            "state_version": format!("2/{}", collate::VERSION),
            "limits": {
                "memory_bytes": LIMITS.memory_bytes,
                "stack_bytes": LIMITS.stack_bytes,
                "steps_max": LIMITS.steps_max,
                "json_depth_max": LIMITS.json_depth_max,
                "emit_key_bytes_max": LIMITS.emit_key_bytes_max,
                "emit_bytes_max": LIMITS.emit_bytes_max,
                "reduction_bytes_max": LIMITS.result_bytes_max,
            },
        })
        .to_string()
    }

    fn init(config: &str) -> Result<Views, Fault> {
        let mut engine =
            Engine::new(LIMITS).map_err(|error| Fault::Retry(format!("JavaScript: {error}")))?;
        let design = Design::compile(config, &mut engine).map_err(Fault::Reject)?;
        Ok(Views { design, engine: RefCell::new(engine), listing: None })
    }

    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        self.engine.get_mut().set_now(events.now_us());
        index::apply(&self.design, &self.engine, events, state)
    }

    fn rollback(
        &mut self,
        vb: u16,
        _seqno: u64,
        state: &mut dyn StateMut,
    ) -> Result<Option<u64>, Fault> {
        // Rows do not say which seqno they came from, so the vBucket starts over.
        let done = index::remove_part_of_vbucket(&self.design, &self.engine, vb, state)?;
        Ok(done.then_some(0))
    }

    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        self.engine.get_mut().set_now(request.now_us);
        self.listing = match answer(&self.design, &self.engine, request, state)? {
            Answered::Whole(response) => return Ok(response),
            Answered::Listing(listing) => Some(listing),
        };
        let Chunk { body, cursor } = self.piece(state)?;
        Ok(Response { cursor, ..Response::json(200, body) })
    }

    fn more(&mut self, _cursor: &[u8], state: &dyn State) -> Result<Chunk, Fault> {
        self.piece(state)
    }
}

impl Views {
    fn piece(&mut self, state: &dyn State) -> Result<Chunk, Fault> {
        let no_answer = || Fault::Reject("there is no answer to go on with".into());
        let mut listing = self.listing.take().ok_or_else(no_answer)?;
        let (body, is_last) =
            listing.piece(&self.design.views, &self.engine, state, PIECE_BYTES)?;
        if !is_last {
            self.listing = Some(listing);
        }
        Ok(Chunk { body: body.into(), cursor: (!is_last).then(|| MORE.to_vec()) })
    }
}

nacre_plugin::export!(Views);
