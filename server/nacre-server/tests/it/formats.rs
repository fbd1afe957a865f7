//! Data directories that earlier versions have left, as `docs/operate/upgrade.md` promises: this version starts with each of them.
//!
//! `samples/data-VERSION.tar.gz` is the directory of a node that [`fill`] has filled, after a clean stop. With `NACRE_WRITE_SAMPLE=1`
//! the test writes that of this version first; samples of released versions are never written again.

use crate::eventing;
use crate::process::{BUCKET, PASSWORD, Server, port_base};
use nacre_conformance::kv::KvClient;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const SAMPLES: &str = "tests/it/samples";
const UPSERT: u8 = 0x01;
const GET_META: u8 = 0xa0;
const DICT_UPSERT: u8 = 0xc8;
const SUBDOC_GET: u8 = 0xc5;
const ATTRIBUTE: u8 = 0x04;
/// 2096-10-02, in seconds since 1970.
const EXPIRY: u32 = 4_000_000_000;
const FLAGS: u32 = 0x0200_0006;

fn tar(arguments: &[&str], archive: &Path, folder: &Path) {
    let mut tar = Command::new("tar");
    tar.args(arguments).arg("--file").arg(archive).arg("--directory").arg(folder);
    assert!(tar.arg(".").status().unwrap().success(), "{tar:?}");
}

/// Extras of a sub-document operation on an attribute.
fn attribute(path: &str) -> [u8; 3] {
    let length = (path.len() as u16).to_be_bytes();
    [length[0], length[1], ATTRIBUTE]
}

fn query(server: &mut Server, statement: &str) -> Vec<Value> {
    let body = json!({"statement": statement, "scan_consistency": "request_plus"}).to_string();
    let answer = server.wait_for("the query service", |server| {
        let answer = server.query(&body);
        (answer["status"] == "success").then_some(answer)
    });
    answer["results"].as_array().unwrap().clone()
}

/// Leaves something of each kind that a node stores.
fn fill(server: &mut Server) {
    let mut client = server.client();
    for number in 0..20 {
        let (key, document) =
            (format!("doc-{number}"), json!({"number": number, "tags": ["a", "b"]}));
        assert!(client.set(key.as_bytes(), document.to_string().as_bytes()).unwrap().is_success());
    }
    assert!(client.delete(b"doc-19", 0).unwrap().is_success());
    let extras = [FLAGS.to_be_bytes(), EXPIRY.to_be_bytes()].concat();
    assert!(
        client.document(UPSERT, b"bytes", &extras, &[0, 159, 146, 150], 0).unwrap().is_success()
    );
    let value = [b"owner".as_slice(), br#""ann""#].concat();
    let written = client.document(DICT_UPSERT, b"doc-1", &attribute("owner"), &value, 0).unwrap();
    assert!(written.is_success(), "{}", written.text());
    let scopes = format!("/pools/default/buckets/{BUCKET}/scopes");
    assert_eq!(server.rest("POST", &scopes, "name=shop").unwrap().status, 200);
    for (scope, name) in [("shop", "orders"), ("_default", "meta")] {
        let path = format!("{scopes}/{scope}/collections");
        assert_eq!(server.rest("POST", &path, &format!("name={name}")).unwrap().status, 200);
    }
    query(server, r#"INSERT INTO default:default.shop.orders VALUES ("o-1", {"total": 12.5})"#);
    query(server, "CREATE INDEX by_number ON default(number)");
    server.put_design(
        "d",
        r#"{"views": {"v": {"map": "function (doc) { emit(doc.number) }", "reduce": "_sum"}}}"#,
    );
    assert_eq!(server.rows("d", "v", "reduce=false").len(), 19);
    let ann = "password=secret1&roles=data_reader[default]";
    assert_eq!(server.rest("PUT", "/settings/rbac/users/local/ann", ann).unwrap().status, 200);
    let code = "function OnUpdate(doc, meta) { log(meta.id) }";
    eventing::define(server, &eventing::function("audit", code, "_default", &[]));
}

/// Finds what [`fill`] has left.
fn check(server: &mut Server) {
    let mut client = server.client();
    let read = client.get(b"doc-7").unwrap();
    let expected = json!({"number": 7, "tags": ["a", "b"]});
    assert_eq!(serde_json::from_slice::<Value>(&read.value).unwrap(), expected);
    assert!(!client.get(b"doc-19").unwrap().is_success(), "it was deleted");
    let bytes = client.get(b"bytes").unwrap();
    assert_eq!(
        (&bytes.value[..], &bytes.extras[..]),
        (&[0, 159, 146, 150][..], &FLAGS.to_be_bytes()[..])
    );
    let meta = client.document(GET_META, b"bytes", &[], &[], 0).unwrap();
    assert_eq!(meta.extras[8..12], EXPIRY.to_be_bytes(), "{:?}", meta.extras);
    let owner = client.document(SUBDOC_GET, b"doc-1", &attribute("owner"), b"owner", 0).unwrap();
    assert_eq!(owner.text(), r#""ann""#);
    assert_eq!(query(server, "SELECT RAW total FROM default:default.shop.orders"), [json!(12.5)]);
    let indexed = query(
        server,
        "SELECT RAW META().id FROM default USE INDEX (by_number) WHERE number > 16 ORDER BY number",
    );
    assert_eq!(indexed, [json!("doc-17"), json!("doc-18")]);
    assert_eq!(server.rows("d", "v", "")[0]["value"], 171);
    KvClient::connect(server.kv_address(), "ann", "secret1", BUCKET).unwrap();
    let function = eventing::get(server, "/api/v1/functions/audit");
    assert!(function["appcode"].as_str().unwrap().contains("OnUpdate"), "{function}");
    // The directory is writable, too: what this version writes is there after its own restart.
    assert!(client.set(b"later", b"1").unwrap().is_success());
}

/// Writes the sample of this version.
fn write(archive: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    fill(&mut server);
    server.stop();
    let arguments =
        ["--create", "--gzip", "--exclude=./reserve", "--exclude=./plugins", "--exclude=lock"];
    tar(&arguments, archive, directory.path());
}

#[test]
fn a_node_starts_with_the_data_of_each_earlier_version() {
    if std::env::var_os("NACRE_WRITE_SAMPLE").is_some() {
        write(&Path::new(SAMPLES).join(concat!("data-", env!("CARGO_PKG_VERSION"), ".tar.gz")));
    }
    let entries = std::fs::read_dir(SAMPLES).unwrap();
    let archives: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(!archives.is_empty());
    for archive in archives {
        let directory = tempfile::tempdir().unwrap();
        tar(&["--extract", "--gzip"], &archive, directory.path());
        let port_base = port_base();
        let mut server = Server::start_at(directory.path(), port_base);
        check(&mut server);
        server.stop();
        let server = Server::start_at(directory.path(), port_base);
        let later = KvClient::connect(server.kv_address(), "Administrator", PASSWORD, BUCKET);
        assert!(later.unwrap().get(b"later").unwrap().is_success(), "{}", archive.display());
        server.stop();
    }
}
