//! Users, roles and SASL.
//!
//! A node stores no passwords: a [`User`] has salted hashes, which verify both SCRAM proofs and plain passwords.
//! The rights of a user follow from the roles, each with the part of the data that it covers.
//!
//! ```text
//! first connection   AUTH SCRAM-SHA512 ─► sasl::start ─► Continue ─► Session::step ─► Done { user }
//! HTTP request       Basic name:password ─► Users::check ─► remembered, or PasswordCheck::run on a thread for that
//! API token          Bearer text ─► Users::login_by_token
//! any request        Users::holder(login).may(Privilege::ReadData, keyspace)
//! administration     UserChange ─► Users::apply, on each node in the same order
//! ```
//!
//! Nothing here reads a clock, a random source or a file: salts, nonces and the process secret are arguments.
//!
//! Passwords and names are used as their UTF-8 bytes. SASLprep (RFC 4013) does not change ASCII; for other text
//! clients would have to normalise, which the official SDKs do not do either.

mod backup;
mod change;
mod credentials;
mod hash;
mod login;
mod policy;
mod redaction;
mod role;
pub mod sasl;
mod scram_client;
mod session;
mod throttle;
mod token;
mod user;
mod users;

pub use backup::{BackupPart, Restored, UsersBackup};
pub use change::{Edit, Refused, UserChange, UserEdit};
pub use credentials::{Credentials, ITERATIONS, SALT_BYTES};
pub use login::{Check, Login, PasswordCheck};
pub use policy::PasswordPolicy;
pub use redaction::{Redaction, UserData, unmarked};
pub use role::{Keyspace, Privilege, Role, RoleError, RoleKind};
pub use scram_client::{ScramClient, ScramProof};
pub use session::BrowserSession;
pub use throttle::{Failure, Throttle};
pub use token::{ApiToken, person, user_of_token};
pub use user::{Domain, Group, User};
pub use users::{ANALYTICS, BACKUP, INTERNAL, Users, analytics_password, backup_password};
