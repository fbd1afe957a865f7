//! Queries: what a request asks for, as it is written.

mod parse;
mod string;

pub use parse::{kind, parse_address, unmarshal};

use crate::geo::{Distance, Polygon, Shape};

/// How a shape in a document has to be to a shape in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The shapes have a point in common.
    Intersects,
    /// The shape of the document contains that of the query.
    Contains,
    /// The shape of the document is inside that of the query.
    Within,
    /// The shapes have no point in common.
    Disjoint,
}

/// How many letters may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuzziness {
    /// So many, at most 2.
    Exact(u8),
    /// None for up to 2 characters, 1 for up to 5, else 2.
    Auto,
}

impl Fuzziness {
    /// So many for a term.
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
    /// The least.
    pub min: Option<T>,
    /// The greatest.
    pub max: Option<T>,
    /// The least itself is in it.
    pub inclusive_min: bool,
    /// The greatest itself is in it.
    pub inclusive_max: bool,
}

/// A query without parts.
#[derive(Clone, Debug)]
pub enum Leaf {
    /// A term, as it is indexed.
    Term(String),
    /// Terms that are like one.
    Fuzzy {
        /// The term.
        term: String,
        /// Characters at its beginning that may not differ.
        prefix: usize,
        /// How many others may.
        fuzziness: Fuzziness,
    },
    /// The tokens of a text.
    Match {
        /// The text.
        text: String,
        /// The analyzer; that of the field when it is not named.
        analyzer: Option<String>,
        /// Characters at the beginning of each token that may not differ.
        prefix: usize,
        /// How many others may.
        fuzziness: Fuzziness,
        /// All tokens rather than one.
        all: bool,
    },
    /// The tokens of a text, one after the other.
    MatchPhrase {
        /// The text.
        text: String,
        /// The analyzer; that of the field when it is not named.
        analyzer: Option<String>,
        /// How many letters may differ in each.
        fuzziness: Fuzziness,
    },
    /// Terms one after the other; each is one of several.
    Phrase {
        /// The terms.
        terms: Vec<Vec<String>>,
        /// How many letters may differ in each.
        fuzziness: Fuzziness,
    },
    /// Terms that begin so.
    Prefix(String),
    /// Terms that match wholly.
    Regexp(String),
    /// Terms that match, with `*` and `?`.
    Wildcard(String),
    /// Terms between two.
    Terms(Range<String>),
    /// Numbers between two.
    Numbers(Range<f64>),
    /// Dates between two.
    Dates {
        /// The bounds, as they are written.
        range: Range<String>,
        /// Parser of the dates; that of the field if not named.
        parser: Option<String>,
    },
    /// True or false.
    Boolean(bool),
    /// Internet addresses from one to another.
    Addresses(u128, u128),
    /// Places in a box: the longitudes and latitudes of two corners.
    Box {
        /// Longitude of the west.
        west: f64,
        /// Latitude of the north.
        north: f64,
        /// Longitude of the east.
        east: f64,
        /// Latitude of the south.
        south: f64,
    },
    /// Places that are near one.
    Near(Distance),
    /// Places inside of a polygon.
    Polygon(Polygon),
    /// Shapes.
    Shape(Box<Shape>, Relation),
}

/// A query.
#[derive(Clone, Debug)]
pub enum Query {
    /// No document.
    None,
    /// Every document.
    All {
        /// Factor of the score.
        boost: f32,
    },
    /// The documents of these IDs.
    Ids {
        /// The IDs.
        ids: Vec<String>,
        /// Factor of the score.
        boost: f32,
    },
    /// Condition on the values of a field.
    Leaf {
        /// The field; the default field of the index when it is not named.
        field: Option<String>,
        /// Condition on the values.
        leaf: Leaf,
        /// Factor of the score.
        boost: f32,
    },
    /// Queries that must all match.
    Conjunction {
        /// The parts.
        parts: Vec<Query>,
        /// Factor of the score.
        boost: f32,
    },
    /// Queries of which some must match.
    Disjunction {
        /// The parts.
        parts: Vec<Query>,
        /// How many at least.
        min: usize,
        /// Factor of the score.
        boost: f32,
        /// It stands for a text in which parts that cannot be carried out do not count.
        lenient: bool,
    },
    /// Combination of required, optional and excluded queries.
    Boolean {
        /// Required query.
        must: Option<Box<Query>>,
        /// Optional query; required if nothing else is.
        should: Option<Box<Query>>,
        /// Excluded query.
        must_not: Option<Box<Query>>,
        /// Required query without a score.
        filter: Option<Box<Query>>,
        /// Factor of the score.
        boost: f32,
    },
}

impl Query {
    /// Names the field of the parts that name none.
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
