//! Sub-document operations: read or change paths of a document without transferring the rest.

use crate::Error;
use crate::frame::Fields;
use nacre_protocol::{Opcode, Status};

/// Path flag: the path belongs to an extended attribute.
const XATTR: u8 = 0x04;
/// Path flag: missing parents are created.
const CREATE_PARENTS: u8 = 0x01;
/// Maximum number of operations of a request. Source: Couchbase.
const OPERATIONS_MAX: usize = 16;

/// Kind of a change at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathOperation {
    /// Adds or replaces a member of an object.
    Upsert,
    /// Adds a member of an object that must not exist.
    Insert,
    /// Replaces an existing value.
    Replace,
    /// Removes a value.
    Remove,
    /// Adds values to the end of an array.
    ArrayAppend,
    /// Adds values to the start of an array.
    ArrayPrepend,
    /// Adds a number, which may be negative, to an existing number.
    Counter,
}

impl PathOperation {
    fn opcode(self) -> Opcode {
        match self {
            PathOperation::Upsert => Opcode::SubdocDictUpsert,
            PathOperation::Insert => Opcode::SubdocDictAdd,
            PathOperation::Replace => Opcode::SubdocReplace,
            PathOperation::Remove => Opcode::SubdocDelete,
            PathOperation::ArrayAppend => Opcode::SubdocArrayPushLast,
            PathOperation::ArrayPrepend => Opcode::SubdocArrayPushFirst,
            PathOperation::Counter => Opcode::SubdocCounter,
        }
    }
}

/// The value of a path, or the status of its failure.
pub type PathResult = Result<Vec<u8>, u16>;

/// A path to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup<'a> {
    /// Path, such as `address.lines[0]`; empty for the whole document.
    pub path: &'a str,
    /// True for the path of an extended attribute.
    pub is_xattr: bool,
}

/// A change at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMutation<'a> {
    /// Kind.
    pub operation: PathOperation,
    /// Path.
    pub path: &'a str,
    /// JSON; empty for a removal.
    pub value: &'a [u8],
    /// True for the path of an extended attribute.
    pub is_xattr: bool,
    /// True to create missing parents.
    pub create_parents: bool,
}

fn check<'a>(count: usize, mut paths: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    if !(1..=OPERATIONS_MAX).contains(&count) {
        let reason = format!("a request has 1 to {OPERATIONS_MAX} paths, not {count}");
        return Err(Error::Invalid(reason));
    }
    match paths.find(|path| path.len() > u16::MAX.into()) {
        None => Ok(()),
        Some(path) => Err(Error::Invalid(format!("a path has {} bytes", path.len()))),
    }
}

/// Encodes the value of a lookup request.
pub(crate) fn encode_lookups(lookups: &[Lookup<'_>]) -> Result<Vec<u8>, Error> {
    check(lookups.len(), lookups.iter().map(|lookup| lookup.path))?;
    let mut out = Vec::new();
    for Lookup { path, is_xattr } in lookups {
        let opcode = if path.is_empty() { Opcode::Get } else { Opcode::SubdocGet };
        out.extend([opcode as u8, if *is_xattr { XATTR } else { 0 }]);
        out.extend((path.len() as u16).to_be_bytes());
        out.extend(path.as_bytes());
    }
    Ok(out)
}

/// Encodes the value of a mutation request.
pub(crate) fn encode_mutations(mutations: &[PathMutation<'_>]) -> Result<Vec<u8>, Error> {
    check(mutations.len(), mutations.iter().map(|mutation| mutation.path))?;
    let mut out = Vec::new();
    for PathMutation { operation, path, value, is_xattr, create_parents } in mutations {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.push(operation.opcode() as u8);
        out.push(flag(*is_xattr, XATTR) | flag(*create_parents, CREATE_PARENTS));
        out.extend((path.len() as u16).to_be_bytes());
        out.extend((value.len() as u32).to_be_bytes());
        out.extend(path.as_bytes());
        out.extend_from_slice(value);
    }
    Ok(out)
}

/// Decodes the results of a lookup request: for each path the value, or the status of its failure.
pub(crate) fn decode_lookups(value: &[u8], count: usize) -> Result<Vec<PathResult>, Error> {
    let mut fields = Fields(value);
    let mut next = || {
        let status = fields.u16()?;
        let length = fields.u32()? as usize;
        let value = fields.take(length)?;
        Some(if status == Status::Success as u16 { Ok(value.to_vec()) } else { Err(status) })
    };
    let results: Option<Vec<_>> = (0..count).map(|_| next()).collect();
    results
        .filter(|_| fields.0.is_empty())
        .ok_or_else(|| Error::Malformed("the server's answer does not fit the paths".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_path_has_a_value_or_a_status() {
        let value = [0, 0, 0, 0, 0, 1, b'1', 0, 0xc0, 0, 0, 0, 0];
        assert_eq!(decode_lookups(&value, 2).unwrap(), [Ok(b"1".to_vec()), Err(0xc0)]);
        assert!(decode_lookups(&value, 1).is_err() && decode_lookups(&value, 3).is_err());
        assert!(decode_lookups(&[0, 0, 0xff, 0xff, 0xff, 0xff], 1).is_err());
    }

    #[test]
    fn requests_have_at_least_one_path_and_not_too_many() {
        let lookup = Lookup { path: "a", is_xattr: true };
        assert_eq!(encode_lookups(&[lookup]).unwrap(), [0xc5, 4, 0, 1, b'a']);
        assert!(encode_lookups(&[]).is_err() && encode_lookups(&[lookup; 17]).is_err());
        let mutation = PathMutation {
            operation: PathOperation::Upsert,
            path: "a",
            value: b"1",
            is_xattr: false,
            create_parents: true,
        };
        assert_eq!(encode_mutations(&[mutation]).unwrap(), [0xc8, 1, 0, 1, 0, 0, 0, 1, b'a', b'1']);
    }

    proptest! {
        #[test]
        fn arbitrary_results_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), count in 0_usize..4) {
            if let Ok(results) = decode_lookups(&bytes, count) {
                prop_assert_eq!(results.len(), count);
            }
        }
    }
}
