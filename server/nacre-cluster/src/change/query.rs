//! Changes of user-defined functions, libraries or sequences of the query language.

use crate::query_function::check_scope;
use crate::{Cluster, FunctionId, QueryFunction, Refusal, Script, Sequence};
use serde::{Deserialize, Serialize};

/// A change of a user-defined function, library or sequence of the query language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryChange {
    /// Creates or replaces a function.
    PutQueryFunction {
        /// The function.
        id: FunctionId,
        /// The statement that creates it.
        text: String,
        /// The script to run, for a function in JavaScript.
        #[serde(default)]
        script: Option<Script>,
        /// True if an existing function may be replaced.
        replace: bool,
    },
    /// Drops a function.
    DropQueryFunction {
        /// The function.
        id: FunctionId,
    },
    /// Creates or replaces a sequence.
    PutSequence {
        /// The sequence.
        id: FunctionId,
        /// Definition of the sequence.
        sequence: Sequence,
        /// True if the sequence must exist; false if it must not.
        replace: bool,
    },
    /// Drops a sequence.
    DropSequence {
        /// The sequence.
        id: FunctionId,
    },
    /// Allocates the next block of values of a sequence.
    AdvanceSequence {
        /// The sequence.
        id: FunctionId,
        /// The epoch seen by the proposer.
        epoch: u64,
        /// The first value of the block, as seen by the proposer.
        from: i64,
    },
    /// Creates or replaces a JavaScript library.
    PutQueryLibrary {
        /// The library.
        id: FunctionId,
        /// The code.
        code: String,
    },
    /// Drops a JavaScript library.
    DropQueryLibrary {
        /// The library.
        id: FunctionId,
    },
}

impl QueryChange {
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<(), Refusal> {
        match self {
            QueryChange::PutQueryFunction { id, text, script, replace } => {
                let function = QueryFunction { text: text.clone(), script: script.clone() };
                check_scope(cluster, id)?;
                cluster.query_functions.put(id, &function, *replace)?
            }
            QueryChange::PutSequence { id, sequence, replace } => {
                check_scope(cluster, id)?;
                cluster.sequences.put(id, sequence, *replace, cluster.rev)?
            }
            QueryChange::DropSequence { id } => cluster.sequences.drop_sequence(id)?,
            QueryChange::AdvanceSequence { id, epoch, from } => {
                cluster.sequences.advance(id, *epoch, *from)?
            }
            QueryChange::PutQueryLibrary { id, code } => {
                check_scope(cluster, id)?;
                cluster.query_libraries.put(id, code)?
            }
            QueryChange::DropQueryLibrary { id } => cluster.query_libraries.drop_library(id)?,
            QueryChange::DropQueryFunction { id } => cluster.query_functions.drop_function(id)?,
        }
        Ok(())
    }
}
