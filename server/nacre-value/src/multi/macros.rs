//! Macros: attribute values that the server fills in.

use super::Virtual;
use crate::Error;
use crate::path::Path;
use crate::subdoc::{Lookup, lookup_at};

/// Values of the current mutation, provided by the vBucket.
///
/// A value that is exactly one of these JSON strings is replaced:
///
/// | value | becomes |
/// | --- | --- |
/// | `"${Mutation.CAS}"` | `"0x…"`, 16 digits of the CAS in little-endian order |
/// | `"${Mutation.seqno}"` | `"0x…"`, 16 digits of the seqno |
/// | `"${Mutation.value_crc32c}"` | `"0x…"`, 8 digits of the CRC-32C of the resulting body |
/// | `"${$document.…}"` | that part of a virtual attribute, from before the mutation |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Macros {
    /// The CAS of the mutation.
    pub cas: u64,
    /// The seqno of the mutation.
    pub seqno: u64,
}

const CAS: &str = "Mutation.CAS";
const SEQNO: &str = "Mutation.seqno";
const VALUE_CRC32C: &str = "Mutation.value_crc32c";

/// Returns true if `value` is a macro of a known family.
pub(super) fn is_macro(value: &[u8]) -> bool {
    name(value)
        .is_some_and(|name| [CAS, SEQNO, VALUE_CRC32C].contains(&name) || name.starts_with('$'))
}

/// Returns the JSON text that replaces the macro `value`.
pub(super) fn expand(
    value: &[u8],
    macros: Macros,
    body_crc32c: &dyn Fn() -> u32,
    virtuals: &Virtual<'_>,
) -> Result<Vec<u8>, Error> {
    let name = name(value).ok_or(Error::XattrUnknownMacro)?;
    let text = match name {
        CAS => format!("\"0x{:016x}\"", macros.cas.swap_bytes()),
        SEQNO => format!("\"0x{:016x}\"", macros.seqno),
        VALUE_CRC32C => format!("\"0x{:08x}\"", body_crc32c()),
        _ => return from_virtual(name, virtuals),
    };
    Ok(text.into_bytes())
}

fn from_virtual(name: &str, virtuals: &Virtual<'_>) -> Result<Vec<u8>, Error> {
    let path = Path::parse(name.as_bytes()).map_err(|_| Error::UnknownVirtualMacro)?;
    let key = super::xattr_key(name.as_bytes()).map_err(|_| Error::UnknownVirtualMacro)?;
    let text = virtuals(key).ok_or(Error::UnknownVirtualMacro)?;
    let found = lookup_at(&text, Lookup::Get, &path.components()[1..]);
    found.map(|text| text.into_owned()).map_err(|_| Error::UnknownVirtualMacro)
}

/// Returns the name in `"${name}"`.
fn name(value: &[u8]) -> Option<&str> {
    let name = value.strip_prefix(b"\"${")?.strip_suffix(b"}\"")?;
    std::str::from_utf8(name).ok()
}
