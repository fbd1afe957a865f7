//! Digest authentication (RFC 7616): a client proves that it knows a name and a password without sending the password.
//!
//! ```text
//! server   401, WWW-Authenticate: Digest realm="r", nonce="n", qop="auth", algorithm=SHA-256
//! client   Authorization: Digest username="ann", realm="r", nonce="n", uri="/p", response="…", …
//! ```

use md5::Md5;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A request for which a server requires authentication.
pub struct AuthenticationRequest<'a> {
    pub method: &'a str,
    /// Path and query.
    pub uri: &'a str,
    pub user: &'a str,
    pub password: &'a str,
    /// A client nonce, which is different each time.
    pub nonce: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hash {
    Md5,
    Sha256,
}

impl Hash {
    fn hex(self, text: &str) -> String {
        let bytes = match self {
            Hash::Md5 => Md5::digest(text).to_vec(),
            Hash::Sha256 => Sha256::digest(text).to_vec(),
        };
        bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a String takes all");
            hex
        })
    }
}

/// A challenge that the client can answer.
#[derive(Debug)]
struct Challenge {
    hash: Hash,
    /// The algorithm as the server names it; empty if the server does not name one.
    algorithm: String,
    realm: String,
    nonce: String,
    opaque: Option<String>,
    /// True if the server offers the quality of protection `auth`, for which requests are counted; false if the server
    /// offers none.
    counts: bool,
}

/// Returns the header `authorization` for the strongest challenge in the values of `www-authenticate`, or `None` if the
/// client supports none.
pub fn answer(challenges: &[String], asked: &AuthenticationRequest<'_>) -> Option<String> {
    let known = challenges.iter().flat_map(|value| parse(value));
    let challenge = known.max_by_key(|challenge| challenge.hash)?;
    let Challenge { hash, algorithm, realm, nonce, opaque, counts } = challenge;
    let mut secret = hash.hex(&format!("{}:{realm}:{}", asked.user, asked.password));
    if algorithm.to_ascii_lowercase().ends_with("-sess") {
        secret = hash.hex(&format!("{secret}:{nonce}:{}", asked.nonce));
    }
    let what = hash.hex(&format!("{}:{}", asked.method, asked.uri));
    let response = match counts {
        true => hash.hex(&format!("{secret}:{nonce}:00000001:{}:auth:{what}", asked.nonce)),
        false => hash.hex(&format!("{secret}:{nonce}:{what}")),
    };
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut header = format!(
        "Digest username={}, realm={}, nonce={}, uri={}, response=\"{response}\"",
        quoted(asked.user),
        quoted(&realm),
        quoted(&nonce),
        quoted(asked.uri)
    );
    if !algorithm.is_empty() {
        header += &format!(", algorithm={algorithm}");
    }
    if counts {
        header += &format!(", qop=auth, nc=00000001, cnonce={}", quoted(asked.nonce));
    }
    if let Some(opaque) = opaque {
        header += &format!(", opaque={}", quoted(&opaque));
    }
    Some(header)
}

/// Returns the digest challenges in a value of the header, which may contain challenges of other schemes too.
fn parse(value: &str) -> Vec<Challenge> {
    let mut all = Vec::new();
    let mut fields: Option<BTreeMap<String, String>> = None;
    let mut rest = value.trim_start_matches([',', ' ', '\t']);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c == ',' || c.is_whitespace());
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let behind = behind.trim_start();
        if let Some(behind) = behind.strip_prefix('=') {
            let (text, behind) = word_or_quoted(behind.trim_start());
            if let Some(fields) = &mut fields {
                fields.entry(word.to_ascii_lowercase()).or_insert(text);
            }
            rest = behind;
        } else {
            // A word without a value is the name of an authentication scheme.
            all.extend(fields.take().and_then(challenge));
            fields = word.eq_ignore_ascii_case("digest").then(BTreeMap::new);
            rest = behind;
        }
        rest = rest.trim_start_matches([',', ' ', '\t']);
    }
    all.extend(fields.and_then(challenge));
    all
}

/// Returns the value at the start of a text, and the rest of the text.
fn word_or_quoted(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c == ',' || c.is_whitespace()).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut found = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (found, &quoted[at + 1..]),
            '\\' => found.extend(chars.next().map(|(_, escaped)| escaped)),
            c => found.push(c),
        }
    }
    (found, "")
}

fn challenge(mut fields: BTreeMap<String, String>) -> Option<Challenge> {
    let algorithm = fields.remove("algorithm").unwrap_or_default();
    let hash = match algorithm.to_ascii_lowercase().as_str() {
        "" | "md5" | "md5-sess" => Hash::Md5,
        "sha-256" | "sha-256-sess" => Hash::Sha256,
        _ => return None,
    };
    let counts = match fields.remove("qop") {
        None => false,
        Some(known) if known.split(',').any(|qop| qop.trim().eq_ignore_ascii_case("auth")) => true,
        // The server offers only `auth-int`, which hashes the body and is rare.
        Some(_) => return None,
    };
    let (realm, nonce) = (fields.remove("realm")?, fields.remove("nonce")?);
    let opaque = fields.remove("opaque");
    // A line break would start another header.
    let is_plain = |text: &String| !text.contains(['\r', '\n', '\0']);
    let all_plain = [&algorithm, &realm, &nonce].into_iter().chain(&opaque).all(is_plain);
    all_plain.then_some(Challenge { hash, algorithm, realm, nonce, opaque, counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";

    fn mufasa(challenges: &[&str]) -> Option<String> {
        let asked = AuthenticationRequest {
            method: "GET",
            uri: "/dir/index.html",
            user: "Mufasa",
            password: "Circle of Life",
            nonce: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        };
        let challenges: Vec<String> = challenges.iter().map(|text| (*text).to_owned()).collect();
        answer(&challenges, &asked)
    }

    fn challenge(algorithm: &str) -> String {
        format!(
            "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", algorithm={algorithm}, nonce=\"{NONCE}\", opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""
        )
    }

    /// The examples in RFC 7616, section 3.9.1.
    #[test]
    fn answers_are_those_of_the_standard() {
        let md5 = mufasa(&[&challenge("MD5")]).unwrap();
        assert!(md5.contains("response=\"8ca523f5e9506fed4657c9700eebdbec\""), "{md5}");
        let sha = mufasa(&[&challenge("SHA-256")]).unwrap();
        let expected = "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1";
        assert!(sha.contains(&format!("response=\"{expected}\"")), "{sha}");
        assert!(sha.contains("algorithm=SHA-256, qop=auth, nc=00000001, cnonce="), "{sha}");
        assert!(sha.ends_with("opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""), "{sha}");
    }

    /// The example in RFC 2069 with its erratum, without a quality of protection.
    #[test]
    fn servers_of_the_older_standard_are_answered() {
        let asked = AuthenticationRequest {
            method: "GET",
            uri: "/dir/index.html",
            user: "Mufasa",
            password: "CircleOfLife",
            nonce: "unused",
        };
        let value = "Digest realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"";
        let header = answer(&[value.to_owned()], &asked).unwrap();
        assert!(header.contains("response=\"1949323746fe6a43ef61f9606e7febea\""), "{header}");
        assert!(!header.contains("cnonce"), "{header}");
    }

    #[test]
    fn the_stronger_of_several_challenges_is_answered() {
        let both = format!("{}, {}", challenge("MD5"), challenge("SHA-256"));
        for challenges in
            [vec![&both[..]], vec![&challenge("SHA-256"), "Basic realm=\"x\"", &challenge("MD5")]]
        {
            let header = mufasa(&challenges).unwrap();
            assert!(header.contains("algorithm=SHA-256"), "{header}");
        }
        let others = format!("Basic realm=\"a, Digest b\", Negotiate, {}", challenge("MD5"));
        assert!(mufasa(&[&others]).unwrap().contains("realm=\"http-auth@example.org\""));
    }

    #[test]
    fn unsupported_challenges_have_no_answer() {
        for value in [
            "",
            ",,,",
            "Basic realm=\"x\"",
            "Digest",
            "Digest realm=\"x\"",
            "Digest realm=\"x\", nonce=\"y\", algorithm=SHA-512-256",
            "Digest realm=\"x\", nonce=\"y\", qop=\"auth-int\"",
            "Digest realm=\"x",
            "Digest realm=\"x\r\nevil: 1\", nonce=\"y\"",
            "Digest =, =, \"",
        ] {
            assert_eq!(mufasa(&[value]), None, "{value}");
        }
    }

    #[test]
    fn quotes_are_escaped() {
        let header = mufasa(&["Digest realm=\"a \\\"b\\\" \\\\\", nonce=n"]).unwrap();
        assert!(header.contains("realm=\"a \\\"b\\\" \\\\\""), "{header}");
    }
}
