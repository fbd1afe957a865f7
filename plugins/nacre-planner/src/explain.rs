//! Plans as JSON, with the names of operators that people of the field know.

use crate::plan::{
    Access, IndexScan, Join, Nearest, Node, Page, Sarg, Scan, ScanSource, SearchScan, Strategy,
    text,
};
use crate::pushed_text;
use crate::span_text::spans;
use nacre_cost::Estimate;
use nacre_datastore::Keyspace;
use nacre_sql::ast::{
    Changes, Expr, Insert, InsertSource, JoinKind, Projection, Set, SetOp, Side, Term,
};
use nacre_sql::index::SELF;
use nacre_sql::{Name, Value};

/// Members of an operator.
pub type Fields = Vec<(&'static str, Value)>;

fn operator(name: &str, fields: Fields) -> Value {
    let mut all: Fields = vec![("#operator", name.into())];
    all.extend(fields);
    Value::object(all)
}

fn sequence(children: Vec<Value>) -> Value {
    operator("Sequence", vec![("~children", children.into())])
}

/// Returns a plan as EXPLAIN shows it.
pub fn explain(node: &Node) -> Value {
    let mut steps = Vec::new();
    add(node, &mut steps);
    sequence(steps)
}

/// Returns the plan of how documents are found, with the steps that change them.
pub fn with_steps(node: &Node, changes: Vec<Value>) -> Value {
    let mut steps = Vec::new();
    add(node, &mut steps);
    steps.extend(changes);
    sequence(steps)
}

/// Returns the steps of SET and UNSET.
pub fn change_steps(changes: &Changes) -> Vec<Value> {
    let term = |set: &Set| Value::object([("path", text(&set.path)), ("value", text(&set.value))]);
    let path = |set: &Set| Value::object([("path", text(&set.path))]);
    let mut steps = Vec::new();
    if !changes.set.is_empty() {
        let terms: Vec<Value> = changes.set.iter().map(term).collect();
        steps.push(operator("Set", vec![("set_terms", terms.into())]));
    }
    if !changes.unset.is_empty() {
        let terms: Vec<Value> = changes.unset.iter().map(path).collect();
        steps.push(operator("Unset", vec![("unset_terms", terms.into())]));
    }
    steps
}

/// Returns the step that sends what was changed.
pub fn send_step(name: &str, alias: &Name, keyspace: &Keyspace, more: Fields) -> Value {
    let mut fields = vec![("alias", alias.clone().into())];
    fields.extend(place_of(keyspace));
    fields.extend(more);
    operator(name, fields)
}

/// The members that name a keyspace.
fn place_of(keyspace: &Keyspace) -> Fields {
    vec![
        ("bucket", keyspace.bucket.clone().into()),
        ("keyspace", keyspace.collection.clone().into()),
        ("namespace", keyspace.namespace.clone().into()),
        ("scope", keyspace.scope.clone().into()),
    ]
}

/// Returns the steps that put documents into a keyspace; `source` is the plan of the query that they come from.
pub fn insert_steps(insert: &Insert, keyspace: &Keyspace, source: Option<&Node>) -> Value {
    let mut steps = Vec::new();
    let row = match (&insert.source, source) {
        (InsertSource::Select(row, _), Some(node)) => {
            add(node, &mut steps);
            let value = match &row.value {
                Expr::Literal(Value::Missing) => Value::Missing,
                value => text(value),
            };
            vec![("key", text(&row.key)), ("value", value)]
        }
        (InsertSource::Values(rows), _) => {
            let rows = rows.iter().map(|row| format!("[{}, {}]", row.key, row.value));
            let rows = format!("[{}]", rows.collect::<Vec<_>>().join(", "));
            steps.push(operator("ValueScan", vec![("values", rows.into())]));
            Vec::new()
        }
        _ => Vec::new(),
    };
    let verb = if insert.upsert { "SendUpsert" } else { "SendInsert" };
    steps.push(send_step(verb, &insert.alias, keyspace, row));
    sequence(steps)
}

fn add(node: &Node, steps: &mut Vec<Value>) {
    if let Some(input) = node.input() {
        add(input, steps);
    }
    match node {
        Node::Dummy => steps.push(operator("DummyScan", vec![])),
        Node::Scan(scan) => add_scan(scan, false, steps),
        Node::Count(keyspace, ..) => steps.push(operator("CountScan", place_of(keyspace))),
        Node::Join(_, join) => add_join(join, steps),
        Node::Let(_, variables) => {
            let bindings = variables.iter().map(|(name, expr)| {
                Value::object([("var", name.clone().into()), ("expr", text(expr))])
            });
            steps.push(operator("Let", vec![("bindings", bindings.collect::<Vec<_>>().into())]));
        }
        Node::Filter(_, condition) => {
            steps.push(operator("Filter", vec![("condition", text(condition))]))
        }
        Node::Group(input, group) if group.pushed.is_some() => {
            // It is the scan that makes the groups.
            if let (Some(pushed), Node::Scan(scan)) = (&group.pushed, &**input)
                && let Some(operator) = steps.pop()
            {
                steps.push(pushed_text::with_groups(&operator, group, pushed, scan));
            }
        }
        Node::Group(_, group) => {
            let keys: Vec<Value> = group.keys.iter().map(|(_, expr, _)| text(expr)).collect();
            let aggregates: Vec<Value> =
                group.aggregates.iter().map(|(_, aggregate)| text(aggregate)).collect();
            let fields = vec![("aggregates", aggregates.into()), ("group_keys", keys.into())];
            steps.push(operator("Group", fields));
        }
        Node::Window(_, functions) => {
            let aggregates: Vec<Value> =
                functions.iter().map(|(_, function)| text(function)).collect();
            steps.push(operator("WindowAggregate", vec![("aggregates", aggregates.into())]));
        }
        Node::Order(_, terms, page) => {
            let terms: Vec<Value> = terms
                .iter()
                .map(|term| {
                    let desc = if term.descending { text("\"desc\"") } else { Value::Missing };
                    Value::object([("desc", desc), ("expr", text(&term.expr))])
                })
                .collect();
            let mut fields = vec![("sort_terms", terms.into())];
            fields.extend(page_fields(page));
            steps.push(operator("Order", fields));
        }
        Node::Project(_, project) => {
            steps.push(operator(
                "InitialProject",
                vec![("result_terms", terms(&project.projection))],
            ));
        }
        Node::Distinct(_) => steps.push(operator("Distinct", vec![])),
        Node::Page(_, page) => {
            if let Some(offset) = &page.offset {
                steps.push(operator("Offset", vec![("expr", text(offset))]));
            }
            if let Some(limit) = &page.limit {
                steps.push(operator("Limit", vec![("expr", text(limit))]));
            }
        }
        Node::Union(all, branches) => {
            let children: Vec<Value> = branches.iter().map(|branch| explain(branch)).collect();
            steps.push(operator("UnionAll", vec![("~children", children.into())]));
            if !all {
                steps.push(operator("Distinct", vec![]));
            }
        }
        Node::Set(set, all, left, right) => {
            let name = match (set, all) {
                (SetOp::Union, _) => "UnionAll",
                (SetOp::Intersect, false) => "IntersectAll",
                (SetOp::Intersect, true) => "IntersectAll",
                (SetOp::Except, _) => "ExceptAll",
            };
            let sides = match set {
                SetOp::Union => vec![("~children", vec![explain(left), explain(right)].into())],
                _ => vec![("first", explain(left)), ("second", explain(right))],
            };
            steps.push(operator(name, sides));
            if !all {
                steps.push(operator("Distinct", vec![]));
            }
        }
        Node::With(_, withs) => {
            let bindings = withs.iter().map(|with| {
                Value::object([("alias", with.alias.clone().into()), ("expr", text(&with.expr))])
            });
            let inner = sequence(std::mem::take(steps));
            let fields = vec![("bindings", bindings.collect::<Vec<_>>().into()), ("~child", inner)];
            steps.push(operator("With", fields));
        }
    }
}

/// Returns the members that LIMIT and OFFSET are shown as.
pub fn page_fields(page: &Page) -> Fields {
    let limit = page.limit.iter().map(|limit| ("limit", text(limit)));
    limit.chain(page.offset.iter().map(|offset| ("offset", text(offset)))).collect()
}

fn terms(projection: &Projection) -> Value {
    match projection {
        Projection::Raw(expr, _) => {
            vec![Value::object([("expr", text(expr)), ("raw", true.into())])].into()
        }
        Projection::Terms(terms, _) => terms
            .iter()
            .map(|term| match term {
                Term::Star => Value::object([("expr", "self".into()), ("star", true.into())]),
                Term::StarOf(expr) => Value::object([("expr", text(expr)), ("star", true.into())]),
                Term::Expr(expr, name) => {
                    let name = name.clone().map_or(Value::Missing, Value::from);
                    Value::object([("expr", text(expr)), ("as", name)])
                }
            })
            .collect::<Vec<_>>()
            .into(),
    }
}

fn add_scan(scan: &Scan, nested: bool, steps: &mut Vec<Value>) {
    let alias = || ("as", Value::from(scan.alias.clone()));
    match &scan.source {
        ScanSource::Expr(expr) => {
            steps.push(operator(
                "ExpressionScan",
                vec![("expr", text(expr)), ("alias", scan.alias.clone().into())],
            ));
        }
        ScanSource::Catalog(name) => {
            let fields =
                vec![alias(), ("keyspace", name.clone().into()), ("namespace", "system".into())];
            steps.push(operator("PrimaryScan3", fields));
        }
        ScanSource::Keyspace { keyspace, access, covering } => {
            let place = vec![alias()];
            let place = [place, place_of(keyspace)].concat();
            let mut all = place.clone();
            if nested {
                all.push(("nested_loop", true.into()));
            }
            let fetches = !covering && !matches!(access, Access::Sequential);
            let of_access = access_value(access, &all);
            steps.push(estimated(of_access, scan.costs.map(|costs| costs.scan)));
            if fetches {
                let fetch = operator("Fetch", place);
                steps.push(estimated(fetch, scan.costs.map(|costs| costs.with_documents)));
            }
        }
    }
}

/// An operator with what it costs, if that is known.
fn estimated(operator: Value, estimate: Option<Estimate>) -> Value {
    let (Value::Object(fields), Some(estimate)) = (&operator, estimate) else { return operator };
    let number = |number: f64| Value::number((number * 1000.0).round() / 1000.0);
    let estimates = Value::object([
        ("cardinality", number(estimate.cardinality)),
        ("cost", number(estimate.cost)),
        ("fr_cost", number(estimate.first_row)),
        ("size", number(estimate.bytes.round())),
    ]);
    let fields = fields.iter().map(|(name, value)| (name.clone(), value.clone()));
    Value::object(fields.chain([(Name::from("optimizer_estimates"), estimates)]))
}

fn access_value(access: &Access, place: &Fields) -> Value {
    let with = |name: &str, more: Fields| {
        let mut fields = place.clone();
        fields.extend(more);
        operator(name, fields)
    };
    let many = |scans: &[IndexScan]| -> Value {
        let scans: Vec<Value> = scans.iter().map(|scan| index_value(scan, place)).collect();
        scans.into()
    };
    match access {
        Access::Keys(keys) => with("KeyScan", vec![("keys", text(keys))]),
        Access::Primary(name) => {
            with("PrimaryScan3", vec![("index", name.clone().into()), ("using", "gsi".into())])
        }
        Access::Sequential => with("SequentialScan", vec![]),
        Access::Index(index) => index_value(index, place),
        Access::Union(scans) => operator("UnionScan", vec![("scans", many(scans))]),
        Access::Intersect(scans) => operator("IntersectScan", vec![("scans", many(scans))]),
        Access::Search(search) => with("IndexFtsSearch", search_fields(search)),
    }
}

fn search_fields(scan: &SearchScan) -> Fields {
    let Expr::Call(_, args) = &scan.call else { return Vec::new() };
    if let Some(nearest) = &scan.nearest {
        return vec![
            ("index", scan.index.clone().into()),
            ("index_vector", nearest_value(nearest, args)),
            ("using", "fts".into()),
        ];
    }
    let field = args.first().and_then(nacre_sql::search_target).and_then(|(_, field)| field);
    let mut info = vec![
        (
            "field",
            Value::from(field.map_or_else(|| "\"\"".to_owned(), |field| format!("{field:?}"))),
        ),
        ("query", text(&args[1])),
        ("options", args.get(2).map_or(Value::Missing, text)),
    ];
    if scan.by_score {
        info.push(("order", vec![Value::from("score DESC")].into()));
    }
    info.extend(page_fields(&scan.page));
    vec![
        ("index", scan.index.clone().into()),
        ("search_info", Value::object(info)),
        ("using", "fts".into()),
    ]
}

/// Describes the vector whose neighbours are read.
fn nearest_value(nearest: &Nearest, args: &[Expr]) -> Value {
    let arg = |at: usize| args.get(at).map_or(Value::Missing, text);
    Value::object([
        ("field", nearest.field.clone().into()),
        ("query_vector", arg(1)),
        ("similarity", arg(2)),
        ("dimension", Value::Int(nearest.dimension as i64)),
        ("limit", Value::Int(nearest.count as i64)),
        ("filter", nearest.filter.clone()),
    ])
}

fn index_value(scan: &IndexScan, place: &Fields) -> Value {
    let definition = &scan.definition;
    let alias = scan_alias(place);
    let cover = |at: usize| {
        let key = &definition.keys[at];
        let of = nacre_cost::renamed(&key.expr, SELF, &alias);
        match key.array {
            Some(true) => format!("cover ((distinct ({of})))"),
            Some(false) => format!("cover ((all ({of})))"),
            None => format!("cover ({of})"),
        }
    };
    let covers = !scan.covers.is_empty();
    let entry_keys = match covers {
        true => {
            (0..definition.keys.len()).map(|at| Value::Int(at as i64)).collect::<Vec<_>>().into()
        }
        false => Value::Missing,
    };
    let projection = [("entry_keys", entry_keys), ("primary_key", true.into())];
    let mut fields = place.clone();
    fields.extend([
        ("index", definition.name.clone().into()),
        ("index_id", text(format!("{:x}", scan.id))),
        ("index_projection", Value::object(projection)),
        ("spans", spans(scan)),
        ("using", "gsi".into()),
    ]);
    if scan.reverse {
        fields.push(("reverse", true.into()));
    }
    if let Some(partitioning) = &scan.definition.partitioning {
        let all = || partitioning.by.iter().map(|_| "all".to_owned()).collect();
        let asked = |spread: &Vec<Sarg>| spread.iter().map(sarg_text).collect();
        let asked: Vec<String> = scan.spread.as_ref().map_or_else(all, asked);
        let one = |(by, range): (&Expr, String)| {
            Value::object([("expr", text(by)), ("range", range.into())])
        };
        let partitions: Vec<Value> = partitioning.by.iter().zip(asked).map(one).collect();
        fields.push(("partitions", partitions.into()));
    }
    if covers {
        let covers: Vec<Value> = (0..definition.keys.len()).map(|at| cover(at).into()).collect();
        fields.push(("covers", covers.into()));
        let constants = scan.constants.iter();
        let constants =
            constants.map(|(bound, value)| (format!("cover ({})", bound.of), value.clone()));
        let constants: Vec<(String, Value)> = constants.collect();
        if !constants.is_empty() {
            fields.push(("filter_covers", Value::object(constants)));
        }
    }
    let is_whole_primary = definition.is_primary() && scan.parts.is_empty();
    let found = operator(if is_whole_primary { "PrimaryScan3" } else { "IndexScan3" }, fields);
    if scan.repeats() { operator("DistinctScan", vec![("scan", found)]) } else { found }
}

/// The name of the term that is scanned.
fn scan_alias(place: &Fields) -> Name {
    let alias = place.iter().find(|(name, _)| *name == "as");
    alias.and_then(|(_, alias)| alias.as_str().map(Name::from)).unwrap_or_else(|| "self".into())
}

fn sarg_text(sarg: &Sarg) -> String {
    match sarg {
        Sarg::Equal(value) => format!("= {value}"),
        Sarg::In(values) => format!("in {values}"),
        Sarg::Above(low, inclusive) => format!("{} {low}", if *inclusive { ">=" } else { ">" }),
        Sarg::Below(high, inclusive) => format!("{} {high}", if *inclusive { "<=" } else { "<" }),
        Sarg::Like(pattern, _) => format!("like {pattern}"),
        Sarg::IsNull => "is null".to_owned(),
        Sarg::IsMissing => "is missing".to_owned(),
        Sarg::IsKnown => "is valued".to_owned(),
        Sarg::NotMissing => "is not missing".to_owned(),
    }
}

fn add_join(join: &Join, steps: &mut Vec<Value>) {
    let outer = match join.side {
        Side::Inner => Value::Missing,
        Side::Left | Side::Right => true.into(),
    };
    let alias: Name = join.alias.clone();
    let mut fields = vec![("alias", alias.into()), ("outer", outer)];
    if let Some(condition) = &join.condition {
        fields.push(("on_clause", text(condition)));
    }
    if join.side == Side::Right {
        fields.push(("right_outer", true.into()));
    }
    let nest = join.kind == JoinKind::Nest;
    let mut side = |scan: &Scan, nested: bool| {
        let mut children = Vec::new();
        add_scan(scan, nested, &mut children);
        fields.push(("~child", sequence(children)));
    };
    let name = match &join.strategy {
        Strategy::Unnest(expr) => {
            fields.push(("expr", text(expr)));
            "Unnest"
        }
        Strategy::Nested(scan) => {
            side(scan, true);
            if nest { "NestedLoopNest" } else { "NestedLoopJoin" }
        }
        Strategy::Loop(scan) => {
            side(scan, true);
            if nest { "NestedLoopNest" } else { "NestedLoopJoin" }
        }
        Strategy::Hash(scan, lefts, rights) => {
            side(scan, false);
            let list =
                |exprs: &[nacre_sql::ast::Expr]| Value::array(exprs.iter().map(text).collect());
            fields.push(("probe_exprs", list(lefts)));
            fields.push(("build_exprs", list(rights)));
            if nest { "HashNest" } else { "HashJoin" }
        }
    };
    steps.push(estimated(operator(name, fields), join.estimate));
}
