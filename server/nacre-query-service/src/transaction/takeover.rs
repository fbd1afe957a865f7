//! A transaction that an SDK has begun: its description in `txdata`, and its staged changes.

use super::changes::{Kind, Place, Staged};
use super::record;
use super::step::{Documents, Durability};
use nacre_sandbox::{Action, DatabaseKeyspace};
use serde::Deserialize;
use std::time::Duration;

/// Maximum number of documents that an SDK may have staged.
const DOCUMENTS_MAX: usize = 16_384;

/// The relevant members of `txdata` of `BEGIN`.
#[derive(Debug, Default, Deserialize)]
struct TxData {
    id: Ids,
    #[serde(default)]
    atr: Location,
    #[serde(default)]
    config: Config,
    #[serde(default)]
    state: State,
    #[serde(default)]
    mutations: Vec<Change>,
}

#[derive(Debug, Default, Deserialize)]
struct Ids {
    txn: String,
    atmpt: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Location {
    bkt: String,
    scp: String,
    coll: String,
    id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    #[serde(rename = "durabilityLevel")]
    durability: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    #[serde(rename = "timeLeftMs")]
    left_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Change {
    bkt: String,
    scp: String,
    coll: String,
    id: String,
    cas: String,
    #[serde(rename = "type")]
    kind: String,
}

/// A document that an SDK has staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedBySdk {
    /// The place.
    pub place: Place,
    cas: u64,
    kind: Kind,
}

impl StagedBySdk {
    /// Returns the effect that a commit has on the document.
    pub fn action(&self) -> Action {
        match self.kind {
            Kind::Insert => Action::Insert,
            Kind::Replace => Action::Replace,
            Kind::Remove | Kind::Nothing => Action::Remove,
        }
    }
}

/// A transaction that an SDK hands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The transaction.
    pub transaction: String,
    /// The attempt.
    pub attempt: String,
    /// Place of its record, if it has one.
    pub record: Option<Place>,
    /// Collection for the record, if it has none.
    pub records: Option<DatabaseKeyspace>,
    /// The durability, if it is given.
    pub durability: Option<Durability>,
    /// Remaining time, if given.
    pub left: Option<Duration>,
    /// Its staged documents.
    pub documents: Vec<StagedBySdk>,
}

impl Takeover {
    /// Reads `txdata`.
    ///
    /// # Errors
    /// The error in the text.
    pub fn read(text: &str) -> Result<Takeover, String> {
        let data: TxData = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !record::is_id(&data.id.txn) || !record::is_id(&data.id.atmpt) {
            return Err("the id of a transaction has letters, digits and hyphens".into());
        }
        if data.mutations.len() > DOCUMENTS_MAX {
            return Err(format!("more than {DOCUMENTS_MAX} documents are staged"));
        }
        let Location { bkt, scp, coll, id } = data.atr;
        let keyspace = DatabaseKeyspace { bucket: bkt, scope: scp, collection: coll };
        let is_placed = !keyspace.bucket.is_empty();
        let place = Place { keyspace: keyspace.clone(), id };
        let record = (is_placed && !place.id.is_empty()).then_some(place);
        if record.as_ref().is_some_and(|record| !record::is_record_key(&record.id)) {
            return Err("this is not a document with transaction records".into());
        }
        if record.is_none() && !data.mutations.is_empty() {
            return Err("documents are staged, but there is no transaction record".into());
        }
        let durability = match data.config.durability.as_str() {
            "" => None,
            name => Some(Durability::of_name(name).ok_or("unknown durability level")?),
        };
        let documents: Option<Vec<_>> = data.mutations.into_iter().map(handed).collect();
        Ok(Takeover {
            transaction: data.id.txn,
            attempt: data.id.atmpt,
            record,
            records: is_placed.then_some(keyspace),
            durability,
            left: data.state.left_ms.map(Duration::from_millis),
            documents: documents.ok_or("a change has no known type, or no version")?,
        })
    }

    /// Returns the staged changes as they are stored.
    ///
    /// # Errors
    /// The difference from the SDK's description.
    pub fn staged(&self, documents: &dyn Documents) -> Result<Vec<(Place, Staged)>, String> {
        self.documents.iter().map(|handed| self.look(handed, documents)).collect()
    }

    fn look(
        &self,
        handed: &StagedBySdk,
        documents: &dyn Documents,
    ) -> Result<(Place, Staged), String> {
        let StagedBySdk { place, cas, kind } = handed.clone();
        let not_there = || format!("{} is not staged as was said", place.id);
        let paths = [record::STAGED_ATTEMPT, record::STAGED_BODY];
        let looked = documents.lookup(&place, &paths).map_err(|error| error.to_string())?;
        let looked = looked.filter(|looked| looked.cas == cas).ok_or_else(not_there)?;
        let [Some(attempt), body] = &looked.found[..] else { return Err(not_there()) };
        if serde_json::from_slice::<String>(attempt).ok().as_ref() != Some(&self.attempt) {
            return Err(not_there());
        }
        let body = match (kind, body) {
            (Kind::Remove, _) => Vec::new(),
            (_, Some(body)) => body.clone(),
            (_, None) => return Err(format!("the staged document at {} is not JSON", place.id)),
        };
        let staged = Staged {
            kind,
            body,
            expiry: None,
            cas,
            stored_cas: cas,
            stored: Some(kind),
            is_dirty: false,
        };
        Ok((place, staged))
    }
}

fn handed(change: Change) -> Option<StagedBySdk> {
    let keyspace =
        DatabaseKeyspace { bucket: change.bkt, scope: change.scp, collection: change.coll };
    let kind = record::kind_of(&change.kind.to_ascii_lowercase())?;
    Some(StagedBySdk {
        place: Place { keyspace, id: change.id },
        cas: change.cas.parse().ok()?,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn data() -> serde_json::Value {
        json!({
            "id": {"txn": "t-1", "atmpt": "a-1"},
            "atr": {"bkt": "b", "scp": "_default", "coll": "_default", "id": "_txn:atr-9-#0"},
            "config": {"kvTimeoutMs": 2500, "durabilityLevel": "MAJORITY", "numAtrs": 1024},
            "state": {"timeLeftMs": 900},
            "mutations": [
                {"bkt": "b", "scp": "s", "coll": "c", "id": "k", "cas": "18", "type": "INSERT"},
            ],
        })
    }

    #[test]
    fn transactions_handed_over_by_sdks_are_read() {
        let takeover = Takeover::read(&data().to_string()).unwrap();
        assert_eq!((&*takeover.transaction, &*takeover.attempt), ("t-1", "a-1"));
        assert_eq!(takeover.left, Some(Duration::from_millis(900)));
        assert_eq!(takeover.record.map(|record| record.id).as_deref(), Some("_txn:atr-9-#0"));
        assert_eq!(takeover.documents[0].cas, 18);
        assert_eq!(takeover.documents[0].kind, Kind::Insert);
        assert_eq!(takeover.documents[0].action(), Action::Insert);
    }

    #[test]
    fn contradictory_handovers_are_refused() {
        for (pointer, value) in [
            ("/id/atmpt", json!("a.st")),
            ("/id/txn", json!("")),
            ("/atr/id", json!("somebody's document")),
            ("/atr/id", json!("")),
            ("/config/durabilityLevel", json!("a little")),
            ("/mutations/0/cas", json!("x")),
            ("/mutations/0/type", json!("drop")),
            ("/mutations", json!(7)),
        ] {
            let mut data = data();
            *data.pointer_mut(pointer).unwrap() = value;
            assert!(Takeover::read(&data.to_string()).is_err(), "{pointer}");
        }
        assert!(Takeover::read("{").is_err());
    }
}
