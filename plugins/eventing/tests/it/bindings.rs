//! Bindings: documents, servers and constants that the code accesses by aliases.

use crate::fixture::*;
use nacre_eventing::Program;
use nacre_plugin::testing::Harness;
use nacre_plugin::{http, kv, query};
use serde_json::{Value, json};

/// Runs `code` on one document. Returns what the code has pushed to `told`.
fn told(code: &str) -> String {
    let mut function = function(&format!(
        "function OnUpdate(doc, meta) {{ const told = []; const attempt = (f) => {{ try {{ told.push(f()) }} catch (e) {{ told.push(e.name + ': ' + e.message) }} }};\n{code}\nfor (const line of told) log(line); }}"
    ));
    function.store("shop.copies", "here", &kv::Content::from(r#"{"n":1}"#));
    function.store("other.s.c", "there", &kv::Content::from("raw"));
    assert_eq!(function.put("k", "{}").feed().unwrap(), []);
    log(&function).replace("[INFO] ", "")
}

#[test]
fn a_missing_document_throws_in_the_language_of_older_versions() {
    let mut config = config(
        "function OnUpdate(doc, meta) { try { dst.none } catch (e) { log(e instanceof KVError, e.code) } log('none' in dst, dst.here) }",
    );
    config["missing_throws"] = true.into();
    let mut function = Harness::<Program>::new(&config.to_string()).unwrap();
    function.store("shop.copies", "here", &kv::Content::from(r#"{"n":1}"#));
    assert_eq!(function.put("k", "{}").feed().unwrap(), []);
    assert_eq!(log(&function), "[INFO] true \"not-found\"\n[INFO] false {\"n\":1}");
}

#[test]
fn an_alias_is_a_map_of_documents() {
    insta::assert_snapshot!(told(
        "attempt(() => dst.here); attempt(() => dst.none); attempt(() => dst['new'] = {a: 1}); attempt(() => dst.new.a);
         attempt(() => delete dst.new); attempt(() => delete dst.new); attempt(() => dst.new); attempt(() => 'here' in dst);
         attempt(() => far.there.byteLength); attempt(() => { far.x = [1]; return far.x });
         attempt(() => ro.here.n); attempt(() => ro.here = 1); attempt(() => delete ro.here); attempt(() => dst.u = undefined);
         attempt(() => all.here); attempt(() => LIMIT + WORDS.a[0]); attempt(() => wrong);"
    ), @r#"
    {"n":1}
    undefined
    {"a":1}
    1
    true
    true
    undefined
    true
    3
    [1]
    1
    "KVError: ro is read-only"
    "KVError: ro is read-only"
    "KVError: a document must be JSON or bytes"
    "TypeError: all stands for several collections: name one in meta.keyspace"
    4
    "ReferenceError: someliteral is not defined"
    "#);
}

#[test]
fn keys_and_values_of_invalid_types_are_refused() {
    insta::assert_snapshot!(told(
        "attempt(() => dst[undefined] = 1); attempt(() => dst[null] = 1); attempt(() => dst[{}] = 1); attempt(() => dst[Symbol('s')] = 1);
         attempt(() => dst[function () {}] = 1); attempt(() => dst[() => 1] = 1); attempt(() => delete dst[undefined]);
         attempt(() => dst.a = () => 1); attempt(() => dst.a = Symbol('s')); attempt(() => dst.functional = 1);
         attempt(() => couchbase.upsert(dst, {id: 'a'}, undefined)); attempt(() => dst.a); attempt(() => dst['undefined']);"
    ), @r#"
    "KVError: \"undefined\" is no key of a document in dst: name one by a string"
    "KVError: \"null\" is no key of a document in dst: name one by a string"
    "KVError: \"[object Object]\" is no key of a document in dst: name one by a string"
    "KVError: a symbol is no key of a document in dst"
    "KVError: \"function () {}\" is no key of a document in dst: name one by a string"
    "KVError: \"() => 1\" is no key of a document in dst: name one by a string"
    "KVError: \"undefined\" is no key of a document in dst: name one by a string"
    "KVError: a document must be JSON or bytes"
    "KVError: a document must be JSON or bytes"
    1
    "KVError: a document must be JSON or bytes"
    undefined
    undefined
    "#);
}

#[test]
fn a_cached_read_lasts_for_its_call_and_until_the_call_writes() {
    let mut function = function(
        "function OnUpdate(doc, meta) {
            const read = (options) => couchbase.get(dst, { id: 'n' }, options).doc.count;
            const seen = [read({ cache: true }), read({ cache: true })];
            couchbase.increment(dst, { id: 'n' });
            log(...seen, read({ cache: true }), read());
        }",
    );
    function.store("shop.copies", "n", &kv::Content::from(r#"{"count":1}"#));
    assert_eq!(function.put("a", "{}").feed().unwrap(), []);
    assert_eq!(function.put("b", "{}").feed().unwrap(), []);
    assert_eq!(log(&function), "[INFO] 1 1 2 2\n[INFO] 2 2 3 3");
}

#[test]
fn a_handler_sees_the_attributes_that_users_have_set() {
    let mut function =
        function("function OnUpdate(doc, meta, xattrs) { log(xattrs, xattrs.test?.a) }");
    let pair = |name: &str, value: &str| {
        let pair = [name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat();
        [&(pair.len() as u32).to_be_bytes()[..], &pair].concat()
    };
    let pairs = [pair("_sync", "{}"), pair("test", r#"{"a":[1]}"#), pair("b", "2")].concat();
    let section = [&(pairs.len() as u32).to_be_bytes()[..], &pairs].concat();
    function.put("k", "{}").with_xattrs(&section).put("l", "{}");
    assert_eq!(function.feed().unwrap(), []);
    assert_eq!(log(&function), "[INFO] {\"test\":{\"a\":[1]},\"b\":2} [1]\n[INFO] {} undefined");
}

#[test]
fn accessors_report_their_outcome() {
    insta::assert_snapshot!(told(
        "const go = (name, ...rest) => attempt(() => couchbase[name](...rest));
         go('get', dst, {id: 'here'}); go('get', dst, {id: 'none'}); go('get', dst, {id: 'here'}, {cache: true});
         go('insert', dst, {id: 'here'}, {}); go('insert', dst, {id: 'new', expiry_date: new Date(1800000000000)}, {a: 1});
         go('get', dst, {id: 'new'}); go('replace', dst, {id: 'here', cas: '99'}, {}); go('replace', dst, {id: 'none'}, {});
         go('replace', dst, {id: 'here', cas: couchbase.get(dst, {id: 'here'}).meta.cas}, {n: 2});
         go('upsert', dst, {id: 'here'}, {n: 3}); go('delete', dst, {id: 'here', cas: '1'}); go('delete', dst, {id: 'here'});
         go('delete', dst, {id: 'here'}); go('increment', dst, {id: 'n'}); go('increment', dst, {id: 'n'});
         go('decrement', dst, {id: 'n'}); go('decrement', dst, {id: 'm'}); go('touch', dst, {id: 'n', expiry_date: new Date(1900000000000)});
         go('touch', dst, {id: 'none'}); go('get', ro, {id: 'n'}); go('upsert', ro, {id: 'n'}, 1);
         go('mutateIn', dst, {id: 'n'}, [couchbase.MutateInSpec.upsert('a.b', 1, {create_path: true}), couchbase.MutateInSpec.remove('count')]);
         go('mutateIn', dst, {id: 'n'}, [couchbase.MutateInSpec.insert('a.b', 1)]);
         go('lookupIn', dst, {id: 'n'}, [couchbase.LookupInSpec.get('a.b'), couchbase.LookupInSpec.get('count')]);
         go('upsert', all, {id: 'w', keyspace: {scope_name: 'shop', collection_name: 'copies'}}, 5); attempt(() => dst.w);
         go('upsert', all, {id: 'w'}, 5);
         go('get', {}, {id: 'a'}); go('get', dst, {}); go('get', dst, {id: 'a', cas: 1}); go('upsert', dst, {id: 'a', expiry_date: 5}, 1);"
    ), @r#"
    {"doc":{"n":1},"meta":{"id":"here","cas":"1","data_type":"json","datatype":"json"},"success":true}
    {"error":{"desc":"The document key does not exist on the server","code":272,"name":"LCB_KEY_ENOENT","key_not_found":true},"success":false}
    {"doc":{"n":1},"meta":{"id":"here","cas":"1","data_type":"json","datatype":"json"},"success":true}
    {"error":{"desc":"The document key already exists in the server","code":272,"name":"LCB_KEY_EEXISTS","key_already_exists":true},"success":false}
    {"meta":{"id":"new","cas":"3","expiry_date":"2027-01-15T08:00:00.000Z"},"success":true}
    {"doc":{"a":1},"meta":{"id":"new","cas":"3","data_type":"json","datatype":"json","expiry_date":"2027-01-15T08:00:00.000Z"},"success":true}
    {"error":{"desc":"The document key exists with a CAS value different than specified","code":272,"name":"LCB_KEY_EEXISTS","cas_mismatch":true},"success":false}
    {"error":{"desc":"The document key does not exist on the server","code":272,"name":"LCB_KEY_ENOENT","key_not_found":true},"success":false}
    {"meta":{"id":"here","cas":"4"},"success":true}
    {"meta":{"id":"here","cas":"5"},"success":true}
    {"error":{"desc":"The document key exists with a CAS value different than specified","code":272,"name":"LCB_KEY_EEXISTS","cas_mismatch":true},"success":false}
    {"meta":{"id":"here","cas":"6"},"success":true}
    {"error":{"desc":"The document key does not exist on the server","code":272,"name":"LCB_KEY_ENOENT","key_not_found":true},"success":false}
    {"doc":{"count":1},"meta":{"id":"n","cas":"7"},"success":true}
    {"doc":{"count":2},"meta":{"id":"n","cas":"8"},"success":true}
    {"doc":{"count":1},"meta":{"id":"n","cas":"9"},"success":true}
    {"doc":{"count":-1},"meta":{"id":"m","cas":"10"},"success":true}
    {"meta":{"id":"n","cas":"11","expiry_date":"2030-03-17T17:46:40.000Z"},"success":true}
    {"error":{"desc":"The document key does not exist on the server","code":272,"name":"LCB_KEY_ENOENT","key_not_found":true},"success":false}
    {"doc":{"count":1},"meta":{"id":"n","cas":"11","data_type":"json","datatype":"json","expiry_date":"2030-03-17T17:46:40.000Z"},"success":true}
    {"error":{"desc":"ro is read-only","code":1,"name":"LCB_ERR_GENERIC"},"success":false}
    {"meta":{"id":"n","cas":"12"},"success":true}
    {"error":{"desc":"path exists already (operation 0)","code":308,"name":"LCB_SUBDOC_MULTI_FAILURE"},"success":false}
    {"doc":[{"value":1,"success":true},{"error":"path not found","success":false}],"meta":{"id":"n","cas":"12"},"success":true}
    {"meta":{"id":"w","cas":"13"},"success":true}
    5
    "TypeError: all stands for several collections: name one in meta.keyspace"
    "TypeError: couchbase.get needs the alias of a bucket first"
    "TypeError: couchbase.get needs the key of a document as meta.id"
    "TypeError: couchbase.get needs meta.cas as a string"
    "TypeError: couchbase.upsert needs meta.expiry_date as a Date"
    "#);
}

#[test]
fn writes_to_the_source_are_marked_unless_they_should_recur() {
    let mut function = function(
        "function OnUpdate(doc, meta) {
            src.basic = 1;
            couchbase.upsert(src, {id: 'accessor'}, 2);
            couchbase.upsert(src, {id: 'recurs'}, 3, {self_recursion: true});
            couchbase.increment(src, {id: 'counter'});
            couchbase.touch(src, {id: 'basic', expiry_date: new Date(1900000000000)});
            couchbase.mutateIn(src, {id: 'basic2'}, [couchbase.MutateInSpec.upsert('x', 1)]);
            couchbase.upsert(all, {id: 'wide', keyspace: meta.keyspace}, 4);
            dst.elsewhere = 5;
            src.gone = 6; delete src.gone;
        }",
    );
    function.store("_default._default", "basic2", &kv::Content::from("{}"));
    assert_eq!(function.put("k", "{}").feed().unwrap(), []);
    let mark = |keyspace: &str, key: &str| {
        let attributes = function.attributes(keyspace, key);
        let cas = function
            .documents()
            .get(&(keyspace.to_owned(), key.as_bytes().to_vec()))
            .map_or(json!("gone"), |found| format!("0x{:016x}", found.cas.swap_bytes()).into());
        (attributes["_eventing"]["fiid"].clone(), attributes["_eventing"]["cas"] == cas)
    };
    for key in ["basic", "accessor", "counter", "basic2", "wide"] {
        assert_eq!(mark("_default._default", key), (json!(ID), true), "{key}");
    }
    assert_eq!(mark("_default._default", "gone").0, json!(ID));
    assert_eq!(mark("_default._default", "recurs").0, json!(null));
    assert_eq!(mark("shop.copies", "elsewhere").0, json!(null));
    assert_eq!(body(&function, "_default._default", "counter"), r#"{"count":1}"#);
}

#[test]
fn writes_of_the_function_are_ignored_and_later_writes_of_others_are_handled() {
    let mut function = function("function OnUpdate(doc, meta) { log(meta.cas) }");
    let pair = |cas: u64| {
        let mark = format!(r#"{{"fiid":"{ID}","cas":"0x{:016x}"}}"#, cas.swap_bytes());
        let pair = [b"_eventing\0", mark.as_bytes(), b"\0"].concat();
        let length = |bytes: usize| (bytes as u32).to_be_bytes();
        [&length(pair.len() + 4)[..], &length(pair.len()), &pair].concat()
    };
    function.put("a", "{}").with_version(5, 1).with_xattrs(&pair(5));
    function.put("a", "{}").with_version(6, 2).with_xattrs(&pair(5)).feed().unwrap();
    assert_eq!(log(&function), "[INFO] \"6\"");
    assert_eq!(count(&function, "suppressed_count"), 1.0);
}

#[test]
fn curl_sends_requests_and_reads_answers_by_their_type() {
    let mut function = function(
        "function OnUpdate(doc, meta) {
            const go = (...rest) => { try { log(curl(...rest)) } catch (e) { log(e.name + ': ' + e.message) } };
            go('GET', server); go('POST', server, {path: '/p?a=1', params: {q: 'x y'}, body: {n: 1}, headers: {'X-A': 'b'}});
            go('PUT', server, {body: {a: 'b c'}, encoding: 'FORM'}); go('POST', server, {body: 'plain'});
            go('GET', server, {path: 'redirect'}); go('GET', server, {path: 'redirect', redirect: false});
            go('GET', server, {path: 'fails'}); go('PATCH', server); go('GET', dst);
            go('GET', server, {params: 'a=1&b'}); go('GET', server, {params: {list: ['x', 'y'], o: {n: 1}, t: true}});
            go('POST', server, {body: {o: {n: [1]}}, encoding: 'FORM'}); go('GET', server, {path: '../..'});
            go('GET', server, {path: 'x/%2e%2E/../y/./z?to=..'}); go('GET', server, {path: 'circle'}); go('GET', server, {colour: 1});
            go('GET', server, {timeout: 0.5}); go('GET', server, {timeout: 'abc'});
            go('GET', server, {params: '1=2&k=v', url_encode_version: '7.2.0'}); go('GET', server, {url_encode_version: '5.0'});
            const { headers } = curl('GET', server);
            log(headers['Content-Type'], headers['content-type'], 'CONTENT-TYPE' in headers, headers.none, Object.keys(headers));
        }",
    );
    function.on_http(|request| {
        let path = request.url.split("/base").nth(1).unwrap_or_default();
        let reply =
            |status, kind: &str, body: String, more: Vec<(String, String)>| http::Response {
                status,
                headers: [vec![("content-type".into(), kind.into())], more].concat(),
                body: body.into(),
            };
        match path {
            "/redirect" => Ok(reply(
                302,
                "text/plain",
                String::new(),
                vec![("location".into(), "/base/moved".into())],
            )),
            "/fails" => Err(http::Error::Timeout),
            "/circle" => {
                let circle = vec![("location".into(), "/base/circle".into())];
                Ok(reply(302, "text/plain", String::new(), circle))
            }
            _ => {
                let headers: Vec<_> =
                    request.headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let asked = json!([
                    request.method,
                    request.url,
                    String::from_utf8_lossy(&request.body),
                    headers
                ]);
                Ok(reply(200, "application/json", asked.to_string(), Vec::new()))
            }
        }
    });
    assert_eq!(function.put("k", "{}").feed().unwrap(), []);
    insta::assert_snapshot!(log(&function), @r#"
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["GET","http://server:81/base","",["authorization=Basic eDp5"]]}
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["POST","http://server:81/base/p?a=1&q=x%20y","{\"n\":1}",["x-a=b","content-type=application/json","authorization=Basic eDp5"]]}
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["PUT","http://server:81/base","a=b%20c",["content-type=application/x-www-form-urlencoded","authorization=Basic eDp5"]]}
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["POST","http://server:81/base","plain",["content-type=text/plain","authorization=Basic eDp5"]]}
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["GET","http://server:81/base/moved","",["authorization=Basic eDp5"]]}
    [INFO] {"status":302,"headers":{"Content-Type":"text/plain","Location":"/base/moved"},"body":null}
    [INFO] "CurlError: no answer in time"
    [INFO] "CurlError: curl needs one of GET, POST, PUT, HEAD, DELETE first"
    [INFO] "CurlError: curl needs the alias of a URL as its second argument"
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["GET","http://server:81/base?a=1&b","",["authorization=Basic eDp5"]]}
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["GET","http://server:81/base?list=%5B%22x%22%2C%22y%22%5D&o=%7B%22n%22%3A1%7D&t=true","",["authorization=Basic eDp5"]]}
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["POST","http://server:81/base","o=%7B%22n%22%3A%5B1%5D%7D",["content-type=application/x-www-form-urlencoded","authorization=Basic eDp5"]]}
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["GET","http://server:81/base","",["authorization=Basic eDp5"]]}
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["GET","http://server:81/base/y/z?to=..","",["authorization=Basic eDp5"]]}
    [INFO] "CurlError: Unable to perform the request: Number of redirects hit maximum amount"
    [INFO] "CurlError: curl has no option colour"
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["GET","http://server:81/base","",["authorization=Basic eDp5","nacre-timeout-ms=500"]]}
    [INFO] "CurlError: the timeout of curl is a positive number of seconds"
    [INFO] {"status":200,"headers":{"Content-Type":"application/json"},"body":["GET","http://server:81/base?1=2&k=v","",["authorization=Basic eDp5"]]}
    [INFO] "CurlError: url_encode_version is one of 6.6.2, 7.1.0, 7.2.0"
    [INFO] "application/json" "application/json" true undefined ["Content-Type"]
    "#);
    assert_eq!(
        (count(&function, "curl_success_count"), count(&function, "curl_failure_count")),
        (14.0, 5.0)
    );
}

#[test]
fn builtins_compute_documented_results() {
    insta::assert_snapshot!(told(
        "attempt(() => crc64({a: 1})); attempt(() => couchbase.crc_64_go_iso('123456789'));
         attempt(() => couchbase.base64Encode('Hello')); attempt(() => couchbase.base64Decode('SGVsbG8='));
         attempt(() => couchbase.base64Decode('??')); attempt(() => couchbase.base64Float32EncodeArray([1, 2.5]));
         attempt(() => couchbase.base64Float32DecodeArray('AACAPwAAIEA=')); attempt(() => couchbase.base64Float64DecodeArray(couchbase.base64Float64EncodeArray([0.1])));
         attempt(() => couchbase.base64Float64ArrayDecode(couchbase.base64Float64ArrayEncode([0.1])));
         attempt(() => couchbase.crc_64_go_iso(undefined)); attempt(() => couchbase.crc_64_go_iso(Symbol()));
         attempt(() => couchbase.analyticsQuery('x')); attempt(() => Date.now()); attempt(() => Math.random() < 1 && Math.random() !== Math.random());"
    ), @r#"
    "24236c2ac47ad1c0"
    "b90956c775a41001"
    "SGVsbG8="
    "Hello"
    "Error: this is not base64"
    "AACAPwAAIEA="
    [1,2.5]
    [0.1]
    [0.1]
    "fcd0dd899002d36d"
    "fcd0dd899002d36d"
    "AnalyticsError: there is no such service here"
    1700000000000
    true
    "#);
}

/// A query service with three users, which fails temporarily for the statement `away`.
fn users(statement: &query::Statement) -> Result<Vec<String>, query::Failure> {
    let query::Statement { text, parameters, is_fresh } = statement;
    let failure =
        |code, message: &str, retry| Err(query::Failure { code, message: message.into(), retry });
    match &text[..] {
        "users" => Ok((1..=3).map(|n| json!({"n": n}).to_string()).collect()),
        "none" => Ok(Vec::new()),
        "echo" => Ok(vec![json!([parameters, is_fresh]).to_string()]),
        "away" => failure(12015, "away", true),
        text if text.starts_with("SELECT") => Ok(vec![json!([text, parameters]).to_string()]),
        _ => failure(3000, "syntax error - line 1, column 1", false),
    }
}

fn queried(code: &str) -> (String, Harness<Program>) {
    let mut function = function(&format!("function OnUpdate(doc, meta) {{ {code} }}"));
    function.on_query(users);
    assert_eq!(function.put("k", "{}").feed().unwrap(), []);
    (log(&function).replace("[INFO] ", ""), function)
}

#[test]
fn rows_of_a_query_are_read_one_by_one_and_closed_when_a_loop_ends_early() {
    let (told, function) = queried("for (const row of N1QL('users')) log(row.n)");
    assert_eq!((told.as_str(), function.open_queries()), ("1\n2\n3", 0));
    let (told, function) = queried("for (const row of N1QL('users')) { log(row.n); break }");
    assert_eq!((told.as_str(), function.open_queries()), ("1", 0));
    let (told, function) = queried(
        "const rows = N1QL('users'); log(rows.next().value.n); rows.close(); log([...rows])",
    );
    assert_eq!((told.as_str(), function.open_queries()), ("1\n[]", 0));
}

#[test]
fn queries_with_unread_rows_end_with_their_handler() {
    let mut function = function(
        "function OnUpdate(doc, meta) { N1QL('none'); N1QL('users'); if (meta.id === 'b') throw new Error('no') }",
    );
    function.on_query(users);
    for id in ["a", "b"] {
        let errors = function.put(id, "{}").feed().unwrap();
        assert_eq!((errors.len(), function.open_queries()), (usize::from(id == "b"), 0));
    }
}

#[test]
fn parameters_and_consistency_reach_the_query() {
    let (told, _) = queried(
        "const echo = (...rest) => { try { log(...N1QL('echo', ...rest)) } catch (e) { log(String(e)) } };
         echo(); echo({a: 1, $b: [2]}); echo([1, 'x'], {consistency: 'request'}); echo(null, {consistency: 'none'});
         echo(5); echo({}, {consistency: 'eventual'}); try { N1QL(7) } catch (e) { log(String(e)) }",
    );
    insta::assert_snapshot!(told, @r#"
    ["",false]
    ["{\"a\":1,\"b\":[2]}",false]
    ["[1,\"x\"]",true]
    ["",false]
    "TypeError: the parameters of a query are an object or an array"
    "TypeError: the consistency of N1QL is \"none\" or \"request\""
    "TypeError: N1QL needs a statement as a string"
    "#);
}

#[test]
fn queries_of_older_versions_have_all_rows_at_once_or_one_after_the_other() {
    let (told, function) = queried(
        "const go = (...rest) => { try { log(...new N1qlQuery(...rest).execQuery()) } catch (e) { log(String(e)) } };
         const all = new N1qlQuery('users').execQuery(); log(Array.isArray(all), all.length);
         for (const row of new N1qlQuery('users')) { log(row.n); break }
         go('echo'); go('echo', {namedParams: {$a: 1}, posParams: []});
         go('echo', {posParams: [1], isPrepared: true, consistency: 'request'});
         go(7); go('echo', {colour: 1}); go('echo', {namedParams: {a: 1}, posParams: [1]});
         go('echo', {consistency: 'eventual'}); go('SELEC');",
    );
    insta::assert_snapshot!(told, @r#"
    true 3
    1
    ["",false]
    ["{\"a\":1}",false]
    ["[1]",true]
    "TypeError: N1qlQuery needs a statement as a string"
    "TypeError: N1qlQuery has no option colour"
    "TypeError: the parameters of N1qlQuery have names or positions, not both"
    "TypeError: the consistency of N1qlQuery is \"none\" or \"request\""
    "N1QLError: syntax error - line 1, column 1"
    "#);
    assert_eq!(function.open_queries(), 0);
}

#[test]
fn query_errors_are_thrown_with_their_code() {
    let (told, function) = queried(
        "try { N1QL('SELEC') } catch (e) { log(e instanceof N1QLError, e.name, e.code, e.message, e.errors) }",
    );
    insta::assert_snapshot!(told, @r#"true "N1QLError" 3000 "syntax error - line 1, column 1" [{"code":3000,"message":"syntax error - line 1, column 1"}]"#);
    assert_eq!(count(&function, "n1ql_op_exception_count"), 1.0);
    // An uncaught temporary error makes the host repeat the batch.
    let mut function = crate::fixture::function("function OnUpdate() { N1QL('away') }");
    function.on_query(users);
    let fault = function.put("k", "{}").feed().unwrap_err();
    assert!(matches!(fault, nacre_plugin::Fault::Retry(_)), "{fault}");
}

#[test]
fn a_statement_within_code_is_a_query_with_variables_as_parameters() {
    let (told, _) = queried(
        "var city = 'Bern';\n var rows = SELECT name FROM users\n WHERE city = $city;\n for (const row of rows) log(row); rows.close();",
    );
    insta::assert_snapshot!(told, @r#"["SELECT name FROM users\n WHERE city = $city","{\"city\":\"Bern\"}"]"#);
}

#[test]
fn errors_in_embedded_statements_are_reported_with_errors_in_the_code() {
    insta::assert_snapshot!(refusal("function OnUpdate(doc) {\n  var r = SELECT * FRM b WHERE x = $doc.x;\n}"), @r#"SyntaxError: expecting ';': as SQL++, syntax error - line 1, column 10, at: FRM (expected the end of the statement) (line 2, column 24)"#);
    insta::assert_snapshot!(refusal("function OnUpdate(doc) {\n  SELECT * FROM b\n}"), @r#"SyntaxError: expecting ';': as SQL++, a statement ends with ; (line 2, column 17)"#);
    insta::assert_snapshot!(refusal("function OnUpdate(doc) {\n  delete doc..x;\n}"), @"SyntaxError: expecting field name (line 2, column 14)");
}

#[test]
fn a_redirected_post_becomes_a_get_and_a_body_that_is_not_json_is_text() {
    let mut function = function(
        "function OnUpdate(doc, meta) {
            for (const path of ['301', '303', '307']) log(curl('POST', server, { path, body: { n: 1 } }).body);
            log(curl('GET', server, { path: 'broken' }), 10n);
        }",
    );
    function.on_http(|request| {
        let path = request.url.split("/base/").nth(1).unwrap_or_default();
        let (status, body) = match path.parse() {
            Ok(status) => (status, String::new()),
            Err(_) if path == "broken" => (502, "<html>".to_owned()),
            Err(_) => {
                let body = String::from_utf8_lossy(&request.body);
                (200, json!([request.method, body, request.headers.len()]).to_string())
            }
        };
        let headers = [("Content-Type", "application/json"), ("Location", "/base/moved")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(http::Response { status, headers: headers.into(), body: body.into() })
    });
    assert_eq!(function.put("k", "{}").feed().unwrap(), []);
    insta::assert_snapshot!(log(&function), @r#"
    [INFO] ["GET","",1]
    [INFO] ["GET","",1]
    [INFO] ["POST","{\"n\":1}",2]
    [INFO] {"status":502,"headers":{"Content-Type":"application/json","Location":"/base/moved"},"body":"<html>"} 10
    "#);
}

#[test]
fn operations_on_attributes_may_come_in_any_order() {
    let mut function = function(
        "function OnUpdate(doc, meta) {
            const [write, read] = [couchbase.MutateInSpec, couchbase.LookupInSpec];
            const attribute = { create_path: true, xattrs: true };
            dst.d = { n: 1 };
            log(couchbase.mutateIn(dst, { id: 'd' }, [write.upsert('n', 2), write.upsert('a.b', 3, attribute)]).success);
            const specs = [read.get('n'), read.get('a.b', { xattrs: true }), read.get('none'), read.get('a', { xattrs: true })];
            log(couchbase.lookupIn(dst, { id: 'd' }, specs).doc.map(({ value, success }) => [value, success]));
        }",
    );
    assert_eq!(function.put("k", "{}").feed().unwrap(), []);
    assert_eq!(
        log(&function),
        "[INFO] true\n[INFO] [[2,true],[3,true],[null,false],[{\"b\":3},true]]"
    );
}

/// Creates a function whose server requires digest authentication and sends cookies.
fn of_server(source: &str, more: &Value) -> Harness<Program> {
    let mut config = config(source);
    let mut server = json!({"alias": "server", "url": "http://server:81/base"});
    server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config["urls"] = json!([server]);
    Harness::new(&config.to_string()).unwrap()
}

#[test]
fn a_server_that_asks_for_a_digest_gets_one() {
    let login = json!({"digest": {"user": "ann", "password": "secret"}});
    let code = "function OnUpdate(doc, meta) {
        const r = curl('POST', server, {path: 'p?q=1', body: {n: 1}});
        log(r.status, r.body); log(curl('GET', server, {path: 'open'}).body);
        log(curl('GET', server, {path: 'away'}).status);
    }";
    let mut function = of_server(code, &login);
    function.on_http(|request| {
        let sent = request.headers.iter().find(|(name, _)| name == "authorization");
        let sent = sent.map(|(_, value)| value.clone()).unwrap_or_default();
        let answer = |status, headers: &[(&str, &str)], body: String| http::Response {
            status,
            headers: headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            body: body.into(),
        };
        let challenge = [
            ("www-authenticate", "Basic realm=\"r\""),
            ("www-authenticate", "Digest realm=\"r\", nonce=\"n\", qop=\"auth\""),
        ];
        let wants = !request.url.ends_with("/open");
        if request.url.ends_with("/away") {
            return Ok(answer(302, &[("location", "http://other:1/x")], String::new()));
        }
        if wants && sent.is_empty() {
            return Ok(answer(401, &challenge, String::new()));
        }
        let body = String::from_utf8_lossy(&request.body);
        let is_digest = sent.starts_with(
            "Digest username=\"ann\", realm=\"r\", nonce=\"n\", uri=\"/base/p?q=1\", response=\"",
        );
        let said = format!("{} {body} {is_digest} {}", request.method, sent.contains("secret"));
        Ok(answer(200, &[("content-type", "text/plain")], said))
    });
    assert_eq!(function.put("k", "{}").feed().unwrap(), []);
    // The digest is only sent to the server of the binding.
    insta::assert_snapshot!(log(&function), @r#"
    [INFO] 200 "POST {\"n\":1} true false"
    [INFO] "GET  false false"
    [INFO] 401
    "#);
}

#[test]
fn cookies_are_sent_to_their_paths() {
    let code = "function OnUpdate(doc, meta) {
        for (const path of ['bake', '', 'deep/er', 'deeper', 'eat', '']) log(curl('GET', server, {path}).body);
        log(curl('GET', server, {headers: {Cookie: 'own=1'}}).body);
    }";
    let cookies = |allowed: bool| {
        let mut function = of_server(code, &json!({ "cookies": allowed }));
        function.on_http(|request| {
            let sent = request.headers.iter().find(|(name, _)| name == "cookie");
            let sent = sent.map(|(_, value)| value.clone()).unwrap_or_default();
            let lines: &[&str] = match request.url.split("/base").nth(1).unwrap_or_default() {
                "/bake" => &[
                    "a=1; Path=/; HttpOnly",
                    "b=2; path=/base/deep",
                    "c=3; Max-Age=0",
                    "d=4; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
                    "no cookie",
                    "=5",
                ],
                "/eat" => &["a=gone; Path=/; Max-Age=-1"],
                _ => &[],
            };
            let kind = ("content-type".to_owned(), "text/plain".to_owned());
            let lines = lines.iter().map(|line| ("set-cookie".to_owned(), (*line).to_owned()));
            let headers = std::iter::once(kind).chain(lines).collect();
            Ok(http::Response { status: 200, headers, body: format!("<{sent}>").into() })
        });
        assert_eq!(function.put("k", "{}").feed().unwrap(), []);
        log(&function)
    };
    insta::assert_snapshot!(cookies(true), @r#"
    [INFO] "<>"
    [INFO] "<a=1>"
    [INFO] "<a=1; b=2>"
    [INFO] "<a=1>"
    [INFO] "<a=1>"
    [INFO] "<>"
    [INFO] "<own=1>"
    "#);
    insta::assert_snapshot!(cookies(false), @r#"
    [INFO] "<>"
    [INFO] "<>"
    [INFO] "<>"
    [INFO] "<>"
    [INFO] "<>"
    [INFO] "<>"
    [INFO] "<own=1>"
    "#);
}
