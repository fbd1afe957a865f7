//! Descriptions of a node and its buckets for tools over REST, and the changes that tools may make.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use nacre_conformance::http::{self, Answer};
use serde_json::{Value, json};

fn status(server: &Server, method: &str, path: &str, form: &str) -> (u16, String) {
    let answer = server.rest(method, path, form).unwrap();
    (answer.status, answer.text())
}

fn json_of(server: &Server, path: &str) -> Value {
    let (status, text) = status(server, "GET", path, "");
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

fn put_user(server: &Server, name: &str, form: &str) -> (u16, String) {
    status(server, "PUT", &format!("/settings/rbac/users/local/{name}"), form)
}

fn names(list: &Value, field: &str) -> Vec<String> {
    let all = list.as_array().unwrap().iter();
    all.map(|one| one[field].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_node_without_a_host_name_has_the_address_of_the_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let host = format!("127.0.0.1:{}", server.port_base);
    let bucket = json_of(&server, &format!("/pools/default/buckets/{BUCKET}"));
    let pool = json_of(&server, "/pools/default");
    let own = json_of(&server, "/nodes/self");
    for node in [&own, &pool["nodes"][0], &bucket["nodes"][0]] {
        assert_eq!(node["hostname"], json!(host));
        assert_eq!(node["nodeUUID"].as_str().unwrap().len(), 32);
        let (free, total) = (node["memoryFree"].as_u64(), node["memoryTotal"].as_u64());
        assert!(free > Some(0) && free < total, "{node}");
    }
    let servers = &bucket["vBucketServerMap"]["serverList"];
    assert_eq!(*servers, json!([server.kv_address()]));
    let nodes = json_of(&server, &format!("/pools/default/buckets/{BUCKET}/nodes"));
    let stats = format!("/pools/default/buckets/{BUCKET}/nodes/{host}/stats");
    assert_eq!(nodes, json!({"servers": [{"hostname": host, "stats": {"uri": stats}}]}));
    assert_eq!(json_of(&server, "/nodeStatuses")[&host]["status"], "healthy");
    // Parts that clients know best are left to them.
    let terse = json_of(&server, &format!("/pools/default/b/{BUCKET}"));
    let named = terse["vBucketServerMap"]["serverList"][0].as_str().unwrap();
    assert!(named.starts_with("$HOST:"), "{named}");
    let without = json_of(&server, &format!("/pools/default/buckets/{BUCKET}?skipMap=true"));
    assert!(without["vBucketServerMap"].is_null() && without["name"] == BUCKET);
}

#[test]
fn a_check_has_no_effects() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let buckets = || names(&json_of(&server, "/pools/default/buckets"), "name");
    let trial = "/pools/default/buckets?just_validate=1";
    let (code, text) = status(&server, "POST", trial, "name=b&ramQuotaMB=100");
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &told["errors"]), (200, &json!({})), "{text}");
    assert_eq!(told["summaries"]["ramSummary"]["thisAlloc"], 100 << 20);
    for wrong in ["name=b&ramQuotaMB=1", "name=b&ramQuotaMB=100&replicaNumber=9", "name=b"] {
        let (code, text) = status(&server, "POST", trial, wrong);
        assert!(code == 400 && text.contains("errors"), "{wrong}: {code} {text}");
    }
    assert_eq!(buckets(), [BUCKET]);
    let path = format!("/pools/default/buckets/{BUCKET}");
    let before = json_of(&server, &path)["quota"].clone();
    let edit = format!("{path}?just_validate=1");
    assert_eq!(status(&server, "POST", &edit, "ramQuotaMB=333").0, 200);
    assert_eq!(status(&server, "POST", &edit, "ramQuotaMB=1").0, 400);
    assert_eq!(json_of(&server, &path)["quota"], before);
    // Nor is anything done that comes too late.
    let services = json_of(&server, "/nodes/self")["services"].clone();
    let setup = "/node/controller/setupServices";
    let (code, text) = status(&server, "POST", setup, "services=kv");
    assert!(code == 400 && text.contains("after cluster is provisioned"), "{code} {text}");
    assert_eq!(json_of(&server, "/nodes/self")["services"], services);
}

#[test]
fn fixed_settings_can_be_read_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let failover = "/settings/autoFailover";
    let told = json_of(&server, failover);
    assert_eq!(told["failoverOnDataDiskIssues"]["enabled"], false);
    assert_eq!(told["failoverPreserveDurabilityMajority"], true);
    for (path, form, code) in [
        (failover, "enabled=true&timeout=9", 200),
        (failover, "enabled=true&failoverOnDataDiskIssues[enabled]=false", 200),
        (failover, "enabled=true&failoverOnDataDiskIssues[enabled]=true", 400),
        (failover, "enabled=true&failoverPreserveDurabilityMajority=false", 400),
        (failover, "enabled=true&timeOut=7", 400),
        ("/settings/rebalance", "rebalanceMovesPerNode=64", 200),
        ("/settings/rebalance", "rebalanceMovesPerNode=65", 400),
        ("/settings/security", "tlsMinVersion=tlsv1.2&clusterEncryptionLevel=all", 200),
        ("/settings/security", "clusterEncryptionLevel=control", 400),
        ("/settings/developerPreview", "enabled=true", 400),
        ("/internalSettings", "maxBucketCount=3", 400),
    ] {
        let (answered, text) = status(&server, "POST", path, form);
        assert_eq!(answered, code, "{path} {form}: {text}");
    }
    assert_eq!(json_of(&server, failover)["timeout"], 9, "what is refused changes nothing");
    assert_eq!(json_of(&server, "/settings/security")["clusterEncryptionLevel"], "all");
    for path in ["/settings/rebalance", "/settings/developerPreview", "/internalSettings"] {
        assert!(json_of(&server, path).is_object());
    }
}

#[test]
fn users_with_rights_in_a_bucket_see_only_that_bucket() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let scopes = format!("/pools/default/buckets/{BUCKET}/scopes");
    for (path, form) in [
        ("/pools/default/buckets", "name=other&ramQuotaMB=100"),
        (scopes.as_str(), "name=s"),
        (&format!("{scopes}/s/collections"), "name=c"),
        (&format!("{scopes}/s/collections"), "name=d"),
    ] {
        let (code, text) = status(&server, "POST", path, form);
        assert!(code < 300, "{path} {form}: {text}");
    }
    let form = |role: &str| format!("password=secret1&roles={role}");
    assert_eq!(put_user(&server, "ann", &form(&format!("data_reader[{BUCKET}:s:c]"))).0, 200);
    for missing in ["data_reader[default:none]", "data_reader[default:s:none]"] {
        let (code, text) = put_user(&server, "bob", &form(missing));
        assert!(code == 400 && text.contains("unknown, malformed"), "{missing}: {code} {text}");
    }
    let address = format!("127.0.0.1:{}", server.port_base);
    let as_ann = |path: &str| -> Answer {
        http::request(&address, "GET", path, Some(("ann", "secret1")), "", b"").unwrap()
    };
    for path in ["/pools/default", "/pools/nodes"] {
        assert_eq!(as_ann(path).status, 200, "{path}");
    }
    assert_eq!(names(&as_ann("/pools/default/buckets").json().unwrap(), "name"), [BUCKET]);
    assert_eq!(as_ann(&format!("/pools/default/buckets/{BUCKET}")).status, 200);
    assert_eq!(as_ann("/pools/default/buckets/other").status, 403);
    let manifest = as_ann(&scopes).json().unwrap();
    assert_eq!(names(&manifest["scopes"], "name"), ["s"]);
    assert_eq!(names(&manifest["scopes"][0]["collections"], "name"), ["c"]);
    assert_eq!(as_ann("/settings/autoFailover").status, 403);
}

#[test]
fn the_last_full_administrator_cannot_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let own = format!("/settings/rbac/users/local/{USER}");
    let admins = "/settings/rbac/groups/admins";
    let refused = |method: &str, path: &str, form: &str| {
        let (code, text) = status(&server, method, path, form);
        assert!(
            code == 400 && text.contains("give it to another"),
            "{method} {path}: {code} {text}"
        );
    };
    refused("DELETE", &own, "");
    refused("PUT", &own, "roles=");
    refused("PUT", &own, "roles=ro_admin");
    assert_eq!(status(&server, "PUT", &own, &format!("password={PASSWORD}&roles=admin")).0, 200);
    // A group that gives it counts as long as it has somebody.
    assert_eq!(status(&server, "PUT", admins, "roles=admin").0, 200);
    refused("DELETE", &own, "");
    assert_eq!(status(&server, "PUT", &own, "groups=admins&roles=").0, 200);
    refused("DELETE", admins, "");
    refused("PUT", admins, "roles=ro_admin");
    assert_eq!(put_user(&server, "ann", "password=secret1&roles=admin").0, 200);
    assert_eq!(status(&server, "DELETE", admins, "").0, 200);
}

#[test]
fn users_are_listed_page_by_page() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    for n in 0..7 {
        assert_eq!(put_user(&server, &format!("user-{n}"), "password=secret1&roles=").0, 200);
    }
    let all = names(&json_of(&server, "/settings/rbac/users"), "id");
    let (mut path, mut seen) = ("/settings/rbac/users?pageSize=3".to_owned(), Vec::new());
    loop {
        let page = json_of(&server, &path);
        assert_eq!(page["total"], all.len());
        seen.extend(names(&page["users"], "id"));
        let Some(next) = page["links"]["next"].as_str() else { break };
        next.clone_into(&mut path);
    }
    assert_eq!(seen, all);
    assert_eq!(status(&server, "GET", "/settings/rbac/users?pageSize=0", "").0, 400);
}
