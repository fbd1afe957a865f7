//! Changes of users and groups, as the nodes agree on them.
//!
//! A change names only the changed fields. Each node applies it to the current users at its position in the agreed
//! order. Hashing a password takes milliseconds during which other changes may be decided: a change that carried the
//! whole record of a user would undo them. For the same reason the rights of the requester are checked again when the
//! change is applied, and the login must still be valid then.

use crate::backup::Restored;
use crate::login::Login;
use crate::token::{ApiToken, user_of_token};
use crate::user::{Domain, Group, User};
use crate::users::Users;
use crate::{Credentials, Keyspace, Privilege, Role};
use serde::{Deserialize, Serialize};

/// A change of users or groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserChange {
    /// The requester; `None` for the node itself, which may make all changes.
    pub by: Option<Login>,
    /// The edit.
    pub edit: Edit,
}

/// An edit of users or groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Edit {
    /// Changes fields of a user.
    User(UserEdit),
    /// Sets the requester's own password.
    OwnPassword {
        /// The new password.
        credentials: Credentials,
        /// The generation of the password to replace. If that password has already been replaced, the edit is refused.
        replaces: u64,
        /// Time of the request, in seconds of Unix time.
        at: u64,
    },
    /// Removes a user.
    RemoveUser {
        /// The user's domain.
        domain: Domain,
        /// The user's name.
        name: String,
    },
    /// Adds or replaces a group.
    PutGroup(Group),
    /// Changes fields of a group. A field that is `None` is unchanged, or empty in a new group.
    Group {
        /// The group's name.
        name: String,
        /// True to create a group that must not exist, false to change a group that must exist.
        is_new: bool,
        /// Description of its purpose.
        description: Option<String>,
        /// Roles of its users.
        roles: Option<Vec<Role>>,
    },
    /// Grants roles to local users and groups, or revokes them, all or nothing.
    Grant {
        /// The roles.
        roles: Vec<Role>,
        /// The names of the users.
        users: Vec<String>,
        /// The names of the groups.
        groups: Vec<String>,
        /// True to revoke the roles.
        revoke: bool,
    },
    /// Removes a group.
    RemoveGroup(String),
    /// Restores users and groups of a backup.
    Restore(Box<Restored>),
    /// Adds a token of the requester.
    CreateToken(ApiToken),
    /// Removes a token.
    RevokeToken {
        /// Name of the token's user, who is local.
        user: String,
        /// ID of the token.
        id: String,
    },
}

/// Changed fields of a user. A field that is `None` is unchanged, or empty for a new user.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UserEdit {
    /// The user's domain.
    pub domain: Domain,
    /// The user's name.
    pub name: String,
    /// True to create a missing user.
    pub creates: bool,
    /// True to refuse an existing user.
    pub is_new: bool,
    /// A name for people.
    pub display_name: Option<String>,
    /// The user's own roles.
    pub roles: Option<Vec<Role>>,
    /// The groups that the user belongs to.
    pub groups: Option<Vec<String>>,
    /// A new password.
    pub credentials: Option<Credentials>,
    /// True for a user who is temporarily not allowed to log in.
    pub locked: Option<bool>,
    /// Time of the request, in seconds of Unix time.
    pub at: u64,
}

/// The reason why a change of users is refused, with nothing changed. The same on each node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The user does not exist: the requester checks the name.
    #[error("there is no user {0}")]
    UserNotFound(String),
    /// The group does not exist: the requester checks the name.
    #[error("there is no group {0}")]
    GroupNotFound(String),
    /// A user of this name exists: the requester chooses another name.
    #[error("User already exists: {0}")]
    UserExists(String),
    /// A group of this name exists: the requester chooses another name.
    #[error("Group already exists: {0}")]
    GroupExists(String),
    /// A user cannot belong to groups that do not exist: the requester checks their names.
    #[error("Groups do not exist: {0}")]
    GroupsNotFound(String),
    /// A local user needs a password: the requester adds one.
    #[error("Password is required for new user.")]
    PasswordRequired,
    /// An external user has no password: the requester omits it.
    #[error("Password is not allowed for external users")]
    PasswordNotAllowed,
    /// Names that begin with `@` are reserved for the server: the requester chooses another name.
    #[error("The username must not begin with @: such names belong to the server.")]
    ReservedName,
    /// The requester was meanwhile removed, locked or given another password: log in again.
    #[error("the user who asked for the change was changed meanwhile: log in again")]
    LoginEnded,
    /// The requester uses a token, which can do less than its user: log in with the password.
    #[error("a token cannot do that: log in with the password of the user")]
    ByToken,
    /// The token does not exist: the requester checks the ID.
    #[error("user {user} has no token {id}")]
    TokenNotFound {
        /// Name of the user.
        user: String,
        /// ID of the token.
        id: String,
    },
    /// A user can have at most [`ApiToken::COUNT_MAX`] tokens: revoke one.
    #[error("a user can have {max} tokens: revoke one that is not used any more", max = ApiToken::COUNT_MAX)]
    TooManyTokens,
    /// The fields of the token are out of bounds, or its ID is taken: the requester changes them.
    #[error("the token is not valid: check its name, scopes and expiry")]
    InvalidToken,
    /// The requester lacks the right: another user must make the change.
    #[error("only a user with the right {0:?} may do that")]
    Forbidden(Privilege),
}

impl Users {
    /// Applies a change. Omits roles on keyspaces for which `exists` returns false: they were dropped meanwhile, and
    /// a keyspace that is later created under the same name is a different one.
    ///
    /// # Errors
    /// The reason for the refusal, with nothing changed.
    pub fn apply(
        &mut self,
        change: &UserChange,
        exists: impl Fn(Keyspace<'_>) -> bool,
    ) -> Result<(), Refused> {
        self.permit(change)?;
        match &change.edit {
            Edit::User(edit) => self.edit_user(edit, exists)?,
            Edit::OwnPassword { credentials, replaces, at } => {
                let login = change.by.as_ref().ok_or(Refused::LoginEnded)?;
                let user = self.holder(login).ok_or(Refused::LoginEnded)?;
                if user.password_generation != *replaces {
                    return Err(Refused::LoginEnded);
                }
                let mut user = user.clone();
                self.give_password(&mut user, credentials.clone(), *at);
                self.insert(user);
            }
            Edit::RemoveUser { domain, name } => {
                self.remove(*domain, name).ok_or_else(|| Refused::UserNotFound(name.clone()))?;
            }
            Edit::PutGroup(group) => {
                let mut group = group.clone();
                group.roles.retain(|role| exists(role.keyspace()));
                self.insert_group(group);
            }
            Edit::Group { name, is_new, description, roles } => {
                let known = self.group(name).cloned();
                let mut group = match (known, is_new) {
                    (Some(_), true) => return Err(Refused::GroupExists(name.clone())),
                    (None, false) => return Err(Refused::GroupNotFound(name.clone())),
                    (Some(group), false) => group,
                    (None, true) if name.starts_with('@') => return Err(Refused::ReservedName),
                    (None, true) => Group::new(name),
                };
                if let Some(description) = description {
                    group.description.clone_from(description);
                }
                if let Some(roles) = roles {
                    group.roles =
                        roles.iter().filter(|role| exists(role.keyspace())).cloned().collect();
                }
                self.insert_group(group);
            }
            Edit::Grant { .. } => self.grant(&change.edit, exists)?,
            Edit::RemoveGroup(name) => {
                self.remove_group(name).ok_or_else(|| Refused::GroupNotFound(name.clone()))?;
            }
            Edit::Restore(restored) => restored.apply_to(self, exists)?,
            Edit::CreateToken(token) => self.create_token(change.by.as_ref(), token, exists)?,
            Edit::RevokeToken { user, id } => self.revoke_token(user, id)?,
        }
        Ok(())
    }

    /// Checks whether the requester of a change may make it.
    ///
    /// # Errors
    /// [`Refused::LoginEnded`], or [`Refused::Forbidden`] with the missing right.
    pub fn permit(&self, change: &UserChange) -> Result<(), Refused> {
        let Some(login) = &change.by else { return Ok(()) };
        let by = self.holder(login).ok_or(Refused::LoginEnded)?;
        let token = user_of_token(&by.name);
        let need = match &change.edit {
            Edit::OwnPassword { .. } | Edit::CreateToken(_) if token.is_some() => {
                return Err(Refused::ByToken);
            }
            Edit::OwnPassword { .. } | Edit::CreateToken(_) => return Ok(()),
            // Users may revoke their own tokens, and a token may revoke itself.
            Edit::RevokeToken { user, id }
                if *user == by.name || token == Some((user.as_str(), id.as_str())) =>
            {
                return Ok(());
            }
            Edit::User(UserEdit { domain: Domain::External, .. })
            | Edit::RemoveUser { domain: Domain::External, .. } => {
                Privilege::AdministerExternalUsers
            }
            _ => Privilege::AdministerUsers,
        };
        let lacks = |privilege| !by.may(privilege, Keyspace::default());
        if lacks(need) {
            return Err(Refused::Forbidden(need));
        }
        let top = Privilege::AdministerAdministrators;
        if lacks(top) && self.concerns_administrators(&change.edit) {
            return Err(Refused::Forbidden(top));
        }
        Ok(())
    }

    /// Returns true if the edit changes a privileged user or group, or makes one privileged.
    fn concerns_administrators(&self, edit: &Edit) -> bool {
        let privileged = |roles: &[Role]| roles.iter().any(|role| role.kind.is_privileged());
        let group = |name: &String| self.group(name).is_some_and(|group| privileged(&group.roles));
        let user = |domain, name: &str| self.of(domain, name).is_some_and(User::is_privileged);
        match edit {
            Edit::User(UserEdit { domain, name, roles, groups, .. }) => {
                user(*domain, name)
                    || roles.as_deref().is_some_and(privileged)
                    || groups.as_deref().is_some_and(|groups| groups.iter().any(group))
            }
            Edit::OwnPassword { .. } | Edit::CreateToken(_) => false,
            Edit::Restore(_) => true,
            Edit::RevokeToken { user: name, .. } => user(Domain::Local, name),
            Edit::RemoveUser { domain, name } => user(*domain, name),
            Edit::PutGroup(put) => privileged(&put.roles) || group(&put.name),
            Edit::RemoveGroup(name) => group(name),
            Edit::Group { name, roles, .. } => {
                group(name) || roles.as_deref().is_some_and(privileged)
            }
            Edit::Grant { roles, users, groups, .. } => {
                privileged(roles)
                    || users.iter().any(|name| user(Domain::Local, name))
                    || groups.iter().any(group)
            }
        }
    }

    fn grant(&mut self, edit: &Edit, exists: impl Fn(Keyspace<'_>) -> bool) -> Result<(), Refused> {
        let Edit::Grant { roles, users, groups, revoke } = edit else { return Ok(()) };
        let roles = roles.iter().filter(|role| exists(role.keyspace()));
        let roles: Vec<Role> = roles.cloned().collect();
        let change = |own: &mut Vec<Role>| match revoke {
            true => own.retain(|role| !roles.contains(role)),
            false => {
                for role in &roles {
                    if !own.contains(role) {
                        own.push(role.clone());
                    }
                }
            }
        };
        let (mut new_users, mut new_groups) = (Vec::new(), Vec::new());
        for name in users {
            let known = self.person(name).cloned();
            let mut user = known.ok_or_else(|| Refused::UserNotFound(name.clone()))?;
            change(&mut user.roles);
            new_users.push(user);
        }
        for name in groups {
            let known = self.group(name).cloned();
            let mut group = known.ok_or_else(|| Refused::GroupNotFound(name.clone()))?;
            change(&mut group.roles);
            new_groups.push(group);
        }
        for user in new_users {
            self.insert(user);
        }
        new_groups.into_iter().for_each(|group| self.insert_group(group));
        Ok(())
    }

    fn edit_user(
        &mut self,
        edit: &UserEdit,
        exists: impl Fn(Keyspace<'_>) -> bool,
    ) -> Result<(), Refused> {
        let UserEdit { domain, name, creates, credentials, groups, .. } = edit;
        if name.starts_with('@') {
            return Err(Refused::ReservedName);
        }
        if *domain == Domain::External && credentials.is_some() {
            return Err(Refused::PasswordNotAllowed);
        }
        let missing = groups.iter().flatten().filter(|name| self.group(name).is_none());
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        if !missing.is_empty() {
            return Err(Refused::GroupsNotFound(missing.join(",")));
        }
        let known = self.of(*domain, name).cloned();
        if known.is_some() && edit.is_new {
            return Err(Refused::UserExists(name.clone()));
        }
        if known.is_none() && !creates {
            return Err(Refused::UserNotFound(name.clone()));
        }
        if known.is_none() && credentials.is_none() && *domain == Domain::Local {
            return Err(Refused::PasswordRequired);
        }
        let mut user = known.unwrap_or_else(|| {
            let mut user = User::with(name, None, Vec::new());
            (user.domain, user.generation) = (*domain, self.next_generation());
            user
        });
        if let Some(credentials) = credentials {
            self.give_password(&mut user, credentials.clone(), edit.at);
        }
        if let Some(display_name) = &edit.display_name {
            user.display_name.clone_from(display_name);
        }
        if let Some(roles) = &edit.roles {
            user.roles = roles.iter().filter(|role| exists(role.keyspace())).cloned().collect();
        }
        if let Some(groups) = groups {
            user.groups.clone_from(groups);
        }
        user.locked = edit.locked.unwrap_or(user.locked);
        self.insert(user);
        Ok(())
    }

    fn create_token(
        &mut self,
        by: Option<&Login>,
        token: &ApiToken,
        exists: impl Fn(Keyspace<'_>) -> bool,
    ) -> Result<(), Refused> {
        let holder = by.and_then(|login| self.holder(login)).ok_or(Refused::LoginEnded)?;
        let (mut user, mut token) = (holder.clone(), token.clone());
        if !token.is_valid() || self.all().any(|user| user.has_token(&token.id)) {
            return Err(Refused::InvalidToken);
        }
        if let Some(scopes) = &mut token.scopes {
            scopes.retain(|role| exists(role.keyspace()));
        }
        user.tokens.retain(|known| !known.has_expired(token.created_s));
        if user.tokens.len() >= ApiToken::COUNT_MAX {
            return Err(Refused::TooManyTokens);
        }
        user.tokens.push(token);
        self.insert(user);
        Ok(())
    }

    fn revoke_token(&mut self, name: &str, id: &str) -> Result<(), Refused> {
        let missing = || Refused::TokenNotFound { user: name.to_owned(), id: id.to_owned() };
        let mut user = self.person(name).cloned().ok_or_else(missing)?;
        if !user.has_token(id) {
            return Err(missing());
        }
        user.tokens.retain(|token| token.id != id);
        self.insert(user);
        Ok(())
    }

    fn give_password(&mut self, user: &mut User, credentials: Credentials, at: u64) {
        user.set_credentials(credentials);
        user.password_generation = self.next_generation();
        user.password_set_at = Some(at);
    }
}
