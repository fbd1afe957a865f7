//! The shared secret of a cluster's nodes.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The password with which nodes log in to each other: 64 hexadecimal digits, chosen when the cluster is created.
///
/// Empty in a state stored before clusters had a secret. No login succeeds with an empty password, so an empty secret
/// admits no node.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret from 32 unpredictable bytes.
    pub fn new(bytes: [u8; 32]) -> Secret {
        Secret(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the digits, for a login.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns true if there is no secret.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Prints nothing of the secret, to keep it out of logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_shows_no_secret() {
        let secret = Secret::new([0xab; 32]);
        assert_eq!(secret.reveal(), "ab".repeat(32));
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
