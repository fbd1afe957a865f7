//! How the nodes agree: what may be proposed, who decides about it, and how a decision is applied here.
//!
//! ```text
//! Node::change, put_user, … ─► Agreement::propose ─► (the other nodes) ─► Node::apply, on each node, in one order
//! ```
//!
//! [`Node::apply`] is the one place where the agreed state changes: the state is stored together with the position of
//! the decision, so that what is decided takes effect once, whenever the node stops. A node that was away for too
//! long is given the whole state instead ([`Node::install`]).

use crate::Error;
use crate::journal;
use crate::node::{Identity, Node, row};
use nacre_auth::{Domain, Edit, Group, Keyspace, PasswordPolicy, Refused, User, UserChange, Users};
use nacre_cluster::orchestrator::Leadership;
use nacre_cluster::{Change, Cluster, Refusal, Secret};
use nacre_store::Write;
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a node may propose to the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Proposal {
    /// A change of the cluster.
    Change(Change),
    /// A change of users or groups.
    Users(UserChange),
    /// A user as a whole, new or changed: only what a node itself sets when it starts, as everything that is decided meanwhile is
    /// undone by it.
    PutUser(User),
    /// The end of a user. Of a log that was written before there was [`Proposal::Users`], like the next two.
    RemoveUser(String),
    /// A group, new or changed.
    PutGroup(Group),
    /// The end of a group.
    RemoveGroup(String),
    /// What new passwords have to be like.
    SetPasswordPolicy(PasswordPolicy),
}

/// Decides about proposals.
pub trait Agreement: Send + Sync {
    /// Waits until `proposal` is decided and applied at `node`. Gives the state after it. What a leader has decided in a `term`
    /// of [`Leadership::term`] is refused once there is a later one.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when no decision was reached in time: the proposal may still be decided later. Otherwise
    /// what [`Node::apply`] says.
    fn propose(
        &self,
        node: &Arc<Node>,
        proposal: &Proposal,
        term: Option<u64>,
    ) -> Result<Arc<Cluster>, Error>;

    /// Waits until what was decided before is applied at this node, also what another node has proposed; but only a
    /// moment when the others cannot be asked. There is nothing to wait for where this node decides.
    fn catch_up(&self) {}

    /// What this node knows of its leading the others, if it does. `now_ns`: its monotonic clock.
    fn leadership(&self, now_ns: u64) -> Option<Leadership>;

    /// Who leads, as far as this node knows.
    fn leader(&self) -> Option<NodeId> {
        None
    }
}

/// The agreement of a node that has no others: it decides at once.
pub struct Alone;

impl Agreement for Alone {
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

/// Everything the nodes agree on, as it is stored and as a node gives it to another.
#[derive(Serialize, Deserialize)]
struct Agreed {
    cluster: Cluster,
    users: Vec<User>,
    groups: Vec<Group>,
    password_policy: PasswordPolicy,
    #[serde(default)]
    user_generation: u64,
}

/// A row with `value` as JSON.
pub(crate) fn write(row: &[u8], value: &impl Serialize) -> Write {
    let stored = serde_json::to_vec(value).expect("the agreed state is plain data with text keys");
    (row.to_vec(), Some(stored))
}

impl Node {
    /// Lets `agreement` decide from now on.
    pub fn agree_by(&self, agreement: Arc<dyn Agreement>) {
        *self.agreement.write() = agreement;
    }

    fn propose(self: &Arc<Node>, proposal: &Proposal) -> Result<Arc<Cluster>, Error> {
        let agreement = Arc::clone(&self.agreement.read());
        agreement.propose(self, proposal, None)
    }

    /// What this node knows of its leading the others, if it does.
    pub(crate) fn leadership(&self) -> Option<Leadership> {
        let agreement = Arc::clone(&self.agreement.read());
        agreement.leadership(self.now().monotonic_ns)
    }

    /// Who leads the nodes, as far as this one knows.
    pub fn leader(&self) -> Option<NodeId> {
        let agreement = Arc::clone(&self.agreement.read());
        agreement.leader()
    }

    /// Waits until this node has applied what was decided before, by whichever node it was proposed; but only a moment when
    /// the others cannot be asked. Blocks: not for a thread that others wait for.
    pub fn catch_up(&self) {
        let agreement = Arc::clone(&self.agreement.read());
        agreement.catch_up();
    }

    /// Changes the cluster and lets the change take effect. Gives the state after it. Blocks: not for a thread that
    /// others wait for.
    ///
    /// # Errors
    /// [`Error::Refused`] with nothing changed, [`Error::Unavailable`] when the nodes cannot agree; or what the disk
    /// reports.
    pub fn change(self: &Arc<Node>, change: &Change) -> Result<Arc<Cluster>, Error> {
        self.propose(&Proposal::Change(change.clone()))
    }

    /// The same for what this node has decided as the leader in `term`; it is refused when it leads no more.
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

    /// Adds or replaces a user as a whole, for the node itself.
    ///
    /// # Errors
    /// As for [`Node::change`].
    pub fn put_user(self: &Arc<Node>, user: User) -> Result<(), Error> {
        self.propose(&Proposal::PutUser(user)).map(drop)
    }

    /// Removes a user of domain local, for the node itself; says whether there was one.
    ///
    /// # Errors
    /// As for [`Node::change`].
    pub fn remove_user(self: &Arc<Node>, name: &str) -> Result<bool, Error> {
        match self.edit_users(Edit::RemoveUser { domain: Domain::Local, name: name.to_owned() }) {
            Err(Error::Users(Refused::UserNotFound(_))) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Adds or replaces a group, for the node itself.
    ///
    /// # Errors
    /// As for [`Node::change`].
    pub fn put_group(self: &Arc<Node>, group: Group) -> Result<(), Error> {
        self.edit_users(Edit::PutGroup(group))
    }

    /// Removes a group, also from its users, for the node itself; says whether there was one.
    ///
    /// # Errors
    /// As for [`Node::change`].
    pub fn remove_group(self: &Arc<Node>, name: &str) -> Result<bool, Error> {
        match self.edit_users(Edit::RemoveGroup(name.to_owned())) {
            Err(Error::Users(Refused::GroupNotFound(_))) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Asks something else of new passwords; those that are in use stay.
    ///
    /// # Errors
    /// As for [`Node::change`].
    pub fn set_password_policy(self: &Arc<Node>, policy: PasswordPolicy) -> Result<(), Error> {
        self.propose(&Proposal::SetPasswordPolicy(policy)).map(drop)
    }

    /// Applies what was decided: stores the state after it with `position`, shows it, and lets it take effect. Gives the
    /// state after it. For an [`Agreement`] only, which calls it in the same order on each node.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::Users`] with nothing changed, the same on each node; [`Error::Effect`] when the state has changed, and this node does not do what it means; or what the disk
    /// reports, with nothing changed.
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
        let users = dropped(change).and_then(|keyspace| {
            let mut users = self.users().clone();
            users.forget(keyspace).then_some(users)
        });
        writes.extend(users.iter().flat_map(rows_of));
        self.store(writes, position, true)?;
        if let Some(users) = users {
            self.set_users(users);
        }
        self.show(&after, || self.take_effect(change, &before, &after))?;
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

    /// Stores the users as they are to be, and then lets them count. Logins go on while the disk is waited for. What has been
    /// dropped since a role on it was given takes that role with it, as if it had been given before.
    fn apply_to_users(
        &self,
        proposal: &Proposal,
        position: Option<&[u8]>,
    ) -> Result<Arc<Cluster>, Error> {
        let mut users = self.users().clone();
        let cluster = self.cluster();
        let had_administrator = users.have_administrator();
        let mut apply = |change: &UserChange| users.apply(change, |at| is_there(&cluster, at));
        let mut edit = |edit| apply(&UserChange { by: None, edit });
        match proposal {
            Proposal::Users(change) => apply(change)?,
            Proposal::PutUser(user) => {
                check_name(&user.name)?;
                let mut user = user.clone();
                user.roles.retain(|role| is_there(&cluster, role.keyspace()));
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

    fn set_users(&self, users: Users) {
        *self.users.write() = users;
        self.users_version.fetch_add(1, Ordering::AcqRel);
        self.users_changed.notify_waiters();
        self.services().iter().for_each(|service| service.users_changed());
    }

    /// Stores `writes` and the position of the last decision, all or none.
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

    /// Shows another state of the cluster, lets it take effect, and tells those who watch the map.
    fn show(
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
            orchestration.look(self);
        }
        effect.map_err(|error| {
            self.fall_behind();
            Error::Effect(Box::new(error))
        })
    }

    /// Where in the order of decisions the stored state is; `None` before the first.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn position(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.settings.get(row::POSITION)?)
    }

    /// Notes the position of a decision that changes nothing here.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn skip_to(&self, position: &[u8]) -> Result<(), Error> {
        self.store(Vec::new(), Some(position), true)
    }

    /// The agreed state, for a node that lacks it.
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

    /// Takes over a state that [`Node::agreed`] gave on another node.
    ///
    /// # Errors
    /// [`Error::Settings`] when it cannot be read, with nothing changed; or what the disk reports.
    pub fn install(self: &Arc<Node>, agreed: &[u8], position: &[u8]) -> Result<(), Error> {
        let agreed: Agreed =
            serde_json::from_slice(agreed).map_err(|_| Error::Settings("cluster"))?;
        let position = (row::POSITION.to_vec(), Some(position.to_vec()));
        self.replace(agreed, vec![position])
    }

    /// Gives up the state of this node for `cluster`, of which it becomes the node `id`. Users, groups and everything
    /// that was decided before are forgotten.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn begin_anew(
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

    /// Goes on with what this node knows, see [`Cluster::regroup`]. What is decided from now on has other positions.
    ///
    /// # Errors
    /// What the disk reports.
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
        self.show(&after, || self.bring_in_line(&before, &after))
    }
}

/// Whether all that `place` names is in the cluster.
pub fn is_there(cluster: &Cluster, place: Keyspace<'_>) -> bool {
    let Some(bucket) = place.bucket else { return true };
    let Ok(bucket) = cluster.bucket(bucket) else { return false };
    let Some(scope) = place.scope else { return true };
    let Some(scope) = bucket.manifest.scopes.iter().find(|known| known.name == scope) else {
        return false;
    };
    let has = |collection| scope.collections.iter().any(|known| known.name == collection);
    place.collection.is_none_or(has)
}

/// What a change drops, with all that is in it.
fn dropped(change: &Change) -> Option<Keyspace<'_>> {
    let part =
        |bucket, scope, collection| Some(Keyspace { bucket: Some(bucket), scope, collection });
    match change {
        Change::DropBucket { name } => part(name, None, None),
        Change::DropScope { bucket, scope } => part(bucket, Some(scope), None),
        Change::DropCollection { bucket, scope, collection } => {
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

/// Names that begin with `@` belong to the server.
fn check_name(name: &str) -> Result<(), Error> {
    if name.starts_with('@') { Err(Refused::ReservedName.into()) } else { Ok(()) }
}
