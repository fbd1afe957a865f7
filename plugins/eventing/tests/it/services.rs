//! Queries that other services answer.

use crate::fixture::*;
use nacre_eventing::Program;
use nacre_plugin::query;
use nacre_plugin::testing::Harness;
use serde_json::json;

/// Services that record their requests. One search has three hits, and one statement is refused.
fn services(
    service: query::Service,
    statement: &query::Statement,
) -> Result<Vec<String>, query::Failure> {
    let query::Statement { text, parameters, is_fresh } = statement;
    let failure =
        |code, message: &str, retry| Err(query::Failure { code, message: message.into(), retry });
    match (service, &text[..]) {
        (query::Service::Search, "hits") => {
            Ok((1..=3).map(|n| json!({"id": format!("d{n}")}).to_string()).collect())
        }
        (query::Service::Search, "none") => failure(400, "index not found", false),
        (query::Service::Analytics, "SELEC") => failure(24000, "Syntax error", false),
        (query::Service::Analytics, "away") => failure(23000, "it is starting", true),
        _ => Ok(vec![json!([format!("{service:?}"), text, parameters, is_fresh]).to_string()]),
    }
}

fn asked(code: &str) -> (String, Harness<Program>) {
    let mut function = function(&format!(
        "function OnUpdate(doc, meta) {{ const go = (work) => {{ try {{ log(...work()) }} catch (e) {{ log(`${{e.name}}: ${{e.message}}`) }} }};\n{code} }}"
    ));
    function.on_query_at(services);
    assert_eq!(function.put("k", "{}").feed().unwrap(), []);
    (log(&function).replace("[INFO] ", ""), function)
}

#[test]
fn statements_reach_analytics_with_their_parameters() {
    let (told, _) = asked(
        "go(() => couchbase.analyticsQuery('SELECT 1'));
         go(() => couchbase.analyticsQuery('SELECT $a', {$a: 1}));
         go(() => couchbase.analyticsQuery('SELECT ?', [1], {consistency: 'request'}));
         go(() => couchbase.analyticsQuery('SELECT 1', null, {colour: 1}));
         go(() => couchbase.analyticsQuery('SELECT 1', null, {consistency: 'soon'}));
         go(() => couchbase.analyticsQuery(1));
         go(() => couchbase.analyticsQuery('SELEC'));
         try { couchbase.analyticsQuery('SELEC') } catch (e) { log(e instanceof AnalyticsError, e.code, e.errors) }",
    );
    insta::assert_snapshot!(told, @r#"
    ["Analytics","SELECT 1","",false]
    ["Analytics","SELECT $a","{\"a\":1}",false]
    ["Analytics","SELECT ?","[1]",true]
    "TypeError: couchbase.analyticsQuery has no option colour"
    "TypeError: the consistency of couchbase.analyticsQuery is \"none\" or \"request\""
    "TypeError: couchbase.analyticsQuery needs a statement as a string"
    "AnalyticsError: Syntax error"
    true 24000 [{"code":24000,"message":"Syntax error"}]
    "#);
}

#[test]
fn a_batch_is_repeated_after_a_temporary_failure_of_a_service() {
    let mut function = function("function OnUpdate() { couchbase.analyticsQuery('away') }");
    function.on_query_at(services);
    let fault = function.put("k", "{}").feed().unwrap_err();
    assert!(matches!(fault, nacre_plugin::Fault::Retry(_)), "{fault}");
}

#[test]
fn hits_are_read_one_by_one_and_closed_when_a_loop_ends_early() {
    let all = "couchbase.SearchQuery.matchAll()";
    let (told, function) =
        asked(&format!("for (const hit of couchbase.searchQuery('hits', {all})) log(hit.id)"));
    assert_eq!((told.as_str(), function.open_queries()), ("\"d1\"\n\"d2\"\n\"d3\"", 0));
    let (told, function) = asked(&format!(
        "for (const hit of couchbase.searchQuery('hits', {all})) {{ log(hit.id); break }}"
    ));
    assert_eq!((told.as_str(), function.open_queries()), ("\"d1\"", 0));
}

#[test]
fn searches_reach_their_service_with_their_options() {
    let (told, _) = asked(
        "const {SearchQuery, searchQuery} = couchbase;
         go(() => searchQuery('i', {match_none: {}}));
         go(() => searchQuery('b.s.i', SearchQuery.matchAll(), {size: 2, skip: 1, fields: ['*'], consistency: 'request'}));
         const near = SearchQuery.vectorQuery('v', [1, 2]).numCandidates(5);
         go(() => searchQuery('i', SearchQuery.matchNone(), {vectorSearch: SearchQuery.vectorSearch(near)}));
         go(() => searchQuery('i', {}, {colour: 1}));
         go(() => searchQuery('', {}));
         go(() => searchQuery('i', 'word'));
         go(() => searchQuery('none', {}));",
    );
    insta::assert_snapshot!(told, @r#"
    ["Search","i","{\"query\":{\"match_none\":{}}}",false]
    ["Search","b.s.i","{\"from\":1,\"size\":2,\"fields\":[\"*\"],\"query\":{\"match_all\":{}}}",true]
    ["Search","i","{\"knn\":[{\"field\":\"v\",\"vector\":[1,2],\"k\":5}],\"query\":{\"match_none\":{}}}",false]
    "TypeError: couchbase.searchQuery has no option colour"
    "TypeError: couchbase.searchQuery needs the name of an index"
    "TypeError: couchbase.searchQuery needs a query as an object"
    "SearchError: index not found"
    "#);
}

#[test]
fn parts_of_searches_become_the_json_of_the_service() {
    let (told, _) = asked(
        "const s = couchbase.SearchQuery;
         log(s.match('a b').operator('and').field('f').analyzer('en').fuzziness(2).prefixLength(4).boost(2));
         log(s.matchPhrase('a b').field('f'), s.term('a').field('f'), s.phrase('a', 'b').field('f'), s.prefix('a').field('f'));
         log(s.regexp('a.+').field('f'), s.wildcard('a*'), s.queryString('+a -b'), s.booleanField(true).field('f'));
         log(s.docIds('a', 'b'), s.docIds(['a']), s.matchAll(), s.matchNone());
         log(s.numericRange().min(4, true).max(5).field('n'), s.termRange().max('b', false));
         log(s.dateRange().start('2020-01-01').end('2021-01-01', true).dateTimeParser('p').field('d'));
         log(s.conjuncts(s.term('a'), s.term('b')).and(s.term('c')), s.disjuncts([s.term('a')]).or(s.term('b')).min(2));
         log(s.boolean().must(s.conjuncts(s.term('a'))).should(s.term('b'), s.term('c')).mustNot(s.term('d')));
         log(s.geoDistance(1, 2, '3km').field('g'), s.geoBoundingBox(1, 4, 3, 2), s.geoPolygon([[0, 0], [0, 1], [1, 0]]));",
    );
    insta::assert_snapshot!(told, @r#"
    {"match":"a b","operator":"and","field":"f","analyzer":"en","fuzziness":2,"prefix_length":4,"boost":2}
    {"match_phrase":"a b","field":"f"} {"term":"a","field":"f"} {"terms":["a","b"],"field":"f"} {"prefix":"a","field":"f"}
    {"regexp":"a.+","field":"f"} {"wildcard":"a*"} {"query":"+a -b"} {"bool":true,"field":"f"}
    {"ids":["a","b"]} {"ids":["a"]} {"match_all":{}} {"match_none":{}}
    {"min":4,"inclusive_min":true,"max":5,"field":"n"} {"max":"b","inclusive_max":false}
    {"start":"2020-01-01","end":"2021-01-01","inclusive_end":true,"datetime_parser":"p","field":"d"}
    {"conjuncts":[{"term":"a"},{"term":"b"},{"term":"c"}]} {"disjuncts":[{"term":"a"},{"term":"b"}],"min":2}
    {"must":{"conjuncts":[{"term":"a"}]},"should":{"disjuncts":[{"term":"b"},{"term":"c"}]},"must_not":{"disjuncts":[{"term":"d"}]}}
    {"location":[1,2],"distance":"3km","field":"g"} {"top_left":[1,4],"bottom_right":[3,2]} {"polygon_points":[[0,0],[0,1],[1,0]]}
    "#);
}
