//! Browser sessions that were ended explicitly.
//!
//! A session is a signed token that any node can verify alone; the nodes only have to agree on the revoked ones. A session
//! expires after twelve hours in any case, so older entries have no effect and are removed.

use crate::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum age of a session in seconds.
const AGE_S_MAX: u64 = 12 * 3600;
/// Maximum number of revoked session IDs per user. One more revokes all sessions of the user.
const IDS_MAX: usize = 64;
/// Maximum number of users with revoked sessions.
const USERS_MAX: usize = 10_000;
/// Maximum length of a name or ID, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// The revoked sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedSessions {
    users: BTreeMap<String, EndedOfUser>,
}

/// The revoked sessions of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct EndedOfUser {
    /// Sessions that began at or before this time are revoked, in seconds since the Unix epoch.
    until_s: u64,
    /// Revoked session IDs with the time of their revocation.
    ids: BTreeMap<String, u64>,
}

/// Revokes sessions of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSessions {
    /// The user.
    pub user: String,
    /// ID of the session; `None` for all sessions of the user.
    pub id: Option<String>,
    /// The time in seconds since the Unix epoch.
    pub at_s: u64,
}

impl EndedSessions {
    /// Returns true if a session is revoked.
    pub fn contains(&self, user: &str, id: &str, begun_s: u64) -> bool {
        let ended = self.users.get(user);
        ended.is_some_and(|ended| begun_s <= ended.until_s || ended.ids.contains_key(id))
    }

    /// Revokes sessions.
    pub(crate) fn end(&mut self, end: &EndSessions) -> Result<(), Refusal> {
        let EndSessions { user, id, at_s } = end;
        let refuse = |reason: &str| Err(Refusal::Invalid { field: "_", reason: reason.into() });
        if user.len() > TEXT_BYTES_MAX || id.as_ref().is_some_and(|id| id.len() > TEXT_BYTES_MAX) {
            return refuse("the name of a user or a session is too long");
        }
        let oldest_s = at_s.saturating_sub(AGE_S_MAX);
        self.users.retain(|_, ended| {
            ended.ids.retain(|_, at_s| *at_s >= oldest_s);
            ended.until_s >= oldest_s || !ended.ids.is_empty()
        });
        if self.users.len() >= USERS_MAX && !self.users.contains_key(user) {
            return refuse("too many users have ended sessions: try again in some hours");
        }
        let ended = self.users.entry(user.clone()).or_default();
        match id {
            Some(id) if ended.ids.len() < IDS_MAX => drop(ended.ids.insert(id.clone(), *at_s)),
            _ => {
                ended.until_s = ended.until_s.max(*at_s);
                ended.ids.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(sessions: &mut EndedSessions, id: Option<&str>, at_s: u64) {
        let id = id.map(str::to_owned);
        sessions.end(&EndSessions { user: "ann".into(), id, at_s }).unwrap();
    }

    #[test]
    fn one_session_or_all_of_a_user_end() {
        let mut sessions = EndedSessions::default();
        end(&mut sessions, Some("a"), 100_000);
        assert!(sessions.contains("ann", "a", 1));
        assert!(!sessions.contains("ann", "b", 1) && !sessions.contains("bob", "a", 1));
        end(&mut sessions, None, 100_000);
        assert!(sessions.contains("ann", "b", 100_000));
        assert!(!sessions.contains("ann", "c", 100_001), "a later login is a new session");
    }

    #[test]
    fn obsolete_entries_are_removed_and_too_many_revoke_all_sessions() {
        let mut sessions = EndedSessions::default();
        end(&mut sessions, Some("a"), 100_000);
        end(&mut sessions, Some("b"), 100_000 + AGE_S_MAX + 1);
        assert!(!sessions.contains("ann", "a", 99_999));
        for number in 0..=IDS_MAX {
            end(&mut sessions, Some(&format!("s{number}")), 200_000);
        }
        assert!(sessions.contains("ann", "another", 200_000), "no ended session counts again");
        assert!(sessions.users["ann"].ids.is_empty());
    }

    #[test]
    fn names_are_bounded() {
        let mut sessions = EndedSessions::default();
        let user = "x".repeat(TEXT_BYTES_MAX + 1);
        assert!(sessions.end(&EndSessions { user, id: None, at_s: 0 }).is_err());
    }
}
