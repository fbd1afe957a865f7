//! The server's side of SASL, as a state machine over messages.
//!
//! ```text
//! client                                                        server
//! AUTH SCRAM-SHA512   n,,n=ann,r=abc                    ──────►  start
//!                     r=abcXYZ,s=<salt>,i=15000         ◄──────  Continue
//! STEP                c=biws,r=abcXYZ,p=<proof>         ──────►  step
//!                     v=<signature>                     ◄──────  Done, or nothing on failure
//! ```
//!
//! For a user that does not exist, the exchange has the same messages, with a made-up salt, and fails at the end.
//! Nonces are opaque printable text, including spaces: some clients send words like `0x64 0xffffffda`. Not supported:
//! channel binding (`p=` fails), and SASLprep beyond ASCII (see the crate's documentation).
//!
//! Sources: RFC 5802 (SCRAM), RFC 7677 (SHA-256), RFC 4616 (PLAIN); names of mechanisms as in Couchbase.

use crate::credentials::Salted;
use crate::hash::Hash;
use crate::login::{Check, Login, PasswordCheck};
use crate::users::{Users, login_of};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A login mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// SCRAM over SHA-512.
    ScramSha512,
    /// SCRAM over SHA-256.
    ScramSha256,
    /// SCRAM over SHA-1.
    ScramSha1,
    /// The plain password. Clients use it on encrypted connections, or when configured to.
    Plain,
}

impl Mechanism {
    /// Every mechanism, strongest first.
    pub const ALL: [Mechanism; 4] =
        [Mechanism::ScramSha512, Mechanism::ScramSha256, Mechanism::ScramSha1, Mechanism::Plain];

    /// Returns the list of mechanisms for clients. `PLAIN`, which sends the password, is included only on a
    /// confidential connection.
    pub fn list(confidential: bool) -> &'static str {
        if confidential {
            "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN"
        } else {
            "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1"
        }
    }

    /// Returns the mechanism with this name.
    pub fn parse(name: &[u8]) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name().as_bytes() == name)
    }

    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::ScramSha512 => "SCRAM-SHA512",
            Mechanism::ScramSha256 => "SCRAM-SHA256",
            Mechanism::ScramSha1 => "SCRAM-SHA1",
            Mechanism::Plain => "PLAIN",
        }
    }

    fn hash(self) -> Option<Hash> {
        match self {
            Mechanism::ScramSha512 => Some(Hash::Sha512),
            Mechanism::ScramSha256 => Some(Hash::Sha256),
            Mechanism::ScramSha1 => Some(Hash::Sha1),
            Mechanism::Plain => None,
        }
    }
}

/// Result of processing a client's message.
#[derive(Debug)]
pub enum Step {
    /// The exchange continues: send `reply`, and pass the next message to `session`.
    Continue {
        /// The server's message.
        reply: Vec<u8>,
        /// The state that awaits the client's next message.
        session: Session,
    },
    /// The client has sent a password that must be hashed to be verified: call [`PasswordCheck::run`], not on a thread
    /// that others wait for.
    Hash(Box<PasswordCheck>),
    /// The client is authenticated.
    Done {
        /// The login.
        login: Login,
        /// The server's last message, which SCRAM clients verify. May be empty.
        reply: Vec<u8>,
    },
    /// The login is refused. The client does not learn the reason.
    Failed,
}

/// An exchange that waits for the client's proof. The next message ends it, so [`Session::step`] consumes it.
#[derive(Debug)]
pub struct Session {
    mechanism: Mechanism,
    hash: Hash,
    /// The name sent by the client, for the log.
    name: String,
    /// `None` if the user does not exist: then even a proof that matches by chance must fail.
    login: Option<Login>,
    salted: Salted,
    /// Expected `c=` of the client's next message: its first header in base64.
    binding: String,
    nonce: String,
    /// The messages so far, which the proof covers.
    transcript: String,
}

impl Session {
    /// Processes a client's first message.
    ///
    /// `server_nonce` is random, at least 16 bytes; it is encoded as printable text.
    pub fn start(mechanism: Mechanism, message: &[u8], users: &Users, server_nonce: &[u8]) -> Step {
        let step = match mechanism.hash() {
            Some(hash) => scram_first(mechanism, hash, message, users, server_nonce),
            None => plain(message, users),
        };
        step.unwrap_or(Step::Failed)
    }

    /// Returns the mechanism of the exchange, which the client names again with its next message.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Returns the name sent by the client.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Processes the client's second message. Returns [`Step::Done`] or [`Step::Failed`].
    pub fn step(self, message: &[u8]) -> Step {
        match (self.check(message), self.login) {
            (Some(signature), Some(login)) => {
                let reply = format!("v={}", STANDARD.encode(signature)).into_bytes();
                Step::Done { login, reply }
            }
            _ => Step::Failed,
        }
    }

    /// Verifies `c=biws,r=<nonce>,p=<proof>`. Returns the server's signature.
    fn check(&self, message: &[u8]) -> Option<Vec<u8>> {
        let (without_proof, proof) = std::str::from_utf8(message).ok()?.rsplit_once(",p=")?;
        let proof = STANDARD.decode(proof).ok()?;
        let mut fields = without_proof.split(',');
        if fields.next()?.strip_prefix("c=")? != self.binding {
            return None;
        }
        if fields.next()?.strip_prefix("r=")? != self.nonce {
            return None;
        }
        let covered = format!("{},{without_proof}", self.transcript);
        self.salted.check(self.hash, covered.as_bytes(), &proof)
    }
}

/// Parses `n,,n=<user>,r=<nonce>` and replies with the salt; `None` if the message is malformed.
fn scram_first(
    mechanism: Mechanism,
    hash: Hash,
    message: &[u8],
    users: &Users,
    server_nonce: &[u8],
) -> Option<Step> {
    let text = std::str::from_utf8(message).ok()?;
    let (flag, rest) = text.split_once(',')?;
    let (acting_as, bare) = rest.split_once(',')?;
    // "n" and "y" both mean that channel binding is not used.
    if !matches!(flag, "n" | "y") {
        return None;
    }
    let mut fields = bare.split(',');
    let user = unescape(fields.next()?.strip_prefix("n=")?)?;
    let client_nonce = fields.next()?.strip_prefix("r=")?;
    let printable = |byte: u8| matches!(byte, b' '..=b'~');
    if client_nonce.is_empty() || !client_nonce.bytes().all(printable) {
        return None;
    }
    // Authorization as another user is not supported.
    if !acting_as.is_empty() && unescape(acting_as.strip_prefix("a=")?)? != user {
        return None;
    }

    let salted = users.credentials(&user).of(hash).clone();
    let nonce = format!("{client_nonce}{}", STANDARD.encode(server_nonce));
    let (salt, iterations) = (STANDARD.encode(&salted.salt), salted.iterations);
    let reply = format!("r={nonce},s={salt},i={iterations}");
    let header = &text[..text.len() - bare.len()];
    let session = Session {
        mechanism,
        hash,
        login: users.get(&user).filter(|user| !user.locked).map(login_of),
        name: user,
        binding: STANDARD.encode(header),
        transcript: format!("{bare},{reply}"),
        nonce,
        salted,
    };
    Some(Step::Continue { reply: reply.into_bytes(), session })
}

/// Decodes a user name: `=2C` is a comma, `=3D` an equals sign; any other use of an equals sign is invalid.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = match part.get(..2)? {
            "2C" => (',', &part[2..]),
            "3D" => ('=', &part[2..]),
            _ => return None,
        };
        plain.push(sign);
        plain.push_str(rest);
    }
    (!plain.is_empty()).then_some(plain)
}

/// Parses `[acting as] NUL user NUL password`.
fn plain(message: &[u8], users: &Users) -> Option<Step> {
    let mut fields = std::str::from_utf8(message).ok()?.split('\0');
    let (acting_as, user, password) = (fields.next()?, fields.next()?, fields.next()?);
    if fields.next().is_some() || !(acting_as.is_empty() || acting_as == user) {
        return None;
    }
    Some(match users.check(user, password) {
        Check::Granted(login) => Step::Done { login, reply: Vec::new() },
        Check::Denied => Step::Failed,
        Check::Hash(check) => Step::Hash(check),
    })
}

#[cfg(test)]
mod tests;
