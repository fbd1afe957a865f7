//! Plans queries for the segments of an index: expands and weights their terms.

use super::expand::{Found, Pattern, Regexp, check_count, expand};
use super::phrase::{PhraseScorer, Slot};
use super::scorer::{
    AllScorer, AndScorer, BooleanScorer, Formula, ListScorer, OrScorer, Scorer, TermScorer, Weight,
    WindowScorer,
};
use super::synonyms::{Lookup, Thesaurus, local};
use crate::definition::{Definition, SYNONYMS, Scoring, synonym_prefix};
use crate::error::{Error, Result};
use crate::geo;
use crate::index::{ALL, COLLECTION, END, Numbers, Segment};
use crate::query::{Fuzziness, Leaf, Query, Range, Relation};
use nacre_text::{DateParser, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tantivy::DocSet;

/// Number of parts from which a disjunction is evaluated window by window.
const WINDOW_PARTS: usize = 3;

/// A term of a query.
#[derive(Clone, Debug)]
pub struct Term {
    /// The term.
    pub term: String,
    /// The weight of the term.
    pub weight: Weight,
}

/// A position of a phrase.
#[derive(Clone, Debug)]
pub struct PhraseSlot {
    /// Distance from the first position of the phrase.
    pub offset: u32,
    /// The alternative terms at this position.
    pub terms: Vec<Term>,
}

/// A condition on the values of a column.
#[derive(Clone, Debug)]
pub enum Condition {
    /// A number in a range.
    Numbers(Range<f64>),
    /// A date in a range of nanoseconds, including both ends.
    Dates(i64, i64),
    /// An IP address in a range, including both ends.
    Addresses(u128, u128),
    /// A point in a box: west, north, east, south.
    Box(f64, f64, f64, f64),
    /// A point near another.
    Near(geo::Distance),
    /// A point in a polygon.
    Polygon(geo::Polygon),
    /// A shape with a relation to another.
    Shape(Box<geo::Shape>, Relation),
}

/// A planned query.
#[derive(Clone, Debug)]
pub enum Node {
    /// Matches no document.
    None,
    /// Matches every document.
    All {
        /// The score.
        weight: f32,
    },
    /// The documents with these IDs.
    Ids {
        /// The IDs.
        ids: Vec<String>,
        /// The score.
        weight: f32,
    },
    /// The documents that contain a term.
    Term {
        /// The field.
        path: String,
        /// The term.
        term: Term,
    },
    /// The documents that contain a phrase.
    Phrase {
        /// The fields, one of which must contain the phrase.
        paths: Vec<String>,
        /// The positions of the phrase.
        slots: Vec<PhraseSlot>,
    },
    /// The documents whose column fulfils a condition.
    Column {
        /// The field.
        path: String,
        /// The condition on the values.
        condition: Condition,
        /// The score.
        weight: f32,
    },
    /// Nodes that must all match.
    And(Vec<Node>),
    /// Nodes of which a minimum number must match.
    Or {
        /// The parts.
        parts: Vec<Node>,
        /// The minimum number.
        min: usize,
        /// True if the score is lower when fewer parts match.
        coord: bool,
    },
    /// Documents by ID, each with its own score.
    Nearest {
        /// The scores by ID.
        scores: BTreeMap<String, f32>,
        /// The factor of the scores.
        weight: f32,
    },
    /// A combination of required, optional and excluded nodes.
    Boolean {
        /// The required node, which matches everything if the query has none.
        base: Box<Node>,
        /// True if the required node adds to the score.
        scored: bool,
        /// Optional node, which adds to the score.
        optional: Option<Box<Node>>,
        /// Excluded node.
        excluded: Option<Box<Node>>,
        /// Required node without a score.
        filter: Option<Box<Node>>,
    },
}

/// Converts queries into nodes.
pub struct Planner<'a> {
    definition: &'a Definition,
    segments: &'a [Arc<Segment>],
    documents: u64,
    means: BTreeMap<String, f32>,
    lookup: Lookup<'a>,
    /// The synonyms that the partition defines for the planned terms.
    looked_up: Thesaurus,
}

impl<'a> Planner<'a> {
    /// Creates a planner for the segments of an index.
    pub fn new(definition: &'a Definition, segments: &'a [Arc<Segment>]) -> Planner<'a> {
        let documents = segments.iter().map(|segment| u64::from(segment.count())).sum();
        let (lookup, looked_up) = (Lookup::Off, Thesaurus::default());
        Planner { definition, segments, documents, means: BTreeMap::new(), lookup, looked_up }
    }

    /// Returns the planner with synonyms. Without this call, terms have none.
    #[must_use]
    pub fn with_synonyms(self, lookup: Lookup<'a>) -> Planner<'a> {
        Planner { lookup, ..self }
    }

    /// Returns the synonyms that the partition defines for the planned terms.
    #[must_use]
    pub fn into_thesaurus(self) -> Thesaurus {
        self.looked_up
    }

    /// Plans a query, with normalised weights.
    ///
    /// # Errors
    /// A part expands into too many terms, or refers to something that the index does not have.
    pub fn plan(&mut self, query: &Query) -> Result<Node> {
        let node = self.node(query, 1.0)?;
        Ok(self.weighed(node))
    }

    /// Like [`Planner::plan`], with the nearest documents as alternatives. The score of a document that matches both is
    /// the sum.
    ///
    /// # Errors
    /// As for [`Planner::plan`].
    pub fn plan_with(
        &mut self,
        query: &Query,
        near: Vec<(BTreeMap<String, f32>, f32)>,
        all: bool,
    ) -> Result<Node> {
        let node = self.node(query, 1.0)?;
        let mut parts: Vec<Node> = Vec::with_capacity(near.len() + 1);
        // A request for nearest documents alone has the query match_none, which is omitted. A text without words also has
        // no hits, but counts as a part.
        parts.extend((!matches!(query, Query::None)).then_some(node));
        parts.extend(near.into_iter().map(|(scores, weight)| Node::Nearest { scores, weight }));
        let node = if all { and(parts) } else { Node::Or { parts, min: 1, coord: false } };
        Ok(self.weighed(node))
    }

    fn weighed(&self, mut node: Node) -> Node {
        if self.definition.mapping.scoring == Scoring::TfIdf {
            let mut sum = 0.0;
            node.each_weight(&mut |idf, query| sum += idf * idf * *query * *query);
            let norm = if sum > 0.0 { 1.0 / sum.sqrt() } else { 1.0 };
            // A constant weight has an idf of 1.
            node.each_weight(&mut |idf, query| *query *= idf * norm);
        }
        node
    }

    fn node(&mut self, query: &Query, boost: f32) -> Result<Node> {
        let all = |planner: &mut Self, parts: &[Query], boost: f32| -> Result<Vec<Node>> {
            parts.iter().map(|part| planner.node(part, boost)).collect()
        };
        Ok(match query {
            Query::None => Node::None,
            Query::All { boost: own } => Node::All { weight: boost * own },
            Query::Ids { ids, boost: own } => {
                Node::Ids { ids: self.keys(ids)?, weight: boost * own }
            }
            Query::Leaf { field, leaf, boost: own } => {
                let path = field.as_deref().unwrap_or(&self.definition.mapping.default_field);
                self.leaf(path.to_owned(), leaf, boost * own)?
            }
            Query::Conjunction { parts, boost: own } => and(all(self, parts, boost * own)?),
            Query::Disjunction { parts, min, boost: own, lenient } => {
                check_count("", parts.len())?;
                let mut nodes = Vec::with_capacity(parts.len());
                for part in parts {
                    match self.node(part, boost * own) {
                        Ok(node) => nodes.push(node),
                        Err(error) if !lenient => return Err(error),
                        Err(_) => {}
                    }
                }
                or(nodes, *min)
            }
            Query::Boolean { must, should, must_not, filter, boost: own } => {
                let boost = boost * own;
                let mut part = |query: &Option<Box<Query>>| {
                    query.as_ref().map(|query| self.node(query, boost)).transpose()
                };
                let (must, should) = (part(must)?, part(should)?);
                let (excluded, filter) = (part(must_not)?, part(filter)?);
                let is_needed = matches!(query, Query::Boolean { should: Some(should), .. }
                    if matches!(**should, Query::Disjunction { min, .. } if min > 0));
                let scored = must.is_some() || should.is_some() || filter.is_none();
                let (base, optional) = match (must, should) {
                    (Some(must), Some(should)) if is_needed => (and(vec![must, should]), None),
                    (Some(must), should) => (must, should),
                    // Without a required part, a document must match the optional part, even beside a filter.
                    (None, Some(should)) => (should, None),
                    (None, None) => (Node::All { weight: boost }, None),
                };
                Node::Boolean {
                    base: Box::new(base),
                    scored,
                    optional: optional.map(Box::new),
                    excluded: excluded.map(Box::new),
                    filter: filter.map(Box::new),
                }
            }
        })
    }

    /// Returns the keys of the IDs in all collections of the index.
    fn keys(&self, ids: &[String]) -> Result<Vec<String>> {
        let Some((_, collections)) = self.definition.scopes()? else { return Ok(ids.to_vec()) };
        let with = |id: &String| {
            collections.iter().map(move |name| format!("{id}\0{name}")).collect::<Vec<_>>()
        };
        Ok(ids.iter().flat_map(with).collect())
    }

    fn leaf(&mut self, path: String, leaf: &Leaf, boost: f32) -> Result<Node> {
        let column = |condition| Node::Column { path: path.clone(), condition, weight: boost };
        Ok(match leaf {
            Leaf::Term(term) => {
                let node = self.term(&path, term, boost)?;
                self.or_synonyms(&path, term, node, boost)?
            }
            Leaf::Boolean(flag) => self.term(&path, if *flag { "T" } else { "F" }, boost)?,
            Leaf::Fuzzy { term, prefix, fuzziness } => {
                let node = self.fuzzy(&path, term, *prefix, fuzziness.of(term), boost)?;
                self.or_synonyms(&path, term, node, boost)?
            }
            Leaf::Match { text, analyzer, prefix, fuzziness, all } => {
                let tokens = self.analyze(&path, analyzer.as_deref(), text)?;
                if !all {
                    check_count(&path, tokens.len())?;
                }
                let mut parts = Vec::with_capacity(tokens.len());
                for token in tokens {
                    let distance = fuzziness.of(&token.term);
                    let node = self.fuzzy(&path, &token.term, *prefix, distance, boost)?;
                    parts.push(self.or_synonyms(&path, &token.term, node, boost)?);
                }
                if *all { and(parts) } else { or(parts, 1) }
            }
            Leaf::MatchPhrase { text, analyzer, fuzziness } => {
                let tokens = self.analyze(&path, analyzer.as_deref(), text)?;
                let mut places: BTreeMap<u32, Vec<String>> = BTreeMap::new();
                for token in tokens {
                    places.entry(token.position).or_default().push(token.term);
                }
                let places = places.into_iter().collect();
                self.phrase(&path, places, *fuzziness, boost)?
            }
            Leaf::Phrase { terms, fuzziness } => {
                let places = (0..).zip(terms.iter().cloned()).collect();
                self.phrase(&path, places, *fuzziness, boost)?
            }
            Leaf::Prefix(prefix) => self.expanded(&path, &Pattern::Prefix(prefix), boost)?,
            Leaf::Regexp(pattern) => {
                self.expanded(&path, &Pattern::Regexp(&Regexp::new(pattern)?), boost)?
            }
            Leaf::Wildcard(pattern) => {
                self.expanded(&path, &Pattern::Regexp(&Regexp::wildcard(pattern)?), boost)?
            }
            Leaf::Terms(range) => self.expanded(&path, &Pattern::Range(range), boost)?,
            Leaf::Numbers(range) => column(Condition::Numbers(range.clone())),
            Leaf::Dates { range, parser } => {
                let (from, to) = self.dates(&path, range, parser.as_deref())?;
                column(Condition::Dates(from, to))
            }
            Leaf::Addresses(from, to) => column(Condition::Addresses(*from, *to)),
            Leaf::Box { west, north, east, south } => {
                column(Condition::Box(*west, *north, *east, *south))
            }
            Leaf::Near(distance) => column(Condition::Near(*distance)),
            Leaf::Polygon(polygon) => column(Condition::Polygon(polygon.clone())),
            Leaf::Shape(shape, relation) => column(Condition::Shape(shape.clone(), *relation)),
        })
    }

    fn analyze(&self, path: &str, analyzer: Option<&str>, text: &str) -> Result<Vec<Token>> {
        let mapping = &self.definition.mapping;
        let name = analyzer.unwrap_or_else(|| mapping.analyzer_of(path));
        Ok(mapping.registry.analyzer(name)?.analyze(text))
    }

    /// Returns the ends of a date range, both included. Without a parser, they are written like dates of the field or in a usual format.
    fn dates(&self, path: &str, range: &Range<String>, named: Option<&str>) -> Result<(i64, i64)> {
        let mapping = &self.definition.mapping;
        let parser =
            mapping.registry.date_parser(named.unwrap_or_else(|| mapping.date_parser_of(path)))?;
        let other = named.is_none().then(DateParser::optional);
        let read = |text: &str| {
            let other = || other.as_ref().and_then(|other| other.parse(text));
            parser.parse(text).or_else(other)
        };
        let parse = |bound: &Option<String>, end: &str| match bound {
            None => Ok(None),
            Some(text) => match read(text) {
                Some(nanos) => Ok(Some(nanos)),
                None => Err(Error::request(format!(
                    "invalid {end}: unable to parse datetime with any of the layouts: {text}"
                ))),
            },
        };
        let from = parse(&range.min, "start")?.map_or(i64::MIN, |nanos| {
            if range.inclusive_min { nanos } else { nanos.saturating_add(1) }
        });
        let to = parse(&range.max, "end")?.map_or(i64::MAX, |nanos| {
            if range.inclusive_max { nanos } else { nanos.saturating_sub(1) }
        });
        Ok((from, to))
    }

    fn weight(&mut self, path: &str, documents: u64, boost: f32) -> Result<Weight> {
        let (all, with) = (self.documents as f32, documents as f32);
        Ok(match self.definition.mapping.scoring {
            Scoring::TfIdf => Weight {
                idf: 1.0 + (all / (with + 1.0)).max(f32::MIN_POSITIVE).ln(),
                query: boost,
                formula: Formula::TfIdf,
            },
            Scoring::Bm25 => Weight {
                idf: (1.0 + (all - with + 0.5).max(0.0) / (with + 0.5)).ln(),
                query: boost,
                formula: Formula::Bm25 { mean: self.mean(path)? },
            },
        })
    }

    /// Returns the mean number of tokens per document.
    fn mean(&mut self, path: &str) -> Result<f32> {
        if let Some(mean) = self.means.get(path) {
            return Ok(*mean);
        }
        let (mut tokens, mut documents) = (0, 0);
        for segment in self.segments {
            tokens += segment.tokens(path)?;
            documents += u64::from(segment.max_doc());
        }
        let mean = tokens as f32 / documents.max(1) as f32;
        self.means.insert(path.to_owned(), mean);
        Ok(mean)
    }

    fn documents_of(&self, path: &str, term: &str) -> Result<u64> {
        let mut documents = 0;
        for segment in self.segments {
            documents += segment.term(path, term)?.map_or(0, |info| u64::from(info.doc_freq));
        }
        Ok(documents)
    }

    fn term(&mut self, path: &str, term: &str, boost: f32) -> Result<Node> {
        let documents = self.documents_of(path, term)?;
        let weight = self.weight(path, documents, boost)?;
        Ok(Node::Term { path: path.to_owned(), term: Term { term: term.to_owned(), weight } })
    }

    fn fuzzy(
        &mut self,
        path: &str,
        term: &str,
        prefix: usize,
        distance: u8,
        boost: f32,
    ) -> Result<Node> {
        if distance == 0 {
            return self.term(path, term, boost);
        }
        self.expanded(path, &Pattern::Fuzzy { term, prefix, distance }, boost)
    }

    /// Returns the terms that are found in place of a term.
    fn synonyms(&mut self, path: &str, term: &str) -> Result<Vec<String>> {
        let Some(source) = self.definition.mapping.synonym_source_of(path) else {
            return Ok(Vec::new());
        };
        let prefix = synonym_prefix(source, term);
        match self.lookup {
            Lookup::Off => Ok(Vec::new()),
            Lookup::Known(known) => Ok(known.get(&prefix)),
            Lookup::Local => {
                let found = local(self.segments, &prefix)?;
                self.looked_up.add(prefix, &found);
                Ok(found.into_iter().collect())
            }
        }
    }

    /// Returns a node that matches what the node of a term matches, or one of its synonyms.
    fn or_synonyms(&mut self, path: &str, term: &str, node: Node, boost: f32) -> Result<Node> {
        let mut parts = vec![node];
        for synonym in self.synonyms(path, term)? {
            parts.push(self.term(path, &synonym, boost)?);
        }
        // A document need not contain all of the words.
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ => Node::Or { parts, min: 1, coord: false },
        })
    }

    fn expanded(&mut self, path: &str, pattern: &Pattern<'_>, boost: f32) -> Result<Node> {
        let mut parts = Vec::new();
        for term in self.found(path, pattern, boost)? {
            parts.push(Node::Term { path: path.to_owned(), term });
        }
        Ok(or(parts, 1))
    }

    fn found(&mut self, path: &str, pattern: &Pattern<'_>, boost: f32) -> Result<Vec<Term>> {
        let found = expand(self.segments, path, pattern)?;
        let mut terms = Vec::with_capacity(found.len());
        for Found { term, documents, distance } in found {
            let boost = boost / (1.0 + f32::from(distance));
            terms.push(Term { term, weight: self.weight(path, documents, boost)? });
        }
        Ok(terms)
    }

    fn phrase(
        &mut self,
        path: &str,
        places: Vec<(u32, Vec<String>)>,
        fuzziness: Fuzziness,
        boost: f32,
    ) -> Result<Node> {
        let Some(first) = places.first().map(|(position, _)| *position) else {
            return Ok(Node::None);
        };
        let mut slots = Vec::with_capacity(places.len());
        for (position, alternatives) in places {
            let mut terms: Vec<Term> = Vec::new();
            // Positions without a term are gaps.
            let mut alternatives: Vec<String> =
                alternatives.into_iter().filter(|term| !term.is_empty()).collect();
            if alternatives.is_empty() {
                continue;
            }
            let mut synonyms = Vec::new();
            for term in &alternatives {
                synonyms.extend(self.synonyms(path, term)?);
            }
            alternatives.extend(synonyms);
            for term in alternatives {
                let distance = fuzziness.of(&term);
                let found = if distance == 0 {
                    let documents = self.documents_of(path, &term)?;
                    let weight = self.weight(path, documents, boost)?;
                    vec![Term { term, weight }]
                } else {
                    let pattern = Pattern::Fuzzy { term: &term, prefix: 0, distance };
                    self.found(path, &pattern, boost)?
                };
                for term in found {
                    if !terms.iter().any(|other| other.term == term.term) {
                        terms.push(term);
                    }
                }
            }
            slots.push(PhraseSlot { offset: position - first, terms });
        }
        if slots.is_empty() {
            return Ok(Node::None);
        }
        Ok(Node::Phrase { paths: self.paths(path)?, slots })
    }

    /// Returns the paths with the positions of a field: the field itself, or the members of the composite field.
    fn paths(&self, path: &str) -> Result<Vec<String>> {
        let outside = self.definition.mapping.outside_of_all().filter(|_| path == ALL);
        let Some(outside) = outside else { return Ok(vec![path.to_owned()]) };
        let mut paths = BTreeSet::new();
        for segment in self.segments {
            paths.extend(segment.paths()?.iter().cloned());
        }
        let is_member =
            |path: &String| path != COLLECTION && path != SYNONYMS && !outside.contains(path);
        Ok(paths.into_iter().filter(is_member).collect())
    }
}

fn and(mut parts: Vec<Node>) -> Node {
    if parts.is_empty() || parts.iter().any(|part| matches!(part, Node::None)) {
        return Node::None;
    }
    if parts.len() == 1 { parts.remove(0) } else { Node::And(parts) }
}

fn or(mut parts: Vec<Node>, min: usize) -> Node {
    if parts.is_empty() || min > parts.len() {
        return Node::None;
    }
    if parts.len() == 1 { parts.remove(0) } else { Node::Or { parts, min, coord: true } }
}

impl Node {
    /// Calls `take` with the idf and the factor of each part with a score.
    fn each_weight(&mut self, take: &mut dyn FnMut(f32, &mut f32)) {
        match self {
            Node::None => {}
            Node::All { weight }
            | Node::Ids { weight, .. }
            | Node::Column { weight, .. }
            | Node::Nearest { weight, .. } => {
                take(1.0, weight);
            }
            Node::Term { term, .. } => take(term.weight.idf, &mut term.weight.query),
            Node::Phrase { slots, .. } => {
                for term in slots.iter_mut().flat_map(|slot| &mut slot.terms) {
                    take(term.weight.idf, &mut term.weight.query);
                }
            }
            Node::And(parts) | Node::Or { parts, .. } => {
                parts.iter_mut().for_each(|part| part.each_weight(take));
            }
            Node::Boolean { base, scored, optional, .. } => {
                if *scored {
                    base.each_weight(take);
                }
                if let Some(optional) = optional {
                    optional.each_weight(take);
                }
            }
        }
    }

    /// Creates the scorer of the matching documents in a segment. With `linear`, every part is at the current document, so
    /// that scores can be explained.
    ///
    /// # Errors
    /// A file is corrupt.
    pub fn scorer(&self, segment: &Segment, scored: bool, linear: bool) -> Result<Box<dyn Scorer>> {
        let none = || -> Box<dyn Scorer> { Box::new(ListScorer::new(Vec::new(), 0.0, "none")) };
        let below = |node: &Node| node.scorer(segment, scored, linear);
        Ok(match self {
            Node::None => none(),
            Node::All { weight } => Box::new(AllScorer::new(segment.max_doc(), *weight)),
            Node::Ids { ids, weight } => {
                let mut docs = Vec::new();
                for id in ids {
                    docs.extend(segment.document(id)?);
                }
                docs.sort_unstable();
                docs.dedup();
                Box::new(ListScorer::new(docs, *weight, "ids"))
            }
            Node::Term { path, term } => {
                let Some(info) = segment.term(path, &term.term)? else {
                    return Ok(none());
                };
                let label = if linear { format!("{path}:{}", term.term) } else { String::new() };
                let lengths = if scored { segment.lengths(path)? } else { Numbers::Absent };
                let postings = segment.postings(path, &info, false)?;
                Box::new(TermScorer::new(postings, lengths, term.weight.clone(), label))
            }
            Node::Phrase { paths, slots } => {
                let mut parts = Vec::new();
                for path in paths {
                    parts.extend(phrase_scorer(segment, path, slots)?);
                }
                match parts.len() {
                    0 => none(),
                    1 => parts.remove(0),
                    _ => Box::new(OrScorer::new(parts, 1, 0)),
                }
            }
            Node::Column { path, condition, weight } => {
                let docs = condition.documents(segment, path)?;
                Box::new(ListScorer::new(docs, *weight, "range"))
            }
            Node::And(parts) => {
                let parts = parts.iter().map(below).collect::<Result<Vec<_>>>()?;
                if parts.iter().any(|part| part.doc() == END) {
                    return Ok(none());
                }
                Box::new(AndScorer::new(parts))
            }
            Node::Nearest { scores, weight } => {
                let mut docs = Vec::new();
                for (id, score) in scores {
                    docs.extend(segment.document(id)?.map(|doc| (doc, score * weight)));
                }
                docs.sort_unstable_by_key(|(doc, _)| *doc);
                Box::new(ListScorer::scored(docs))
            }
            Node::Or { parts, min, coord } => {
                let total = if *coord { parts.len() } else { 0 };
                let mut scorers = Vec::with_capacity(parts.len());
                for part in parts {
                    let scorer = below(part)?;
                    if scorer.doc() != END {
                        scorers.push(scorer);
                    }
                }
                if scorers.len() >= WINDOW_PARTS && !linear {
                    Box::new(WindowScorer::new(scorers, *min, total, scored))
                } else {
                    Box::new(OrScorer::new(scorers, *min, total))
                }
            }
            Node::Boolean { base, scored: has_score, optional, excluded, filter } => {
                let part = |node: &Option<Box<Node>>, scored: bool| {
                    node.as_ref().map(|node| node.scorer(segment, scored, linear)).transpose()
                };
                let optional = if scored { part(optional, true)? } else { None };
                let base = base.scorer(segment, scored && *has_score, linear)?;
                let (excluded, filter) = (part(excluded, false)?, part(filter, false)?);
                Box::new(BooleanScorer::new(base, optional, excluded, filter, *has_score))
            }
        })
    }
}

/// Creates the scorer of a phrase at a path. Returns `None` if a position has no term in the segment.
fn phrase_scorer(
    segment: &Segment,
    path: &str,
    slots: &[PhraseSlot],
) -> Result<Option<Box<dyn Scorer>>> {
    let mut found = Vec::with_capacity(slots.len());
    for slot in slots {
        let mut terms = Vec::new();
        for term in &slot.terms {
            if let Some(info) = segment.term(path, &term.term)? {
                terms.push((segment.postings(path, &info, true)?, term.weight.clone()));
            }
        }
        if terms.is_empty() {
            return Ok(None);
        }
        found.push(Slot { offset: slot.offset, terms });
    }
    Ok(Some(Box::new(PhraseScorer::new(found, segment.lengths(path)?))))
}

impl Condition {
    /// Returns the matching documents of a segment, in order.
    fn documents(&self, segment: &Segment, path: &str) -> Result<Vec<u32>> {
        Ok(match self {
            Condition::Numbers(range) => segment.numbers(path)?.documents(range, segment.max_doc()),
            Condition::Dates(from, to) => {
                segment.dates(path)?.documents_of_integers(*from..=*to, segment.max_doc())
            }
            Condition::Addresses(from, to) => {
                let (from, to) = (format!("{from:032x}"), format!("{to:032x}"));
                let mut infos = Vec::new();
                segment.each_term(path, &from, |term, info| {
                    let within = term <= &*to;
                    if within && term.len() == to.len() {
                        infos.push(info.clone());
                    }
                    within
                })?;
                let mut docs = Vec::new();
                for info in infos {
                    let mut postings = segment.postings(path, &info, false)?;
                    while postings.doc() != END {
                        docs.push(postings.doc());
                        postings.advance();
                    }
                }
                docs.sort_unstable();
                docs.dedup();
                docs
            }
            Condition::Shape(shape, relation) => shape_documents(segment, path, shape, *relation)?,
            Condition::Box(..) | Condition::Near(_) | Condition::Polygon(_) => {
                let places = segment.places(path)?;
                let mut found = Vec::new();
                filter(segment, |doc| {
                    found.clear();
                    places.each_integer(doc, |code| found.push(geo::decode(code as u64)));
                    // A distance refers to the first point.
                    let of_interest =
                        if matches!(self, Condition::Near(_)) { 1 } else { found.len() };
                    found.iter().take(of_interest).any(|place| self.has_place(*place))
                })
            }
        })
    }

    /// Returns true if a point fulfils the condition.
    pub fn has_place(&self, (lon, lat): (f64, f64)) -> bool {
        match self {
            Condition::Box(west, north, east, south) => {
                let across = east < west;
                let between = if across {
                    lon >= *west || lon <= *east
                } else {
                    lon >= *west && lon <= *east
                };
                between && lat <= *north && lat >= *south
            }
            Condition::Near(near) => geo::distance((near.lon, near.lat), (lon, lat)) <= near.metres,
            Condition::Polygon(polygon) => polygon.contains(lon, lat),
            _ => false,
        }
    }
}

fn filter(segment: &Segment, mut matches: impl FnMut(u32) -> bool) -> Vec<u32> {
    (0..segment.max_doc()).filter(|doc| matches(*doc)).collect()
}

fn shape_documents(
    segment: &Segment,
    path: &str,
    shape: &geo::Shape,
    relation: Relation,
) -> Result<Vec<u32>> {
    let Some(column) = segment.shapes(path)? else { return Ok(Vec::new()) };
    let mut known: BTreeMap<u64, bool> = BTreeMap::new();
    let mut docs = Vec::new();
    let mut text = String::new();
    for doc in 0..segment.max_doc() {
        let mut matches = false;
        let ordinals: Vec<u64> = column.ords().values_for_doc(doc).collect();
        for ordinal in ordinals {
            let related = match known.get(&ordinal) {
                Some(related) => *related,
                None => {
                    text.clear();
                    column.ord_to_str(ordinal, &mut text)?;
                    let value = serde_json::from_str(&text).map_err(Error::internal)?;
                    let related = geo::Shape::parse(&value)?.relates(shape, relation);
                    known.insert(ordinal, related);
                    related
                }
            };
            matches |= related;
        }
        if matches {
            docs.push(doc);
        }
    }
    Ok(docs)
}
