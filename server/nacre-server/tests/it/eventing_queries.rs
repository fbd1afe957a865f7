//! Queries of functions: their results and changes, their rights, and their ends.

use crate::eventing::{Collection, ask, collections, define, deploy, eventing, function, get};
use crate::process::{BUCKET, PASSWORD, Server, USER};
use crate::queries::serving;
use nacre_conformance::http;
use serde_json::{Value, json};

fn query(server: &Server, statement: &str) -> Value {
    let mut answer = server.query(&json!({"statement": statement}).to_string());
    assert_eq!(answer["status"], "success", "{answer}");
    answer["results"].take()
}

fn user(server: &Server, name: &str, roles: &str) {
    let form = format!("password={PASSWORD}&roles={roles}");
    let answer = server.rest("PUT", &format!("/settings/rbac/users/local/{name}"), &form);
    assert_eq!(answer.unwrap().status, 200);
}

#[test]
fn a_function_reads_rows_of_a_query_that_sees_what_was_written_before() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    collections(&server, &["meta", "dst", "orders"]);
    query(&server, &format!("CREATE INDEX i ON {BUCKET}._default.orders(customer)"));
    let mut orders = Collection::open(&server, "orders");
    // More rows than one piece of an answer has.
    let text = "\n\\\"[],".repeat(20);
    for n in 0..2000 {
        assert!(orders.set(&format!("o{n}"), &json!({"customer": n % 2, "n": n, "text": text})));
    }
    let code = "function OnUpdate(doc, meta) {
            const orders = N1QL('SELECT o.n, o.text FROM default._default.orders AS o WHERE o.customer = $customer',
                {customer: doc.customer}, {consistency: 'request'});
            let [count, sum, length] = [0, 0, 0];
            for (const {n, text} of orders) { count += 1; sum += n; length = text.length }
            const first = N1QL('SELECT RAW 1 FROM ARRAY_RANGE(0, 1000000) AS r');
            dst[meta.id] = [count, sum, length, first.next().value];
            first.close();
        }";
    deploy(&mut server, &function("sums", code, "_default", &["dst"]));
    let mut source = Collection::open(&server, "_default");
    let mut sums = Collection::open(&server, "dst");
    source.put("odd", &json!({"customer": 1}));
    let sum = server.wait_for("the sum", |_| sums.get("odd"));
    assert_eq!(sum, json!([1000, 1_000_000, 120, 1]));
}

#[test]
fn a_query_of_a_function_writes_to_other_keyspaces_but_not_to_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    collections(&server, &["meta", "dst"]);
    let code = "function OnUpdate(doc, meta) {
            N1QL('UPSERT INTO default._default.dst VALUES ($id, {\"n\": $n})', {id: meta.id, n: doc.n});
            const attempt = (...query) => { try { return [...N1QL(...query)] } catch (e) { return [e.name, e.code, e.message] } };
            dst['told ' + meta.id] = [
                attempt('UPDATE default SET n = 5'), attempt('SELEC 1'), attempt('SELECT RAW $1 + $2', [40, 2]),
                attempt('SELECT RAW ABORT(\\'enough\\')'), attempt('DELETE FROM default._default.dst AS d WHERE d.n = 1 RETURNING RAW d.n'),
            ];
        }";
    deploy(&mut server, &function("writes", code, "_default", &["dst"]));
    let mut source = Collection::open(&server, "_default");
    let mut told = Collection::open(&server, "dst");
    query(&server, &format!("CREATE PRIMARY INDEX ON {BUCKET}"));
    query(&server, &format!("CREATE PRIMARY INDEX ON {BUCKET}._default.dst"));
    source.put("a", &json!({"n": 7}));
    let answers = server.wait_for("the answers", |_| told.get("told a"));
    assert_eq!(told.get("a"), Some(json!({"n": 7})));
    assert_eq!(source.get("a"), Some(json!({"n": 7})), "it was not changed");
    let refused = &answers[0];
    assert_eq!((&refused[0], &refused[1]), (&json!("N1QLError"), &json!(12009)), "{answers}");
    assert_eq!((&answers[1][1], &answers[2]), (&json!(3000), &json!([42])), "{answers}");
    assert_eq!(answers[3][0], "N1QLError", "{answers}");
    assert_eq!(answers[4], json!([]));
    // Counters are reported when the batch has ended.
    server.wait_for("three failures", |server| {
        (get(server, "/getFailureStats?name=writes")["n1ql_op_exception_count"] == 3).then_some(())
    });
}

/// Has the user `author` define and deploy the function `f` of the default scope.
fn deploy_as_author(server: &Server, code: &str) {
    let mut own = function("f", code, "_default", &["dst"]);
    own["function_scope"] = json!({"bucket": BUCKET, "scope": "_default"});
    own["settings"] = json!({"deployment_status": true, "processing_status": true});
    let path = format!("/api/v1/functions/f?bucket={BUCKET}&scope=_default");
    let answer = eventing(server, "author", "POST", &path, &own);
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn a_function_queries_with_the_rights_of_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    collections(&server, &["meta", "dst", "secret"]);
    query(&server, &format!("INSERT INTO {BUCKET}._default.secret VALUES ('s', 1)"));
    let rights = "eventing_manage_functions[default:_default],data_dcp_reader[default],data_reader[default],data_writer[default:_default:dst]";
    user(&server, "author", rights);
    let code = "function OnUpdate(doc, meta) {
            try { dst[meta.id] = [...N1QL('SELECT RAW s FROM default._default.secret AS s USE KEYS \"s\"')] }
            catch (e) { dst[meta.id] = e.code }
        }";
    deploy_as_author(&server, code);
    let mut source = Collection::open(&server, "_default");
    let mut told = Collection::open(&server, "dst");
    source.put("a", &json!(1));
    assert_eq!(server.wait_for("the refusal", |_| told.get("a")), json!(13014));
    // Rights that are given later count from then on.
    user(&server, "author", &format!("{rights},query_select[default:_default:secret]"));
    source.put("b", &json!(1));
    assert_eq!(server.wait_for("the row", |_| told.get("b")), json!([1]));
    // A function whose owner is gone does nothing until somebody else owns it, with whose rights it goes on.
    assert_eq!(server.rest("DELETE", "/settings/rbac/users/local/author", "").unwrap().status, 200);
    server.wait_for("the pause", |server| {
        let told = get(server, &format!("/api/v1/status/f?bucket={BUCKET}&scope=_default"));
        (told["app"]["composite_status"] == "paused").then_some(())
    });
    source.put("c", &json!(1));
    let resume = format!("/api/v1/functions/f/resume?bucket={BUCKET}&scope=_default");
    assert_eq!(eventing(&server, USER, "POST", &resume, &json!({})).status, 200);
    assert_eq!(server.wait_for("the next row", |_| told.get("c")), json!([1]));
}

#[test]
fn an_endless_query_ends_with_the_time_of_the_function() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    collections(&server, &["meta", "dst"]);
    let code = "function OnUpdate(doc, meta) {
            if (doc.endless) N1QL('SELECT COUNT(*) FROM ARRAY_RANGE(0, 10000) AS a, ARRAY_RANGE(0, 10000) AS b, ARRAY_RANGE(0, 10000) AS c');
            dst[meta.id] = 1;
        }";
    let mut endless = function("endless", code, "_default", &["dst"]);
    endless["settings"] = json!({"execution_timeout": 1});
    deploy(&mut server, &endless);
    let mut source = Collection::open(&server, "_default");
    let mut told = Collection::open(&server, "dst");
    source.put("a", &json!({"endless": true}));
    source.put("b", &json!({}));
    server.wait_for("the next document", |_| told.get("b"));
    server.wait_for("the timeout", |server| {
        let failures = get(server, "/getFailureStats?name=endless");
        (failures["timeout_count"].as_u64()? + failures["n1ql_op_exception_count"].as_u64()? > 0)
            .then_some(())
    });
    assert_eq!(told.get("a"), None);
}

#[test]
fn an_invalid_statement_within_code_is_refused_when_a_function_is_defined() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    collections(&server, &["meta"]);
    let code = "function OnUpdate(doc) {\n  var rows = SELECT * FRM default WHERE n = $doc.n;\n}";
    let inline = function("inline", code, "_default", &[]);
    let (status, answer) = ask(&server, "POST", "/api/v1/functions/inline", &inline);
    let told = answer["description"].as_str().unwrap_or_default();
    assert_eq!((status, &answer["name"]), (422, &json!("ERR_HANDLER_COMPILATION")), "{answer}");
    assert!(told.contains("as SQL++") && told.contains("line 2"), "{answer}");
    let mut wrong = function("level", "function OnUpdate() {}", "_default", &[]);
    wrong["settings"] = json!({"n1ql_consistency": "later"});
    assert_eq!(ask(&server, "POST", "/api/v1/functions/level", &wrong).0, 400);
    wrong["settings"] = json!({"n1ql_consistency": "request"});
    define(&server, &wrong);
}

#[test]
fn a_function_searches_with_the_rights_of_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    collections(&server, &["meta", "dst"]);
    let mut source = Collection::open(&server, "_default");
    for (key, word) in [("w1", "red wine"), ("w2", "white wine"), ("b1", "red beer")] {
        assert!(source.put(key, &json!({"drink": word})));
    }
    let address = format!("127.0.0.1:{}", server.port_base + 3);
    let index = json!({"type": "fulltext-index", "sourceType": "couchbase", "sourceName": BUCKET});
    let (login, kind) = (Some((USER, PASSWORD)), "application/json");
    let body = index.to_string();
    let made =
        http::request(&address, "PUT", "/api/index/i", login, kind, body.as_bytes()).unwrap();
    assert_eq!(made.status, 200, "{}", made.text());
    let rights = "eventing_manage_functions[default:_default],data_dcp_reader[default],data_reader[default],data_writer[default:_default:dst]";
    user(&server, "author", rights);
    let code = "function OnUpdate(doc, meta) {
            if (!doc.wish) return;
            const wish = couchbase.SearchQuery.match(doc.wish).field('drink');
            try {
                const hits = couchbase.searchQuery('i', wish, {sort: ['_id'], consistency: 'request'});
                dst[meta.id] = [...hits].map(hit => hit.id);
            } catch (e) { dst[meta.id] = [e.name, e.code] }
        }";
    deploy_as_author(&server, code);
    let mut told = Collection::open(&server, "dst");
    source.put("a", &json!({"wish": "wine"}));
    let refused = server.wait_for("the refusal", |_| told.get("a"));
    assert_eq!(refused, json!(["SearchError", 403]));
    // Rights that are given later count from then on.
    user(&server, "author", &format!("{rights},fts_searcher[default]"));
    source.put("b", &json!({"wish": "wine"}));
    assert_eq!(server.wait_for("the hits", |_| told.get("b")), json!(["w1", "w2"]));
}
