//! Values compressed with snappy on the wire. In memory and on disk they are plain.

use nacre_protocol::Status;
use nacre_types::VALUE_BYTES_MAX;
use std::borrow::Cow;

/// Shorter bodies are not compressed.
const DEFLATE_BYTES_MIN: usize = 64;

/// Returns the plain form of a compressed value. The limit is checked before the claimed length is allocated.
///
/// # Errors
/// [`Status::InvalidArguments`] when it is not valid, [`Status::TooBig`] when it would be larger than a document may be:
/// clients tell their users the latter, as for a value that is sent plain.
pub(super) fn inflate(value: &[u8]) -> Result<Vec<u8>, Status> {
    let invalid = |_| Status::InvalidArguments;
    if snap::raw::decompress_len(value).map_err(invalid)? > VALUE_BYTES_MAX {
        return Err(Status::TooBig);
    }
    snap::raw::Decoder::new().decompress_vec(value).map_err(invalid)
}

/// Returns the compressed form of a body, if it is smaller.
pub(super) fn deflate(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() < DEFLATE_BYTES_MIN {
        return None;
    }
    let deflated = snap::raw::Encoder::new().compress_vec(body).ok()?;
    (deflated.len() < body.len()).then_some(deflated)
}

/// Returns the value of a frame as it was before its sender compressed it.
///
/// # Errors
/// [`Status::InvalidArguments`] when it is not valid, [`Status::TooBig`] when it would be larger than a document may be.
pub fn plain(value: &[u8], compressed: bool) -> Result<Cow<'_, [u8]>, Status> {
    if compressed { inflate(value).map(Cow::Owned) } else { Ok(Cow::Borrowed(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deflated_is_inflated_again() {
        let body = b"nacre ".repeat(100);
        let deflated = deflate(&body).unwrap();
        assert_eq!(inflate(&deflated), Ok(body));
        assert_eq!(deflate(b"short"), None);
    }

    /// Zeros shrink to a twentieth: the frame is small, the document is not.
    #[test]
    fn a_value_that_is_too_large_once_it_is_inflated_is_too_large() {
        let inflated = |bytes: usize| {
            inflate(&snap::raw::Encoder::new().compress_vec(&vec![0; bytes]).unwrap())
        };
        assert_eq!(inflated(VALUE_BYTES_MAX).map(|value| value.len()), Ok(VALUE_BYTES_MAX));
        assert_eq!(inflated(VALUE_BYTES_MAX + 1), Err(Status::TooBig));
    }

    #[test]
    fn a_length_that_is_only_claimed_costs_nothing() {
        // Claims 4 GiB - 1.
        assert_eq!(inflate(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, b'a']), Err(Status::TooBig));
        for cut in [&b""[..], &[0x80], &[0x05, 0x10, b'a'], &[0x08, 0x01, 0x00]] {
            assert_eq!(inflate(cut), Err(Status::InvalidArguments), "{cut:?}");
        }
    }
}
