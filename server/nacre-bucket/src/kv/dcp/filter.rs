//! The JSON filter of a stream request: the part of the vBucket to stream.

use nacre_cluster::Manifest;
use nacre_dcp::Interest;
use nacre_protocol::Status;
use nacre_types::{CollectionId, ScopeId};
use serde::Deserialize;

/// The content of the JSON, checked against the manifest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filter {
    pub interest: Interest,
    pub stream_id: Option<u16>,
    /// The purge seqno known to the client.
    pub purge_seqno: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wire {
    uid: Option<String>,
    scope: Option<String>,
    collections: Option<Vec<String>>,
    sid: Option<u16>,
    purge_seqno: Option<String>,
}

/// Parses the value of a stream request. `collections` is true if the client supports collections.
///
/// # Errors
/// Returns the status for a malformed request or an unknown scope or collection.
pub(super) fn read(value: &[u8], collections: bool, manifest: &Manifest) -> Result<Filter, Status> {
    if !collections {
        let interest = Interest::DefaultCollection;
        return match value {
            [] => Ok(Filter { interest, stream_id: None, purge_seqno: None }),
            _ => Err(Status::InvalidArguments),
        };
    }
    let wire = match value.trim_ascii_start() {
        [] => Wire::default(),
        json @ [b'{', ..] => serde_json::from_slice(json).map_err(|_| Status::InvalidArguments)?,
        // Serde would also accept the fields as an array.
        _ => return Err(Status::InvalidArguments),
    };
    if let Some(uid) = &wire.uid {
        let uid = u64::from_str_radix(uid, 16).map_err(|_| Status::InvalidArguments)?;
        if uid > manifest.uid {
            return Err(Status::ManifestAhead);
        }
    }
    let purge_seqno = wire.purge_seqno.map(|text| text.parse()).transpose();
    let purge_seqno = purge_seqno.map_err(|_| Status::InvalidArguments)?;
    let interest = match (wire.scope, wire.collections) {
        (None, None) => Interest::Everything,
        (Some(scope), None) => of_scope(&scope, manifest)?,
        (None, Some(ids)) if !ids.is_empty() => of_collections(&ids, manifest)?,
        _ => return Err(Status::InvalidArguments),
    };
    Ok(Filter { interest, stream_id: wire.sid, purge_seqno })
}

fn of_scope(id: &str, manifest: &Manifest) -> Result<Interest, Status> {
    let id: ScopeId = id.parse().map_err(|_| Status::InvalidArguments)?;
    let scope = manifest.scopes.iter().find(|scope| scope.id == id.0);
    let collections = &scope.ok_or(Status::UnknownScope)?.collections;
    Ok(Interest::Scope(id, collections.iter().map(|found| CollectionId(found.id)).collect()))
}

fn of_collections(ids: &[String], manifest: &Manifest) -> Result<Interest, Status> {
    let known = |id: &String| {
        let id = id.parse().map_err(|_| Status::InvalidArguments)?;
        manifest.collection_by_id(id).map(|_| id).ok_or(Status::UnknownCollection)
    };
    Ok(Interest::Collections(ids.iter().map(known).collect::<Result<_, Status>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(json: &str) -> Result<Filter, Status> {
        read(json.as_bytes(), true, &Manifest::default())
    }

    #[test]
    fn scan_options_are_read_from_json() {
        let filter = asked(r#"{"uid":"0","collections":["0"],"sid":7,"purge_seqno":"12"}"#);
        let interest = Interest::Collections([CollectionId::DEFAULT].into());
        let expected = Filter { interest, stream_id: Some(7), purge_seqno: Some(12) };
        assert_eq!(filter, Ok(expected));
        let scope = Interest::Scope(ScopeId(0), [CollectionId::DEFAULT].into());
        assert_eq!(asked(r#"{"scope":"0"}"#).unwrap().interest, scope);
        assert_eq!(asked("{}").unwrap().interest, Interest::Everything);
        assert_eq!(asked("").unwrap().interest, Interest::Everything);
    }

    #[test]
    fn missing_documents_have_their_own_status() {
        assert_eq!(asked(r#"{"uid":"1"}"#), Err(Status::ManifestAhead));
        assert_eq!(asked(r#"{"scope":"9"}"#), Err(Status::UnknownScope));
        assert_eq!(asked(r#"{"collections":["0","9"]}"#), Err(Status::UnknownCollection));
    }

    #[test]
    fn malformed_filters_are_refused() {
        for json in [
            "x",
            "[]",
            "{",
            r#"{"uid":5}"#,
            r#"{"uid":"z"}"#,
            r#"{"scope":"0","collections":["0"]}"#,
            r#"{"collections":[]}"#,
            r#"{"collections":["-1"]}"#,
            r#"{"collections":"0"}"#,
            r#"{"sid":65536}"#,
            r#"{"purge_seqno":"-1"}"#,
            r#"{"something":1}"#,
        ] {
            assert_eq!(asked(json), Err(Status::InvalidArguments), "{json}");
        }
        let deep = "[".repeat(1 << 16);
        assert_eq!(asked(&deep), Err(Status::InvalidArguments));
    }

    #[test]
    fn a_consumer_without_collections_gets_the_default_one_and_cannot_choose() {
        let asked = |json: &[u8]| read(json, false, &Manifest::default());
        assert_eq!(asked(b"").unwrap().interest, Interest::DefaultCollection);
        assert_eq!(asked(b"{}"), Err(Status::InvalidArguments));
    }
}
