//! Orders documents by location, so that one range of keys is one cell of the Earth.
//!
//! ```json
//! {"geo": {"lat": 59.91, "lon": 10.75}}        u4xsu…
//! {"geo": [{"lat": 59.91, "lon": 10.75}, …]}   an entry for each place
//! ```
//!
//! A key is a [geohash](cell), which is text. The value of an entry is its place as JSON, so that distances can be
//! computed without reading documents. A document without a place has no entry.

pub mod cell;

use cell::Place;
use nacre_plugin::{DATATYPE_JSON, Event, EventKind, Events, Fault, IndexEntry, IndexType};
use serde::Deserialize;
use serde_json::{Value, json};

/// The deployer's configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The member that contains the place.
    #[serde(default = "geo")]
    member: String,
}

fn geo() -> String {
    "geo".into()
}

/// An index of places.
pub struct GeoIndex {
    member: String,
}

impl IndexType for GeoIndex {
    fn describe() -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!(r#"{{"name": "geo-index", "version": "{version}", "limits": {{}}}}"#)
    }

    fn init(config: &str) -> Result<GeoIndex, Fault> {
        let Config { member } =
            serde_json::from_str(config).map_err(|error| Fault::Reject(error.to_string()))?;
        Ok(GeoIndex { member })
    }

    fn project(&mut self, events: &Events<'_>) -> Result<Vec<IndexEntry>, Fault> {
        let alive = events.iter().filter(|event| event.kind == EventKind::Upsert);
        Ok(alive.flat_map(|event| self.entries(&event)).collect())
    }
}

nacre_plugin::export_index_type!(GeoIndex);

impl GeoIndex {
    fn entries(&self, event: &Event<'_>) -> Vec<IndexEntry> {
        if event.datatype & DATATYPE_JSON == 0 {
            return Vec::new();
        }
        let document: Value = serde_json::from_slice(event.body).unwrap_or_default();
        let places = match &document[&self.member] {
            Value::Array(places) => places.as_slice(),
            place => std::slice::from_ref(place),
        };
        let entry = |place: Place| IndexEntry {
            event: event.index,
            key: cell::key(place).into_bytes(),
            value: json!({"lat": place.lat, "lon": place.lon}).to_string().into_bytes(),
        };
        places.iter().filter_map(place_of).map(entry).collect()
    }
}

/// Returns the place in a value, if it is one.
fn place_of(value: &Value) -> Option<Place> {
    Place::new(value["lat"].as_f64()?, value["lon"].as_f64()?)
}

#[cfg(test)]
mod tests;
