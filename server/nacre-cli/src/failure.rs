//! The failure of a command: a message for the user, and an exit status for scripts.

use nacre_client::{Error, RestError};
use std::fmt;

/// Advice for a node that cannot be reached.
const NEXT_NODE: &str = " (-c names another node, `nacre dev` starts one here)";

/// The kind of a failure, by what a script can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request was refused or failed: exit status 1.
    Failed,
    /// No node answers, or no node serves the request: exit status 3. The command can be repeated.
    Unreachable,
    /// The login is refused, or the user lacks a right: exit status 4.
    Denied,
}

/// The failure of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind, which determines the exit status.
    pub kind: Kind,
    /// The message for the user.
    pub reason: String,
}

impl Failure {
    /// Creates a failure of a kind.
    pub fn new(kind: Kind, reason: impl Into<String>) -> Failure {
        Failure { kind, reason: reason.into() }
    }

    /// Returns the exit status of the process. The parser returns 2 for a wrong command line.
    pub fn exit_status(&self) -> u8 {
        match self.kind {
            Kind::Failed => 1,
            Kind::Unreachable => 3,
            Kind::Denied => 4,
        }
    }

    /// Returns the same failure with another message.
    pub fn map(self, change: impl FnOnce(String) -> String) -> Failure {
        Failure { kind: self.kind, reason: change(self.reason) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure { kind: Kind::Failed, reason }
    }
}

impl From<&str> for Failure {
    fn from(reason: &str) -> Failure {
        Failure { kind: Kind::Failed, reason: reason.to_owned() }
    }
}

/// For commands that report only messages.
impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        failure.reason
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        /// Statuses of a refused login, and of a missing right.
        const DENIED: [u16; 2] =
            [nacre_protocol::Status::AuthError as u16, nacre_protocol::Status::AccessDenied as u16];
        let kind = match &error {
            Error::Connect { .. } | Error::NotServed(_) | Error::Closed | Error::TimedOut => {
                Kind::Unreachable
            }
            Error::Refused { status, .. } if DENIED.contains(status) => Kind::Denied,
            Error::Login { .. } => Kind::Denied,
            _ => Kind::Failed,
        };
        let next = if matches!(error, Error::Connect { .. }) { NEXT_NODE } else { "" };
        Failure { kind, reason: format!("{error}{next}") }
    }
}

impl From<RestError> for Failure {
    fn from(error: RestError) -> Failure {
        match error {
            RestError::Unreachable { .. } => {
                Failure::new(Kind::Unreachable, format!("{error}{NEXT_NODE}"))
            }
            other => other.to_string().into(),
        }
    }
}
