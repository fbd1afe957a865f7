//! Values compressed with snappy on the wire. In memory and on disk they are plain.

use nacre_types::VALUE_BYTES_MAX;
use std::borrow::Cow;

/// Shorter bodies are not compressed.
const DEFLATE_BYTES_MIN: usize = 64;

/// Returns the plain form of a compressed value; `None` when it is not valid, or would be larger than a document may
/// be. The limit is checked before the claimed length is allocated.
pub(super) fn inflate(value: &[u8]) -> Option<Vec<u8>> {
    let length = snap::raw::decompress_len(value).ok()?;
    if length > VALUE_BYTES_MAX {
        return None;
    }
    snap::raw::Decoder::new().decompress_vec(value).ok()
}

/// Returns the compressed form of a body, if it is smaller.
pub(super) fn deflate(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() < DEFLATE_BYTES_MIN {
        return None;
    }
    let deflated = snap::raw::Encoder::new().compress_vec(body).ok()?;
    (deflated.len() < body.len()).then_some(deflated)
}

/// Returns the value of a request as it was before the client compressed it.
pub(super) fn plain(value: &[u8], compressed: bool) -> Option<Cow<'_, [u8]>> {
    if compressed { inflate(value).map(Cow::Owned) } else { Some(Cow::Borrowed(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deflated_is_inflated_again() {
        let body = b"nacre ".repeat(100);
        let deflated = deflate(&body).unwrap();
        assert_eq!(inflate(&deflated), Some(body));
        assert_eq!(deflate(b"short"), None);
    }

    #[test]
    fn a_length_that_is_only_claimed_costs_nothing() {
        // Claims 4 GiB - 1.
        assert_eq!(inflate(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, b'a']), None);
        for cut in [&b""[..], &[0x80], &[0x05, 0x10, b'a'], &[0x08, 0x01, 0x00]] {
            assert_eq!(inflate(cut), None, "{cut:?}");
        }
    }
}
