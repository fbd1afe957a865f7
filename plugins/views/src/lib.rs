//! Map/reduce views: indexes written in JavaScript, which the change stream keeps up to date.
//!
//! A deployment is one design document. Each of its views maps every document to rows (`emit(key, value)`). A B-tree
//! stores the rows in the order of their keys. If the view has a reduce function, the inner nodes of the tree contain
//! reductions, so that a range can be reduced without reading all of it.
//!
//! ```text
//! change of a document ─► the document's old rows (back index) are removed
//!                       ─► map of each view ─► rows are inserted, and noted in the back index
//! |
//! state   d <vb> <id>                 the document's rows: view number and tree key of each
//!         v <view> …                  the B-tree of the view
//! tree    key   collated(key) ‖ id ‖ number of the emit
//!         value vBucket ‖ length of key ‖ key as JSON ‖ value as JSON
//! ```
//!
//! Configuration: `{"name": "d", "views": {"v": {"map": "function (doc, meta) {…}", "reduce": "_count"}}}`; other members are ignored.
//! `reduce` is absent, `_count`, `_sum`, `_stats`, or a function. `"checked": true` means that the same configuration was accepted
//! before. The plugin then compiles the functions only when one of them is needed; many design documents never need the engine
//! (`plain`).
//!
//! Requests: `GET /` describes the views, and `GET` or `POST /{view}` queries one, with the parameters of Couchbase's view queries.
//! `stale` has no effect here: the caller has already waited for the feed.
//!
//! If the vBuckets of a bucket are on several nodes, each node has a partition with its share of the rows. The host then
//! asks each partition for its part, and one partition for the answer (`header` defines the names):
//!
//! ```text
//! handle   GET /v, nacre-part: node, nacre-rest of the last round  ─► part      on every node
//! merge    GET /v, nacre-rest of the last round, all parts         ─► text, and nacre-rest if the answer is not complete
//! ```
//!
//! More rounds follow until there is no `nacre-rest`. The concatenated texts of all rounds are the answer.
//!
//! Invariants: a document whose map fails in a view has no rows in that view, and keeps its rows in the others; the
//! trees contain exactly the rows that the back index notes.

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

use answer::{Answer, answer, asked};
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

/// The views plugin. An instance serves one design document.
pub struct Views {
    design: Design,
    // Reductions happen while a tree is read or written, which only borrows the reducer.
    functions: RefCell<Functions>,
    bounds: Bounds,
    /// The answer that is being sent piece by piece.
    pending: Pending,
}

/// The rest of an answer.
#[derive(Default)]
enum Pending {
    #[default]
    Nothing,
    Listing(Box<Listing>),
    Pieces(VecDeque<String>),
}

/// Limits of the amount of data in one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A piece of an answer ends with the row that reaches this size.
    pub piece_bytes: usize,
    /// A part of an answer ends with the item that reaches this size. A merge has all parts in memory.
    pub part_bytes: usize,
    /// A round of merging ends with the row with which its text reaches this size.
    pub round_bytes: usize,
    /// Maximum number of groups in a part, and of groups that a round re-reduces. Each may be a call of a function, and
    /// all of these happen in one call of the plugin, which has a deadline.
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

/// The cursor has no content: it returns to the instance that has the answer.
const MORE: &[u8] = b"more";

/// The limits of user code, which `describe` reports.
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
        let mut limits = LIMITS.by_name();
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
        // Rows do not contain their seqnos, so the vBucket restarts.
        let done = index::remove_part_of_vbucket(&self.design, &self.functions, vb, state)?;
        Ok(done.then_some(0))
    }

    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        self.functions.get_mut().set_now(request.now_us);
        let answered = answer(&self.design, &self.functions, request, state, &self.bounds)?;
        self.pending = match answered {
            Answer::Whole(response) => return Ok(response),
            Answer::Listing(listing) => Pending::Listing(listing),
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
    /// Returns the plugin with other limits, for tests.
    pub fn bounded(self, bounds: Bounds) -> Views {
        Views { bounds, ..self }
    }

    fn piece(&mut self, state: &dyn State) -> Result<Chunk, Fault> {
        let mut listing = match std::mem::take(&mut self.pending) {
            Pending::Listing(listing) => listing,
            Pending::Pieces(pieces) => return Ok(self.first_of(pieces)),
            Pending::Nothing => {
                return Err(Fault::Reject("there is no answer to continue".into()));
            }
        };
        let (views, piece_bytes) = (&self.design.views, self.bounds.piece_bytes);
        let (body, is_last) = listing.piece(views, &self.functions, state, piece_bytes)?;
        if !is_last {
            self.pending = Pending::Listing(listing);
        }
        Ok(chunk(body, is_last))
    }

    /// Returns the first of the pieces; the others wait.
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
