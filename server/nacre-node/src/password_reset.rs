//! Resets the password of an administrator who has lost it.
//!
//! [`prepare`] writes the new password into the data directory of a stopped node. When the node runs again, [`finish`]
//! proposes the user to the other nodes, so that all have the password, and removes the row.

use crate::agreement::write;
use crate::node::{Node, random_bytes};
use crate::{Error, Platform};
use nacre_auth::{Edit, Role, User, UserChange, UserEdit};
use std::sync::Arc;

/// The row in the space of the node's settings.
pub(crate) const ROW: &[u8] = b"password-reset";

/// Records that the user `name`, new or existing, becomes an administrator with this password.
///
/// # Errors
/// The error of the disk.
pub fn prepare(platform: &dyn Platform, name: &str, password: &str) -> Result<(), Error> {
    let user = User::new(name, password, vec![Role::admin()], random_bytes(platform));
    Ok(platform.spaces().open("node")?.apply(&[write(ROW, &user)], true)?)
}

/// Proposes the user whose password was reset while the node was stopped. Returns the user's name, or `None` if there
/// is none. Blocks.
///
/// # Errors
/// [`Error::Unavailable`] when the nodes cannot agree yet: try again.
pub fn finish(node: &Arc<Node>) -> Result<Option<String>, Error> {
    let Some(mut user) = node.password_reset.lock().clone() else { return Ok(None) };
    if let Some(known) = node.users().person(&user.name) {
        let others = known.roles.iter().filter(|role| !user.roles.contains(role));
        let others: Vec<Role> = others.cloned().collect();
        user.roles.extend(others);
    }
    let name = user.name.clone();
    let edit = UserEdit {
        name: name.clone(),
        creates: true,
        credentials: user.credentials().cloned(),
        roles: Some(user.roles),
        locked: Some(false),
        at: u64::from(node.now().unix_s()),
        ..UserEdit::default()
    };
    node.change_users(UserChange { by: None, edit: Edit::User(edit) })?;
    node.settings.apply(&[(ROW.to_vec(), None)], true)?;
    *node.password_reset.lock() = None;
    Ok(Some(name))
}
