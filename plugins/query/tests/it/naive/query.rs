//! Generates random queries, and computes their rows by definition: products of documents, filtered one by one.

use super::value::{Comparison, Expr, Kind, Row, Value};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::{BTreeMap, BTreeSet};

/// The documents of each collection, by its name.
pub type Collections = BTreeMap<&'static str, Vec<Value>>;

#[derive(Clone, Debug)]
enum JoinKind {
    Inner,
    Left,
}

#[derive(Clone, Debug)]
enum Term {
    /// A collection and the join condition.
    Join(JoinKind, &'static str, &'static str, Expr),
    /// All documents of a collection that match, as an array.
    Nest(JoinKind, &'static str, &'static str, Expr),
    /// The elements of an array.
    Unnest(JoinKind, &'static str, Expr),
}

#[derive(Clone, Copy, Debug)]
enum Function {
    CountAll,
    Count,
    CountDistinct,
    Avg,
    Sum,
    Min,
    Max,
    ArrayAgg,
}

#[derive(Clone, Debug)]
struct Aggregate {
    function: Function,
    of: Expr,
}

/// A WHERE condition with a subquery.
#[derive(Clone, Debug)]
enum Subquery {
    /// `[NOT] EXISTS (SELECT 1 FROM collection AS z WHERE condition)`.
    Exists(bool, &'static str, Expr),
    /// `expression IN (SELECT RAW field FROM collection AS z WHERE condition)`.
    In(Expr, &'static str, Expr, Expr),
}

/// A query with one SELECT block.
#[derive(Clone, Debug)]
pub struct Query {
    from: &'static str,
    joins: Vec<Term>,
    filter: Option<Expr>,
    subquery: Option<Subquery>,
    /// The group keys; `None` without grouping.
    groups: Option<Vec<Expr>>,
    aggregates: Vec<Aggregate>,
    /// The minimum of COUNT(*) of each group.
    having: Option<f64>,
    select: Vec<Expr>,
    distinct: bool,
    /// `None` for unordered rows; otherwise rows are ordered by all selected expressions, and the flags are true for descending.
    order: Option<Vec<bool>>,
    limit: Option<(usize, usize)>,
}

/// Generates expressions over `documents` and `elements` of arrays.
pub struct Maker<'a> {
    pub chance: &'a mut StdRng,
    documents: Vec<&'static str>,
    elements: Vec<&'static str>,
}

const FIELDS: [&str; 4] = ["a", "b", "c", "t"];

/// Returns a value for documents and conditions; there are few, so that they match.
pub fn any_value(chance: &mut StdRng) -> Value {
    match chance.random_range(0..12) {
        0 => Value::Null,
        1 => Value::Bool(chance.random_bool(0.5)),
        2..7 => Value::Number(f64::from(chance.random_range(0..5))),
        7 => Value::Number(1.5),
        8..11 => Value::Text((*["", "a", "ab", "b"].choose(chance).unwrap()).into()),
        // Comparisons of arrays with a null element are unknown element by element, which this evaluator does not implement.
        _ => any_array(chance, false),
    }
}

pub fn any_array(chance: &mut StdRng, with_null: bool) -> Value {
    let count = chance.random_range(0..4);
    let element = |chance: &mut StdRng| match chance.random_range(0..6) {
        0 => Value::Text("a".into()),
        1 if with_null => Value::Null,
        number => Value::Number(f64::from(number - 1)),
    };
    Value::Array((0..count).map(|_| element(chance)).collect())
}

fn known_value(chance: &mut StdRng) -> Value {
    loop {
        let value = any_value(chance);
        if value.is_known() {
            return value;
        }
    }
}

impl Maker<'_> {
    fn operand(&mut self) -> Expr {
        if !self.elements.is_empty() && self.chance.random_bool(0.4) {
            return Expr::Variable(self.elements.choose(self.chance).unwrap());
        }
        let of = *self.documents.choose(self.chance).unwrap();
        match self.chance.random_range(0..10) {
            0 => Expr::Id(of),
            1 => {
                let (a, b) = (Expr::Field(of, "a"), Expr::Field(of, "b"));
                let literal =
                    Expr::Literal(Value::Number(f64::from(self.chance.random_range(0..3))));
                match self.chance.random_range(0..3) {
                    0 => Expr::Add(a.into(), b.into()),
                    1 => Expr::Subtract(a.into(), literal.into()),
                    _ => Expr::Add(b.into(), literal.into()),
                }
            }
            _ => Expr::Field(of, ["a", "b", "c"].choose(self.chance).unwrap()),
        }
    }

    /// A predicate: its value is TRUE, FALSE, NULL or MISSING.
    fn predicate(&mut self) -> Expr {
        let of = Box::new(self.operand());
        match self.chance.random_range(0..12) {
            0 => {
                let (a, b) = (known_value(self.chance), known_value(self.chance));
                Expr::Between(of, a.clone().min(b.clone()), a.max(b))
            }
            1 => {
                let count = self.chance.random_range(0..4);
                let mut values: Vec<Value> = (0..count).map(|_| known_value(self.chance)).collect();
                if self.chance.random_bool(0.1) {
                    values.push(Value::Null);
                }
                Expr::In(of, values)
            }
            2 | 3 => {
                let kind = *[Kind::Null, Kind::Missing, Kind::Valued].choose(self.chance).unwrap();
                Expr::Is(of, kind, self.chance.random_bool(0.5))
            }
            4 | 5 => {
                let array = Expr::Field(self.documents.choose(self.chance).unwrap(), "t");
                let (comparison, value) = (Comparison::any(self.chance), known_value(self.chance));
                Expr::Any(array.into(), comparison, value)
            }
            6 => {
                let comparison = Comparison::any(self.chance);
                Expr::Compare(comparison, of, self.operand().into())
            }
            _ => {
                let literal = Expr::Literal(known_value(self.chance));
                Expr::Compare(Comparison::any(self.chance), of, literal.into())
            }
        }
    }

    fn condition(&mut self, depth: usize) -> Expr {
        match self.chance.random_range(0..6) {
            0 if depth > 0 => Expr::Or((0..2).map(|_| self.condition(depth - 1)).collect()),
            1 | 2 if depth > 0 => {
                let count = self.chance.random_range(2..4);
                Expr::And((0..count).map(|_| self.condition(depth - 1)).collect())
            }
            3 if depth > 0 => Expr::Not(self.condition(depth - 1).into()),
            _ => self.predicate(),
        }
    }

    /// Returns a condition that relates a new document to the previous ones.
    fn on(&mut self, new: &'static str) -> Expr {
        let old = *self.documents.choose(self.chance).unwrap();
        let name = |chance: &mut StdRng| *["a", "b", "c"].choose(chance).unwrap();
        let (mine, theirs) = (name(self.chance), name(self.chance));
        let comparison = if self.chance.random_bool(0.8) {
            Comparison::Equal
        } else {
            Comparison::any(self.chance)
        };
        let relation = Expr::Compare(
            comparison,
            Expr::Field(old, mine).into(),
            Expr::Field(new, theirs).into(),
        );
        if self.chance.random_bool(0.6) {
            return relation;
        }
        self.documents.push(new);
        let more = self.predicate();
        self.documents.pop();
        Expr::And(vec![relation, more])
    }

    fn selected(&mut self) -> Expr {
        match self.chance.random_range(0..8) {
            0 => {
                let (condition, a, b) = (self.predicate(), self.operand(), self.operand());
                Expr::Case(condition.into(), a.into(), b.into())
            }
            1 => Expr::Field(
                self.documents.choose(self.chance).unwrap(),
                FIELDS.choose(self.chance).unwrap(),
            ),
            _ => self.operand(),
        }
    }
}

impl Query {
    /// Generates a grouped query that an index on fields can answer: fields of one collection, with conditions that become key
    /// ranges.
    fn of_fields(chance: &mut StdRng) -> Query {
        let names = |chance: &mut StdRng, count: usize| -> Vec<Expr> {
            let names = ["a", "b", "c"].choose_multiple(chance, count);
            names.map(|name| Expr::Field("x", name)).collect()
        };
        let count = chance.random_range(0..3);
        let mut conditions: Vec<Expr> = names(chance, count)
            .into_iter()
            .map(|field| match chance.random_range(0..6) {
                0 => {
                    let (a, b) = (known_value(chance), known_value(chance));
                    Expr::Between(field.into(), a.clone().min(b.clone()), a.max(b))
                }
                1 => {
                    let count = chance.random_range(0..3);
                    Expr::In(field.into(), (0..count).map(|_| known_value(chance)).collect())
                }
                2 => Expr::Is(field.into(), Kind::Valued, chance.random_bool(0.3)),
                _ => {
                    let value = Expr::Literal(known_value(chance));
                    Expr::Compare(Comparison::any(chance), field.into(), value.into())
                }
            })
            .collect();
        let filter = match conditions.len() {
            0 => None,
            1 => conditions.pop(),
            _ => Some(Expr::And(conditions)),
        };
        let count = chance.random_range(0..3);
        let groups = names(chance, count);
        let least = usize::from(groups.is_empty());
        let aggregates: Vec<Aggregate> = (0..chance.random_range(least..4))
            .map(|_| Aggregate { of: names(chance, 1).remove(0), ..Aggregate::of_any(chance) })
            .collect();
        let having = chance.random_bool(0.2).then(|| f64::from(chance.random_range(1..4)));
        let width = groups.len() + aggregates.len();
        let order = chance
            .random_bool(0.3)
            .then(|| (0..width).map(|_| chance.random_bool(0.3)).collect::<Vec<_>>());
        Query {
            from: ["l", "r"].choose(chance).unwrap(),
            joins: Vec::new(),
            filter,
            subquery: None,
            select: groups.clone(),
            groups: Some(groups),
            aggregates,
            having,
            distinct: false,
            order,
            limit: None,
        }
    }

    /// Generates a query over the collections `l` and `r`.
    pub fn any(chance: &mut StdRng) -> Query {
        if chance.random_bool(0.25) {
            return Query::of_fields(chance);
        }
        let mut maker = Maker { chance, documents: vec!["x"], elements: Vec::new() };
        let mut nested = false;
        let mut joins = Vec::new();
        for alias in
            ["y", "w"].into_iter().take([0, 0, 0, 1, 1, 2][maker.chance.random_range(0..6)])
        {
            let kind = if maker.chance.random_bool(0.5) { JoinKind::Inner } else { JoinKind::Left };
            let collection = *["l", "r"].choose(maker.chance).unwrap();
            match maker.chance.random_range(0..5) {
                0 => {
                    let array = Expr::Field(maker.documents.choose(maker.chance).unwrap(), "t");
                    joins.push(Term::Unnest(kind, alias, array));
                    maker.elements.push(alias);
                }
                1 => {
                    let on = maker.on(alias);
                    joins.push(Term::Nest(kind, collection, alias, on));
                    nested = true;
                }
                _ => {
                    let on = maker.on(alias);
                    joins.push(Term::Join(kind, collection, alias, on));
                    maker.documents.push(alias);
                }
            }
        }
        let filter = maker.chance.random_bool(0.8).then(|| maker.condition(2));
        let subquery = maker.chance.random_bool(0.15).then(|| Subquery::any(&mut maker));
        let groups = (!nested && maker.chance.random_bool(0.3)).then(|| {
            let count = maker.chance.random_range(0..3);
            (0..count).map(|_| maker.operand()).collect::<Vec<_>>()
        });
        let aggregates = match &groups {
            None => Vec::new(),
            Some(_) => {
                let count = maker.chance.random_range(1..4);
                (0..count).map(|_| Aggregate::any(&mut maker)).collect()
            }
        };
        let select: Vec<Expr> = match &groups {
            Some(groups) => groups.clone(),
            None => {
                let count = maker.chance.random_range(1..4);
                (0..count).map(|_| maker.selected()).collect()
            }
        };
        let having = (groups.is_some() && maker.chance.random_bool(0.3))
            .then(|| f64::from(maker.chance.random_range(1..4)));
        let width = select.len() + aggregates.len();
        let chance = maker.chance;
        let order = chance
            .random_bool(0.5)
            .then(|| (0..width).map(|_| chance.random_bool(0.3)).collect::<Vec<_>>());
        let limit = (order.is_some() && chance.random_bool(0.5))
            .then(|| (chance.random_range(0..6), chance.random_range(0..3)));
        let distinct = groups.is_none() && chance.random_bool(0.2);
        Query {
            from: ["l", "r"].choose(chance).unwrap(),
            joins,
            filter,
            subquery,
            groups,
            aggregates,
            having,
            select,
            distinct,
            order,
            limit,
        }
    }

    pub fn text(&self) -> String {
        let mut terms: Vec<String> = self.select.iter().map(Expr::text).collect();
        terms.extend(self.aggregates.iter().map(Aggregate::text));
        let named: Vec<String> =
            terms.iter().enumerate().map(|(at, term)| format!("{term} AS s{at}")).collect();
        let distinct = if self.distinct { "DISTINCT " } else { "" };
        let mut text = format!("SELECT {distinct}{} FROM {} AS x", named.join(", "), self.from);
        for join in &self.joins {
            text.push_str(&join.text());
        }
        let conditions: Vec<String> = self
            .filter
            .iter()
            .map(Expr::text)
            .chain(self.subquery.iter().map(Subquery::text))
            .collect();
        if !conditions.is_empty() {
            text.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
        }
        if let Some(groups) = self.groups.as_ref().filter(|groups| !groups.is_empty()) {
            let keys: Vec<String> = groups.iter().map(Expr::text).collect();
            text.push_str(&format!(" GROUP BY {}", keys.join(", ")));
        }
        if let Some(least) = self.having {
            text.push_str(&format!(" HAVING COUNT(*) >= {least}"));
        }
        if let Some(order) = &self.order {
            let order: Vec<String> = order
                .iter()
                .enumerate()
                .map(|(at, descending)| format!("s{at}{}", if *descending { " DESC" } else { "" }))
                .collect();
            text.push_str(&format!(" ORDER BY {}", order.join(", ")));
        }
        if let Some((limit, offset)) = self.limit {
            text.push_str(&format!(" LIMIT {limit} OFFSET {offset}"));
        }
        text
    }

    /// Returns the rows by definition; in order if the query is ordered, sorted otherwise.
    pub fn rows(&self, collections: &Collections) -> Vec<Value> {
        let mut rows: Vec<Row> = collections[self.from]
            .iter()
            .map(|document| Row::from([("x", document.clone())]))
            .collect();
        for join in &self.joins {
            rows = rows.iter().flat_map(|row| join.rows(row, collections)).collect();
        }
        rows.retain(|row| {
            self.filter.as_ref().is_none_or(|filter| filter.value(row).is_true())
                && self.subquery.as_ref().is_none_or(|subquery| subquery.holds(row, collections))
        });
        let mut selected = match &self.groups {
            None => rows
                .iter()
                .map(|row| self.select.iter().map(|expr| expr.value(row)).collect::<Vec<_>>())
                .collect(),
            Some(keys) => self.grouped(&rows, keys),
        };
        if self.distinct {
            selected = selected.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        }
        if let Some(order) = &self.order {
            selected.sort_by(|a, b| {
                let orders = a
                    .iter()
                    .zip(b)
                    .zip(order)
                    .map(|((a, b), descending)| if *descending { b.cmp(a) } else { a.cmp(b) });
                orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
            });
        }
        if let Some((limit, offset)) = self.limit {
            selected = selected.into_iter().skip(offset).take(limit).collect();
        }
        let mut rows: Vec<Value> = selected.into_iter().map(object).collect();
        if !self.is_ordered() {
            rows.sort();
        }
        rows
    }

    /// Returns true if the order of the rows is part of the answer.
    pub fn is_ordered(&self) -> bool {
        self.order.is_some()
    }

    fn grouped(&self, rows: &[Row], keys: &[Expr]) -> Vec<Vec<Value>> {
        let mut groups: BTreeMap<Vec<Value>, Vec<&Row>> = BTreeMap::new();
        if keys.is_empty() {
            groups.insert(Vec::new(), Vec::new());
        }
        for row in rows {
            let key = keys.iter().map(|key| key.value(row)).collect();
            groups.entry(key).or_default().push(row);
        }
        groups.retain(|_, rows| self.having.is_none_or(|least| rows.len() as f64 >= least));
        let row = |(mut key, rows): (Vec<Value>, Vec<&Row>)| {
            key.extend(self.aggregates.iter().map(|aggregate| aggregate.value(&rows)));
            key
        };
        groups.into_iter().map(row).collect()
    }
}

/// Returns a row with the names that the query gives; MISSING fields are omitted.
fn object(values: Vec<Value>) -> Value {
    let fields = values.into_iter().enumerate().map(|(at, value)| (format!("s{at}"), value));
    // A row is written as JSON, which has no MISSING.
    let present = fields.filter(|(_, value)| !matches!(value, Value::Missing));
    Value::Object(present.collect())
}

impl Term {
    fn text(&self) -> String {
        let word = |kind: &JoinKind| match kind {
            JoinKind::Inner => "",
            JoinKind::Left => "LEFT ",
        };
        match self {
            Term::Join(kind, collection, alias, on) => {
                format!(" {}JOIN {collection} AS {alias} ON {}", word(kind), on.text())
            }
            Term::Nest(kind, collection, alias, on) => {
                format!(" {}NEST {collection} AS {alias} ON {}", word(kind), on.text())
            }
            Term::Unnest(kind, alias, array) => {
                format!(" {}UNNEST {} AS {alias}", word(kind), array.text())
            }
        }
    }

    fn rows(&self, row: &Row, collections: &Collections) -> Vec<Row> {
        let with = |alias: &'static str, value: Value| {
            let mut row = row.clone();
            row.insert(alias, value);
            row
        };
        let matching = |collection: &str, alias: &'static str, on: &Expr| -> Vec<Value> {
            let documents = collections[collection].iter();
            documents
                .filter(|document| on.value(&with(alias, (*document).clone())).is_true())
                .cloned()
                .collect()
        };
        let (kind, alias, values) = match self {
            Term::Join(kind, collection, alias, on) => {
                (kind, *alias, matching(collection, alias, on))
            }
            Term::Nest(kind, collection, alias, on) => {
                let found = matching(collection, alias, on);
                (
                    kind,
                    *alias,
                    if found.is_empty() { Vec::new() } else { vec![Value::Array(found)] },
                )
            }
            Term::Unnest(kind, alias, array) => match array.value(row) {
                Value::Array(elements) => (kind, *alias, elements),
                _ => (kind, *alias, Vec::new()),
            },
        };
        match kind {
            JoinKind::Left if values.is_empty() => {
                // The empty side of NEST is an empty array.
                let nothing = match self {
                    Term::Nest(..) => Value::Array(Vec::new()),
                    _ => Value::Missing,
                };
                vec![with(alias, nothing)]
            }
            _ => values.into_iter().map(|value| with(alias, value)).collect(),
        }
    }
}

impl Subquery {
    fn any(maker: &mut Maker<'_>) -> Subquery {
        let collection = *["l", "r"].choose(maker.chance).unwrap();
        if maker.chance.random_bool(0.5) {
            let on = maker.on("z");
            Subquery::Exists(maker.chance.random_bool(0.3), collection, on)
        } else {
            let item = maker.operand();
            let on = maker.on("z");
            let raw = Expr::Field("z", ["a", "b", "c"].choose(maker.chance).unwrap());
            Subquery::In(item, collection, raw, on)
        }
    }

    fn text(&self) -> String {
        match self {
            Subquery::Exists(negated, collection, on) => {
                let not = if *negated { "NOT " } else { "" };
                format!("{not}EXISTS (SELECT 1 AS one FROM {collection} AS z WHERE {})", on.text())
            }
            Subquery::In(item, collection, raw, on) => format!(
                "{} IN (SELECT RAW {} FROM {collection} AS z WHERE {})",
                item.text(),
                raw.text(),
                on.text()
            ),
        }
    }

    fn holds(&self, row: &Row, collections: &Collections) -> bool {
        let rows = |collection: &str, on: &Expr| -> Vec<Row> {
            let with = |document: &Value| {
                let mut row = row.clone();
                row.insert("z", document.clone());
                row
            };
            let rows = collections[collection].iter().map(with);
            rows.filter(|row| on.value(row).is_true()).collect()
        };
        match self {
            Subquery::Exists(negated, collection, on) => {
                rows(collection, on).is_empty() == *negated
            }
            Subquery::In(item, collection, raw, on) => {
                let item = item.value(row);
                item.is_known() && rows(collection, on).iter().any(|row| raw.value(row) == item)
            }
        }
    }
}

impl Aggregate {
    fn any(maker: &mut Maker<'_>) -> Aggregate {
        Aggregate { of: maker.operand(), ..Aggregate::of_any(maker.chance) }
    }

    /// Returns a random aggregate; the caller sets its argument.
    fn of_any(chance: &mut StdRng) -> Aggregate {
        use Function::{ArrayAgg, Avg, Count, CountAll, CountDistinct, Max, Min, Sum};
        let all = [CountAll, Count, CountDistinct, Avg, Sum, Min, Max, ArrayAgg];
        Aggregate { function: *all.choose(chance).unwrap(), of: Expr::Literal(Value::Null) }
    }

    fn text(&self) -> String {
        let of = self.of.text();
        match self.function {
            Function::CountAll => "COUNT(*)".into(),
            Function::Count => format!("COUNT({of})"),
            Function::CountDistinct => format!("COUNT(DISTINCT {of})"),
            Function::Avg => format!("AVG({of})"),
            Function::Sum => format!("SUM({of})"),
            Function::Min => format!("MIN({of})"),
            Function::Max => format!("MAX({of})"),
            Function::ArrayAgg => format!("ARRAY_AGG({of})"),
        }
    }

    fn value(&self, rows: &[&Row]) -> Value {
        let mut values: Vec<Value> = rows.iter().map(|row| self.of.value(row)).collect();
        values.sort();
        let known: Vec<&Value> = values.iter().filter(|value| value.is_known()).collect();
        match self.function {
            Function::CountAll => Value::Number(rows.len() as f64),
            Function::Count => Value::Number(known.len() as f64),
            Function::CountDistinct => {
                Value::Number(known.iter().collect::<BTreeSet<_>>().len() as f64)
            }
            Function::Sum | Function::Avg => {
                let numbers = known.iter().filter_map(|value| match value {
                    Value::Number(number) => Some(*number),
                    _ => None,
                });
                let numbers: Vec<f64> = numbers.collect();
                let sum = numbers.iter().copied().reduce(|a, b| a + b);
                let count = match self.function {
                    Function::Avg => numbers.len() as f64,
                    _ => 1.0,
                };
                sum.map_or(Value::Null, |sum| Value::Number(sum / count))
            }
            Function::Min => known.first().map_or(Value::Null, |value| (*value).clone()),
            Function::Max => known.last().map_or(Value::Null, |value| (*value).clone()),
            Function::ArrayAgg => {
                values.retain(|value| !matches!(value, Value::Missing));
                if values.is_empty() { Value::Null } else { Value::Array(values) }
            }
        }
    }
}
