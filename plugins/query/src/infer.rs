//! INFER describes documents. ADVISE recommends indexes.

use crate::run::Run;
use nacre_planner::{Access, IndexScan, Node, Scan, ScanSource, Strategy, conjuncts};
use nacre_sql::ast::{self, Binary, Body, Expr, FromTerm, On, Source, Statement, Term, Unary};
use nacre_sql::functions::infer::{Options, flavors};
use nacre_sql::{Context, Env, Error, Name, Result, Value, any_in, each_in_select, eval};
use std::rc::Rc;

/// Default number of documents in the sample of INFER. Source: Couchbase.
const SAMPLE: usize = 1000;
/// Maximum number of documents in the sample.
const SAMPLE_MAX: usize = 100_000;

/// Options of INFER, all of which are numbers except `flags`. Source: SQL++ reference, INFER.
const OPTIONS: [&str; 7] = [
    "sample_size",
    "num_sample_values",
    "similarity_metric",
    "dictionary_threshold",
    "infer_timeout",
    "max_schema_MB",
    "flags",
];

/// Describes the documents of a keyspace, or the values of an expression, as JSON schemas.
pub(crate) fn infer(infer: &ast::Infer, run: &Run<'_>, context: &Context<'_>) -> Result<Value> {
    for (name, value) in infer.with.as_object().into_iter().flatten() {
        if !OPTIONS.contains(&&**name) {
            return Err(Error::new(7000, format!("Unrecognized infer option {name}")));
        }
        if value.as_f64().is_none() && &**name != "flags" {
            return Err(Error::new(7001, format!("Option {name} must be a number, not {value}")));
        }
    }
    let count = infer.with.field("sample_size").as_i64();
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(SAMPLE);
    let values = match &infer.source {
        Source::Keyspace(path) => sample(path, count.clamp(1, SAMPLE_MAX), run)?,
        Source::Expr(expr) => match eval(expr, &Env::new(), context)? {
            Value::Array(values) if matches!(expr, Expr::Subquery(_)) => values.to_vec(),
            Value::Missing => Vec::new(),
            value => vec![value],
        },
    };
    if values.is_empty() {
        let what = match &infer.source {
            Source::Keyspace(path) => path.to_string(),
            Source::Expr(expr) => expr.to_string(),
        };
        return Err(Error::new(
            7014,
            format!("No documents found, unable to infer schema: {what}"),
        ));
    }
    Ok(Value::array(flavors(values.iter(), &Options::of(&infer.with))))
}

/// Returns the first documents of a keyspace, at most `count`.
fn sample(path: &ast::Path, count: usize, run: &Run<'_>) -> Result<Vec<Value>> {
    let keyspace = run.keyspace(path)?;
    let mut values = Vec::new();
    let mut after: Option<Name> = None;
    while values.len() < count {
        nacre_sql::Host::tick(run)?;
        let left = (count - values.len()).min(SAMPLE);
        let consistency = &run.settings.consistency;
        let found = run.store.scan(&keyspace, after.as_deref(), true, left, consistency)?;
        let Some(last) = found.last() else { break };
        after = Some(last.id.clone());
        for document in &found {
            let value = Value::parse(&document.body).unwrap_or(Value::Null);
            run.charge(value.size_bytes())?;
            values.push(value);
        }
    }
    Ok(values)
}

/// Returns the row of ADVISE.
pub(crate) fn advice(statement: &Statement, text: &str, run: &Run<'_>) -> Value {
    Value::object([
        ("#operator", Value::from("Advise")),
        ("advice", advise(statement, text, run)),
        ("query", text.into()),
    ])
}

/// Returns the indexes that a statement uses, and those that would help it.
pub(crate) fn advise(statement: &Statement, _: &str, run: &Run<'_>) -> Value {
    let terms = terms_of(statement);
    let (mut plain, mut covering) = (Vec::new(), Vec::new());
    for term in &terms {
        if let Some(advice) = Advice::of(term, &terms, statement) {
            plain.push(advice.index(&advice.keys));
            if let Some(keys) = advice.covering() {
                covering.push(advice.index(&keys));
            }
        }
    }
    let recommended = match (plain.is_empty(), covering.is_empty()) {
        (true, true) => "No index recommendation at this time.".into(),
        (false, true) => Value::object([("indexes", Value::array(plain))]),
        _ => Value::object([
            ("covering_indexes", Value::array(covering)),
            ("indexes", Value::array(plain)),
        ]),
    };
    let current = current_indexes(statement, run);
    let current = if current.is_empty() { Value::Missing } else { Value::array(current) };
    Value::object([
        ("#operator", "IndexAdvice".into()),
        (
            "adviseinfo",
            Value::object([("current_indexes", current), ("recommended_indexes", recommended)]),
        ),
    ])
}

/// A term of a statement, and the conditions on it alone or on a join.
struct Advised {
    path: ast::Path,
    alias: Name,
    conditions: Vec<Expr>,
}

fn terms_of(statement: &Statement) -> Vec<Advised> {
    let of_target = |target: &FromTerm, condition: Option<&Expr>| match &target.source {
        Source::Keyspace(path) if target.hints.keys.is_none() && !path.is_system() => {
            vec![Advised {
                path: path.clone(),
                alias: target.alias.clone(),
                conditions: conjuncts(condition),
            }]
        }
        _ => Vec::new(),
    };
    match statement {
        Statement::Update(update) => of_target(&update.target, update.condition.as_ref()),
        Statement::Delete(delete) => of_target(&delete.target, delete.condition.as_ref()),
        Statement::Select(select) => {
            let Body::Block(block) = &select.body else { return Vec::new() };
            let Some(from) = &block.from else { return Vec::new() };
            let mut all = of_target(&from.first, block.condition.as_ref());
            for join in &from.joins {
                let mut terms = of_target(&join.term, block.condition.as_ref());
                if let (Some(term), On::Condition(condition)) = (terms.first_mut(), &join.on) {
                    term.conditions.extend(conjuncts(Some(condition)));
                }
                all.extend(terms);
            }
            all
        }
        _ => Vec::new(),
    }
}

/// An index that would help a term.
struct Advice<'a> {
    term: &'a Advised,
    /// Fields that are compared; those in equalities come first.
    keys: Vec<Name>,
    /// All fields that are read; `None` if whole documents are read.
    read: Option<Vec<Name>>,
    rule: &'static str,
}

impl<'a> Advice<'a> {
    fn of(term: &'a Advised, _: &[Advised], statement: &Statement) -> Option<Advice<'a>> {
        let (mut equal, mut lists, mut ranges, mut others) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for condition in &term.conditions {
            let (list, of): (&mut Vec<Name>, [&Expr; 2]) = match condition {
                Expr::Binary(Binary::Equal, a, b) => (&mut equal, [a, b]),
                Expr::Binary(Binary::In, a, _) => (&mut lists, [a, a]),
                Expr::Binary(
                    Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual,
                    a,
                    b,
                ) => (&mut ranges, [a, b]),
                Expr::Like(a, ..) => (&mut ranges, [a, a]),
                Expr::Unary(Unary::IsNull | Unary::IsMissing, a) => (&mut equal, [a, a]),
                Expr::Unary(Unary::IsKnown, a) => (&mut others, [a, a]),
                _ => continue,
            };
            let field = |expr: &Expr| match expr {
                Expr::Field(of, name, false) if **of == Expr::Ident(term.alias.clone()) => {
                    Some(name.clone())
                }
                _ => None,
            };
            list.extend(of.into_iter().find_map(field));
        }
        let rule = match (equal.is_empty(), lists.is_empty(), ranges.is_empty()) {
            (false, ..) => "2. equality/null/missing",
            (_, false, _) => "3. in",
            (_, _, false) => "5. less than/between/greater than",
            _ => "8. not null/not missing/valued",
        };
        let mut keys: Vec<Name> = Vec::new();
        for key in equal.into_iter().chain(lists).chain(ranges).chain(others) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let read = read_of(&term.alias, statement);
        (!keys.is_empty()).then_some(Advice { term, keys, read, rule })
    }

    /// Returns the keys of a covering index, if the plain one is not covering.
    fn covering(&self) -> Option<Vec<Name>> {
        let read = self.read.as_ref()?;
        let more: Vec<Name> =
            read.iter().filter(|name| !self.keys.contains(name)).cloned().collect();
        (!more.is_empty()).then(|| [self.keys.clone(), more].concat())
    }

    fn index(&self, keys: &[Name]) -> Value {
        let name = format!("adv_{}", keys.join("_"));
        let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        let text = format!("CREATE INDEX {name} ON {}({})", self.term.path, quoted.join(","));
        let rule = format!("Index keys follow order of predicate types: {}.", self.rule);
        Value::object([
            ("index_statement", Value::from(text)),
            ("keyspace_alias", self.term.alias.clone().into()),
            ("recommending_rule", rule.into()),
        ])
    }
}

/// Returns the fields of a term that a query reads, if it reads only fields.
fn read_of(alias: &Name, statement: &Statement) -> Option<Vec<Name>> {
    let Statement::Select(select) = statement else { return None };
    let Body::Block(block) = &select.body else { return None };
    if let ast::Projection::Terms(terms, _) = &block.projection
        && terms.contains(&Term::Star)
    {
        return None;
    }
    let mut names = Vec::new();
    let mut is_whole = false;
    let done = each_in_select(&mut select.clone(), &mut |expr| {
        fields_of(expr, alias, &mut names, &mut is_whole);
        Ok(())
    });
    (done.is_ok() && !is_whole).then_some(names)
}

fn fields_of(expr: &Expr, alias: &Name, names: &mut Vec<Name>, is_whole: &mut bool) {
    match expr {
        Expr::Field(of, name, false) if **of == Expr::Ident(alias.clone()) => {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Expr::Field(of, name, _)
            if **name == *"id" && matches!(&**of, Expr::Call(f, _) if f.name == "META") => {}
        Expr::Ident(name) if name == alias => *is_whole = true,
        Expr::Subquery(_) => {
            *is_whole |= any_in(expr, &|inner| matches!(inner, Expr::Ident(name) if name == alias));
        }
        _ => {
            let walked = nacre_sql::each_child(&mut expr.clone(), &mut |child| {
                fields_of(child, alias, names, is_whole);
                Ok(())
            });
            debug_assert!(walked.is_ok(), "looking refuses nothing");
        }
    }
}

/// Returns the statements of the indexes in the query's current plan.
fn current_indexes(statement: &Statement, run: &Run<'_>) -> Vec<Value> {
    let Statement::Select(select) = statement else { return Vec::new() };
    let Ok(plan) = nacre_planner::plan(select, run) else { return Vec::new() };
    let mut found = Vec::new();
    each_scan(&plan.root, &mut |scan| {
        let ScanSource::Keyspace { keyspace, access, .. } = &scan.source else { return };
        let scans: Vec<&IndexScan> = match access {
            Access::Index(index) => vec![index],
            Access::Union(indexes) | Access::Intersect(indexes) => indexes.iter().collect(),
            Access::Keys(_) | Access::Primary(_) | Access::Sequential | Access::Search(_) => {
                Vec::new()
            }
        };
        let known = run.store.indexes(keyspace).unwrap_or_default();
        for index in scans {
            let Some(index) = known.iter().find(|known| known.id == index.id) else { continue };
            found.push(Value::object([
                ("index_statement", Value::from(index.definition.as_str())),
                ("keyspace_alias", scan.alias.clone().into()),
            ]));
        }
    });
    found
}

fn each_scan(node: &Rc<Node>, visit: &mut dyn FnMut(&Scan)) {
    match &**node {
        Node::Scan(scan) => visit(scan),
        Node::Union(_, branches) => branches.iter().for_each(|node| each_scan(node, visit)),
        Node::Set(_, _, left, right) => {
            each_scan(left, visit);
            each_scan(right, visit);
        }
        Node::Join(_, join) => match &join.strategy {
            Strategy::Nested(scan) | Strategy::Loop(scan) | Strategy::Hash(scan, ..) => visit(scan),
            Strategy::Unnest(_) => {}
        },
        _ => {}
    }
    if let Some(input) = node.input() {
        each_scan(input, visit);
    }
}
