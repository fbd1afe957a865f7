//! The environment of the planner: keyspaces, indexes, statistics and parameters.

use nacre_cost::Table;
use nacre_datastore::Keyspace;
use nacre_sql::ast::Path;
use nacre_sql::index::Definition;
use nacre_sql::{Name, Result, Value};
use std::rc::Rc;

/// Keyspaces with their indexes and statistics, and the parameters of the request.
pub trait PlanContext {
    /// Returns the keyspace that a path names, which may be a parameter.
    ///
    /// # Errors
    /// If there is no such keyspace.
    fn keyspace(&self, path: &Path) -> Result<Keyspace>;

    /// Returns the indexes of a keyspace that have all documents, with their IDs.
    ///
    /// # Errors
    /// If the store fails, or a definition cannot be parsed.
    fn indexes(&self, keyspace: &Keyspace) -> Result<Vec<(u64, Rc<Definition>)>>;

    /// Returns the statistics of a keyspace; `None` if there are none, or the request asks for no costs.
    fn statistics(&self, keyspace: &Keyspace) -> Option<Rc<Table>>;

    /// Returns the full name of the index that answers a search over a keyspace, or over one of its fields, if there is one.
    ///
    /// # Errors
    /// If the store fails.
    fn search_index(
        &self,
        keyspace: &Keyspace,
        field: Option<String>,
        options: Value,
    ) -> Result<Option<Name>>;

    /// Returns true if the request allows search indexes for all statements, without a hint.
    fn uses_search(&self) -> bool;

    /// Returns the full name of an index that helps to answer a predicate, and the query for it: one of `names`, if there are any. A plan
    /// for which it was called holds for this request alone.
    fn flexible_index(
        &self,
        keyspace: &Keyspace,
        predicate: Value,
        names: &[Name],
    ) -> Option<(Name, Value)>;

    /// Returns the value of the parameter `$position`, from 1 on. A plan for which it was called holds for this request alone.
    fn positional(&self, position: usize) -> Option<Value>;

    /// Returns the value of the parameter `$name`. A plan for which it was called holds for this request alone.
    fn named(&self, name: &Name) -> Option<Value>;
}
