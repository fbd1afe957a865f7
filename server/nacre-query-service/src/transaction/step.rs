//! Operations of a transaction on one stored document. They are plain data, because another node may serve the
//! document.

use super::changes::Place;
use nacre_sandbox::KvError;
use nacre_vbucket::Level;
use serde::{Deserialize, Serialize};

/// Durability of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// In memory.
    None,
    /// In memory on a majority of the copies.
    #[default]
    Majority,
    /// In memory on a majority, and on disk at the active copy.
    MajorityAndPersistToActive,
    /// On disk on a majority of the copies.
    PersistToMajority,
}

impl Durability {
    /// Reads a name as clients write it; `None` for an unknown one.
    pub fn of_name(name: &str) -> Option<Durability> {
        // SDKs use two spellings.
        Some(match name.to_ascii_lowercase().replace('_', "").as_str() {
            "" | "unset" | "majority" => Durability::Majority,
            "none" => Durability::None,
            "majorityandpersistactive"
            | "majorityandpersisttoactive"
            | "majorityandpersistonmaster" => Durability::MajorityAndPersistToActive,
            "persisttomajority" => Durability::PersistToMajority,
            _ => return None,
        })
    }

    /// Returns the name in `system:transactions`.
    pub fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::Majority => "majority",
            Durability::MajorityAndPersistToActive => "majorityAndPersistActive",
            Durability::PersistToMajority => "persistToMajority",
        }
    }

    /// Returns the name in records of transactions. Source: the SDKs.
    pub fn short_name(self) -> &'static str {
        match self {
            Durability::None => "n",
            Durability::Majority => "m",
            Durability::MajorityAndPersistToActive => "pa",
            Durability::PersistToMajority => "pm",
        }
    }

    /// Returns the durability with this name in a record; the default for a missing or unknown name.
    pub fn of_short_name(name: &str) -> Durability {
        let all = [
            Durability::None,
            Durability::MajorityAndPersistToActive,
            Durability::PersistToMajority,
        ];
        all.into_iter().find(|known| known.short_name() == name).unwrap_or_default()
    }

    /// Returns the level of a write.
    pub fn level(self) -> Option<Level> {
        match self {
            Durability::None => None,
            Durability::Majority => Some(Level::Majority),
            Durability::MajorityAndPersistToActive => Some(Level::MajorityAndPersistToActive),
            Durability::PersistToMajority => Some(Level::PersistToMajority),
        }
    }
}

/// A change of a document's extended attributes or body. Paths are paths of attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Adds a value at a path, which must not exist.
    Add(String, Vec<u8>),
    /// Sets a value at a path. Its parent must exist, unless the edit may create the document.
    Set(String, Vec<u8>),
    /// Sets a whole attribute, which need not exist.
    SetWhole(String, Vec<u8>),
    /// Sets a macro such as `${Mutation.CAS}` as the value.
    SetComputed(String, String),
    /// Removes the value at a path.
    Remove(String),
    /// Replaces the body.
    Body(Vec<u8>),
    /// Replaces the body by the value at a path: JSON, or any bytes.
    BodyFrom(String, BodyFormat),
}

/// The form of a staged body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyFormat {
    /// JSON.
    Json,
    /// Binary, in the encoding that attributes use for bytes.
    Binary,
}

/// The document that an edit requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presence {
    /// A document, or with [`Edit::sees_tombstones`] a tombstone.
    #[default]
    Present,
    /// No document.
    Absent,
    /// Either.
    Any,
}

/// Several changes of a document at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The required document.
    pub presence: Presence,
    /// The CAS that it must have; 0 for any.
    pub cas: u64,
    /// True if the edit also applies to a tombstone.
    pub sees_tombstones: bool,
    /// True if a created document is a tombstone.
    pub hides: bool,
    /// True to turn a tombstone into a document.
    pub revives: bool,
    /// Flags of the body's format; `None` keeps them.
    pub flags: Option<u32>,
    /// The expiry, as clients send it; `None` keeps the current one.
    pub expiry: Option<u32>,
    /// The changes.
    pub parts: Vec<Part>,
}

/// An operation on a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Reads attributes, including those of a tombstone.
    Look(Vec<String>),
    /// Edits the document.
    Edit(Edit, Durability),
    /// Removes the document if it has this CAS.
    Remove(u64, Durability),
}

impl Step {
    /// Returns true if the step must not be repeated.
    pub fn writes(&self) -> bool {
        !matches!(self, Step::Look(_))
    }
}

/// The reply to a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepReply {
    /// Reply to [`Step::Look`].
    Looked(LookupResult),
    /// Reply to other steps: the new CAS.
    Written(u64),
}

/// The values read from a document or a tombstone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupResult {
    /// The CAS.
    pub cas: u64,
    /// True if it is a tombstone.
    pub is_tombstone: bool,
    /// The value at each path, as JSON.
    pub found: Vec<Option<Vec<u8>>>,
}

/// The stored documents on all nodes. Calls may block.
pub trait Documents {
    /// Carries out a step.
    ///
    /// # Errors
    /// The reason of the failure. After [`KvError::Temporary`] of a step that writes, it is unknown whether the write
    /// was applied.
    fn step(&self, place: &Place, step: Step) -> Result<StepReply, KvError>;
}

impl dyn Documents + '_ {
    /// Reads attributes; `None` if neither a document nor a tombstone exists.
    ///
    /// # Errors
    /// As [`Documents::step`].
    pub fn lookup(&self, place: &Place, paths: &[&str]) -> Result<Option<LookupResult>, KvError> {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        match self.step(place, Step::Look(paths)) {
            Ok(StepReply::Looked(looked)) => Ok(Some(looked)),
            Ok(StepReply::Written(_)) => Err(KvError::Temporary("an unexpected answer".into())),
            Err(KvError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Executes a step that writes. Returns the new CAS.
    ///
    /// # Errors
    /// As [`Documents::step`].
    pub fn write(&self, place: &Place, step: Step) -> Result<u64, KvError> {
        match self.step(place, step)? {
            StepReply::Written(cas) => Ok(cas),
            StepReply::Looked(_) => Err(KvError::Temporary("an unexpected answer".into())),
        }
    }
}
