//! The options of sync.

use super::replica::Resolver;
use crate::Error;
use nacre_sync::{Conflict, ConflictMode, Direction};
use nacre_vbucket::Verdict;
use std::fmt;
use std::sync::Arc;

/// The options of sync: the bucket, the user, the collections and the handling of conflicts.
#[derive(Clone, Default)]
pub struct SyncOptions {
    pub(super) url: String,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) certificates: Option<Vec<u8>>,
    pub(super) collections: Vec<String>,
    pub(super) conflicts: ConflictMode,
    pub(super) direction: Direction,
    pub(super) resolver: Option<Resolver>,
    pub(super) device: String,
    pub(super) allows_plain: bool,
}

impl SyncOptions {
    /// Sync with the bucket at `url`: `https://host:18091/bucket`, or `http://host:8091/bucket`.
    pub fn new(url: impl Into<String>) -> SyncOptions {
        SyncOptions { url: url.into(), device: "device".into(), ..SyncOptions::default() }
    }

    /// Logs in as this user. The password is sent over TLS, or to this machine: see [`SyncOptions::allow_plain`].
    #[must_use]
    pub fn login(self, user: impl Into<String>, password: impl Into<String>) -> SyncOptions {
        SyncOptions { user: user.into(), password: password.into(), ..self }
    }

    /// Allows an `http` address, over which the password and the documents cross the network unencrypted.
    #[must_use]
    pub fn allow_plain(self) -> SyncOptions {
        SyncOptions { allows_plain: true, ..self }
    }

    /// Trusts the certificate authorities of a PEM file instead of the public ones.
    #[must_use]
    pub fn certificates(self, pem: impl Into<Vec<u8>>) -> SyncOptions {
        SyncOptions { certificates: Some(pem.into()), ..self }
    }

    /// Keeps these collections in step, as `scope.collection`. They must exist on the hub; on the device they are created.
    #[must_use]
    pub fn collections(self, paths: impl IntoIterator<Item = impl Into<String>>) -> SyncOptions {
        SyncOptions { collections: paths.into_iter().map(Into::into).collect(), ..self }
    }

    /// The handling of conflicts. Default: [`ConflictMode::Log`].
    #[must_use]
    pub fn conflicts(self, mode: ConflictMode) -> SyncOptions {
        SyncOptions { conflicts: mode, ..self }
    }

    /// Sets a callback that resolves conflicts. It runs on the thread of sync, may be called twice for the same pair, and must
    /// not wait for sync.
    #[must_use]
    pub fn resolver(
        self,
        resolver: impl Fn(&Conflict<'_>) -> Verdict + Send + Sync + 'static,
    ) -> SyncOptions {
        SyncOptions { conflicts: ConflictMode::Client, resolver: Some(Arc::new(resolver)), ..self }
    }

    /// Sets the direction in which documents are transferred. Default: both.
    #[must_use]
    pub fn direction(self, direction: Direction) -> SyncOptions {
        SyncOptions { direction, ..self }
    }

    /// Sets the name of the device in the hub's lists, up to 64 bytes. Default: `device`.
    #[must_use]
    pub fn device(self, name: impl Into<String>) -> SyncOptions {
        SyncOptions { device: name.into(), ..self }
    }

    /// Reads options from JSON, as the interfaces of other languages pass them:
    /// `{"url", "user", "password", "certificates"?: PEM, "collections": [..], "conflicts"?: "log" | "server", "direction"?: "both" |
    /// "pull", "device"?, "allow_plain"?}`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], which names the invalid member.
    pub fn from_json(text: &str) -> Result<SyncOptions, Error> {
        let refuse = |what: &str| Error::InvalidArgument(what.to_owned());
        let json: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| refuse(&format!("the options are not JSON: {error}")))?;
        let object = json.as_object().ok_or_else(|| refuse("the options are not a JSON object"))?;
        let mut options = SyncOptions::new("");
        for (name, value) in object {
            let text = || {
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| refuse(&format!("{name} is not a string")))
            };
            match name.as_str() {
                "url" => options.url = text()?,
                "user" => options.user = text()?,
                "password" => options.password = text()?,
                "certificates" => options.certificates = Some(text()?.into_bytes()),
                "device" => options.device = text()?,
                "allow_plain" => {
                    let flag = value.as_bool();
                    options.allows_plain =
                        flag.ok_or_else(|| refuse("allow_plain is not a boolean"))?;
                }
                "collections" => {
                    let list: Option<Vec<String>> = value.as_array().and_then(|list| {
                        list.iter().map(|path| path.as_str().map(str::to_owned)).collect()
                    });
                    options.collections =
                        list.ok_or_else(|| refuse("collections is not a list of strings"))?;
                }
                "conflicts" => {
                    let mode = ConflictMode::parse(&text()?);
                    let mode = mode.filter(|mode| *mode != ConflictMode::Client);
                    options.conflicts =
                        mode.ok_or_else(|| refuse("conflicts must be log or server"))?;
                }
                "direction" => {
                    options.direction = match text()?.as_str() {
                        "both" => Direction::Both,
                        "pull" => Direction::Pull,
                        _ => return Err(refuse("direction must be both or pull")),
                    };
                }
                _ => return Err(refuse(&format!("{name} is not an option of sync"))),
            }
        }
        Ok(options)
    }
}

impl fmt::Debug for SyncOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password.
        f.debug_struct("SyncOptions")
            .field("url", &self.url)
            .field("user", &self.user)
            .field("collections", &self.collections)
            .field("conflicts", &self.conflicts)
            .field("direction", &self.direction)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_json_and_refused_by_name() {
        let text = r#"{"url":"http://h:1/b","user":"u","password":"secret","collections":["s.c"],"conflicts":"server","direction":"pull"}"#;
        let options = SyncOptions::from_json(text).unwrap();
        assert_eq!(options.collections, ["s.c"]);
        assert_eq!((options.conflicts, options.direction), (ConflictMode::Server, Direction::Pull));
        assert!(!format!("{options:?}").contains("secret"));
        for (text, member) in [
            ("[]", "object"),
            ("{", "JSON"),
            (r#"{"url":1}"#, "url"),
            (r#"{"collections":[1]}"#, "collections"),
            (r#"{"conflicts":"client"}"#, "conflicts"),
            (r#"{"direction":"push"}"#, "direction"),
            (r#"{"urls":"x"}"#, "urls"),
        ] {
            let error = SyncOptions::from_json(text).unwrap_err().to_string();
            assert!(error.contains(member), "{error}");
        }
    }
}
