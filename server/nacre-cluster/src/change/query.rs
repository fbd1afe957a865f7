//! A change of functions, libraries or sequences of the query language.

use crate::query_function::check_scope;
use crate::{Cluster, FunctionId, QueryFunction, Refusal, Script, Sequence};
use serde::{Deserialize, Serialize};

/// A change of functions, libraries or sequences of the query language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryChange {
    /// A function of the query language, new or in the place of another.
    PutQueryFunction {
        /// The function.
        id: FunctionId,
        /// The statement that makes it.
        text: String,
        /// The script to run, for a function in JavaScript.
        #[serde(default)]
        script: Option<Script>,
        /// True if there may be one.
        replace: bool,
    },
    /// The end of a function of the query language.
    DropQueryFunction {
        /// The function.
        id: FunctionId,
    },
    /// A sequence of the query language, new or in the place of another.
    PutSequence {
        /// The sequence.
        id: FunctionId,
        /// Definition of the sequence.
        sequence: Sequence,
        /// True if the sequence must exist; false if it must not.
        replace: bool,
    },
    /// The end of a sequence.
    DropSequence {
        /// The sequence.
        id: FunctionId,
    },
    /// The next values of a sequence are taken.
    AdvanceSequence {
        /// The sequence.
        id: FunctionId,
        /// Epoch that the proposer has seen.
        epoch: u64,
        /// The first of the values, as it was seen.
        from: i64,
    },
    /// A library of functions in JavaScript, new or in the place of another.
    PutQueryLibrary {
        /// The library.
        id: FunctionId,
        /// The code.
        code: String,
    },
    /// The end of such a library.
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
