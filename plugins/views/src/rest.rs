//! What an answer of several rounds still lacks, as the text in the header `nacre-rest`.
//!
//! The text is base64 (for URLs, without padding) of the following, numbers and lengths as LEB128:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version: 1 |
//! | 1 | whether rows were given already: 0 or 1 |
//! | number, number | skip and limit that are left |
//! | number, bytes | place of the last item that was given or left out: number of its range, its name |
//! | number | how many failures were collected so far |
//! | bytes, bytes | of each failure: who has it, and the reason |
//!
//! Name: the tree key of a row, what the tree keys of a group begin with. `AQEABQEBEAA` says that rows were given, that 5 are
//! left to give, that the last one stood in range 1 and was called `10`, and that nothing has failed.
//!
//! The text has some hundred bytes as a rule: a key, of which an emitted one has at most 4 KiB before it is collated, and at
//! most 16 KiB of failures.

use crate::body::{FAILURES_MAX, Failure, Window};
use crate::bytes::{Reader, put_bytes, put_number};
use crate::header;
use crate::scan::Place;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use nacre_plugin::{Fault, Request};

const VERSION: u8 = 1;
/// Characters of a reason that are carried along.
const REASON_CHARS_MAX: usize = 500;
/// Bytes of all failures that are carried along; those behind are not named.
const FAILURE_BYTES_MAX: usize = 16 << 10;

/// What an answer still lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The range of the last item that the answer has dealt with.
    pub range: usize,
    /// Its name, which is not empty.
    pub name: Vec<u8>,
    /// What is left of skip and limit.
    pub window: Window,
    /// Whether rows were given.
    pub has_rows: bool,
    /// What has failed so far.
    pub failures: Vec<Failure>,
}

impl Rest {
    /// The rest that a request is about, if the answer has begun.
    ///
    /// # Errors
    /// When it is malformed, which is the host's fault.
    pub fn of(request: &Request) -> Result<Option<Rest>, Fault> {
        let malformed = || Fault::Reject(format!("malformed {}", header::REST));
        let parse = |text: &str| {
            let bytes = BASE64.decode(text).map_err(|_| malformed())?;
            Rest::decode(&bytes).ok_or_else(malformed)
        };
        header::value_of(request, header::REST).map(parse).transpose()
    }

    /// Where the last item stands.
    pub fn place(&self) -> Place<'_> {
        Place { range: self.range, name: &self.name }
    }

    /// The text.
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
    fn the_example_of_the_format_is_true() {
        assert_eq!(rest(Vec::new()).to_text(), "AQEABQEBEAA");
        assert_eq!(read("AQEABQEBEAA"), Ok(Some(rest(Vec::new()))));
        assert_eq!(Rest::of(&Request::default()), Ok(None));
    }

    #[test]
    fn failures_are_carried_along_as_far_as_they_fit() {
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
    fn what_is_no_rest_is_refused() {
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
