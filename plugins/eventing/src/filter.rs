//! The filter that selects the documents for which a function's handlers run. Other documents never reach the engine.

use nacre_plugin::{DATATYPE_JSON, Event, EventKind, Fault};
use nacre_sql::{Condition, Meta};

/// A filter.
pub struct Filter(Condition);

impl Filter {
    /// Parses the filter in the definition of a function.
    ///
    /// # Errors
    /// A message for the author of the function.
    pub fn parse(text: &str) -> Result<Filter, Fault> {
        let condition = Condition::parse(text);
        condition
            .map(Filter)
            .map_err(|error| Fault::Reject(format!("the filter: {}", error.message)))
    }

    /// Returns true if the function receives this change. A deletion contains no document, so the filter applies to the
    /// previous version; if that is unknown, the function receives the deletion.
    pub fn passes(&self, event: &Event<'_>) -> bool {
        let (body, datatype) = match (event.kind, event.previous) {
            (EventKind::Upsert, _) => (event.body, event.datatype),
            (_, Some(before)) if before.kind == EventKind::Upsert => (before.body, before.datatype),
            _ if self.0.needs_no_document() => (&b"null"[..], 0),
            _ => return true,
        };
        let is_json = datatype & DATATYPE_JSON != 0;
        let Ok(id) = str::from_utf8(event.key) else { return true };
        let meta = Meta {
            id: id.into(),
            cas: event.cas,
            expiration: event.expiry,
            flags: event.flags,
            json: is_json,
            ..Meta::default()
        };
        // As in queries, a document that is not JSON has no fields.
        let json = if is_json { body } else { b"null" };
        // The function receives a document that the filter cannot evaluate.
        self.0.holds(json, meta).unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_plugin::Previous;

    const EVENT: Event<'static> = Event {
        index: 0,
        vb: 0,
        seqno: 1,
        cas: 1,
        rev: 1,
        flags: 0,
        expiry: 0,
        collection: 0,
        kind: EventKind::Upsert,
        datatype: DATATYPE_JSON,
        key: b"order::1",
        xattrs: b"",
        body: br#"{"total": 5}"#,
        previous: None,
    };

    fn passes(filter: &str, event: &Event<'_>) -> bool {
        Filter::parse(filter).unwrap().passes(event)
    }

    #[test]
    fn a_deletion_is_filtered_by_its_previous_version_or_by_its_id() {
        let deletion = Event { kind: EventKind::Delete, body: b"", datatype: 0, ..EVENT };
        assert!(passes("total = 6", &deletion), "nobody knows");
        assert!(passes("META().id LIKE 'order%'", &deletion));
        assert!(!passes("META().id LIKE 'user%'", &deletion));
        let before = Previous {
            seqno: 0,
            cas: 0,
            rev: 0,
            flags: 0,
            expiry: 0,
            kind: EventKind::Upsert,
            datatype: DATATYPE_JSON,
            xattrs: b"",
            body: br#"{"total": 6}"#,
        };
        let known = Event { previous: Some(before), ..deletion };
        assert!(passes("total = 6", &known) && !passes("total = 5", &known));
        // For a change, the filter applies to the new version.
        let changed = Event { previous: Some(before), ..EVENT };
        assert!(passes("total = 5", &changed) && !passes("total = 6", &changed));
    }

    #[test]
    fn filters_that_cannot_be_evaluated_are_reported() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        let deep = format!("{{\"total\": {deep}}}");
        assert!(passes("total = 6", &Event { body: deep.as_bytes(), ..EVENT }));
        assert!(passes("total = 6", &Event { key: b"\xff", ..EVENT }));
        let binary = Event { datatype: 0, body: b"{}", ..EVENT };
        assert!(!passes("total = 6", &binary) && passes("total IS NULL", &binary));
    }
}
