//! The client's side of SCRAM over SHA-256. Nodes use it to log in to each other, and commands to log in to nodes.
//!
//! ```text
//! n,,n=@nacre,r=abc                          ──────►
//!                                            ◄──────  r=abcdef,s=<salt>,i=15000
//! c=biws,r=abcdef,p=<proof>                  ──────►
//!                                            ◄──────  v=<signature>
//! ```
//!
//! The password is never sent, and the server proves that it has the password too. Sources: RFC 5802, RFC 7677.

use crate::hash::Hash;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Accepted rounds of stretching: the secret of nodes needs none, and more than the maximum would only cost time.
const ITERATIONS: std::ops::RangeInclusive<u32> = 1..=1_000_000;
/// `n,,` in base64: channel binding is not used.
const BINDING: &str = "biws";

/// One exchange of a client.
#[derive(Clone)]
pub struct ScramClient {
    password: String,
    nonce: String,
    /// The first message without its header.
    first: String,
}

/// The client's last message, and the expected reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramProof {
    /// The message to send.
    pub message: Vec<u8>,
    /// The expected reply.
    pub signature: Vec<u8>,
}

impl ScramClient {
    /// The name of the mechanism in requests.
    pub const MECHANISM: &str = "SCRAM-SHA256";

    /// Creates an exchange for `user`. `nonce` is random, at least 16 bytes.
    pub fn new(user: &str, password: &str, nonce: &[u8]) -> ScramClient {
        let nonce = STANDARD.encode(nonce);
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first = format!("n={user},r={nonce}");
        ScramClient { password: password.to_owned(), nonce, first }
    }

    /// Returns the first message.
    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first).into_bytes()
    }

    /// Returns the reply to the server's challenge; `None` if the challenge is invalid.
    pub fn prove(&self, challenge: &[u8]) -> Option<ScramProof> {
        let challenge = std::str::from_utf8(challenge).ok()?;
        let mut fields = challenge.split(',');
        let nonce = fields.next()?.strip_prefix("r=")?;
        let salt = STANDARD.decode(fields.next()?.strip_prefix("s=")?).ok()?;
        let iterations: u32 = fields.next()?.strip_prefix("i=")?.parse().ok()?;
        if !nonce.starts_with(&self.nonce) || !ITERATIONS.contains(&iterations) {
            return None;
        }
        let hash = Hash::Sha256;
        let stretched = hash.stretch(self.password.as_bytes(), &salt, iterations);
        let without_proof = format!("c={BINDING},r={nonce}");
        let covered = format!("{},{challenge},{without_proof}", self.first);
        let client_key = hash.hmac(&stretched, &[b"Client Key"]);
        let signature = hash.hmac(&hash.digest(&client_key), &[covered.as_bytes()]);
        let proof: Vec<u8> =
            client_key.iter().zip(signature).map(|(key, sign)| key ^ sign).collect();
        let server_key = hash.hmac(&stretched, &[b"Server Key"]);
        let signature = hash.hmac(&server_key, &[covered.as_bytes()]);
        Some(ScramProof {
            message: format!("{without_proof},p={}", STANDARD.encode(proof)).into_bytes(),
            signature: format!("v={}", STANDARD.encode(signature)).into_bytes(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sasl::{Mechanism, Session, Step};
    use crate::{User, Users};

    /// Returns true if the server accepts a client with this name and password; `None` if the exchange ends early.
    fn log_in(user: &str, password: &str) -> Option<bool> {
        let mut users = Users::new([7; 32]);
        users.insert(User::new("ann,=", "secret", Vec::new(), [1; crate::SALT_BYTES]));
        let client = ScramClient::new(user, password, &[3; 16]);
        let step = Session::start(Mechanism::ScramSha256, &client.first(), &users, &[9; 16]);
        let Step::Continue { reply, session } = step else { return None };
        let proof = client.prove(&reply)?;
        match session.step(&proof.message) {
            Step::Done { reply, .. } => Some(reply == proof.signature),
            _ => Some(false),
        }
    }

    #[test]
    fn client_and_server_prove_to_each_other_that_they_know_the_password() {
        assert_eq!(log_in("ann,=", "secret"), Some(true));
        assert_eq!(log_in("ann,=", "guess"), Some(false));
        assert_ne!(log_in("ann", "secret"), Some(true));
    }

    #[test]
    fn a_malformed_challenge_is_not_answered() {
        let client = ScramClient::new("ann", "secret", &[3; 16]);
        let nonce = STANDARD.encode([3; 16]);
        assert!(client.prove(format!("r={nonce}x,s=AAAA,i=4096").as_bytes()).is_some());
        for challenge in [
            "",
            "r=other,s=AAAA,i=4096",
            &format!("r={nonce}x,s=AAAA,i=0"),
            &format!("r={nonce}x,s=AAAA,i=4000000000"),
            &format!("r={nonce}x,s=?,i=4096"),
            &format!("r={nonce}x,s=AAAA"),
        ] {
            assert_eq!(client.prove(challenge.as_bytes()), None, "{challenge}");
        }
    }
}
