//! Queries that bytes decide, against nested loops: whatever index, join or order the planner takes, the rows are the same.
//!
//! The judge shares the tree and the evaluation of expressions with what it judges, and nothing of plans and operators.

use crate::tables::{COLLECTIONS, INDEXES, Tables};
use nacre_sql::ast::{
    Aggregate, Body, Expr, JoinKind, On, Projection, Select, Side, Source, Statement,
};
use nacre_sql::{
    Caches, Context, Env, Meta, Name, NoHost, Scope, Value, eval, parse, parse_expr, resolve_select,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ids are values of fields too, for joins by key.
const IDS: [&str; 10] = ["a", "ab", "b", "d1", "d2", "d3", "d4", "d5", "d6", "d7"];

/// Decisions, a byte for each; the first choice when there are no more.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % bound
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// Makes documents, indexes and a query of the bytes, and compares its rows.
///
/// Law: the rows are those of the judge, in its order if the query has one.
pub fn plans(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let text = query(&mut choices);
    let parameters = PARAMETERS.map(|name| (name, parameter(&mut choices)));
    let tables = Tables::new();
    let mut documents = BTreeMap::new();
    let wanted = INDEXES.into_iter().filter(|_| choices.below(3) == 0);
    let wanted: Vec<&str> = wanted.collect();
    for name in COLLECTIONS {
        let all: Vec<(String, Value)> =
            IDS.iter().map(|id| ((*id).to_owned(), document(&mut choices))).collect();
        tables.add(name, &all);
        documents.insert(name, all);
    }
    for index in wanted {
        tables.query(index).expect("each index is new");
    }
    let Ok(Statement::Select(mut select)) = parse(&text) else { panic!("{text}") };
    resolve_select(&mut select, &Scope::new()).expect("names are those of collections");
    let named = parameters.map(|(name, json)| (Name::from(&name[1..]), known(json)));
    let (named, caches) = (BTreeMap::from(named), Caches::default());
    let context =
        Context { host: &NoHost, positional: &[], named: &named, statement_ms: 0, caches: &caches };
    let mut wanted = Loops { documents: &documents, context }.rows(&select);
    let run = |text: &str| tables.query_with(text, &parameters);
    let mut rows = run(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    if select.order.is_empty() {
        wanted.sort();
        rows.sort();
    }
    let plan = || run(&format!("EXPLAIN {text}")).map(|rows| rows[0].to_json());
    assert!(
        rows == wanted,
        "{text} {parameters:?}\n got    {rows:?}\n wanted {wanted:?}\n{:?}",
        plan()
    );
}

/// Few values of all kinds, so that they meet.
const VALUES: &[&str] = &[
    "null",
    "true",
    "false",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "1.5",
    "9007199254740993",
    "\"\"",
    "\"a\"",
    "\"ab\"",
    "\"b\"",
    "\"a_%\"",
    "[1]",
    "[1, \"a\"]",
    "{\"x\": 1}",
];

/// The parameters of a query.
const PARAMETERS: [&str; 2] = ["$p", "$q"];

/// The value of a parameter, as JSON: often NULL, with which nothing compares.
fn parameter(choices: &mut Choices<'_>) -> &'static str {
    match choices.below(3) {
        0 => "null",
        _ => choices.of(VALUES),
    }
}

/// What something is compared with: a literal or a parameter.
fn operand(choices: &mut Choices<'_>) -> &'static str {
    match choices.below(8) {
        0 => choices.of(&PARAMETERS),
        _ => choices.of(VALUES),
    }
}

fn known(json: &str) -> Value {
    Value::parse(json.as_bytes()).expect("it is JSON")
}

fn document(choices: &mut Choices<'_>) -> Value {
    let mut fields: Vec<String> = Vec::new();
    for name in ["a", "b"] {
        if choices.below(6) > 0 {
            fields.push(format!("\"{name}\": {}", choices.of(VALUES)));
        }
    }
    let shape = choices.below(5);
    let tags: Vec<&str> = (0..choices.below(4)).map(|_| choices.of(VALUES)).collect();
    match shape {
        0 => {}
        1 => {
            let named = tags.iter().enumerate().map(|(at, tag)| format!("\"t{at}\": {tag}"));
            fields.push(format!("\"tags\": {{{}}}", named.collect::<Vec<_>>().join(", ")));
        }
        _ => fields.push(format!("\"tags\": [{}]", tags.join(", "))),
    }
    known(&format!("{{{}}}", fields.join(", ")))
}

fn comparison(choices: &mut Choices<'_>, subject: &str) -> String {
    let value = operand(choices);
    match choices.below(9) {
        0 => format!("{subject} IN [{value}, {}, {}]", operand(choices), operand(choices)),
        1 => format!(
            "{subject} LIKE {}",
            choices.of(&["\"a%\"", "\"%b\"", "\"a\"", "\"a\\\\_%\"", "\"_\""])
        ),
        2 => format!(
            "{subject} IS {}",
            choices.of(&["NULL", "NOT NULL", "MISSING", "NOT MISSING", "VALUED"])
        ),
        3 => format!("{subject} BETWEEN {value} AND {}", operand(choices)),
        4 => format!("{value} {} {subject}", choices.of(&["=", "<", ">="])),
        _ => format!("{subject} {} {value}", choices.of(&["=", "!=", "<", "<=", ">", ">=", "="])),
    }
}

fn condition(choices: &mut Choices<'_>, alias: &str, depth: usize) -> String {
    let field = match choices.below(8) {
        0 => format!("META({alias}).id"),
        _ => format!("{alias}.{}", choices.of(&["a", "b"])),
    };
    match choices.below(if depth == 0 { 5 } else { 9 }) {
        0 => {
            let inner = comparison(choices, "v");
            format!("ANY v IN {alias}.tags SATISFIES {inner} END")
        }
        1 if depth > 0 => format!("NOT ({})", condition(choices, alias, depth - 1)),
        5 | 6 => format!(
            "({} AND {})",
            condition(choices, alias, depth - 1),
            condition(choices, alias, depth - 1)
        ),
        7 | 8 => format!(
            "({} OR {})",
            condition(choices, alias, depth - 1),
            condition(choices, alias, depth - 1)
        ),
        _ => comparison(choices, &field),
    }
}

fn query(choices: &mut Choices<'_>) -> String {
    let filter = match choices.below(8) {
        // Nothing narrows, or what a partial index says.
        0 => {
            let filters = [
                "TRUE",
                "x.a = \"a\"",
                "x.a = true AND x.b > 1",
                "x.b IS VALUED AND x.a > 0 AND x.a >= $p",
                "x.a = true AND x.b >= 1 AND x.b > $p",
            ];
            choices.of(&filters).to_owned()
        }
        _ => condition(choices, "x", 2),
    };
    match choices.below(9) {
        // Entries of few indexes hold more than one field.
        7 => {
            let field = choices.of(&["x.a", "x.b", "META(x).id"]);
            format!("SELECT RAW {field} FROM l AS x WHERE {filter}")
        }
        8 => {
            let extreme = choices.of(&["MIN(x.a)", "MAX(x.a)", "MIN(x.b)", "MAX(x.b)"]);
            let filter = choices.of(&["", &format!(" WHERE {filter}")]).to_owned();
            format!("SELECT RAW {extreme} FROM l AS x{filter}")
        }
        6 => format!(
            "SELECT RAW [x.a, COUNT(*), COUNT(x.b), MIN(x.b), MAX(x.b)] FROM l AS x WHERE {filter} GROUP BY x.a"
        ),
        0 => {
            let side = choices.of(&["JOIN", "LEFT JOIN", "RIGHT JOIN"]);
            let on = choices.of(&[
                "x.a = y.b",
                "x.a < y.a",
                "META(y).id = x.b",
                "x.b = y.a AND y.b > 0",
                "y.b IN x.tags",
            ]);
            format!(
                "SELECT RAW [META(x).id, META(y).id, y.a] FROM l AS x {side} r AS y ON {on} WHERE {filter}"
            )
        }
        1 => {
            let other = condition(choices, "y", 1);
            format!(
                "SELECT RAW [META(x).id, META(y).id] FROM l AS x JOIN r AS y ON x.b = y.b AND {other} WHERE {filter}"
            )
        }
        2 => {
            let of_element = comparison(choices, "u");
            format!(
                "SELECT RAW [META(x).id, u] FROM l AS x UNNEST x.tags AS u WHERE {of_element} AND {filter}"
            )
        }
        3 => {
            // All that is selected is ordered by, so that there is one right order.
            let [order, selected] = [
                ["x.a", "x.a"],
                ["x.a DESC", "x.a"],
                ["x.b DESC, x.a", "x.a, x.b"],
                ["x.b, x.a DESC", "x.a, x.b"],
                ["x.a, x.b DESC", "x.a, x.b"],
                ["META(x).id DESC", "META(x).id, x.a"],
            ][choices.below(6)];
            let page = choices.of(&["", "", " LIMIT 3", " LIMIT 2 OFFSET 1", " LIMIT 0"]);
            format!("SELECT RAW [{selected}] FROM l AS x WHERE {filter} ORDER BY {order}{page}")
        }
        _ => format!("SELECT RAW [META(x).id, x.a, x.b] FROM l AS x WHERE {filter}"),
    }
}

/// The judge: all combinations of rows, one condition at a time.
struct Loops<'a> {
    documents: &'a BTreeMap<&'a str, Vec<(String, Value)>>,
    context: Context<'a>,
}

impl Loops<'_> {
    fn rows(&self, select: &Select) -> Vec<Value> {
        let Body::Block(block) = &select.body else { panic!("only blocks are made") };
        let from = block.from.as_ref().unwrap();
        let mut envs = self.term(&from.first.source, &from.first.alias, &Env::new());
        let mut aliases = vec![from.first.alias.clone()];
        for join in &from.joins {
            let holds = |env: &Env| match &join.on {
                On::Condition(condition) => self.eval(condition, env).truth(),
                _ => true,
            };
            let alias = &join.term.alias;
            let mut joined = Vec::new();
            let mut matched_right = BTreeSet::new();
            for env in &envs {
                let right = self.term(&join.term.source, alias, env);
                let matching: Vec<(usize, Env)> =
                    right.into_iter().enumerate().filter(|(_, env)| holds(env)).collect();
                if matching.is_empty() && join.side == Side::Left && join.kind == JoinKind::Join {
                    joined.push(env.with(alias, Value::Missing));
                }
                matched_right.extend(matching.iter().map(|(at, _)| *at));
                joined.extend(matching.into_iter().map(|(_, env)| env));
            }
            if join.side == Side::Right {
                let nothing =
                    aliases.iter().fold(Env::new(), |env, alias| env.with(alias, Value::Missing));
                let right = self.term(&join.term.source, alias, &nothing);
                joined.extend(
                    right
                        .into_iter()
                        .enumerate()
                        .filter(|(at, _)| !matched_right.contains(at))
                        .map(|(_, e)| e),
                );
            }
            aliases.push(alias.clone());
            envs = joined;
        }
        envs.retain(|env| {
            block.condition.as_ref().is_none_or(|condition| self.eval(condition, env).truth())
        });
        if let Some(group) = &block.group {
            return self.groups(&group.by[0].0, &envs);
        }
        envs.sort_by(|a, b| {
            let orders = select.order.iter().map(|term| {
                let order = self.eval(&term.expr, a).collate(&self.eval(&term.expr, b));
                if term.descending { order.reverse() } else { order }
            });
            orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        let Projection::Raw(expr, _) = &block.projection else { panic!("only RAW is made") };
        if let Expr::Aggregate(aggregate) = expr {
            return vec![self.extreme(aggregate, &envs)];
        }
        let count = |expr: &Option<Expr>| {
            expr.as_ref().map(|expr| self.eval(expr, &Env::new()).as_i64().unwrap() as usize)
        };
        let (limit, offset) = (count(&select.limit), count(&select.offset));
        let page = envs.iter().skip(offset.unwrap_or(0)).take(limit.unwrap_or(usize::MAX));
        page.map(|env| self.eval(expr, env)).collect()
    }

    /// The least or the greatest value of all rows.
    fn extreme(&self, aggregate: &Aggregate, envs: &[Env]) -> Value {
        let values = envs.iter().map(|env| self.eval(&aggregate.args[0], env));
        let known = values.filter(Value::is_known);
        let found = if &*aggregate.name == "min" { known.min() } else { known.max() };
        found.unwrap_or(Value::Null)
    }

    /// What the one shape of groups that is made comes to.
    fn groups(&self, key: &Expr, envs: &[Env]) -> Vec<Value> {
        let subject = parse_expr("x.b").unwrap();
        let mut groups: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
        for env in envs {
            groups.entry(self.eval(key, env)).or_default().push(self.eval(&subject, env));
        }
        let row = |(key, values): (Value, Vec<Value>)| {
            let count = |count: usize| Value::Int(count as i64);
            let known: Vec<&Value> = values.iter().filter(|value| value.is_known()).collect();
            let bound =
                |value: Option<&&Value>| value.map_or(Value::Null, |value| (*value).clone());
            let row = vec![
                key,
                count(values.len()),
                count(known.len()),
                bound(known.iter().min()),
                bound(known.iter().max()),
            ];
            Value::Array(Arc::new(row))
        };
        groups.into_iter().map(row).collect()
    }

    fn term(&self, source: &Source, alias: &Name, env: &Env) -> Vec<Env> {
        match source {
            Source::Keyspace(path) => {
                let documents = &self.documents[&*path.parts[0]];
                let rows = documents.iter().map(|(id, value)| {
                    let meta = Meta { id: id.as_str().into(), ..Meta::default() };
                    env.with_document(alias, value.clone(), Some(Arc::new(meta)))
                });
                rows.collect()
            }
            Source::Expr(expr) => {
                let elements = self.eval(expr, env);
                elements
                    .as_array()
                    .unwrap_or_default()
                    .iter()
                    .map(|e| env.with(alias, e.clone()))
                    .collect()
            }
        }
    }

    fn eval(&self, expr: &Expr, env: &Env) -> Value {
        eval(expr, env, &self.context).unwrap()
    }
}
