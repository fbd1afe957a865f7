//! The syntax tree of statements.
//!
//! The parser limits the height of a tree ([`crate::HEIGHT_MAX`]), so code that walks it can recurse.

use crate::functions::Function;
use crate::{Name, Value};

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A literal value.
    Literal(Value),
    /// A variable; before names are resolved, also a field of the only keyspace.
    Ident(Name),
    /// SELF: all terms of FROM by their aliases, or the document of an index.
    Itself,
    /// `$1` and `?` (from 1).
    Positional(usize),
    /// `$name`.
    Named(Name),
    /// `of.name`; the flag is true if the name is case-insensitive.
    Field(Box<Expr>, Name, bool),
    /// `of[index]`, and `of.[name]`.
    Element(Box<Expr>, Box<Expr>),
    /// `of[from:to]`.
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    /// An operator with one operand.
    Unary(Unary, Box<Expr>),
    /// An operator with two operands.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// AND, OR and `||`, which may have many operands.
    Chain(Chain, Vec<Expr>),
    /// A sequence of arithmetic operators of one precedence, from left to right.
    Fold(Box<Expr>, Vec<(Binary, Expr)>),
    /// `of LIKE pattern ESCAPE escape`.
    Like(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
    /// `of BETWEEN low AND high`.
    Between(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Both forms of CASE.
    Case(Box<Case>),
    /// `[a, b]`.
    Array(Vec<Expr>),
    /// `{"a": b}`.
    Object(Vec<(Expr, Expr)>),
    /// ANY, EVERY, and ANY AND EVERY … SATISFIES.
    Quantified(Box<Quantified>),
    /// ARRAY, FIRST and OBJECT … FOR.
    Comprehension(Box<Comprehension>),
    /// A built-in function.
    Call(&'static Function, Vec<Expr>),
    /// A user-defined function: the parts of its path, and its arguments.
    UserCall(Vec<Name>, Vec<Expr>),
    /// FLATTEN_KEYS: the value of an array key of an index, as several parts.
    FlattenKeys(Vec<FlattenedKey>),
    /// An aggregate or window function.
    Aggregate(Box<Aggregate>),
    /// A query in parentheses.
    Subquery(Box<Select>),
    /// A value that the executor has computed before, bound to a name that users cannot write.
    Bound(Box<Bound>),
}

/// A value that is looked up under a name instead of being computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The name.
    pub name: Name,
    /// The expression that it was computed from.
    pub of: Expr,
    /// True if the value comes from an index that covers the query.
    pub cover: bool,
}

/// A part of FLATTEN_KEYS.
#[derive(Clone, Debug, PartialEq)]
pub struct FlattenedKey {
    /// The expression that is indexed for each element.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
    /// INCLUDE MISSING.
    pub include_missing: bool,
}

/// Operators with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum Unary {
    Negate,
    Not,
    IsNull,
    IsMissing,
    IsKnown,
    Exists,
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    DistinctFrom,
    In,
    Within,
}

/// Operators that may have many operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum Chain {
    And,
    Or,
    Concat,
}

/// `CASE operand WHEN … THEN … ELSE … END`.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The value that each WHEN is compared with; without it each WHEN is a condition.
    pub operand: Option<Expr>,
    /// WHEN and THEN.
    pub whens: Vec<(Expr, Expr)>,
    /// ELSE; NULL without it.
    pub otherwise: Option<Expr>,
}

/// `name IN source`, a variable of a quantifier or comprehension.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// The position, or name of the field (`FOR name : variable IN …`).
    pub position: Option<Name>,
    /// The variable.
    pub variable: Name,
    /// The values of the variable.
    pub source: Expr,
    /// WITHIN instead of IN: all descendants, not only the elements.
    pub within: bool,
}

/// The kinds of quantifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum Quantifier {
    Any,
    Every,
    AnyAndEvery,
}

/// `ANY v IN source SATISFIES condition END`.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantified {
    /// The kind.
    pub kind: Quantifier,
    /// Variables, which advance in parallel.
    pub bindings: Vec<Binding>,
    /// SATISFIES.
    pub condition: Expr,
}

/// The result of a comprehension.
#[derive(Clone, Debug, PartialEq)]
pub enum Collect {
    /// An array.
    Array,
    /// The elements of an array within an array, as separate values; only in array keys of indexes.
    DistinctArray,
    /// The first value.
    First,
    /// An object, with the expression for the names of its fields.
    Object(Expr),
}

/// `ARRAY value FOR v IN source WHEN condition END`.
#[derive(Clone, Debug, PartialEq)]
pub struct Comprehension {
    /// The kind of result.
    pub collect: Collect,
    /// The expression of each value.
    pub value: Expr,
    /// Variables, which advance in parallel.
    pub bindings: Vec<Binding>,
    /// WHEN.
    pub condition: Option<Expr>,
}

/// An aggregate or window function with all its clauses.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The name, in lower case.
    pub name: Name,
    /// Arguments; none for `COUNT(*)`.
    pub args: Vec<Expr>,
    /// `f(DISTINCT …)`.
    pub distinct: bool,
    /// `FILTER (WHERE …)`.
    pub filter: Option<Expr>,
    /// `OVER …`.
    pub over: Option<Over>,
    /// `NTH_VALUE(…) FROM LAST`.
    pub from_last: bool,
    /// `IGNORE NULLS`.
    pub ignore_nulls: bool,
}

/// The operand of OVER.
#[derive(Clone, Debug, PartialEq)]
pub enum Over {
    /// A name of the WINDOW clause.
    Named(Name),
    /// A window in parentheses.
    Window(Window),
}

/// A window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// A named window that this one extends.
    pub base: Option<Name>,
    /// PARTITION BY.
    pub partition: Vec<Expr>,
    /// ORDER BY.
    pub order: Vec<OrderTerm>,
    /// The frame, if it is given.
    pub frame: Option<Frame>,
}

/// The unit of a frame's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum FrameUnit {
    Rows,
    Range,
    Groups,
}

/// A bound of a frame.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum FrameBound {
    UnboundedPreceding,
    Preceding(Expr),
    CurrentRow,
    Following(Expr),
    UnboundedFollowing,
}

/// The rows that a frame excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum Exclude {
    NoOthers,
    CurrentRow,
    Group,
    Ties,
}

/// `ROWS BETWEEN start AND end EXCLUDE …`.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct Frame {
    pub unit: FrameUnit,
    pub start: FrameBound,
    pub end: FrameBound,
    pub exclude: Exclude,
}

/// A term of ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderTerm {
    /// The sort expression.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST or LAST, if it is given.
    pub nulls_last: Option<bool>,
}

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// WITH.
    pub with: Vec<With>,
    /// The source of the rows.
    pub body: Body,
    /// ORDER BY.
    pub order: Vec<OrderTerm>,
    /// LIMIT.
    pub limit: Option<Expr>,
    /// OFFSET.
    pub offset: Option<Expr>,
}

/// `alias AS (query)`.
#[derive(Clone, Debug, PartialEq)]
pub struct With {
    /// The name.
    pub alias: Name,
    /// A subquery, or any expression.
    pub expr: Expr,
    /// `WITH RECURSIVE`.
    pub recursive: bool,
    /// CYCLE … RESTRICT: the expressions whose values must not repeat.
    pub cycle: Vec<Expr>,
    /// OPTIONS.
    pub options: Option<Expr>,
}

/// The rows of a query before they are ordered.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// SELECT … FROM ….
    Block(Box<Block>),
    /// UNION and the other set operators.
    Set(SetOp, bool, Box<Body>, Box<Body>),
    /// A sequence of UNION, either all with ALL or all without.
    Union(bool, Vec<Body>),
    /// A query in parentheses.
    Nested(Box<Select>),
}

/// Set operators; the flag next to them is true for ALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum SetOp {
    Union,
    Intersect,
    Except,
}

/// The kind of an optimizer hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintKind {
    /// Use one of these indexes.
    Index,
    /// Use a hash join.
    UseHash,
    /// Use a nested-loop join.
    UseLoop,
    /// Join the terms in the order in which they are written, which is always the case.
    Ordered,
    /// Recognised, but not followed.
    Other,
    /// Not recognised.
    Invalid,
}

/// An optimizer hint.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerHint {
    /// The kind.
    pub kind: HintKind,
    /// The term that it concerns.
    pub alias: Option<Name>,
    /// The indexes that it names.
    pub names: Vec<Name>,
    /// Its text.
    pub text: String,
}

/// One SELECT with its clauses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// The hints in `/*+ … */`; those about terms of FROM are also stored in the terms.
    pub optimizer_hints: Vec<OptimizerHint>,
    /// SELECT DISTINCT.
    pub distinct: bool,
    /// The projection.
    pub projection: Projection,
    /// FROM.
    pub from: Option<From>,
    /// LET.
    pub lets: Vec<(Name, Expr)>,
    /// WHERE.
    pub condition: Option<Expr>,
    /// GROUP BY, or HAVING without it.
    pub group: Option<Group>,
    /// WINDOW.
    pub windows: Vec<(Name, Window)>,
}

/// The projection of SELECT or RETURNING.
#[derive(Clone, Debug, PartialEq)]
pub enum Projection {
    /// `RAW expr`, and its alias for ORDER BY.
    Raw(Expr, Option<Name>),
    /// A list of terms, and the fields that EXCLUDE removes.
    Terms(Vec<Term>, Vec<Expr>),
}

impl Default for Projection {
    fn default() -> Projection {
        Projection::Terms(Vec::new(), Vec::new())
    }
}

/// A term of the projection.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// `*`.
    Star,
    /// `expr.*`.
    StarOf(Expr),
    /// `expr AS name`; without a name, one is generated.
    Expr(Expr, Option<Name>),
}

/// GROUP BY.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The keys, with their aliases.
    pub by: Vec<(Expr, Option<Name>)>,
    /// GROUP AS.
    pub name: Option<Name>,
    /// LETTING.
    pub letting: Vec<(Name, Expr)>,
    /// HAVING.
    pub having: Option<Expr>,
}

/// FROM.
#[derive(Clone, Debug, PartialEq)]
pub struct From {
    /// The first term.
    pub first: FromTerm,
    /// Terms that are joined to it, from left to right.
    pub joins: Vec<Join>,
}

impl From {
    /// Returns true if a row may lack the first term.
    pub fn has_right_join(&self) -> bool {
        self.joins.iter().any(|join| join.side == Side::Right)
    }
}

/// A term of FROM.
#[derive(Clone, Debug, PartialEq)]
pub struct FromTerm {
    /// The source of its rows.
    pub source: Source,
    /// Its alias, written or generated.
    pub alias: Name,
    /// USE KEYS and other hints.
    pub hints: Hints,
}

/// The source of a term's rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Documents.
    Keyspace(Path),
    /// The elements of an expression's value, or the value itself.
    Expr(Expr),
}

/// The path of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Before the colon: `default` or `system`.
    pub namespace: Option<Name>,
    /// Bucket, scope and collection; or fewer, with a query context.
    pub parts: Vec<Name>,
}

impl Path {
    /// Returns true if it names a catalog, such as `system:indexes`.
    pub fn is_system(&self) -> bool {
        self.namespace.as_deref().is_some_and(|namespace| namespace.eq_ignore_ascii_case("system"))
    }
}

/// The user's hints about the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// USE KEYS.
    pub keys: Option<Expr>,
    /// USE INDEX.
    pub indexes: Vec<Name>,
    /// USE INDEX of search indexes: those with USING FTS.
    pub search_indexes: Vec<Name>,
    /// USE INDEX (USING FTS): any search index.
    pub any_search: bool,
    /// USE HASH: `Some(true)`, USE NL: `Some(false)`.
    pub hash: Option<bool>,
}

impl Hints {
    /// Returns true if the hints ask for an index of any kind.
    pub fn has_indexes(&self) -> bool {
        !self.indexes.is_empty() || !self.search_indexes.is_empty() || self.any_search
    }
}

/// The kind of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum JoinKind {
    Join,
    Nest,
    Unnest,
}

/// The side whose rows are kept without a partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum Side {
    Inner,
    Left,
    Right,
}

/// The join condition.
#[derive(Clone, Debug, PartialEq)]
pub enum On {
    /// None.
    Nothing,
    /// `ON condition`.
    Condition(Expr),
    /// `ON KEYS expr`.
    Keys(Expr),
    /// `ON KEY expr FOR alias`.
    KeyFor(Expr, Name),
}

/// A joined term.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct Join {
    pub kind: JoinKind,
    pub side: Side,
    pub term: FromTerm,
    pub on: On,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum Statement {
    Select(Box<Select>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Merge(Box<Merge>),
    Explain(Box<Statement>),
    Advise(Box<Statement>),
    Prepare(Box<Prepare>),
    Execute { name: Expr, using: Option<Expr> },
    Infer(Box<Infer>),
    CreateIndex(Box<CreateIndex>),
    DropIndex { name: Name, keyspace: Path, if_exists: bool, primary: bool },
    BuildIndex { keyspace: Path, names: Vec<Expr> },
    AlterIndex { name: Name, keyspace: Path, with: Value },
    CreateScope { path: Path, if_not_exists: bool },
    DropScope { path: Path, if_exists: bool },
    CreateCollection { path: Path, if_not_exists: bool, with: Value },
    DropCollection { path: Path, if_exists: bool },
    CreateFunction(Box<CreateFunction>),
    DropFunction { path: Path, if_exists: bool },
    ExecuteFunction { path: Path, args: Vec<Expr> },
    ExplainFunction(Path),
    Transaction(TransactionStatement),
    Admin(Box<AdminStatement>),
}

/// Statements about users, groups, roles, buckets, collections, sequences and statistics.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum AdminStatement {
    CreateBucket { name: Name, if_not_exists: bool, with: Value },
    AlterBucket { name: Name, with: Value },
    DropBucket { name: Name, if_exists: bool },
    Statistics(Statistics),
    PutUser(UserChange),
    DropUser { name: Name, if_exists: bool },
    PutGroup(GroupChange),
    DropGroup { name: Name, if_exists: bool },
    Grant(Grant),
    AlterCollection { path: Path, with: Value },
    FlushCollection(Path),
    CreateSequence { path: Path, if_not_exists: bool, options: SequenceOptions },
    AlterSequence { path: Path, options: SequenceOptions },
    DropSequence { path: Path, if_exists: bool },
}

/// UPDATE STATISTICS and ANALYZE.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// The keyspace.
    pub keyspace: Path,
    /// The values to describe.
    pub of: StatisticsOf,
    /// True if the statistics are removed instead.
    pub delete: bool,
    /// The options.
    pub with: Value,
}

/// The values that statistics describe.
#[derive(Clone, Debug, PartialEq)]
pub enum StatisticsOf {
    /// The values of these expressions.
    Keys(Vec<IndexKey>),
    /// The keys of the indexes with these names, given by expressions as strings or arrays.
    Indexes(Vec<Expr>),
    /// The keys of all indexes; for a removal, all statistics.
    All,
}

/// CREATE USER and ALTER USER; `None` keeps the current value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct UserChange {
    pub name: Name,
    pub is_new: bool,
    pub password: Option<Name>,
    pub display_name: Option<Name>,
    pub groups: Option<Vec<Name>>,
}

/// CREATE GROUP and ALTER GROUP; `None` keeps the current value. Roles are
/// `name[bucket:scope:collection]`.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct GroupChange {
    pub name: Name,
    pub is_new: bool,
    pub description: Option<Name>,
    pub roles: Option<Vec<String>>,
}

/// GRANT and REVOKE.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct Grant {
    pub roles: Vec<String>,
    pub to_groups: bool,
    pub grantees: Vec<Name>,
    pub revoke: bool,
}

/// Options of a new or changed sequence; `None` is the default, or keeps the current value.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct SequenceOptions {
    pub start: Option<i64>,
    pub increment: Option<i64>,
    pub min: Option<i64>,
    pub max: Option<i64>,
    pub cycle: Option<bool>,
    pub cache: Option<i64>,
    pub restart: bool,
    pub restart_with: Option<i64>,
}

/// INFER.
#[derive(Clone, Debug, PartialEq)]
pub struct Infer {
    /// The source of the values: a keyspace or an expression.
    pub source: Source,
    /// WITH.
    pub with: Value,
}

/// Statements that begin, end and structure a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum TransactionStatement {
    /// BEGIN, or START.
    Begin,
    /// COMMIT.
    Commit,
    /// ROLLBACK, to a savepoint if one is named.
    Rollback(Option<Name>),
    /// SAVEPOINT.
    Savepoint(Name),
    /// SET TRANSACTION ISOLATION LEVEL; the only level is READ COMMITTED.
    SetIsolation,
}

/// INSERT and UPSERT.
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// UPSERT.
    pub upsert: bool,
    /// The target.
    pub keyspace: Path,
    /// Its alias.
    pub alias: Name,
    /// The source of the documents.
    pub source: InsertSource,
    /// RETURNING.
    pub returning: Option<Projection>,
}

/// Key, value and options of a document to write.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct Row {
    pub key: Expr,
    pub value: Expr,
    pub options: Option<Expr>,
}

/// The source of the documents to insert.
#[derive(Clone, Debug, PartialEq)]
pub enum InsertSource {
    /// VALUES.
    Values(Vec<Row>),
    /// SELECT, and the document that each of its rows becomes.
    Select(Row, Box<Select>),
}

/// SET and UNSET.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// SET.
    pub set: Vec<Set>,
    /// UNSET.
    pub unset: Vec<Set>,
}

/// A path that is set or unset.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// The path, which begins with the alias or a variable of FOR.
    pub path: Expr,
    /// The new value; MISSING for UNSET.
    pub value: Expr,
    /// FOR clauses, the innermost last.
    pub each: Vec<Vec<Binding>>,
    /// WHEN.
    pub condition: Option<Expr>,
}

/// UPDATE.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct Update {
    pub target: FromTerm,
    pub changes: Changes,
    pub condition: Option<Expr>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub returning: Option<Projection>,
}

/// DELETE.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct Delete {
    pub target: FromTerm,
    pub condition: Option<Expr>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub returning: Option<Projection>,
}

/// MERGE.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct Merge {
    pub target: FromTerm,
    pub source: FromTerm,
    /// ON KEY, or ON with a condition.
    pub on: On,
    pub update: Option<(Changes, Option<Expr>)>,
    /// WHEN MATCHED THEN DELETE, with its WHERE.
    pub delete: Option<Option<Expr>>,
    pub insert: Option<(Row, Option<Expr>)>,
    pub limit: Option<Expr>,
    pub returning: Option<Projection>,
}

/// PREPARE.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    /// Its name, if it has one.
    pub name: Option<Name>,
    /// True to replace a statement with the same name.
    pub force: bool,
    /// The prepared statement.
    pub statement: Statement,
    /// Its text.
    pub text: String,
    /// The full text, from PREPARE on.
    pub full_text: String,
}

/// CREATE INDEX.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateIndex {
    /// Its name; a primary index may have none.
    pub name: Option<Name>,
    /// CREATE PRIMARY INDEX.
    pub primary: bool,
    /// The keyspace that it indexes.
    pub keyspace: Path,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The parts of its keys.
    pub keys: Vec<IndexKey>,
    /// WHERE.
    pub condition: Option<Expr>,
    /// PARTITION BY HASH.
    pub partition: Vec<Expr>,
    /// WITH.
    pub with: Value,
    /// The position of the key with the attribute VECTOR, if there is one.
    pub vector: Option<usize>,
    /// CREATE VECTOR INDEX.
    pub is_vector_index: bool,
    /// INCLUDE.
    pub include: Vec<Expr>,
}

/// A part of an index key.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexKey {
    /// The indexed expression; for an array key, the array.
    pub expr: Expr,
    /// `Some(true)` for DISTINCT elements, `Some(false)` for ALL of them; `None` for the value itself.
    pub array: Option<bool>,
    /// DESC.
    pub descending: bool,
    /// INCLUDE MISSING.
    pub include_missing: bool,
    /// True if it is of the same elements as the part before it, as in FLATTEN_KEYS.
    pub joined: bool,
}

/// CREATE FUNCTION.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as they are written")]
pub struct CreateFunction {
    pub path: Path,
    pub replace: bool,
    pub if_not_exists: bool,
    /// The names of its parameters; `None` for any number, which an expression sees as the array `args`.
    pub parameters: Option<Vec<Name>>,
    pub body: FunctionBody,
}

/// The body of a function.
#[derive(Clone, Debug, PartialEq)]
pub enum FunctionBody {
    /// An expression, and its text.
    Expr(Expr, String),
    /// JavaScript in the statement; the function with the same name is called.
    Script(Name),
    /// A JavaScript function by its name, and the path of its library.
    External(Name, Name),
    /// A function of a plugin by its name, and the plugin's deployment.
    Deployed(Name, Name),
}
