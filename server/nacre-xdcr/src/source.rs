//! The name by which version histories identify a bucket.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use md5::{Digest, Md5};
use std::fmt;
use std::sync::Arc;

/// A bucket of a cluster, or another writer such as a mobile client, as version histories name it.
///
/// Ordered by its text, so that every cluster breaks a tie between two sources in the same way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(Arc<str>);

impl SourceId {
    /// The longest name, in bytes. Names of buckets have 22 bytes.
    pub const BYTES_MAX: usize = 64;

    /// Returns the name of a bucket: MD5 of both UUIDs as hexadecimal text, the bucket's first, in Base64 without
    /// padding.
    /// Source: Couchbase's version vectors.
    pub fn of(bucket_uuid: &str, cluster_uuid: &str) -> SourceId {
        let digest = Md5::new().chain_update(bucket_uuid).chain_update(cluster_uuid).finalize();
        SourceId(STANDARD_NO_PAD.encode(digest).into())
    }

    /// Returns a name that no bucket has.
    pub(crate) fn nobody() -> SourceId {
        SourceId("".into())
    }

    /// Parses a received name: 1 to [`SourceId::BYTES_MAX`] visible ASCII characters, except those with a meaning in the
    /// format. Returns `None` for other texts.
    pub fn parse(text: &str) -> Option<SourceId> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"@\"\\".contains(&byte);
        let fits = (1..=Self::BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain);
        fits.then(|| SourceId(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_a_name_of_22_characters() {
        let name =
            SourceId::of("93fcf4f0daabd4e5f1cc9ba1a1ac5c63", "5e0f7c8b9a4d3e2f1a0b9c8d7e6f5a4b");
        assert_eq!(name.as_str().len(), 22);
        // The well-known MD5 of the empty input.
        assert_eq!(SourceId::of("", "").as_str(), "1B2M2Y8AsgTpgAmY7PhCfg");
        assert_eq!(SourceId::parse(name.as_str()), Some(name));
    }

    #[test]
    fn names_that_would_break_the_format_are_refused() {
        let long = "x".repeat(SourceId::BYTES_MAX + 1);
        for text in ["", "a@b", "a b", "a\"", "a\\", "ä", &long] {
            assert_eq!(SourceId::parse(text), None, "{text:?}");
        }
    }
}
