//! A plugin over a state in memory, fed with packed buffers as the host makes them.

use nacre_plugin::{DocumentError, Events, MemoryState, Request, Service};
use nacre_views::Views;

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

/// The event buffer of `changes`.
pub fn pack(changes: &[Change<'_>]) -> Vec<u8> {
    let arena_start = 32 + 64 * changes.len() as u32;
    let mut arena = Vec::new();
    let mut events = Vec::new();
    for change in changes {
        let body = change.body.unwrap_or_default();
        for word in [change.seqno, change.seqno << 16, 3] {
            events.extend(word.to_le_bytes());
        }
        let at = arena.len() as u32;
        let key_bytes = change.id.len() as u32;
        for word in [6, 0, 8, at, at + key_bytes, body.len() as u32, 0] {
            events.extend(u32::to_le_bytes(word));
        }
        events.extend(change.vb.to_le_bytes());
        events.extend((key_bytes as u16).to_le_bytes());
        events.push(if change.body.is_some() { 1 } else { 2 });
        events.push(change.datatype);
        events.extend([0; 6]);
        arena.extend(change.id.as_bytes());
        arena.extend(body);
    }
    let mut buffer = b"NEB1".to_vec();
    buffer.extend((changes.len() as u32).to_le_bytes());
    buffer.extend(1_700_000_000_000_000u64.to_le_bytes());
    buffer.extend(arena_start.to_le_bytes());
    buffer.extend((arena_start + arena.len() as u32).to_le_bytes());
    buffer.extend([0; 8]);
    buffer.extend(events);
    buffer.extend(arena);
    buffer
}

pub struct Fixture {
    pub views: Views,
    pub state: MemoryState,
}

impl Fixture {
    pub fn new(config: &str) -> Fixture {
        Fixture { views: Views::init(config).unwrap(), state: MemoryState::default() }
    }

    /// With one view called `v`.
    pub fn view(map: &str, reduce: Option<&str>) -> Fixture {
        let mut view = serde_json::json!({"map": map});
        if let Some(reduce) = reduce {
            view["reduce"] = reduce.into();
        }
        Fixture::new(&serde_json::json!({"name": "d", "views": {"v": view}}).to_string())
    }

    pub fn feed(&mut self, changes: &[Change<'_>]) -> Vec<DocumentError> {
        let buffer = pack(changes);
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
            body: body.into(),
            now_us: 0,
        };
        let response = self.views.handle(&request, &self.state).unwrap();
        let body = String::from_utf8(response.body).unwrap().replace('\n', "");
        if response.status == 200 { body } else { format!("{} {body}", response.status) }
    }
}
