//! The client's side of SCRAM-SHA-512. Source: RFC 5802.

use super::frame::invalid;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha512};
use std::io;

/// Maximum number of rounds, so that a broken server cannot keep the client busy.
const ITERATIONS_MAX: u32 = 1_000_000;

/// An exchange whose first message was sent.
pub(crate) struct Client {
    password: String,
    bare: String,
    nonce: String,
}

impl Client {
    /// Creates an exchange. `nonce` must be new for each exchange, printable, and without commas.
    pub(crate) fn new(user: &str, password: &str, nonce: &str) -> Client {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={user},r={nonce}");
        Client { password: password.to_owned(), bare, nonce: nonce.to_owned() }
    }

    /// Returns the first message.
    pub(crate) fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Returns the second message, and the answer that the server must send.
    pub(crate) fn last(&self, server_first: &str) -> io::Result<(String, String)> {
        let mut fields = server_first.split(',');
        let mut field = |name: &str| {
            fields
                .next()
                .and_then(|field| field.strip_prefix(name))
                .ok_or_else(|| invalid("SCRAM message of the server"))
        };
        let nonce = field("r=")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(invalid("the server's nonce does not extend ours"));
        }
        let salt = STANDARD.decode(field("s=")?).map_err(|_| invalid("salt"))?;
        let iterations = field("i=")?.parse().map_err(|_| invalid("iterations"))?;
        if iterations > ITERATIONS_MAX {
            return Err(invalid("too many iterations"));
        }
        let mut salted = [0; 64];
        pbkdf2::pbkdf2_hmac::<Sha512>(self.password.as_bytes(), &salt, iterations, &mut salted);
        let client_key = hmac(&salted, b"Client Key");
        let server_key = hmac(&salted, b"Server Key");
        let without_proof = format!("c=biws,r={nonce}");
        let message = format!("{},{server_first},{without_proof}", self.bare);
        let signature = hmac(&Sha512::digest(&client_key), message.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let expected = format!("v={}", STANDARD.encode(hmac(&server_key, message.as_bytes())));
        Ok((format!("{without_proof},p={}", STANDARD.encode(proof)), expected))
    }
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha512>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_gives_proof_and_signature() {
        // Values from an independent program: user "user", password "pencil", 4096 rounds.
        let client = Client::new("user", "pencil", "abc");
        assert_eq!(client.first(), "n,,n=user,r=abc");
        let (last, expected) = client.last("r=abcdef,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096").unwrap();
        let proof = "2bJefTTp+QRJau3Xj5GSKc+PhT2P7k+AYUBvTAlYVB61fdK/ZM5SFYl/eM0iXlmryfVK+c4XswidMqlpUQyHEA==";
        let signature = "9HN3CiCxUV+TQ5rrLjOkL/gQkNOseIhffRtzJtLOxUngCLzjGfRH3EnlbquukWEq+3Dm5X8h9AMtIdr9+n9+3g==";
        assert_eq!(last, format!("c=biws,r=abcdef,p={proof}"));
        assert_eq!(expected, format!("v={signature}"));
    }

    #[test]
    fn a_server_that_does_not_extend_the_nonce_is_refused() {
        let client = Client::new("user", "pencil", "abc");
        for message in [
            "",
            "r=abd,s=,i=1",
            "r=abc,s=,i=1",
            "r=abcd,s=!,i=1",
            "r=abcd,s=,i=x",
            "r=abcd,s=,i=2000000",
        ] {
            assert!(client.last(message).is_err(), "{message}");
        }
    }
}
