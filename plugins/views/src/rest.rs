//! The remainder of an answer of several rounds, as the text in the header `nacre-rest`.
//!
//! The text is base64 (for URLs, without padding) of the following bytes. Numbers and lengths are LEB128:
//!
//! | bytes | meaning |
//! | --- | --- |
//! | 1 | version: 1 |
//! | 1 | 1 if rows were already returned, else 0 |
//! | number, number | remaining skip and limit |
//! | number, bytes | place of the last item that was returned or skipped: number of its range, its name |
//! | number | number of failures so far |
//! | bytes, bytes | for each failure: the node and the reason |
//!
//! The name of a row is its tree key. The name of a group is the common prefix of its tree keys. For example, `AQEABQEBEAA`
//! means that rows were returned, that 5 more may be returned, that the last item was in range 1 with the name `10`, and that
//! nothing has failed.
//!
//! The text usually has some hundred bytes: a key, which has at most 4 KiB before collation if it was emitted, and at most 16
//! KiB of failures.

use crate::body::{FAILURES_MAX, Failure, Window};
use crate::bytes::{Reader, put_bytes, put_number};
use crate::header;
use crate::scan::Place;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use nacre_plugin::{Fault, Request};

const VERSION: u8 = 1;
/// Maximum length of a failure's reason in the remainder, in characters.
const REASON_CHARS_MAX: usize = 500;
/// Maximum size of all failures in the remainder, in bytes. Further failures are not named.
const FAILURE_BYTES_MAX: usize = 16 << 10;

/// The remainder of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The range of the last item that the answer has processed.
    pub range: usize,
    /// The name of that item, which is not empty.
    pub name: Vec<u8>,
    /// Remaining skip and limit.
    pub window: Window,
    /// True if rows were returned.
    pub has_rows: bool,
    /// Failures so far.
    pub failures: Vec<Failure>,
}

impl Rest {
    /// Returns the remainder in a request, unless the request belongs to the first round.
    ///
    /// # Errors
    /// The text is malformed, which is an error of the host.
    pub fn of(request: &Request) -> Result<Option<Rest>, Fault> {
        let malformed = || Fault::Reject(format!("malformed {}", header::REST));
        let parse = |text: &str| {
            let bytes = BASE64.decode(text).map_err(|_| malformed())?;
            Rest::decode(&bytes).ok_or_else(malformed)
        };
        header::value_of(request, header::REST).map(parse).transpose()
    }

    /// Returns the place of the last item.
    pub fn place(&self) -> Place<'_> {
        Place { range: self.range, name: &self.name }
    }

    /// Returns the text.
    pub fn to_text(&self) -> String {
        let mut out = vec![VERSION, u8::from(self.has_rows)];
        put_number(self.window.skip, &mut out);
        put_number(self.window.limit, &mut out);
        put_number(self.range as u64, &mut out);
        put_bytes(&self.name, &mut out);
        let (mut failures, mut count) = (Vec::new(), 0);
        for Failure { from, reason } in &self.failures {
            let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
            if failures.len() + from.len() + reason.len() > FAILURE_BYTES_MAX && count > 0 {
                break;
            }
            put_bytes(from.as_bytes(), &mut failures);
            put_bytes(reason.as_bytes(), &mut failures);
            count += 1;
        }
        put_number(count, &mut out);
        out.extend(failures);
        BASE64.encode(out)
    }

    fn decode(bytes: &[u8]) -> Option<Rest> {
        let mut reader = Reader(bytes);
        if reader.byte()? != VERSION {
            return None;
        }
        let has_rows = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let window = Window { skip: reader.number()?, limit: reader.number()? };
        let (range, name) = (reader.index()?, reader.bytes()?.to_vec());
        let count = reader.index()?;
        if name.is_empty() || count > FAILURES_MAX {
            return None;
        }
        let mut failures = Vec::new();
        for _ in 0..count {
            let (from, reason) = (reader.text()?.into(), reader.text()?.into());
            failures.push(Failure { from, reason });
        }
        reader.0.is_empty().then_some(Rest { range, name, window, has_rows, failures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(failures: Vec<Failure>) -> Rest {
        let window = Window { skip: 0, limit: 5 };
        Rest { range: 1, name: vec![0x10], window, has_rows: true, failures }
    }

    fn read(text: &str) -> Result<Option<Rest>, Fault> {
        let headers = vec![(header::REST.to_owned(), text.to_owned())];
        Rest::of(&Request { headers, ..Request::default() })
    }

    #[test]
    fn the_example_of_the_format_is_correct() {
        assert_eq!(rest(Vec::new()).to_text(), "AQEABQEBEAA");
        assert_eq!(read("AQEABQEBEAA"), Ok(Some(rest(Vec::new()))));
        assert_eq!(Rest::of(&Request::default()), Ok(None));
    }

    #[test]
    fn failures_are_included_as_far_as_they_fit() {
        let failure = |reason: &str| Failure { from: "a".into(), reason: reason.into() };
        let few = rest(vec![failure("one"), failure("two")]);
        assert_eq!(read(&few.to_text()), Ok(Some(few)));
        let long = "ä".repeat(10_000);
        let many = rest(vec![failure(&long); FAILURES_MAX]);
        let carried = read(&many.to_text()).unwrap().unwrap();
        assert!(many.to_text().len() < 40_000, "{}", many.to_text().len());
        assert_eq!(carried.failures[0], failure(&"ä".repeat(REASON_CHARS_MAX)));
        assert_eq!(carried.failures.len(), FAILURE_BYTES_MAX / (2 * REASON_CHARS_MAX + 1));
    }

    #[test]
    fn an_invalid_rest_is_refused() {
        let failures = vec![Failure { from: "a".into(), reason: "b".into() }];
        let text = rest(failures).to_text();
        for length in 0..text.len() {
            assert!(read(&text[..length]).is_err(), "{length}");
        }
        for text in ["AQEABQEAAA", "AgEABQEBEAA", "AQIABQEBEAA", "AQEABQEBEAAA", "?"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
