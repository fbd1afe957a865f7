//! Users, groups and passwords over REST, in the words that SDKs look for.

use crate::process::{BUCKET, Server};
use nacre_conformance::http;
use nacre_conformance::kv::KvClient;

#[test]
fn a_group_gives_its_users_rights_and_takes_them_away_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let ask = |method: &str, path: &str, form: &str| {
        let answer = server.rest(method, &format!("/settings/rbac{path}"), form).unwrap();
        (answer.status, answer.text())
    };
    assert_eq!(ask("GET", "/groups/readers", ""), (404, "\"Unknown group.\"".into()));
    let (status, text) = ask("PUT", "/users/local/ann", "password=secret&groups=readers");
    assert_eq!((status, text.contains("Groups do not exist: readers")), (400, true), "{text}");
    let (status, text) = ask("PUT", "/groups/readers", "roles=data_reader[nowhere]");
    assert_eq!((status, text.contains("unknown, malformed or")), (400, true), "{text}");
    let form = format!("description=who+reads&roles=data_reader[{BUCKET}]");
    assert_eq!(ask("PUT", "/groups/readers", &form).0, 200);
    assert_eq!(ask("PUT", "/users/local/ann", "password=secret&groups=readers").0, 200);

    let (_, text) = ask("GET", "/users/local/ann", "");
    let user: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(user["groups"][0], "readers");
    assert_eq!(user["roles"][0]["origins"][0]["name"], "readers");
    let mut client = KvClient::connect(server.kv_address(), "ann", "secret", BUCKET).unwrap();
    assert_eq!(client.get(b"k").unwrap().status, 0x01);
    assert_eq!(client.set(b"k", b"1").unwrap().status, 0x24);
    assert_eq!(ask("DELETE", "/groups/readers", "").0, 200);
    assert_ne!(client.get(b"k").unwrap().status, 0x01, "the connection has lost the right");
    assert_eq!(ask("DELETE", "/groups/readers", ""), (404, "\"Unknown group.\"".into()));
    assert_eq!(ask("DELETE", "/users/local/bob", ""), (404, "\"Unknown user.\"".into()));
    for name in ["ann%20b", "ann%0ab", "ann%2cb", "%40ann"] {
        let (status, text) = ask("PUT", &format!("/users/local/{name}"), "password=secret");
        assert!(status == 400 && text.contains("The username must not"), "{name}: {text}");
    }
}

#[test]
fn groups_and_the_rules_for_passwords_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let policy = "minLength=8&enforceDigits=true";
    assert_eq!(server.rest("POST", "/settings/passwordPolicy", policy).unwrap().status, 200);
    let group = "/settings/rbac/groups/admins";
    assert_eq!(server.rest("PUT", group, "roles=ro_admin").unwrap().status, 200);
    let user = "/settings/rbac/users/local/ann";
    assert_eq!(server.rest("PUT", user, "password=secret-1&groups=admins").unwrap().status, 200);
    server.stop();

    let server = Server::start(directory.path());
    let refused = server.rest("PUT", user, "password=secretly").unwrap();
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("at least one digit"), "{}", refused.text());
    let address = format!("127.0.0.1:{}", server.port_base);
    let as_ann = |method: &str, path: &str, form: &str| {
        let login = Some(("ann", "secret-1"));
        let kind = "application/x-www-form-urlencoded";
        http::request(&address, method, path, login, kind, form.as_bytes()).unwrap()
    };
    assert!(as_ann("GET", "/whoami", "").text().contains("ro_admin"));
    assert_eq!(as_ann("GET", "/pools/default", "").status, 200);
    for (method, path) in [
        ("POST", "/pools/default"),
        ("POST", "/pools/default/buckets"),
        ("DELETE", "/pools/default/buckets/default"),
        ("POST", "/pools/default/buckets/default/controller/doFlush"),
        ("POST", "/pools/default/buckets/default/scopes"),
        ("GET", "/settings/rbac/users"),
        ("PUT", "/settings/rbac/groups/admins"),
        ("POST", "/settings/passwordPolicy"),
        ("POST", "/settings/clientCertAuth"),
        ("POST", "/node/controller/reloadCertificate"),
        ("POST", "/controller/regenerateCertificate"),
    ] {
        assert_eq!(as_ann(method, path, "").status, 403, "{method} {path}");
    }
}
