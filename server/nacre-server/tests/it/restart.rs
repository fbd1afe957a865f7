//! Stops and starts: kept data, and errors of unusable directories.

use crate::process::{BUCKET, PASSWORD, Server, USER, failed_start};
use nacre_conformance::kv::KvClient;

fn failover_log_length(client: &mut KvClient) -> usize {
    let vbid = client.vbid(b"k");
    client.request(0x96, vbid, b"", b"", b"", 0).unwrap().value.len() / 16
}

#[test]
fn a_clean_stop_keeps_history_and_a_kill_begins_a_new_branch() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    let written = client.set(b"k", b"{\"a\":1}").unwrap();
    server.stop();

    let server = Server::start(directory.path());
    let mut client = server.client();
    let read = client.get(b"k").unwrap();
    assert_eq!((read.cas, &read.value[..]), (written.cas, &b"{\"a\":1}"[..]));
    assert_eq!(failover_log_length(&mut client), 1, "nothing was lost, so the history goes on");
    server.kill();

    let server = Server::start(directory.path());
    let mut client = server.client();
    assert!(client.get(b"k").unwrap().is_success());
    assert_eq!(failover_log_length(&mut client), 2, "somebody may have seen more than was kept");
}

#[test]
fn collections_users_and_design_documents_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let path = format!("/pools/default/buckets/{BUCKET}/scopes");
    assert_eq!(server.rest("POST", &path, "name=travel").unwrap().status, 200);
    assert_eq!(
        server.rest("POST", &format!("{path}/travel/collections"), "name=airports").unwrap().status,
        200
    );
    let user = server
        .rest(
            "PUT",
            "/settings/rbac/users/local/ann",
            "password=secret1&roles=data_reader[default]",
        )
        .unwrap();
    assert_eq!(user.status, 200, "{}", user.text());
    server
        .put_design("d", r#"{"views": {"v": {"map": "function (doc, meta) { emit(meta.id) }"}}}"#);
    server.client().set(b"k", b"1").unwrap();
    let manifest = server.rest("GET", &path, "").unwrap().text();
    server.stop();

    let mut server = Server::start(directory.path());
    assert_eq!(server.rest("GET", &path, "").unwrap().text(), manifest);
    let rows = server.wait_for("the views plugin", |server| {
        let answer =
            server.views("GET", "/default/_design/d/_view/v?stale=false", "").json().unwrap();
        answer["rows"].as_array().map(Vec::len)
    });
    assert_eq!(rows, 1);
    let mut reader = KvClient::connect(server.kv_address(), "ann", "secret1", BUCKET).unwrap();
    assert!(reader.get(b"k").unwrap().is_success());
    assert_eq!(reader.set(b"k", b"2").unwrap().status, 0x24, "ann may only read");
}

/// Returns the problems of a node, and its status.
fn problems(server: &Server) -> (String, String) {
    let answer = server.rest("GET", "/nodes/self", "").unwrap().json().unwrap();
    (answer["problems"].to_string(), answer["status"].as_str().unwrap().to_owned())
}

#[test]
fn a_damaged_bucket_is_reported_by_name_and_not_served_and_the_others_are() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let created = server.rest("POST", "/pools/default/buckets", "name=other&ramQuotaMB=100");
    assert_eq!(created.unwrap().status, 202);
    let other = |server: &Server| KvClient::connect(server.kv_address(), USER, PASSWORD, "other");
    let mut client = server.wait_for("the bucket", |server| other(server).ok());
    client.set(b"k", b"1").unwrap();
    let mut client = server.client();
    for n in 0..100 {
        client.set(format!("k{n}").as_bytes(), b"{\"a\":1}").unwrap();
    }
    server.stop();
    let mut buckets = std::fs::read_dir(directory.path().join("buckets")).unwrap().flatten();
    let is_default = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(BUCKET);
    let bucket = buckets.find(|found| is_default(&found.file_name())).unwrap().path();
    let mut files = std::fs::read_dir(&bucket).unwrap().flatten().map(|file| file.path());
    let segment = files.find(|file| file.extension().is_some_and(|end| end == "log")).unwrap();
    let bytes = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &bytes[..1000]).unwrap();

    let server = Server::start(directory.path());
    let (found, status) = problems(&server);
    assert!(found.contains(&bucket.display().to_string()) && status == "unhealthy", "{found}");
    assert!(other(&server).unwrap().get(b"k").unwrap().is_success());
    let refused = KvClient::connect(server.kv_address(), USER, PASSWORD, BUCKET).err().unwrap();
    assert!(refused.to_string().contains("ETMPFAIL"), "temporary failure: {refused}");
    let metrics = server.rest("GET", "/metrics", "").unwrap().text();
    assert!(metrics.contains("nacre_bucket_damaged{bucket=\"default\"} 1"), "{metrics}");
    assert_eq!(std::fs::read(&segment).unwrap().len(), 1000, "nothing is repaired in secret");
    server.stop();

    std::fs::remove_dir_all(&bucket).unwrap();
    let mut server = Server::start(directory.path());
    assert!(problems(&server).0.contains("missing or empty"));
    assert!(!bucket.exists(), "it is not taken for an empty bucket");
    let path = format!("/pools/default/buckets/{BUCKET}");
    assert_eq!(server.rest("DELETE", &path, "").unwrap().status, 200);
    let created = format!("name={BUCKET}&ramQuotaMB=100");
    assert_eq!(server.rest("POST", "/pools/default/buckets", &created).unwrap().status, 202);
    let connect =
        |server: &mut Server| KvClient::connect(server.kv_address(), USER, PASSWORD, BUCKET).ok();
    server.wait_for("the bucket", connect);
    assert_eq!(problems(&server), ("[]".into(), "healthy".into()));
}

#[test]
fn a_directory_without_its_settings_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    Server::start(directory.path()).stop();
    let kept = directory.path().join("kept");
    std::fs::rename(directory.path().join("node/0.space"), &kept).unwrap();
    let output = failed_start(directory.path());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("node/0.space"), "{message}");
    std::fs::rename(&kept, directory.path().join("node/0.space")).unwrap();
    Server::start(directory.path()).client().get(b"k").unwrap();
}

#[test]
fn a_port_in_use_is_named_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let other = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_nacre"))
        .args([
            "serve",
            "--password",
            "password",
            "--port-base",
            &server.port_base.to_string(),
            "--data-dir",
        ])
        .arg(other.path())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains(&server.port_base.to_string()) && message.contains("--port-base"),
        "{message}"
    );
}

/// A query with `stale=false` while the streams of a node that has just started are being opened. The rows were up to
/// date already, and nothing woke the query in an earlier version.
#[test]
fn fresh_rows_are_available_immediately_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    for n in 0..200 {
        client.set(format!("k{n}").as_bytes(), b"{\"a\":1}").unwrap();
    }
    server.put_design(
        "d",
        r#"{"views": {"v": {"map": "function (doc) { emit(doc.a) }", "reduce": "_count"}}}"#,
    );
    assert_eq!(server.rows("d", "v", "")[0]["value"], 200);
    server.stop();
    for _ in 0..10 {
        let mut server = Server::start(directory.path());
        let value = server.wait_for("the views plugin", |server| {
            let path = "/default/_design/d/_view/v?stale=false&connection_timeout=10000";
            let answer = server.views("GET", path, "");
            assert_ne!(answer.status, 504, "{}", answer.text());
            answer.json().unwrap()["rows"][0]["value"].as_u64()
        });
        assert_eq!(value, 200);
        server.stop();
    }
}

#[test]
fn a_revoked_right_is_gone_with_the_next_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.client().set(b"k", b"1").unwrap();
    let user = "/settings/rbac/users/local/ann";
    let put =
        |roles: &str| server.rest("PUT", user, &format!("password=secret1&roles={roles}")).unwrap();
    assert_eq!(put("data_reader[default],data_writer[default]").status, 200);
    let mut ann = KvClient::connect(server.kv_address(), "ann", "secret1", BUCKET).unwrap();
    assert!(ann.set(b"k", b"2").unwrap().is_success());
    assert_eq!(put("data_reader[default]").status, 200);
    assert_eq!(ann.set(b"k", b"3").unwrap().status, 0x24);
    assert!(ann.get(b"k").unwrap().is_success());
    assert_eq!(server.rest("DELETE", user, "").unwrap().status, 200);
    assert_eq!(ann.get(b"k").unwrap().status, 0x1f, "the user is gone");
}

#[test]
fn a_folder_in_use_is_named_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let message = String::from_utf8_lossy(&failed_start(directory.path()).stderr).into_owned();
    assert!(message.contains("is in use by another process: stop that one"), "{message}");
    server.kill();
}

#[test]
fn a_folder_that_cannot_be_created_is_named_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let message = String::from_utf8_lossy(&failed_start(&file).stderr).into_owned();
    assert!(message.contains(&file.display().to_string()), "{message}");
    assert!(message.contains("with --data-dir"), "{message}");
}

#[test]
fn an_empty_password_is_refused_before_anything_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_nacre"))
        .args(["serve", "--password", "", "--data-dir"])
        .arg(&data_dir)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("the password is empty"), "{message}");
    assert!(!output.status.success() && !data_dir.exists());
}

#[test]
fn a_node_without_its_settings_does_not_start_empty_beside_its_documents() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.client().set(b"k", b"1").unwrap();
    server.stop();
    std::fs::remove_dir_all(directory.path().join("node")).unwrap();
    let message = String::from_utf8_lossy(&failed_start(directory.path()).stderr).into_owned();
    assert!(message.contains("there are buckets, but"), "{message}");
    assert!(!directory.path().join("node").exists());
}

#[test]
fn a_data_directory_of_an_earlier_format_is_refused_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let settings = directory.path().join("node");
    std::fs::create_dir(&settings).unwrap();
    std::fs::write(settings.join("conf"), "of sled").unwrap();
    let message = String::from_utf8_lossy(&failed_start(directory.path()).stderr).into_owned();
    assert!(message.contains("has format 1, this version reads 2"), "{message}");
    assert_eq!(std::fs::read_dir(&settings).unwrap().count(), 1, "nothing was made there");
}
