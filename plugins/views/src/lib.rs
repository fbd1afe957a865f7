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
//! other members are ignored. `reduce` is left out, `_count`, `_sum`, `_stats`, or a function. With `"checked": true`, which says that
//! the same was accepted before, functions are compiled once one of them is needed: many a design document never does (`plain`).
//!
//! Requests: `GET /` tells about the views, `GET` or `POST /{view}` queries one, with the parameters of
//! Couchbase's view queries. `stale` means nothing here: who calls has waited for the feed.
//!
//! Where the vBuckets of a bucket are on several nodes, each has a partition with its share of the rows. The host then asks
//! each of them for its part, and one for the answer (`header` has the names):
//!
//! ```text
//! handle   GET /v, nacre-part: node, nacre-rest of the last round  ─► part      on every node
//! merge    GET /v, nacre-rest of the last round, all parts         ─► text, nacre-rest when there is more to come
//! ```
//!
//! Rounds follow until there is no `nacre-rest`; their texts one after the other are the answer.
//!
//! Invariants: a document whose map fails has no rows in that view, and keeps those in the others; the rows in
//! the trees are exactly those in the back index.

mod answer;
mod body;
mod bytes;
mod design;
mod header;
mod index;
mod listing;
mod mask;
mod merge;
mod meta;
mod part;
mod plain;
mod query;
mod reduction;
mod rest;
mod row;
mod scan;

use answer::{Answered, answer, asked};
use design::Design;
use listing::Listing;
use merge::Merged;
use nacre_js::{Functions, Limits};
use nacre_plugin::{
    Chunk, DocumentError, Events, Fault, Request, Response, Service, State, StateMut, collate,
};
use rest::Rest;
use std::cell::RefCell;
use std::collections::VecDeque;

/// The views plugin: one instance serves one design document.
pub struct Views {
    design: Design,
    // Reductions are made while a tree is read or written, which only borrows the reducer.
    functions: RefCell<Functions>,
    bounds: Bounds,
    /// The answer that is given piece by piece.
    pending: Pending,
}

/// What is left of an answer.
#[derive(Default)]
enum Pending {
    #[default]
    Nothing,
    Listing(Box<Listing>),
    Pieces(VecDeque<String>),
}

/// How much is given at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A piece of an answer ends with the row that brings it here.
    pub piece_bytes: usize,
    /// A part of an answer ends with the item that brings it here. All parts are in memory when they are merged.
    pub part_bytes: usize,
    /// A round of merging ends with the row that brings its text here.
    pub round_bytes: usize,
    /// Groups that a part has at most, and that a round reduces again: each may be a call of a function, and all of them
    /// happen in one call of the plugin, which has a deadline.
    pub reductions: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            piece_bytes: 256 << 10,
            part_bytes: 4 << 20,
            round_bytes: 32 << 20,
            reductions: 16 << 10,
        }
    }
}

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
        let mut limits = LIMITS.told();
        let of_views = [
            ("emit_key_bytes_max", LIMITS.emit_key_bytes_max),
            ("emit_bytes_max", LIMITS.emit_bytes_max),
            ("reduction_bytes_max", LIMITS.result_bytes_max),
        ];
        limits.extend(of_views.map(|(name, limit)| (name.to_owned(), limit.into())));
        serde_json::json!({
            "name": "views",
            "version": env!("CARGO_PKG_VERSION"),
            "state_version": format!("2/{}", collate::VERSION),
            "limits": limits,
        })
        .to_string()
    }

    fn init(config: &str) -> Result<Views, Fault> {
        let mut functions = Functions::new(LIMITS);
        let design = Design::read(config, &mut functions).map_err(Fault::Reject)?;
        let (bounds, pending) = (Bounds::default(), Pending::Nothing);
        Ok(Views { design, functions: RefCell::new(functions), bounds, pending })
    }

    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        self.functions.get_mut().set_now(events.now_us());
        index::apply(&self.design, &self.functions, events, state)
    }

    fn rollback(
        &mut self,
        vb: u16,
        _seqno: u64,
        state: &mut dyn StateMut,
    ) -> Result<Option<u64>, Fault> {
        // Rows do not say which seqno they came from, so the vBucket starts over.
        let done = index::remove_part_of_vbucket(&self.design, &self.functions, vb, state)?;
        Ok(done.then_some(0))
    }

    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        self.functions.get_mut().set_now(request.now_us);
        let answered = answer(&self.design, &self.functions, request, state, &self.bounds)?;
        self.pending = match answered {
            Answered::Whole(response) => return Ok(response),
            Answered::Listing(listing) => Pending::Listing(listing),
        };
        let Chunk { body, cursor } = self.piece(state)?;
        Ok(Response { cursor, ..Response::json(200, body) })
    }

    fn more(&mut self, _cursor: &[u8], state: &dyn State) -> Result<Chunk, Fault> {
        self.piece(state)
    }

    fn merge(&mut self, request: &Request, partials: Vec<Response>) -> Result<Response, Fault> {
        if partials.is_empty() {
            return Err(Fault::Reject("there are no answers to merge".into()));
        }
        if let Some(refusal) = partials.iter().find(|partial| partial.status != 200) {
            return Ok(refusal.clone());
        }
        self.functions.get_mut().set_now(request.now_us);
        let asked = match asked(&self.design, request) {
            Ok(asked) => asked,
            Err(response) => return Ok(response),
        };
        let (rest, view) = (Rest::of(request)?, &self.design.views[asked.view]);
        let merged = merge::merge(&asked, rest, view, &self.functions, &partials, &self.bounds)?;
        let Merged { pieces, rest } = merged;
        let Chunk { body, cursor } = self.first_of(pieces);
        let mut response = Response { cursor, ..Response::json(200, body) };
        let rest = rest.map(|rest| (header::REST.to_owned(), rest.to_text()));
        response.headers.extend(rest);
        Ok(response)
    }
}

impl Views {
    /// The same with other bounds, as tests want them.
    pub fn bounded(self, bounds: Bounds) -> Views {
        Views { bounds, ..self }
    }

    fn piece(&mut self, state: &dyn State) -> Result<Chunk, Fault> {
        let mut listing = match std::mem::take(&mut self.pending) {
            Pending::Listing(listing) => listing,
            Pending::Pieces(pieces) => return Ok(self.first_of(pieces)),
            Pending::Nothing => {
                return Err(Fault::Reject("there is no answer to go on with".into()));
            }
        };
        let (views, piece_bytes) = (&self.design.views, self.bounds.piece_bytes);
        let (body, is_last) = listing.piece(views, &self.functions, state, piece_bytes)?;
        if !is_last {
            self.pending = Pending::Listing(listing);
        }
        Ok(chunk(body, is_last))
    }

    /// The first of some pieces; the others wait.
    fn first_of(&mut self, mut pieces: VecDeque<String>) -> Chunk {
        let body = pieces.pop_front().unwrap_or_default();
        let is_last = pieces.is_empty();
        self.pending = if is_last { Pending::Nothing } else { Pending::Pieces(pieces) };
        chunk(body, is_last)
    }
}

fn chunk(body: String, is_last: bool) -> Chunk {
    Chunk { body: body.into(), cursor: (!is_last).then(|| MORE.to_vec()) }
}

nacre_plugin::export!(Views);
