//! Plugins and replications in a backup: they are restored to another cluster, and process no documents until they are resumed.

use crate::backup::{nacre, open, succeed};
use crate::plugins::{self, CONFIG, ask, deploy, upload};
use crate::process::{BUCKET, PASSWORD, Server, USER, until};
use crate::xdcr::{CREATE, REFERENCES, replication};
use nacre_client::Key;
use nacre_conformance::http;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

fn post(server: &Server, path: &str, form: &str) {
    let answer = server.rest("POST", path, form).unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
}

#[test]
fn plugins_and_replications_are_restored_paused() {
    let directory = tempfile::tempdir().unwrap();
    let start = |name: &str| Server::start(&directory.path().join(name));
    let (source, target, remote) = (start("source"), start("target"), start("remote"));
    assert_eq!(upload(&source, "1", "").0, 201);
    let (code, deployed) = deploy(&source, "1", CONFIG);
    assert_eq!(code, 200, "{deployed}");
    let port = remote.port_base;
    let link = format!("name=second&hostname=127.0.0.1:{port}&username={USER}&password={PASSWORD}");
    post(&source, REFERENCES, &link);
    let wanted = format!("{}&filterDeletion=true", replication(BUCKET, "second", BUCKET));
    post(&source, CREATE, &wanted);
    let place = |name: &str| directory.path().join(name).display().to_string();
    let (repository, without) = (place("backups"), place("without"));
    succeed(&source, &["backup", "create", &repository, "--with-packages", "--quiet"]);
    succeed(&source, &["backup", "create", &without, "--quiet"]);

    // Without its package, a deployment is named and not created.
    let (code, said, errors) = nacre(&target, &["restore", &without, "--definitions", "--quiet"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(said.contains("created 0 definitions of the cluster"), "{said}");
    assert!(errors.contains("not created: deployment sums: "), "{errors}");

    // Only some kinds, and no documents.
    let some =
        ["restore", &repository, "--definitions=indexes,replications", "--no-data", "--quiet"];
    let (code, said, errors) = nacre(&target, &some);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(said.contains("created 0 definitions of the cluster"), "{said}");
    assert!(!said.contains("restored ") && !errors.contains("deployment"), "{said}{errors}");

    let restore = ["restore", &repository, "--definitions", "--quiet"];
    let (code, said, errors) = nacre(&target, &restore);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(said.contains("created 2 definitions of the cluster"), "{said}");
    assert!(errors.contains("`nacre xdcr link second HOST`"), "{errors}");
    post(&target, REFERENCES, &link);
    let said = succeed(&target, &restore);
    assert!(said.contains("created 1 definition of the cluster"), "{said}");
    let said = succeed(&target, &restore);
    assert!(said.contains("created 0 definitions of the cluster"), "{said}");

    let read = |path: &str| ask(&target, "GET", path, "", b"").1;
    let replications = read("/pools/default/replications");
    assert_eq!(replications.as_array().map(Vec::len), Some(1), "{replications}");
    let settings = &replications[0]["settings"];
    assert_eq!(
        (&settings["pauseRequested"], &settings["filterDeletion"]),
        (&json!(true), &json!(true))
    );
    let paused = || Some(plugins::status(&target)).filter(|status| status["state"] == "paused");
    let status: Value = until(paused);
    assert_eq!(status["config"], serde_json::from_str::<Value>(CONFIG).unwrap(), "{status}");
    let (code, resumed) = ask(&target, "POST", "/deployments/sums/resume", "", b"");
    assert_eq!(code, 200, "{resumed}");
    until(|| (plugins::status(&target)["state"] == "running").then_some(()));
}

#[test]
fn a_plugin_without_documents_is_not_deployed_as_paused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (code, said) = crate::plugin_functions::upload(&server, "functions", "1", "");
    assert_eq!(code, 201, "{said}");
    let package = &said["name"];
    let wanted = json!({"package": package, "version": "1", "paused": true});
    let (code, said) = ask(&server, "PUT", "/deployments/f", "", wanted.to_string().as_bytes());
    assert_eq!(code, 400, "{said}");
    assert!(said.to_string().contains("cannot be paused"), "{said}");
}

#[test]
fn settings_of_a_bucket_are_restored_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    let form =
        "name=shop&ramQuotaMB=100&numVBuckets=16&replicaNumber=0&maxTTL=100&compressionMode=off";
    assert_eq!(server.rest("POST", "/pools/default/buckets", form).unwrap().status, 202);
    let repository = directory.path().join("backups").display().to_string();
    succeed(&server, &["backup", "create", &repository, "--bucket", "shop", "--quiet"]);
    let path = "/pools/default/buckets/shop";
    post(&server, path, "ramQuotaMB=120&maxTTL=7&compressionMode=passive");
    let restore = |options: &[&str]| {
        let own = ["restore", &repository, "--bucket", "shop", "--no-data"];
        succeed(&server, &[&own[..], options].concat());
        let shown = ask(&server, "GET", path, "", b"").1;
        let quota_mb = shown["quota"]["rawRAM"].as_u64().map(|bytes| bytes >> 20);
        json!([quota_mb, shown["maxTTL"], shown["compressionMode"]])
    };
    assert_eq!(restore(&[]), json!([120, 7, "passive"]));
    assert_eq!(restore(&["--bucket-settings"]), json!([100, 100, "off"]));
}

/// The archive is one of those that every version reads.
#[test]
fn an_archive_of_an_earlier_release_is_restored_with_definitions_and_users() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../nacre-backup/tests/it/golden/1-definitions");
    // A restore writes locks beside what it reads.
    let repository = directory.path().join("backups");
    let copied = Command::new("cp").arg("-r").args([&golden, &repository]).status().unwrap();
    assert!(copied.success());
    let repository = repository.display().to_string();
    let shown = succeed(&server, &["backup", "show", &repository]);
    assert!(shown.contains("collection _default._default: 1 document and 0 deletions"), "{shown}");
    let restore = |options: &[&str]| {
        let own = ["restore", &repository, "--create-buckets", "--quiet"];
        succeed(&server, &[&own[..], options].concat())
    };
    let said = restore(&[]);
    let expected = "restored 3 documents and 0 tombstones into travel: 3 written, 0 there already or newer; 1 of dropped collections";
    assert!(said.contains(expected), "{said}");
    let mut bucket = open(&server, "travel");
    let collection = bucket.collection_id("s.c").unwrap();
    let mut read = |collection, name: &[u8]| {
        let found = bucket.get(Key { collection, name }).unwrap();
        found.map(|found| (String::from_utf8_lossy(&found.value).into_owned(), found.flags))
    };
    let json_flags = 0x0200_0000;
    assert_eq!(read(0, b"item_1"), Some((r#"{"name":"kettle","price":20}"#.into(), json_flags)));
    assert_eq!(read(collection, b"item_2"), Some((r#"{"name":"teapot"}"#.into(), json_flags)));
    assert_eq!(read(0, b"bytes"), Some(("\u{fffd}\0no JSON".into(), 7)));
    assert_eq!(read(0, b"gone"), None);

    // Statements know the bucket a moment later.
    let count = json!({"statement": "SELECT COUNT(*) FROM travel"}).to_string();
    until(|| (server.query(&count)["status"] == "success").then_some(()));
    let said = restore(&["--no-data", "--definitions", "--users"]);
    assert!(said.contains("created 2 definitions of travel"), "{said}");
    assert!(said.contains("created 2 users and 1 group, replaced 0 users"), "{said}");
    let read = |path: &str| ask(&server, "GET", path, "", b"").1;
    let designs = read("/pools/default/buckets/travel/ddocs");
    assert_eq!(designs["rows"][0]["doc"]["meta"]["id"], "_design/names", "{designs}");
    let indexes = read("/getIndexStatus?bucket=travel");
    assert_eq!(indexes["status"][0]["name"], "by_name", "{indexes}");
    let address = format!("127.0.0.1:{}", server.port_base);
    let ann = Some(("ann", "secret1"));
    let who = http::request(&address, "GET", "/whoami", ann, "application/json", b"").unwrap();
    assert_eq!(who.status, 200, "ann has her password");
}
