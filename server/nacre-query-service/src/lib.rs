//! The query service: a stateless component, and the database that it sees with the rights of the request's user.
//!
//! ```text
//! request ─► Queries (an instance of the component) ─► Session: documents, indexes, definitions, catalogs
//! ```

mod administer;
mod answer;
mod buckets;
mod catalog;
mod committed;
mod curl;
mod deployed;
mod documents;
mod eventing_queries;
mod footprint;
mod functions;
mod index_merge;
mod indexed;
mod message;
mod notes;
mod noting;
mod part;
mod partitions;
mod refresh;
mod remote_services;
mod request_data;
mod requester;
mod row;
mod scripts;
mod session;
mod settings;
mod slow;
mod statistics;
mod transaction;
mod txn_session;
mod udf_queries;
mod unbuilt;
mod vector_indexes;
mod vitals;

use nacre_cluster::FunctionId;
use nacre_node::Node;
use nacre_plugins_service::{NodePlugins, QUERY, consistency, failure};
use nacre_sandbox::{Failure, Grants, Http, Limits, Reader, Request, Setup};
use notes::Notes;
use parking_lot::{Mutex, RwLock};
use refresh::Refreshes;
use request_data::RequestCache;
use scripts::Evaluator;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use transaction::Transactions;
use vitals::Counted;

pub use answer::Answer;
pub use catalog::state_of;
pub use documents::ListedDocuments;
pub use refresh::refresh_statistics;
pub use session::{DisconnectCheck, Session};
pub use settings::QuerySettings;
pub use transaction::finish_lost_transactions;
use transaction::{Step, StepReply, answer_step};
pub use unbuilt::unbuilt;
pub use vitals::Vitals;

/// Maximum time of a request whose client keeps waiting: practically unlimited, as in Couchbase. A request or the
/// service's setting `timeout` may set less.
const REQUEST_TIME_MAX: Duration = Duration::from_hours(24 * 365);

/// Returns the limits of a request. Its own timeout and memory quota may be lower.
fn limits() -> Limits {
    Limits { memory_bytes: 512 << 20, deadline: REQUEST_TIME_MAX, ..Limits::default() }
}

/// The query service of a node.
#[derive(Default)]
pub struct Queries {
    reader: RwLock<Option<Reader>>,
    notes: Notes,
    request_data: RequestCache,
    transactions: Transactions,
    evaluator: Evaluator,
    vitals: Arc<Vitals>,
    /// Values of sequences that this node has reserved.
    sequences: Mutex<administer::ReservedSequences>,
    /// Refreshes of statistics by this node.
    refreshes: Refreshes,
    /// The HTTP client of CURL calls.
    http: OnceLock<Arc<dyn Http>>,
}

/// Access to the query service of a node.
pub trait NodeQueries {
    /// Returns the query service.
    fn queries(&self) -> &Queries;
}

impl NodeQueries for Node {
    fn queries(&self) -> &Queries {
        self.service().expect("a node has the query service")
    }
}

impl Queries {
    /// Answers a request of `user`, or begins to. Blocks while the query runs: do not call it on a thread for which
    /// others wait. The request ends soon after `gone` reports that the client has disconnected.
    ///
    /// # Errors
    /// The reason why the service cannot run. A failed query is reported in the answer.
    pub fn handle(
        &self,
        node: &Arc<Node>,
        request: &Request,
        user: &str,
        gone: DisconnectCheck,
    ) -> Result<Answer, String> {
        self.answer(node, request, Session::new(node, user, gone))
    }

    fn answer(
        &self,
        node: &Arc<Node>,
        request: &Request,
        session: Session,
    ) -> Result<Answer, String> {
        let reader = self.reader(node)?;
        self.transactions.prune(node.now());
        let counted = Counted::new(node, &self.vitals);
        let session = Arc::new(session);
        let asked = Arc::clone(&session);
        let account = session.requester.account();
        let answer = match reader.handle_with(request, node.now(), asked, Some(account)) {
            Ok(given) => {
                session.times.mark_answered(node);
                Answer::given(given, counted)
            }
            Err(error) => Answer::failed(&error, session.description().as_ref(), counted),
        };
        Ok(answer)
    }

    /// Drops the data of the request that asked under that number.
    pub(crate) fn forget(&self, asker: u64) {
        self.request_data.forget(asker);
    }

    /// Returns the note under a key.
    pub(crate) fn noted(&self, key: &str) -> Option<Vec<u8>> {
        self.notes.get(key).map(|note| note.value)
    }

    /// Removes a note.
    pub(crate) fn forget_note(&self, key: &str) {
        self.notes.remove(key);
    }

    /// Checks the code of a library of functions.
    ///
    /// # Errors
    /// The error in the code, for its author, or the reason why it cannot be checked.
    pub fn check_library(&self, node: &Node, id: &FunctionId, text: &str) -> Result<(), Failure> {
        self.evaluator.check(node, &scripts::file_of(id), text, None)
    }

    /// Returns the counts of requests.
    pub fn vitals(&self) -> &Vitals {
        &self.vitals
    }

    fn reader(&self, node: &Arc<Node>) -> Result<Reader, String> {
        if let Some(reader) = &*self.reader.read() {
            return Ok(reader.clone());
        }
        let mut slot = self.reader.write();
        if let Some(reader) = &*slot {
            return Ok(reader.clone());
        }
        let plugin = node.plugins().components().load_shipped(node, &QUERY)?;
        let setup = Setup {
            limits: limits(),
            grants: Grants { database: true, ..Grants::own() },
            budgets: node.memory().budgets().clone(),
            ..Setup::new("query", "{}")
        };
        let reader = Reader::stateless(plugin, setup).map_err(|error| error.to_string())?;
        *slot = Some(reader.clone());
        Ok(reader)
    }
}
