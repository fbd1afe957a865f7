//! User data in logs: marked where a line is written, and replaced by hashes where the log may contain none.
//!
//! ```text
//! UserData(key) ─► <ud>key</ud> in a line ─► Redaction::redact ─► <ud>hash</ud>
//! ```

use crate::hash::Hash;
use std::fmt::{self, Display, Write};

/// Begin of user data in a line.
const BEGIN: &str = "<ud>";
/// End of user data in a line.
const END: &str = "</ud>";
/// Bytes of a hash that are shown, as hexadecimal digits.
const SHOWN_BYTES: usize = 8;

/// User data in a log line, such as the key of a document, a statement or the name of a user.
///
/// Formats the value between `<ud>` and `</ud>`. Escapes it, so that it stays on one line and cannot close the mark.
#[derive(Clone, Copy, Debug)]
pub struct UserData<T>(pub T);

impl<T: Display> Display for UserData<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let escaped = text.escape_debug().to_string().replace('<', "\\u{3c}");
        write!(f, "{BEGIN}{escaped}{END}")
    }
}

/// Returns a line without the marks, for readers who may see the values.
pub fn unmarked(line: &str) -> String {
    line.replace(BEGIN, "").replace(END, "")
}

/// Replaces marked user data by hashes.
///
/// Equal values have equal hashes under one salt, so that lines about one document can be found; without the salt, nobody can find a
/// value by trying candidates.
#[derive(Clone, PartialEq, Eq)]
pub struct Redaction {
    salt: Vec<u8>,
}

impl Redaction {
    /// Creates a redaction with a salt, which is a secret.
    pub fn new(salt: &[u8]) -> Redaction {
        Redaction { salt: salt.to_vec() }
    }

    /// Returns a line with a hash in place of each marked value. A mark that is not closed reaches to the end.
    pub fn redact(&self, line: &str) -> String {
        let mut redacted = String::with_capacity(line.len());
        let mut rest = line;
        while let Some((before, marked)) = rest.split_once(BEGIN) {
            let (value, after) = match marked.split_once(END) {
                Some(parts) => parts,
                None => (marked, ""),
            };
            redacted.push_str(before);
            redacted.push_str(BEGIN);
            for byte in self.hash(value) {
                // Writing to a text does not fail.
                let _ = write!(redacted, "{byte:02x}");
            }
            redacted.push_str(END);
            rest = after;
        }
        redacted.push_str(rest);
        redacted
    }

    fn hash(&self, value: &str) -> Vec<u8> {
        let mut digest = Hash::Sha256.hmac(&self.salt, &[value.as_bytes()]);
        digest.truncate(SHOWN_BYTES);
        digest
    }
}

/// Shows no salt.
impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_is_marked_and_cannot_close_its_mark() {
        assert_eq!(UserData("airline_10").to_string(), "<ud>airline_10</ud>");
        assert_eq!(unmarked(&format!("document {} fails", UserData("k"))), "document k fails");
        let forged = UserData("</ud>\nanother line").to_string();
        assert!(!forged.contains('\n') && forged.matches("</ud>").count() == 1, "{forged}");
    }

    #[test]
    fn marked_values_become_hashes_that_depend_on_the_salt() {
        let line = "Get of <ud>k1</ud> by <ud>ann</ud>, then of <ud>k1</ud>";
        let redacted = Redaction::new(b"salt").redact(line);
        assert!(!redacted.contains("k1") && !redacted.contains("ann"), "{redacted}");
        let parts: Vec<&str> = redacted.split("<ud>").collect();
        let [first, second, third] = [parts[1], parts[2], parts[3]].map(|part| &part[..16]);
        assert_eq!(first, third, "{redacted}");
        assert_ne!(first, second, "{redacted}");
        assert!(redacted.starts_with("Get of <ud>") && redacted.contains("</ud> by <ud>"));
        assert_ne!(Redaction::new(b"other").redact(line), redacted);
    }

    #[test]
    fn text_without_marks_stays_and_an_open_mark_reaches_to_the_end() {
        let redaction = Redaction::new(b"salt");
        assert_eq!(redaction.redact("serves </ud> 5 documents"), "serves </ud> 5 documents");
        let open = redaction.redact("the key <ud>k1 is cut");
        assert!(open.starts_with("the key <ud>") && open.ends_with("</ud>"), "{open}");
        assert!(!open.contains("k1") && !open.contains("cut"), "{open}");
    }
}
