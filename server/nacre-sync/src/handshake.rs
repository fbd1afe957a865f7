//! The start of a session: collections, vBuckets, and the streams that follow from both.

use crate::engine::{Engine, LineId, STREAM_OPAQUE};
use crate::{Failure, Notice, wire};
use nacre_protocol::{Frame, Opcode, Status};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The opaque of a later request for seqnos.
pub(crate) const SEQNOS_AGAIN: u32 = 200;
/// The opaque of a request to end a stream.
pub(crate) const CLOSE: u32 = 201;

#[derive(Deserialize)]
struct Manifest {
    scopes: Vec<Scope>,
}

#[derive(Deserialize)]
struct Scope {
    name: String,
    #[serde(default)]
    collections: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    uid: String,
}

/// Reads the collections of a manifest: their IDs by path.
fn read_manifest(text: &[u8]) -> Option<BTreeMap<String, u32>> {
    let manifest: Manifest = serde_json::from_slice(text).ok()?;
    let mut ids = BTreeMap::new();
    for scope in manifest.scopes {
        for collection in scope.collections {
            let id = u32::from_str_radix(&collection.uid, 16).ok()?;
            ids.insert(format!("{}.{}", scope.name, collection.name), id);
        }
    }
    Some(ids)
}

impl Engine {
    pub(crate) fn handshake_answered(
        &mut self,
        id: LineId,
        frame: &Frame<'_>,
    ) -> Result<(), Failure> {
        if frame.opaque == CLOSE {
            // The stream ends with a message, or has already ended.
            return Ok(());
        }
        // An answer has its status in the place of a request's vBucket.
        let status = frame.vbid;
        if status != Status::Success as u16 {
            let what = format!("{} is refused: {}", Engine::opcode_of(frame), described(status));
            let denied = [Status::AccessDenied, Status::AuthError, Status::KeyNotFound];
            return Err(match denied.iter().any(|denied| *denied as u16 == status) {
                true => Failure::Denied(what),
                false => Failure::Protocol(what),
            });
        }
        let malformed = || Failure::Protocol("the hub's answer is malformed".into());
        match frame.opcode() {
            Some(Opcode::GetCollectionsManifest) => {
                let ids = read_manifest(frame.value).ok_or_else(malformed)?;
                self.set_collections(&ids)?;
                self.line(id).has_manifest = true;
            }
            Some(Opcode::GetAllVbSeqnos) => {
                let seqnos = wire::read_seqnos(frame.value).ok_or_else(malformed)?;
                let is_first = !self.line(id).has_seqnos;
                for (vbid, seqno) in seqnos {
                    let vbucket = self.vbuckets.get_mut(usize::from(vbid)).ok_or_else(malformed)?;
                    vbucket.high = seqno;
                    if is_first {
                        vbucket.goal = seqno;
                    }
                    vbucket.line.get_or_insert(id);
                }
                let line = self.line(id);
                (line.has_seqnos, line.asks_seqnos) = (true, false);
            }
            _ => return Ok(()),
        }
        let line = self.line(id);
        if line.has_manifest && line.has_seqnos {
            self.begin_streams();
        }
        Ok(())
    }

    fn line(&mut self, id: LineId) -> &mut crate::engine::NodeSession {
        self.lines.get_mut(&id).expect("its bytes are being taken")
    }

    fn set_collections(&mut self, ids: &BTreeMap<String, u32>) -> Result<(), Failure> {
        let mut missing = Vec::new();
        for collection in &mut self.collections {
            let found = ids.get(&collection.path).copied();
            if found.is_none() {
                missing.push(collection.path.clone());
            }
            collection.hub_id = found;
        }
        if self.collections.iter().all(|collection| collection.hub_id.is_none()) {
            let what = format!("the hub shows none of these collections: {}", missing.join(", "));
            return Err(Failure::Denied(what));
        }
        missing.into_iter().for_each(|path| self.notify(Notice::NoCollection(path)));
        let found = self.collections.iter();
        let found = found.filter_map(|it| Some((it.path.clone(), it.hub_id?)));
        let found: BTreeMap<String, u32> = found.collect();
        if found.iter().any(|(path, id)| self.known.get(path) != Some(id)) {
            // The positions do not cover a collection that was not visible: all documents arrive again, and equal ones stay
            // unchanged.
            self.rewinds = true;
            self.vbuckets.iter_mut().filter(|it| it.wants_stream()).for_each(|it| it.restart());
        }
        self.known = found;
        Ok(())
    }

    /// Requests the streams that are neither open nor requested.
    pub(crate) fn begin_streams(&mut self) {
        let ids: Vec<u32> =
            self.collections.iter().filter_map(|collection| collection.hub_id).collect();
        for (index, vbucket) in self.vbuckets.iter_mut().enumerate() {
            let Some(id) = vbucket.line.filter(|_| vbucket.wants_stream()) else { continue };
            let Some(line) = self.lines.get_mut(&id) else { continue };
            vbucket.ask();
            let vbid = index as u16;
            let opaque = STREAM_OPAQUE | u32::from(vbid);
            wire::stream(vbid, &vbucket.point, &ids, opaque, &mut line.output);
        }
    }
}

/// Describes a status in words.
pub(crate) fn described(status: u16) -> String {
    let known = Status::TABLE.iter().find(|(known, ..)| *known as u16 == status);
    known.map_or_else(|| format!("status {status:#x}"), |(_, _, words, _)| (*words).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read() {
        let text = br#"{"uid":"3","scopes":[{"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]},
            {"name":"shop","uid":"8","collections":[{"name":"orders","uid":"1f"}]},{"name":"empty","uid":"9"}]}"#;
        let ids = read_manifest(text).unwrap();
        assert_eq!(ids.len(), 2);
        assert_eq!(ids["shop.orders"], 0x1f);
        assert_eq!(read_manifest(b"{}"), None);
        assert_eq!(
            read_manifest(br#"{"scopes":[{"name":"s","collections":[{"name":"c","uid":"x"}]}]}"#),
            None
        );
    }
}
