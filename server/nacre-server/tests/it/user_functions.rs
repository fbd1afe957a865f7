//! Functions of users in JavaScript: their libraries, whose they are, where they are, and how they end.

use crate::cluster::Node;
use crate::process::{PASSWORD, Server, USER};
use crate::queries::serving;
use nacre_conformance::http::{self, Answer};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const LIBRARIES: &str = "/evaluator/v1/libraries";
/// How much longer than its timeout a query may take on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

fn send(port_base: u16, user: &str, method: &str, path: &str, body: &str) -> Answer {
    let (patience, address) = (Duration::from_secs(100), format!("127.0.0.1:{}", port_base + 2));
    let (login, kind) = (Some((user, PASSWORD)), "application/json");
    http::request_within(patience, &address, method, path, login, kind, body.as_bytes()).unwrap()
}

fn library(server: &Server, method: &str, name: &str, code: &str) -> (u16, String) {
    let path = format!("{LIBRARIES}{name}");
    let answer = send(server.port_base, USER, method, &path, code);
    (answer.status, answer.text())
}

/// Stores a global library.
fn put(server: &Server, name: &str, code: &str) {
    assert_eq!(library(server, "POST", &format!("/{name}"), code).0, 200);
}

fn ask(port_base: u16, user: &str, request: &Value) -> Value {
    send(port_base, user, "POST", "/query/service", &request.to_string()).json().unwrap()
}

fn query(server: &Server, statement: &str) -> Value {
    ask(server.port_base, USER, &json!({"statement": statement}))
}

fn rows(server: &Server, statement: &str) -> Value {
    let mut answer = query(server, statement);
    assert_eq!(answer["status"], "success", "{statement}: {answer}");
    answer["results"].take()
}

fn code_of(answer: &Value) -> u64 {
    answer["errors"][0]["code"].as_u64().unwrap_or_else(|| panic!("no error: {answer}"))
}

/// Makes a function with code of its own.
fn define(server: &Server, name: &str, code: &str) {
    let code = json!(code);
    rows(server, &format!("CREATE FUNCTION {name}(...) LANGUAGE JAVASCRIPT AS {code}"));
}

#[test]
fn libraries_are_stored_listed_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let (add, f2c) = ("function add(a, b) { return a + b; }", "function f2c(f) { return f - 32; }");
    rows(&server, "CREATE SCOPE default:`default`.inventory");
    let of_scope = "/science?bucket=default&scope=inventory";
    assert_eq!(library(&server, "GET", "", ""), (200, "[]".into()));
    assert_eq!(library(&server, "POST", "/math", "function add() {}").0, 200);
    assert_eq!(library(&server, "POST", "/math", add).0, 200, "it takes the place of the other");
    // A string of JSON, as the reference has it.
    assert_eq!(library(&server, "POST", of_scope, &json!(f2c).to_string()).0, 200);
    let told = |path: &str| -> Value {
        serde_json::from_str(&library(&server, "GET", path, "").1).unwrap()
    };
    let science =
        json!({"name": "science", "bucket": "default", "scope": "inventory", "code": f2c});
    let math = json!({"name": "math", "bucket": "", "scope": "", "code": add});
    assert_eq!(told("/?bucket=default&scope=inventory"), json!([science]));
    assert_eq!(told(""), json!([science, math]));
    assert_eq!(told("/math"), json!({"math": add}));
    assert_eq!(told(of_scope), json!({"science": f2c}));
    for (method, path, body, status, what) in [
        ("GET", "/science", "", 404, "Library not found: science"),
        ("DELETE", "/science", "", 404, "Library not found: science"),
        ("POST", "/x?bucket=default", add, 400, "together"),
        ("POST", "/x?bucket=default&scope=nowhere", add, 404, "nowhere"),
        ("POST", "/a%20b", add, 400, "name of a library"),
        ("POST", "/x", "", 400, "JavaScript"),
        (
            "POST",
            "/x",
            "function f() {\n  let 1 }",
            400,
            "SyntaxError: expecting ';' (line 2, column 7)",
        ),
        ("POST", "/x", "throw new Error('no')", 400, "Error: no (line 1"),
        ("POST", "/x", "for (;;) {}", 400, "stopped after"),
        ("PATCH", "/x", add, 405, "not allowed"),
    ] {
        let (found, text) = library(&server, method, path, body);
        assert!(found == status && text.contains(what), "{method} {path}: {found} {text}");
    }
    assert_eq!(library(&server, "DELETE", "/math", "").0, 200);
    assert_eq!(told(""), json!([science]));
}

#[test]
fn an_exception_names_the_thrown_value_and_its_position() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    put(&server, "lib", "function f(x) {\n  return x.y.z;\n}\nfunction g() { throw {code: 7} }");
    for name in ["f", "g"] {
        let library = format!("LANGUAGE JAVASCRIPT AS \"{name}\" AT \"lib\"");
        rows(&server, &format!("CREATE FUNCTION {name}(...) {library}"));
    }
    let failed = |statement: &str| query(&server, statement)["errors"][0].take();
    let expected = json!({
        "code": 10109,
        "msg": "Error executing function 'f' (lib:f)",
        "reason": {
            "details": {
                "Code": "  return x.y.z;",
                "Exception": "TypeError: cannot read property 'z' of undefined",
                "Location": "functions/lib.js:2",
                "Stack": "   at functions/lib.js:2:10",
            },
            "type": "Exceptions from JS code",
        },
    });
    assert_eq!(failed("EXECUTE FUNCTION f({})"), expected);
    let body = json!({"statement": "EXECUTE FUNCTION f({})"}).to_string();
    let answer = send(server.port_base, USER, "POST", "/query/service", &body);
    assert_eq!(answer.status, 200, "who asks has logged in, and may");
    assert_eq!(failed("SELECT f({})"), expected);
    let thrown = failed("EXECUTE FUNCTION g()");
    assert_eq!(thrown["reason"]["details"], json!({"Exception": {"code": 7}}));
    define(&server, "h", "function h() {\n  throw new Error('no') }");
    let own = failed("EXECUTE FUNCTION h()");
    assert_eq!(own["msg"], "Error executing function 'h' (h)");
    assert_eq!(own["reason"]["details"]["Location"], "functions/h.js:2");
    assert_eq!(library(&server, "DELETE", "/lib", "").0, 200);
    let gone = failed("EXECUTE FUNCTION f({})");
    assert_eq!(gone["reason"]["details"], json!({"Exception": "Library not found: lib"}));
    for code in ["function i( {", "function j() {}"] {
        let statement = format!("CREATE FUNCTION i() LANGUAGE JAVASCRIPT AS {}", json!(code));
        assert_eq!(failed(&statement)["code"], 10114, "{code}");
    }
}

#[test]
fn code_that_does_not_end_fails_alone() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    for (name, body) in [
        ("spin", "for (;;) {}"),
        ("deep", "return deep() + 1"),
        ("wide", "const all = []; for (;;) all.push(new Array(1000).fill(all.length))"),
        ("large", "return 'x'.repeat(20 << 20)"),
        ("nested", "let v = 1; for (let i = 0; i < 300; i++) v = [v]; return v"),
        ("slow", "for (let i = 0; i < 1e6; i++) {}"),
    ] {
        define(&server, name, &format!("function {name}() {{ {body} }}"));
    }
    for (name, why) in [
        ("spin", "stopped after"),
        ("deep", "stack"),
        ("wide", "out of memory"),
        ("large", "the limit is"),
        ("nested", "cannot be read"),
    ] {
        let answer = query(&server, &format!("EXECUTE FUNCTION {name}()"));
        assert_eq!(code_of(&answer), 10109, "{answer}");
        let told = &answer["errors"][0]["reason"]["details"]["Exception"];
        assert!(told.as_str().unwrap().contains(why), "{answer}");
        assert_eq!(rows(&server, "SELECT RAW 1"), json!([1]));
    }
    // One call that is stopped within, and many that end each for itself.
    for statement in ["EXECUTE FUNCTION spin()", "SELECT slow() FROM ARRAY_RANGE(0, 100000) AS r"] {
        let begun = Instant::now();
        let request = json!({"statement": statement, "timeout": "200ms"});
        let answer = ask(server.port_base, USER, &request);
        assert_eq!((code_of(&answer), &answer["status"]), (1080, &json!("timeout")), "{answer}");
        assert!(begun.elapsed() < SLACK, "{statement} took {:?}", begun.elapsed());
    }
    assert_eq!(rows(&server, "SELECT RAW 1"), json!([1]));
}

#[test]
fn state_of_code_is_invisible_to_other_requests() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    define(&server, "counts", "let count = 0; function counts() { return count += 1 }");
    let counted = "SELECT RAW MAX(counts()) FROM ARRAY_RANGE(0, 10) AS r";
    assert_eq!(rows(&server, counted), json!([10]));
    assert_eq!(rows(&server, counted), json!([10]));
    // More libraries than a request has instances of.
    for number in 0..6 {
        let name = format!("own{number}");
        define(&server, &name, &format!("function {name}() {{ return {number} }}"));
    }
    let all =
        "SELECT RAW [own0(), own1(), own2(), own3(), own4(), own5()] FROM ARRAY_RANGE(0, 3) AS r";
    assert_eq!(rows(&server, all), json!(vec![[0, 1, 2, 3, 4, 5]; 3]));
}

/// A collection of a scope with documents `k0`, `k1`, ….
fn fill(server: &Server, documents: usize) {
    rows(server, "CREATE SCOPE default:`default`.travel");
    rows(server, "CREATE COLLECTION default:`default`.travel.trips");
    let values: Vec<_> = (0..documents).map(|n| format!("VALUES ('k{n}', {{'n': {n}}})")).collect();
    rows(
        server,
        &format!("UPSERT INTO default:`default`.travel.trips (KEY, VALUE) {}", values.join(", ")),
    );
}

#[test]
fn code_queries_with_the_rights_and_the_time_of_its_caller() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    fill(&server, 3000);
    let code = "
        function total(from) {
            let sum = 0;
            for (const n of N1QL('SELECT RAW t.n FROM trips AS t WHERE t.n >= $from', {$from: from})) sum += n;
            return sum;
        }
        function first(n) { for (const {v} of N1QL('SELECT r AS v FROM ARRAY_RANGE(0, 1000000) AS r WHERE r >= ?', [n])) return v }
        function caught() { try { N1QL('SELECT * FROM nowhere') } catch (e) { return JSON.parse(e.message).code } }
        function endless() { return [...N1QL('SELECT COUNT(*) FROM ARRAY_RANGE(0, 10000) AS a, ARRAY_RANGE(0, 10000) AS b, ARRAY_RANGE(0, 10000) AS c')] }
        function broken() { return N1QL('SELEC 1') }";
    let of_travel = "/lib?bucket=default&scope=travel";
    assert_eq!(library(&server, "POST", of_travel, code).0, 200);
    for name in ["total", "first", "caught", "endless", "broken"] {
        let body = format!("LANGUAGE JAVASCRIPT AS \"{name}\" AT \"default/travel/lib\"");
        rows(&server, &format!("CREATE FUNCTION default:`default`.travel.{name}(...) {body}"));
    }
    let of = |name: &str| format!("default:`default`.travel.{name}");
    // Lone names of keyspaces are those of the function's scope.
    let sum = format!("SELECT RAW {}(1000)", of("total"));
    assert_eq!(rows(&server, &sum), json!([(1000..3000).sum::<u64>()]));
    let many = format!("SELECT RAW {}(r) FROM ARRAY_RANGE(0, 20) AS r", of("first"));
    assert_eq!(rows(&server, &many), json!((0..20).collect::<Vec<_>>()));
    assert_eq!(rows(&server, &format!("EXECUTE FUNCTION {}()", of("caught"))), json!([12003]));
    let broken = query(&server, &format!("EXECUTE FUNCTION {}()", of("broken")));
    let details = &broken["errors"][0]["reason"]["details"];
    assert_eq!(
        (code_of(&broken), &details["Exception"]["code"]),
        (10109, &json!(3000)),
        "{broken}"
    );
    let begun = Instant::now();
    let endless =
        json!({"statement": format!("EXECUTE FUNCTION {}()", of("endless")), "timeout": "300ms"});
    let answer = ask(server.port_base, USER, &endless);
    assert_eq!(answer["status"], "timeout", "{answer}");
    assert!(begun.elapsed() < SLACK, "it took {:?}", begun.elapsed());
    let roles = "query_execute_external_functions[default:travel]";
    let form = format!("password={PASSWORD}&roles={roles}");
    let made = server.rest("PUT", "/settings/rbac/users/local/ann", &form).unwrap();
    assert_eq!(made.status, 200, "{}", made.text());
    let refused = ask(server.port_base, "ann", &json!({"statement": sum}));
    let details = &refused["errors"][0]["reason"]["details"];
    assert_eq!(details["Exception"]["code"], 13014, "she may not read the collection: {refused}");
}

#[test]
fn code_changes_documents_only_when_it_is_executed() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    fill(&server, 3);
    let write =
        "UPDATE default:`default`.travel.trips AS t USE KEYS 'k1' SET t.n = 70 RETURNING RAW t.n";
    define(&server, "writes", &format!("function writes() {{ return [...N1QL(\"{write}\")] }}"));
    let n = "SELECT RAW t.n FROM default:`default`.travel.trips AS t USE KEYS 'k1'";
    let refused = |request: Value| {
        let answer = ask(server.port_base, USER, &request);
        let details = &answer["errors"][0]["reason"]["details"];
        assert_eq!(code_of(&answer), 10109, "{answer}");
        details["Exception"]["code"].as_u64().unwrap_or_else(|| panic!("{answer}"))
    };
    assert_eq!(refused(json!({"statement": "SELECT writes()"})), 1000);
    let readonly = json!({"statement": "EXECUTE FUNCTION writes()", "readonly": true});
    assert_eq!(refused(readonly), 1000);
    let transaction = json!({"statement": "EXECUTE FUNCTION writes()", "tximplicit": true});
    assert_eq!(refused(transaction), 17006);
    assert_eq!(rows(&server, n), json!([1]));
    assert_eq!(rows(&server, "EXECUTE FUNCTION writes()"), json!([[70]]));
    assert_eq!(rows(&server, n), json!([70]));
    define(&server, "again", "function again() { return [...N1QL('SELECT RAW again()')] }");
    let deep = query(&server, "EXECUTE FUNCTION again()");
    assert!(
        code_of(&deep) == 10109 && deep.to_string().contains("4 nested javascript calls"),
        "{deep}"
    );
    assert_eq!(rows(&server, "SELECT RAW 1"), json!([1]));
}

#[test]
fn functions_and_libraries_survive_a_restart_and_go_with_their_scope() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    rows(&server, "CREATE SCOPE default:`default`.travel");
    put(&server, "math", "function twice(x) { return x * 2 }");
    let of_scope = "/math?bucket=default&scope=travel";
    assert_eq!(library(&server, "POST", of_scope, "function twice(x) { return -x }").0, 200);
    let global = "CREATE FUNCTION twice(x) LANGUAGE JAVASCRIPT AS \"twice\" AT \"math\"";
    rows(&server, global);
    let scoped = json!({"statement": global.replace("math", "./math"), "query_context": "default:default.travel"});
    assert_eq!(ask(server.port_base, USER, &scoped)["status"], "success");
    define(&server, "own", "function own() { return 'own' }");
    server.stop();

    let server = serving(directory.path());
    let all = "SELECT RAW [twice(1), default:`default`.travel.twice(1), own()]";
    assert_eq!(rows(&server, all), json!([[2, -1, "own"]]));
    rows(&server, "DROP SCOPE default:`default`.travel");
    assert_eq!(code_of(&query(&server, all)), 10101);
    assert_eq!(library(&server, "GET", of_scope, "").0, 404);
    assert_eq!(library(&server, "GET", "/math", "").0, 200);
}

#[test]
fn each_user_can_do_what_the_roles_allow() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    rows(&server, "CREATE SCOPE default:`default`.travel");
    for (name, roles) in [
        ("inline", "query_manage_global_functions"),
        ("caller", "query_execute_global_external_functions"),
        ("owner", "query_manage_global_external_functions"),
        ("traveller", "query_manage_external_functions[default:travel]"),
    ] {
        let form = format!("password={PASSWORD}&roles={roles},query_select[default]");
        let made = server.rest("PUT", &format!("/settings/rbac/users/local/{name}"), &form);
        assert_eq!(made.unwrap().status, 200);
    }
    let create = |name: &str| {
        let body = "LANGUAGE JAVASCRIPT AS \"twice\" AT \"math\"";
        format!("CREATE OR REPLACE FUNCTION {name}(x) {body}")
    };
    let may = |user: &str, statement: &str| {
        let answer = ask(server.port_base, user, &json!({"statement": statement}));
        let refused = answer["errors"][0]["code"] == 13014;
        assert!(refused || answer["status"] == "success", "{user}: {statement}: {answer}");
        !refused
    };
    let status = |user: &str, method: &str, path: &str| {
        let code = "function twice(x) { return x * 2 }";
        send(server.port_base, user, method, &format!("{LIBRARIES}{path}"), code).status
    };
    let (global, of_travel) = ("/math", "/math?bucket=default&scope=travel");
    for user in ["inline", "caller", "traveller"] {
        assert_eq!(status(user, "POST", global), 403, "{user}");
        assert!(!may(user, &create("twice")), "{user}");
    }
    assert_eq!(status("owner", "POST", global), 200);
    assert!(may("owner", &create("twice")));
    assert_eq!(status("owner", "POST", of_travel), 403, "that is not global");
    assert_eq!(status("traveller", "POST", of_travel), 200);
    assert!(may("traveller", &create("default:`default`.travel.twice")));
    assert_eq!(
        ["inline", "caller", "traveller"].map(|user| status(user, "GET", global)),
        [403, 403, 200]
    );
    assert_eq!(status("caller", "GET", of_travel), 403);
    let call = "EXECUTE FUNCTION twice(21)";
    assert_eq!(["inline", "caller", "owner"].map(|user| may(user, call)), [false, true, true]);
    assert!(!may("traveller", call), "that is of no scope");
    assert!(may("traveller", "EXECUTE FUNCTION default:`default`.travel.twice(1)"));
    assert!(!may("inline", "CREATE OR REPLACE FUNCTION twice(x) { x }"), "it is not theirs");
    assert!(!may("inline", "DROP FUNCTION twice") && !may("caller", "DROP FUNCTION twice"));
    let visible = "SELECT RAW f.identity.name FROM system:functions AS f";
    let seen =
        |user: &str| ask(server.port_base, user, &json!({"statement": visible}))["results"].take();
    assert_eq!((seen("caller"), seen("inline")), (json!(["twice"]), json!([])));
    assert!(may("owner", "DROP FUNCTION twice"));
}

#[test]
fn every_node_calls_what_was_defined_on_one() {
    let nodes = [Node::start(), Node::start()];
    assert_eq!(nodes[0].add(&nodes[1]).0, 200);
    put(nodes[0].server(), "math", "function twice(x) { return x * 2 }");
    let create = "CREATE FUNCTION twice(x) LANGUAGE JAVASCRIPT AS \"twice\" AT \"math\"";
    let ask_at = |node: &Node, statement: &str| {
        ask(node.server().port_base, USER, &json!({"statement": statement}))
    };
    assert_eq!(ask_at(&nodes[0], create)["status"], "success");
    for node in &nodes {
        node.wait_until("the function to be there", |node| {
            ask_at(node, "SELECT RAW twice(21)")["results"] == json!([42])
        });
    }
    assert_eq!(
        library(nodes[1].server(), "POST", "/math", "function twice(x) { return 'new' }").0,
        200
    );
    for node in &nodes {
        node.wait_until("the new code to be there", |node| {
            ask_at(node, "SELECT RAW twice(21)")["results"] == json!(["new"])
        });
    }
}
