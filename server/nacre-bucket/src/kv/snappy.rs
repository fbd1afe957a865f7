//! Snappy compression of values on the wire. Values in memory and on disk are uncompressed.

use nacre_protocol::Status;
use nacre_types::VALUE_BYTES_MAX;
use std::borrow::Cow;

/// Shorter bodies are sent uncompressed.
const DEFLATE_BYTES_MIN: usize = 64;

/// Returns the plain form of a compressed value. The limit is checked before the claimed length is allocated.
///
/// # Errors
/// [`Status::InvalidArguments`] for invalid data, [`Status::TooBig`] when the plain form would exceed the limit of
/// documents. Clients report the latter to their users as for an uncompressed value.
pub(super) fn inflate(value: &[u8]) -> Result<Vec<u8>, Status> {
    let invalid = |_| Status::InvalidArguments;
    if snap::raw::decompress_len(value).map_err(invalid)? > VALUE_BYTES_MAX {
        return Err(Status::TooBig);
    }
    snap::raw::Decoder::new().decompress_vec(value).map_err(invalid)
}

/// Returns the compressed form of a body if it is smaller.
pub(super) fn deflate(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() < DEFLATE_BYTES_MIN {
        return None;
    }
    let deflated = snap::raw::Encoder::new().compress_vec(body).ok()?;
    (deflated.len() < body.len()).then_some(deflated)
}

/// Decompresses the value of a frame if it is compressed.
///
/// # Errors
/// [`Status::InvalidArguments`] for invalid data, [`Status::TooBig`] when the plain form would exceed the limit of
/// documents.
pub fn plain(value: &[u8], compressed: bool) -> Result<Cow<'_, [u8]>, Status> {
    if compressed { inflate(value).map(Cow::Owned) } else { Ok(Cow::Borrowed(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_values_are_decompressed_again() {
        let body = b"nacre ".repeat(100);
        let deflated = deflate(&body).unwrap();
        assert_eq!(inflate(&deflated), Ok(body));
        assert_eq!(deflate(b"short"), None);
    }

    /// Zeros compress to a twentieth: the frame is small, but the document is not.
    #[test]
    fn a_value_that_is_too_large_after_decompression_is_refused() {
        let inflated = |bytes: usize| {
            inflate(&snap::raw::Encoder::new().compress_vec(&vec![0; bytes]).unwrap())
        };
        assert_eq!(inflated(VALUE_BYTES_MAX).map(|value| value.len()), Ok(VALUE_BYTES_MAX));
        assert_eq!(inflated(VALUE_BYTES_MAX + 1), Err(Status::TooBig));
    }

    #[test]
    fn a_claimed_length_allocates_no_memory() {
        // Claims 4 GiB - 1.
        assert_eq!(inflate(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, b'a']), Err(Status::TooBig));
        for cut in [&b""[..], &[0x80], &[0x05, 0x10, b'a'], &[0x08, 0x01, 0x00]] {
            assert_eq!(inflate(cut), Err(Status::InvalidArguments), "{cut:?}");
        }
    }
}
