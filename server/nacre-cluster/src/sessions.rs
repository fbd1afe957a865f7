//! Sessions of browsers that were ended by hand.
//!
//! A session is a signed token that any node checks by itself; what nodes have to agree on is which of them no longer count. A session
//! runs out after twelve hours in any case, so that an entry older than that says nothing and goes.

use crate::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Seconds after which a session has run out.
const AGE_S_MAX: u64 = 12 * 3600;
/// Sessions of one user that are listed by ID. With one more, all that the user has are ended.
const IDS_MAX: usize = 64;
/// Users with ended sessions.
const USERS_MAX: usize = 10_000;
/// Longest name and ID, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// Sessions that count no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedSessions {
    users: BTreeMap<String, EndedOfUser>,
}

/// Sessions of one user that count no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct EndedOfUser {
    /// Those that have begun until then, in seconds since the Unix epoch.
    until_s: u64,
    /// Those with these IDs, and when they were ended.
    ids: BTreeMap<String, u64>,
}

/// The end of sessions of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSessions {
    /// The user.
    pub user: String,
    /// ID of the session; `None` for all that the user has.
    pub id: Option<String>,
    /// When, in seconds since the Unix epoch.
    pub at_s: u64,
}

impl EndedSessions {
    /// Returns true if a session was ended.
    pub fn contains(&self, user: &str, id: &str, begun_s: u64) -> bool {
        let ended = self.users.get(user);
        ended.is_some_and(|ended| begun_s <= ended.until_s || ended.ids.contains_key(id))
    }

    /// Ends sessions.
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
    fn entries_that_say_nothing_any_more_go_and_too_many_end_all() {
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
