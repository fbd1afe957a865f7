//! Keys of prepared statements: each user has separate names in each query context.
//!
//! ```text
//! note      prepared/ann//report       prepared/ann/default:travel.inventory/flights
//! for ann   report                     default:travel.inventory/flights
//! others    ann//report                ann/default:travel.inventory/flights
//! ```
//!
//! `%` and `/` within a word are percent-encoded. The host checks that the user in a key is the user of the
//! request.

use crate::run::Run;

/// First word of the keys of notes about prepared statements.
pub(crate) const PREPARED: &str = "prepared/";

/// The name of a prepared statement, with its user and query context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreparedKey {
    pub user: String,
    /// Empty outside of a query context.
    pub context: String,
    pub name: String,
}

impl PreparedKey {
    /// Returns the key of a name in the query context of a request.
    pub fn of(name: &str, run: &Run<'_>) -> PreparedKey {
        let context = run.settings.context.as_ref().map(ToString::to_string);
        PreparedKey {
            user: run.store.user(),
            context: context.unwrap_or_default(),
            name: name.to_owned(),
        }
    }

    /// Returns the key of its note.
    pub fn note(&self) -> String {
        let PreparedKey { user, context, name } = self;
        format!("{PREPARED}{}/{}/{}", encoded(user), encoded(context), encoded(name))
    }

    /// Parses the key of a note.
    pub fn from_note(key: &str) -> Option<PreparedKey> {
        let mut words = key.strip_prefix(PREPARED)?.split('/').map(decoded);
        let (user, context, name) = (words.next()?, words.next()?, words.next()?);
        words.next().is_none().then_some(PreparedKey { user, context, name })
    }

    /// Returns its ID in the catalog, as `user` sees it.
    pub fn id(&self, user: &str) -> String {
        let (context, name) = (encoded(&self.context), encoded(&self.name));
        match (self.user == user, context.is_empty()) {
            (true, true) => name,
            (true, false) => format!("{context}/{name}"),
            (false, _) => format!("{}/{context}/{name}", encoded(&self.user)),
        }
    }

    /// Returns the key with that ID in the catalog, as `user` sees it.
    pub fn from_id(id: &str, user: &str) -> PreparedKey {
        let words: Vec<String> = id.splitn(3, '/').map(decoded).collect();
        let (user, context, name) = match &words[..] {
            [user, context, name] => (user.as_str(), context.as_str(), name.as_str()),
            [context, name] => (user, context.as_str(), name.as_str()),
            _ => (user, "", words[0].as_str()),
        };
        PreparedKey { user: user.to_owned(), context: context.to_owned(), name: name.to_owned() }
    }
}

fn encoded(word: &str) -> String {
    word.replace('%', "%25").replace('/', "%2F")
}

fn decoded(word: &str) -> String {
    word.replace("%2F", "/").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_ids_name_the_same_statement() {
        for (user, context, name) in [
            ("ann", "", "report"),
            ("a/b", "default:`x/y`.s", "50%/n"),
            ("", "", "%2F"),
            ("", "c", ""),
        ] {
            let [user, context, name] = [user, context, name].map(str::to_owned);
            let key = PreparedKey { user, context, name };
            assert_eq!(PreparedKey::from_note(&key.note()), Some(key.clone()));
            for sees in [&*key.user, "bob"] {
                assert_eq!(PreparedKey::from_id(&key.id(sees), sees), key);
            }
        }
        assert_eq!(PreparedKey::from_note("prepared/x"), None);
    }
}
