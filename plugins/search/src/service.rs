//! The index of a partition as a service: it indexes batches of changes and answers requests.
//!
//! Configuration: `{"name": INDEX, "partition": NAME, "seed": NUMBER, "params": PARAMS, "scope": SCOPE, "collections": {"8": "red"},
//! "new": true}`. `new` is there if the definition is not stored yet: what only earlier versions accepted is then refused.
//! `params` is that of the index definition. `collections` names the collections by their IDs in hexadecimal; it is absent if the feed
//! contains documents of one collection only. `partition` is the member `index` of hits. `seed` distinguishes the partitions of an
//! index.
//!
//! State: `meta` contains the last commit as JSON. The store contains the blobs that the commit names. `gone` lists the vBuckets whose
//! documents are still in the index although they were removed: they are hidden at once, and the next batch or timer deletes the
//! documents of all of them in one commit. When a node leaves a cluster, hundreds of vBuckets are removed one by one, and a commit of the
//! index for each took a minute.
//!
//! | request | body | answer |
//! | --- | --- | --- |
//! | `POST /query` | a search request | a search response without `took`; for a part, a [`Partial`] |
//! | `GET /count` | | `{"status": "ok", "count": N}` |
//! | `POST /evaluate` | documents, and a search request for them: [`crate::evaluate`] | a search response without `took` |
//! | `POST /analyzeDoc` | a document | `{"status": "ok", "analyzed": […]}` |
//!
//! With the header `nacre-part` (the name of the partition) the answer is a part, and `merge` combines several parts. If a node fails,
//! the host creates its part: `{"Failed": [NAME, STATUS, TEXT]}`. A request with `knn`, or with the header `nacre-synonyms` to an index
//! with synonyms, has two rounds. The parts of the first round contain the nearest documents of each partition, and the synonyms that it
//! defines for the terms of the query. Their merged answer is empty, and its header `nacre-rest` contains those of all partitions, which
//! the requests of the second round repeat. Hosts of earlier versions send no `nacre-synonyms`, and merge no such parts.
//! `nacre-vbuckets` (`0-511,600`) restricts the visible vBuckets. `nacre-field` names the field of the parts of a query that do not name
//! one.

use crate::blobs::Blobs;
use crate::definition::Definition;
use crate::document::Place;
use crate::error::Error;
use crate::evaluate::evaluate;
use crate::index::{Change, Commit, Index};
use crate::search::{
    Nearest, Partial, Request as Search, Thesaurus, merge, nearest, search_knowing, thesaurus,
};
use nacre_plugin::{
    DocumentError, EventKind, Events, Fault, Request, Response, Service, State, StateMut, Timer,
    timer,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Key of the commit in the state.
const META: &[u8] = b"meta";
/// Key of the removed vBuckets in the state, as a JSON array.
const GONE: &[u8] = b"gone";
/// Name of the timer that deletes the documents of removed vBuckets.
const REMOVAL: &str = "removal";
/// Maximum number of documents in a merge, which is part of a call with a deadline.
const MERGED_MAX: u32 = 50_000;
/// Header with the name of the partition that returns a part.
const PART: &str = "nacre-part";
/// Header with the results of earlier rounds.
const REST: &str = "nacre-rest";
/// Header with the field of the parts of a query that do not name one.
const FIELD: &str = "nacre-field";
/// Header of requests whose first round collects synonyms.
const SYNONYMS: &str = "nacre-synonyms";
/// Header with the visible vBuckets.
const VBUCKETS: &str = "nacre-vbuckets";

/// The platform that the service runs on.
pub trait Platform {
    /// Returns the store of the index files.
    fn blobs() -> Arc<dyn Blobs>;
}

/// The index of a partition as a service.
pub struct SearchService<P> {
    config: Config,
    definition: Arc<Definition>,
    /// The open index, with the commit in the state to which it corresponds. The first call opens it.
    index: Option<(Vec<u8>, Index)>,
    platform: PhantomData<P>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    partition: String,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    collections: BTreeMap<String, String>,
    #[serde(default, rename = "new")]
    is_new: bool,
}

/// Results of the first round, merged over the partitions.
#[derive(Default, Serialize, Deserialize)]
struct Known {
    near: Nearest,
    /// The synonyms, by index: several have sources of the same name. An index has the name of its partition.
    synonyms: BTreeMap<String, Thesaurus>,
}

/// A part of an answer.
#[derive(Serialize, Deserialize)]
enum Part {
    /// A part of the first round of a request with vectors.
    Nearest(Nearest),
    /// A part of the first round of a request to an index with synonyms.
    Known(Known),
    /// A part of the last round.
    Hits(String, Box<Partial>),
    /// An error of the partition: name, status and text.
    Failed(String, u16, String),
}

impl<P: Platform> Service for SearchService<P> {
    fn describe() -> String {
        let limits = json!({
            "result_window": crate::RESULT_WINDOW,
            "clauses_max": 1024,
        });
        json!({
            "name": "search",
            "version": env!("CARGO_PKG_VERSION"),
            "state_version": "2",
            "limits": limits,
        })
        .to_string()
    }

    fn init(config: &str) -> Result<SearchService<P>, Fault> {
        let config: Config =
            serde_json::from_str(config).map_err(|error| Fault::Reject(error.to_string()))?;
        let definition = match config.is_new {
            true => Definition::parse(&config.params),
            false => Definition::parse_stored(&config.params),
        };
        let definition = definition.map_err(|error| Fault::Reject(error.text))?;
        Ok(SearchService {
            config,
            definition: Arc::new(definition),
            index: None,
            platform: PhantomData,
        })
    }

    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        let scope = self.config.scope.clone();
        let collections = self.config.collections.clone();
        let mut errors = Vec::new();
        let mut changes = Vec::with_capacity(events.len());
        for event in events.iter() {
            let Ok(id) = std::str::from_utf8(event.key) else {
                let message = "the ID is not UTF-8".to_owned();
                errors.push(DocumentError { index: event.index, message });
                continue;
            };
            let collection = collections.get(&format!("{:x}", event.collection));
            if collection.is_none() && !collections.is_empty() {
                // The feed contains documents of other collections in the scope too.
                continue;
            }
            let collection = collection.map(String::as_str).unwrap_or_default();
            let body = (event.kind == EventKind::Upsert).then_some(event.body);
            changes.push(Change {
                vb: event.vb,
                id,
                body,
                place: Place { scope: &scope, collection },
            });
        }
        self.change(state, |index| {
            index.apply(&changes)?;
            index.merge(MERGED_MAX)?;
            Ok(())
        })?;
        Ok(errors)
    }

    fn rollback(
        &mut self,
        vb: u16,
        _seqno: u64,
        state: &mut dyn StateMut,
    ) -> Result<Option<u64>, Fault> {
        // The index does not keep replaced versions, so the vBucket restarts.
        let mut gone = gone(state.reading())?;
        gone.insert(vb);
        state.put(GONE, &serde_json::to_vec(&gone).map_err(broken)?);
        timer::set(REMOVAL, 0, b"");
        Ok(Some(0))
    }

    fn on_timer(
        &mut self,
        _now_us: u64,
        _timers: &[Timer],
        state: &mut dyn StateMut,
    ) -> Result<(), Fault> {
        if gone(state.reading())?.is_empty() {
            return Ok(());
        }
        self.change(state, |index| index.merge(MERGED_MAX).map(drop))
    }

    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        match (&*request.method, &*request.path) {
            ("POST", "/query") => self.query(request, state),
            ("POST", "/evaluate") => match evaluate(&request.body, header(request, FIELD)) {
                Ok(found) => Ok(answer(&found)),
                Err(error) => Ok(refusal(&error)),
            },
            ("GET", "/count") => {
                let gone = gone(state)?;
                let count = self.index(state)?.count_without(&gone).map_err(fatal)?;
                Ok(answer(&json!({"status": "ok", "count": count})))
            }
            ("POST", "/analyzeDoc") => {
                let place = Place { scope: &self.config.scope, collection: "" };
                match self.definition.analyze_document("", &request.body, place) {
                    Ok(analyzed) => Ok(answer(&json!({"status": "ok", "analyzed": analyzed}))),
                    Err(error) => Ok(refusal(&error)),
                }
            }
            _ => Ok(refusal(&Error { status: 404, text: "not found".into() })),
        }
    }

    fn merge(&mut self, request: &Request, partials: Vec<Response>) -> Result<Response, Fault> {
        let search = match search_of(request) {
            Ok(search) => search,
            Err(error) => return Ok(refusal(&error)),
        };
        let (mut near, mut hits) = (Vec::new(), Vec::new());
        let mut synonyms: BTreeMap<String, Thesaurus> = BTreeMap::new();
        for partial in partials {
            if partial.status != 200 {
                return Ok(partial);
            }
            match serde_json::from_slice(&partial.body).map_err(broken)? {
                Part::Nearest(found) => near.push(found),
                Part::Known(known) => {
                    near.push(known.near);
                    for (index, found) in known.synonyms {
                        synonyms.entry(index).or_default().merge(found);
                    }
                }
                Part::Hits(name, partial) => hits.push((name, Ok(*partial))),
                Part::Failed(name, status, text) => hits.push((name, Err(Error { status, text }))),
            }
        }
        // A partition that fails in the first round fails in the last round too, which reports the failure.
        let is_first = !near.is_empty();
        let mut faults = hits.iter().filter_map(|(_, found)| found.as_ref().err());
        if is_first && let Some(error) = faults.find(|error| error.status == 400) {
            return Ok(refusal(error));
        }
        if is_first || hits.is_empty() {
            let merged = Nearest::merge(&search, near);
            let rest = if synonyms.is_empty() {
                serde_json::to_string(&merged)
            } else {
                serde_json::to_string(&Known { near: merged, synonyms })
            };
            let rest = rest.map_err(broken)?;
            let mut response = Response::json(200, Vec::new());
            response.headers.push((REST.to_owned(), rest));
            return Ok(response);
        }
        let response = merge(&search, hits);
        match response.refusal() {
            Some(error) => Ok(refusal(error)),
            None => Ok(query_answer(&response, &search)),
        }
    }
}

impl<P: Platform> SearchService<P> {
    /// Returns the index as of the commit in the state.
    fn index(&mut self, state: &dyn State) -> Result<&mut Index, Fault> {
        let bytes = state.get(META).unwrap_or_default();
        let opened = match self.index.take() {
            // Most calls are queries of the same commit, which has a few KiB.
            Some((of, index)) if of == bytes => index,
            opened => self.open(&bytes, opened.map(|(_, index)| index))?,
        };
        let (_, index) = self.index.insert((bytes, opened));
        Ok(index)
    }

    /// Opens the index as of a commit, reusing the segments of an open index.
    fn open(&self, commit: &[u8], opened: Option<Index>) -> Result<Index, Fault> {
        let (definition, seed) = (self.definition.clone(), self.config.seed);
        if commit.is_empty() {
            return Index::create(definition, P::blobs(), seed).map_err(fatal);
        }
        let Commit { meta, .. } = serde_json::from_slice(commit).map_err(broken)?;
        match opened {
            Some(mut index) => index.advance(&meta).map(|()| index),
            None => Index::open(definition, P::blobs(), seed, &meta),
        }
        .map_err(fatal)
    }

    /// Deletes the documents of removed vBuckets, changes the index, and stores the commit in the state. After a failure, the next call
    /// reopens the index.
    fn change(
        &mut self,
        state: &mut dyn StateMut,
        change: impl FnOnce(&mut Index) -> crate::Result<()>,
    ) -> Result<(), Fault> {
        let gone = gone(state.reading())?;
        self.index(state.reading())?;
        let (_, mut index) = self.index.take().expect("it is open");
        if !gone.is_empty() {
            index.remove_vbuckets(&gone).map_err(|error| Fault::Retry(error.text))?;
            state.delete(GONE);
        }
        change(&mut index).map_err(|error| Fault::Retry(error.text))?;
        let commit = index.commit("").map_err(fatal)?;
        index.collect_garbage(&commit).map_err(fatal)?;
        let bytes = serde_json::to_vec(&commit).map_err(broken)?;
        state.put(META, &bytes);
        self.index = Some((bytes, index));
        Ok(())
    }

    fn query(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        let mut search = match search_of(request) {
            Ok(search) => search,
            Err(error) => return Ok(refusal(&error)),
        };
        search.vbuckets = without(search.vbuckets.take(), &gone(state)?);
        let name = header(request, PART).map(str::to_owned);
        let known = match header(request, REST) {
            None => None,
            Some(text) => Some(known(text).map_err(broken)?),
        };
        let partition = self.config.partition.clone();
        let asks_synonyms = header(request, SYNONYMS).is_some();
        let has_synonyms = asks_synonyms && !self.definition.mapping.synonyms.is_empty();
        let index = self.index(state)?;
        let is_first = name.is_some() && (search.has_vectors() || has_synonyms) && known.is_none();
        let found = match known {
            Some(known) => Ok(known),
            None => first_round(index, &search, has_synonyms.then_some(&*partition)),
        };
        if is_first && let Ok(found) = found {
            return part(&match has_synonyms {
                true => Part::Known(found),
                false => Part::Nearest(found.near),
            });
        }
        // The host aborts a call after its deadline.
        let partial = found.and_then(|found| {
            let synonyms = found.synonyms.get(&partition);
            search_knowing(index, &search, &found.near, synonyms, &mut || false)
        });
        match (name, partial) {
            (Some(_), Ok(partial)) => part(&Part::Hits(partition, Box::new(partial))),
            (Some(_), Err(error)) => part(&Part::Failed(partition, error.status, error.text)),
            (None, Err(error)) => Ok(refusal(&error)),
            (None, Ok(partial)) => {
                let response = merge(&search, vec![(partition, Ok(partial))]);
                Ok(query_answer(&response, &search))
            }
        }
    }
}

/// Returns what a partition knows before the hits are searched; its synonyms too if `partition` is its name.
fn first_round(index: &Index, search: &Search, partition: Option<&str>) -> crate::Result<Known> {
    let mut known = Known { near: nearest(index, search)?, ..Known::default() };
    if let Some(partition) = partition {
        known.synonyms.insert(partition.to_owned(), thesaurus(index, search)?);
    }
    Ok(known)
}

/// Parses what all partitions know. Without synonyms, it consists of the nearest documents.
fn known(text: &str) -> serde_json::Result<Known> {
    if text.starts_with('[') {
        return Ok(Known { near: serde_json::from_str(text)?, ..Known::default() });
    }
    serde_json::from_str(text)
}

fn search_of(request: &Request) -> crate::Result<Search> {
    let mut search = Search::parse(&request.body)?;
    if let Some(field) = header(request, FIELD) {
        search.query.set_field(field);
    }
    search.vbuckets = header(request, VBUCKETS).map(ranges).transpose()?;
    Ok(search)
}

/// Parses ranges of vBuckets: `0-511,600`.
fn ranges(text: &str) -> crate::Result<Vec<RangeInclusive<u16>>> {
    let wrong = || Error::request(format!("malformed {VBUCKETS}"));
    text.split(',')
        .filter(|range| !range.is_empty())
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Ok(first.parse().map_err(|_| wrong())?..=last.parse().map_err(|_| wrong())?)
        })
        .collect()
}

/// Returns the removed vBuckets whose documents are still in the index.
fn gone(state: &dyn State) -> Result<BTreeSet<u16>, Fault> {
    match state.get(GONE) {
        None => Ok(BTreeSet::new()),
        Some(bytes) => serde_json::from_slice(&bytes).map_err(broken),
    }
}

/// Removes vBuckets from the visible ones; `None` means all.
fn without(
    visible: Option<Vec<RangeInclusive<u16>>>,
    gone: &BTreeSet<u16>,
) -> Option<Vec<RangeInclusive<u16>>> {
    if gone.is_empty() {
        return visible;
    }
    let mut left = Vec::new();
    for range in visible.unwrap_or_else(|| vec![0..=u16::MAX]) {
        let mut first = Some(*range.start());
        for vb in gone.iter().copied().filter(|vb| range.contains(vb)) {
            if let Some(first) = first
                && first < vb
            {
                left.push(RangeInclusive::new(first, vb - 1));
            }
            first = vb.checked_add(1);
        }
        if let Some(first) = first
            && first <= *range.end()
        {
            left.push(first..=*range.end());
        }
    }
    Some(left)
}

fn header<'a>(request: &'a Request, wanted: &str) -> Option<&'a str> {
    request.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| &**value)
}

/// Returns the response to a query, without its duration: the node adds it.
fn query_answer(response: &crate::search::Response, search: &Search) -> Response {
    let mut body = response.to_json(search, 0);
    if let Some(members) = body.as_object_mut() {
        members.remove("took");
    }
    answer(&body)
}

fn answer(body: &Value) -> Response {
    Response::json(200, body.to_string())
}

fn part(part: &Part) -> Result<Response, Fault> {
    Ok(Response::json(200, serde_json::to_vec(part).map_err(broken)?))
}

fn refusal(error: &Error) -> Response {
    Response::json(error.status, json!({"status": "fail", "error": error.text}).to_string())
}

fn broken(error: serde_json::Error) -> Fault {
    Fault::Reject(error.to_string())
}

fn fatal(error: Error) -> Fault {
    Fault::Fatal(error.text)
}
