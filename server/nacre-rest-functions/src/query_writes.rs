//! The keyspaces that the SQL++ statements in a function's code change. The keyspaces of a statement that the code builds at
//! run time are not known in advance.

use nacre_cluster::{FunctionDefinition, FunctionId, FunctionKeyspace};
use nacre_sql::ast::{Path, Source, Statement};
use nacre_sql::inline::statements;

/// Returns the keyspaces, each once.
pub(super) fn of(id: &FunctionId, definition: &FunctionDefinition) -> Vec<FunctionKeyspace> {
    let FunctionDefinition { code, modules, headers, footers, .. } = definition;
    let texts = modules.values().chain([code]).chain(headers).chain(footers);
    let mut found: Vec<FunctionKeyspace> = Vec::new();
    for statement in texts.flat_map(|text| statements(text)) {
        if let Some(keyspace) = changed(&statement).and_then(|path| keyspace(path, id))
            && !found.contains(&keyspace)
        {
            found.push(keyspace);
        }
    }
    found
}

/// Returns the path of the keyspace that a statement changes.
fn changed(statement: &Statement) -> Option<&Path> {
    match statement {
        Statement::Insert(insert) => Some(&insert.keyspace),
        Statement::Update(update) => of_source(&update.target.source),
        Statement::Delete(delete) => of_source(&delete.target.source),
        Statement::Merge(merge) => of_source(&merge.target.source),
        _ => None,
    }
}

fn of_source(source: &Source) -> Option<&Path> {
    match source {
        Source::Keyspace(path) => Some(path),
        Source::Expr(_) => None,
    }
}

fn keyspace(path: &Path, id: &FunctionId) -> Option<FunctionKeyspace> {
    if path.is_system() || path.parameter().is_some() {
        return None;
    }
    let keyspace = |bucket: &str, scope: &str, collection: &str| FunctionKeyspace {
        bucket: bucket.to_owned(),
        scope: scope.to_owned(),
        collection: collection.to_owned(),
    };
    match (&path.parts[..], &id.scope) {
        ([collection], Some((bucket, scope))) if path.namespace.is_none() => {
            Some(keyspace(bucket, scope, collection))
        }
        ([bucket], _) => Some(keyspace(bucket, "_default", "_default")),
        ([bucket, scope, collection], _) => Some(keyspace(bucket, scope, collection)),
        _ => None,
    }
}
