//! Endpoints that query indexes: queries, counts, and the analysis of a document.

use crate::access::{self, Named};
use crate::definition::{self, Control, Definition};
use crate::error::{Failure, ok};
use crate::{Outcome, Search};
use nacre_node::Node;
use nacre_node::service::{HttpReply, HttpRequest};
use nacre_plugins_service::{
    AbsentPart, Missing, NodePlugins, PartialAnswer, Terms, await_deployment, request_all,
};
use nacre_sandbox::{Purpose, Request, Response};
use nacre_types::{Seqno, Vbid};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Default timeout of a query, in milliseconds.
const TIMEOUT_MS_DEFAULT: u64 = 10_000;
/// Maximum timeout of a query.
const TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// Header of requests whose first round collects synonyms.
const SYNONYMS: &str = "nacre-synonyms";
/// Longest time that a request waits until a new index is open.
const OPENING_PATIENCE: Duration = Duration::from_secs(60);

/// The part of a query that the service itself reads; the component reads all of it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Envelope {
    ctl: Option<Ctl>,
    /// The service does not interpret its elements.
    knn: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ctl {
    timeout: Option<i64>,
    consistency: Option<Consistency>,
}

/// Value of `results` in a consistency: the answer must contain all partitions.
const COMPLETE: &str = "complete";

#[derive(Deserialize, Default)]
#[serde(default)]
struct Consistency {
    level: Option<String>,
    vectors: Option<BTreeMap<String, BTreeMap<String, u64>>>,
    results: Option<String>,
}

/// The required consistency of a query's answer, and its timeout.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Demand {
    /// True if the answer must reflect all earlier writes.
    pub is_fresh: bool,
    /// Minimum seqnos that the answer must reflect, by name of the index.
    pub vectors: BTreeMap<String, Vec<(Vbid, Seqno)>>,
    /// Timeout of the answer.
    pub patience: Duration,
    /// Number of rounds over all nodes that the answer may need; 0 for an answer that fails if any node is missing.
    pub rounds: u32,
    /// True if the request fails when the answer lacks the part of some node.
    pub is_complete: bool,
}

impl Demand {
    /// Reads the member `ctl` of a query. A body that is not a query at all is left to the component.
    fn read(body: &[u8]) -> Result<Demand, Failure> {
        let envelope: Envelope = match serde_json::from_slice(body) {
            Ok(envelope) => envelope,
            Err(error) if error.is_data() => {
                return Err(Failure::bad_request(format!("parsing searchRequest, err: {error}")));
            }
            Err(_) => Envelope::default(),
        };
        let ctl = envelope.ctl.unwrap_or_default();
        let timeout = match ctl.timeout {
            None => Duration::from_millis(TIMEOUT_MS_DEFAULT),
            Some(ms) if ms <= 0 => TIMEOUT_MAX,
            Some(ms) => Duration::from_millis(ms.unsigned_abs()),
        };
        // The first round finds the nearest neighbours on all nodes.
        let rounds = if envelope.knn.is_some() { 2 } else { 1 };
        let patience = timeout.min(TIMEOUT_MAX);
        let mut demand = Demand { patience, rounds, ..Demand::default() };
        let consistency = ctl.consistency.unwrap_or_default();
        demand.is_complete = consistency.results.as_deref() == Some(COMPLETE);
        let vectors = consistency.vectors.unwrap_or_default();
        match consistency.level.as_deref().unwrap_or_default() {
            "" | "not_bounded" => {}
            "scan_plus" if vectors.is_empty() => demand.is_fresh = true,
            "scan_plus" => {
                let text = "scan_plus consistency does not take vectors";
                return Err(Failure::bad_request(text));
            }
            "at_plus" => {
                for (index, vector) in vectors {
                    let seqnos = vector.iter().map(|(key, seqno)| entry(key, *seqno));
                    demand.vectors.insert(index, seqnos.collect::<Result<_, _>>()?);
                }
            }
            other => {
                let text = format!("unsupported consistency level: {other}");
                return Err(Failure::bad_request(text));
            }
        }
        Ok(demand)
    }

    /// Returns the seqnos that the part of `definition` must reflect. Clients name an index with or without its scope.
    fn seqnos(&self, asked: &Definition, definition: &Definition) -> Vec<(Vbid, Seqno)> {
        let names = [definition.short_name(), &definition.name, asked.short_name(), &asked.name];
        names.iter().find_map(|name| self.vectors.get(*name)).cloned().unwrap_or_default()
    }

    fn is_consistent(&self) -> bool {
        self.is_fresh || !self.vectors.is_empty()
    }
}

/// Parses an entry of a vector: `vb` or `vb/uuid`.
fn entry(key: &str, seqno: u64) -> Result<(Vbid, Seqno), Failure> {
    let number = key.split('/').next().unwrap_or_default();
    let vbid = number.parse().map_err(|_| {
        Failure::bad_request(format!("malformed consistency vector, partition: {key:?}"))
    })?;
    Ok((Vbid(vbid), Seqno(seqno)))
}

/// `POST …/query`.
pub(crate) fn query(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    let definition = access::readable(node, request, named)?;
    let begun_ns = node.now().monotonic_ns;
    let took = || Duration::from_nanos(node.now().monotonic_ns.saturating_sub(begun_ns));
    let words = format!("rest_index: Query, indexName: {}, err: ", definition.name);
    let outcome = Demand::read(&request.body).and_then(|demand| {
        ask(node, &request.user, &definition, &demand, asked("/query", &request.body))
    });
    Search::of(node).count(took(), outcome.is_err());
    let mut reply = outcome.map_err(|failure| failure.within(&words))?;
    // Parsing a long answer only to insert a number would cost as much as creating it.
    if let Some(rest) = reply.body.strip_prefix(b"{") {
        let head = format!("{{\"took\":{},", took().as_nanos());
        reply.body = [head.as_bytes(), rest].concat();
    }
    Ok(reply)
}

/// `GET …/count`: returns the number of documents in the index.
pub(crate) fn count(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    let definition = access::readable(node, request, named)?;
    Ok(ok(json!({"count": documents(node, request, &definition)?})))
}

/// Returns the number of documents in an index, or in the targets of an alias.
pub(crate) fn documents(
    node: &Arc<Node>,
    request: &HttpRequest,
    definition: &Definition,
) -> Result<u64, Failure> {
    let body = json!({"query": {"match_all": {}}, "size": 0, "score": "none"}).to_string();
    let patience = Duration::from_millis(TIMEOUT_MS_DEFAULT);
    let demand = Demand { patience, ..Demand::default() };
    let reply = ask(node, &request.user, definition, &demand, asked("/query", body.as_bytes()))?;
    let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    answer["total_hits"].as_u64().ok_or_else(|| Failure::new(500, "the index has no count"))
}

/// `POST …/analyzeDoc`: returns the terms of a document.
pub(crate) fn analyze(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    let definition = access::readable(node, request, named)?;
    if definition.is_alias() {
        return Err(Failure::bad_request("an alias analyzes no documents: name its target"));
    }
    let patience = Duration::from_millis(TIMEOUT_MS_DEFAULT);
    let demand = Demand { patience, ..Demand::default() };
    ask(node, &request.user, &definition, &demand, asked("/analyzeDoc", &request.body))
}

fn asked(path: &str, body: &[u8]) -> Request {
    Request { path: path.into(), body: body.to_vec(), ..Request::default() }
}

/// Queries the deployments of an index, or of an alias's targets, on behalf of a user, and merges their answers.
pub(crate) fn ask(
    node: &Arc<Node>,
    user: &str,
    definition: &Definition,
    demand: &Demand,
    asked: Request,
) -> Result<HttpReply, Failure> {
    let targets = access::targets(&node.cluster(), definition)?;
    if targets.is_empty() {
        return Err(Failure::bad_request("cannot perform operation on empty alias"));
    }
    if let Some(target) = targets.iter().find(|target| !target.is_allowed(Control::Query)) {
        let text = format!("queries are disallowed for the index: {}", target.name);
        return Err(Failure::bad_request(text));
    }
    for target in &targets {
        let name = definition::deployment(&target.name);
        if await_deployment(node, &name, OPENING_PATIENCE).is_none() {
            let text = format!("no planPIndexes for indexName: {}", target.name);
            return Err(Failure::bad_request(text));
        }
    }
    let named: Vec<(String, Vec<(Vbid, Seqno)>)> = targets
        .iter()
        .map(|target| (definition::deployment(&target.name), demand.seqnos(definition, target)))
        .collect();
    // One node analyzes the document, so any vBucket will do.
    let is_analysis = asked.path == "/analyzeDoc";
    let has_synonyms = targets.iter().any(Definition::has_synonyms);
    let rounds = if has_synonyms { demand.rounds.max(2) } else { demand.rounds };
    let terms = Terms {
        vbids: is_analysis.then(|| [Vbid(0)].into_iter().collect()),
        fresh: demand.is_fresh,
        seqnos: Vec::new(),
        updates: false,
        patience: demand.patience,
        account: node.memory().budgets().of_user(nacre_auth::person(user)),
        partial: (demand.rounds > 0).then_some(PartialAnswer { part: part_of_absent, rounds }),
    };
    let mut memory = terms.account.permit(Purpose::Answer);
    let mut asked = Request { method: "POST".into(), ..asked };
    if has_synonyms {
        asked.headers.push((SYNONYMS.to_owned(), "1".to_owned()));
    }
    let answer = request_all(node, &named, &asked, &terms);
    let mut answer = answer.map_err(|missing| unanswered(node, &missing, demand, &named))?;
    let mut body = Vec::new();
    loop {
        match answer.next_piece() {
            Ok(Some(piece)) => {
                let taken = memory.grow(piece.len());
                taken.map_err(|why| Failure::new(503, why.to_string()))?;
                body.extend(piece);
            }
            Ok(None) => break,
            Err(reason) => return Err(Failure::new(500, reason)),
        }
    }
    match answer.head().0 {
        200 if demand.is_complete && has_failed(&body) => {
            Err(Failure::new(504, "query consistency requirement not met"))
        }
        200 => Ok(HttpReply { status: 200, content_type: "application/json", body }),
        status => {
            let refusal: Value = serde_json::from_slice(&body).unwrap_or_default();
            let text = refusal["error"].as_str().unwrap_or("the index does not answer");
            Err(Failure::new(status, text))
        }
    }
}

/// Returns the part that replaces that of a missing node, in the format of the search component.
fn part_of_absent(absent: &AbsentPart<'_>) -> Response {
    let index = definition::index_of(absent.deployment);
    let text = match absent.why {
        Missing::TimedOut(_) => "context deadline exceeded".to_owned(),
        Missing::NotYet(reason) => format!("pindex not available: {reason}"),
        why => why.to_string(),
    };
    let part = json!({"Failed": [format!("{index}@{}", absent.node), 504, text]});
    Response { status: 200, headers: Vec::new(), body: part.to_string().into_bytes() }
}

/// Returns true if the answer lacks the part of some partition.
fn has_failed(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        failed: u64,
    }
    serde_json::from_slice(body).is_ok_and(|answer: Answer| answer.status.failed > 0)
}

/// Returns the error when there is no answer. `named` lists the queried deployments, and the seqnos that each must
/// reflect.
fn unanswered(
    node: &Node,
    missing: &Missing,
    demand: &Demand,
    named: &[(String, Vec<(Vbid, Seqno)>)],
) -> Failure {
    match missing {
        Missing::Late | Missing::Stopped(_) if demand.is_consistent() => {
            let mut behind = serde_json::Map::new();
            for (deployment, seqnos) in named {
                let Some(deployment) = node.plugins().deployment(deployment) else { continue };
                let known = deployment.vbids().count();
                for (vbid, wanted) in seqnos.iter().filter(|(vbid, _)| vbid.index() < known) {
                    let reached = deployment.processed.get(*vbid);
                    if reached < *wanted {
                        behind.insert(vbid.0.to_string(), json!([reached.0, wanted.0]));
                    }
                }
            }
            let why = match missing {
                Missing::Stopped(reason) => format!("the index takes no changes: {reason}"),
                _ => "the index has not reached the seqnos in time".to_owned(),
            };
            let status = json!({
                "status": "pindex consistency wait",
                "message": format!("pindex_consistency mismatched partition: {why}"),
                "startEndSeqs": behind,
            });
            Failure::new(412, status.to_string())
        }
        Missing::Late | Missing::NotOwner | Missing::TimedOut(_) => {
            Failure::new(504, "query request timeout")
        }
        Missing::NotYet(reason) => {
            Failure::bad_request(format!("no planPIndexes for indexName: {reason}"))
        }
        Missing::NoMemory(_) => Failure::new(429, "query request rejected"),
        Missing::Stopped(reason) | Missing::Failed(reason) => Failure::new(500, reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<Demand, String> {
        let read = Demand::read(body.to_string().as_bytes());
        read.map_err(|failure| failure.error.as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn vectors_name_an_index_and_its_partitions() {
        let vectors = json!({"i": {"7/123": 3, "9": 1}});
        let ctl = json!({"timeout": 75, "consistency": {"level": "at_plus", "vectors": vectors}});
        let demand = read(&json!({"query": {}, "ctl": ctl})).unwrap();
        assert_eq!(demand.patience, Duration::from_millis(75));
        let expected = vec![(Vbid(7), Seqno(3)), (Vbid(9), Seqno(1))];
        assert_eq!(demand.vectors["i"], expected);
        let index = Definition::new("b.s.i", "u", "0", serde_json::Map::new());
        assert_eq!(demand.seqnos(&index, &index), expected);
        let other = Definition::new("b.s.j", "u", "0", serde_json::Map::new());
        assert!(demand.seqnos(&other, &other).is_empty());
    }

    #[test]
    fn a_query_without_control_waits_ten_seconds() {
        let patience = Duration::from_secs(10);
        let expected = Demand { patience, rounds: 1, ..Demand::default() };
        for body in [json!({}), json!({"ctl": null}), json!({"ctl": {"consistency": null}})] {
            assert_eq!(read(&body).as_ref(), Ok(&expected), "{body}");
        }
        assert_eq!(Demand::read(b"{no").as_ref(), Ok(&expected), "the component refuses it");
        assert_eq!(read(&json!({"ctl": {"timeout": 0}})).unwrap().patience, TIMEOUT_MAX);
        assert!(read(&json!({"ctl": {"consistency": {"level": "scan_plus"}}})).unwrap().is_fresh);
    }

    #[test]
    fn a_query_sets_whether_partial_answers_are_allowed() {
        let of = |results: Value| {
            read(&json!({"knn": [{}], "ctl": {"consistency": {"results": results}}})).unwrap()
        };
        assert_eq!((of(Value::Null).is_complete, of(Value::Null).rounds), (false, 2));
        assert!(of(json!("complete")).is_complete && !of(json!("")).is_complete);
        assert!(has_failed(br#"{"hits":[],"status":{"total":2,"failed":1}}"#));
        assert!(!has_failed(br#"{"hits":[],"status":{"total":2,"failed":0}}"#));
    }

    #[test]
    fn the_part_of_an_absent_node_names_the_node_and_the_reason() {
        let text = |why: &Missing| {
            let deployment = definition::deployment("b.s.i");
            let absent = AbsentPart { deployment: &deployment, node: "h:9", why };
            String::from_utf8(part_of_absent(&absent).body).unwrap()
        };
        let late = text(&Missing::TimedOut("no answer".into()));
        assert_eq!(late, r#"{"Failed":["b.s.i@h:9",504,"context deadline exceeded"]}"#);
        let unreached = text(&Missing::NotYet("refused".into()));
        assert!(unreached.contains("pindex not available: refused"), "{unreached}");
    }

    #[test]
    fn unsupported_consistency_is_refused() {
        let of = |level: &str, vectors: Value| {
            read(&json!({"ctl": {"consistency": {"level": level, "vectors": vectors}}}))
        };
        assert!(of("later", json!({})).unwrap_err().contains("unsupported consistency level"));
        assert!(of("at_plus", json!({"i": {"x": 1}})).unwrap_err().contains("malformed"));
        assert!(of("at_plus", json!({"i": 7})).unwrap_err().contains("parsing searchRequest"));
        assert!(of("scan_plus", json!({"i": {}})).unwrap_err().contains("scan_plus"));
    }
}
