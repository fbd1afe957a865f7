//! The stored form of machine code: magic, hash of the component, checksum, code.
//!
//! wasmtime recognizes code from another version, but would run code that was damaged later.

use crate::Error;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

const MAGIC: [u8; 8] = *b"NACREAO1";
const HASH_BYTES: usize = 32;
const HEADER_BYTES: usize = MAGIC.len() + HASH_BYTES + 4;

/// Returns the artefact of `component`, which was compiled to `code`.
pub fn seal(component: &[u8], code: &[u8]) -> Vec<u8> {
    let hash = Sha256::digest(component);
    let mut artefact = Vec::with_capacity(HEADER_BYTES + code.len());
    artefact.extend_from_slice(&MAGIC);
    artefact.extend_from_slice(&hash);
    artefact.extend_from_slice(&checksum(&hash, code));
    artefact.extend_from_slice(code);
    artefact
}

/// Returns the hash of the component in hexadecimal, and the code.
pub fn open(artefact: &[u8]) -> Result<(String, &[u8]), Error> {
    let wrong = |what: &str| Err(Error::Artefact(what.into()));
    let Some((header, code)) = artefact.split_at_checked(HEADER_BYTES) else {
        return wrong("it is too short");
    };
    let (magic, rest) = header.split_at(MAGIC.len());
    let (hash, sum) = rest.split_at(HASH_BYTES);
    if magic != MAGIC {
        return wrong("it was made by another version");
    }
    if checksum(hash, code) != *sum {
        return wrong("it is damaged");
    }
    let mut text = String::with_capacity(2 * HASH_BYTES);
    for byte in hash {
        write!(text, "{byte:02x}").expect("a text takes all that is written to it");
    }
    Ok((text, code))
}

fn checksum(hash: &[u8], code: &[u8]) -> [u8; 4] {
    let mut sum = crc32fast::Hasher::new();
    sum.update(hash);
    sum.update(code);
    sum.finalize().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_altered_artefact_is_refused() {
        let good = seal(b"component", b"machine code");
        let (hash, code) = open(&good).unwrap();
        assert_eq!((hash.len(), &hash[..8], code), (64, "6985ca1f", &b"machine code"[..]));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(matches!(open(&bad), Err(Error::Artefact(_))), "byte {at}");
            assert!(open(&good[..at]).is_err(), "cut at {at}");
        }
    }
}
