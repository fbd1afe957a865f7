//! Parts of documents: `kv.lookup-in` and `kv.mutate-in` as sub-document operations.

use super::kv::StoreMode;
use crate::abi::nacre::plugin::kv as abi;
use nacre_types::Cas;
use nacre_value::multi::{
    Failure, Flags, LookupOperation, LookupSpec, MutationOperation, MutationSpec,
};
use nacre_value::subdoc::{Lookup, Mutation};
use serde::{Deserialize, Serialize};

/// One part of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathLookup {
    /// The operation.
    pub operation: LookupOperation,
    /// The path.
    pub path: String,
    /// True if the path begins with the name of an extended attribute.
    pub xattr: bool,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// The CAS of the document.
    pub cas: Cas,
    /// The value of each part, or the reason for its failure.
    pub results: Vec<Result<Vec<u8>, String>>,
}

/// One part of a mutation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMutation {
    /// The operation.
    pub operation: MutationOperation,
    /// The path.
    pub path: String,
    /// The value; empty for a removal.
    pub value: Vec<u8>,
    /// True if the path begins with the name of an extended attribute.
    pub xattr: bool,
    /// True to create missing parents.
    pub create_path: bool,
    /// True if the value is a macro.
    pub expand_macros: bool,
}

/// Options of a mutation that apply to the whole document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MutateOptions {
    /// Condition on the document.
    pub mode: StoreMode,
    /// Expiry as sent by clients; `None` keeps the old one.
    pub expiry: Option<u32>,
    /// Flags of the document; `None` keeps the old ones.
    pub flags: Option<u32>,
}

/// Effect of a mutation on a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TombstoneUse {
    /// A tombstone remains a tombstone.
    Keep,
    /// A missing document is created as a tombstone.
    Create,
    /// A tombstone becomes a document.
    Revive,
}

/// The result of a mutation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutated {
    /// The new CAS of the document.
    pub cas: Cas,
    /// The new value of each counter, with the position of its part.
    pub results: Vec<(u8, Vec<u8>)>,
}

impl PathLookup {
    /// Returns the sub-document operation.
    pub fn spec(&self) -> LookupSpec<'_> {
        let flags = Flags { xattr: self.xattr, ..Flags::default() };
        LookupSpec { operation: self.operation, flags, path: self.path.as_bytes(), value: b"" }
    }
}

impl PathMutation {
    /// Returns the sub-document operation.
    pub fn spec(&self) -> MutationSpec<'_> {
        let flags = Flags {
            create_path: self.create_path,
            xattr: self.xattr,
            expand_macros: self.expand_macros,
            binary: false,
        };
        let (path, value) = (self.path.as_bytes(), &self.value[..]);
        MutationSpec { operation: self.operation, flags, path, value }
    }
}

/// Returns the message of a failed mutation, for the plugin's author.
pub fn path_failure(failure: Failure) -> String {
    match failure {
        Failure::Request(error) => error.to_string(),
        Failure::Spec { index, error } => format!("{error} (operation {index})"),
    }
}

impl From<abi::LookupSpec> for PathLookup {
    fn from(spec: abi::LookupSpec) -> PathLookup {
        let operation = match spec.operation {
            abi::LookupOperation::Get => LookupOperation::Path(Lookup::Get),
            abi::LookupOperation::Exists => LookupOperation::Path(Lookup::Exists),
            abi::LookupOperation::Count => LookupOperation::Path(Lookup::GetCount),
            abi::LookupOperation::Document => LookupOperation::Document,
        };
        PathLookup { operation, path: spec.path, xattr: spec.xattr }
    }
}

impl From<abi::MutateSpec> for PathMutation {
    fn from(spec: abi::MutateSpec) -> PathMutation {
        use abi::MutateOperation as Operation;
        let path = MutationOperation::Path;
        let operation = match spec.operation {
            Operation::Insert => path(Mutation::DictAdd),
            Operation::Upsert => path(Mutation::DictUpsert),
            Operation::Replace => path(Mutation::Replace),
            Operation::Remove => path(Mutation::Delete),
            Operation::ArrayAppend => path(Mutation::ArrayPushLast),
            Operation::ArrayPrepend => path(Mutation::ArrayPushFirst),
            Operation::ArrayInsert => path(Mutation::ArrayInsert),
            Operation::ArrayAddUnique => path(Mutation::ArrayAddUnique),
            Operation::Counter => path(Mutation::Counter),
            Operation::SetDocument => MutationOperation::SetDocument,
            Operation::RemoveDocument => MutationOperation::RemoveDocument,
        };
        let abi::MutateSpec { path, value, xattr, create_path, expand_macros, .. } = spec;
        PathMutation { operation, path, value, xattr, create_path, expand_macros }
    }
}

impl From<abi::MutateOptions> for MutateOptions {
    fn from(options: abi::MutateOptions) -> MutateOptions {
        let abi::MutateOptions { mode, cas, expiry, flags } = options;
        let mode = match mode {
            abi::StoreMode::Insert => StoreMode::Insert,
            abi::StoreMode::Upsert => StoreMode::Upsert,
            abi::StoreMode::Replace => StoreMode::Replace(cas.map(Cas)),
        };
        MutateOptions { mode, expiry, flags }
    }
}

impl From<abi::TombstoneUse> for TombstoneUse {
    fn from(tombstone: abi::TombstoneUse) -> TombstoneUse {
        match tombstone {
            abi::TombstoneUse::Keep => TombstoneUse::Keep,
            abi::TombstoneUse::Create => TombstoneUse::Create,
            abi::TombstoneUse::Revive => TombstoneUse::Revive,
        }
    }
}

impl From<Looked> for abi::Looked {
    fn from(looked: Looked) -> abi::Looked {
        abi::Looked { cas: looked.cas.0, results: looked.results }
    }
}

impl From<Mutated> for abi::Mutated {
    fn from(mutated: Mutated) -> abi::Mutated {
        abi::Mutated { cas: mutated.cas.0, results: mutated.results }
    }
}
