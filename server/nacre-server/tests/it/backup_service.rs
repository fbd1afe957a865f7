//! The backup service: repositories, tasks and restores by its endpoints, whoever is killed meanwhile.

use crate::process::{BUCKET, PASSWORD, Server, USER, port_base, until};
use nacre_client::{Bucket, Key, Login, StoreOptions};
use nacre_conformance::http;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;

const BASE: &str = "/_p/backup/api/v1";
/// Port of the service relative to that of management.
const PORT: u16 = 6;

/// Sends a request as a user; returns status and body.
fn ask_as(
    server: &Server,
    user: Option<(&str, &str)>,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let address = format!("127.0.0.1:{}", server.port_base + PORT);
    let path = format!("/api/v1{path}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let json = "application/json";
    let answer = http::request(&address, method, &path, user, json, body.as_bytes()).unwrap();
    let text = answer.text();
    (answer.status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    ask_as(server, Some((USER, PASSWORD)), method, path, body)
}

fn succeed(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = ask(server, method, path, body);
    assert_eq!(status, 200, "{method} {path}: {answer}");
    answer
}

fn get(server: &Server, path: &str) -> Value {
    succeed(server, "GET", path, &Value::Null)
}

/// Gives the service to the node, and waits until it has it.
fn give(server: &Server) {
    let pool = || -> Value {
        let answer = server.rest("GET", "/pools/default", "").unwrap();
        serde_json::from_str(&answer.text()).unwrap()
    };
    let node = pool()["nodes"][0]["otpNode"].as_str().unwrap().replace('@', "%40");
    let form = format!("knownNodes={node}&topology[backup]={node}");
    let given = server.rest("POST", "/controller/rebalance", &form).unwrap();
    assert_eq!(given.status, 200, "{}", given.text());
    until(|| pool()["nodes"][0]["services"].to_string().contains("\"backup\"").then_some(()));
}

/// Makes a plan that never runs by itself, and a repository with it.
fn create(server: &Server, id: &str, archive: &Path) {
    let schedule = json!({"job_type": "BACKUP", "frequency": 200, "period": "WEEKS"});
    let plan = json!({"tasks": [{"name": "b", "task_type": "BACKUP", "schedule": schedule}]});
    succeed(server, "POST", &format!("/plan/{id}"), &plan);
    let repository = json!({"plan": id, "archive": archive, "bucket_name": BUCKET});
    succeed(server, "POST", &format!("/cluster/self/repository/active/{id}"), &repository);
}

/// Begins a task, and waits until it has ended.
fn run(server: &Server, path: &str, body: &Value) -> Value {
    let (repository, _) = path.rsplit_once('/').unwrap();
    let begun = succeed(server, "POST", path, body);
    let name = begun["task_name"].as_str().unwrap().to_owned();
    until(|| {
        let history = get(server, &format!("{repository}/taskHistory?task_name={name}"));
        let run = history[0].clone();
        assert_eq!(run["task_name"], name.as_str(), "{history}");
        (run["status"] != "running").then_some(run)
    })
}

fn done(run: &Value) {
    assert_eq!((&run["status"], &run["error_code"]), (&json!("done"), &json!(0)), "{run}");
}

fn open(server: &Server) -> Bucket {
    let login = Login { user: USER.into(), password: PASSWORD.into(), bucket: BUCKET.into() };
    Bucket::connect(&[server.kv_address()], None, login).unwrap()
}

fn set(bucket: &mut Bucket, key: &str, value: &str) {
    let key = Key::of_default(key.as_bytes());
    bucket.set(key, value.as_bytes(), StoreOptions::default()).unwrap();
}

fn value(bucket: &mut Bucket, key: &str) -> Option<String> {
    let found = bucket.get(Key::of_default(key.as_bytes())).unwrap()?;
    Some(String::from_utf8(found.value.to_vec()).unwrap())
}

/// Checks the changes that the description of the first two backups counts.
fn check_counts(info: &Value) {
    let counts: Vec<&Value> =
        info["backups"].as_array().unwrap().iter().map(|one| &one["buckets"][0]).collect();
    assert_eq!((&counts[0]["mutations"], &counts[0]["tombstones"]), (&json!(50), &json!(0)));
    assert_eq!((&counts[1]["mutations"], &counts[1]["tombstones"]), (&json!(1), &json!(1)));
    for (backup, expected) in counts.iter().zip([(50, 0), (1, 1)]) {
        let scope = &backup["scopes"]["0"];
        let shown = [scope, &scope["collections"]["0"]]
            .map(|shown| json!([shown["name"], shown["mutations"], shown["tombstones"]]));
        let expected = json!(["_default", expected.0, expected.1]);
        assert_eq!(shown, [expected.clone(), expected], "{backup}");
    }
}

#[test]
fn backups_are_taken_merged_examined_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("node"));
    let archive = folder.path().join("archive");
    give(&server);
    create(&server, "r", &archive);
    let active = "/cluster/self/repository/active/r";
    let mut bucket = open(&server);
    for n in 0..50 {
        set(&mut bucket, &format!("k{n}"), "{\"v\":1}");
    }
    done(&run(&server, &format!("{active}/backup"), &json!({"full_backup": true})));
    set(&mut bucket, "k1", "{\"v\":2}");
    bucket.delete(Key::of_default(b"k2"), StoreOptions::default()).unwrap();
    done(&run(&server, &format!("{active}/backup"), &json!({})));

    let info = get(&server, &format!("{active}/info"));
    let shown = |field: &str| -> Vec<Value> {
        let all = info["backups"].as_array().unwrap();
        all.iter().map(|backup| backup[field].clone()).collect()
    };
    assert_eq!((&info["count"], shown("type")), (&json!(2), vec![json!("FULL"), json!("INCR")]));
    check_counts(&info);
    let path = format!("{active}/examine");
    let versions = succeed(&server, "POST", &path, &json!({"key": "k1", "data_path": BUCKET}));
    let values: Vec<&Value> =
        versions.as_array().unwrap().iter().map(|one| &one["value"]).collect();
    assert_eq!(values, [&json!({"v": 1}), &json!({"v": 2})]);
    let versions = succeed(&server, "POST", &path, &json!({"key": "k2", "data_path": BUCKET}));
    assert_eq!(versions[1]["deleted"], true, "{versions}");

    // The first backup, over what is newer.
    let end = info["backups"][0]["date"].clone();
    let restore = json!({"user": USER, "password": PASSWORD, "end": end, "force_updates": true});
    done(&run(&server, &format!("{active}/restore"), &restore));
    assert_eq!(value(&mut bucket, "k1").unwrap(), "{\"v\":1}");
    assert_eq!(value(&mut bucket, "k2").unwrap(), "{\"v\":1}");
    // A restore that starts with the second backup brings back only its changes.
    set(&mut bucket, "k5", "{\"v\":9}");
    let second = info["backups"][1]["date"].clone();
    let newer = json!({"user": USER, "password": PASSWORD, "start": second, "force_updates": true});
    done(&run(&server, &format!("{active}/restore"), &newer));
    assert_eq!(value(&mut bucket, "k1").unwrap(), "{\"v\":2}");
    assert_eq!(value(&mut bucket, "k2"), None);
    assert_eq!(value(&mut bucket, "k5").unwrap(), "{\"v\":9}");
    done(&run(&server, &format!("{active}/restore"), &restore));
    assert_eq!(value(&mut bucket, "k2").unwrap(), "{\"v\":1}");
    // Of it only what is selected, and without the definitions of functions.
    ["k3", "k4"].into_iter().for_each(|key| set(&mut bucket, key, "{\"v\":9}"));
    let mut some = restore.clone();
    for (member, value) in [
        ("include_data", json!(BUCKET)),
        ("filter_keys", "^k[35]$".into()),
        ("disable_eventing", true.into()),
    ] {
        some[member] = value;
    }
    done(&run(&server, &format!("{active}/restore"), &some));
    assert_eq!(value(&mut bucket, "k3").unwrap(), "{\"v\":1}");
    assert_eq!(value(&mut bucket, "k4").unwrap(), "{\"v\":9}");
    let refused = run(
        &server,
        &format!("{active}/restore"),
        &json!({"user": USER, "password": "wrong", "end": end}),
    );
    assert_eq!(refused["status"], "failed");
    assert!(!refused.to_string().contains("wrong"), "a password is in no answer: {refused}");
    assert_eq!(get(&server, active)["health"]["healthy"], false);

    let merge = json!({"offset_start": 0, "offset_end": 1});
    done(&run(&server, &format!("{active}/merge"), &merge));
    let info = get(&server, &format!("{active}/info"));
    assert_eq!((&info["count"], &info["backups"][0]["type"]), (&json!(1), &json!("MERGE - FULL")));
    let restore = json!({"user": USER, "password": PASSWORD, "force_updates": true});
    done(&run(&server, &format!("{active}/restore"), &restore));
    assert_eq!(value(&mut bucket, "k1").unwrap(), "{\"v\":2}");
    assert_eq!(value(&mut bucket, "k2"), None, "a merge deletes as its increments did");

    let repo = get(&server, active)["repo"].clone();
    let import = json!({"id": "i", "archive": archive, "repo": repo});
    succeed(&server, "POST", "/cluster/self/repository/import", &import);
    let imported = "/cluster/self/repository/imported/i";
    assert_eq!(get(&server, &format!("{imported}/info"))["count"], 1);
    let path = format!("{imported}?remove_repository=true");
    assert_eq!(ask(&server, "DELETE", &path, &Value::Null).0, 400);
    succeed(&server, "DELETE", imported, &Value::Null);
    let name = info["backups"][0]["date"].as_str().unwrap();
    let (status, answer) = ask(
        &server,
        "DELETE",
        &format!("{active}/backups/01J00000000000000000000000"),
        &Value::Null,
    );
    assert_eq!((status, &answer["msg"]), (500, &json!("could not remove backup")));
    succeed(&server, "DELETE", &format!("{active}/backups/{name}"), &Value::Null);
    assert_eq!(get(&server, &format!("{active}/info"))["count"], 0);
    done(&run(&server, &format!("{active}/backup"), &json!({})));
    succeed(&server, "POST", &format!("{active}/archive"), &json!({"id": "old"}));
    let archived = "/cluster/self/repository/archived/old";
    assert_eq!(get(&server, &format!("{archived}/info"))["count"], 1);
    succeed(&server, "DELETE", &format!("{archived}?remove_repository=true"), &Value::Null);
    let left = archive.join(repo.as_str().unwrap()).join("backups");
    assert!(!left.exists(), "the backups are removed");
}

#[test]
fn a_due_task_runs_automatically() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("node"));
    let schedule = |period| json!({"frequency": 200, "period": period, "start_now": true});
    let plan = json!({"tasks": [
        {"name": "first", "task_type": "BACKUP", "schedule": schedule("DAYS")},
    ]});
    succeed(&server, "POST", "/plan/p", &plan);
    let repository = json!({"plan": "p", "archive": folder.path().join("archive")});
    let active = "/cluster/self/repository/active/r";
    succeed(&server, "POST", active, &repository);
    // Nothing runs on a node without the service.
    let (status, answer) = ask(&server, "POST", &format!("{active}/backup"), &json!({}));
    assert_eq!(status, 503, "{answer}");
    assert_eq!(get(&server, &format!("{active}/taskHistory")), json!([]));
    give(&server);
    let ended = until(|| {
        let history = get(&server, &format!("{active}/taskHistory"));
        (history[0]["status"] == "done").then_some(history)
    });
    assert_eq!(ended.as_array().unwrap().len(), 1, "it runs once: {ended}");
    let next = get(&server, active)["scheduled"]["first"]["next_run"].clone();
    assert!(next.as_str().unwrap() > ended[0]["end"].as_str().unwrap(), "{next}");
    assert_eq!(get(&server, &format!("{active}/info"))["count"], 1);
    // A plan that changes is followed.
    let plan =
        json!({"tasks": [{"name": "other", "task_type": "BACKUP", "schedule": schedule("HOURS")}]});
    succeed(&server, "PUT", "/plan/p", &plan);
    until(|| {
        let history = get(&server, &format!("{active}/taskHistory"));
        let all = history.as_array().unwrap();
        (all.len() == 2 && all.iter().all(|run| run["status"] == "done")).then_some(())
    });
    assert!(get(&server, active)["scheduled"].get("first").is_none());
}

#[test]
fn a_repository_has_one_task_at_a_time_and_that_of_a_killed_node_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    // An object store that takes connections and never answers: the task does not end.
    let store = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://127.0.0.1:{}", store.local_addr().unwrap().port());
    let variables = [
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
    ];
    let (data, ports) = (folder.path().join("node"), port_base());
    let server = Server::start_with_env(&data, ports, &variables);
    give(&server);
    create(&server, "r", Path::new("/nowhere"));
    let remote = json!({"plan": "r", "archive": "s3://b/p", "cloud_region": "eu-central-1"});
    let active = "/cluster/self/repository/active/s";
    succeed(&server, "POST", active, &remote);
    let begun = succeed(&server, "POST", &format!("{active}/backup"), &json!({}));
    let name = begun["task_name"].as_str().unwrap().to_owned();
    let shown = get(&server, "/cluster/self");
    let running = &shown["active"]["s"]["running_one_off"][&name];
    assert_eq!((&running["status"], &running["type"]), (&json!("running"), &json!("BACKUP")));
    for (path, body) in [
        ("backup", json!({})),
        ("merge", json!({})),
        ("archive", json!({"id": "x"})),
        ("restore", json!({"user": USER, "password": PASSWORD})),
    ] {
        let (status, answer) = ask(&server, "POST", &format!("{active}/{path}"), &body);
        assert_eq!(status, 409, "{path}: {answer}");
        assert!(answer["extras"].as_str().unwrap().contains(&name), "{path}: {answer}");
    }
    server.kill();
    let server = Server::start_with_env(&data, ports, &variables);
    let history = get(&server, &format!("{active}/taskHistory"));
    assert_eq!((&history[0]["task_name"], &history[0]["status"]), (&json!(name), &json!("failed")));
    assert!(history[0].to_string().contains("was restarted"), "{history}");
    assert!(get(&server, active).get("running_one_off").is_none());
    // A node that is stopped does not wait for its tasks.
    succeed(&server, "POST", &format!("{active}/backup"), &json!({}));
    server.stop();
}

#[test]
fn strangers_and_users_without_the_right_see_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("node"));
    for (name, role) in [("saver", "backup_admin"), ("reader", "data_backup[*]")] {
        let path = format!("/settings/rbac/users/local/{name}");
        let made = server.rest("PUT", &path, &format!("password=sesame-1&roles={role}")).unwrap();
        assert_eq!(made.status, 200, "{}", made.text());
    }
    for (method, path) in [
        ("GET", "/config"),
        ("GET", "/plan"),
        ("GET", "/cluster/self"),
        ("POST", "/cluster/self/repository/active/r/backup"),
        ("POST", "/cluster/self/repository/active/r/restore"),
        ("POST", "/cluster/self/repository/active/r/examine"),
        ("POST", "/cluster/self/repository/active/r/share"),
        ("GET", "/cluster/self/repository/active/r/share/01J00000000000000000000000"),
        ("DELETE", "/cluster/self/repository/archived/r"),
    ] {
        assert_eq!(ask_as(&server, None, method, path, &Value::Null).0, 401, "{method} {path}");
        let wrong = Some(("saver", "sesame-2"));
        assert_eq!(ask_as(&server, wrong, method, path, &Value::Null).0, 401, "{method} {path}");
        let reader = Some(("reader", "sesame-1"));
        assert_eq!(ask_as(&server, reader, method, path, &Value::Null).0, 403, "{method} {path}");
        let saver = Some(("saver", "sesame-1"));
        let status = ask_as(&server, saver, method, path, &Value::Null).0;
        assert!([200, 400, 404].contains(&status), "{method} {path}: {status}");
    }
    // Pages of management lead to the service.
    let answer = server.rest("GET", &format!("{BASE}/cluster/self"), "").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
}
