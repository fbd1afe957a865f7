//! Queries, as a request contains them.

mod parse;
mod string;

pub use parse::{kind, parse_address, unmarshal};

use crate::geo::{Distance, Polygon, Shape};

/// Required relation of a document's shape to the query's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The shapes share a point.
    Intersects,
    /// The document's shape contains the query's shape.
    Contains,
    /// The document's shape is within the query's shape.
    Within,
    /// The shapes share no point.
    Disjoint,
}

/// Maximum number of edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuzziness {
    /// This number, at most 2.
    Exact(u8),
    /// None for up to 2 characters, 1 for up to 5, else 2.
    Auto,
}

impl Fuzziness {
    /// Returns the maximum number of edits for a term.
    #[must_use]
    pub fn of(self, term: &str) -> u8 {
        match (self, term.chars().count()) {
            (Fuzziness::Exact(count), _) => count,
            (Fuzziness::Auto, 0..=2) => 0,
            (Fuzziness::Auto, 3..=5) => 1,
            (Fuzziness::Auto, _) => 2,
        }
    }
}

/// A range of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Range<T> {
    /// The lower bound.
    pub min: Option<T>,
    /// The upper bound.
    pub max: Option<T>,
    /// True if the range includes the lower bound.
    pub inclusive_min: bool,
    /// True if the range includes the upper bound.
    pub inclusive_max: bool,
}

/// A query without subqueries.
#[derive(Clone, Debug)]
pub enum Leaf {
    /// An exact term, as indexed.
    Term(String),
    /// Terms similar to a given term.
    Fuzzy {
        /// The term.
        term: String,
        /// Number of leading characters that must be equal.
        prefix: usize,
        /// Maximum number of edits in the rest.
        fuzziness: Fuzziness,
    },
    /// The tokens of a text.
    Match {
        /// The text.
        text: String,
        /// The analyzer; by default that of the field.
        analyzer: Option<String>,
        /// Number of leading characters of each token that must be equal.
        prefix: usize,
        /// Maximum number of edits in the rest.
        fuzziness: Fuzziness,
        /// True if all tokens must match, rather than one.
        all: bool,
    },
    /// The tokens of a text as a phrase.
    MatchPhrase {
        /// The text.
        text: String,
        /// The analyzer; by default that of the field.
        analyzer: Option<String>,
        /// Maximum number of edits in each token.
        fuzziness: Fuzziness,
    },
    /// A phrase of terms, with alternatives for each position.
    Phrase {
        /// The terms.
        terms: Vec<Vec<String>>,
        /// Maximum number of edits in each term.
        fuzziness: Fuzziness,
    },
    /// Terms with this prefix.
    Prefix(String),
    /// Terms that match this regular expression completely.
    Regexp(String),
    /// Terms that match this pattern with `*` and `?`.
    Wildcard(String),
    /// Terms in a range.
    Terms(Range<String>),
    /// Numbers in a range.
    Numbers(Range<f64>),
    /// Dates in a range.
    Dates {
        /// The bounds, as texts.
        range: Range<String>,
        /// The date parser; by default that of the field.
        parser: Option<String>,
    },
    /// A boolean.
    Boolean(bool),
    /// IP addresses in a range.
    Addresses(u128, u128),
    /// Points in a box, given by the longitudes and latitudes of two corners.
    Box {
        /// The western longitude.
        west: f64,
        /// The northern latitude.
        north: f64,
        /// The eastern longitude.
        east: f64,
        /// The southern latitude.
        south: f64,
    },
    /// Points near a given point.
    Near(Distance),
    /// Points in a polygon.
    Polygon(Polygon),
    /// Shapes with a relation to a given shape.
    Shape(Box<Shape>, Relation),
}

/// A query.
#[derive(Clone, Debug)]
pub enum Query {
    /// Matches no document.
    None,
    /// Matches every document.
    All {
        /// Boost factor of the score.
        boost: f32,
    },
    /// The documents with these IDs.
    Ids {
        /// The IDs.
        ids: Vec<String>,
        /// Boost factor of the score.
        boost: f32,
    },
    /// A condition on the values of a field.
    Leaf {
        /// The field; by default the default field of the index.
        field: Option<String>,
        /// The condition.
        leaf: Leaf,
        /// Boost factor of the score.
        boost: f32,
    },
    /// Queries that must all match.
    Conjunction {
        /// The parts.
        parts: Vec<Query>,
        /// Boost factor of the score.
        boost: f32,
    },
    /// Queries of which a minimum number must match.
    Disjunction {
        /// The parts.
        parts: Vec<Query>,
        /// The minimum number.
        min: usize,
        /// Boost factor of the score.
        boost: f32,
        /// True if the query comes from a text: subqueries that cannot be executed are then ignored.
        lenient: bool,
    },
    /// A combination of required, optional and excluded queries.
    Boolean {
        /// Required query.
        must: Option<Box<Query>>,
        /// Optional query; required if there is no other query.
        should: Option<Box<Query>>,
        /// Excluded query.
        must_not: Option<Box<Query>>,
        /// Required query without a score.
        filter: Option<Box<Query>>,
        /// Boost factor of the score.
        boost: f32,
    },
}

impl Query {
    /// Sets the field of all subqueries that do not name one.
    pub fn set_field(&mut self, name: &str) {
        match self {
            Query::None | Query::All { .. } | Query::Ids { .. } => {}
            Query::Leaf { field, .. } => {
                field.get_or_insert_with(|| name.to_owned());
            }
            Query::Conjunction { parts, .. } | Query::Disjunction { parts, .. } => {
                parts.iter_mut().for_each(|part| part.set_field(name));
            }
            Query::Boolean { must, should, must_not, filter, .. } => {
                let parts = [must, should, must_not, filter].into_iter().flatten();
                parts.for_each(|part| part.set_field(name));
            }
        }
    }
}
