//! The user of a request. The user's rights are looked up for each check.

use super::failure::{code, failure, refused};
use super::session::place;
use nacre_auth::{Keyspace, Login, Privilege};
use nacre_cluster::Change;
use nacre_node::{Error, Node};
use nacre_sandbox::{Account, Action, DatabaseKeyspace, Failure};
use std::sync::Arc;

/// The SQL++ privileges on documents, in the order of [`DatabaseRights`](nacre_sandbox::DatabaseRights).
pub(super) const QUERY: [Privilege; 4] =
    [Privilege::Query, Privilege::QueryInsert, Privilege::QueryUpdate, Privilege::QueryDelete];

/// The user of a request on a node.
#[derive(Clone)]
pub(super) struct Requester {
    pub node: Arc<Node>,
    pub user: String,
    /// The login of the user when the request began, for changes of users.
    pub login: Option<Login>,
    /// The version of the statistics that the request may replace, if it refreshes them; `None` for any version.
    pub replaced_statistics: Option<String>,
}

impl Requester {
    /// Creates the requester for a user with the present login.
    pub fn new(node: &Arc<Node>, user: &str) -> Requester {
        let login = node.users().login_again(user);
        Requester {
            node: Arc::clone(node),
            user: user.to_owned(),
            login,
            replaced_statistics: None,
        }
    }

    /// Returns the account for the memory of the user's requests.
    pub fn account(&self) -> Arc<Account> {
        self.node.memory().budgets().of_user(nacre_auth::person(&self.user))
    }

    /// Returns true if the user has the privilege in a keyspace.
    pub fn may(&self, privilege: Privilege, keyspace: &DatabaseKeyspace) -> bool {
        self.may_in(privilege, place(keyspace))
    }

    /// Returns true if the user has the privilege in all of a bucket, a scope or a collection.
    pub fn may_in(&self, privilege: Privilege, keyspace: Keyspace<'_>) -> bool {
        self.node.users().get(&self.user).is_some_and(|user| user.may(privilege, keyspace))
    }

    /// Returns true if the user has an SQL++ privilege on the documents of a keyspace.
    pub fn may_query(&self, keyspace: Keyspace<'_>) -> bool {
        QUERY.iter().any(|privilege| self.may_in(*privilege, keyspace))
    }

    /// Returns true if the user may see and change the requests and prepared statements of others.
    pub fn manages_requests(&self) -> bool {
        self.may_in(Privilege::ManageRequests, Keyspace::default())
    }

    /// Checks that the user has the privilege in a collection.
    pub fn require(
        &self,
        privilege: Privilege,
        keyspace: &DatabaseKeyspace,
    ) -> Result<(), Failure> {
        if self.may(privilege, keyspace) {
            return Ok(());
        }
        let DatabaseKeyspace { bucket, scope, collection } = keyspace;
        let path = format!("{bucket}.{scope}.{collection}");
        let of_query = match privilege {
            Privilege::Query => Some(("SELECT", "query_select")),
            Privilege::QueryInsert => Some(("INSERT", "query_insert")),
            Privilege::QueryUpdate => Some(("UPDATE", "query_update")),
            Privilege::QueryDelete => Some(("DELETE", "query_delete")),
            _ => None,
        };
        let message = match of_query {
            // The text is Couchbase's.
            Some((verb, role)) => format!(
                "User does not have credentials to run {verb} queries on {path}. Add role {role} on {path} to allow the statement to run."
            ),
            None => format!(
                "User does not have credentials to run this statement on {path} ({privilege:?})"
            ),
        };
        Err(failure(code::FORBIDDEN, message))
    }

    /// Checks that the user may apply `action` to documents of a collection.
    pub fn require_changing(
        &self,
        action: Action,
        keyspace: &DatabaseKeyspace,
    ) -> Result<(), Failure> {
        let privileges: &[Privilege] = match action {
            Action::Insert => &[Privilege::QueryInsert],
            Action::Upsert => &[Privilege::QueryInsert, Privilege::QueryUpdate],
            Action::Replace => &[Privilege::QueryUpdate],
            Action::Remove => &[Privilege::QueryDelete],
        };
        privileges.iter().try_for_each(|privilege| self.require(*privilege, keyspace))
    }

    /// Checks that the user has the privilege in the whole cluster.
    pub fn require_whole(&self, privilege: Privilege) -> Result<(), Failure> {
        self.require_in(privilege, Keyspace::default())
    }

    /// Checks that the user has the privilege in a scope.
    pub fn require_scope(
        &self,
        privilege: Privilege,
        bucket: &str,
        scope: &str,
    ) -> Result<(), Failure> {
        let keyspace = Keyspace { bucket: Some(bucket), scope: Some(scope), ..Keyspace::default() };
        self.require_in(privilege, keyspace)
    }

    /// Checks that the user has the privilege in all of a bucket, a scope or a collection.
    pub fn require_in(&self, privilege: Privilege, keyspace: Keyspace<'_>) -> Result<(), Failure> {
        match self.may_in(privilege, keyspace) {
            true => Ok(()),
            false => Err(lacks(privilege)),
        }
    }

    /// Changes the agreed state. The caller has checked the rights.
    pub fn change(&self, change: &Change) -> Result<(), Failure> {
        self.node.change(change).map(drop).map_err(|error| match error {
            Error::Refused(refusal) => refused(&refusal),
            other => failure(code::INTERNAL, other.to_string()),
        })
    }
}

/// Returns the failure of a statement whose user lacks a privilege.
pub(super) fn lacks(privilege: Privilege) -> Failure {
    let message = format!("User does not have credentials to run this statement ({privilege:?})");
    failure(code::FORBIDDEN, message)
}
