//! Bytes that are no JSON, as attributes keep them: in base64, in a string whose beginning says so.

use crate::Error;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Beginning of such a string. Source: sub-document API, binary values of attributes.
const PREFIX: &str = "cb-content-base64-encoded:";

/// The JSON text that keeps `bytes`.
pub(super) fn encode(bytes: &[u8]) -> Vec<u8> {
    format!("\"{PREFIX}{}\"", BASE64_STANDARD.encode(bytes)).into_bytes()
}

/// The bytes that a JSON text keeps.
///
/// # Errors
/// [`Error::FieldNotBinary`] when it is not such a text.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, Error> {
    let text = std::str::from_utf8(text).map_err(|_| Error::FieldNotBinary)?;
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let encoded = inner.and_then(|text| text.strip_prefix(PREFIX)).ok_or(Error::FieldNotBinary)?;
    BASE64_STANDARD.decode(encoded).map_err(|_| Error::FieldNotBinary)
}
