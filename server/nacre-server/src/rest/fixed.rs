//! Settings that tools read and that are as they are: they may be set to what they are, and to nothing else. Paths and fields are
//! Couchbase's.

use super::Call;
use super::body::{Reply, done, invalid, not_found, ok};
use nacre_auth::Privilege;
use nacre_cluster::orchestrator::MOVES_MAX;
use serde_json::{Map, Value, json};

/// `path` is `/settings/rebalance`, `/settings/security`, `/settings/developerPreview` or `/internalSettings`.
pub(super) fn route(call: &Call, path: &[&str]) -> Result<Reply, Reply> {
    let reads = call.method == "GET";
    let need = if reads { Privilege::ReadCluster } else { Privilege::AdministerCluster };
    call.require(need, None)?;
    let settings = match path {
        // So many vBuckets are on their way at a time, wherever they are.
        ["settings", "rebalance"] => json!({"rebalanceMovesPerNode": MOVES_MAX}),
        // Nodes talk to each other in TLS only; clients choose by the port.
        ["settings", "security"] => json!({
            "tlsMinVersion": "tlsv1.2",
            "cipherSuites": [],
            "honorCipherOrder": false,
            "clusterEncryptionLevel": "all",
            "disableUIOverHttp": false,
            "disableUIOverHttps": false,
        }),
        ["settings", "developerPreview"] => json!({"enabled": false}),
        ["internalSettings"] => json!({}),
        _ => return Err(not_found()),
    };
    if reads {
        return Ok(ok(&settings));
    }
    check(settings.as_object().unwrap_or(&Map::new()), &call.form()).map(|()| done())
}

/// Refuses what is not as it is.
pub(super) fn check(known: &Map<String, Value>, form: &[(String, String)]) -> Result<(), Reply> {
    for (field, value) in form {
        let is = known.get(field).ok_or_else(|| invalid(field, "Unsupported key"))?;
        let is_same = match is {
            Value::String(text) => text == value,
            _ => *is == serde_json::from_str::<Value>(value).unwrap_or_default(),
        };
        if !is_same {
            return Err(invalid(field, format!("It is {is}, and cannot be changed.")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_changed_may_be_set_to_what_it_is() {
        let known = json!({"moves": 64, "enabled": false, "level": "all", "names": []});
        let set = |field: &str, value: &str| {
            check(known.as_object().unwrap(), &[(field.to_owned(), value.to_owned())]).is_ok()
        };
        assert!(set("moves", "64") && set("enabled", "false"));
        assert!(set("level", "all") && set("names", "[]"));
        assert!(!set("moves", "4") && !set("enabled", "true") && !set("others", "1"));
        assert!(!set("level", "\"all\"") && !set("level", "control") && !set("names", "[\"a\"]"));
    }
}
