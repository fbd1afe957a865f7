//! Replications to other clusters. A backup has no passwords of other clusters: the administrator links them again.

use super::definitions::{Definitions, encoded};
use nacre_cli::Server;
use serde_json::Value;

/// Path of the references to other clusters.
pub(super) const LINKS: &str = "/pools/default/remoteClusters";
/// Path of the replications.
pub(super) const REPLICATIONS: &str = "/pools/default/replications";
/// Path of the request that creates a replication.
const CREATE: &str = "/controller/createReplication";
/// The setting that pauses a replication.
const PAUSED: &str = "pauseRequested";
/// Members that identify a replication.
const IDENTITY: [&str; 3] = ["sourceBucketName", "targetClusterUUID", "targetBucketName"];

/// Creates replications that are missing, paused.
pub(super) fn create(
    server: &Server,
    definitions: &Definitions,
    created: &mut u64,
    failed: &mut Vec<String>,
) {
    let wanted = definitions.get("replications").and_then(Value::as_array);
    let Some(wanted) = wanted.filter(|all| !all.is_empty()) else { return };
    let found = server
        .call("GET", LINKS, b"")
        .and_then(|links| Ok((links, server.call("GET", REPLICATIONS, b"")?)));
    let (links, present) = match found {
        Ok(found) => found,
        Err(reason) => return failed.push(format!("replications: {reason}")),
    };
    let known = definitions.get("remote_clusters").unwrap_or(&Value::Null);
    for replication in wanted {
        let is_same =
            |other: &Value| IDENTITY.iter().all(|name| other[*name] == replication[*name]);
        if present.as_array().into_iter().flatten().any(is_same) {
            continue;
        }
        let cluster = &replication["targetClusterUUID"];
        let done = match name_of(&links, cluster) {
            Some(link) => {
                let form = form(replication, link);
                server.call("POST", CREATE, form.as_bytes()).map_err(String::from)
            }
            None => {
                let link = name_of(known, cluster).unwrap_or("NAME");
                Err(format!("link the other cluster first: `nacre xdcr link {link} HOST`"))
            }
        };
        match done {
            Ok(_) => *created += 1,
            Err(reason) => {
                let bucket = replication["sourceBucketName"].as_str().unwrap_or_default();
                failed.push(format!("replication of {bucket}: {reason}"));
            }
        }
    }
}

/// Returns the name under which a cluster is linked.
fn name_of<'a>(links: &'a Value, cluster: &Value) -> Option<&'a str> {
    let mut links = links.as_array().into_iter().flatten();
    links.find(|link| link["uuid"] == *cluster)?["name"].as_str()
}

/// Returns the form that creates a replication with the same settings, paused.
fn form(replication: &Value, link: &str) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut fields = vec![
        ("fromBucket", text(&replication["sourceBucketName"])),
        ("toCluster", link.to_owned()),
        ("toBucket", text(&replication["targetBucketName"])),
        ("replicationType", "continuous".to_owned()),
        (PAUSED, "true".to_owned()),
    ];
    let settings = replication["settings"].as_object().into_iter().flatten();
    let settings = settings.filter(|(name, _)| *name != PAUSED);
    fields.extend(settings.map(|(name, value)| (name.as_str(), text(value))));
    let fields = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    fields.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_replication_is_created_with_its_settings_and_paused() {
        let replication = json!({
            "id": "c/a/b", "sourceBucketName": "a", "targetClusterUUID": "c", "targetBucketName": "b",
            "settings": {"pauseRequested": false, "filterExpression": "n > 1", "statsInterval": 1000, "colMappingRules": {}},
        });
        let form = form(&replication, "second");
        let begin = "fromBucket=a&toCluster=second&toBucket=b&replicationType=continuous&pauseRequested=true&";
        assert!(form.starts_with(begin), "{form}");
        for field in
            ["filterExpression=n%20%3E%201", "statsInterval=1000", "colMappingRules=%7B%7D"]
        {
            assert!(form.split('&').any(|found| found == field), "{form}");
        }
        assert!(!form.contains("pauseRequested=false"), "{form}");
    }

    #[test]
    fn a_cluster_is_found_by_its_identity_whatever_its_name() {
        let links = json!([{"uuid": "a", "name": "first"}, {"uuid": "b", "name": "second"}]);
        assert_eq!(name_of(&links, &json!("b")), Some("second"));
        assert_eq!(name_of(&links, &json!("c")), None);
        assert_eq!(name_of(&Value::Null, &json!("b")), None);
    }
}
