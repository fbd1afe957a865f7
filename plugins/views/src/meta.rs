//! The second argument of map functions, which describes a document.

use nacre_js::Argument;
use nacre_plugin::{DATATYPE_JSON, Event};
use std::borrow::Cow;

/// Creates `meta` in the engine from [`Meta::arguments`].
pub const MAKE: &str = "(id, rev, seq, vb, expiration, flags, type) =>
    ({ id, rev, seq, vb, expiration, flags, type })";

/// The `meta` of a document.
pub struct Meta<'a> {
    event: &'a Event<'a>,
    /// The ID of the document, with any bytes that are not UTF-8 replaced.
    pub id: Cow<'a, str>,
}

impl<'a> Meta<'a> {
    pub fn of(event: &'a Event<'a>) -> Meta<'a> {
        Meta { event, id: String::from_utf8_lossy(event.key) }
    }

    pub fn is_json(&self) -> bool {
        self.event.datatype & DATATYPE_JSON != 0
    }

    /// Returns the revision in Couchbase's format: count, then CAS, expiry and flags in hexadecimal.
    pub fn rev(&self) -> String {
        let Event { rev, cas, expiry, flags, .. } = self.event;
        format!("{rev}-{cas:016x}{expiry:08x}{flags:08x}")
    }

    pub fn seq(&self) -> f64 {
        self.event.seqno as f64
    }

    pub fn vb(&self) -> f64 {
        f64::from(self.event.vb)
    }

    pub fn expiration(&self) -> f64 {
        f64::from(self.event.expiry)
    }

    pub fn flags(&self) -> f64 {
        f64::from(self.event.flags)
    }

    /// Returns how functions receive the body.
    pub fn kind(&self) -> &'static str {
        if self.is_json() { "json" } else { "base64" }
    }

    /// Returns the arguments of [`MAKE`]. `rev` is [`Meta::rev`].
    pub fn arguments<'b>(&'b self, rev: &'b str) -> [Argument<'b>; 7] {
        [
            Argument::Text(&self.id),
            Argument::Text(rev),
            Argument::Number(self.seq()),
            Argument::Number(self.vb()),
            Argument::Number(self.expiration()),
            Argument::Number(self.flags()),
            Argument::Text(self.kind()),
        ]
    }
}
