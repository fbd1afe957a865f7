//! Counts documents by their member "type".
//!
//! State: `doc/<id>` is the type that a document was counted under, `type/<type>` is how many there are.

use nacre_plugin::{
    DocumentError, Event, EventKind, Events, Fault, Request, Response, Service, State, StateMut,
    successor,
};
use serde_json::{Map, Value};

struct Counter;

impl Service for Counter {
    fn describe() -> String {
        r#"{"name": "{{name}}", "version": "0.1.0", "limits": {}}"#.into()
    }

    fn init(_config: &str) -> Result<Counter, Fault> {
        Ok(Counter)
    }

    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        let mut errors = Vec::new();
        for (index, event) in events.iter().enumerate() {
            match type_of(&event) {
                Ok(new) => count(event.key, new.as_deref(), state),
                Err(message) => errors.push(DocumentError { index: index as u32, message }),
            }
        }
        Ok(errors)
    }

    fn handle(&mut self, _request: &Request, state: &dyn State) -> Result<Response, Fault> {
        let mut counts = Map::new();
        for (key, value) in state.scan(b"type/", &successor(b"type/"), u32::MAX, false) {
            let name = String::from_utf8_lossy(&key["type/".len()..]).into_owned();
            counts.insert(name, number(&value).into());
        }
        Ok(Response::json(200, Value::Object(counts).to_string()))
    }
}

/// The type that a document is counted under; none when it is gone.
fn type_of(event: &Event<'_>) -> Result<Option<String>, String> {
    if event.kind != EventKind::Upsert {
        return Ok(None);
    }
    let document: Value = serde_json::from_slice(event.body).map_err(|error| error.to_string())?;
    Ok(Some(document["type"].as_str().unwrap_or("none").to_owned()))
}

/// Counts a document under its new type, and no longer under its old one.
fn count(id: &[u8], new: Option<&str>, state: &mut dyn StateMut) {
    let known = [b"doc/", id].concat();
    if let Some(old) = state.get(&known) {
        add(&old, -1, state);
    }
    match new {
        Some(new) => {
            state.put(&known, new.as_bytes());
            add(new.as_bytes(), 1, state);
        }
        None => state.delete(&known),
    }
}

fn add(name: &[u8], delta: i64, state: &mut dyn StateMut) {
    let key = [b"type/", name].concat();
    match state.get(&key).map_or(0, |value| number(&value)) + delta {
        0 => state.delete(&key),
        sum => state.put(&key, sum.to_string().as_bytes()),
    }
}

fn number(value: &[u8]) -> i64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

nacre_plugin::export!(Counter);

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_plugin::testing::Harness;

    #[test]
    fn a_document_that_changes_its_type_is_counted_once() {
        let mut counter = Harness::<Counter>::new("{}").unwrap();
        counter.put("a", r#"{"type": "x"}"#).put("b", r#"{"type": "x"}"#).feed().unwrap();
        counter.put("b", r#"{"type": "y"}"#).delete("a").feed().unwrap();
        assert_eq!(counter.state_text(), "doc/b = y\ntype/y = 1\n");
    }
}
