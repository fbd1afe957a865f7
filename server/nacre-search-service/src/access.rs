//! The index that a request names, and the privileges of its user on it.

use crate::definition::{self, Definition};
use crate::error::Failure;
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::Cluster;
use nacre_node::Node;
use nacre_node::service::HttpRequest;
use std::collections::BTreeSet;

/// Maximum depth of nested aliases.
const ALIAS_DEPTH_MAX: usize = 50;

/// The names in the path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Bucket and scope, if the path names them.
    pub scope: Option<(String, String)>,
    /// Name of the index as the path contains it; empty in the path of a list.
    pub short: String,
    /// The operation after the name, if the route leaves it open.
    pub operation: String,
}

impl Named {
    /// Reads the parameters of a route. The parameters of a scoped route begin with a bucket and a scope.
    pub fn read(request: &HttpRequest, is_scoped: bool) -> Named {
        let mut parameters = request.parameters.iter().cloned();
        let mut next = || parameters.next().unwrap_or_default();
        let scope = is_scoped.then(|| (next(), next()));
        Named { scope, short: next(), operation: next() }
    }

    /// Returns the name under which the index is stored: `bucket.scope.index`, or only the name of a global index.
    pub fn full(&self) -> String {
        match &self.scope {
            Some((bucket, scope)) => format!("{bucket}.{scope}.{}", self.short),
            None => self.short.clone(),
        }
    }
}

/// A part of the data that an index covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Bucket.
    pub bucket: String,
    /// Scope.
    pub scope: String,
    /// Collection.
    pub collection: String,
}

/// Returns the indexes that answer for `definition`: the index itself, or the targets of an alias and of its nested
/// aliases.
///
/// # Errors
/// A target does not exist, or aliases refer to each other.
pub(crate) fn targets(
    cluster: &Cluster,
    definition: &Definition,
) -> Result<Vec<Definition>, Failure> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    collect(cluster, definition, 0, &mut seen, &mut found)?;
    Ok(found)
}

fn collect(
    cluster: &Cluster,
    definition: &Definition,
    depth: usize,
    seen: &mut BTreeSet<String>,
    found: &mut Vec<Definition>,
) -> Result<(), Failure> {
    if !seen.insert(definition.name.clone()) {
        return Ok(());
    }
    if depth > ALIAS_DEPTH_MAX {
        return Err(Failure::bad_request("the alias has too many levels of aliases"));
    }
    let Some(names) = definition.alias_targets() else {
        found.push(definition.clone());
        return Ok(());
    };
    for name in names {
        let target = definition::get(cluster, &name).ok_or_else(|| {
            Failure::bad_request(format!(
                "the alias depends upon a target index that does not exist: {name}"
            ))
        })?;
        collect(cluster, &target, depth + 1, seen, found)?;
    }
    Ok(())
}

/// Returns the definition that a request names, if its user may read it.
///
/// # Errors
/// 403 without the privilege, 400 if the index does not exist.
pub(crate) fn readable(
    node: &Node,
    request: &HttpRequest,
    named: &Named,
) -> Result<Definition, Failure> {
    let known = definition::get(&node.cluster(), &named.full()).or_else(|| {
        // Another node may have just created the index.
        node.catch_up();
        definition::get(&node.cluster(), &named.full())
    });
    let Some(definition) = known else {
        let cluster = node.cluster();
        // Only users who may search somewhere learn which names are unused.
        let is_reader = match &named.scope {
            Some((bucket, scope)) => may_within(node, request, bucket, Some(scope)),
            None => cluster.buckets.keys().any(|bucket| may_within(node, request, bucket, None)),
        };
        return Err(
            match is_reader || may(node, request, Privilege::Search, Keyspace::default()) {
                true => Failure::no_index(&named.full()),
                false => Failure::forbidden("cluster.bucket[].fts!read"),
            },
        );
    };
    match may_read(node, request, &definition) {
        true => Ok(definition),
        false => Err(Failure::forbidden(&format!("cluster.{}.fts!read", definition.name))),
    }
}

/// Returns true if the user may search everything that an index covers.
pub(crate) fn may_read(node: &Node, request: &HttpRequest, definition: &Definition) -> bool {
    allowed(node, request, definition, Privilege::Search)
}

/// Refuses a user who may not change an index.
///
/// # Errors
/// 403.
pub(crate) fn require_write(
    node: &Node,
    request: &HttpRequest,
    definition: &Definition,
) -> Result<(), Failure> {
    match allowed(node, request, definition, Privilege::AdministerSearch) {
        true => Ok(()),
        false => Err(Failure::forbidden(&format!("cluster.{}.fts!write", definition.name))),
    }
}

fn allowed(
    node: &Node,
    request: &HttpRequest,
    definition: &Definition,
    privilege: Privilege,
) -> bool {
    let cluster = node.cluster();
    // An alias with a missing target requires the privilege on its whole scope, or on the cluster if it is global.
    let places: Vec<Place> = match targets(&cluster, definition) {
        Ok(targets) => targets.iter().flat_map(Definition::places).collect(),
        Err(_) => Vec::new(),
    };
    if places.is_empty() {
        let keyspace = match definition.scope() {
            Some((bucket, scope)) => {
                Keyspace { bucket: Some(bucket), scope: Some(scope), collection: None }
            }
            None => Keyspace::default(),
        };
        return may(node, request, privilege, keyspace);
    }
    places.iter().all(|Place { bucket, scope, collection }| {
        let (bucket, scope, collection) = (Some(&**bucket), Some(&**scope), Some(&**collection));
        may(node, request, privilege, Keyspace { bucket, scope, collection })
    })
}

fn may(node: &Node, request: &HttpRequest, privilege: Privilege, keyspace: Keyspace<'_>) -> bool {
    request.may(node, privilege, keyspace)
}

/// Returns true if the user may search something in a bucket, or in one of its scopes.
fn may_within(node: &Node, request: &HttpRequest, bucket: &str, scope: Option<&str>) -> bool {
    let users = node.users();
    let Some(user) = request.login.as_ref().and_then(|login| users.holder(login)) else {
        return false;
    };
    let keyspace = Keyspace { bucket: Some(bucket), scope, collection: None };
    user.may(Privilege::Search, keyspace) || user.may_within(Privilege::Search, bucket)
}

/// Refuses a user who may not create an index in the bucket and scope of the path.
///
/// # Errors
/// 403.
pub(crate) fn require_create(
    node: &Node,
    request: &HttpRequest,
    named: &Named,
) -> Result<(), Failure> {
    let may_anywhere = |bucket: &str| {
        let users = node.users();
        let holder = request.login.as_ref().and_then(|login| users.holder(login));
        holder.is_some_and(|user| user.may_within(Privilege::AdministerSearch, bucket))
    };
    let allowed = match &named.scope {
        Some((bucket, scope)) => {
            let keyspace = Keyspace { bucket: Some(bucket), scope: Some(scope), collection: None };
            may(node, request, Privilege::AdministerSearch, keyspace)
        }
        None => {
            may(node, request, Privilege::AdministerSearch, Keyspace::default())
                || node.cluster().buckets.keys().any(|bucket| may_anywhere(bucket))
        }
    };
    match allowed {
        true => Ok(()),
        false => Err(Failure::forbidden("cluster.bucket[].fts!write")),
    }
}
