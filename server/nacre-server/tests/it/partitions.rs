//! Indexes that are spread by their values: one node answers for one value, whichever node is asked, while partitions move and
//! after a node was lost.

use crate::cluster::Node;
use crate::copies::{is_rebalancing, rebalance};
use crate::process::{self, Server, port_base};
use crate::spread::{
    BUCKET, DOCUMENTS, ask, ask_while_rebalancing, check, fill, nodes_with_bucket, rows, rows_at,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// All orders of a kind, the largest first, covered by the index: pages of a kind are on one node.
const BY_KIND: &str = "CREATE INDEX by_kind ON spread(kind, n DESC, text) PARTITION BY HASH(kind)";

/// Returns how many questions about indexes each node was asked.
fn answered(nodes: &[Node]) -> Vec<u64> {
    let of = |node: &Node| -> u64 {
        let (_, text) = node.ask("GET", "/metrics", "");
        let name = r#"nacre_questions_answered_total{subject="index"} "#;
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map_or(0, |count| count.parse().unwrap())
    };
    nodes.iter().map(of).collect()
}

/// The nodes other than the one that is asked which have a part in the answer.
fn touched(nodes: &[Node], asked: usize, statement: &str) -> (BTreeSet<usize>, Value) {
    let before = answered(nodes);
    let rows = rows_at(&nodes[asked], "not_bounded", statement);
    let after = answered(nodes);
    let touched = (0..nodes.len()).filter(|node| after[*node] > before[*node] && *node != asked);
    (touched.collect(), rows)
}

fn page_of(kind: u64) -> String {
    format!("SELECT n, text FROM {BUCKET} WHERE kind = 'k{kind}' ORDER BY n DESC LIMIT 3")
}

fn expected_page(kind: u64) -> Value {
    let of_kind = (0..DOCUMENTS).rev().filter(|n| n % 7 == kind).take(3);
    of_kind.map(|n| json!({"n": n, "text": "a b"})).collect()
}

#[test]
fn one_value_is_on_one_node_and_a_range_on_all() {
    let nodes = nodes_with_bucket(1);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    rows(&nodes[0], BY_KIND);
    rows(&nodes[2], &format!("CREATE INDEX by_n ON {BUCKET}(n)"));
    fill(&nodes[1]);
    let plan = rows(&nodes[1], &format!("EXPLAIN {}", page_of(2)));
    let shown = plan.to_string();
    assert!(
        shown.contains(r#""index":"by_kind""#) && shown.contains(r#""range":"= \"k2\"""#),
        "{plan}"
    );
    let mut holders = BTreeSet::new();
    for kind in 0..7 {
        // The index has all writes, whichever node is asked.
        for node in &nodes {
            assert_eq!(rows(node, &page_of(kind)), expected_page(kind));
        }
        let found = (0..3).map(|asked| touched(&nodes, asked, &page_of(kind)).0);
        let found: Vec<_> = found.collect();
        let others: BTreeSet<usize> = found.iter().flatten().copied().collect();
        // The two other nodes ask the one that has it, which asks nobody itself.
        assert_eq!(others.len(), 1, "{found:?}");
        assert!(found.iter().all(|touched| touched.len() <= 1), "{found:?}");
        holders.extend(others);
    }
    assert!(holders.len() > 1, "the partitions are spread: {holders:?}");
    let all = format!("SELECT RAW COUNT(*) FROM {BUCKET} USE INDEX (by_kind) WHERE kind >= 'k0'");
    let (everybody, count) = touched(&nodes, 0, &all);
    assert_eq!((everybody, count), (BTreeSet::from([1, 2]), json!([DOCUMENTS])));
    let some = format!("SELECT RAW COUNT(*) FROM {BUCKET} WHERE kind IN ['k1', 'k4', 'none']");
    let of_two = (0..DOCUMENTS).filter(|n| [1, 4].contains(&(n % 7))).count();
    assert_eq!(rows(&nodes[2], &some), json!([of_two]));

    // A document goes from one partition to another, and away.
    rows(&nodes[0], &format!("UPDATE {BUCKET} SET kind = 'new' WHERE n = 2999"));
    rows(&nodes[1], &format!("DELETE FROM {BUCKET} WHERE n = 2998"));
    let of = |kind: &str| {
        format!("SELECT RAW n FROM {BUCKET} WHERE kind = '{kind}' AND n > 2990 ORDER BY n")
    };
    for node in &nodes {
        assert_eq!(rows(node, &of("new")), json!([2999]));
        assert_eq!(rows(node, &of("k3")), json!([2992]), "2999 was of that kind");
        assert_eq!(rows(node, &of("k2")), json!([2991]), "2998 was of that kind");
    }
    let listed = rows(
        &nodes[1],
        "SELECT RAW [i.`partition`, i.metadata] FROM system:indexes i WHERE name = 'by_kind'",
    );
    assert_eq!(listed, json!([["HASH(`kind`)", {"num_partition": 8, "num_replica": 0}]]));
    for (options, words) in
        [("num_partition\": 0", "from 1 to 64"), ("num_replica\": 9", "from 0 to 3")]
    {
        let statement =
            format!("CREATE INDEX i ON {BUCKET}(n) PARTITION BY HASH(n) WITH {{\"{options}}}");
        let answer = ask(&nodes[0], &json!({"statement": statement}));
        assert!(answer["errors"][0]["msg"].as_str().unwrap().contains(words), "{answer}");
    }
}

#[test]
fn partitions_move_and_a_copy_takes_over_without_a_gap() {
    let mut nodes = nodes_with_bucket(1);
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=true&timeout=1&maxCount=1");
    fill(&nodes[0]);
    let with = r#"WITH {"num_replica": 1, "num_partition": 5}"#;
    rows(&nodes[0], &format!("CREATE INDEX by_n ON {BUCKET}(n) PARTITION BY HASH(n) {with}"));
    rows(&nodes[0], &format!(r#"{BY_KIND} WITH {{"num_partition": 5}}"#));
    let ask_all = |node: &Node, consistency: &str| {
        check(node, consistency, DOCUMENTS);
        for kind in [0, 6] {
            assert_eq!(rows_at(node, consistency, &page_of(kind)), expected_page(kind));
        }
    };
    ask_while_rebalancing(&nodes, |node, round| {
        ask_all(node, ["request_plus", "not_bounded"][round % 2]);
    });
    // Copies are built while the present ones answer.
    let alter = |with: &str| format!("ALTER INDEX by_kind ON {BUCKET} WITH {with}");
    rows(&nodes[1], &alter(r#"{"action": "replica_count", "num_replica": 1}"#));
    let listed =
        "SELECT RAW [i.metadata.num_replica, i.state] FROM system:indexes i ORDER BY i.name";
    nodes[0].wait_until("the copies", |node| {
        ask_all(node, "not_bounded");
        rows(node, listed) == json!([[1, "online"], [1, "online"]])
    });
    let answer = ask(&nodes[0], &json!({"statement": alter(r#"{"action": "move"}"#)}));
    assert!(answer["errors"][0]["msg"].as_str().unwrap().contains("cannot be moved"), "{answer}");
    nodes[2].kill();
    // Entries in memory with another copy are available at once.
    for kind in 0..7 {
        assert_eq!(rows_at(&nodes[0], "not_bounded", &page_of(kind)), expected_page(kind));
    }
    nodes[0].wait_until("the failover", |node| {
        node.json("/pools/default")["nodes"][2]["clusterMembership"] == "inactiveFailed"
    });
    for consistency in ["not_bounded", "request_plus"] {
        nodes[..2].iter().for_each(|node| ask_all(node, consistency));
    }
    rows(&nodes[1], &format!("UPDATE {BUCKET} SET kind = 'late' WHERE n < 10"));
    let late = format!("SELECT RAW COUNT(*) FROM {BUCKET} WHERE kind = 'late'");
    nodes[..2].iter().for_each(|node| assert_eq!(rows(node, &late), json!([10])));
}

#[test]
fn indexes_are_up_to_date_after_a_clean_stop() {
    let (directory, port_base) = (tempfile::tempdir().unwrap(), port_base());
    let mut server = Server::start_at(directory.path(), port_base);
    let bucket = process::BUCKET;
    let fresh = |server: &Server, statement: String| {
        let request = json!({"statement": statement, "scan_consistency": "request_plus"});
        let answer = server.query(&request.to_string());
        assert_eq!(answer["status"], "success", "{statement}: {answer}");
        answer["results"].clone()
    };
    fresh(&server, format!("CREATE INDEX spread ON {bucket}(n) PARTITION BY HASH(n)"));
    let values: Vec<String> = (0..100).map(|n| format!("VALUES ('k{n}', {{'n': {n}}})")).collect();
    fresh(&server, format!("INSERT INTO {bucket} (KEY, VALUE) {}", values.join(", ")));
    let statement = format!("SELECT RAW COUNT(*) FROM {bucket} USE INDEX (spread) WHERE n >= 0");
    assert_eq!(fresh(&server, statement.clone()), json!([100]));
    for _ in 0..2 {
        server.stop();
        server = Server::start_at(directory.path(), port_base);
        // Nothing has changed anywhere since.
        assert_eq!(fresh(&server, statement.clone()), json!([100]));
    }
}
