//! The plugins of the patterns, from `examples`, with documents that come and go and nodes that are killed.

use super::{BUCKET, PASSWORD, Server, USER, bucket, json};
use crate::plugins;
use crate::queries::serving;
use nacre_client::{Bucket, Durability, Key, StoreOptions};
use nacre_sandbox::Package;
use serde_json::{Value, json as value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Header of a request whose answer has every write before it.
const FRESH: &str = "Nacre-Consistency: request_plus\r\n";

/// Makes collections, uploads an example, and deploys it.
fn deploy(server: &Server, name: &str, scope: &str, collections: &[&str], grants: &Value) {
    let scopes = format!("/pools/default/buckets/{BUCKET}/scopes");
    assert_eq!(server.rest("POST", &scopes, &format!("name={scope}")).unwrap().status, 200);
    for collection in collections {
        let form = format!("name={collection}");
        let path = format!("{scopes}/{scope}/collections");
        assert_eq!(server.rest("POST", &path, &form).unwrap().status, 200);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let read = |file: &str| std::fs::read(folder.join(file)).unwrap();
    let manifest = String::from_utf8(read("plugin.toml")).unwrap();
    let files = BTreeMap::from([("main.js".to_owned(), read("main.js"))]);
    let package = Package::new(manifest, files).unwrap();
    let version = package.manifest.version.clone();
    let (status, told) = plugins::ask(server, "POST", "/plugins", "", &package.write());
    assert_eq!(status, 201, "{told}");
    let wanted = value!({
        "package": name, "version": version, "bucket": BUCKET, "scope": scope, "collection": collections[0],
        "grants": grants,
    });
    let path = format!("/deployments/{name}");
    let (status, told) = plugins::ask(server, "PUT", &path, "", wanted.to_string().as_bytes());
    assert_eq!(status, 200, "{told}");
}

/// Answer of a plugin that has every write.
fn fresh(server: &Server, path: &str) -> Value {
    let (status, answer) = plugins::ask(server, "GET", &format!("/_plugin/{path}"), FRESH, b"");
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

fn durable() -> StoreOptions {
    StoreOptions { durability: Some(Durability::PersistMajority), ..json() }
}

/// Numbers that look random, the same each time. Source: D. Knuth, "The Art of Computer Programming" 2, MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Users with their addresses, as documents should be.
type Users = BTreeMap<String, Option<String>>;

/// Each address in use has one lookup, which leads to a user who has it, and there is no other lookup.
fn check_lookups(server: &Server, users: &Users) {
    let statement = format!("SELECT RAW [META(l).id, l] FROM {BUCKET}.shop.lookup AS l");
    let request = value!({"statement": statement, "scan_consistency": "request_plus"});
    let answer = server.query(&request.to_string());
    let lookups: BTreeMap<String, String> = answer["results"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"))
        .iter()
        .map(|row| serde_json::from_value::<(String, String)>(row.clone()).unwrap())
        .collect();
    let used: BTreeSet<String> =
        users.values().flatten().map(|address| format!("mail::{address}")).collect();
    assert_eq!(lookups.keys().cloned().collect::<BTreeSet<_>>(), used);
    for (lookup, user) in lookups {
        let has = users.get(&user).and_then(Option::as_ref);
        assert_eq!(has.map(|address| format!("mail::{address}")), Some(lookup), "{user}");
    }
}

/// A07.
#[test]
fn lookups_are_those_of_the_users_after_a_storm_and_a_replay() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    let grants = value!({"kv": {"read": ["shop.users"], "write": ["shop.lookup"]}});
    deploy(&server, "index-table", "shop", &["users", "lookup"], &grants);
    let mut client = bucket(&server);
    let collection = client.collection_id("shop.users").unwrap();
    let (mut random, mut users) = (Random(7), Users::new());
    for _ in 0..4 {
        for _ in 0..500 {
            let user = format!("user::{}", random.below(60));
            let key = Key { collection, name: user.as_bytes() };
            // Fewer addresses than users: many want one that somebody has.
            let address = match random.below(10) {
                0 if users.contains_key(&user) => {
                    client.delete(key, json()).unwrap();
                    users.remove(&user);
                    continue;
                }
                0 | 1 => None,
                _ => Some(format!("a{}@example.com", random.below(40))),
            };
            client.set(key, value!({"email": address}).to_string().as_bytes(), json()).unwrap();
            users.insert(user, address);
        }
        fresh(&server, "index-table/");
        check_lookups(&server, &users);
    }
    let (status, told) = plugins::ask(&server, "POST", "/deployments/index-table/replay", "", b"");
    assert_eq!(status, 200, "{told}");
    server.wait_for("the replay", |server| {
        let status = plugins::ask(server, "GET", "/deployments/index-table", "", b"").1;
        (status["building"].is_null() && status["lag"] == 0).then_some(())
    });
    fresh(&server, "index-table/");
    check_lookups(&server, &users);
    for (user, _) in std::mem::take(&mut users) {
        client.delete(Key { collection, name: user.as_bytes() }, json()).unwrap();
    }
    fresh(&server, "index-table/");
    check_lookups(&server, &users);
}

/// A09: the page is full although a comment is gone.
#[test]
fn a_page_with_a_gap_is_filled_up() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let grants = value!({"kv": {"write": ["blog.comments"]}});
    deploy(&server, "append-child", "blog", &["posts", "comments"], &grants);
    for number in 1..=12 {
        let comment = format!(r#"{{"text":"{number}"}}"#);
        let (status, told) =
            plugins::ask(&server, "POST", "/_plugin/append-child/post::1", "", comment.as_bytes());
        assert_eq!((status, &told["number"]), (201, &value!(number)), "{told}");
    }
    let mut client = bucket(&server);
    let collection = client.collection_id("blog.comments").unwrap();
    client.delete(Key { collection, name: b"post::1::7" }, json()).unwrap();
    let page = fresh(&server, "append-child/post::1?size=10");
    let numbers: Vec<_> = page["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|child| child["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]);
    assert_eq!((&page["next"], &page["count"]), (&value!(12), &value!(12)));
}

const ACTIVITIES: u64 = 8;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("it is a number"))
}

fn put(client: &mut Bucket, collection: u32, name: &str, body: &Value) {
    let key = Key { collection, name: name.as_bytes() };
    client.set(key, body.to_string().as_bytes(), durable()).unwrap();
}

/// A12; `NACRE_FEED_USERS=1000 NACRE_FEED_FOLLOWEES=100` are the sizes of the dissertation.
#[test]
fn pages_of_a_feed_have_each_activity_once_although_the_node_is_killed() {
    let users = from_env("NACRE_FEED_USERS", 50);
    let followees = from_env("NACRE_FEED_FOLLOWEES", 20);
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let grants = value!({"kv": {"read": ["social.follows"]}});
    deploy(&server, "feed-fan-out", "social", &["activities", "follows"], &grants);
    let mut client = bucket(&server);
    let follows = client.collection_id("social.follows").unwrap();
    let activities = client.collection_id("social.activities").unwrap();
    for author in 0..users {
        // Each user follows the next ones.
        let followers: Vec<_> =
            (1..=followees).map(|step| format!("u{}", (author + users - step) % users)).collect();
        put(&mut client, follows, &format!("followers::u{author}"), &value!(followers));
    }
    let total = users * ACTIVITIES;
    for number in 0..total {
        let at =
            format!("2026-01-01T{:02}:{:02}:{:02}Z", number / 3600, number / 60 % 60, number % 60);
        let activity = value!({"author": format!("u{}", number % users), "at": at});
        put(&mut client, activities, &format!("activity {number:05}"), &activity);
        if number == total / 2 {
            server.kill();
            server = Server::start(directory.path());
            server.wait_for("the plugin", |server| {
                let path = "/_plugin/feed-fan-out/u0";
                (plugins::ask(server, "GET", path, "", b"").0 == 200).then_some(())
            });
            client = bucket(&server);
        }
    }
    for reader in 0..users {
        let (mut seen, mut before) = (Vec::new(), String::new());
        loop {
            let page = fresh(&server, &format!("feed-fan-out/u{reader}?limit=10{before}"));
            let entries = page["entries"].as_array().unwrap();
            let entry = |entry: &Value| {
                let text = |member: &str| entry[member].as_str().unwrap().to_owned();
                (text("at"), text("id"), text("author"))
            };
            seen.extend(entries.iter().map(entry));
            match page["next"].as_str() {
                Some(next) => before = format!("&before={}", next.replace(' ', "%20")),
                None => break,
            }
        }
        assert_eq!(seen.len() as u64, followees * ACTIVITIES, "u{reader}");
        assert!(seen.is_sorted_by(|newer, older| newer.0 > older.0), "u{reader}: {seen:?}");
        let followed: BTreeSet<String> =
            (1..=followees).map(|step| format!("u{}", (reader + step) % users)).collect();
        assert!(seen.iter().all(|(_, _, author)| followed.contains(author)), "u{reader}");
        let ids: BTreeSet<&String> = seen.iter().map(|(_, id, _)| id).collect();
        assert_eq!(ids.len(), seen.len(), "u{reader}");
    }
}

/// A right that is needed to read a plugin's answers is needed here, too.
#[test]
fn strangers_see_no_feed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let grants = value!({"kv": {"read": ["social.follows"]}});
    deploy(&server, "feed-fan-out", "social", &["activities", "follows"], &grants);
    let user = "/settings/rbac/users/local/ann";
    let form = format!("password={PASSWORD}&roles=data_reader[{BUCKET}]");
    assert_eq!(server.rest("PUT", user, &form).unwrap().status, 200);
    let address = format!("127.0.0.1:{}", server.port_base);
    let status = |login: Option<(&str, &str)>| {
        let path = "/_plugin/feed-fan-out/u0";
        nacre_conformance::http::request(&address, "GET", path, login, "", b"").unwrap().status
    };
    assert_eq!([status(None), status(Some(("ann", PASSWORD)))], [401, 403]);
    assert_eq!(status(Some((USER, PASSWORD))), 200);
}
