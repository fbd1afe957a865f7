//! The nearest neighbours of vectors. They are found before the rest of a request, because each partition has its own neighbours and only
//! the nearest of all partitions count.

use super::plan::Planner;
use super::request::Request;
use crate::error::{Error, Result};
use crate::index::{END, Index, Segment};
use crate::query::{Query, kind, unmarshal};
use crate::vector::{self, Wanted};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tantivy::BitSet;

/// Maximum number of neighbours that a request may ask for.
const NEIGHBOURS_MAX: u64 = 10_000;

/// A vector whose neighbours a request asks for.
#[derive(Clone, Debug)]
pub struct KnnRequest {
    field: String,
    vector: Vec<f32>,
    count: usize,
    /// Boost factor of the score.
    pub boost: f32,
    filter: Option<Query>,
    /// The share of a large segment's lists that the search reads, unless it is that of the field.
    share: Option<f32>,
}

/// The nearest documents and their scores by ID, for each vector of a request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Nearest(pub(crate) Vec<BTreeMap<String, f32>>);

impl KnnRequest {
    /// Parses an element of the member `knn`.
    ///
    /// # Errors
    /// The vector is missing, the number of neighbours is out of range, or the filter is not a query.
    pub fn parse(value: &Value) -> Result<KnnRequest> {
        let vector = match (&value["vector"], &value["vector_base64"]) {
            (Value::Array(_), _) => {
                let vectors = vector::parse(&value["vector"], 0);
                vectors
                    .filter(|vectors| vectors.len() == 1)
                    .map(|mut vectors| vectors.remove(0))
                    .ok_or_else(|| Error::request("knn: vector must be an array of numbers"))?
            }
            (Value::Null, Value::String(text)) => vector::decode(text)
                .ok_or_else(|| Error::request("knn: invalid vector_base64: illegal base64 data"))?,
            (Value::Null, _) => Vec::new(),
            (other, _) => {
                return Err(unmarshal(kind(other), "KNNRequest.vector of type []float32"));
            }
        };
        let count = value["k"].as_u64().unwrap_or(0);
        if count == 0 || vector.is_empty() {
            return Err(Error::request("k must be greater than 0 and vector must be non-empty"));
        }
        if count > NEIGHBOURS_MAX {
            return Err(Error::request(format!("k must be less than {NEIGHBOURS_MAX}")));
        }
        let filter = match &value["filter"] {
            Value::Null => None,
            filter => Some(Query::parse(filter)?),
        };
        Ok(KnnRequest {
            field: value["field"].as_str().unwrap_or_default().to_owned(),
            vector,
            count: count as usize,
            boost: value["boost"].as_f64().unwrap_or(1.0) as f32,
            filter,
            share: value["params"]["ivf_nprobe_pct"]
                .as_f64()
                .map(|percent| (percent / 100.0).clamp(0.0, 1.0) as f32),
        })
    }
}

/// Returns the nearest documents of a partition for each vector of a request.
///
/// # Errors
/// As for [`super::search`].
pub fn nearest(index: &Index, request: &Request) -> Result<Nearest> {
    let segments: Vec<Arc<Segment>> = index.segments().cloned().collect();
    let mut all = Vec::with_capacity(request.knn.len());
    for knn in &request.knn {
        let field = index.definition().mapping.field_of(&knn.field);
        let mut found = BTreeMap::new();
        if let Some(field) = field {
            let metric = field.metric;
            let share = knn.share.unwrap_or_else(|| field.effort.share());
            let node = match &knn.filter {
                None => None,
                Some(filter) => Some(Planner::new(index.definition(), &segments).plan(filter)?),
            };
            let mut query = knn.vector.clone();
            metric.prepare(&mut query);
            for segment in &segments {
                let eligible = match &node {
                    None => None,
                    Some(node) => {
                        let mut docs = BitSet::with_max_value(segment.max_doc().max(1));
                        let mut scorer = node.scorer(segment, false, false)?;
                        while scorer.doc() != END {
                            docs.insert(scorer.doc());
                            scorer.advance();
                        }
                        Some(docs)
                    }
                };
                let wanted = Wanted {
                    vector: &query,
                    metric,
                    count: knn.count,
                    share,
                    filtered: eligible.as_ref().map(BitSet::len),
                };
                take(segment, request, &knn.field, &wanted, eligible.as_ref(), &mut found)?;
            }
        }
        all.push(cut(found, knn.count));
    }
    Ok(Nearest(all))
}

fn take(
    segment: &Segment,
    request: &Request,
    field: &str,
    wanted: &Wanted<'_>,
    eligible: Option<&BitSet>,
    found: &mut BTreeMap<String, f32>,
) -> Result<()> {
    let Some(file) = segment.vectors()? else { return Ok(()) };
    let vbuckets = request.vbuckets.as_ref().map(|_| segment.vbuckets()).transpose()?;
    let is_eligible = |doc: u32| {
        !segment.is_deleted(doc)
            && vbuckets.as_ref().is_none_or(|column| request.sees(column.first(doc)))
            && eligible.is_none_or(|eligible| eligible.contains(doc))
    };
    for (doc, score) in file.nearest(field, wanted, is_eligible)? {
        found.insert(segment.id(doc)?, score);
    }
    Ok(())
}

fn cut(found: BTreeMap<String, f32>, count: usize) -> BTreeMap<String, f32> {
    let mut all: Vec<(String, f32)> = found.into_iter().collect();
    all.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| a.cmp(b)));
    all.truncate(count);
    all.into_iter().collect()
}

impl Nearest {
    /// Returns the nearest documents of all partitions.
    #[must_use]
    pub fn merge(request: &Request, partials: Vec<Nearest>) -> Nearest {
        let mut merged = vec![BTreeMap::new(); request.knn.len()];
        for partial in partials {
            for (all, found) in merged.iter_mut().zip(partial.0) {
                all.extend(found);
            }
        }
        let cut = merged.into_iter().zip(&request.knn).map(|(found, knn)| cut(found, knn.count));
        Nearest(cut.collect())
    }
}
