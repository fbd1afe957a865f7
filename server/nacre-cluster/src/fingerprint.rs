//! Fingerprints by which nodes identify each other's keys.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The SHA-256 of a node's public key, in DER with its algorithm (SubjectPublicKeyInfo, RFC 5280).
///
/// Formatted as 64 lower-case hexadecimal digits. Parsing accepts both cases, and colons between bytes as other tools
/// print them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fingerprint(pub [u8; 32]);

/// The text is not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint has 64 hexadecimal digits")]
pub struct NoFingerprint;

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, NoFingerprint> {
        let mut digits = text.trim().chars().filter(|character| *character != ':');
        let mut bytes = [0; 32];
        for byte in &mut bytes {
            let mut digit = || digits.next()?.to_digit(16);
            let (high, low) = (digit().ok_or(NoFingerprint)?, digit().ok_or(NoFingerprint)?);
            *byte = (high << 4 | low) as u8;
        }
        if digits.next().is_some() { Err(NoFingerprint) } else { Ok(Fingerprint(bytes)) }
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = NoFingerprint;

    fn try_from(text: String) -> Result<Fingerprint, NoFingerprint> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_was_written_and_as_tools_print_it() {
        let fingerprint = Fingerprint(std::array::from_fn(|index| (index * 7) as u8));
        let text = fingerprint.to_string();
        assert_eq!(text.len(), 64);
        assert_eq!(text.parse(), Ok(fingerprint));
        let bytes: Vec<String> = fingerprint.0.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(bytes.join(":").parse(), Ok(fingerprint));
        for wrong in ["", "00", &text[1..], &format!("{text}0"), &text.replace('0', "g"), "é"] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(NoFingerprint), "{wrong:?}");
        }
    }
}
