//! Iterators over the matching documents of a segment, with their scores.

use crate::index::{END, Numbers};
use serde::{Deserialize, Serialize};
use tantivy::DocSet;
use tantivy::postings::{Postings, SegmentPostings};

/// An explanation of a score.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The score, or a part of it.
    pub value: f32,
    /// Description of the value.
    pub message: String,
    /// Values from which it is computed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub children: Vec<Explanation>,
}

impl Explanation {
    /// Creates an explanation with parts.
    pub fn new(value: f32, message: impl Into<String>, children: Vec<Explanation>) -> Explanation {
        Explanation { value, message: message.into(), children }
    }
}

/// An iterator over matching documents, each with a score.
pub trait Scorer {
    /// Returns the current document, or [`END`].
    fn doc(&self) -> u32;

    /// Moves to the next document.
    fn advance(&mut self) -> u32;

    /// Moves to the first document that is not before `target`, which must not be before the current one.
    fn seek(&mut self, target: u32) -> u32 {
        while self.doc() < target {
            self.advance();
        }
        self.doc()
    }

    /// Returns the score of the current document.
    fn score(&mut self) -> f32;

    /// Returns the approximate number of documents.
    fn cost(&self) -> u32;

    /// Explains the score of the current document.
    fn explain(&mut self) -> Explanation {
        Explanation::new(self.score(), "score", Vec::new())
    }
}

/// The scoring formula of a term.
#[derive(Clone, Debug)]
pub enum Formula {
    /// sqrt(frequency) * idf / sqrt(length).
    TfIdf,
    /// BM25, with the mean document length.
    Bm25 {
        /// The mean number of tokens per document.
        mean: f32,
    },
}

/// The weight of a term.
#[derive(Clone, Debug)]
pub struct Weight {
    /// The inverse document frequency.
    pub idf: f32,
    /// The factor in the query.
    pub query: f32,
    /// The formula.
    pub formula: Formula,
}

impl Weight {
    /// Returns the score of a term that occurs `frequency` times in a document with `length` tokens.
    pub fn score(&self, frequency: u32, length: u64) -> f32 {
        let frequency = (frequency as f32).sqrt();
        let length = (length.max(1)) as f32;
        let score = match self.formula {
            Formula::TfIdf => frequency * self.idf / length.sqrt(),
            Formula::Bm25 { mean } => {
                const K: f32 = 1.2;
                const B: f32 = 0.75;
                let norm = K * (1.0 - B + B * length / mean.max(1.0));
                self.idf * frequency * K / (frequency + norm)
            }
        };
        score * self.query
    }
}

/// Iterates over the documents that contain a term.
pub struct TermScorer {
    postings: SegmentPostings,
    lengths: Numbers,
    weight: Weight,
    label: String,
}

impl TermScorer {
    /// Creates the scorer; `label` names the term in explanations.
    pub fn new(postings: SegmentPostings, lengths: Numbers, weight: Weight, label: String) -> Self {
        TermScorer { postings, lengths, weight, label }
    }
}

impl Scorer for TermScorer {
    fn doc(&self) -> u32 {
        self.postings.doc()
    }

    fn advance(&mut self) -> u32 {
        self.postings.advance()
    }

    fn seek(&mut self, target: u32) -> u32 {
        if target > self.postings.doc() { self.postings.seek(target) } else { self.postings.doc() }
    }

    fn score(&mut self) -> f32 {
        self.weight.score(self.postings.term_freq(), self.lengths.first(self.postings.doc()))
    }

    fn cost(&self) -> u32 {
        self.postings.size_hint()
    }

    fn explain(&mut self) -> Explanation {
        let length = self.lengths.first(self.postings.doc());
        let frequency = self.postings.term_freq();
        let mut children = vec![
            Explanation::new(
                frequency as f32,
                format!("termFreq({}) = {frequency}", self.label),
                Vec::new(),
            ),
            Explanation::new(length as f32, "fieldLength", Vec::new()),
            Explanation::new(self.weight.idf, "idf", Vec::new()),
        ];
        if let Formula::Bm25 { mean } = self.weight.formula {
            children.push(Explanation::new(
                mean,
                "averageFieldLength, with k1=1.2 and b=0.75",
                Vec::new(),
            ));
        }
        children.push(Explanation::new(self.weight.query, "queryWeight", Vec::new()));
        Explanation::new(self.score(), format!("weight({}), product of:", self.label), children)
    }
}

/// Iterates over a list of documents.
pub struct ListScorer {
    docs: Vec<u32>,
    at: usize,
    score: f32,
    /// The score of each document, if they differ.
    scores: Vec<f32>,
    label: &'static str,
}

impl ListScorer {
    /// Creates a scorer of a sorted list without duplicates, all with the same score.
    pub fn new(docs: Vec<u32>, score: f32, label: &'static str) -> ListScorer {
        ListScorer { docs, at: 0, score, scores: Vec::new(), label }
    }

    /// Creates a scorer of a sorted list without duplicates, each with its own score.
    pub fn scored(docs: Vec<(u32, f32)>) -> ListScorer {
        let (docs, scores) = docs.into_iter().unzip();
        ListScorer { docs, at: 0, score: 0.0, scores, label: "nearest" }
    }
}

impl Scorer for ListScorer {
    fn doc(&self) -> u32 {
        self.docs.get(self.at).copied().unwrap_or(END)
    }

    fn advance(&mut self) -> u32 {
        self.at += 1;
        self.doc()
    }

    fn seek(&mut self, target: u32) -> u32 {
        self.at +=
            self.docs.get(self.at..).unwrap_or_default().partition_point(|doc| *doc < target);
        self.doc()
    }

    fn score(&mut self) -> f32 {
        self.scores.get(self.at).copied().unwrap_or(self.score)
    }

    fn cost(&self) -> u32 {
        u32::try_from(self.docs.len()).unwrap_or(u32::MAX)
    }

    fn explain(&mut self) -> Explanation {
        Explanation::new(self.score(), format!("ConstantScore({})", self.label), Vec::new())
    }
}

/// Iterates over all documents of a segment, including deleted ones.
pub struct AllScorer {
    doc: u32,
    end: u32,
    score: f32,
}

impl AllScorer {
    /// Creates the scorer of the documents before `end`.
    pub fn new(end: u32, score: f32) -> AllScorer {
        AllScorer { doc: if end == 0 { END } else { 0 }, end, score }
    }
}

impl Scorer for AllScorer {
    fn doc(&self) -> u32 {
        self.doc
    }

    fn advance(&mut self) -> u32 {
        self.seek(self.doc.saturating_add(1))
    }

    fn seek(&mut self, target: u32) -> u32 {
        self.doc = if target < self.end { target.max(self.doc) } else { END };
        self.doc
    }

    fn score(&mut self) -> f32 {
        self.score
    }

    fn cost(&self) -> u32 {
        self.end
    }

    fn explain(&mut self) -> Explanation {
        Explanation::new(self.score, "ConstantScore(match all)", Vec::new())
    }
}

/// Iterates over the documents that all parts match.
pub struct AndScorer {
    parts: Vec<Box<dyn Scorer>>,
    doc: u32,
}

impl AndScorer {
    /// Creates the scorer. There must be at least one part.
    pub fn new(mut parts: Vec<Box<dyn Scorer>>) -> AndScorer {
        parts.sort_by_key(|part| part.cost());
        let mut scorer = AndScorer { doc: parts[0].doc(), parts };
        scorer.align();
        scorer
    }

    fn align(&mut self) -> u32 {
        'again: while self.doc != END {
            for part in &mut self.parts {
                let doc = part.seek(self.doc);
                if doc != self.doc {
                    self.doc = doc;
                    continue 'again;
                }
            }
            break;
        }
        self.doc
    }
}

impl Scorer for AndScorer {
    fn doc(&self) -> u32 {
        self.doc
    }

    fn advance(&mut self) -> u32 {
        self.doc = self.parts[0].advance();
        self.align()
    }

    fn seek(&mut self, target: u32) -> u32 {
        if target > self.doc {
            self.doc = self.parts[0].seek(target);
            self.align();
        }
        self.doc
    }

    fn score(&mut self) -> f32 {
        self.parts.iter_mut().map(|part| part.score()).sum()
    }

    fn cost(&self) -> u32 {
        self.parts[0].cost()
    }

    fn explain(&mut self) -> Explanation {
        let children = self.parts.iter_mut().map(|part| part.explain()).collect();
        Explanation::new(self.score(), "sum of:", children)
    }
}

/// Iterates over the documents of a base, except those of an excluded scorer. An optional scorer adds to the scores.
pub struct BooleanScorer {
    base: Box<dyn Scorer>,
    optional: Option<Box<dyn Scorer>>,
    excluded: Option<Box<dyn Scorer>>,
    /// Scorers that must match and add no score.
    filter: Option<Box<dyn Scorer>>,
    /// True if the base adds to the score.
    scored: bool,
}

impl BooleanScorer {
    /// Creates the scorer for the documents of `base`.
    pub fn new(
        base: Box<dyn Scorer>,
        optional: Option<Box<dyn Scorer>>,
        excluded: Option<Box<dyn Scorer>>,
        filter: Option<Box<dyn Scorer>>,
        scored: bool,
    ) -> BooleanScorer {
        let mut scorer = BooleanScorer { base, optional, excluded, filter, scored };
        scorer.align();
        scorer
    }

    fn align(&mut self) -> u32 {
        loop {
            let doc = self.base.doc();
            if doc == END {
                return END;
            }
            if let Some(filter) = &mut self.filter {
                let next = filter.seek(doc);
                if next != doc {
                    if next == END {
                        // No document is left.
                        self.base.seek(END);
                    } else {
                        self.base.seek(next);
                    }
                    continue;
                }
            }
            if self.excluded.as_mut().is_some_and(|excluded| excluded.seek(doc) == doc) {
                self.base.advance();
                continue;
            }
            return doc;
        }
    }
}

impl Scorer for BooleanScorer {
    fn doc(&self) -> u32 {
        self.base.doc()
    }

    fn advance(&mut self) -> u32 {
        self.base.advance();
        self.align()
    }

    fn seek(&mut self, target: u32) -> u32 {
        self.base.seek(target);
        self.align()
    }

    fn score(&mut self) -> f32 {
        let doc = self.base.doc();
        let mut score = if self.scored { self.base.score() } else { 0.0 };
        if let Some(optional) = &mut self.optional
            && optional.seek(doc) == doc
        {
            score += optional.score();
        }
        score
    }

    fn cost(&self) -> u32 {
        self.base.cost()
    }

    fn explain(&mut self) -> Explanation {
        let doc = self.base.doc();
        let mut children = Vec::new();
        if self.scored {
            children.push(self.base.explain());
        }
        if let Some(optional) = &mut self.optional
            && optional.seek(doc) == doc
        {
            children.push(optional.explain());
        }
        Explanation::new(self.score(), "sum of:", children)
    }
}

/// Iterates over the documents that enough parts match, by checking every part for each document.
pub struct OrScorer {
    parts: Vec<Box<dyn Scorer>>,
    min: usize,
    total: usize,
    doc: u32,
}

impl OrScorer {
    /// Creates the scorer of the documents that at least `min` parts match. `total` is the number of parts, including
    /// those that match nothing in this segment; 0 if scores do not depend on it.
    pub fn new(parts: Vec<Box<dyn Scorer>>, min: usize, total: usize) -> OrScorer {
        let mut scorer = OrScorer { parts, min: min.max(1), total, doc: 0 };
        scorer.align();
        scorer
    }

    fn align(&mut self) -> u32 {
        loop {
            let doc = self.parts.iter().map(|part| part.doc()).min().unwrap_or(END);
            self.doc = doc;
            if doc == END
                || self.min == 1
                || self.parts.iter().filter(|part| part.doc() == doc).count() >= self.min
            {
                return doc;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let doc = self.doc;
        for part in self.parts.iter_mut().filter(|part| part.doc() == doc) {
            part.advance();
        }
    }
}

impl Scorer for OrScorer {
    fn doc(&self) -> u32 {
        self.doc
    }

    fn advance(&mut self) -> u32 {
        self.step();
        self.align()
    }

    fn seek(&mut self, target: u32) -> u32 {
        if target > self.doc {
            for part in &mut self.parts {
                part.seek(target);
            }
            self.align();
        }
        self.doc
    }

    fn score(&mut self) -> f32 {
        let (mut sum, mut matched) = (0.0, 0_usize);
        for part in self.parts.iter_mut().filter(|part| part.doc() == self.doc) {
            sum += part.score();
            matched += 1;
        }
        coord(matched, self.total) * sum
    }

    fn cost(&self) -> u32 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.cost()))
    }

    fn explain(&mut self) -> Explanation {
        let doc = self.doc;
        let children: Vec<Explanation> = self
            .parts
            .iter_mut()
            .filter(|part| part.doc() == doc)
            .map(|part| part.explain())
            .collect();
        let matched = children.len();
        let sum =
            Explanation::new(children.iter().map(|child| child.value).sum(), "sum of:", children);
        if self.total == 0 {
            return sum;
        }
        let label = format!("coord({matched}/{})", self.total);
        let coord = Explanation::new(coord(matched, self.total), label, Vec::new());
        Explanation::new(self.score(), "product of:", vec![sum, coord])
    }
}

/// Returns the share of the parts that matched, or 1 if it does not count.
fn coord(matched: usize, total: usize) -> f32 {
    if total == 0 { 1.0 } else { matched as f32 / total as f32 }
}

/// Number of documents in a window.
const WINDOW: usize = 4096;

/// Like [`OrScorer`], for many parts: evaluates each part for a window of documents at a time.
pub struct WindowScorer {
    parts: Vec<Box<dyn Scorer>>,
    min: u16,
    total: usize,
    /// The first document of the window.
    start: u32,
    at: usize,
    counts: Box<[u16; WINDOW]>,
    sums: Box<[f32; WINDOW]>,
    doc: u32,
    scored: bool,
}

impl WindowScorer {
    /// Creates the scorer of the documents that at least `min` parts match. Without `scored`, all scores are 0.
    pub fn new(
        parts: Vec<Box<dyn Scorer>>,
        min: usize,
        total: usize,
        scored: bool,
    ) -> WindowScorer {
        let min = u16::try_from(min.max(1)).unwrap_or(u16::MAX);
        let (counts, sums) = (Box::new([0; WINDOW]), Box::new([0.0; WINDOW]));
        let mut scorer =
            WindowScorer { parts, min, total, start: 0, at: WINDOW, counts, sums, doc: 0, scored };
        scorer.find();
        scorer
    }

    /// Fills the window, starting with the smallest document. Returns whether there is one.
    fn fill(&mut self) -> bool {
        self.parts.retain(|part| part.doc() != END);
        let Some(start) = self.parts.iter().map(|part| part.doc()).min() else { return false };
        self.counts.fill(0);
        self.sums.fill(0.0);
        (self.start, self.at) = (start, 0);
        let end = start.saturating_add(WINDOW as u32).min(END);
        for part in &mut self.parts {
            let mut doc = part.doc();
            while doc < end {
                let at = (doc - start) as usize;
                self.counts[at] = self.counts[at].saturating_add(1);
                if self.scored {
                    self.sums[at] += part.score();
                }
                doc = part.advance();
            }
        }
        true
    }

    fn find(&mut self) -> u32 {
        loop {
            let found = self.counts[self.at..].iter().position(|count| *count >= self.min);
            if let Some(found) = found {
                self.at += found;
                self.doc = self.start + self.at as u32;
                return self.doc;
            }
            if !self.fill() {
                self.at = WINDOW;
                self.doc = END;
                return END;
            }
        }
    }
}

impl Scorer for WindowScorer {
    fn doc(&self) -> u32 {
        self.doc
    }

    fn advance(&mut self) -> u32 {
        if self.doc == END {
            return END;
        }
        self.at += 1;
        self.find()
    }

    fn seek(&mut self, target: u32) -> u32 {
        if target <= self.doc {
            return self.doc;
        }
        let end = self.start.saturating_add(WINDOW as u32);
        if target < end {
            self.at = (target - self.start) as usize;
        } else {
            self.at = WINDOW;
            for part in &mut self.parts {
                part.seek(target);
            }
        }
        self.find()
    }

    fn score(&mut self) -> f32 {
        coord(usize::from(self.counts[self.at]), self.total) * self.sums[self.at]
    }

    fn cost(&self) -> u32 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.cost()))
    }
}
