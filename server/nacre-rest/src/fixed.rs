//! Settings that tools read but nobody can change: setting one to its present value succeeds. Paths and fields are
//! Couchbase's.

use super::Call;
use super::body::{Reply, done, invalid, json_reply, ok};
use super::routes::{ADMINISTER, READ, Route, get, post, ready};
use hyper::StatusCode;
use nacre_links::cluster::membership::otp_node;
use serde_json::{Map, Value, json};

const PREVIEW: &str = "/settings/developerPreview";
const INDEXERS: &str = "/settings/maxParallelIndexers";
const UPDATES: &str = "/settings/viewUpdateDaemon";

pub(super) const ROUTES: &[Route] = &[
    get(PREVIEW, READ, |_| ready(Ok(ok(&preview())))),
    post(PREVIEW, ADMINISTER, |call| ready(set(&call, &preview(), "").map(|()| done()))),
    get(INDEXERS, READ, |call| ready(Ok(ok(&indexers(&call))))),
    post(INDEXERS, ADMINISTER, |call| {
        let known = json!({"globalValue": PARALLEL_INDEXERS});
        ready(set(&call, &known, TASKS).map(|()| ok(&indexers(&call))))
    }),
    get(UPDATES, READ, |_| ready(Ok(ok(&updates())))),
    post(UPDATES, ADMINISTER, |call| ready(set(&call, &updates(), PACE).map(|()| ok(&updates())))),
    get("/sampleBuckets", ADMINISTER, |_| ready(Ok(ok(&json!([]))))),
    post("/sampleBuckets/install", ADMINISTER, |call| ready(Err(no_samples(&call)))),
    post("/node/controller/changeMasterPassword", ADMINISTER, |_| {
        ready(Err(invalid("newPassword", NO_MASTER_PASSWORD)))
    }),
    post("/node/controller/rotateDataKey", ADMINISTER, |_| {
        ready(Err(invalid("_", NO_MASTER_PASSWORD)))
    }),
];

const NO_MASTER_PASSWORD: &str = "There is no master password: the key in tls/settings-key of the data directory seals the settings.";
const TASKS: &str = "Views and indexes share the threads of the node.";
const PACE: &str = "The options of a design document name its own pace.";

/// Couchbase's default number of parallel view indexers. In nacre, each design document has a task of its own.
const PARALLEL_INDEXERS: u32 = 4;

/// Refuses to install sample data: nacre comes without any. Setup scripts of Couchbase ask for it by a JSON list of names.
fn no_samples(call: &Call) -> Reply {
    let Ok(names) = serde_json::from_slice::<Vec<String>>(&call.body) else {
        return json_reply(StatusCode::BAD_REQUEST, &json!(["The body is a JSON array of names."]));
    };
    let refused = |name| format!("Sample {name} is not a valid sample.");
    let reasons: Vec<String> = names.iter().take(SAMPLES_NAMED).map(refused).collect();
    json_reply(StatusCode::BAD_REQUEST, &json!(reasons))
}

fn preview() -> Value {
    json!({"enabled": false})
}

/// Names that a refusal repeats.
const SAMPLES_NAMED: usize = 10;

fn indexers(call: &Call) -> Value {
    let cluster = call.node.cluster();
    let nodes = cluster.nodes.values();
    let nodes: Map<String, Value> =
        nodes.map(|node| (otp_node(&node.endpoints), json!(PARALLEL_INDEXERS))).collect();
    json!({"globalValue": PARALLEL_INDEXERS, "nodes": nodes})
}

/// Update intervals of views, for design documents that name only some of them. Other design documents follow every
/// change. Source: Couchbase's defaults.
fn updates() -> Value {
    json!({"updateInterval": 5000, "updateMinChanges": 5000, "replicaUpdateMinChanges": 5000})
}

fn set(call: &Call, known: &Value, reason: &str) -> Result<(), Reply> {
    check_because(known.as_object().unwrap_or(&Map::new()), &call.form(), reason)
}

/// Refuses unknown fields, and any value other than the present one.
pub(super) fn check(known: &Map<String, Value>, form: &[(String, String)]) -> Result<(), Reply> {
    check_because(known, form, "")
}

/// Like [`check`]; `reason` says why a value cannot be changed.
pub(super) fn check_because(
    known: &Map<String, Value>,
    form: &[(String, String)],
    reason: &str,
) -> Result<(), Reply> {
    for (field, value) in form {
        let is = known.get(field).ok_or_else(|| invalid(field, "Unsupported key"))?;
        let is_same = match is {
            Value::String(text) => text == value,
            _ => *is == serde_json::from_str::<Value>(value).unwrap_or_default(),
        };
        if !is_same {
            let text = format!("It is {is}, and cannot be changed. {reason}");
            return Err(invalid(field, text.trim_end()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_settings_can_be_set_to_their_value() {
        let known = json!({"moves": 64, "enabled": false, "level": "all", "names": []});
        let set = |field: &str, value: &str| {
            let form = [(field.to_owned(), value.to_owned())];
            check_because(known.as_object().unwrap(), &form, "").is_ok()
        };
        assert!(set("moves", "64") && set("enabled", "false"));
        assert!(set("level", "all") && set("names", "[]"));
        assert!(!set("moves", "4") && !set("enabled", "true") && !set("others", "1"));
        assert!(!set("level", "\"all\"") && !set("level", "control") && !set("names", "[\"a\"]"));
    }
}
