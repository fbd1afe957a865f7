//! The vBuckets that a query sees.

use crate::header;
use crate::row::vbucket;
use nacre_plugin::btree::Row;
use nacre_plugin::{Fault, Request};

/// A set of vBuckets, of which there are at most 1024.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask([u64; 16]);

impl Mask {
    /// Returns the mask in a request.
    ///
    /// # Errors
    /// The mask is malformed, which is an error of the host.
    pub fn of(request: &Request) -> Result<Option<Mask>, Fault> {
        header::value_of(request, header::VBUCKETS).map(Mask::parse).transpose()
    }

    fn parse(text: &str) -> Result<Mask, Fault> {
        let malformed = || Fault::Reject(format!("malformed {}: {text:?}", header::VBUCKETS));
        let mut mask = Mask([0; 16]);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u16>().ok().filter(|vb| *vb < 1024);
            let range = number(first).zip(number(last)).ok_or_else(malformed)?;
            (range.0..=range.1).for_each(|vb| mask.0[usize::from(vb / 64)] |= 1 << (vb % 64));
        }
        Ok(mask)
    }

    /// Returns true if the row belongs to a vBucket in the mask.
    pub fn sees(&self, row: Row<'_>) -> bool {
        let has = |vb: u16| {
            let word = self.0.get(usize::from(vb / 64));
            word.is_some_and(|word| word >> (vb % 64) & 1 == 1)
        };
        // A row that cannot be read is not skipped: its reader then reports the damage.
        vbucket(row.value).is_none_or(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_vbuckets_are_read() {
        let mask = Mask::parse("0-2, 64,1023").unwrap();
        let seen: Vec<u16> = (0..1100)
            .filter(|vb: &u16| mask.sees(Row { key: b"", value: &vb.to_le_bytes() }))
            .collect();
        assert_eq!(seen, [0, 1, 2, 64, 1023]);
    }

    #[test]
    fn an_invalid_list_of_vbuckets_is_refused() {
        for text in ["x", "1-", "1024", "1-2-3", "-1"] {
            assert!(Mask::parse(text).is_err(), "{text}");
        }
    }
}
