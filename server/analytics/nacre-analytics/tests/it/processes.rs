//! Queries over documents that are in several processes, one of which may end in the middle of its answer.
//!
//! All services run in this process, with ports of their own. No node feeds them: the tests write the documents of each part into
//! the shadows that would follow it.

use crate::world::{in_order, normal};
use nacre_analytics::answer::Piece;
use nacre_analytics::catalog::{Catalog, Collection};
use nacre_analytics::engine::Engine;
use nacre_analytics::fleet::{self, Failure, Fleet};
use nacre_analytics::node::{Caller, Node};
use nacre_analytics::processes::{PartRequest, Work};
use nacre_analytics::request::Request;
use nacre_analytics::rows::Patience;
use nacre_analytics::server;
use nacre_analytics::shadow::Row;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Documents of each collection.
const ORDERS: usize = 4000;
const ITEMS: usize = 100;
/// vBuckets with documents.
const VBUCKETS: usize = 64;
const PASSWORD: &str = "between processes";

/// Queries whose groups are combined.
const GROUPED: [&str; 8] = [
    "SELECT o.w, COUNT(*) AS n, SUM(o.total) AS s, AVG(o.total) AS a, MIN(o.day) AS d, MAX(o.total) AS m \
     FROM orders o GROUP BY o.w ORDER BY o.w",
    "SELECT VALUE COUNT(*) FROM orders o",
    "SELECT SUM(l.price) AS s, AVG(l.price) AS a FROM orders o, o.lines l WHERE l.item > 50 AND o.w <> 3",
    "SELECT l.item AS i, SUM(l.price) / 2 AS half FROM orders o, o.lines l GROUP BY l.item \
     HAVING COUNT(*) > 3 ORDER BY half DESC, i LIMIT 7",
    "SELECT o.w AS g, COUNT(o.note) AS n FROM orders o WHERE EXISTS (SELECT VALUE 1 FROM o.lines l WHERE l.item = 7) \
     GROUP BY o.w",
    "SELECT AVG(o.mixed) AS a, SUM(o.mixed) AS s, COUNT(o.mixed) AS n, MIN(o.mixed) AS low, MAX(o.mixed) AS high \
     FROM orders o",
    "SELECT o.note, COUNT(*) AS n FROM orders o WHERE o.total > 1000000 GROUP BY o.note",
    "SELECT SUM(o.total) AS s, COUNT(*) AS n FROM orders o WHERE o.total > 1000000",
];

/// Queries whose documents are gathered.
const GATHERED: [&str; 9] = [
    "SELECT o.id, i.text FROM orders o, items i WHERE o.article = i.item AND o.w = 3 AND o.total BETWEEN 100 AND 900",
    "SELECT VALUE o.id FROM orders o WHERE o.total > 3990 ORDER BY o.id DESC",
    "SELECT i.text, COUNT(o.id) AS n FROM items i LEFT OUTER JOIN orders o ON o.article = i.item AND o.w = 2 \
     WHERE i.item < 20 GROUP BY i.text",
    "SELECT COUNT(DISTINCT l.item) AS n FROM orders o, o.lines l",
    "SELECT VALUE META(i).id FROM items i WHERE i.item < 5",
    "SELECT * FROM items i WHERE i.item = 9",
    "SELECT VALUE COUNT(*) FROM orders a, orders b WHERE a.id = b.article AND a.w = 1",
    "SELECT ROW_NUMBER() OVER (ORDER BY i.item DESC) AS r, i.text FROM items i WHERE i.item > 95",
    "SELECT VALUE o FROM orders o WHERE o.id = 17",
];

fn order(n: usize) -> String {
    let lines: Vec<String> = (0..n % 4)
        .map(|at| format!("{{\"item\":{},\"price\":{}.5}}", (n * 7 + at) % ITEMS, at + n % 13))
        .collect();
    let note = ["", ",\"note\":null", ",\"note\":\"n\""][n % 3];
    let mixed = ["1", "\"1\"", "null", "2.5", "true", "[3]"][n % 6];
    let swing = if n % 2 == 0 { 1_i64 << 61 } else { -(1 << 61) };
    // Line ends are white space.
    format!(
        "{{\"id\":{n},\n\"w\":{},\"total\":{n},\"day\":\"2020-0{}-11\",\"article\":{},\"mixed\":{mixed},\
         \"swing\":{swing},\"big\":{},\"lines\":[{}]{note}}}",
        n % 5,
        n % 9 + 1,
        n % ITEMS,
        (1_i64 << 62) + n as i64,
        lines.join(",")
    )
}

fn rows(collection: &str) -> Vec<Row> {
    let row = |n: usize, text: String| Row {
        id: format!("{collection}-{n}").into(),
        vbid: (n % VBUCKETS) as u16,
        cas: n as u64 + 1,
        flags: 0,
        expiry: 0,
        text: text.into(),
    };
    match collection {
        "orders" => (0..ORDERS).map(|n| row(n, order(n))).collect(),
        _ => {
            let item = |n| format!("{{\"item\":{n},\"text\":\"item {n}\",\"w\":{}}}", n % 5);
            (0..ITEMS).map(|n| row(n, item(n))).collect()
        }
    }
}

fn collection(name: &str) -> Collection {
    let source = ["b", "s", name].map(str::to_owned);
    Collection { source, condition: None, indexes: BTreeMap::new() }
}

/// A service with its threads.
struct Process {
    engine: Arc<Engine>,
    _runtime: tokio::runtime::Runtime,
}

/// Starts services that share the documents. `around` may replace the address at which the others know one of them.
fn start(count: usize, around: impl Fn(usize, String) -> String) -> Vec<Process> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<String> = listeners
        .iter()
        .enumerate()
        .map(|(at, listener)| around(at, listener.local_addr().unwrap().to_string()))
        .collect();
    let processes = listeners.into_iter().enumerate();
    processes.map(|(own, listener)| process(&addresses, own, listener)).collect()
}

fn process(addresses: &[String], own: usize, listener: TcpListener) -> Process {
    let folder = std::env::temp_dir().join(format!("nacre-processes-{:x}", rand::random::<u64>()));
    let mut catalog = Catalog::default();
    let scope = catalog.scope_mut("Default").unwrap();
    for name in ["orders", "items"] {
        scope.collections.insert(name.to_owned(), collection(name));
    }
    catalog.write(&folder).unwrap();
    let node = Node {
        rest: String::new(),
        keys: Vec::new(),
        user: "streams".to_owned(),
        password: PASSWORD.to_owned(),
    };
    let fleet = Fleet::new(addresses.to_vec(), own).unwrap();
    let engine = Arc::new(Engine::open(node, folder, 512 << 20, fleet).unwrap());
    for name in ["orders", "items"] {
        for part in 0..addresses.len() {
            let follower = engine.follower_of(&part_request(name, part)).unwrap();
            follower.fill(rows(name));
        }
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    listener.set_nonblocking(true).unwrap();
    let served = Arc::clone(&engine);
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        server::serve(listener, served, Some("a token".to_owned())).await
    });
    Process { engine, _runtime: runtime }
}

fn part_request(name: &str, part: usize) -> PartRequest {
    PartRequest {
        scope: "Default".to_owned(),
        name: name.to_owned(),
        collection: collection(name),
        is_connected: true,
        part: part as u16,
        statement: None,
        is_consistent: false,
        scan_wait_ms: None,
        timeout_ms: 60_000,
    }
}

/// Runs a statement, and returns the answer.
fn ask(engine: &Engine, statement: &str) -> Json {
    request(engine, &serde_json::json!({"statement": statement}))
}

/// Sends a request, and returns the answer.
fn request(engine: &Engine, fields: &Json) -> Json {
    let (sender, mut pieces) = tokio::sync::mpsc::channel(4);
    let all = || vec!["*".to_owned()];
    let caller = Caller::Known { user: "ann".to_owned(), manage: all(), select: all() };
    let request = Request::read("application/json", "", fields.to_string().as_bytes());
    let mut text = Vec::new();
    std::thread::scope(|threads| {
        threads.spawn(|| engine.answer(request, &caller, sender));
        while let Some(piece) = pieces.blocking_recv() {
            if let Piece::Bytes(bytes) = piece {
                text.extend_from_slice(&bytes);
            }
        }
    });
    serde_json::from_slice(&text).unwrap()
}

/// Returns the rows of an answer, in their order if the statement has one.
fn rows_of(answer: &Json, statement: &str) -> Vec<String> {
    assert_eq!(answer["status"], "success", "{statement}: {answer}");
    let rows = answer["results"].as_array().unwrap().iter();
    let rows: Vec<String> = rows.map(Json::to_string).collect();
    match statement.contains("ORDER BY") && !statement.contains("OVER") {
        true => in_order(&rows),
        false => normal(&rows),
    }
}

fn work_of(answer: &Json) -> Vec<Work> {
    serde_json::from_value(answer["metrics"]["processes"].clone()).unwrap()
}

fn same(_: usize, address: String) -> String {
    address
}

/// Two and four processes give the answers of one, and each reads its share of the documents.
#[test]
fn several_processes_share_the_work() {
    let alone = start(1, same);
    for count in [2, 4] {
        let processes = start(count, same);
        for statement in GROUPED.iter().chain(&GATHERED) {
            let expected = rows_of(&ask(&alone[0].engine, statement), statement);
            // Each process can be asked.
            for process in [&processes[0], &processes[count - 1]] {
                let answer = ask(&process.engine, statement);
                assert_eq!(rows_of(&answer, statement), expected, "{count}: {statement}");
                let work = work_of(&answer);
                for one in &work {
                    assert_eq!((one.process, one.attempts), (usize::from(one.part), 1));
                }
                let read: u64 = work.iter().map(|one| one.read.documents).sum();
                assert_eq!(answer["metrics"]["processedObjects"], read);
            }
        }
        let answer = ask(&processes[0].engine, GROUPED[0]);
        println!("{count} processes: {}", GROUPED[0]);
        for Work { process, read, .. } in work_of(&answer) {
            println!("  process {process}: {} documents, {} bytes", read.documents, read.bytes);
            assert_eq!(read.documents, (ORDERS / count) as u64);
            // Five groups instead of a thousand documents and more.
            assert_eq!(read.rows, 5);
        }
    }
}

/// The bytes that a process reads halve when there are twice as many.
#[test]
fn the_work_of_a_process_halves_with_twice_as_many() {
    let bytes = |count: usize| {
        let processes = start(count, same);
        let work = work_of(&ask(&processes[0].engine, GROUPED[0]));
        work.iter().map(|one| one.read.bytes).max().unwrap() as f64
    };
    let (two, four) = (bytes(2), bytes(4));
    assert!((0.4..0.6).contains(&(four / two)), "{two} and {four} bytes");
}

#[test]
fn explain_shows_the_statement_of_each_process() {
    let processes = start(2, same);
    let explained = |statement: &str| {
        let answer = ask(&processes[0].engine, &format!("EXPLAIN {statement}"));
        assert_eq!(answer["results"][0]["engine"], "processes", "{answer}");
        answer["results"][0]["fragments"].clone()
    };
    let grouped = explained(GROUPED[0]);
    let statement = grouped[0]["statement"].as_str().unwrap();
    assert!(statement.contains("group by") && statement.contains("`k0`"), "{statement}");
    // Only the fields and the rows that the query needs.
    let gathered = explained(GATHERED[0]);
    let of = |name: &str| {
        let fragments = gathered.as_array().unwrap().iter();
        let mut found = fragments.filter(|fragment| fragment["collection"] == name);
        found.next().unwrap()["statement"].as_str().unwrap().to_owned()
    };
    assert!(of("orders").contains("where") && of("orders").contains("900"), "{}", of("orders"));
    assert!(!of("orders").contains("lines"), "{}", of("orders"));
    assert!(!of("items").contains("where"), "{}", of("items"));
    // Metadata needs whole documents.
    assert_eq!(explained(GATHERED[4])[0]["statement"], Json::Null);
}

/// Starts a proxy between a process and the others, and returns its address. The proxy passes on so many bytes of one answer, and
/// then closes everything, as after `kill -9`.
fn killed_after(bytes_max: usize, address: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut from, _) = listener.accept().unwrap();
        drop(listener);
        let mut to = TcpStream::connect(address).unwrap();
        let (mut sender, mut receiver) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let upward = std::thread::spawn(move || {
            // Ends with an error when the connection is closed below.
            let _ = std::io::copy(&mut sender, &mut receiver);
        });
        let mut left = bytes_max;
        let mut buffer = [0; 1024];
        while left > 0 {
            let limit = left.min(buffer.len());
            let count = to.read(&mut buffer[..limit]).unwrap();
            if count == 0 {
                break;
            }
            from.write_all(&buffer[..count]).unwrap();
            left -= count;
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
        upward.join().unwrap();
    });
    own
}

/// A process that ends before or in the middle of its answer: the following one answers for it, and no row is missing or doubled.
#[test]
fn a_process_that_is_killed_is_replaced_once() {
    // The answer for all documents of a part has tens of thousands of bytes.
    let statement = "SELECT o.id, o.lines, o.day FROM orders o WHERE o.id >= 0";
    let alone = start(1, same);
    let expected = rows_of(&ask(&alone[0].engine, statement), statement);
    assert_eq!(expected.len(), ORDERS);
    for count in [2, 4] {
        for bytes_max in [0, 300, 9000] {
            let around = |at: usize, address: String| match at {
                1 => killed_after(bytes_max, address),
                _ => address,
            };
            let processes = start(count, around);
            let answer = ask(&processes[0].engine, statement);
            assert_eq!(rows_of(&answer, statement), expected, "{count}, after {bytes_max} bytes");
            let again: Vec<Work> =
                work_of(&answer).into_iter().filter(|one| one.attempts > 1).collect();
            let [again] = &again[..] else { panic!("{answer}") };
            assert_eq!((again.part, again.process, again.attempts), (1, 2 % count, 2));
            println!("{count} processes, one killed after {bytes_max} bytes: {again:?}");
        }
    }
}

/// Two processes in a row that do not answer: the query fails with a code for which clients try again.
#[test]
fn two_lost_processes_are_an_error_that_can_be_retried() {
    let around = |at: usize, address: String| match at {
        1 | 2 => {
            // A port that nobody listens at.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().to_string()
        }
        _ => address,
    };
    let processes = start(4, around);
    let answer = ask(&processes[0].engine, GROUPED[0]);
    assert_eq!(answer["errors"][0]["code"], 23000, "{answer}");
    assert_eq!(answer["errors"][0]["retriable"], true, "{answer}");
    let message = answer["errors"][0]["msg"].as_str().unwrap();
    assert!(message.contains("process 1") && message.contains("process 2"), "{message}");
}

/// An error of a query is the same as in one process, and no process is asked again for it.
#[test]
fn errors_of_a_query_keep_their_code() {
    let (alone, processes) = (start(1, same), start(2, same));
    for statement in [
        "SELECT SUM(o.big) AS s FROM orders o",
        "SELECT VALUE x FROM nothing x",
        "SELECT VALUE $1 FROM orders o",
    ] {
        let code = |engine: &Engine| ask(engine, statement)["errors"][0]["code"].clone();
        let expected = code(&alone[0].engine);
        assert!(expected.is_number(), "{statement}");
        assert_eq!(code(&processes[0].engine), expected, "{statement}");
    }
}

/// The sum over a part exceeds 64 bits, that over all documents does not.
#[test]
fn a_sum_needs_only_to_fit_as_a_whole() {
    let processes = start(2, same);
    let answer = ask(&processes[0].engine, "SELECT VALUE SUM(o.swing) FROM orders o");
    assert_eq!(answer["results"], serde_json::json!([0]), "{answer}");
}

/// Returns the address of a process that accepts connections and never answers.
fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let connections: Vec<TcpStream> = listener.incoming().map(Result::unwrap).collect();
        drop(connections);
    });
    address
}

/// A query that waits for another process still ends with its time limit, and when it is cancelled.
#[test]
fn a_query_that_waits_for_a_process_can_be_ended() {
    let processes = start(2, |at, address| if at == 1 { silent() } else { address });
    let engine = &processes[0].engine;
    let statement = GATHERED[1];
    let late = request(engine, &serde_json::json!({"statement": statement, "timeout": "300ms"}));
    assert_eq!(late["errors"][0]["code"], 21002, "{late}");
    let named = serde_json::json!({"statement": statement, "client_context_id": "waits"});
    std::thread::scope(|threads| {
        let asking = threads.spawn(|| request(engine, &named));
        while !engine.cancel("waits") {
            std::thread::yield_now();
        }
        let cancelled = asking.join().unwrap();
        assert_eq!(cancelled["errors"][0]["code"], 21007, "{cancelled}");
    });
}

/// Long, deep and odd documents are the same behind another process.
#[test]
fn extreme_documents_arrive_unchanged() {
    let deep = |value: &str| format!("{}{value}{}", "[".repeat(60), "]".repeat(60));
    let values = [
        "9223372036854775807".to_owned(),
        "-9223372036854775808".to_owned(),
        "9223372036854775808".to_owned(),
        "1e308".to_owned(),
        "\"end \\n \\u0000 \u{2028}\"".to_owned(),
        format!("\"{}\"", "x".repeat(3 << 20)),
        deep("1"),
        "null".to_owned(),
    ];
    let texts = values.iter().map(|value| format!("{{\"v\":{value},\r\n\"of\":\"extremes\"}}"));
    let texts: Vec<String> = texts.chain(["17", "[]"].map(str::to_owned)).collect();
    let extremes = || {
        let row = |(n, text): (usize, &String)| Row {
            id: format!("extreme-{n}").into(),
            vbid: n as u16,
            cas: n as u64 + 1,
            flags: 7,
            expiry: 0,
            text: text.as_str().into(),
        };
        texts.iter().enumerate().map(row).collect::<Vec<Row>>()
    };
    let (alone, processes) = (start(1, same), start(2, same));
    for process in alone.iter().chain(&processes) {
        let parts = if process.engine.is_alone() { 1 } else { 2 };
        for part in 0..parts {
            process.engine.follower_of(&part_request("items", part)).unwrap().fill(extremes());
        }
    }
    for (statement, count) in [
        (
            "SELECT META(i).id AS id, META(i).cas AS cas, i AS d FROM items i WHERE META(i).id LIKE 'extreme%'",
            10,
        ),
        ("SELECT VALUE i FROM items i WHERE i.of = 'extremes'", 8),
        ("SELECT i.v AS v FROM items i WHERE i.of = 'extremes' AND i.v IS NOT NULL", 7),
        ("SELECT i.v AS v, COUNT(*) AS n FROM items i WHERE i.of = 'extremes' GROUP BY i.v", 8),
        ("SELECT VALUE LENGTH(i.v) FROM items i WHERE LENGTH(i.v) > 1000000", 1),
    ] {
        let expected = rows_of(&ask(&alone[0].engine, statement), statement);
        assert_eq!(expected.len(), count, "{statement}");
        let found = rows_of(&ask(&processes[1].engine, statement), statement);
        assert!(found == expected, "{statement}");
    }
}

/// Rows are only for processes that know the login of the streams, whatever the rights of a user are.
#[test]
fn strangers_get_no_rows_of_a_part() {
    let addresses = std::cell::RefCell::new(Vec::new());
    let processes = start(2, |_, address| {
        addresses.borrow_mut().push(address.clone());
        address
    });
    let address = addresses.borrow()[1].clone();
    let patience = Patience {
        deadline: Instant::now() + Duration::from_secs(60),
        is_cancelled: Arc::default(),
        client: None,
    };
    let body = serde_json::to_vec(&part_request("items", 1)).unwrap();
    let read = |authorization: &str, path: &str, body: &[u8]| {
        let mut lines = Vec::new();
        let read = fleet::post(&address, path, authorization, body, &patience, &mut |line| {
            lines.push(line.to_owned());
            Ok(())
        });
        read.map(|()| lines)
    };
    let own = processes[0].engine.node.authorization();
    let lines = read(&own, fleet::READ_PATH, &body).unwrap();
    assert_eq!(lines.len(), ITEMS / 2 + 1);
    assert!(lines[ITEMS / 2].starts_with("end "), "{}", lines[ITEMS / 2]);
    // The token of a node's own process, a user of the node, nothing, and a prefix of the login.
    for stranger in ["a token", "Basic YW5uOnNlY3JldA==", "", &own[..own.len() - 1]] {
        for path in [fleet::READ_PATH, fleet::CATALOG_PATH] {
            match read(stranger, path, &body) {
                Err(Failure::Refused(error)) => assert_eq!(error.code, 20000, "{stranger}"),
                other => panic!("{stranger} {path}: {other:?}"),
            }
        }
    }
    assert!(read(&own, fleet::READ_PATH, b"{}").is_err());
    // A single process has no others.
    let alone = start(1, |_, address| {
        addresses.borrow_mut().push(address.clone());
        address
    });
    let address = addresses.borrow()[2].clone();
    let asked = fleet::post(&address, fleet::READ_PATH, &own, &body, &patience, &mut |_| Ok(()));
    assert!(matches!(asked, Err(Failure::Refused(error)) if error.code == 20000));
    drop(alone);
}

/// A definition reaches all processes.
#[test]
fn definitions_are_those_of_all_processes() {
    let processes = start(2, same);
    let made = ask(&processes[0].engine, "CREATE ANALYTICS SYNONYM purchases FOR orders");
    assert_eq!(made["status"], "success", "{made}");
    let counted = ask(&processes[1].engine, "SELECT VALUE COUNT(*) FROM purchases p");
    assert_eq!(counted["results"], serde_json::json!([ORDERS]), "{counted}");
}

#[test]
fn a_definition_needs_all_processes() {
    let processes = start(2, |at, address| match at {
        1 => killed_after(0, address),
        _ => address,
    });
    let refused = ask(&processes[0].engine, "CREATE ANALYTICS SYNONYM purchases FOR orders");
    assert_eq!(refused["errors"][0]["code"], 23000, "{refused}");
    let unknown = ask(&processes[0].engine, "SELECT VALUE COUNT(*) FROM purchases p");
    assert_eq!(unknown["errors"][0]["code"], 24045, "{unknown}");
}
