//! Binary values of attributes: base64 in a JSON string with a marker prefix.

use crate::Error;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// The marker prefix. Source: sub-document API, binary values of attributes.
const PREFIX: &str = "cb-content-base64-encoded:";

/// Returns the JSON text that encodes `bytes`.
pub(super) fn encode(bytes: &[u8]) -> Vec<u8> {
    format!("\"{PREFIX}{}\"", BASE64_STANDARD.encode(bytes)).into_bytes()
}

/// Returns the bytes that a JSON text encodes.
///
/// # Errors
/// [`Error::FieldNotBinary`] if the text does not encode bytes.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, Error> {
    let text = std::str::from_utf8(text).map_err(|_| Error::FieldNotBinary)?;
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let encoded = inner.and_then(|text| text.strip_prefix(PREFIX)).ok_or(Error::FieldNotBinary)?;
    BASE64_STANDARD.decode(encoded).map_err(|_| Error::FieldNotBinary)
}
