//! Errors of the key-value and DCP clients.

use nacre_protocol::{Opcode, Status};
use std::io::{self, ErrorKind};

/// The error of a request. The text is a sentence for the person at a terminal, with advice if possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing listens at the address, or the address is invalid. The caller can try another node; the user can correct
    /// the address.
    #[error("cannot connect to {address}: {source}{}", connect_hint(source))]
    Connect {
        /// The address as given.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The TLS handshake failed. The operator or the caller must change certificates.
    #[error("cannot encrypt {address}: {reason}{}", encrypt_hint(reason))]
    Encrypt {
        /// The address as given.
        address: String,
        /// The error of the TLS library.
        reason: String,
    },
    /// The server replied with a status other than success.
    #[error("cannot {purpose}: {}", describe_status(*opcode, *status))]
    Refused {
        /// Purpose of the request, such as `open the bucket travel`.
        purpose: String,
        /// Opcode of the request.
        opcode: Opcode,
        /// Status of the reply.
        status: u16,
    },
    /// The server does not prove that it has the password, or its challenge is malformed. The address is probably
    /// wrong.
    #[error("cannot {purpose}: {reason}")]
    Login {
        /// `log in as` and the name of the user.
        purpose: String,
        /// Reason.
        reason: &'static str,
    },
    /// The connection broke. A write in flight may have happened.
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
    /// The server closed the connection. A write in flight may have happened.
    #[error("the server closed the connection")]
    Closed,
    /// No reply arrived in time. A write in flight may have happened; the connection must not be used any more.
    #[error("the server did not answer within the timeout")]
    TimedOut,
    /// The received bytes violate the protocol. The port belongs to another service, or the server has a bug.
    #[error("{0}")]
    Malformed(String),
    /// No node serves the vBucket, and that did not change in time. The operator must check the cluster.
    #[error("no node serves the vBucket {0}: `nacre cluster status` shows why")]
    NotServed(u16),
    /// The request cannot be encoded, for instance because of a long key. The caller must change it.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Returns true if the same request may succeed later, or at another node.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Connect { .. } | Error::Broken(_) | Error::Closed | Error::TimedOut => true,
            Error::NotServed(_) => true,
            Error::Refused { status, .. } => is_passing(*status),
            Error::Encrypt { .. }
            | Error::Login { .. }
            | Error::Malformed(_)
            | Error::Invalid(_) => false,
        }
    }

    /// Returns true if a write may have happened despite the error.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Error::Broken(_) | Error::Closed | Error::TimedOut => true,
            Error::Refused { status, .. } => *status == Status::SyncWriteAmbiguous as u16,
            _ => false,
        }
    }

    /// Returns the status with which the server refused the request.
    pub fn status(&self) -> Option<u16> {
        match self {
            Error::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(crate) fn of_stream(error: io::Error) -> Error {
        match error.kind() {
            // Either can be a timeout, depending on the system.
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::TimedOut,
            _ => Error::Broken(error),
        }
    }
}

/// Converts the error to its sentence, for commands.
impl From<Error> for String {
    fn from(error: Error) -> String {
        error.to_string()
    }
}

/// Returns true for temporary statuses: the server is busy, or the vBucket has moved.
pub(crate) fn is_passing(status: u16) -> bool {
    const PASSING: [Status; 6] = [
        Status::NotMyVbucket,
        Status::TemporaryFailure,
        Status::NoMemory,
        Status::Busy,
        Status::SyncWriteInProgress,
        Status::SyncWriteReCommitInProgress,
    ];
    PASSING.iter().any(|passing| *passing as u16 == status)
}

fn connect_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::ConnectionRefused => ": does a node run there?",
        ErrorKind::InvalidInput => ": name host and port, as 127.0.0.1:11210",
        _ => "",
    }
}

fn encrypt_hint(reason: &str) -> &'static str {
    if reason.contains("UnknownIssuer") { ": name its authority with --cacert" } else { "" }
}

/// Describes a status in words, with advice if possible.
pub fn describe_status(opcode: Opcode, status: u16) -> String {
    let is = |known: Status| status == known as u16;
    let is_write = opcode == Opcode::Set;
    let hint = match opcode {
        Opcode::SaslAuth | Opcode::SaslStep if is(Status::AuthError) => {
            ": look at the user and the password"
        }
        Opcode::SelectBucket if is(Status::AccessDenied) => {
            ": there is no such bucket, or the user may not open it"
        }
        Opcode::GetCollectionId if is(Status::InvalidArguments) => {
            ": a collection is named as scope.name"
        }
        _ if is_write && is(Status::AccessDenied) => ": the user may not write there",
        _ => "",
    };
    let known = Status::TABLE.iter().find(|(known, ..)| is(*known));
    let text = known.map_or_else(
        || format!("status 0x{status:02x}"),
        |(_, symbol, text, _)| format!("{text} ({symbol})"),
    );
    format!("{text}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_reason_and_the_remedy() {
        assert_eq!(
            describe_status(Opcode::SaslAuth, 0x20),
            "Authentication failed (AUTH_ERROR): look at the user and the password"
        );
        assert_eq!(
            describe_status(Opcode::SelectBucket, 0x24),
            "Not authorised (EACCESS): there is no such bucket, or the user may not open it"
        );
        assert_eq!(describe_status(Opcode::GetCollectionId, 0x8c), "Unknown scope (UNKNOWN_SCOPE)");
        assert_eq!(describe_status(Opcode::Set, 0x7777), "status 0x7777");
    }

    #[test]
    fn an_ambiguous_write_differs_from_one_that_was_not_sent() {
        let refused =
            |status| Error::Refused { purpose: String::new(), opcode: Opcode::Set, status };
        assert!(Error::Closed.is_ambiguous() && Error::Closed.is_retryable());
        assert!(refused(0x86).is_retryable() && !refused(0x86).is_ambiguous());
        assert!(refused(0xa3).is_ambiguous() && !refused(0xa3).is_retryable());
        assert!(!refused(0x24).is_retryable());
    }
}
