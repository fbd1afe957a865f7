//! Published exchanges, complete exchanges with a small client, and error cases.

use super::*;
use crate::{Role, SALT_BYTES, User};
use proptest::prelude::*;

fn users() -> Users {
    let mut users = Users::new([9; 32]);
    users.insert(User::new("ann", "secret", vec![Role::admin()], [1; SALT_BYTES]));
    users.insert(User::new("a=b,c", "päss", vec![], [2; SALT_BYTES]));
    users
}

const SCRAM: [(Mechanism, Hash); 3] = [
    (Mechanism::ScramSha512, Hash::Sha512),
    (Mechanism::ScramSha256, Hash::Sha256),
    (Mechanism::ScramSha1, Hash::Sha1),
];

/// An independent client, so that it does not share errors with the server.
struct Client {
    hash: Hash,
    password: &'static str,
    bare: String,
    header: &'static str,
}

impl Client {
    fn new(hash: Hash, name: &str, password: &'static str, nonce: &str) -> Client {
        let name = name.replace('=', "=3D").replace(',', "=2C");
        Client { hash, password, bare: format!("n={name},r={nonce}"), header: "n,," }
    }

    fn first(&self) -> Vec<u8> {
        format!("{}{}", self.header, self.bare).into_bytes()
    }

    /// Returns the second message, and the signature that the server must reply with.
    fn last(&self, server_first: &[u8]) -> (Vec<u8>, String) {
        let server_first = std::str::from_utf8(server_first).unwrap();
        let fields: Vec<&str> = server_first.split(',').collect();
        let salt = STANDARD.decode(&fields[1][2..]).unwrap();
        let rounds = fields[2][2..].parse().unwrap();
        let salted = self.hash.stretch(self.password.as_bytes(), &salt, rounds);
        let client_key = self.hash.hmac(&salted, &[b"Client Key"]);
        let server_key = self.hash.hmac(&salted, &[b"Server Key"]);
        let without_proof = format!("c={},{}", STANDARD.encode(self.header), fields[0]);
        let message = format!("{},{server_first},{without_proof}", self.bare);
        let signature = self.hash.hmac(&self.hash.digest(&client_key), &[message.as_bytes()]);
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let last = format!("{without_proof},p={}", STANDARD.encode(proof));
        (
            last.into_bytes(),
            format!("v={}", STANDARD.encode(self.hash.hmac(&server_key, &[message.as_bytes()]))),
        )
    }
}

/// Plays a complete exchange. Returns the user if the server accepted the client and its signature is
/// correct.
fn log_in(mechanism: Mechanism, client: &Client) -> Option<String> {
    let users = users();
    let Step::Continue { reply, session } =
        Session::start(mechanism, &client.first(), &users, b"server nonce")
    else {
        return None;
    };
    assert_eq!(session.mechanism(), mechanism);
    let (last, expected) = client.last(&reply);
    match session.step(&last) {
        Step::Done { login, reply } => {
            assert_eq!(String::from_utf8(reply).unwrap(), expected);
            Some(login.user)
        }
        Step::Failed => None,
        Step::Continue { .. } | Step::Hash(_) => panic!("SCRAM has two messages"),
    }
}

/// The exchanges printed in RFC 5802, section 5, and RFC 7677, section 3: user "user", password "pencil".
#[test]
fn published_exchanges_hold() {
    let table = [
        (
            Hash::Sha1,
            "fyko+d2lbbFgONRv9qkxdawL",
            "3rfcNHYJY1ZVvWVs7j",
            "QSXCR+Q6sek8bf92",
            "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ),
        (
            Hash::Sha256,
            "rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ];
    for (hash, client_nonce, server_nonce, salt, proof, signature) in table {
        let salt_bytes = STANDARD.decode(salt).unwrap();
        let salted = Salted::derive(hash, "pencil", &salt_bytes, 4096);
        let nonce = format!("{client_nonce}{server_nonce}");
        let message = format!("n=user,r={client_nonce},r={nonce},s={salt},i=4096,c=biws,r={nonce}");
        let proof = STANDARD.decode(proof).unwrap();
        let signed = salted.check(hash, message.as_bytes(), &proof).expect("the proof holds");
        assert_eq!(STANDARD.encode(signed), signature);
    }
}

#[test]
fn every_mechanism_accepts_the_right_password() {
    for (mechanism, hash) in SCRAM {
        let client = Client::new(hash, "ann", "secret", "abc");
        assert_eq!(log_in(mechanism, &client).as_deref(), Some("ann"));
        let client = Client::new(hash, "a=b,c", "päss", "abc");
        assert_eq!(log_in(mechanism, &client).as_deref(), Some("a=b,c"));
    }
    let users = users();
    let plain = || Session::start(Mechanism::Plain, b"\0ann\0secret", &users, b"");
    let Step::Hash(check) = plain() else { panic!("nobody has seen the password") };
    assert_eq!(check.run().unwrap().user, "ann");
    let Step::Done { login, reply } = plain() else { panic!("the password is remembered") };
    assert_eq!((login.user.as_str(), reply.as_slice()), ("ann", b"".as_slice()));
}

#[test]
fn nonces_are_opaque_printable_text() {
    let nonce = "0x64 0xffffffda =x= 0x1";
    let client = Client::new(Hash::Sha512, "ann", "secret", nonce);
    assert_eq!(log_in(Mechanism::ScramSha512, &client).as_deref(), Some("ann"));
}

#[test]
fn wrong_passwords_and_unknown_users_fail_at_the_end() {
    for (mechanism, hash) in SCRAM {
        for (name, password) in [("ann", "Secret"), ("ann", ""), ("bob", "secret")] {
            let client = Client::new(hash, name, password, "abc");
            assert!(matches!(
                Session::start(mechanism, &client.first(), &users(), b"n"),
                Step::Continue { .. }
            ));
            assert_eq!(log_in(mechanism, &client), None, "{name}");
        }
    }
}

#[test]
fn a_client_can_claim_support_for_channel_binding_without_using_it() {
    let mut client = Client::new(Hash::Sha256, "ann", "secret", "abc");
    client.header = "y,,";
    assert_eq!(log_in(Mechanism::ScramSha256, &client).as_deref(), Some("ann"));
    client.header = "n,a=ann,";
    assert_eq!(log_in(Mechanism::ScramSha256, &client).as_deref(), Some("ann"));
    client.header = "n,a=bob,";
    assert_eq!(log_in(Mechanism::ScramSha256, &client), None);
    client.header = "p=tls-unique,,";
    assert_eq!(log_in(Mechanism::ScramSha256, &client), None);
}

#[test]
fn malformed_first_messages_fail() {
    for message in [
        "",
        "n",
        "n,",
        "n,,",
        "n,,n=ann",
        "n,,r=x,n=ann",
        "n,,n=ann,r=",
        "n,,n=,r=x",
        "n,,n=a=b,r=x",
        "n,,n=a=2,r=x",
        "x,,n=ann,r=x",
        "n,,m=ext,n=ann,r=x",
        "n,,n=ann,r=\u{7}",
        "n,,n=ann,r=é",
    ] {
        let step = Session::start(Mechanism::ScramSha512, message.as_bytes(), &users(), b"n");
        assert!(matches!(step, Step::Failed), "{message:?}");
    }
}

#[test]
fn altered_second_messages_fail() {
    let client = Client::new(Hash::Sha1, "ann", "secret", "abc");
    let alter = |from: &str, to: &str| {
        let Step::Continue { reply, session } =
            Session::start(Mechanism::ScramSha1, &client.first(), &users(), b"n")
        else {
            panic!("the first message is right");
        };
        let (last, _) = client.last(&reply);
        let altered = String::from_utf8(last).unwrap().replace(from, to);
        matches!(session.step(altered.as_bytes()), Step::Done { .. })
    };
    assert!(alter("", ""), "unaltered it passes");
    assert!(!alter("c=biws", "c=eSws"));
    assert!(!alter("c=biws,", ""));
    assert!(!alter("r=abc", "r=abd"));
    assert!(!alter(",p=", ",p=AAAA"));
    assert!(!alter(",p=", ",q="));
    assert!(!alter(",p=", ",x=1,p="));
}

#[test]
fn malformed_plain_messages_fail() {
    for message in [
        "",
        "\0",
        "ann\0secret",
        "\0ann",
        "\0ann\0secret\0",
        "\0ann\0wrong",
        "bob\0ann\0secret",
        "\0bob\0secret",
    ] {
        let step = Session::start(Mechanism::Plain, message.as_bytes(), &users(), b"");
        let is_refused = match step {
            Step::Failed => true,
            Step::Hash(check) => check.run().is_none(),
            Step::Done { .. } | Step::Continue { .. } => false,
        };
        assert!(is_refused, "{message:?}");
    }
}

#[test]
fn mechanisms_are_listed_by_name_strongest_first() {
    let names: Vec<&str> = Mechanism::ALL.iter().map(|mechanism| mechanism.name()).collect();
    assert_eq!(names.join(" "), Mechanism::list(true));
    for mechanism in Mechanism::ALL {
        assert_eq!(Mechanism::parse(mechanism.name().as_bytes()), Some(mechanism));
    }
    assert_eq!(Mechanism::parse(b"CRAM-MD5"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_message_panics(
        first in "([ny],(a=[a=,2C]{0,4})?,)?(n=[a-z=23CD,]{0,6})?(,r=[ -~]{0,6})?",
        second in "(c=biws)?(,r=[ -~]{0,8})?(,p=[A-Za-z0-9+/=]{0,12})?",
        bytes in proptest::collection::vec(any::<u8>(), 0..32),
    ) {
        // No users, because hashing their passwords would take most of the time.
        let users = Users::new([0; 32]);
        for message in [first.as_bytes(), &bytes] {
            if let Step::Continue { session, .. } = Session::start(Mechanism::ScramSha256, message, &users, b"n") {
                let step = session.step(second.as_bytes());
                prop_assert!(matches!(step, Step::Failed));
            }
            let step = Session::start(Mechanism::ScramSha1, message, &users, b"n");
            if let Step::Continue { session, .. } = step {
                prop_assert!(matches!(session.step(&bytes), Step::Failed));
            }
        }
    }
}
