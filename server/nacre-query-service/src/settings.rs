//! Settings of the query service on all nodes, as a record of the agreed state.
//!
//! An instance reads its settings as notes. A node's own setting, made with `POST /admin/settings`, comes before the agreed one:
//!
//! ```text
//! settings/timeout                 maximum time of a request in milliseconds
//! settings/completed-threshold     minimum time of the requests in system:completed_requests in milliseconds
//! ```

use super::row::QUERY;
use nacre_cluster::{Change, Cluster, Expected, RecordChange, ServiceRecord};
use serde::{Deserialize, Serialize};

/// Name of the record.
const NAME: &str = "settings";

/// Nanoseconds in a millisecond.
const NS_IN_MS: u64 = 1_000_000;

/// Default minimum time of completed requests in milliseconds. Source: Couchbase.
const COMPLETED_THRESHOLD_MS: i64 = 1000;

/// Settings of the query service on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuerySettings {
    /// Maximum time of a request in nanoseconds, the unit of Couchbase's setting; 0 for no limit.
    pub timeout_ns: u64,
    /// Minimum time of the requests in `system:completed_requests` in milliseconds; -1 for no requests.
    pub completed_threshold_ms: i64,
    /// True if the planner compares costs where there are statistics.
    pub uses_costs: bool,
    /// True if the nodes collect statistics again after enough changes.
    pub refreshes_statistics: bool,
    /// The share of a keyspace's documents whose change makes a node collect its statistics again, in percent; 1..=100.
    pub refresh_percent: u64,
}

impl Default for QuerySettings {
    fn default() -> QuerySettings {
        QuerySettings {
            timeout_ns: 0,
            completed_threshold_ms: COMPLETED_THRESHOLD_MS,
            uses_costs: true,
            refreshes_statistics: true,
            // Source: Couchbase's default for automatic statistics.
            refresh_percent: 10,
        }
    }
}

impl QuerySettings {
    /// Returns the settings of a cluster.
    pub fn of(cluster: &Cluster) -> QuerySettings {
        let record = cluster.service_records.get(QUERY.id, NAME);
        record.and_then(|record| serde_json::from_str(&record.body).ok()).unwrap_or_default()
    }

    /// Returns the change of the agreed state that stores the settings.
    pub fn to_change(&self) -> Change {
        let body = serde_json::to_string(self).expect("settings are plain data");
        let record = ServiceRecord { version: String::new(), bucket: None, scope: None, body };
        Change::Records(RecordChange::PutServiceRecord {
            service: QUERY.id.to_owned(),
            name: NAME.to_owned(),
            record: Box::new(record),
            expected: Expected::Anything,
        })
    }

    /// Returns the note with a setting; `None` for settings with their default, which have no note.
    pub(super) fn note(&self, name: &str) -> Option<Vec<u8>> {
        let text = match name {
            // A limit below one millisecond is still a limit.
            "timeout" if self.timeout_ns > 0 => self.timeout_ns.div_ceil(NS_IN_MS).to_string(),
            "completed-threshold" if self.completed_threshold_ms != COMPLETED_THRESHOLD_MS => {
                self.completed_threshold_ms.to_string()
            }
            _ => return None,
        };
        Some(text.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_stored_in_the_agreed_state() {
        let mut cluster = Cluster::new("u".into());
        assert_eq!(QuerySettings::of(&cluster), QuerySettings::default());
        let settings = QuerySettings {
            timeout_ns: 99,
            uses_costs: false,
            refresh_percent: 20,
            ..QuerySettings::default()
        };
        cluster.apply(&settings.to_change()).unwrap();
        assert_eq!(QuerySettings::of(&cluster), settings);
    }

    #[test]
    fn settings_with_their_defaults_have_no_notes() {
        let note = |settings: QuerySettings, name: &str| {
            settings.note(name).map(|text| String::from_utf8(text).unwrap())
        };
        let default = QuerySettings::default;
        for name in ["timeout", "completed-threshold", "other"] {
            assert_eq!(note(default(), name), None, "{name}");
        }
        let short = QuerySettings { timeout_ns: 99, completed_threshold_ms: -1, ..default() };
        assert_eq!(note(short.clone(), "timeout").as_deref(), Some("1"));
        assert_eq!(note(short, "completed-threshold").as_deref(), Some("-1"));
    }
}
