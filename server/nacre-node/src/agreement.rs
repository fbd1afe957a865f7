//! Agreement of the nodes: proposals, decisions, and their application on this node.
//!
//! ```text
//! Node::change, put_user, … ─► Agreement::propose ─► (the other nodes) ─► Node::apply, on each node, in one order
//! ```
//!
//! [`Node::apply`] is the only place where the agreed state changes. It stores the state together with the position of
//! the decision, so each decision takes effect exactly once, even if the node stops in between. A node that was away
//! for too long receives the whole state instead ([`Node::install`]).

use crate::Error;
use crate::effects::{apply_state, take_effect};
use crate::journal;
use crate::node::{Identity, Node, row};
use crate::pending_effects::schedule_retry;
use nacre_auth::{Domain, Edit, Group, Keyspace, PasswordPolicy, Refused, User, UserChange, Users};
use nacre_cluster::orchestrator::Leadership;
use nacre_cluster::{
    BucketChange, Change, Cluster, FunctionChange, IndexChange, PluginChange, QueryChange,
    RecordChange, Refusal, Secret,
};
use nacre_store::Write;
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A proposal to the other nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Proposal {
    /// A change of the cluster.
    Change(Change),
    /// A change of users or groups.
    Users(UserChange),
    /// Replaces a user as a whole. Only for users that a node sets itself when it starts: concurrent decisions about
    /// the user are lost.
    PutUser(User),
    /// Removes a user. Occurs only in logs from before [`Proposal::Users`], like the next two.
    RemoveUser(String),
    /// Adds or replaces a group.
    PutGroup(Group),
    /// Removes a group.
    RemoveGroup(String),
    /// Sets the policy for new passwords.
    SetPasswordPolicy(PasswordPolicy),
}

/// Decides about proposals.
pub trait Agreement: Send + Sync {
    /// Waits until `proposal` is decided and applied at `node`. Returns the resulting state. A decision that a leader
    /// made in the `term` of [`Leadership::term`] is refused once there is a later term.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when no decision was reached in time: the proposal may still be decided later. Otherwise
    /// the errors of [`Node::apply`].
    fn propose(
        &self,
        node: &Arc<Node>,
        proposal: &Proposal,
        term: Option<u64>,
    ) -> Result<Arc<Cluster>, Error>;

    /// Waits until earlier decisions are applied at this node, whichever node proposed them. Waits only briefly if the
    /// other nodes cannot be asked. Without other nodes, returns at once.
    fn catch_up(&self) {}

    /// Returns this node's confirmed leadership, if it leads. `now_ns` is its monotonic clock.
    fn leadership(&self, now_ns: u64) -> Option<Leadership>;

    /// Returns the leader, according to this node's latest information.
    fn leader(&self) -> Option<NodeId> {
        None
    }
}

/// The agreement of a node that is alone in its cluster: it decides at once.
pub struct SingleNodeAgreement;

impl Agreement for SingleNodeAgreement {
    fn propose(
        &self,
        node: &Arc<Node>,
        proposal: &Proposal,
        _: Option<u64>,
    ) -> Result<Arc<Cluster>, Error> {
        node.apply(proposal, None)
    }

    fn leadership(&self, now_ns: u64) -> Option<Leadership> {
        Some(Leadership { term: 0, confirmed_ns: now_ns })
    }
}

/// The agreed state as a node stores it and sends it to other nodes.
#[derive(Serialize, Deserialize)]
struct Agreed {
    cluster: Cluster,
    users: Vec<User>,
    groups: Vec<Group>,
    password_policy: PasswordPolicy,
    #[serde(default)]
    user_generation: u64,
}

/// Largest size of the stored agreed state, in bytes, at which definitions are still accepted. Each change writes the
/// whole state, and each node keeps it in memory outside of every quota: without this limit, a user who may define
/// functions in one scope could take all memory.
const DEFINITIONS_BYTES_MAX: usize = 32 << 20;

/// Refuses a definition that makes the agreed state too large. Changes that keep the cluster running are always
/// accepted.
fn check_size(change: &Change, before: &Cluster, after: &Write) -> Result<(), Error> {
    let size = |write: &Write| write.1.as_ref().map_or(0, Vec::len);
    let is_large = size(after) > DEFINITIONS_BYTES_MAX && is_definition(change);
    if !is_large || size(after) <= size(&write(row::CLUSTER, before)) {
        return Ok(());
    }
    let mib = DEFINITIONS_BYTES_MAX >> 20;
    let reason = format!(
        "all definitions of the cluster (functions, views, indexes, plugins and others) have {mib} MiB at most: drop some first"
    );
    Err(Error::Refused(Refusal::Invalid { field: "_", reason }))
}

/// Returns true for definitions that contain text of users.
fn is_definition(change: &Change) -> bool {
    match change {
        Change::Buckets(change) => matches!(
            change,
            BucketChange::CreateScope { .. } | BucketChange::CreateCollection { .. }
        ),
        Change::Indexes(change) => matches!(
            change,
            IndexChange::PutDesignDocument { .. } | IndexChange::CreateIndex { .. }
        ),
        Change::Plugins(change) => {
            matches!(change, PluginChange::PutPackage { .. } | PluginChange::Deploy { .. })
        }
        Change::Functions(change) => matches!(change, FunctionChange::PutFunction { .. }),
        Change::Query(change) => matches!(
            change,
            QueryChange::PutQueryFunction { .. }
                | QueryChange::PutSequence { .. }
                | QueryChange::PutQueryLibrary { .. }
        ),
        Change::Records(change) => matches!(change, RecordChange::PutServiceRecord { .. }),
        Change::Cluster(_) | Change::Nodes(_) => false,
    }
}

/// Returns the write that stores `value` as JSON in a row.
pub(crate) fn write(row: &[u8], value: &impl Serialize) -> Write {
    let stored = serde_json::to_vec(value).expect("the agreed state is plain data with text keys");
    (row.to_vec(), Some(stored))
}

impl Node {
    /// Sets the agreement that decides from now on.
    pub fn agree_by(&self, agreement: Arc<dyn Agreement>) {
        *self.agreement.write() = agreement;
    }

    fn propose(self: &Arc<Node>, proposal: &Proposal) -> Result<Arc<Cluster>, Error> {
        let agreement = Arc::clone(&self.agreement.read());
        agreement.propose(self, proposal, None)
    }

    /// Returns this node's confirmed leadership, if it leads.
    pub(crate) fn leadership(&self) -> Option<Leadership> {
        let agreement = Arc::clone(&self.agreement.read());
        agreement.leadership(self.now().monotonic_ns)
    }

    /// Returns the leader, according to this node's latest information.
    pub fn leader(&self) -> Option<NodeId> {
        let agreement = Arc::clone(&self.agreement.read());
        agreement.leader()
    }

    /// Waits until this node has applied earlier decisions, whichever node proposed them. Waits only briefly if the
    /// other nodes cannot be asked. Blocks: do not call it on a thread that others wait for.
    pub fn catch_up(&self) {
        let agreement = Arc::clone(&self.agreement.read());
        agreement.catch_up();
    }

    /// Changes the cluster and carries out the effects of the change. Returns the resulting state. Blocks: do not call
    /// it on a thread that others wait for.
    ///
    /// # Errors
    /// [`Error::Refused`] with nothing changed, [`Error::Unavailable`] when the nodes cannot agree, or the error of the
    /// disk.
    pub fn change(self: &Arc<Node>, change: &Change) -> Result<Arc<Cluster>, Error> {
        self.propose(&Proposal::Change(change.clone()))
    }

    /// Proposes a change that this node has decided on as the leader in `term`. The change is refused if the node no
    /// longer leads.
    pub(crate) fn change_as_leader(
        self: &Arc<Node>,
        term: u64,
        change: &Change,
    ) -> Result<Arc<Cluster>, Error> {
        let agreement = Arc::clone(&self.agreement.read());
        agreement.propose(self, &Proposal::Change(change.clone()), Some(term))
    }

    /// Changes users or groups.
    ///
    /// # Errors
    /// [`Error::Users`] with nothing changed; otherwise as for [`Node::change`].
    pub fn change_users(self: &Arc<Node>, change: UserChange) -> Result<(), Error> {
        self.propose(&Proposal::Users(change)).map(drop)
    }

    fn edit_users(self: &Arc<Node>, edit: Edit) -> Result<(), Error> {
        self.change_users(UserChange { by: None, edit })
    }

    /// Adds or replaces a user as a whole, on behalf of the node itself.
    ///
    /// # Errors
    /// The errors of [`Node::change`].
    pub fn put_user(self: &Arc<Node>, user: User) -> Result<(), Error> {
        self.propose(&Proposal::PutUser(user)).map(drop)
    }

    /// Removes a user of the local domain, on behalf of the node itself. Returns true if the user existed.
    ///
    /// # Errors
    /// The errors of [`Node::change`].
    pub fn remove_user(self: &Arc<Node>, name: &str) -> Result<bool, Error> {
        match self.edit_users(Edit::RemoveUser { domain: Domain::Local, name: name.to_owned() }) {
            Err(Error::Users(Refused::UserNotFound(_))) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Adds or replaces a group, on behalf of the node itself.
    ///
    /// # Errors
    /// The errors of [`Node::change`].
    pub fn put_group(self: &Arc<Node>, group: Group) -> Result<(), Error> {
        self.edit_users(Edit::PutGroup(group))
    }

    /// Removes a group, also from its users, on behalf of the node itself. Returns true if the group existed.
    ///
    /// # Errors
    /// The errors of [`Node::change`].
    pub fn remove_group(self: &Arc<Node>, name: &str) -> Result<bool, Error> {
        match self.edit_users(Edit::RemoveGroup(name.to_owned())) {
            Err(Error::Users(Refused::GroupNotFound(_))) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Sets the policy for new passwords. Existing passwords stay valid.
    ///
    /// # Errors
    /// The errors of [`Node::change`].
    pub fn set_password_policy(self: &Arc<Node>, policy: PasswordPolicy) -> Result<(), Error> {
        self.propose(&Proposal::SetPasswordPolicy(policy)).map(drop)
    }

    /// Applies a decision: stores the resulting state with `position`, publishes it, and carries out its effects.
    /// Returns the resulting state. Only an [`Agreement`] calls this, in the same order on each node.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::Users`] with nothing changed, the same on each node; [`Error::Effect`] when the
    /// state has changed, but this node could not carry out the effect; or the error of the disk, with nothing changed.
    pub fn apply(
        self: &Arc<Node>,
        proposal: &Proposal,
        position: Option<&[u8]>,
    ) -> Result<Arc<Cluster>, Error> {
        let _changing = self.changing.lock();
        let before = self.cluster();
        let applied = match proposal {
            Proposal::Change(change) => self.apply_change(change, position),
            Proposal::SetPasswordPolicy(policy) => self.apply_policy(policy, position),
            _ => self.apply_to_users(proposal, position),
        };
        if let (Err(error), Some(_)) = (&applied, position)
            && error.is_refusal()
        {
            self.store(Vec::new(), position, false)?;
        }
        if let Ok(after) = &applied {
            let events = [journal::event_of(proposal, &before), journal::failure(&before, after)];
            for (kind, attributes) in events.into_iter().flatten() {
                self.log_event(kind, attributes);
            }
        }
        applied
    }

    fn apply_change(
        self: &Arc<Node>,
        change: &Change,
        position: Option<&[u8]>,
    ) -> Result<Arc<Cluster>, Error> {
        let before = self.cluster();
        let mut after = (*before).clone();
        after.apply(change).map_err(Error::Refused)?;
        let after = Arc::new(after);
        let mut writes = vec![write(row::CLUSTER, &*after)];
        check_size(change, &before, &writes[0])?;
        let users = dropped(change).and_then(|keyspace| {
            let mut users = self.users().clone();
            users.forget(keyspace).then_some(users)
        });
        writes.extend(users.iter().flat_map(rows_of));
        self.store(writes, position, true)?;
        if let Some(users) = users {
            self.set_users(users);
        }
        self.publish(&after, || take_effect(self, change, &before, &after))?;
        Ok(after)
    }

    fn apply_policy(
        &self,
        policy: &PasswordPolicy,
        position: Option<&[u8]>,
    ) -> Result<Arc<Cluster>, Error> {
        self.store(vec![write(row::PASSWORD_POLICY, policy)], position, true)?;
        *self.password_policy.write() = policy.clone();
        Ok(self.cluster())
    }

    /// Stores the new users, and then publishes them. Logins continue during the write. A role on a keyspace that was
    /// dropped meanwhile is dropped too, as if it had been granted before.
    fn apply_to_users(
        &self,
        proposal: &Proposal,
        position: Option<&[u8]>,
    ) -> Result<Arc<Cluster>, Error> {
        let mut users = self.users().clone();
        let cluster = self.cluster();
        let had_administrator = users.have_administrator();
        let mut apply =
            |change: &UserChange| users.apply(change, |at| keyspace_exists(&cluster, at));
        let mut edit = |edit| apply(&UserChange { by: None, edit });
        match proposal {
            Proposal::Users(change) => apply(change)?,
            Proposal::PutUser(user) => {
                check_name(&user.name)?;
                let mut user = user.clone();
                user.roles.retain(|role| keyspace_exists(&cluster, role.keyspace()));
                users.put(user);
            }
            Proposal::RemoveUser(name) => {
                edit(Edit::RemoveUser { domain: Domain::Local, name: name.clone() })?;
            }
            Proposal::PutGroup(group) => edit(Edit::PutGroup(group.clone()))?,
            Proposal::RemoveGroup(name) => edit(Edit::RemoveGroup(name.clone()))?,
            Proposal::Change(_) | Proposal::SetPasswordPolicy(_) => {}
        }
        if had_administrator && !users.have_administrator() {
            return Err(Error::Refused(Refusal::LastAdministrator));
        }
        self.store(rows_of(&users).into(), position, true)?;
        self.set_users(users);
        Ok(cluster)
    }

    /// Ends the logins of expired tokens, so that longer requests lose their rights.
    pub fn expire_tokens(&self) {
        let now_s = u64::from(self.now().unix_s());
        if self.users().next_token_end().is_none_or(|end_s| end_s > now_s) {
            return;
        }
        let _changing = self.changing.lock();
        let mut users = self.users().clone();
        if users.expire_tokens(now_s) {
            self.set_users(users);
        }
    }

    fn set_users(&self, users: Users) {
        *self.users.write() = users;
        self.users_version.fetch_add(1, Ordering::AcqRel);
        self.users_changed.notify_waiters();
        self.services().iter().for_each(|service| service.users_changed());
    }

    /// Stores `writes` and the position of the last decision atomically.
    fn store(
        &self,
        mut writes: Vec<Write>,
        position: Option<&[u8]>,
        durable: bool,
    ) -> Result<(), Error> {
        if let Some(position) = position {
            writes.push((row::POSITION.to_vec(), Some(position.to_vec())));
        }
        Ok(self.settings.apply(&writes, durable)?)
    }

    /// Publishes a new state of the cluster, carries out its effects, and wakes the watchers of the map.
    fn publish(
        self: &Arc<Node>,
        after: &Arc<Cluster>,
        take_effect: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        *self.cluster.write() = Arc::clone(after);
        let effect = take_effect();
        self.map_learned_ns.store(self.now().monotonic_ns, Ordering::Relaxed);
        self.map_rev.store(after.rev, Ordering::Release);
        self.unfence();
        self.follow();
        self.map_changed.notify_waiters();
        self.map_watchers.wake();
        if let Some(orchestration) = self.orchestration.get() {
            orchestration.on_agreed_change(self);
        }
        effect.map_err(|error| {
            schedule_retry(self);
            Error::Effect(Box::new(error))
        })
    }

    /// Returns the position of the stored state in the order of decisions; `None` before the first decision.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn position(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.settings.get(row::POSITION)?)
    }

    /// Records the position of a decision that changes nothing on this node.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn skip_to(&self, position: &[u8]) -> Result<(), Error> {
        self.store(Vec::new(), Some(position), true)
    }

    /// Returns the agreed state, for a node that lacks it.
    pub fn agreed(&self) -> Vec<u8> {
        let _changing = self.changing.lock();
        let users = self.users();
        let agreed = Agreed {
            cluster: (*self.cluster()).clone(),
            users: users.all().cloned().collect(),
            groups: users.groups().cloned().collect(),
            password_policy: self.password_policy(),
            user_generation: users.last_generation(),
        };
        serde_json::to_vec(&agreed).expect("the agreed state is plain data with text keys")
    }

    /// Installs a state that [`Node::agreed`] returned on another node.
    ///
    /// # Errors
    /// [`Error::Settings`] when the state cannot be read, with nothing changed; or the error of the disk.
    pub fn install(self: &Arc<Node>, agreed: &[u8], position: &[u8]) -> Result<(), Error> {
        let agreed: Agreed =
            serde_json::from_slice(agreed).map_err(|_| Error::Settings("cluster"))?;
        let position = (row::POSITION.to_vec(), Some(position.to_vec()));
        self.replace(agreed, vec![position])
    }

    /// Replaces the state of this node by `cluster`, in which it becomes the node `id`. Drops users, groups and all
    /// earlier decisions.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn replace_cluster(
        self: &Arc<Node>,
        id: NodeId,
        uuid: String,
        cluster: Cluster,
    ) -> Result<(), Error> {
        let identity = Identity { id, uuid };
        let writes = vec![write(row::IDENTITY, &identity), (row::POSITION.to_vec(), None)];
        let (users, groups) = (Vec::new(), Vec::new());
        let password_policy = PasswordPolicy::default();
        let agreed = Agreed { cluster, users, groups, password_policy, user_generation: 0 };
        *self.identity.write() = identity;
        self.replace(agreed, writes)
    }

    /// Continues with the state of this node, see [`Cluster::regroup`]. Later decisions have new positions.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn regroup(self: &Arc<Node>, secret: Secret) -> Result<(), Error> {
        let mut agreed: Agreed =
            serde_json::from_slice(&self.agreed()).expect("what was just written can be read");
        agreed.cluster.regroup(secret);
        self.replace(agreed, vec![(row::POSITION.to_vec(), None)])
    }

    fn replace(self: &Arc<Node>, agreed: Agreed, mut writes: Vec<Write>) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let Agreed { cluster, users, groups, password_policy, user_generation } = agreed;
        writes.extend([
            write(row::CLUSTER, &cluster),
            write(row::USERS, &users),
            write(row::GROUPS, &groups),
            write(row::PASSWORD_POLICY, &password_policy),
            write(row::USER_GENERATION, &user_generation),
        ]);
        self.settings.apply(&writes, true)?;
        let mut known = Users::new(self.new_salt());
        known.set_internal(cluster.secret.reveal(), self.new_salt());
        groups.into_iter().for_each(|group| known.insert_group(group));
        users.into_iter().for_each(|user| {
            known.insert(user);
        });
        known.skip_generations(user_generation);
        self.set_users(known);
        *self.password_policy.write() = password_policy;
        let (before, after) = (self.cluster(), Arc::new(cluster));
        self.publish(&after, || apply_state(self, &before, &after))
    }
}

/// Returns true if the cluster contains everything that `place` names.
pub fn keyspace_exists(cluster: &Cluster, place: Keyspace<'_>) -> bool {
    let Some(bucket) = place.bucket else { return true };
    let Ok(bucket) = cluster.bucket(bucket) else { return false };
    let Some(scope) = place.scope else { return true };
    let Some(scope) = bucket.manifest.scopes.iter().find(|known| known.name == scope) else {
        return false;
    };
    let has = |collection| scope.collections.iter().any(|known| known.name == collection);
    place.collection.is_none_or(has)
}

/// Returns the keyspace that a change drops.
fn dropped(change: &Change) -> Option<Keyspace<'_>> {
    let part =
        |bucket, scope, collection| Some(Keyspace { bucket: Some(bucket), scope, collection });
    match change {
        Change::Buckets(BucketChange::DropBucket { name }) => part(name, None, None),
        Change::Buckets(BucketChange::DropScope { bucket, scope }) => {
            part(bucket, Some(scope), None)
        }
        Change::Buckets(BucketChange::DropCollection { bucket, scope, collection }) => {
            part(bucket, Some(scope), Some(collection))
        }
        _ => None,
    }
}

fn rows_of(users: &Users) -> [Write; 3] {
    let (all, groups): (Vec<&User>, Vec<&Group>) =
        (users.all().collect(), users.groups().collect());
    [
        write(row::USERS, &all),
        write(row::GROUPS, &groups),
        write(row::USER_GENERATION, &users.last_generation()),
    ]
}

/// Checks that a user may have this name: names that begin with `@` are reserved for the server.
fn check_name(name: &str) -> Result<(), Error> {
    if name.starts_with('@') { Err(Refused::ReservedName.into()) } else { Ok(()) }
}
