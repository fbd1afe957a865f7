//! A plugin with a state in memory, which receives packed buffers as from the host.

use nacre_plugin::{DocumentError, Event, EventKind, Events, MemoryState, Request, Service, pack};
use nacre_views::{Bounds, Views};

/// A change of a document.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    pub vb: u16,
    pub seqno: u64,
    pub id: &'a str,
    /// None for a deletion.
    pub body: Option<&'a [u8]>,
    pub datatype: u8,
}

pub fn json<'a>(vb: u16, id: &'a str, body: &'a str) -> Change<'a> {
    Change { vb, seqno: 1, id, body: Some(body.as_bytes()), datatype: 1 }
}

pub fn gone(vb: u16, id: &str) -> Change<'_> {
    Change { vb, seqno: 2, id, body: None, datatype: 0 }
}

/// Returns the event buffer of `changes`.
pub fn packed(changes: &[Change<'_>]) -> Vec<u8> {
    let mut events = Vec::with_capacity(changes.len());
    for change in changes {
        events.push(Event {
            index: 0,
            vb: change.vb,
            seqno: change.seqno,
            cas: change.seqno << 16,
            rev: 3,
            flags: 6,
            expiry: 0,
            collection: 8,
            previous: None,
            kind: if change.body.is_some() { EventKind::Upsert } else { EventKind::Delete },
            datatype: change.datatype,
            key: change.id.as_bytes(),
            xattrs: b"",
            body: change.body.unwrap_or_default(),
        });
    }
    pack(&events, 1_700_000_000_000_000)
}

pub struct Fixture {
    pub views: Views,
    pub state: MemoryState,
    /// Headers of the following requests.
    pub headers: Vec<(String, String)>,
}

impl Fixture {
    pub fn new(config: &str) -> Fixture {
        Views::init(config).unwrap();
        let mut checked: serde_json::Value = serde_json::from_str(config).unwrap();
        checked["checked"] = true.into();
        let views = Views::init(&checked.to_string()).unwrap();
        Fixture { views, state: MemoryState::default(), headers: Vec::new() }
    }

    pub fn bounded(self, bounds: Bounds) -> Fixture {
        Fixture { views: self.views.bounded(bounds), ..self }
    }

    /// Creates a plugin with one view named `v`.
    pub fn view(map: &str, reduce: Option<&str>) -> Fixture {
        let mut view = serde_json::json!({"map": map});
        if let Some(reduce) = reduce {
            view["reduce"] = reduce.into();
        }
        Fixture::new(&serde_json::json!({"name": "d", "views": {"v": view}}).to_string())
    }

    pub fn feed(&mut self, changes: &[Change<'_>]) -> Vec<DocumentError> {
        let buffer = packed(changes);
        let events = Events::decode(&buffer).unwrap();
        self.views.on_batch(&events, &mut self.state).unwrap()
    }

    pub fn get(&mut self, path: &str, query: &str) -> String {
        self.ask("GET", path, query, "")
    }

    pub fn ask(&mut self, method: &str, path: &str, query: &str, body: &str) -> String {
        let request = Request {
            method: method.into(),
            path: path.into(),
            query: query.into(),
            headers: self.headers.clone(),
            body: body.into(),
            ..Request::default()
        };
        let (status, pieces) = self.answer(&request);
        let body = String::from_utf8(pieces.concat()).unwrap().replace('\n', "");
        if status == 200 { body } else { format!("{status} {body}") }
    }

    /// Returns the status of a response and the pieces of its body.
    pub fn answer(&mut self, request: &Request) -> (u16, Vec<Vec<u8>>) {
        let response = self.views.handle(request, &self.state).unwrap();
        let (mut pieces, mut cursor) = (vec![response.body], response.cursor);
        while let Some(at) = cursor {
            let chunk = self.views.more(&at, &self.state).unwrap();
            pieces.push(chunk.body);
            cursor = chunk.cursor;
        }
        (response.status, pieces)
    }
}
