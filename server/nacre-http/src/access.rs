//! Privileges that an endpoint requires.

use crate::Parameters;
use nacre_auth::{Keyspace, Privilege};
use std::fmt;

/// Name of the path parameter that contains the name of a bucket.
const BUCKET: &str = "bucket";

/// The access that a route requires, checked before its handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every user who has logged in.
    Login,
    /// A privilege on the cluster.
    Cluster(Privilege),
    /// A privilege on the bucket that the path parameter `{bucket}` names.
    Bucket(Privilege),
    /// Any role in the cluster.
    Sight,
    /// Any role in the bucket that the path parameter `{bucket}` names.
    SightOfBucket,
    /// The handler checks the privilege, because it depends on the body or the query string of the request.
    Handler,
}

/// The user who has sent a request.
pub trait Caller {
    /// Answer to a user who lacks a privilege.
    type Refusal;

    /// Refuses a user who lacks `privilege` on `bucket`, or on the cluster if `bucket` is `None`.
    ///
    /// # Errors
    /// The answer to the user.
    fn require(&self, privilege: Privilege, bucket: Option<&str>) -> Result<(), Self::Refusal>;

    /// Refuses a user who has no role in `place`.
    ///
    /// # Errors
    /// The answer to the user.
    fn require_sight(&self, place: Keyspace<'_>) -> Result<(), Self::Refusal>;
}

impl Access {
    /// Refuses a user who lacks the required access.
    ///
    /// # Errors
    /// The answer to the user, see [`Caller`].
    pub fn check<C: Caller>(
        self,
        caller: &C,
        parameters: &Parameters<'_>,
    ) -> Result<(), C::Refusal> {
        // A table refuses a route with access to a bucket if its path does not contain the parameter.
        let bucket = parameters.get(BUCKET);
        match self {
            Access::Login | Access::Handler => Ok(()),
            Access::Cluster(privilege) => caller.require(privilege, None),
            Access::Bucket(privilege) => caller.require(privilege, bucket),
            Access::Sight => caller.require_sight(Keyspace::default()),
            Access::SightOfBucket => {
                caller.require_sight(Keyspace { bucket, ..Keyspace::default() })
            }
        }
    }

    /// Returns the path parameter that the access refers to.
    pub(crate) fn parameter(self) -> Option<&'static str> {
        matches!(self, Access::Bucket(_) | Access::SightOfBucket).then_some(BUCKET)
    }
}

/// Returns the name of a privilege in words: `AdministerCluster` becomes `administer cluster`.
fn words(privilege: Privilege) -> String {
    let mut words = String::new();
    for letter in format!("{privilege:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// Formats the access as the list of endpoints shows it.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Access::Login => f.write_str("any login"),
            Access::Cluster(privilege) => f.write_str(&words(privilege)),
            Access::Bucket(privilege) => write!(f, "{}, in the bucket", words(privilege)),
            Access::Sight => f.write_str("any role"),
            Access::SightOfBucket => f.write_str("any role in the bucket"),
            Access::Handler => f.write_str("depends on the request"),
        }
    }
}
