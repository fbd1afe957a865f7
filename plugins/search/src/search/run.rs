//! Executes a request on the index of one partition.

use super::facet::{Counter, Facet, number};
use super::highlight::fragment;
use super::knn::{Nearest, nearest};
use super::locate::{Located, Places};
use super::plan::{Node, Planner};
use super::request::Request;
use super::scorer::Explanation;
use super::sort::{KeyReader, Order, Ranked, SortValue, is_beyond, shown};
use super::suggest::Suggestion;
use super::synonyms::{Lookup, Thesaurus};
use crate::definition::{Definition, SYNONYM_MARK, SYNONYMS};
use crate::document::{FieldValue, Mapped, Place};
use crate::error::{Error, Result};
use crate::index::{COLLECTION, END, Index, Segment};
use crate::query::{Leaf, Query};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;

/// Number of documents between two checks for cancellation.
const PATIENCE: u32 = 4096;

/// Returns true if the request is cancelled. Called now and then.
pub type Cancelled<'a> = &'a mut dyn FnMut() -> bool;

/// A hit in a partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartialHit {
    /// The ID.
    pub id: String,
    /// The collection, in an index of collections.
    pub collection: Option<String>,
    /// The score.
    pub score: f32,
    /// The value of each sort key.
    pub keys: Vec<SortValue>,
    /// The requested fields.
    pub fields: Option<Map<String, Value>>,
    /// Occurrences of the terms.
    pub places: Option<Places>,
    /// Highlighted fragments.
    pub fragments: Option<BTreeMap<String, Vec<String>>>,
    /// Explanation of the score.
    pub explanation: Option<Explanation>,
}

impl PartialHit {
    /// Returns the ID for the member `sort`, which a request can send back as a cursor. In an index of several collections, whose
    /// documents can have equal IDs, it contains the collection.
    pub(super) fn cursor_id(&self) -> String {
        let is_named = self.fields.as_ref().is_some_and(|fields| fields.contains_key(COLLECTION));
        match self.collection.as_deref().filter(|_| is_named) {
            Some(collection) => format!("{}\0{collection}", self.id),
            None => self.id.clone(),
        }
    }
}

/// The result of a partition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Partial {
    /// Number of matching documents.
    pub total: u64,
    /// The highest score.
    pub max_score: f32,
    /// The best hits, in order.
    pub hits: Vec<PartialHit>,
    /// Facets by name.
    pub facets: BTreeMap<String, Facet>,
    /// Suggestions by name.
    #[serde(default)]
    pub suggestions: BTreeMap<String, Suggestion>,
    /// The best hits by text and by each vector, if their ranks are to be combined later.
    pub lists: Vec<Vec<PartialHit>>,
}

struct Candidate<'a> {
    request: &'a Request,
    score: f32,
    /// Read only for ties and for returned hits, because IDs are in compressed blocks.
    id: OnceCell<String>,
    keys: Vec<SortValue>,
    segment: &'a Segment,
    /// Number of the candidate's segment.
    at: usize,
    doc: u32,
    /// Position of the candidate's ID in the sorted IDs of its segment.
    ordinal: u64,
}

impl Candidate<'_> {
    /// Returns the ID, or an empty text if it cannot be read. Returning the hit then fails.
    fn id(&self) -> &str {
        self.id.get_or_init(|| self.segment.id(self.doc).unwrap_or_default())
    }

    fn unnamed(&self) -> Ranked<'_> {
        Ranked { score: self.score, id: "", keys: &self.keys }
    }

    fn named(&self) -> Ranked<'_> {
        Ranked { id: self.id(), ..self.unnamed() }
    }

    /// Compares two candidates in the sort order of the request.
    fn order(&self, other: &Candidate<'_>) -> Ordering {
        for (at, key) in self.request.sort.iter().enumerate() {
            let order = match key.order {
                Order::Id => key.compare(&self.named(), &other.named(), at),
                _ => key.compare(&self.unnamed(), &other.unnamed(), at),
            };
            if order != Ordering::Equal {
                return order;
            }
        }
        self.order_of_ids(other)
    }

    fn order_of_ids(&self, other: &Candidate<'_>) -> Ordering {
        match self.at == other.at {
            true => self.ordinal.cmp(&other.ordinal),
            false => self.id().cmp(other.id()),
        }
    }
}

// The worst candidate is the greatest, because a heap removes the greatest first.
impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.order(other);
        // With a cursor backwards, the hits nearest to the cursor are the best.
        let reversed = self.request.cursor.as_ref().is_some_and(|cursor| cursor.before);
        if reversed { order.reverse() } else { order }
    }
}

impl PartialOrd for Candidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate<'_> {}

/// Executes a request on the index of a partition.
///
/// # Errors
/// The query expands too far, refers to something that the index does not have, or was cancelled.
pub fn search(index: &Index, request: &Request, cancelled: Cancelled<'_>) -> Result<Partial> {
    let near = nearest(index, request)?;
    search_with(index, request, &near, cancelled)
}

/// Like [`search`], with the nearest documents of all partitions.
///
/// # Errors
/// As for [`search`].
pub fn search_with(
    index: &Index,
    request: &Request,
    near: &Nearest,
    cancelled: Cancelled<'_>,
) -> Result<Partial> {
    search_knowing(index, request, near, None, cancelled)
}

/// Like [`search_with`], with the synonyms of all partitions instead of those of this one.
///
/// # Errors
/// As for [`search`].
pub fn search_knowing(
    index: &Index,
    request: &Request,
    near: &Nearest,
    synonyms: Option<&Thesaurus>,
    cancelled: Cancelled<'_>,
) -> Result<Partial> {
    let segments: Vec<Arc<Segment>> = index.segments().cloned().collect();
    let definition = &**index.definition();
    if request.validate {
        check_fields(definition, &request.query)?;
    }
    let lookup = synonyms.map_or(Lookup::Local, Lookup::Known);
    let mut planner = Planner::new(definition, &segments).with_synonyms(lookup);
    let near = || near.0.iter().cloned().zip(request.knn.iter().map(|knn| knn.boost));
    let node = if request.knn.is_empty() {
        planner.plan(&request.query)?
    } else {
        planner.plan_with(&request.query, near().collect(), request.knn_all)?
    };
    let wanted = request.from + request.size;
    let mut partial = run(definition, &segments, request, &node, wanted, cancelled)?;
    if let Some(fusion) = &request.fusion {
        let mut nodes = vec![planner.plan(&request.query)?];
        nodes.extend(near().map(|(scores, _)| Node::Nearest { scores, weight: 1.0 }));
        for node in nodes {
            let list = run(definition, &segments, request, &node, fusion.window, cancelled)?;
            partial.lists.push(list.hits);
        }
        partial.hits.clear();
    }
    for (name, suggest) in &request.suggest {
        partial.suggestions.insert(name.clone(), suggest.suggest(definition, &segments)?);
    }
    Ok(partial)
}

fn run(
    definition: &Definition,
    segments: &[Arc<Segment>],
    request: &Request,
    node: &Node,
    wanted: usize,
    cancelled: Cancelled<'_>,
) -> Result<Partial> {
    let mut partial = Partial::default();
    for name in request.facets.keys() {
        partial.facets.insert(name.clone(), Facet::default());
    }
    let mut best: BinaryHeap<Candidate<'_>> = BinaryHeap::with_capacity(wanted.min(1024) + 1);
    for (ordinal, segment) in segments.iter().enumerate() {
        let mut collector = Collector {
            request,
            definition,
            segment,
            ordinal,
            wanted,
            before: None,
            namesakes: None,
        };
        collector.collect(node, &mut partial, &mut best, cancelled)?;
    }
    let mut best = best.into_vec();
    best.sort_by(Candidate::order);
    let loader = Loader { definition, request, node };
    partial.hits =
        best.into_iter().map(|candidate| loader.hit(candidate)).collect::<Result<_>>()?;
    Ok(partial)
}

struct Collector<'a> {
    request: &'a Request,
    definition: &'a Definition,
    segment: &'a Segment,
    ordinal: usize,
    wanted: usize,
    /// A hit of another segment, and the number of IDs in this segment that sort before its ID.
    before: Option<((usize, u32), u64)>,
    /// A hit, and the ordinals of the documents in this segment that have its ID, each in another collection.
    namesakes: Option<((usize, u32), Range<u64>)>,
}

impl<'a> Collector<'a> {
    fn collect(
        &mut self,
        node: &Node,
        partial: &mut Partial,
        best: &mut BinaryHeap<Candidate<'a>>,
        cancelled: Cancelled<'_>,
    ) -> Result<()> {
        let request = self.request;
        let scored = request.needs_scores();
        let mut scorer = node.scorer(self.segment, scored, false)?;
        let (collections, hidden) = (self.collections()?, self.hidden()?);
        let vbuckets = request.vbuckets.as_ref().map(|_| self.segment.vbuckets()).transpose()?;
        let mut counters = Vec::new();
        for facet in request.facets.values() {
            let mapping = &self.definition.mapping;
            let parser = |name: Option<&str>| {
                let name = name.unwrap_or(&mapping.default_date_parser);
                mapping.registry.date_parser(name).map_err(Error::from)
            };
            counters.push(Counter::new(facet, self.segment, parser)?);
        }
        let readers = request
            .sort
            .iter()
            .map(|key| KeyReader::new(key, self.segment))
            .collect::<Result<Vec<_>>>()?;
        let mut until_asked = PATIENCE;
        while scorer.doc() != END {
            let doc = scorer.doc();
            until_asked -= 1;
            if until_asked == 0 {
                until_asked = PATIENCE;
                if cancelled() {
                    return Err(Error { status: 504, text: "context deadline exceeded".into() });
                }
            }
            let is_hit = !self.segment.is_deleted(doc)
                && vbuckets.as_ref().is_none_or(|column| request.sees(column.first(doc)))
                && collections.as_ref().is_none_or(|docs| docs.binary_search(&doc).is_ok())
                && hidden.binary_search(&doc).is_err();
            if is_hit {
                partial.total += 1;
                let score = if scored { scorer.score() } else { 0.0 };
                partial.max_score = partial.max_score.max(score);
                for counter in &mut counters {
                    counter.take(doc);
                }
                self.consider(doc, score, &readers, best)?;
            }
            scorer.advance();
        }
        for (counter, (name, facet)) in counters.into_iter().zip(&mut partial.facets) {
            facet.merge(counter.finish(self.segment)?);
            facet.check(&request.facets[name])?;
        }
        Ok(())
    }

    fn consider(
        &mut self,
        doc: u32,
        score: f32,
        readers: &[KeyReader<'_>],
        best: &mut BinaryHeap<Candidate<'a>>,
    ) -> Result<()> {
        if self.wanted == 0 {
            return Ok(());
        }
        let request = self.request;
        let ordinal = self.segment.id_ordinal(doc);
        if best.len() >= self.wanted && self.is_worse_by_score(score, ordinal, best.peek())? {
            return Ok(());
        }
        let keys = readers.iter().map(|reader| reader.value(doc)).collect::<Result<Vec<_>>>()?;
        if best.len() >= self.wanted
            && request.cursor.is_none()
            && let Some(worst) = best.peek()
            && self.is_worse(&Ranked { score, id: "", keys: &keys }, ordinal, worst)?
        {
            return Ok(());
        }
        let (id, segment, at) = (OnceCell::new(), self.segment, self.ordinal);
        let candidate = Candidate { request, score, id, keys, segment, at, doc, ordinal };
        if let Some(cursor) = &request.cursor
            && !is_beyond(&request.sort, cursor, &candidate.named())
        {
            return Ok(());
        }
        best.push(candidate);
        if best.len() > self.wanted {
            best.pop();
        }
        Ok(())
    }

    /// Returns true if hits are sorted by score and this one comes after the worst kept hit. Most hits of a frequent word end here.
    fn is_worse_by_score(
        &mut self,
        score: f32,
        ordinal: u64,
        worst: Option<&Candidate<'_>>,
    ) -> Result<bool> {
        let (Some(worst), [key]) = (worst, &self.request.sort[..]) else { return Ok(false) };
        if !matches!(key.order, Order::Score) || !key.descending || self.request.cursor.is_some() {
            return Ok(false);
        }
        match score.total_cmp(&worst.score) {
            Ordering::Less => Ok(true),
            Ordering::Equal => self.is_after(ordinal, worst),
            Ordering::Greater => Ok(false),
        }
    }

    /// Returns true if a hit comes after the worst kept one, as far as this can be decided without reading its ID.
    fn is_worse(&mut self, hit: &Ranked<'_>, ordinal: u64, worst: &Candidate<'_>) -> Result<bool> {
        for (at, key) in self.request.sort.iter().enumerate() {
            let order = match key.order {
                Order::Id if self.has_same_id(ordinal, worst)? => Ordering::Equal,
                Order::Id => return Ok(self.is_after(ordinal, worst)? != key.descending),
                _ => key.compare(hit, &worst.unnamed(), at),
            };
            if order != Ordering::Equal {
                return Ok(order == Ordering::Greater);
            }
        }
        self.is_after(ordinal, worst)
    }

    /// Returns true if an ID of this segment, given by its ordinal, sorts after the ID of a hit.
    fn is_after(&mut self, ordinal: u64, hit: &Candidate<'_>) -> Result<bool> {
        // The IDs of a segment sort like their ordinals, and IDs in two segments are never equal.
        if hit.at == self.ordinal {
            return Ok(ordinal > hit.ordinal);
        }
        let key = (hit.at, hit.doc);
        let before = match self.before {
            Some((of, before)) if of == key => before,
            _ => self.segment.ids_before(hit.id())?,
        };
        self.before = Some((key, before));
        Ok(ordinal >= before)
    }

    /// Returns true if a document of this segment, given by its ordinal, has the ID of a hit in another collection.
    fn has_same_id(&mut self, ordinal: u64, hit: &Candidate<'_>) -> Result<bool> {
        if !self.definition.doc_config.by_collection {
            return Ok(false);
        }
        let key = (hit.at, hit.doc);
        let namesakes = match self.namesakes.take() {
            Some((of, namesakes)) if of == key => namesakes,
            _ => {
                let id = shown(hit.id());
                let end = |end: &str| self.segment.ids_before(&format!("{id}{end}"));
                end("\0")?..end("\u{1}")?
            }
        };
        let is_one = namesakes.contains(&ordinal);
        self.namesakes = Some((key, namesakes));
        Ok(is_one)
    }

    /// Returns the documents of the requested collections, in order.
    fn collections(&self) -> Result<Option<Vec<u32>>> {
        if self.request.collections.is_empty() || !self.definition.doc_config.by_collection {
            return Ok(None);
        }
        let mut docs = Vec::new();
        for name in &self.request.collections {
            docs.extend(self.documents_with(COLLECTION, name)?);
        }
        docs.sort_unstable();
        docs.dedup();
        Ok(Some(docs))
    }

    /// Returns the documents that define synonyms, in order. They are no hits.
    fn hidden(&self) -> Result<Vec<u32>> {
        if self.definition.mapping.synonyms.is_empty() {
            return Ok(Vec::new());
        }
        self.documents_with(SYNONYMS, SYNONYM_MARK)
    }

    /// Returns the documents with a term, in order.
    fn documents_with(&self, path: &str, term: &str) -> Result<Vec<u32>> {
        let mut docs = Vec::new();
        if let Some(info) = self.segment.term(path, term)? {
            let mut postings = self.segment.postings(path, &info, false)?;
            while tantivy::DocSet::doc(&postings) != END {
                docs.push(tantivy::DocSet::doc(&postings));
                tantivy::DocSet::advance(&mut postings);
            }
        }
        Ok(docs)
    }
}

/// Loads the data that hits return.
struct Loader<'a> {
    definition: &'a Definition,
    request: &'a Request,
    node: &'a Node,
}

impl Loader<'_> {
    fn hit(&self, candidate: Candidate<'_>) -> Result<PartialHit> {
        let request = self.request;
        let (segment, doc) = (candidate.segment, candidate.doc);
        let id = segment.id(doc)?;
        let (id, collection) = match id.rsplit_once('\0') {
            Some((id, collection)) if self.definition.doc_config.by_collection => {
                (id.to_owned(), Some(collection.to_owned()))
            }
            _ => (id, None),
        };
        let mut hit = PartialHit {
            id,
            collection,
            score: candidate.score,
            keys: candidate.keys,
            fields: None,
            places: None,
            fragments: None,
            explanation: None,
        };
        let needs_source =
            !request.fields.is_empty() || request.locations || request.highlight.is_some();
        let mapped = if needs_source {
            self.mapped(segment, doc, &hit.id, hit.collection.as_deref().unwrap_or_default())?
        } else {
            None
        };
        if let Some(mapped) = &mapped {
            if !request.fields.is_empty() {
                hit.fields =
                    Some(fields(mapped, &request.fields)).filter(|fields| !fields.is_empty());
            }
            if request.locations || request.highlight.is_some() {
                let places = Located::new(mapped).places(self.node);
                if let Some(highlight) = &request.highlight {
                    hit.fragments = Some(fragments(mapped, &places, highlight));
                }
                hit.places = Some(places);
            }
        }
        if self.shows_collections()?
            && let Some(collection) = hit.collection.clone()
        {
            hit.fields.get_or_insert_default().insert(COLLECTION.into(), collection.into());
        }
        if request.explain {
            let mut scorer = self.node.scorer(segment, request.scored, true)?;
            if scorer.seek(doc) == doc {
                hit.explanation = Some(scorer.explain());
            }
        }
        Ok(hit)
    }

    /// Returns true if the index has several collections, so that each hit names its own.
    fn shows_collections(&self) -> Result<bool> {
        Ok(self.definition.scopes()?.is_some_and(|(_, collections)| collections.len() > 1))
    }

    fn mapped(
        &self,
        segment: &Segment,
        doc: u32,
        id: &str,
        collection: &str,
    ) -> Result<Option<Mapped>> {
        let Some(source) = segment.source(doc)? else { return Ok(None) };
        let scope = self.definition.scopes()?.map(|(scope, _)| scope).unwrap_or_default();
        self.definition.map(id, &source, Place { scope: &scope, collection })
    }
}

/// Returns the values of the requested stored fields.
fn fields(mapped: &Mapped, wanted: &[String]) -> Map<String, Value> {
    let all = wanted.iter().any(|name| name == "*");
    let mut values: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for field in &mapped.fields {
        if !field.store || !all && !wanted.contains(&field.name) {
            continue;
        }
        values.entry(&field.name).or_default().push(match &field.value {
            FieldValue::Text(text, _) | FieldValue::Date(_, text) => text.clone().into(),
            FieldValue::Number(value) => number(*value),
            FieldValue::Boolean(flag) => (*flag).into(),
            FieldValue::Point(lon, lat) => vec![number(*lon), number(*lat)].into(),
            FieldValue::Shape(shape) => shape.clone(),
            FieldValue::Vectors(vectors) => vectors_json(vectors),
            FieldValue::Terms(terms) => terms.clone().into(),
            FieldValue::Ip(address) => {
                let address = std::net::Ipv6Addr::from(*address);
                address
                    .to_ipv4_mapped()
                    .map_or_else(|| address.to_string(), |v4| v4.to_string())
                    .into()
            }
        });
    }
    values
        .into_iter()
        .map(|(name, mut values)| {
            let value = if values.len() == 1 { values.remove(0) } else { values.into() };
            (name.to_owned(), value)
        })
        .collect()
}

/// Returns vectors as JSON, with the precision of `f32`.
fn vectors_json(vectors: &[Vec<f32>]) -> Value {
    let json = |vector: &Vec<f32>| {
        let numbers = vector.iter().map(|n| number(n.to_string().parse().unwrap_or_default()));
        Value::from(numbers.collect::<Vec<_>>())
    };
    match vectors {
        [one] => json(one),
        several => several.iter().map(json).collect::<Vec<_>>().into(),
    }
}

fn fragments(
    mapped: &Mapped,
    places: &Places,
    highlight: &super::request::Highlight,
) -> BTreeMap<String, Vec<String>> {
    let mut fragments = BTreeMap::new();
    let names: Vec<&String> = if highlight.fields.is_empty() {
        places.keys().collect()
    } else {
        highlight.fields.iter().collect()
    };
    for name in names {
        let mut best: Option<(usize, String)> = None;
        for field in mapped.fields.iter().filter(|field| field.store && field.name == *name) {
            let FieldValue::Text(text, _) = &field.value else { continue };
            let mut found: Vec<(usize, usize)> = places
                .get(name)
                .into_iter()
                .flat_map(|terms| terms.values().flatten())
                .filter(|place| place.array == field.positions)
                .map(|place| (place.start, place.end))
                .collect();
            found.sort_unstable();
            if best.as_ref().is_none_or(|(count, _)| found.len() > *count) {
                best = Some((found.len(), fragment(text, &found, highlight.ansi)));
            }
        }
        fragments.extend(best.map(|(_, fragment)| (name.clone(), vec![fragment])));
    }
    fragments
}

/// Refuses fields that no mapping of the index can have.
fn check_fields(definition: &Definition, query: &Query) -> Result<()> {
    let dynamic = |mapping: &crate::definition::DocumentMapping| mapping.enabled && mapping.dynamic;
    let mapping = &definition.mapping;
    let is_dynamic = mapping.types.values().chain([&mapping.default_mapping]).any(dynamic);
    match query {
        Query::None | Query::All { .. } | Query::Ids { .. } => Ok(()),
        Query::Leaf { field, leaf, .. } => {
            let name = field.as_deref().unwrap_or(&mapping.default_field);
            if is_dynamic || name == crate::index::ALL || mapping.field_of(name).is_some() {
                return Ok(());
            }
            let kind = match leaf {
                Leaf::Numbers(_) => "number",
                Leaf::Dates { .. } => "datetime",
                Leaf::Boolean(_) => "boolean",
                Leaf::Addresses(..) => "IP",
                Leaf::Box { .. } | Leaf::Near(_) | Leaf::Polygon(_) => "geopoint",
                Leaf::Shape(..) => "geoshape",
                _ => "text",
            };
            Err(Error::request(format!(
                "query_validate: field not indexed, name: {name}, type: {kind}"
            )))
        }
        Query::Conjunction { parts, .. } | Query::Disjunction { parts, .. } => {
            parts.iter().try_for_each(|part| check_fields(definition, part))
        }
        Query::Boolean { must, should, must_not, filter, .. } => [must, should, must_not, filter]
            .into_iter()
            .flatten()
            .try_for_each(|part| check_fields(definition, part)),
    }
}
