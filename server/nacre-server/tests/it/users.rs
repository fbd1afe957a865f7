//! Users, groups and passwords over REST, in the words that SDKs look for.

use crate::process::{BUCKET, Server};
use nacre_conformance::http;
use nacre_conformance::kv::KvClient;
use serde_json::json;

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

/// Collects the logs of the node and returns the text of the file.
fn collected_logs(server: &Server, form: &str) -> String {
    let path = "/controller/startLogsCollection";
    let answer = server.rest("POST", path, &format!("nodes=*&{form}")).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let tasks = server.rest("GET", "/pools/default/tasks", "").unwrap().text();
    let tasks: Vec<serde_json::Value> = serde_json::from_str(&tasks).unwrap();
    let task = tasks.iter().find(|task| task["type"] == "clusterLogsCollection").unwrap();
    let nodes = task["perNode"].as_object().unwrap();
    let path = nodes.values().find_map(|node| node["path"].as_str()).unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn collected_logs_mark_names_of_users_and_can_have_hashes_in_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let user = "/settings/rbac/users/local/annabel";
    assert_eq!(server.rest("PUT", user, "password=secret&roles=ro_admin").unwrap().status, 200);
    let plain = collected_logs(&server, "logRedactionLevel=none");
    assert!(plain.contains("<ud>annabel</ud>"), "{plain}");
    let salted = || collected_logs(&server, "logRedactionLevel=partial&logRedactionSalt=s1");
    let hash_of = |text: &str| {
        assert!(!text.contains("annabel"), "{text}");
        let added = text.split_once("User added").unwrap().1;
        let attributes = added.split_once("<ud>").unwrap().1;
        attributes.split_once("</ud>").unwrap().0.to_owned()
    };
    let first = hash_of(&salted());
    assert_eq!(hash_of(&salted()), first, "equal salts make equal hashes");
    assert_ne!(hash_of(&collected_logs(&server, "logRedactionLevel=partial")), first);
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

/// A request to the management port as somebody, with a form.
fn ask_as(
    server: &Server,
    login: (&str, &str),
    method: &str,
    path: &str,
    form: &str,
) -> (u16, String) {
    let address = format!("127.0.0.1:{}", server.port_base);
    let kind = "application/x-www-form-urlencoded";
    let answer = http::request(&address, method, path, Some(login), kind, form.as_bytes()).unwrap();
    (answer.status, answer.text())
}

/// Roles that may see and change users of each domain, and groups.
const LOCAL: &str = "admin security_admin security_admin_local";
const EXTERNAL: &str = "admin security_admin security_admin_external";
/// Requests about users: those before [`TOP`] need the role for the domain, the others a full administrator.
const TOP: usize = 14;
const ROUTES: [(&str, &str, &str); 20] = [
    ("GET", "/settings/rbac/users/local", ""),
    ("GET", "/settings/rbac/users/local/plain", ""),
    ("PUT", "/settings/rbac/users/local/plain", "roles=&password=secret1"),
    ("PUT", "/settings/rbac/users/local/plain", "groups=plain"),
    ("PATCH", "/settings/rbac/users/local/plain", "locked=true"),
    ("PATCH", "/settings/rbac/users/local/plain", "password=secret1"),
    ("DELETE", "/settings/rbac/users/local/nobody", ""),
    ("PUT", "/settings/rbac/groups/plain", "roles="),
    ("DELETE", "/settings/rbac/groups/nothing", ""),
    ("POST", "/settings/passwordPolicy", "minLength=6"),
    ("GET", "/settings/rbac/users/external", ""),
    ("PUT", "/settings/rbac/users/external/plain", "roles="),
    ("PATCH", "/settings/rbac/users/external/plain", "name=x"),
    ("DELETE", "/settings/rbac/users/external/nobody", ""),
    ("PUT", "/settings/rbac/users/local/chosen", "roles=admin&password=secret1"),
    ("PATCH", "/settings/rbac/users/local/Administrator", "name=x"),
    ("PUT", "/settings/rbac/groups/plain2", "roles=ro_admin"),
    ("PUT", "/settings/rbac/users/external/chosen", "roles=security_admin_local"),
    ("POST", "/controller/uploadClusterCA", ""),
    ("POST", "/settings/clientCertAuth", ""),
];

#[test]
fn every_change_of_users_over_rest_needs_the_role_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let ask = |method: &str, path: &str, form: &str| {
        let answer = server.rest(method, path, form).unwrap();
        (answer.status, answer.text())
    };
    for (path, form) in [
        ("/settings/rbac/users/local/someone", "password=secret1&roles="),
        ("/settings/rbac/users/local/plain", "password=secret1&roles="),
        ("/settings/rbac/users/external/plain", "roles="),
        ("/settings/rbac/groups/plain", "roles="),
    ] {
        assert_eq!(ask("PUT", path, form).0, 200, "{path}");
    }
    let roles: serde_json::Value =
        serde_json::from_str(&ask("GET", "/settings/rbac/roles", "").1).unwrap();
    let mut cells = 0;
    for role in roles.as_array().unwrap() {
        let name = role["role"].as_str().unwrap();
        let is_in = |list: &str| list.split(' ').any(|listed| listed == name);
        let places = ["bucket_name", "scope_name", "collection_name"];
        let place = match places.iter().filter(|place| role[**place].is_string()).count() {
            0 => "",
            _ => "[*]",
        };
        let form = format!("roles={name}{place}");
        let (status, text) = ask("PATCH", "/settings/rbac/users/local/someone", &form);
        assert_eq!(status, 200, "{form}: {text}");
        for (number, (method, path, form)) in ROUTES.into_iter().enumerate() {
            let list = match path.contains("/external") {
                true => EXTERNAL,
                false => LOCAL,
            };
            let allowed = if number >= TOP { is_in("admin") } else { is_in(list) };
            let (status, text) = ask_as(&server, ("someone", "secret1"), method, path, form);
            let is_refused = status == 403;
            assert_eq!(is_refused, !allowed, "{name}: {method} {path} {form}: {status} {text}");
            assert!(status != 401 && status < 500, "{name}: {method} {path} {form}: {status}");
            cells += 1;
        }
    }
    assert!(cells >= 53 * ROUTES.len(), "{cells} cells");
}

#[test]
fn some_fields_of_a_user_change_and_the_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let ask = |method: &str, path: &str, form: &str| {
        let answer = server.rest(method, &format!("/settings/rbac/users{path}"), form).unwrap();
        (answer.status, answer.text())
    };
    let user = |path: &str| -> serde_json::Value {
        serde_json::from_str(&ask("GET", path, "").1).unwrap()
    };
    assert_eq!(ask("PATCH", "/local/ann", "name=Ann"), (404, "\"Unknown user.\"".into()));
    let form = format!("name=Ann&password=secret1&roles=data_reader[{BUCKET}],scope_admin[*]");
    assert_eq!(ask("PUT", "/local/ann", &form).0, 200);
    let before = user("/local/ann");
    let date = before["password_change_date"].as_str().unwrap();
    assert!(date.ends_with(".000Z") && date.len() == 24, "{date}");
    let role = &before["roles"][0];
    assert_eq!((&role["scope_name"], &role["collection_name"]), (&"*".into(), &"*".into()));
    let role = &before["roles"][1];
    assert!(role["scope_name"] == "*" && role["collection_name"].is_null(), "{role}");
    let login = |password: &str| ask_as(&server, ("ann", password), "GET", "/whoami", "").0;
    assert_eq!(login("secret1"), 200);
    for (form, field, value, status) in [
        ("locked=true", "locked", json!(true), 401),
        ("locked=false", "locked", json!(false), 200),
        ("name=Anna", "name", json!("Anna"), 200),
        ("password=secret2", "locked", json!(false), 401),
    ] {
        let before = user("/local/ann");
        assert_eq!(ask("PATCH", "/local/ann", form).0, 200, "{form}");
        let mut after = user("/local/ann");
        assert_eq!(after[field], value, "{form}");
        for field in [field, "password_change_date"] {
            after[field] = before[field].clone();
        }
        assert_eq!(after, before, "{form}");
        assert_eq!(login("secret1"), status, "{form}");
    }
    assert_eq!(login("secret2"), 200);
    for form in ["locked=maybe", "colour=red", "roles=king", "groups=none", "password=x"] {
        let (status, text) = ask("PATCH", "/local/ann", form);
        assert_eq!(status, 400, "{form}: {text}");
    }
}

#[test]
fn users_of_a_directory_service_have_roles_and_no_password() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let ask = |server: &Server, method: &str, path: &str, form: &str| {
        let answer = server.rest(method, &format!("/settings/rbac{path}"), form).unwrap();
        (answer.status, answer.text())
    };
    let path = "/users/external/eve";
    assert_eq!(ask(&server, "GET", path, ""), (404, "\"Unknown user.\"".into()));
    assert_eq!(ask(&server, "DELETE", path, ""), (404, "\"Unknown user.\"".into()));
    for form in ["roles=data_reader[nowhere]", "roles=admin&password=secret1"] {
        assert_eq!(ask(&server, "PUT", path, form).0, 400, "{form}");
    }
    assert_eq!(ask(&server, "PUT", path, "name=Eve&roles=admin").0, 200);
    assert_eq!(ask(&server, "PUT", "/users/elsewhere/eve", "roles=admin").0, 404);
    assert_eq!(ask_as(&server, ("eve", ""), "GET", "/whoami", "").0, 401);
    server.stop();

    let server = Server::start(directory.path());
    let list = |path: &str| -> Vec<(String, String)> {
        let (_, text) = ask(&server, "GET", path, "");
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let users = list.as_array().unwrap().iter();
        users.map(|user| (text(&user["domain"]), text(&user["id"]))).collect()
    };
    let eve = ("external".to_owned(), "eve".to_owned());
    assert_eq!(list("/users/external"), std::slice::from_ref(&eve));
    assert_eq!(list("/users").last(), Some(&eve));
    assert!(!list("/users/local").contains(&eve));
    assert_eq!(ask(&server, "PATCH", path, "name=Eva").0, 200);
    assert!(ask(&server, "GET", path, "").1.contains("\"Eva\""));
    assert_eq!(ask(&server, "DELETE", path, "").0, 200);
    assert!(list("/users/external").is_empty());
}

#[test]
fn users_and_groups_are_backed_up_and_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let path = "/settings/rbac/backup";
    let put = |path: &str, form: &str| {
        let answer = server.rest("PUT", &format!("/settings/rbac{path}"), form).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    };
    put("/groups/staff", "roles=ro_admin&description=all+of+us");
    put("/users/local/ann", "password=secret1&groups=staff");
    put("/users/external/eve", "roles=admin");
    put("/users/local/sam", "password=secret1&roles=security_admin");
    let take = |query: &str| -> serde_json::Value {
        let answer = server.rest("GET", &format!("{path}{query}"), "").unwrap();
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        serde_json::from_str(&answer.text()).unwrap()
    };
    let names = |backup: &serde_json::Value| {
        let list = |kind: &str, name: &str| -> Vec<String> {
            let records = backup[kind].as_array().unwrap().iter();
            records.map(|record| record[name].as_str().unwrap().to_owned()).collect()
        };
        (backup["admin"].is_object(), list("users", "id").join(","), list("groups", "name"))
    };
    let none = Vec::<String>::new;
    let all = take("");
    assert_eq!(names(&all), (true, "ann,sam,eve".into(), vec!["staff".into()]));
    assert!(!all.to_string().contains("secret1"), "{all}");
    for (query, expected) in [
        ("?exclude=*", (false, String::new(), none())),
        ("?include=admin", (true, String::new(), none())),
        ("?exclude=admin&exclude=user:*:*", (false, String::new(), vec!["staff".into()])),
        ("?include=user:local:*", (false, "ann,sam".into(), none())),
        ("?include=user:*:eve&include=group:none", (false, "eve".into(), none())),
    ] {
        assert_eq!(names(&take(query)), expected, "{query}");
    }
    let restore = |backup: &serde_json::Value, more: &str| {
        let encoded = percent_encoding::utf8_percent_encode(
            &backup.to_string(),
            percent_encoding::NON_ALPHANUMERIC,
        )
        .to_string();
        let answer = server.rest("PUT", path, &format!("backup={encoded}{more}")).unwrap();
        let text = answer.text();
        (answer.status, serde_json::from_str::<serde_json::Value>(&text).unwrap())
    };
    put("/users/local/ann", "password=secret2&groups=staff");
    let removed = server.rest("DELETE", "/settings/rbac/users/external/eve", "").unwrap();
    assert_eq!(removed.status, 200);
    let login = |password: &str| ask_as(&server, ("ann", password), "GET", "/whoami", "").0;
    let (status, report) = restore(&all, "");
    assert_eq!(status, 200, "{report}");
    assert_eq!(
        report["stats"],
        json!({"usersCreated": 1, "usersOverwritten": 0, "usersSkipped": 3,
            "groupsCreated": 0, "groupsOverwritten": 0, "groupsSkipped": 1})
    );
    assert_eq!(report["usersSkipped"][0]["domain"], "admin");
    assert_eq!((login("secret2"), login("secret1")), (200, 401), "ann stays as she is");
    let (status, report) = restore(&all, "&canOverwrite=true");
    assert_eq!((status, &report["stats"]["usersOverwritten"]), (200, &json!(4)), "{report}");
    assert_eq!((login("secret2"), login("secret1")), (401, 200), "ann is as she was");
    assert_eq!(take(""), all);

    // What is wrong is named, and nothing changes.
    let mut stranger = all.clone();
    stranger["users"][0]["auth"]["scram-sha-256"]["hashes"] = json!([]);
    let mut nobody = all.clone();
    nobody["users"][0]["id"] = json!("an n");
    let mut other = all.clone();
    other["version"] = json!("2");
    for (backup, more, field) in [
        (&stranger, "", "backup"),
        (&nobody, "", "_"),
        (&other, "", "backup"),
        (&json!({"users": 1}), "", "backup"),
        (&all, "&canOverwrite=maybe", "canOverwrite"),
        (&all, "&colour=red", "colour"),
    ] {
        let (status, report) = restore(backup, more);
        assert!(status == 400 && report["errors"][field].is_string(), "{report}");
    }
    for query in ["?include=admin&exclude=*", "?include=nobody", "?colour=red"] {
        assert_eq!(server.rest("GET", &format!("{path}{query}"), "").unwrap().status, 400);
    }
    assert_eq!(take(""), all);

    // The keys of passwords are for those who administer everybody.
    for (user, status) in [(("sam", "secret1"), 403), (("ann", "secret1"), 403), (("x", ""), 401)] {
        assert_eq!(ask_as(&server, user, "GET", path, "").0, status, "{user:?}");
        assert_eq!(ask_as(&server, user, "PUT", path, "backup={}").0, status, "{user:?}");
    }
}
