//! Synonyms of the terms of a query. The documents that define them are spread over the partitions, so that they are collected from all
//! of them before the hits.

use super::plan::Planner;
use super::request::Request;
use crate::definition::SYNONYMS;
use crate::error::Result;
use crate::index::{END, Index, Segment};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tantivy::DocSet;
use tantivy::postings::TermInfo;

/// Maximum number of synonyms of a term, also in each segment. Further ones are ignored.
const SYNONYMS_MAX: usize = 1024;

/// The synonyms of the terms of a query, by source and term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thesaurus(BTreeMap<String, BTreeSet<String>>);

/// Where a planner finds synonyms.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'a> {
    /// Nowhere: terms have no synonyms.
    Off,
    /// In the documents of the partition.
    Local,
    /// In what all partitions have returned.
    Known(&'a Thesaurus),
}

impl Thesaurus {
    /// Adds synonyms.
    pub(crate) fn add(&mut self, prefix: String, synonyms: &BTreeSet<String>) {
        self.0.entry(prefix).or_default().extend(synonyms.iter().cloned());
    }

    /// Returns the synonyms of a term.
    pub(crate) fn get(&self, prefix: &str) -> Vec<String> {
        let found = self.0.get(prefix).into_iter().flatten();
        found.take(SYNONYMS_MAX).cloned().collect()
    }

    /// Adds the synonyms of another partition.
    pub fn merge(&mut self, other: Thesaurus) {
        for (prefix, synonyms) in other.0 {
            self.0.entry(prefix).or_default().extend(synonyms);
        }
    }
}

/// Returns the synonyms that the documents of a partition define for the terms of a request's query.
///
/// # Errors
/// As for [`super::search`].
pub fn thesaurus(index: &Index, request: &Request) -> Result<Thesaurus> {
    let segments: Vec<Arc<Segment>> = index.segments().cloned().collect();
    let mut planner = Planner::new(index.definition(), &segments).with_synonyms(Lookup::Local);
    planner.plan(&request.query)?;
    Ok(planner.into_thesaurus())
}

/// Returns the synonyms in the documents of some segments. `prefix` is that of the terms.
///
/// # Errors
/// A file is corrupt.
pub fn local(segments: &[Arc<Segment>], prefix: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for segment in segments {
        let mut terms: Vec<(String, TermInfo)> = Vec::new();
        segment.each_term(SYNONYMS, prefix, |term, info| {
            let Some(synonym) = term.strip_prefix(prefix) else { return false };
            terms.push((synonym.to_owned(), info.clone()));
            terms.len() < SYNONYMS_MAX
        })?;
        for (synonym, info) in terms {
            if found.len() < SYNONYMS_MAX && is_defined(segment, &info)? {
                found.insert(synonym);
            }
        }
    }
    Ok(found)
}

/// Returns true if a document that is not deleted has the term.
fn is_defined(segment: &Segment, info: &TermInfo) -> Result<bool> {
    let mut postings = segment.postings(SYNONYMS, info, false)?;
    while postings.doc() != END {
        if !segment.is_deleted(postings.doc()) {
            return Ok(true);
        }
        postings.advance();
    }
    Ok(false)
}
