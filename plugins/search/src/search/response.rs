//! Merges the partial results of all partitions into a response.

use super::facet::Facet;
use super::request::{Fusion, Request};
use super::run::{Partial, PartialHit};
use super::sort::{Ranked, compare};
use super::suggest::Suggestion;
use crate::error::Error;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The response to a request.
#[derive(Clone, Debug)]
pub struct Response {
    /// The indexes that the request was for. Each has one partition, of which every node with documents holds a part.
    indexes: BTreeSet<String>,
    /// The indexes of which a part is missing.
    incomplete: BTreeSet<String>,
    errors: BTreeMap<String, Error>,
    hits: Vec<(String, PartialHit)>,
    total: u64,
    max_score: f32,
    facets: BTreeMap<String, Facet>,
    suggestions: BTreeMap<String, Suggestion>,
}

/// Returns the index of a part. The name of a part is that of the partition, `INDEX_IDENTITY_SUM`, or `INDEX@NODE` if the node did
/// not answer.
fn index_of(part: &str) -> &str {
    if let Some((index, _)) = part.rsplit_once('@') {
        return index;
    }
    let is_number = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let pieces = part.rsplit_once('_').and_then(|(rest, sum)| {
        let (index, identity) = rest.rsplit_once('_')?;
        Some((index, identity, sum))
    });
    match pieces {
        Some((index, identity, sum)) if is_number(identity, 16) && is_number(sum, 8) => index,
        _ => part,
    }
}

/// Merges the results of the parts of all indexes, each with its name.
#[must_use]
pub fn merge(request: &Request, partials: Vec<(String, Result<Partial, Error>)>) -> Response {
    let mut response = Response {
        indexes: BTreeSet::new(),
        incomplete: BTreeSet::new(),
        errors: BTreeMap::new(),
        hits: Vec::new(),
        total: 0,
        max_score: 0.0,
        facets: BTreeMap::new(),
        suggestions: BTreeMap::new(),
    };
    let mut lists: Vec<Vec<(String, PartialHit)>> = Vec::new();
    for (name, partial) in partials {
        response.indexes.insert(index_of(&name).to_owned());
        let partial = match partial {
            Ok(partial) => partial,
            Err(error) => {
                response.incomplete.insert(index_of(&name).to_owned());
                let mut key = name.clone();
                // The parts of several nodes have the name of the same index.
                for number in 2.. {
                    if !response.errors.contains_key(&key) {
                        break;
                    }
                    key = format!("{name} ({number})");
                }
                response.errors.insert(key, error);
                continue;
            }
        };
        response.total += partial.total;
        response.max_score = response.max_score.max(partial.max_score);
        response.hits.extend(partial.hits.into_iter().map(|hit| (name.clone(), hit)));
        lists.resize_with(lists.len().max(partial.lists.len()), Vec::new);
        for (all, list) in lists.iter_mut().zip(partial.lists) {
            all.extend(list.into_iter().map(|hit| (name.clone(), hit)));
        }
        for (name, facet) in partial.facets {
            response.facets.entry(name).or_default().merge(facet);
        }
        for (name, suggestion) in partial.suggestions {
            response.suggestions.entry(name).or_default().merge(suggestion);
        }
    }
    if let Some(fusion) = request.fusion {
        response.hits = fuse(request, fusion, lists);
        response.total = response.hits.len() as u64;
        response.max_score = response.hits.iter().map(|(_, hit)| hit.score).fold(0.0, f32::max);
    }
    let ranked = |hit: &PartialHit| -> (f32, String) { (hit.score, hit.id.clone()) };
    response.hits.sort_by(|(_, a), (_, b)| {
        let ((score_a, id_a), (score_b, id_b)) = (ranked(a), ranked(b));
        let a = Ranked { score: score_a, id: &id_a, keys: &a.keys };
        let b = Ranked { score: score_b, id: &id_b, keys: &b.keys };
        compare(&request.sort, &a, &b)
    });
    if request.cursor.as_ref().is_some_and(|cursor| cursor.before) {
        let excess = response.hits.len().saturating_sub(request.size);
        response.hits.drain(..excess);
    } else {
        response.hits.drain(..request.from.min(response.hits.len()));
        response.hits.truncate(request.size);
    }
    response
}

/// Combines several lists of hits. Each list adds to the score of a hit by the hit's rank, or by its score scaled to the range of the
/// list.
fn fuse(
    request: &Request,
    fusion: Fusion,
    lists: Vec<Vec<(String, PartialHit)>>,
) -> Vec<(String, PartialHit)> {
    let mut hits: BTreeMap<(String, Option<String>), (String, PartialHit)> = BTreeMap::new();
    let boosts = std::iter::once(1.0).chain(request.knn.iter().map(|knn| knn.boost));
    for (mut list, boost) in lists.into_iter().zip(boosts) {
        list.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
        list.truncate(fusion.window);
        let greatest = list.first().map_or(0.0, |(_, hit)| hit.score);
        let least = list.last().map_or(0.0, |(_, hit)| hit.score);
        for (rank, (name, mut hit)) in (1_u16..).zip(list) {
            let part = if fusion.reciprocal {
                1.0 / (fusion.constant + f32::from(rank))
            } else if greatest > least {
                (hit.score - least) / (greatest - least)
            } else {
                1.0
            };
            hit.score = boost * part;
            let key = (hit.id.clone(), hit.collection.clone());
            match hits.get_mut(&key) {
                Some((_, known)) => known.score += hit.score,
                None => drop(hits.insert(key, (name, hit))),
            }
        }
    }
    let mut hits: Vec<(String, PartialHit)> = hits.into_values().collect();
    hits.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
    hits.truncate(fusion.window);
    hits
}

impl Response {
    /// Returns the first client error that a partition has found. It refuses the whole request.
    #[must_use]
    pub fn refusal(&self) -> Option<&Error> {
        self.errors.values().find(|error| error.status == 400)
    }

    /// Returns the response as JSON, with the hits first. `took` is in nanoseconds.
    #[must_use]
    pub fn to_json(&self, request: &Request, took: u64) -> Value {
        let (total, failed) = (self.indexes.len(), self.incomplete.len());
        let mut status = json!({
            "total": total,
            "failed": failed,
            "successful": total - failed,
        });
        if failed > 0 {
            let errors: Map<String, Value> = self
                .errors
                .iter()
                .map(|(name, error)| (name.clone(), error.text.clone().into()))
                .collect();
            status["errors"] = errors.into();
        }
        let mut answer = json!({
            "status": status,
            "hits": self.hits.iter().map(|(name, hit)| hit_json(request, name, hit)).collect::<Vec<_>>(),
            "total_hits": self.total,
            "cost": 0,
            "max_score": self.max_score,
            "took": took,
            "facets": null,
        });
        if request.explain {
            answer["request"] = request.text.clone();
        }
        if !request.facets.is_empty() {
            let facets: Map<String, Value> = request
                .facets
                .iter()
                .map(|(name, facet)| {
                    let counted = self.facets.get(name).cloned().unwrap_or_default();
                    (name.clone(), facet.answer(&counted))
                })
                .collect();
            answer["facets"] = facets.into();
        }
        if !request.suggest.is_empty() {
            let suggestions: Map<String, Value> = request
                .suggest
                .iter()
                .map(|(name, suggest)| {
                    let found = self.suggestions.get(name).cloned().unwrap_or_default();
                    (name.clone(), suggest.answer(&found))
                })
                .collect();
            answer["suggest"] = suggestions.into();
        }
        answer
    }
}

fn hit_json(request: &Request, partition: &str, hit: &PartialHit) -> Value {
    let mut row = json!({"index": partition, "id": hit.id, "score": hit.score});
    if let Some(explanation) = &hit.explanation {
        row["explanation"] = serde_json::to_value(explanation).unwrap_or_default();
    }
    if let Some(places) = hit.places.as_ref().filter(|places| !places.is_empty()) {
        let mut locations = Map::new();
        for (field, terms) in places {
            let mut of_field = Map::new();
            for (term, found) in terms {
                let found: Vec<Value> = found
                    .iter()
                    .map(|place| {
                        let array = (!place.array.is_empty()).then_some(&place.array);
                        json!({"pos": place.position, "start": place.start, "end": place.end, "array_positions": array})
                    })
                    .collect();
                of_field.insert(term.clone(), found.into());
            }
            locations.insert(field.clone(), of_field.into());
        }
        row["locations"] = locations.into();
    }
    if let Some(fragments) = hit.fragments.as_ref().filter(|fragments| !fragments.is_empty()) {
        row["fragments"] = serde_json::to_value(fragments).unwrap_or_default();
    }
    let (keys, id) = (request.sort.iter().zip(&hit.keys), hit.cursor_id());
    row["sort"] = keys.map(|(key, value)| key.text(value, &id)).collect::<Vec<_>>().into();
    if let Some(fields) = &hit.fields {
        row["fields"] = fields.clone().into();
    }
    row
}
