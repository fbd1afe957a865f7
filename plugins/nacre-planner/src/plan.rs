//! The nodes of a plan. [`crate::planner`] makes plans, [`crate::explain`] shows them, and nacre-query runs them.

use nacre_cost::Estimate;
pub use nacre_cost::Sarg;
use nacre_datastore::Keyspace;
use nacre_sql::ast::{Aggregate, Bound, Expr, JoinKind, OrderTerm, Projection, SetOp, Side, With};
use nacre_sql::index::Definition;
use nacre_sql::{Name, Value};
use std::rc::Rc;

/// The plan of a query.
pub struct SelectPlan {
    /// The operator that gives the rows.
    pub root: Rc<Node>,
    /// Whether its rows depend on nothing outside.
    pub alone: bool,
}

/// An operator with what it reads from.
pub enum Node {
    /// One row without variables.
    Dummy,
    /// The rows of the first term of FROM.
    Scan(Scan),
    /// Another term of FROM.
    Join(Rc<Node>, Join),
    /// Variables with their values.
    Let(Rc<Node>, Vec<(Name, Expr)>),
    /// The rows for which a condition holds.
    Filter(Rc<Node>, Expr),
    /// A row for each group.
    Group(Rc<Node>, Group),
    /// Window functions, each with the name that its value is bound to.
    Window(Rc<Node>, Vec<(Name, Aggregate)>),
    /// Rows in an order, of which those of a page are wanted.
    Order(Rc<Node>, Vec<OrderTerm>, Page),
    /// The values that are selected.
    Project(Rc<Node>, Project),
    /// Each value once.
    Distinct(Rc<Node>),
    /// Some of the rows.
    Page(Rc<Node>, Page),
    /// Two queries as sets; the flag says ALL.
    Set(SetOp, bool, Rc<Node>, Rc<Node>),
    /// Many UNION; the flag says ALL.
    Union(bool, Vec<Rc<Node>>),
    /// The names of WITH.
    With(Rc<Node>, Vec<With>),
    /// The count of a whole keyspace, bound to a name.
    Count(Keyspace, Name),
}

/// LIMIT and OFFSET.
#[derive(Clone, Default)]
pub struct Page {
    /// How many rows are wanted; all without it.
    pub limit: Option<Expr>,
    /// How many rows are left out before.
    pub offset: Option<Expr>,
}

/// The values that are selected.
pub struct Project {
    /// The expressions of the SELECT clause.
    pub projection: Projection,
    /// The variables that `*` stands for.
    pub star: Vec<Name>,
}

/// A term of FROM.
#[derive(Clone)]
pub struct Scan {
    /// The variable that has the value of a row.
    pub alias: Name,
    /// The source of the rows.
    pub source: ScanSource,
    /// How many of its first rows are probably enough; without a limit when that cannot be told.
    pub page: Page,
    /// Whether documents are passed on as they are.
    pub passing: Passing,
    /// The extended attributes that are looked at.
    pub attributes: Vec<Name>,
    /// What it costs, if there are statistics.
    pub costs: Option<Costs>,
}

/// Estimates of a scan.
#[derive(Clone, Copy)]
pub struct Costs {
    /// Of the index alone.
    pub scan: Estimate,
    /// With the documents.
    pub with_documents: Estimate,
}

/// Whether the documents of a scan are passed on as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passing {
    /// Something looks into them.
    #[default]
    No,
    /// Nothing looks into them, though some may be left out for what is known beside them.
    Some,
    /// All of them are, as the scan finds those only for which the condition holds.
    All,
}

impl Scan {
    /// A scan of which all rows are wanted.
    pub fn of(alias: Name, source: ScanSource) -> Scan {
        let (page, passing) = (Page::default(), Passing::No);
        Scan { alias, source, page, passing, attributes: Vec::new(), costs: None }
    }
}

/// The source of a scan.
#[derive(Clone)]
pub enum ScanSource {
    /// The elements of an array.
    Expr(Expr),
    /// A catalog of `system:`.
    Catalog(Name),
    /// Documents.
    Keyspace {
        /// Where they are.
        keyspace: Keyspace,
        /// How they are found.
        access: Access,
        /// Whether entries of the index stand for them.
        covering: bool,
    },
}

/// How documents are found.
#[derive(Clone)]
pub enum Access {
    /// By a key, or an array of keys.
    Keys(Expr),
    /// All of them, by the primary index of that name.
    Primary(Name),
    /// All of them, without an index.
    Sequential,
    /// By an index.
    Index(IndexScan),
    /// Those that any of several indexes finds.
    Union(Vec<IndexScan>),
    /// Those that all of several indexes find.
    Intersect(Vec<IndexScan>),
    /// By a search.
    Search(SearchScan),
}

/// The hits of a search.
#[derive(Clone)]
pub struct SearchScan {
    /// The full name of the search index.
    pub index: Name,
    /// The call of SEARCH, whose second and third arguments are evaluated when the scan begins.
    pub call: Expr,
    /// How many of the first hits are enough; without a limit all are wanted.
    pub page: Page,
    /// True if the best hits are to come first.
    pub by_score: bool,
    /// True if the query tests each document anyway, so that the hits may be too many.
    pub is_flexible: bool,
    /// The vector whose neighbours are the hits; the call is that of the distance.
    pub nearest: Option<Box<Nearest>>,
}

/// The documents nearest to a vector.
#[derive(Clone)]
pub struct Nearest {
    /// The path of the vector in the documents.
    pub field: Name,
    /// Number of dimensions.
    pub dimension: usize,
    /// Number of documents.
    pub count: usize,
    /// The query that the documents must match; MISSING without one.
    pub filter: Value,
}

/// The entries of an index that are read.
#[derive(Clone)]
pub struct IndexScan {
    /// Names the index in calls of the store.
    pub id: u64,
    /// The index.
    pub definition: Rc<Definition>,
    /// What is asked of the parts, from the first on.
    pub parts: Vec<Vec<Sarg>>,
    /// What tells the partitions of its entries, if that is known: the values of each expression that spreads them.
    pub spread: Option<Vec<Sarg>>,
    /// Whether entries are read from the last to the first.
    pub reverse: bool,
    /// The names that the parts are bound to, when the scan covers.
    pub covers: Vec<Name>,
    /// What is bound to the same value for all entries, when the scan covers.
    pub constants: Vec<(Bound, Value)>,
}

impl IndexScan {
    /// Whether it may give a document twice.
    pub fn repeats(&self) -> bool {
        self.definition.keys.iter().any(|key| key.array.is_some())
    }
}

/// How a term of FROM is joined to those before it.
pub struct Join {
    /// JOIN, NEST or UNNEST.
    pub kind: JoinKind,
    /// The side whose rows stay without a partner.
    pub side: Side,
    /// The variable that has the value of the right side.
    pub alias: Name,
    /// How the right side is found.
    pub strategy: Strategy,
    /// What must hold for a pair.
    pub condition: Option<Expr>,
    /// The variables of the left side, for a right join.
    pub left: Vec<Name>,
    /// What it costs with all that is before it, if there are statistics.
    pub estimate: Option<Estimate>,
}

/// How the right side of a join is found.
pub enum Strategy {
    /// The right side is evaluated again for each row of the left.
    Nested(Scan),
    /// The right side is read once.
    Loop(Scan),
    /// The right side is read once, and found by equal values: those of the left, and those of the right.
    Hash(Scan, Vec<Expr>, Vec<Expr>),
    /// The elements of an array.
    Unnest(Expr),
}

/// GROUP BY with its aggregates.
pub struct Group {
    /// Keys, with the name that each is bound to, and its alias.
    pub keys: Vec<(Name, Expr, Option<Name>)>,
    /// Aggregates, each with the name that its value is bound to.
    pub aggregates: Vec<(Name, Aggregate)>,
    /// GROUP AS, and the variables that it collects.
    pub collect: Option<(Name, Vec<Name>)>,
    /// How they are made of the entries of the index that is read, if they are.
    pub pushed: Option<Pushed>,
}

/// Groups of the entries of an index.
pub struct Pushed {
    /// The part of the index that each key is.
    pub keys: Vec<usize>,
    /// The part that each aggregate is of; none of those that count entries.
    pub parts: Vec<Option<usize>>,
    /// How many first parts are the same in a group, if no more than its first entries have to be read.
    pub leading: Option<usize>,
}

impl Node {
    /// What it reads from, if that is one operator.
    pub fn input(&self) -> Option<&Rc<Node>> {
        match self {
            Node::Join(input, _)
            | Node::Let(input, _)
            | Node::Filter(input, _)
            | Node::Group(input, _)
            | Node::Window(input, _)
            | Node::Order(input, ..)
            | Node::Project(input, _)
            | Node::Distinct(input)
            | Node::Page(input, _)
            | Node::With(input, _) => Some(input),
            Node::Dummy | Node::Scan(_) | Node::Set(..) | Node::Union(..) | Node::Count(..) => None,
        }
    }
}

/// A value for explanations.
pub(crate) fn text(value: impl ToString) -> Value {
    value.to_string().into()
}
