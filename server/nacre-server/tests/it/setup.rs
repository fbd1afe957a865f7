//! Nodes without an administrator, set up by the requests of scripts for Couchbase.

use crate::process::{PASSWORD, Server, USER, port_base};
use nacre_conformance::http::{self, Answer};
use serde_json::{Value, json};

/// Sends a request to the management port, with or without a login.
fn ask(server: &Server, login: Option<(&str, &str)>, what: (&str, &str), form: &str) -> Answer {
    let address = format!("127.0.0.1:{}", server.port_base);
    let kind = "application/x-www-form-urlencoded";
    http::request(&address, what.0, what.1, login, kind, form.as_bytes()).unwrap()
}

const ADMINISTRATOR: Option<(&str, &str)> = Some((USER, PASSWORD));

/// The requests of scripts that go step by step, in their usual order.
#[test]
fn a_script_sets_up_a_node_step_by_step() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_unclaimed(directory.path(), port_base());
    let by_nobody = |what: (&str, &str), form: &str| {
        let answer = ask(&server, None, what, form);
        (answer.status, answer.text())
    };
    assert_eq!(by_nobody(("GET", "/pools"), "").0, 200);
    assert_eq!(by_nobody(("GET", "/pools/default/nodeServices"), "").0, 200);
    // All other requests are refused.
    for what in [
        ("GET", "/pools/default"),
        ("GET", "/settings/web"),
        ("GET", "/settings/rbac/users"),
        ("PUT", "/settings/rbac/users/local/eve"),
        ("POST", "/pools/default/buckets"),
        ("POST", "/controller/failOver"),
        ("POST", "/settings/indexes"),
        ("GET", "/metrics"),
        ("POST", "/plugins"),
    ] {
        assert_eq!(by_nobody(what, "name=b&ramQuotaMB=100").0, 401, "{what:?}");
    }
    assert_eq!(by_nobody(("POST", "/node/controller/rename"), "hostname=127.0.0.1").0, 200);
    let services = ("POST", "/node/controller/setupServices");
    assert_eq!(by_nobody(services, "services=kv%2Cn1ql%2Cindex").0, 200);
    assert_eq!(
        by_nobody(("POST", "/pools/default"), "memoryQuota=256&indexMemoryQuota=256").0,
        200
    );
    let web = ("POST", "/settings/web");
    for (form, field) in [
        ("password=password&port=SAME", "username"),
        ("username=Administrator&port=SAME", "password"),
        ("username=Administrator&password=short", "password"),
        ("username=Administrator&password=password&port=1", "port"),
    ] {
        let (status, text) = by_nobody(web, form);
        let errors: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, errors["errors"][field].is_string()), (400, true), "{form}: {text}");
    }
    let form = format!("username={USER}&password={PASSWORD}&port={}", server.port_base);
    let (status, text) = by_nobody(web, &form);
    let base = json!({"newBaseUri": format!("http://127.0.0.1:{}/", server.port_base)});
    assert_eq!((status, serde_json::from_str::<Value>(&text).unwrap()), (200, base));

    // From now on it is somebody's.
    for what in [services, web, ("POST", "/clusterInit"), ("POST", "/pools/default")] {
        assert_eq!(by_nobody(what, &form).0, 401, "{what:?}");
    }
    let external = ("PUT", "/node/controller/setupAlternateAddresses/external");
    let by_somebody = |what, form: &str| ask(&server, ADMINISTRATOR, what, form);
    // Tools name the ports of all services that they know.
    let ports = "hostname=localhost&mgmt=8091&kv=11210&fts=8094&ftsSSL=18094&cbas=8095";
    assert_eq!(by_somebody(external, ports).status, 200);
    let map = by_somebody(("GET", "/pools/default/nodeServices"), "").json().unwrap();
    let services = map["nodesExt"][0]["services"].as_object().unwrap();
    assert_eq!(services["indexHttp"], services["mgmt"], "a tool waits until it is named");
    assert_eq!(by_somebody(("GET", "/indexStatus"), "").json().unwrap()["indexes"], json!([]));
    let indexes = ("POST", "/settings/indexes");
    let settings = by_somebody(indexes, "storageMode=plasma");
    assert_eq!(
        (settings.status, settings.json().unwrap()["storageMode"].clone()),
        (200, json!("memory_optimized"))
    );
    assert_eq!(by_somebody(indexes, "storageMode=paper").status, 400);
    assert_eq!(by_somebody(indexes, "numReplica=2").status, 400);
    assert_eq!(by_somebody(web, &form).status, 200, "the administrator may have another password");
    let renamed = form.replace(USER, "eve");
    assert_eq!(by_somebody(web, &renamed).status, 400, "it has an administrator");
    let bucket = "name=b&ramQuotaMB=100&flushEnabled=0&replicaNumber=0";
    assert_eq!(by_somebody(("POST", "/pools/default/buckets"), bucket).status, 202);
    let map = by_somebody(("GET", "/pools/default/b/b"), "").json().unwrap();
    let services = &map["nodesExt"][0]["services"];
    assert!(services["kv"].is_number() && services["n1ql"].is_number(), "{services}");
    assert_eq!(services["eventingAdminPort"], Value::Null);
    let nodes = by_somebody(("GET", "/pools/default"), "").json().unwrap();
    assert_eq!(nodes["nodes"][0]["status"], "healthy");
    let ping = format!("127.0.0.1:{}", server.port_base + 2);
    let ping = http::request(&ping, "GET", "/admin/ping", ADMINISTRATOR, "", b"").unwrap();
    assert_eq!(ping.status, 200);
}

#[test]
fn a_node_is_set_up_with_one_request_and_keeps_its_administrator() {
    let directory = tempfile::tempdir().unwrap();
    let base = port_base();
    let server = Server::start_unclaimed(directory.path(), base);
    let init = ("POST", "/clusterInit");
    let good = "clusterName=pearls&hostname=127.0.0.1&services=kv%2Cn1ql&memoryQuota=256&port=SAME\
                &sendStats=false&indexerStorageMode=plasma&username=Administrator&password=password";
    for wrong in ["&dataPath=%2Fsomewhere", "&indexerStorageMode=paper", "&hostname=a%20b"] {
        let answer = ask(
            &server,
            None,
            init,
            &format!("{}{wrong}", good.replace("hostname=127.0.0.1&", "")),
        );
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.text());
    }
    assert_eq!(ask(&server, None, init, "clusterName=x&username=a&password=p").status, 400);
    assert_eq!(ask(&server, None, init, good).status, 200);
    assert_eq!(ask(&server, None, init, good).status, 401);
    let pool = ask(&server, ADMINISTRATOR, ("GET", "/pools/default"), "").json().unwrap();
    assert_eq!(pool["clusterName"], "pearls");
    // Nodes with documents have indexes of their own.
    assert_eq!(pool["nodes"][0]["services"], json!(["kv", "n1ql", "index"]));
    let folders = ("POST", "/nodes/self/controller/settings");
    assert_eq!(ask(&server, ADMINISTRATOR, folders, "path=%2Fdata").status, 400);
    server.stop();

    let server = Server::start_unclaimed(directory.path(), base);
    assert_eq!(ask(&server, None, init, good).status, 401, "a restart opens nothing");
    assert_eq!(ask(&server, ADMINISTRATOR, ("GET", "/pools/default"), "").status, 200);
}

#[test]
fn an_unclaimed_node_joins_a_cluster_and_adopts_its_administrator() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut cluster = Server::start_empty(one.path(), port_base());
    let node = Server::start_unclaimed(other.path(), port_base());
    let form =
        format!("hostname=127.0.0.1:{}&user=nobody&password=nothing&services=kv", node.port_base);
    let added = ask(&cluster, ADMINISTRATOR, ("POST", "/controller/addNode"), &form);
    assert_eq!(added.status, 200, "{}", added.text());
    cluster.wait_for("the node to know its administrator", |_| {
        let answer = ask(&node, ADMINISTRATOR, ("GET", "/pools/default"), "");
        (answer.status == 200).then_some(())
    });
    let web = format!("username=eve&password={PASSWORD}&port=SAME");
    assert_eq!(ask(&node, None, ("POST", "/settings/web"), &web).status, 401);
    let users = ask(&cluster, ADMINISTRATOR, ("GET", "/settings/rbac/users"), "").json().unwrap();
    assert_eq!(users, json!([]), "the administrator is apart, and there is nobody else");
}

#[test]
fn permissions_and_targets_are_available_to_tools() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let check = ("POST", "/pools/default/checkPermissions");
    let body = "cluster.bucket[default].data.docs!read,cluster.nodes!write";
    let answer = ask(&server, ADMINISTRATOR, check, body).json().unwrap();
    assert_eq!(
        answer,
        json!({"cluster.bucket[default].data.docs!read": true, "cluster.nodes!write": true})
    );
    let ann = "/settings/rbac/users/local/ann";
    let reader = "password=secret&roles=data_reader[default]";
    assert_eq!(server.rest("PUT", ann, reader).unwrap().status, 200);
    let answer = ask(&server, Some(("ann", "secret")), check, body).json().unwrap();
    assert_eq!(
        answer,
        json!({"cluster.bucket[default].data.docs!read": true, "cluster.nodes!write": false})
    );
    assert_eq!(ask(&server, ADMINISTRATOR, check, "nonsense").status, 400);
    assert_eq!(ask(&server, None, check, body).status, 401);
    for (query, port) in [("", server.port_base), ("?port=secure", server.port_base + 11)] {
        let path = format!("/prometheus_sd_config{query}");
        let targets = ask(&server, ADMINISTRATOR, ("GET", &path), "").json().unwrap();
        assert_eq!(targets[0]["targets"], json!([format!("127.0.0.1:{port}")]));
    }
}
