//! Queries, views and changes over several real nodes: the same answer from each of them, even while vBuckets move and
//! after the loss of a node.

use crate::changes::Events;
use crate::cluster::{Node, three};
use crate::copies::{OP_GET, SmartClient, is_rebalancing, rebalance};
use crate::plugins;
use crate::process::{PASSWORD, USER};
use nacre_sandbox::Package;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

pub const BUCKET: &str = "spread";
pub const DOCUMENTS: u64 = 3000;

pub fn nodes_with_bucket(replicas: u8) -> [Node; 3] {
    let nodes = three();
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber={replicas}");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    nodes
}

fn http(node: &Node, port: u16, method: &str, path: &str, body: &str) -> Value {
    let address = format!("127.0.0.1:{}", node.port_base + port);
    let login = Some((USER, PASSWORD));
    let answer = nacre_conformance::http::request(
        &address,
        method,
        path,
        login,
        "application/json",
        body.as_bytes(),
    );
    let text = answer.unwrap().text();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{method} {path}: {text}"))
}

pub fn ask(node: &Node, request: &Value) -> Value {
    http(node, 2, "POST", "/query/service", &request.to_string())
}

/// The rows of a statement that sees everything that was written before.
pub fn rows(node: &Node, statement: &str) -> Value {
    rows_at(node, "request_plus", statement)
}

pub fn rows_at(node: &Node, consistency: &str, statement: &str) -> Value {
    let answer = ask(node, &json!({"statement": statement, "scan_consistency": consistency}));
    assert_eq!(answer["status"], "success", "{statement}: {answer}");
    answer["results"].clone()
}

pub fn fill(node: &Node) {
    for first in (0..DOCUMENTS).step_by(500) {
        let values: Vec<String> = (first..first + 500)
            .map(|n| format!("VALUES ('k{n}', {{'n': {n}, 'kind': 'k{}', 'text': 'a b'}})", n % 7))
            .collect();
        rows(node, &format!("UPSERT INTO {BUCKET} (KEY, VALUE) {}", values.join(", ")));
    }
}

#[test]
fn statistics_are_known_on_every_node() {
    let nodes = nodes_with_bucket(0);
    rows(&nodes[0], &format!("UPSERT INTO {BUCKET} VALUES ('a', {{'n': 1}}), ('b', {{'n': 2}})"));
    rows(&nodes[1], &format!("UPDATE STATISTICS FOR {BUCKET}(n)"));
    let seen = "SELECT RAW d.distributions.n.max FROM system:dictionary AS d";
    for node in &nodes {
        assert_eq!(rows(node, seen), json!([2]));
    }
    rows(&nodes[2], &format!("UPDATE STATISTICS FOR {BUCKET} DELETE ALL"));
    for node in &nodes {
        assert_eq!(rows(node, seen), json!([]));
    }
}

/// Checks the answer of a node, wherever vBuckets have moved.
pub fn check(node: &Node, consistency: &str, count: u64) {
    let rows = |statement: &str| rows_at(node, consistency, statement);
    assert_eq!(rows(&format!("SELECT RAW COUNT(*) FROM {BUCKET}")), json!([count]));
    let all = format!("SELECT RAW COUNT(n) FROM {BUCKET} WHERE n >= 0");
    assert_eq!(rows(&all), json!([count]));
    let range = format!("SELECT RAW n FROM {BUCKET} WHERE n >= 100 AND n < 700 ORDER BY n DESC");
    let expected: Vec<u64> = (100..700).rev().collect();
    assert_eq!(rows(&range), json!(expected));
    let page = format!("SELECT n, kind FROM {BUCKET} WHERE n > 250 ORDER BY n LIMIT 3 OFFSET 2");
    let expected = [253, 254, 255].map(|n| json!({"n": n, "kind": format!("k{}", n % 7)}));
    assert_eq!(rows(&page), json!(expected));
    let by_keys = format!("SELECT RAW n FROM {BUCKET} USE KEYS ['k7', 'k1', 'none', 'k2999']");
    assert_eq!(rows(&by_keys), json!([7, 1, 2999]));
    let groups = format!("SELECT RAW COUNT(*) FROM {BUCKET} GROUP BY kind ORDER BY kind");
    let total: u64 = serde_json::from_value::<Vec<u64>>(rows(&groups)).unwrap().iter().sum();
    assert_eq!(total, count);
}

fn view(node: &Node, query: &str) -> Value {
    http(node, 1, "GET", &format!("/{BUCKET}/_design/d/_view/{query}"), "")
}

/// The same for views with this value of `stale`.
fn check_views(node: &Node, stale: &str, count: u64) {
    let view = |query: &str| view(node, &format!("{query}&stale={stale}"));
    let all = view("by_n?limit=2&skip=700");
    assert_eq!(all["total_rows"], count, "{all}");
    let expected = [700, 701].map(|n| json!({"id": format!("k{n}"), "key": n, "value": "a b"}));
    assert_eq!(all["rows"], json!(expected));
    let range = view("by_n?startkey=120&endkey=100&descending=true&inclusive_end=false");
    let keys: Vec<&Value> =
        range["rows"].as_array().unwrap().iter().map(|row| &row["key"]).collect();
    assert_eq!(json!(keys), json!((101..=120).rev().collect::<Vec<u64>>()), "{range}");
    let keys = view("by_n?keys=[7,5,9999,7]");
    let found: Vec<&Value> =
        keys["rows"].as_array().unwrap().iter().map(|row| &row["key"]).collect();
    assert_eq!(json!(found), json!([7, 5, 7]));
    let sum: u64 = (0..count).sum();
    let sums = json!([{"key": null, "value": sum}]);
    assert_eq!(view("sums?reduce=true")["rows"], sums);
    let groups = view("sums?group=true");
    let groups = groups["rows"].as_array().unwrap();
    let total: u64 = groups.iter().map(|group| group["value"].as_u64().unwrap()).sum();
    assert_eq!((groups.len(), total), (7, sum));
}

fn put_views(node: &Node) {
    let design = json!({"views": {
        "by_n": {"map": "function (doc, meta) { emit(doc.n, doc.text); }"},
        "sums": {"map": "function (doc, meta) { emit(doc.kind, doc.n); }", "reduce": "_sum"},
        "large": {"map": "function (doc, meta) { emit(null, 'x'.repeat(6000)); }"},
    }});
    let path = format!("/{BUCKET}/_design/d");
    node.wait_until("the views plugin", |node| {
        http(node, 1, "PUT", &path, &design.to_string())["ok"] == true
    });
    assert_eq!(
        view(node, "by_n?stale=false&limit=1&connection_timeout=60000")["rows"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

fn index(node: &Node) {
    rows(node, &format!("CREATE PRIMARY INDEX ON {BUCKET}"));
    rows(node, &format!("CREATE INDEX by_n ON {BUCKET}(n)"));
}

#[test]
fn a_preview_of_a_view_shows_named_documents_of_every_node() {
    const COUNT: usize = 30;
    let nodes = nodes_with_bucket(0);
    let ids: Vec<String> = (0..COUNT).map(|n| format!("k{n}")).collect();
    let values: Vec<String> = ids.iter().map(|id| format!("VALUES ('{id}', {{'n': 1}})")).collect();
    rows(&nodes[0], &format!("UPSERT INTO {BUCKET} (KEY, VALUE) {}", values.join(", ")));
    let map = "function (doc, meta) { emit([meta.id, meta.rev], doc.n); }";
    let documents = [&ids[..], &["gone".to_owned()]].concat();
    let body =
        json!({"design": {"views": {"v": {"map": map}}}, "view": "v", "documents": documents});
    let shown = |node| http(node, 1, "POST", &format!("/{BUCKET}/_preview"), &body.to_string());
    let first = shown(&nodes[0]);
    assert_eq!(first["emitted"]["rows"].as_array().unwrap().len(), COUNT, "{first}");
    let errors = &first["about"]["errors"];
    assert_eq!((errors.as_array().unwrap().len(), &errors[0]["id"]), (1, &json!("gone")));
    for other in &nodes[1..] {
        assert_eq!(shown(other)["emitted"], first["emitted"]);
    }
}

#[test]
fn each_node_answers_queries_for_all_nodes() {
    let nodes = nodes_with_bucket(1);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    index(&nodes[0]);
    fill(&nodes[1]);
    nodes.iter().for_each(|node| check(node, "request_plus", DOCUMENTS));
    for node in &nodes {
        let bucket = node.json(&format!("/pools/default/buckets/{BUCKET}"));
        assert_eq!(bucket["basicStats"]["itemCount"], DOCUMENTS, "a sum over the nodes");
        assert_eq!(bucket["quota"], json!({"ram": 300 << 20, "rawRAM": 100 << 20}));
    }
    put_views(&nodes[2]);
    nodes.iter().for_each(|node| check_views(node, "false", DOCUMENTS));
    let large = view(&nodes[1], "large?stale=false");
    let values = large["rows"].as_array().unwrap().iter();
    let lengths = values.map(|row| row["value"].as_str().unwrap().len() as u64);
    assert_eq!(lengths.sum::<u64>(), 6000 * DOCUMENTS, "more than a node tells at a time");
    let wrong = view(&nodes[1], "by_n?limit=few");
    assert_eq!(wrong["error"], "query_parse_error", "{wrong}");
    // A statement that is prepared on one node is executed on any.
    rows(&nodes[0], &format!("PREPARE nth AS SELECT RAW n FROM {BUCKET} WHERE n = $1"));
    let execute = |node: &Node| ask(node, &json!({"prepared": "nth", "args": [17]}));
    nodes.iter().for_each(|node| assert_eq!(execute(node)["results"], json!([17])));
    rows(&nodes[1], "DELETE FROM system:prepareds WHERE name = 'nth'");
    nodes.iter().for_each(|node| assert_eq!(execute(node)["errors"][0]["code"], 4040));
    // Other nodes see the changes of one.
    let updated = format!("UPDATE {BUCKET} SET seen = true WHERE n < 50 RETURNING RAW n");
    assert_eq!(rows(&nodes[2], &updated).as_array().unwrap().len(), 50);
    let seen = format!("SELECT RAW COUNT(*) FROM {BUCKET} WHERE n < 100 AND seen");
    nodes.iter().for_each(|node| assert_eq!(rows(node, &seen), json!([50])));
    rows(&nodes[1], &format!("DELETE FROM {BUCKET} WHERE n >= 2990"));
    let left = format!("SELECT RAW COUNT(*) FROM {BUCKET} WHERE n >= 0");
    nodes.iter().for_each(|node| assert_eq!(rows(node, &left), json!([2990])));
    let twice = ask(
        &nodes[0],
        &json!({"statement": format!("INSERT INTO {BUCKET} (KEY, VALUE) VALUES ('k1', 1), ('k2', 2)")}),
    );
    assert_eq!(twice["errors"][0]["code"], 12009, "{twice}");
}

/// Sets a flag when it is dropped, even by a panic.
pub struct SetAtLast<'a>(pub &'a AtomicBool);

impl Drop for SetAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rebalances, and has each node asked meanwhile, three times at least: `ask` gets the node and the number of the round.
pub fn ask_while_rebalancing(nodes: &[Node], ask: impl Fn(&Node, usize) + Sync) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let begin = |node| {
            let (is_over, ask) = (&is_over, &ask);
            scope.spawn(move || {
                let mut rounds = 0;
                while !is_over.load(Ordering::Relaxed) || rounds < 3 {
                    ask(node, rounds);
                    rounds += 1;
                }
                rounds
            })
        };
        let asking: Vec<_> = nodes.iter().map(begin).collect();
        let rebalancing = SetAtLast(&is_over);
        rebalance(nodes, &[]);
        nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
        drop(rebalancing);
        let rounds: Vec<usize> = asking.into_iter().map(|thread| thread.join().unwrap()).collect();
        eprintln!("{rounds:?} rounds of questions while a rebalance went on");
    });
}

#[test]
fn queries_see_each_document_once_while_vbuckets_move() {
    let mut nodes = nodes_with_bucket(1);
    fill(&nodes[0]);
    index(&nodes[0]);
    put_views(&nodes[0]);
    ask_while_rebalancing(&nodes, |node, round| {
        check(node, ["request_plus", "not_bounded"][round % 2], DOCUMENTS);
        check_views(node, ["false", "ok"][round % 2], DOCUMENTS);
    });
    // Not before: a node that is silent for a second on a busy machine would use up the only failover.
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=true&timeout=1&maxCount=1");
    nodes[2].kill();
    nodes[0].wait_until("the failover", |node| {
        node.json("/pools/default")["nodes"][2]["clusterMembership"] == "inactiveFailed"
    });
    for consistency in ["not_bounded", "request_plus"] {
        nodes[..2].iter().for_each(|node| check(node, consistency, DOCUMENTS));
        let stale = if consistency == "request_plus" { "false" } else { "ok" };
        nodes[..2].iter().for_each(|node| check_views(node, stale, DOCUMENTS));
    }
    // Alone among three, a node stops serving: clients get an error, and do not wait for ever.
    nodes[1].kill();
    for statement in [
        "UPSERT INTO spread (KEY, VALUE) VALUES ('alone', 1)",
        "UPDATE spread SET m = 1 WHERE n < 9",
        "SELECT RAW COUNT(*) FROM spread",
    ] {
        let request = json!({"statement": statement, "timeout": "2s"});
        nodes[0].wait_until("it to say so", |node| ask(node, &request)["status"] != "success");
    }
}

/// A node may know of a view and not have it yet when vBuckets come to it: clients had their rows before, and still
/// have them.
#[test]
fn a_view_keeps_its_rows_while_vbuckets_move_to_a_node_that_has_yet_to_load_it() {
    let nodes = [Node::start(), Node::start_cold()];
    let (status, said) = nodes[0].add(&nodes[1]);
    assert_eq!(status, 200, "{said}");
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber=0");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    fill(&nodes[0]);
    put_views(&nodes[0]);
    ask_while_rebalancing(&nodes, |node, _| check_views(node, "ok", DOCUMENTS));
}

#[test]
fn the_units_of_a_month_add_up_on_one_node_on_four_and_on_eight() {
    let mut nodes = vec![Node::start()];
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber=0");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    let orders = (0..DOCUMENTS).map(|n| (n, n % 5, 1 + n / 5 % 12, 1 + n % 9));
    let mut sold = [0; 5];
    let mut values = Vec::new();
    for (n, product, month, units) in orders {
        let order = json!({"product": format!("p{product}"), "month": month, "units": units});
        values.push(format!("VALUES ('o{n}', {order})"));
        sold[product as usize] += if month == 1 { units } else { 0 };
    }
    for values in values.chunks(500) {
        rows(&nodes[0], &format!("INSERT INTO {BUCKET} (KEY, VALUE) {}", values.join(", ")));
    }
    let map = "function (doc, meta) { emit([doc.product, doc.month], doc.units); }";
    let design = json!({"views": {"units": {"map": map, "reduce": "_sum"}}}).to_string();
    nodes[0].wait_until("the views plugin", |node| {
        http(node, 1, "PUT", &format!("/{BUCKET}/_design/d"), &design)["ok"] == true
    });
    let check = |node: &Node| {
        for (product, units) in sold.iter().enumerate() {
            let january = format!("units?stale=false&key=%5B%22p{product}%22%2C1%5D");
            let expected = json!([{"key": null, "value": units}]);
            assert_eq!(view(node, &january)["rows"], expected);
        }
    };
    check(&nodes[0]);
    for count in [4, 8] {
        for node in (nodes.len()..count).map(|_| Node::start()) {
            let (status, said) = nodes[0].add(&node);
            assert_eq!(status, 200, "{said}");
            nodes.push(node);
        }
        ask_while_rebalancing(&nodes, |node, _| check(node));
        nodes.iter().for_each(check);
    }
}

/// Writes documents `{prefix}{n}` to the source of the function, over all vBuckets.
fn write_batch(node: &Node, prefix: &str) {
    let values = (0..BATCH).map(|n| format!("VALUES ('{prefix}{n}', {{'n': {n}}})"));
    let values: Vec<String> = values.collect();
    rows(node, &format!("UPSERT INTO {BUCKET}._default.src (KEY, VALUE) {}", values.join(", ")));
}

const BATCH: u64 = 300;

/// Returns how often each document of some batches was handled, once all of the last were.
fn handled(node: &Node, prefixes: &[&str]) -> Vec<(String, u64)> {
    let count_of = |prefix: &str| {
        let statement = format!(
            "SELECT RAW COUNT(*) FROM {BUCKET}._default.dst d WHERE META(d).id LIKE '{prefix}%'"
        );
        rows(node, &statement)[0].as_u64().unwrap()
    };
    node.wait_until("the function", |_| count_of(prefixes.last().unwrap()) == BATCH);
    let counted = |prefix: &&str| {
        let statement = format!(
            "SELECT RAW [META(d).id, d.`count`] FROM {BUCKET}._default.dst d WHERE META(d).id LIKE '{prefix}%'"
        );
        serde_json::from_value::<Vec<(String, u64)>>(rows(node, &statement)).unwrap()
    };
    prefixes.iter().flat_map(counted).collect()
}

/// Three nodes, of which the first has all of a bucket: with a source, a destination with an index, and metadata.
fn nodes_for_functions() -> [Node; 3] {
    let nodes = three();
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=true&timeout=1&maxCount=1");
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber=1&numVBuckets=16");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    for name in ["src", "dst", "meta"] {
        let path = format!("/pools/default/buckets/{BUCKET}/scopes/_default/collections");
        nodes[0].succeed("POST", &path, &format!("name={name}"));
    }
    rows(&nodes[0], &format!("CREATE PRIMARY INDEX ON {BUCKET}._default.dst"));
    nodes
}

fn function(node: &Node, action: &str, body: &str) {
    let answer = http(node, 5, "POST", &format!("/api/v1/functions/f{action}"), body);
    assert_eq!(answer["code"], 0, "{action}: {answer}");
}

fn deploy(node: &Node, code: &str) {
    let definition = json!({
        "appname": "f", "version": "1", "settings": {}, "appcode": code,
        "depcfg": {
            "source_bucket": BUCKET, "source_scope": "_default", "source_collection": "src",
            "metadata_bucket": BUCKET, "metadata_scope": "_default", "metadata_collection": "meta",
            "buckets": [{"alias": "dst", "bucket_name": BUCKET, "scope_name": "_default",
                "collection_name": "dst", "access": "rw"}], "curl": [], "constants": [],
        },
    });
    function(node, "", &definition.to_string());
    function(node, "/deploy", "");
}

fn wait_for_failover(node: &Node) {
    node.wait_until("the failover", |node| {
        node.json("/pools/default")["nodes"][2]["clusterMembership"] == "inactiveFailed"
    });
}

#[test]
fn functions_continue_where_another_node_stopped() {
    let mut nodes = nodes_for_functions();
    let code = "function OnDeploy(action) { couchbase.increment(dst, {id: 'OnDeploy'}) }
        function OnUpdate(doc, meta) { couchbase.increment(dst, {id: meta.id}) }";
    deploy(&nodes[1], code);
    write_batch(&nodes[0], "a");
    let once = |nodes: &[Node], prefixes: &[&str]| {
        let handled = handled(&nodes[0], prefixes);
        let often: Vec<_> = handled.iter().filter(|(_, count)| *count != 1).collect();
        assert_eq!((handled.len(), often), (prefixes.len() * BATCH as usize, vec![]));
    };
    once(&nodes, &["a"]);
    rebalance(&nodes, &[]);
    write_batch(&nodes[1], "b");
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    // Repeated documents of a vBucket are handled before later ones.
    write_batch(&nodes[2], "c");
    once(&nodes, &["a", "b", "c"]);
    nodes[2].kill();
    wait_for_failover(&nodes[0]);
    write_batch(&nodes[0], "d");
    drop(handled(&nodes[0], &["d"]));
    // Documents that were handled in the last second may be handled again.
    once(&nodes, &["a"]);
    let deployed = format!("SELECT RAW d.`count` FROM {BUCKET}._default.dst d USE KEYS 'OnDeploy'");
    assert_eq!(rows(&nodes[0], &deployed), json!([1]));
}

/// Each document sets a timer that sets itself again and again, with the next number, until there is the document `end`.
/// Each firing is counted.
const CHAINS: &str = "
    function Fire({ id, n }) {
        couchbase.increment(dst, {id: `fired:${id}:${n}`});
        if (dst.end) couchbase.increment(dst, {id: `ended:${id}`});
        else createTimer(Fire, new Date(Date.now() + 250), id, {id, n: n + 1});
    }
    function OnUpdate(doc, meta) { createTimer(Fire, new Date(0), meta.id, {id: meta.id, n: 0}) }";

/// Returns the counters of documents whose keys begin with `prefix`.
fn counted(node: &Node, prefix: &str) -> BTreeMap<String, u64> {
    let statement = format!(
        "SELECT RAW [META(d).id, d.`count`] FROM {BUCKET}._default.dst d WHERE META(d).id LIKE '{prefix}%'"
    );
    let pairs = serde_json::from_value::<Vec<(String, u64)>>(rows(node, &statement));
    pairs.unwrap().into_iter().collect()
}

fn begin_chains(node: &Node, chains: Range<usize>) {
    let values = chains.map(|n| format!("VALUES ('{n}', {{'n': {n}}})"));
    let values: Vec<String> = values.collect();
    rows(node, &format!("UPSERT INTO {BUCKET}._default.src (KEY, VALUE) {}", values.join(", ")));
}

/// Waits until each of `count` chains has fired some times more.
fn wait_for_firings(node: &Node, count: usize) {
    let newest = |node: &Node| {
        let mut newest = BTreeMap::<String, u64>::new();
        for id in counted(node, "fired:").keys() {
            let (chain, n) = id.rsplit_once(':').unwrap();
            let known = newest.entry(chain.to_owned()).or_default();
            *known = n.parse::<u64>().unwrap().max(*known);
        }
        newest
    };
    let begun = newest(node);
    node.wait_until("all timers", |node| {
        let now = newest(node);
        let has_fired =
            |(chain, n): (&String, &u64)| *n >= 2 + begun.get(chain).copied().unwrap_or_default();
        now.len() == count && now.iter().all(has_fired)
    });
}

/// Returns the counters once each of `count` chains has ended.
fn end_chains(node: &Node, count: usize) -> BTreeMap<String, u64> {
    rows(node, &format!("UPSERT INTO {BUCKET}._default.dst (KEY, VALUE) VALUES ('end', 1)"));
    node.wait_until("the ends", |node| counted(node, "ended:").len() == count);
    let mut all = counted(node, "ended:");
    all.extend(counted(node, "fired:"));
    all
}

#[test]
fn timers_move_with_their_vbuckets_and_fire_once() {
    let nodes = nodes_for_functions();
    deploy(&nodes[1], CHAINS);
    // Some are set where all vBuckets are, the others on all nodes.
    let mut count = 0;
    for leaving in [&[][..], &[&nodes[2]]] {
        begin_chains(&nodes[0], count..count + 40);
        count += 40;
        wait_for_firings(&nodes[0], count);
        rebalance(&nodes, leaving);
        nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
        wait_for_firings(&nodes[0], count);
    }
    // Paused functions move as well.
    function(&nodes[0], "/pause", "");
    rebalance(&nodes[..2], &[&nodes[1]]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    function(&nodes[0], "/resume", "");
    wait_for_firings(&nodes[0], count);
    drop(end_chains(&nodes[0], count));
    // One that was there twice ends twice.
    nodes[0].wait_until("the last", |node| {
        http(node, 5, "GET", "/api/v1/stats", "")[0]["next_timer_us"].is_null()
    });
    let mut counted = end_chains(&nodes[0], count);
    counted.retain(|_, count| *count != 1);
    assert_eq!(counted, BTreeMap::new(), "each once");
}

/// Ids of documents that a node serves.
fn ids_at(node: &Node, count: usize) -> Vec<String> {
    let bucket = node.json(&format!("/pools/default/b/{BUCKET}"));
    let map = &bucket["vBucketServerMap"];
    let server = format!("127.0.0.1:{}", node.port_base + 10);
    let is_there = |id: &String| {
        let vbid = nacre_conformance::kv::vbid(id.as_bytes(), 16);
        let place = map["vBucketMap"][usize::from(vbid)][0].as_u64().unwrap();
        map["serverList"][place as usize] == server
    };
    (0..1000).map(|n| format!("slow-{n}")).filter(is_there).take(count).collect()
}

#[test]
fn a_rebalance_that_removes_a_node_waits_for_its_handlers() {
    let nodes = nodes_for_functions();
    let code = "function OnUpdate(doc, meta) {
        if (!doc.work) return;
        couchbase.increment(dst, {id: `begun:${meta.id}`});
        for (let n = 0; n < doc.work; n++);
        couchbase.increment(dst, {id: `done:${meta.id}`});
    }";
    deploy(&nodes[0], code);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    // Calls that are soon over come in large batches; then there is one of slow ones.
    write_batch(&nodes[0], "quick");
    let slow = ids_at(&nodes[2], 8);
    let write = |work: u64| {
        let values = slow.iter().map(|id| format!("VALUES ('{id}', {{'work': {work}}})"));
        let values: Vec<String> = values.collect();
        let source = format!("{BUCKET}._default.src (KEY, VALUE)");
        rows(&nodes[0], &format!("UPSERT INTO {source} {}", values.join(", ")));
    };
    write(2_000_000);
    nodes[0].wait_until("a handler", |node| !counted(node, "begun:").is_empty());
    rebalance(&nodes, &[&nodes[2]]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    // Repeated documents are handled before later ones.
    write(1);
    let all = 2 * slow.len() as u64;
    nodes[0].wait_until("the last", |node| counted(node, "done:").values().sum::<u64>() >= all);
    for step in ["begun", "done"] {
        let twice = slow.iter().map(|id| (format!("{step}:{id}"), 2)).collect::<BTreeMap<_, _>>();
        assert_eq!(counted(&nodes[0], &format!("{step}:")), twice, "each change once");
    }
}

#[test]
fn timers_of_a_lost_node_fire_on_others() {
    let mut nodes = nodes_for_functions();
    deploy(&nodes[0], CHAINS);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    begin_chains(&nodes[0], 0..60);
    // Long enough for the position after the documents to be reported: the timers are not set again.
    (0..8).for_each(|_| wait_for_firings(&nodes[0], 60));
    nodes[2].kill();
    wait_for_failover(&nodes[0]);
    // None is missing; effects of the node's last second may be repeated.
    wait_for_firings(&nodes[0], 60);
    drop(end_chains(&nodes[1], 60));
}

/// Counts documents, and knows each by its id.
const COUNTS: &str = r#"
export function onUpdate(doc, { id }) {
    if (state.get("id/" + id) === undefined) state.put("count", (state.get("count") ?? 0) + 1);
    state.put("id/" + id, doc.n);
}
export function onRollback(vbucket, seqno) { throw new Error("it is built anew"); }
export function handle({ path, headers }) {
    if (path === "/count") return state.get("count") ?? 0;
    return state.get("id" + path);
}
export function merge({ path }, parts) {
    if (path !== "/count") throw new Error("one node knows that");
    return parts.reduce((sum, part) => sum + part.json(), 0);
}
"#;

/// SDKs ask one node after the other, and assume that the next one knows the decisions of the last.
#[test]
fn each_node_reports_changes_of_functions_made_at_other_nodes() {
    let nodes = nodes_with_bucket(0);
    for collection in ["source", "meta"] {
        let path = format!("/pools/default/buckets/{BUCKET}/scopes/_default/collections");
        nodes[0].succeed("POST", &path, &format!("name={collection}"));
    }
    for round in 0..12 {
        let code = format!("function OnUpdate(doc, meta) {{ log({round}); }}");
        let function = json!({
            "appname": "told", "appcode": code,
            "depcfg": {
                "source_bucket": BUCKET, "source_scope": "_default", "source_collection": "source",
                "metadata_bucket": BUCKET, "metadata_scope": "_default", "metadata_collection": "meta",
            },
            "settings": {"deployment_status": false, "processing_status": false},
        });
        let path = "/api/v1/functions/told";
        http(&nodes[round % 3], 5, "POST", path, &function.to_string());
        for node in &nodes {
            assert_eq!(http(node, 5, "GET", path, "")["appcode"], code, "{round}");
        }
    }
}

#[test]
fn a_plugin_answers_for_all_nodes_or_for_the_one_that_has_a_document() {
    let nodes = nodes_with_bucket(0);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    fill(&nodes[0]);
    let manifest = "name = \"counts\"\nversion = \"1.0.0\"\nscript = \"main.js\"\n";
    let files = BTreeMap::from([("main.js".to_owned(), COUNTS.as_bytes().to_vec())]);
    let package = Package::new(manifest.into(), files).unwrap().write();
    let (status, answer) = plugins::ask(nodes[1].server(), "POST", "/plugins", "", &package);
    assert_eq!(status, 201, "{answer}");
    let wanted = json!({"package": "counts", "version": "1.0.0", "bucket": BUCKET}).to_string();
    let path = "/deployments/counts";
    let (status, answer) = plugins::ask(nodes[1].server(), "PUT", path, "", wanted.as_bytes());
    assert!((200..300).contains(&status), "{answer}");
    let fresh = "Nacre-Consistency: request_plus\r\n";
    for node in &nodes {
        node.wait_until("the plugin", |node| {
            plugins::ask(node.server(), "GET", "/_plugin/counts/count", fresh, b"").0 == 200
        });
        let get = |path: &str, headers: &str| {
            let path = format!("/_plugin/counts/{path}");
            plugins::ask(node.server(), "GET", &path, headers, b"")
        };
        assert_eq!(get("count", fresh), (200, json!(DOCUMENTS)));
        for n in [1, 2, 3, 2999] {
            let about = format!("{fresh}Nacre-Key: k{n}\r\n");
            assert_eq!(get(&format!("k{n}"), &about), (200, json!(n)));
        }
        let (status, answer) = get("k1", fresh);
        assert_eq!(status, 500, "{answer}");
        // Clients cannot send the headers that nodes use among each other.
        let spoofed = format!("{fresh}Nacre-Vbuckets: 0\r\nNacre-Part: me\r\n");
        assert_eq!(get("count", &spoofed), (200, json!(DOCUMENTS)));
    }
}

const CHANGES: &str = "/spread/_default/_default/_changes";

/// Returns the rows of an answer of changes, and the token after them.
fn changes(node: &Node, query: &str) -> (Vec<Value>, String) {
    let answer = http(node, 1, "GET", &format!("{CHANGES}?{query}"), "");
    let rows = answer["results"].as_array().unwrap_or_else(|| panic!("{query}: {answer}"));
    (rows.clone(), answer["last_seq"].as_str().unwrap().to_owned())
}

/// The ids, sorted; a deleted one behind a minus.
fn ids(rows: &[Value]) -> Vec<String> {
    let id = |row: &Value| {
        let minus = if row["deleted"] == true { "-" } else { "" };
        format!("{minus}{}", row["id"].as_str().unwrap())
    };
    let mut ids: Vec<String> = rows.iter().map(id).collect();
    ids.sort();
    ids
}

fn set(client: &mut SmartClient, level: u8, key: &str, n: u64) {
    let (status, _) = client.call(key.as_bytes(), 1, level, json!({"n": n}).to_string().as_bytes());
    assert_eq!(status, 0, "{key}");
}

#[test]
fn each_node_returns_the_changes_of_all_nodes() {
    let nodes = nodes_with_bucket(1);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    fill(&nodes[1]);
    let mut all: Vec<String> = (0..DOCUMENTS).map(|n| format!("k{n}")).collect();
    all.sort();
    let tokens = nodes.each_ref().map(|node| {
        let (rows, token) = changes(node, "include_docs=true");
        assert_eq!(ids(&rows), all);
        for row in &rows {
            assert_eq!(row["id"], format!("k{}", row["doc"]["n"]), "{row}");
        }
        token
    });
    let wanted = "include_docs=true&filter=_doc_ids&doc_ids=%5B%22k1%22,%22k2%22,%22z%22%5D";
    nodes.iter().for_each(|node| assert_eq!(ids(&changes(node, wanted).0), ["k1", "k2"]));
    assert!(!changes(&nodes[0], "").0.iter().any(|row| row["doc"] != Value::Null));
    // Each page from another node.
    let (mut paged, mut since) = (Vec::new(), "0".to_owned());
    for node in nodes.iter().cycle() {
        let (rows, token) = changes(node, &format!("limit=700&since={since}"));
        if rows.is_empty() {
            break;
        }
        paged.extend(rows);
        assert!(paged.len() <= all.len(), "each once");
        since = token;
    }
    assert_eq!(ids(&paged), all);

    let now = nodes.each_ref().map(|node| changes(node, "since=now").1);
    rows(&nodes[2], &format!("UPSERT INTO {BUCKET} (KEY, VALUE) VALUES ('k5', 1), ('new', 2)"));
    rows(&nodes[0], &format!("DELETE FROM {BUCKET} USE KEYS ['k6', 'k7', 'k8']"));
    for (index, node) in nodes.iter().enumerate() {
        for token in [&tokens[(index + 1) % 3], &now[(index + 2) % 3], &since] {
            let news = changes(node, &format!("since={token}"));
            assert_eq!(ids(&news.0), ["-k6", "-k7", "-k8", "k5", "new"]);
            assert_eq!(changes(node, &format!("since={}", news.1)).0, [Value::Null; 0]);
        }
    }
    // One client waits for a vBucket of each node.
    let mut client = SmartClient::new(&nodes, BUCKET);
    let mut since = changes(&nodes[0], "since=now").1;
    for n in 0..12 {
        let key = format!("wake-{n}");
        let query = format!("feed=longpoll&include_docs=true&since={since}");
        let (rows, token) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| changes(&nodes[n % 3], &query));
            set(&mut client, 0, &key, n as u64);
            waiting.join().unwrap()
        });
        assert_eq!((ids(&rows), &rows[0]["doc"]["n"]), (vec![key], &json!(n)));
        since = token;
    }
    let (rows, token) = changes(&nodes[1], &format!("feed=longpoll&timeout=50&since={since}"));
    assert_eq!((rows.len(), ids(&changes(&nodes[2], &format!("since={token}")).0).len()), (0, 0));
}

/// Takes the events of a node into a map until it equals `expected`.
fn follow(node: &Node, expected: &Mutex<Option<BTreeMap<String, u64>>>) -> usize {
    let mut events = Events::open_at(node.port_base, CHANGES, "include_docs=true", "");
    assert_eq!(events.next("HTTP/1.1 "), "200 OK");
    let (mut map, mut seen) = (BTreeMap::new(), BTreeSet::new());
    loop {
        let row: Value = serde_json::from_str(&events.next("data: ")).unwrap();
        let place = (row["vbucket"].as_u64().unwrap(), row["seqno"].as_u64().unwrap());
        assert!(seen.insert(place), "twice: {row}");
        let id = row["id"].as_str().unwrap().to_owned();
        match row["deleted"] == true {
            true => map.remove(&id),
            false => map.insert(id, row["doc"]["n"].as_u64().unwrap()),
        };
        if expected.lock().unwrap().as_ref() == Some(&map) {
            return seen.len();
        }
    }
}

#[test]
fn events_come_once_and_in_order_while_vbuckets_move() {
    let nodes = nodes_with_bucket(1);
    let mut client = SmartClient::new(&nodes, BUCKET);
    nodes[1].wait_until("the bucket", |node| {
        http(node, 1, "GET", CHANGES, "")["results"] != Value::Null
    });
    let mut map = BTreeMap::new();
    let expected = Mutex::new(None);
    std::thread::scope(|scope| {
        let stay = [&nodes[0], &nodes[1]];
        let followers = stay.map(|node| scope.spawn(|| follow(node, &expected)));
        let mut round = 0;
        let mut write = |client: &mut SmartClient| {
            round += 1;
            let key = format!("key-{}", round * 7 % 1900);
            match round % 11 {
                0 => {
                    let (status, _) = client.call(key.as_bytes(), 4, 0, b"");
                    assert!([0, 1].contains(&status), "{status:#x}");
                    map.remove(&key);
                }
                _ => {
                    set(client, 0, &key, round);
                    map.insert(key, round);
                }
            }
            round
        };
        while write(&mut client) < 2000 {}
        rebalance(&nodes, &[]);
        while write(&mut client) < 4000 || is_rebalancing(&nodes[0]) {}
        rebalance(&nodes, &[&nodes[2]]);
        while write(&mut client) < 6000 || is_rebalancing(&nodes[0]) {}
        map.insert("end".into(), 1);
        *expected.lock().unwrap() = Some(map.clone());
        set(&mut client, 0, "end", 1);
        let seen = followers.map(|follower| follower.join().unwrap());
        eprintln!("{seen:?} events of {round} writes while vBuckets moved");
    });
}

#[test]
fn a_consumer_continues_from_its_token_after_a_failover() {
    let mut nodes = nodes_with_bucket(2);
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=true&timeout=1&maxCount=1");
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    let mut client = SmartClient::new(&nodes, BUCKET);
    let mut keys: Vec<String> = (0..400).map(|n| format!("k{n}")).collect();
    let write = |client: &mut SmartClient, keys: &[String], round: u64| {
        keys.iter().for_each(|key| set(client, 1, key, round));
    };
    write(&mut client, &keys, 1);
    let (first, middle) = changes(&nodes[2], "limit=150");
    let (_, whole) = changes(&nodes[2], &format!("since={middle}"));
    // A copy with the second write has all writes before it.
    write(&mut client, &keys, 2);
    nodes[2].kill();
    nodes[0].wait_until("the failover", |node| {
        node.json("/pools/default")["nodes"][2]["clusterMembership"] == "inactiveFailed"
    });
    // The last commit of the lost node is committed again by its successor, and no change is sent before.
    let read = |key: &String| client.call(key.as_bytes(), OP_GET, 0, b"").0;
    assert!(keys.iter().map(read).all(|status| status == 0));
    let mut tokens = Vec::new();
    for (node, since) in [(&nodes[0], &whole), (&nodes[1], &whole), (&nodes[0], &middle)] {
        let (rows, token) = changes(node, &format!("include_docs=true&since={since}"));
        // A client that got a part of a snapshot may get the rest of it from the successor's history.
        let mut found = BTreeMap::new();
        found.extend(rows.iter().map(|row| (row["id"].to_string(), &row["doc"]["n"])));
        assert_eq!((found.len(), first.len()), (400, 150));
        assert!(found.values().all(|n| **n == 2), "{found:?}");
        tokens.push(token);
    }
    keys.truncate(100);
    write(&mut client, &keys, 3);
    keys.sort();
    for (node, since) in [(&nodes[1], &tokens[0]), (&nodes[0], &tokens[1])] {
        let (rows, _) = changes(node, &format!("include_docs=true&since={since}"));
        assert!(rows.iter().all(|row| row["doc"]["n"] == 3));
        assert_eq!(ids(&rows), keys);
    }
}

#[test]
fn definitions_made_at_one_node_are_in_the_catalogs_of_all() {
    let nodes = nodes_with_bucket(1);
    for round in 0..12 {
        let (told, asked) = (&nodes[round % 3], &nodes[(round + 1) % 3]);
        let name = format!("i{round}");
        let deferred = r#"WITH {"defer_build": true}"#;
        rows(told, &format!("CREATE INDEX {name} ON {BUCKET}(n) {deferred}"));
        let known = format!("SELECT RAW COUNT(*) FROM system:indexes WHERE name = '{name}'");
        let answer = ask(asked, &json!({ "statement": known }));
        assert_eq!(answer["results"], json!([1]), "{answer}");
    }
}
