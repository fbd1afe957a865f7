//! Every role against what users could take from each other, or reach through the node: prepared statements, grants of plugins, requests to
//! other hosts. Rights on documents are in nacre-node's tests, changes of users in `users.rs` and in nacre-auth's tests.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use crate::queries::serving;
use crate::query_administration::{ask, rows};
use nacre_conformance::http;
use nacre_sandbox::Package;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Roles by what they permit. Written down here once more, so that a change has to be meant.
const ADMINISTER_CLUSTER: &str = "admin cluster_admin";
const READ_CLUSTER: &str = "admin ro_admin cluster_admin security_admin security_admin_local security_admin_external replication_admin eventing_admin backup_admin query_system_catalog bucket_admin bucket_full_access scope_admin mobile_sync_gateway plugin_admin views_admin";
const ADMINISTER_PLUGINS: &str = "admin cluster_admin plugin_admin";
const READERS: &str = "admin replication_admin backup_admin bucket_full_access data_reader data_dcp_reader data_backup replication_target mobile_sync_gateway views_reader views_admin query_select data_sync";
const STREAMERS: &str = "admin replication_admin backup_admin bucket_full_access data_dcp_reader data_backup mobile_sync_gateway data_sync";
const WRITERS: &str =
    "admin backup_admin bucket_full_access data_writer data_backup mobile_sync_gateway data_sync";
const SELECT: &str = "admin bucket_full_access query_select";
const INSERT: &str = "admin bucket_full_access query_insert";
const UPDATE: &str = "admin bucket_full_access query_update";
const DELETE: &str = "admin bucket_full_access query_delete";
/// Those who have two of the rights.
const ALL_OF_QUERY: &str = "admin bucket_full_access";
/// Those who have any of the rights, and so see the names of keyspaces.
const SOME_OF_QUERY: &str = "admin bucket_full_access query_select query_insert query_update query_delete query_system_catalog";
const MANAGE_REQUESTS: &str = "admin query_system_catalog";
const REACH_OUT: &str = "admin query_external_access";
const REPLICATE: &str = "admin cluster_admin replication_admin";
/// Not `eventing_manage_functions` alone: a function has the rights of its owner, who needs those to the documents as well.
const FUNCTIONS: &str = "admin eventing_admin";

const ME: &str = "someone";
/// Source of a plugin; what it is granted is in its manifest.
const SCRIPT: &str = "export function onUpdate() {} export function handle() { return {}; }";
/// Packages: name, capabilities in the manifest, and grants of the deployment.
const PACKAGES: [(&str, &str); 4] = [
    ("plain", ""),
    ("reads", "[capabilities]\nkv = { read = [\"_default._default\"] }\n"),
    ("writes", "[capabilities]\nkv = { write = [\"_default._default\"] }\n"),
    ("calls", "[capabilities]\nhttp-out = [\"hooks.example:80\"]\n"),
];

fn grants(package: &str) -> Value {
    match package {
        "reads" => json!({"kv": {"read": ["_default._default"]}}),
        "writes" => json!({"kv": {"write": ["_default._default"]}}),
        "calls" => json!({"http-out": ["hooks.example:80"]}),
        _ => json!({}),
    }
}

/// The table, as it is filled.
struct Matrix {
    server: Server,
    cells: usize,
}

impl Matrix {
    /// A request to a port of the node.
    fn send(&self, user: &str, port: u16, method: &str, path: &str, body: &str) -> (u16, String) {
        let address = format!("127.0.0.1:{}", self.server.port_base + port);
        let kind = if body.starts_with('{') {
            "application/json"
        } else {
            "application/x-www-form-urlencoded"
        };
        let login = Some((user, PASSWORD));
        let answer = http::request(&address, method, path, login, kind, body.as_bytes()).unwrap();
        (answer.status, answer.text())
    }

    fn become_one(&self, roles: &str) {
        let form = format!("password={PASSWORD}&roles={roles}");
        let path = format!("/settings/rbac/users/local/{ME}");
        let (status, text) = self.send(USER, 0, "PUT", &path, &form);
        assert_eq!(status, 200, "{roles}: {text}");
    }

    /// Notes a cell, which must be as the table says.
    fn cell(&mut self, role: &str, what: &str, is_allowed: bool, expected: bool, said: &str) {
        assert_eq!(is_allowed, expected, "{role}: {what}: {said}");
        self.cells += 1;
    }

    /// A request that is refused with 403 or not at all.
    fn request(&mut self, role: &str, port: u16, line: &str, body: &str, expected: bool) {
        let (method, path) = line.split_once(' ').unwrap();
        let (status, text) = self.send(ME, port, method, path, body);
        assert!(status != 401 && status < 500, "{role}: {line}: {status} {text}");
        self.cell(role, line, status != 403, expected, &text);
    }
}

fn is_in(list: &str, role: &str) -> bool {
    list.split(' ').any(|name| name == role)
}

/// Prepared statements of somebody else, and of one's own.
fn prepared(matrix: &mut Matrix, role: &str, covers: bool) {
    let keyspace = format!("`{BUCKET}`");
    let before = "SELECT RAW name FROM system:prepareds WHERE name = 'report'";
    let replaced =
        ask(&matrix.server, ME, &format!("PREPARE FORCE report AS DELETE FROM {keyspace}"));
    assert_eq!(replaced["status"], "success", "{role}: {replaced}");
    for (statement, list) in [
        (format!("SELECT RAW d FROM {keyspace} AS d USE KEYS 'k'"), SELECT),
        (format!("UPSERT INTO {keyspace} VALUES ('x', 1)"), ALL_OF_QUERY),
        (format!("DELETE FROM {keyspace} USE KEYS 'x'"), DELETE),
        (format!("UPDATE {keyspace} USE KEYS 'k' SET n = 1"), UPDATE),
    ] {
        let name = format!("PREPARE FORCE own AS {statement}");
        // It is checked when it is prepared or when it is executed.
        let answer = match ask(&matrix.server, ME, &name) {
            answer if answer["status"] == "success" => ask(&matrix.server, ME, "EXECUTE own"),
            refused => refused,
        };
        let (is_allowed, said) = (answer["status"] == "success", answer.to_string());
        matrix.cell(role, &statement, is_allowed, covers && is_in(list, role), &said);
    }
    let manages = is_in(MANAGE_REQUESTS, role);
    let seen = ask(&matrix.server, ME, before);
    let others = seen["results"].as_array().map_or(0, Vec::len) > 1;
    matrix.cell(role, "sees those of others", others, manages, &seen.to_string());
    let path = format!("/admin/prepareds/{USER}%2F%2Freport");
    let (status, text) = matrix.send(ME, 2, "GET", &path, "");
    matrix.cell(role, "reads that of another", status == 200, manages, &text);
    // Nobody has run, replaced or dropped that of the administrator.
    if !manages {
        ask(&matrix.server, ME, "DELETE FROM system:prepareds");
        let (status, text) = matrix.send(ME, 2, "DELETE", &path, "");
        matrix.cell(role, "drops that of another", status == 200, false, &text);
    }
    let own = rows(&matrix.server, USER, "EXECUTE report");
    matrix.cell(
        role,
        "replaces that of another",
        own != json!(["the report"]),
        false,
        &own.to_string(),
    );
}

/// Statements by what they do to the collection: the role has one right of them, all or none.
fn statements(matrix: &mut Matrix, role: &str, covers: bool) {
    let keyspace = format!("`{BUCKET}`");
    let merge = |action: &str| {
        format!("MERGE INTO {keyspace} AS t USING (SELECT 'm' AS id) AS s ON KEY s.id {action}")
    };
    let unmatched = "WHEN NOT MATCHED THEN INSERT {'n': 1} WHERE FALSE";
    let update = "WHEN MATCHED THEN UPDATE SET t.n = 2";
    let delete = "WHEN MATCHED THEN DELETE";
    let of_itself =
        format!("MERGE INTO {keyspace} AS t USING {keyspace} AS s ON KEY 'none' {update}");
    for (statement, list) in [
        (format!("SELECT RAW d FROM {keyspace} AS d USE KEYS 'k'"), SELECT),
        (format!("SELECT COUNT(*) FROM {keyspace}"), SELECT),
        (format!("SELECT * FROM {keyspace} WHERE n = 'none'"), SELECT),
        (format!("INFER {keyspace}"), SELECT),
        (
            format!(
                "INSERT INTO {keyspace} (KEY k, VALUE v) SELECT 'a' AS k, 1 AS v FROM [] AS nobody"
            ),
            INSERT,
        ),
        (
            format!(
                "INSERT INTO {keyspace} (KEY k, VALUE v) SELECT 'a' AS k, n AS v FROM {keyspace} WHERE n = 'none'"
            ),
            ALL_OF_QUERY,
        ),
        (format!("INSERT INTO {keyspace} VALUES (UUID(), 1)"), INSERT),
        (format!("INSERT INTO {keyspace} VALUES (UUID(), 1) RETURNING *"), ALL_OF_QUERY),
        (format!("UPSERT INTO {keyspace} VALUES ('x', 1)"), ALL_OF_QUERY),
        (format!("UPDATE {keyspace} SET n = n WHERE n = 'none'"), UPDATE),
        (format!("UPDATE {keyspace} USE KEYS 'k' SET n = 1"), UPDATE),
        (format!("UPDATE {keyspace} USE KEYS 'k' SET n = 1 RETURNING *"), ALL_OF_QUERY),
        (
            format!(
                "UPDATE {keyspace} AS t USE KEYS 'k' SET n = (SELECT RAW 1 FROM {keyspace} AS o)"
            ),
            ALL_OF_QUERY,
        ),
        (format!("DELETE FROM {keyspace} USE KEYS 'x'"), DELETE),
        (format!("DELETE FROM {keyspace} WHERE n = 'none'"), DELETE),
        (format!("DELETE FROM {keyspace} WHERE n = 'none' RETURNING META().id"), ALL_OF_QUERY),
        (merge(unmatched), INSERT),
        (merge(update), UPDATE),
        (merge(delete), DELETE),
        (merge(&format!("{update} {unmatched}")), ALL_OF_QUERY),
        (of_itself, ALL_OF_QUERY),
        (format!("EXPLAIN SELECT * FROM {keyspace}"), SELECT),
        (format!("EXPLAIN DELETE FROM {keyspace}"), DELETE),
    ] {
        let answer = ask(&matrix.server, ME, &statement);
        let (is_allowed, said) = (answer["status"] == "success", answer.to_string());
        let expected = covers && is_in(list, role);
        matrix.cell(role, &statement, is_allowed, expected, &said);
        assert!(is_allowed || answer["errors"][0]["code"] == 13014, "{role}: {said}");
    }
    let names = format!("SELECT RAW name FROM system:keyspaces WHERE name = '{BUCKET}'");
    let seen = ask(&matrix.server, ME, &names);
    let is_seen = seen["results"] == json!([BUCKET]);
    matrix.cell(role, &names, is_seen, covers && is_in(SOME_OF_QUERY, role), &seen.to_string());
}

/// Deployments of a user with that role and the right to deploy, and without the latter.
fn deployments(matrix: &mut Matrix, role: &str, text: &str, covers: bool) {
    let has = |list: &str| covers && is_in(list, role) || role == "admin";
    let wanted = |package: &str| {
        json!({"package": package, "version": "1", "bucket": BUCKET, "grants": grants(package)})
            .to_string()
    };
    // The role alone.
    let deploys = is_in(ADMINISTER_PLUGINS, role);
    matrix.request(role, 0, "POST /plugins", "no package", deploys);
    matrix.request(role, 0, "GET /plugins", "", deploys);
    matrix.request(role, 0, "GET /plugins/none/1?archive=true", "", deploys);
    matrix.request(role, 0, "POST /deployments/none/pause", "", deploys);
    matrix.request(role, 0, "POST /deployments/none/replay", "", deploys);
    matrix.request(role, 0, "DELETE /deployments/none", "", deploys);
    let reads = has(READERS) && has(STREAMERS);
    matrix.request(role, 0, "PUT /deployments/alone", &wanted("plain"), deploys && reads);
    // With the role to deploy, but none for documents.
    matrix.become_one(&format!("{text},plugin_admin"));
    for (package, expected) in
        [("plain", reads), ("reads", reads), ("writes", reads && has(WRITERS)), ("calls", reads)]
    {
        let line = format!("PUT /deployments/{package}");
        matrix.request(role, 0, &line, &wanted(package), expected);
        if expected {
            let (status, text) =
                matrix.send(USER, 0, "DELETE", &format!("/deployments/{package}"), "");
            assert_eq!(status, 200, "{text}");
        }
    }
    matrix.request(role, 0, "GET /deployments/kept/capsules", "", has(READERS));
    // Where all of it is granted, and the deployment is of somebody else.
    matrix.request(role, 0, "POST /deployments/kept/resume", "", true);
}

/// Requests that leave the node, and the settings that allow them.
fn outgoing(matrix: &mut Matrix, role: &str, text: &str) {
    matrix.become_one(text);
    let (reads, administers) = (is_in(READ_CLUSTER, role), is_in(ADMINISTER_CLUSTER, role));
    matrix.request(role, 0, "GET /settings/outgoingHttp", "", reads);
    matrix.request(role, 0, "POST /settings/outgoingHttp", "allow=10.0.0.0/8", administers);
    let list = "/settings/querySettings/curlWhitelist";
    matrix.request(role, 0, &format!("GET {list}"), "", reads);
    let nothing = json!({"all_access": false}).to_string();
    matrix.request(role, 0, &format!("POST {list}"), &nothing, administers);
    let replicates = is_in(REPLICATE, role);
    matrix.request(role, 0, "POST /pools/default/remoteClusters", "name=x", replicates);
    matrix.request(role, 0, "POST /pools/default/remoteClusters/x", "hostname=x", replicates);
    matrix.request(role, 0, "POST /controller/createReplication", "fromBucket=x", replicates);
    matrix.request(role, 0, "GET /pools/default/remoteClusters", "", reads);
    let backs_up = is_in("admin backup_admin", role);
    let import = "POST /api/v1/cluster/self/repository/import";
    matrix.request(role, 6, import, "{\"id\":\"x\"}", backs_up);
    matrix.request(role, 6, "POST /api/v1/cluster/self/repository/active/x", "{}", backs_up);
    // No URL is allowed: whoever has the right is told so, and nobody else.
    let answer = ask(&matrix.server, ME, "SELECT RAW CURL('http://127.0.0.1:1/')");
    let said = answer.to_string();
    let may_try = answer["errors"][0]["code"] != 13014;
    matrix.cell(role, "CURL()", may_try, is_in(REACH_OUT, role), &said);
    assert!(!may_try || said.contains("curlWhitelist"), "{role}: {said}");
    let function = json!({
        "appname": "f", "appcode": "function OnUpdate() {}", "settings": {},
        "depcfg": {
            "source_bucket": BUCKET, "source_scope": "_default", "source_collection": "_default",
            "metadata_bucket": BUCKET, "metadata_scope": "_default", "metadata_collection": "m",
            "curl": [{"hostname": "http://hooks.example", "value": "out", "auth_type": "no-auth"}],
        },
    });
    let path = format!("/api/v1/functions/f?bucket={BUCKET}&scope=_default");
    let (status, said) = matrix.send(ME, 5, "POST", &path, &function.to_string());
    matrix.cell(role, "a function with curl", status != 403, is_in(FUNCTIONS, role), &said);
}

#[test]
fn every_role_reaches_only_what_its_rights_permit() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let mut matrix = Matrix { server, cells: 0 };
    rows(&matrix.server, USER, &format!("UPSERT INTO `{BUCKET}` VALUES ('k', {{'n': 1}})"));
    rows(&matrix.server, USER, "PREPARE report AS SELECT RAW 'the report'");
    let scope = format!("/pools/default/buckets/{BUCKET}/scopes/_default/collections");
    assert_eq!(matrix.send(USER, 0, "POST", &scope, "name=m").0, 200);
    assert_eq!(
        matrix.send(USER, 0, "POST", "/pools/default/buckets", "name=other&ramQuotaMB=100").0,
        202
    );
    for (name, capabilities) in PACKAGES {
        let manifest = format!(
            "name = \"{name}\"\nversion = \"1\"\nscript = \"main.js\"\nstate_version = \"1\"\n{capabilities}"
        );
        let files = BTreeMap::from([("main.js".to_owned(), SCRIPT.as_bytes().to_vec())]);
        let package = Package::new(manifest, files).unwrap().write();
        let address = format!("127.0.0.1:{}", matrix.server.port_base);
        let login = Some((USER, PASSWORD));
        let kind = "application/x-tar";
        let answer = http::request(&address, "POST", "/plugins", login, kind, &package).unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let kept = json!({"package": "plain", "version": "1", "bucket": BUCKET}).to_string();
    assert_eq!(matrix.send(USER, 0, "PUT", "/deployments/kept", &kept).0, 200);
    let (_, text) = matrix.send(USER, 0, "GET", "/settings/rbac/roles", "");
    let roles: Vec<Value> = serde_json::from_str(&text).unwrap();
    for role in &roles {
        let name = role["role"].as_str().unwrap();
        let is_parameterised = role["bucket_name"].is_string();
        let places: &[(&str, bool)] = match is_parameterised {
            true => &[("[*]", true), ("[other]", false)],
            false => &[("", true)],
        };
        for (place, covers) in places {
            let text = format!("{name}{place}");
            matrix.become_one(&text);
            prepared(&mut matrix, name, *covers);
            statements(&mut matrix, name, *covers);
            deployments(&mut matrix, name, &text, *covers);
            if *covers {
                outgoing(&mut matrix, name, &text);
            }
        }
    }
    println!("{} roles, {} cells", roles.len(), matrix.cells);
    assert!(roles.len() >= 53 && matrix.cells >= 2000, "{} cells", matrix.cells);
}
