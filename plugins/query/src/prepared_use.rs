//! Statistics of the executions of prepared statements on this node, and the members of their descriptions.

use crate::object_text::ObjectText;
use crate::prepared_key::PreparedKey;
use crate::response::duration;
use crate::run::Run;
use crate::watch;
use nacre_datastore::{Datastore, Platform};
use nacre_sql::{Result, Value};

/// Prefix of the keys of notes about uses; the key of the statement follows.
const USES: &str = "uses-of-";

/// The version of the index interface that plans use. Source: Couchbase.
const INDEX_API_VERSION: i64 = 4;

fn note_of(key: &PreparedKey) -> String {
    format!("{USES}{}", key.note())
}

/// Uses of a prepared statement.
#[derive(Default)]
struct Uses {
    made_ms: i64,
    count: i64,
    last_ms: i64,
    sum_us: i64,
    least_us: i64,
    most_us: i64,
}

impl Uses {
    fn recall(note: &str, store: &dyn Datastore) -> Uses {
        let known = store.notes().recall(note);
        let known = known.and_then(|text| Value::parse(text.as_bytes()).ok()).unwrap_or_default();
        let number = |name: &str| known.field(name).as_i64().unwrap_or_default();
        Uses {
            made_ms: number("made"),
            count: number("count"),
            last_ms: number("last"),
            sum_us: number("sum"),
            least_us: number("least"),
            most_us: number("most"),
        }
    }

    fn keep(&self, note: &str, store: &dyn Datastore) {
        let mut text = ObjectText::new();
        for (name, number) in [
            ("made", self.made_ms),
            ("count", self.count),
            ("last", self.last_ms),
            ("sum", self.sum_us),
            ("least", self.least_us),
            ("most", self.most_us),
        ] {
            text.number(name, number);
        }
        store.notes().note(note, Some(&text.end()));
    }
}

/// Records that the statement was prepared.
pub(crate) fn begin(key: &PreparedKey, run: &Run<'_>) {
    let uses = Uses { made_ms: run.platform.now_ms(), ..Uses::default() };
    uses.keep(&note_of(key), run.store);
}

/// Records an execution and its duration in microseconds.
pub(crate) fn count(
    key: &PreparedKey,
    took_us: i64,
    store: &dyn Datastore,
    platform: &dyn Platform,
) {
    let note = note_of(key);
    let mut uses = Uses::recall(&note, store);
    uses.least_us = if uses.count == 0 { took_us } else { uses.least_us.min(took_us) };
    uses.most_us = uses.most_us.max(took_us);
    uses.sum_us = uses.sum_us.saturating_add(took_us);
    uses.count += 1;
    uses.last_ms = platform.now_ms();
    uses.keep(&note, store);
}

/// Removes the uses of a statement that is no longer prepared.
pub(crate) fn forget(key: &PreparedKey, store: &dyn Datastore) {
    store.notes().note(&note_of(key), None);
}

/// Returns the members that PREPARE and the catalog have in common.
pub(crate) fn fields(key: &PreparedKey) -> Vec<(&'static str, Value)> {
    vec![
        // Clients need not send a plan to execute a statement; its name is enough.
        ("encoded_plan", "".into()),
        ("featureControls", Value::Int(0)),
        ("indexApiVersion", Value::Int(INDEX_API_VERSION)),
        ("name", key.name.as_str().into()),
        ("namespace", "default".into()),
        ("queryContext", key.context.as_str().into()),
        // The planner uses costs wherever there are statistics.
        ("useCBO", true.into()),
    ]
}

/// Returns the catalog's members about uses.
pub(crate) fn use_fields(key: &PreparedKey, run: &Run<'_>) -> Result<Vec<(&'static str, Value)>> {
    let uses = Uses::recall(&note_of(key), run.store);
    let mut fields = vec![("uses", Value::Int(uses.count))];
    if uses.made_ms > 0 {
        fields.push(("planPreparedTime", watch::utc(uses.made_ms, run)?));
    }
    if uses.count > 0 {
        let time = |us: i64| Value::from(duration(us.max(1)));
        let average = time(uses.sum_us / uses.count);
        fields.extend([
            ("avgElapsedTime", average.clone()),
            ("avgServiceTime", average),
            ("lastUse", watch::utc(uses.last_ms, run)?),
            ("maxElapsedTime", time(uses.most_us)),
            ("maxServiceTime", time(uses.most_us)),
            ("minElapsedTime", time(uses.least_us)),
            ("minServiceTime", time(uses.least_us)),
        ]);
    }
    Ok(fields)
}
