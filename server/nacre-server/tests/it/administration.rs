//! An operator's work on a node apart from its data: its administrator, its audit log, its TLS settings.

use crate::process::{PASSWORD, Server, USER, port_base};
use nacre_conformance::http;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const NEW: &str = "another password";

fn login(server: &Server, user: &str, password: &str) -> u16 {
    let address = format!("127.0.0.1:{}", server.port_base);
    let answer = http::request(&address, "GET", "/whoami", Some((user, password)), "", b"");
    answer.unwrap().status
}

fn reset(data_dir: &Path, user: &str, password: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(["reset-password", "--user", user, "--password", password]);
    command.arg("--data-dir").arg(data_dir).output().unwrap()
}

#[test]
fn a_lost_password_is_reset_on_the_machine_of_a_stopped_node() {
    let directory = tempfile::tempdir().unwrap();
    let base = port_base();
    let server = Server::start_unclaimed(directory.path(), base);
    let form = format!("username={USER}&password={PASSWORD}&port=SAME");
    assert_eq!(server.rest("POST", "/settings/web", &form).unwrap().status, 200);
    let user = "password=password&roles=ro_admin&name=Ann";
    let put = server.rest("PUT", "/settings/rbac/users/local/ann", user).unwrap();
    assert_eq!(put.status, 200);
    let refused = reset(directory.path(), USER, NEW);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("in use"), "{text}");
    server.stop();

    assert!(!reset(directory.path(), USER, "x").status.success(), "too short");
    assert!(!reset(&directory.path().join("none"), USER, NEW).status.success());
    assert!(reset(directory.path(), USER, NEW).status.success());
    let mut server = Server::start_unclaimed(directory.path(), base);
    server.wait_for("the password", |server| (login(server, USER, NEW) == 200).then_some(()));
    assert_eq!(login(&server, USER, PASSWORD), 401);
    server.stop();

    // Another user can become an administrator, and keeps its own roles.
    assert!(reset(directory.path(), "ann", NEW).status.success());
    let mut server = Server::start_unclaimed(directory.path(), base);
    server.wait_for("the password", |server| (login(server, "ann", NEW) == 200).then_some(()));
    let address = format!("127.0.0.1:{}", server.port_base);
    let ann = http::request(&address, "GET", "/whoami", Some(("ann", NEW)), "", b"").unwrap();
    let ann = ann.json().unwrap();
    let roles: Vec<&Value> =
        ann["roles"].as_array().unwrap().iter().map(|role| &role["role"]).collect();
    assert_eq!((&ann["name"], roles), (&json!("Ann"), vec![&json!("admin"), &json!("ro_admin")]));
    server.stop();
    // The new password is set once.
    let server = Server::start_unclaimed(directory.path(), base);
    assert_eq!(login(&server, USER, NEW), 200);
}

#[test]
fn the_audit_log_has_refused_logins_and_administrative_requests() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let path = directory.path().join("audit/audit.log");
    let bucket = "name=b&ramQuotaMB=100&replicaNumber=0";
    assert_eq!(server.rest("POST", "/pools/default/buckets", bucket).unwrap().status, 202);
    assert!(!path.exists(), "it is off");
    let enabled = server.rest("POST", "/settings/audit", "auditdEnabled=true").unwrap();
    assert_eq!(enabled.status, 200, "{}", enabled.text());
    assert_eq!(login(&server, "eve", "wrong password"), 401);
    assert_eq!(server.rest("DELETE", "/pools/default/buckets/b", "").unwrap().status, 200);
    let settings = server.rest("POST", "/settings/replications", "priority=High").unwrap();
    assert_eq!(settings.status, 200, "{}", settings.text());
    let cancelled = server.rest("DELETE", "/controller/cancelXDCR/a%2Fb%2Fc", "").unwrap();
    assert_eq!(cancelled.status, 400, "{}", cancelled.text());
    // Other requests are in the log too, in any order.
    let mut has = |id: u64, user: &str| {
        server.wait_for(&format!("{id} of {user} in the audit log"), |_| {
            let text = std::fs::read_to_string(&path).ok()?;
            // The last line may still be incomplete.
            let lines = text.lines().map_while(|line| serde_json::from_str::<Value>(line).ok());
            lines.into_iter().find(|line| line["id"] == id && line["real_userid"]["user"] == user)
        })
    };
    assert_eq!(has(8193, "eve")["remote"]["ip"], "127.0.0.1");
    assert_eq!(has(8203, USER)["path"], "/pools/default/buckets/b");
    assert_eq!(has(16_391, USER)["path"], "/settings/replications");
    assert_eq!(has(16_390, USER)["status"], 400, "the log has failed attempts as well");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("wrong password") && !text.contains(PASSWORD), "{text}");
}
