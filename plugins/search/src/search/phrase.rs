//! Matches documents that contain a phrase.

use super::scorer::{Explanation, Scorer, Weight};
use crate::index::{END, Numbers};
use tantivy::DocSet;
use tantivy::postings::{Postings, SegmentPostings};

/// A position of a phrase: one or more alternative terms.
pub struct Slot {
    /// Distance from the first position of the phrase.
    pub offset: u32,
    /// The terms.
    pub terms: Vec<(SegmentPostings, Weight)>,
}

impl Slot {
    fn doc(&self) -> u32 {
        self.terms.iter().map(|(postings, _)| postings.doc()).min().unwrap_or(END)
    }

    fn seek(&mut self, target: u32) -> u32 {
        for (postings, _) in &mut self.terms {
            if postings.doc() < target {
                postings.seek(target);
            }
        }
        self.doc()
    }

    /// Returns the positions minus the offset, in order.
    fn positions(&mut self, doc: u32, positions: &mut Vec<u32>, buffer: &mut Vec<u32>) {
        positions.clear();
        for (postings, _) in self.terms.iter_mut().filter(|(postings, _)| postings.doc() == doc) {
            postings.positions(buffer);
            positions.extend(buffer.iter().filter_map(|at| at.checked_sub(self.offset)));
        }
        if self.terms.len() > 1 {
            positions.sort_unstable();
            positions.dedup();
        }
    }
}

/// Matches documents that contain a phrase.
pub struct PhraseScorer {
    slots: Vec<Slot>,
    lengths: Numbers,
    doc: u32,
    candidates: Vec<u32>,
    positions: Vec<u32>,
    buffer: Vec<u32>,
}

impl PhraseScorer {
    /// Creates the scorer of a phrase, which must have at least one slot.
    pub fn new(slots: Vec<Slot>, lengths: Numbers) -> PhraseScorer {
        let mut scorer = PhraseScorer {
            doc: slots[0].doc(),
            slots,
            lengths,
            candidates: Vec::new(),
            positions: Vec::new(),
            buffer: Vec::new(),
        };
        scorer.align();
        scorer
    }

    fn align(&mut self) -> u32 {
        'again: while self.doc != END {
            for slot in &mut self.slots {
                let doc = slot.seek(self.doc);
                if doc != self.doc {
                    self.doc = doc;
                    continue 'again;
                }
            }
            if self.is_phrase() {
                break;
            }
            self.doc += 1;
        }
        self.doc
    }

    fn is_phrase(&mut self) -> bool {
        if self.slots.len() == 1 {
            return true;
        }
        self.slots[0].positions(self.doc, &mut self.candidates, &mut self.buffer);
        for slot in &mut self.slots[1..] {
            slot.positions(self.doc, &mut self.positions, &mut self.buffer);
            let positions = &self.positions;
            self.candidates.retain(|at| positions.binary_search(at).is_ok());
            if self.candidates.is_empty() {
                return false;
            }
        }
        true
    }
}

impl Scorer for PhraseScorer {
    fn doc(&self) -> u32 {
        self.doc
    }

    fn advance(&mut self) -> u32 {
        if self.doc != END {
            self.doc += 1;
        }
        self.align()
    }

    fn seek(&mut self, target: u32) -> u32 {
        if target > self.doc {
            self.doc = target;
            self.align();
        }
        self.doc
    }

    fn score(&mut self) -> f32 {
        let (doc, length) = (self.doc, self.lengths.first(self.doc));
        let terms = self.slots.iter().flat_map(|slot| &slot.terms);
        terms
            .filter(|(postings, _)| postings.doc() == doc)
            .map(|(postings, weight)| weight.score(postings.term_freq(), length))
            .sum()
    }

    fn cost(&self) -> u32 {
        let cost = |slot: &Slot| {
            slot.terms
                .iter()
                .fold(0_u32, |sum, (postings, _)| sum.saturating_add(postings.size_hint()))
        };
        self.slots.iter().map(cost).min().unwrap_or(0)
    }

    fn explain(&mut self) -> Explanation {
        Explanation::new(self.score(), "phrase, sum of its terms", Vec::new())
    }
}
