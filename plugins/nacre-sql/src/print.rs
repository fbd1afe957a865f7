//! Prints trees as canonical text: texts with the same tree are printed the same.

use crate::ast::{
    Aggregate, Binary, Binding, Block, Body, Case, Chain, Collect, CreateIndex, Exclude, Expr,
    Frame, FrameBound, FrameUnit, FromTerm, Group, IndexKey, JoinKind, On, OrderTerm, Over, Path,
    Projection, Quantifier, Select, SetOp, Side, Source, Term, Unary, Window,
};
use crate::{Name, Value};
use std::fmt::{self, Display, Formatter};

/// Returns a name in back quotes.
fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn list<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

/// Above this number, not every integer is a double.
const INTEGERS_END: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// The base of a navigation; without parentheses, the sign of a negative number would be applied
/// last.
struct Base<'a>(&'a Expr);

impl Display for Base<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Expr::Literal(Value::Int(_) | Value::Float(_)) => write!(f, "({})", self.0),
            _ => self.0.fmt(f),
        }
    }
}

fn fmt_case(f: &mut Formatter<'_>, case: &Case) -> fmt::Result {
    f.write_str("case")?;
    case.operand.iter().try_for_each(|operand| write!(f, " {operand}"))?;
    case.whens.iter().try_for_each(|(when, then)| write!(f, " when {when} then {then}"))?;
    case.otherwise.iter().try_for_each(|otherwise| write!(f, " else {otherwise}"))?;
    f.write_str(" end")
}

fn literal(value: &Value, f: &mut Formatter<'_>) -> fmt::Result {
    match value {
        Value::Missing => f.write_str("missing"),
        // Without an exponent the digits would be read as an integer, which is another number.
        Value::Float(number) if number.abs() >= INTEGERS_END => {
            write!(f, "{number:e}")
        }
        Value::Array(elements) => {
            let elements = elements.iter().map(|element| Expr::Literal(element.clone()));
            Expr::Array(elements.collect()).fmt(f)
        }
        Value::Object(fields) => {
            let literal = |value: Value| Expr::Literal(value);
            let fields = fields.iter();
            let fields =
                fields.map(|(name, value)| (literal(name.clone().into()), literal(value.clone())));
            Expr::Object(fields.collect()).fmt(f)
        }
        value => f.write_str(&value.to_json()),
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Literal(value) => literal(value, f),
            Expr::Ident(name) => f.write_str(&quote(name)),
            Expr::Itself => f.write_str("self"),
            Expr::Positional(position) => write!(f, "${position}"),
            Expr::Named(name) => write!(f, "${name}"),
            Expr::Field(of, name, folded) => {
                write!(f, "({}.{}{})", Base(of), quote(name), if *folded { "i" } else { "" })
            }
            Expr::Element(of, index) => write!(f, "({}[{index}])", Base(of)),
            Expr::Slice(of, from, to) => {
                write!(f, "({}[", Base(of))?;
                from.iter().try_for_each(|from| from.fmt(f))?;
                f.write_str(" : ")?;
                to.iter().try_for_each(|to| to.fmt(f))?;
                f.write_str("])")
            }
            Expr::Unary(operator, of) => fmt_unary(f, *operator, of),
            Expr::Binary(operator, a, b) => write!(f, "({a} {} {b})", binary_text(*operator)),
            Expr::Fold(first, rest) => {
                write!(f, "({first}")?;
                rest.iter().try_for_each(|(operator, operand)| {
                    write!(f, " {} {operand}", binary_text(*operator))
                })?;
                f.write_str(")")
            }
            Expr::Chain(chain, operands) => fmt_chain(f, *chain, operands),
            Expr::Like(of, pattern, None) => write!(f, "({of} like {pattern})"),
            Expr::Like(of, pattern, Some(escape)) => {
                write!(f, "({of} like {pattern} escape {escape})")
            }
            Expr::Between(of, low, high) => write!(f, "({of} between {low} and {high})"),
            Expr::Case(case) => fmt_case(f, case),
            Expr::Array(elements) => {
                f.write_str("[")?;
                list(f, elements)?;
                f.write_str("]")
            }
            Expr::Object(fields) => {
                f.write_str("{")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}: {value}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
            Expr::Quantified(quantified) => {
                f.write_str(match quantified.kind {
                    Quantifier::Any => "any ",
                    Quantifier::Every => "every ",
                    Quantifier::AnyAndEvery => "any and every ",
                })?;
                list(f, &quantified.bindings)?;
                write!(f, " satisfies {} end", quantified.condition)
            }
            Expr::Comprehension(comprehension) => {
                let is_nested = comprehension.collect == Collect::DistinctArray;
                match &comprehension.collect {
                    Collect::Array => f.write_str("array ")?,
                    Collect::DistinctArray => f.write_str("(distinct array ")?,
                    Collect::First => f.write_str("first ")?,
                    Collect::Object(name) => write!(f, "object {name} : ")?,
                }
                write!(f, "{} for ", comprehension.value)?;
                list(f, &comprehension.bindings)?;
                comprehension.condition.iter().try_for_each(|when| write!(f, " when {when}"))?;
                f.write_str(if is_nested { " end)" } else { " end" })
            }
            Expr::Call(function, args) => {
                write!(f, "{}(", function.name.to_ascii_lowercase())?;
                list(f, args)?;
                f.write_str(")")
            }
            Expr::UserCall(path, args) => {
                write!(
                    f,
                    "{}(",
                    path.iter().map(|part| quote(part)).collect::<Vec<_>>().join(".")
                )?;
                list(f, args)?;
                f.write_str(")")
            }
            Expr::FlattenKeys(keys) => {
                f.write_str("flatten_keys(")?;
                for (index, key) in keys.iter().enumerate() {
                    write!(f, "{}{}", if index > 0 { ", " } else { "" }, key.expr)?;
                    f.write_str(if key.descending { " desc" } else { "" })?;
                    f.write_str(if key.include_missing { " include missing" } else { "" })?;
                }
                f.write_str(")")
            }
            Expr::Aggregate(aggregate) => aggregate.fmt(f),
            Expr::Subquery(select) => write!(f, "({select})"),
            Expr::Bound(bound) if bound.cover => write!(f, "cover ({})", bound.of),
            Expr::Bound(bound) => bound.of.fmt(f),
        }
    }
}

fn fmt_unary(f: &mut Formatter<'_>, operator: Unary, of: &Expr) -> fmt::Result {
    match operator {
        Unary::Negate => write!(f, "(-{of})"),
        Unary::Not => write!(f, "(not {of})"),
        Unary::IsNull => write!(f, "({of} is null)"),
        Unary::IsMissing => write!(f, "({of} is missing)"),
        Unary::IsKnown => write!(f, "({of} is valued)"),
        Unary::Exists => write!(f, "(exists {of})"),
    }
}

fn binary_text(operator: Binary) -> &'static str {
    match operator {
        Binary::Add => "+",
        Binary::Subtract => "-",
        Binary::Multiply => "*",
        Binary::Divide => "/",
        Binary::Modulo => "%",
        Binary::Equal => "=",
        Binary::NotEqual => "!=",
        Binary::Less => "<",
        Binary::LessOrEqual => "<=",
        Binary::Greater => ">",
        Binary::GreaterOrEqual => ">=",
        Binary::DistinctFrom => "is distinct from",
        Binary::In => "in",
        Binary::Within => "within",
    }
}

fn fmt_chain(f: &mut Formatter<'_>, chain: Chain, operands: &[Expr]) -> fmt::Result {
    let word = match chain {
        Chain::And => "and",
        Chain::Or => "or",
        Chain::Concat => "||",
    };
    f.write_str("(")?;
    for (index, operand) in operands.iter().enumerate() {
        if index > 0 {
            write!(f, " {word} ")?;
        }
        operand.fmt(f)?;
    }
    f.write_str(")")
}

impl Display for Binding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.position.iter().try_for_each(|position| write!(f, "{} : ", quote(position)))?;
        let word = if self.within { "within" } else { "in" };
        write!(f, "{} {word} {}", quote(&self.variable), self.source)
    }
}

impl Display for Aggregate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}", self.name, if self.distinct { "distinct " } else { "" })?;
        if self.args.is_empty() && &*self.name == "count" {
            f.write_str("*")?;
        }
        list(f, &self.args)?;
        f.write_str(")")?;
        if self.from_last {
            f.write_str(" from last")?;
        }
        if self.ignore_nulls {
            f.write_str(" ignore nulls")?;
        }
        self.filter.iter().try_for_each(|filter| write!(f, " filter (where {filter})"))?;
        match &self.over {
            None => Ok(()),
            Some(Over::Named(name)) => write!(f, " over {}", quote(name)),
            Some(Over::Window(window)) => write!(f, " over {window}"),
        }
    }
}

impl Display for Window {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.base.iter().map(|base| quote(base)));
        if !self.partition.is_empty() {
            parts.push(format!("partition by {}", Comma(&self.partition)));
        }
        if !self.order.is_empty() {
            parts.push(format!("order by {}", Comma(&self.order)));
        }
        parts.extend(self.frame.iter().map(ToString::to_string));
        write!(f, "({})", parts.join(" "))
    }
}

struct Comma<'a, T>(&'a [T]);

impl<T: Display> Display for Comma<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        list(f, self.0)
    }
}

impl Display for Frame {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.unit {
            FrameUnit::Rows => "rows",
            FrameUnit::Range => "range",
            FrameUnit::Groups => "groups",
        })?;
        write!(f, " between {} and {}", self.start, self.end)?;
        f.write_str(match self.exclude {
            Exclude::NoOthers => "",
            Exclude::CurrentRow => " exclude current row",
            Exclude::Group => " exclude group",
            Exclude::Ties => " exclude ties",
        })
    }
}

impl Display for FrameBound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            FrameBound::UnboundedPreceding => f.write_str("unbounded preceding"),
            FrameBound::UnboundedFollowing => f.write_str("unbounded following"),
            FrameBound::CurrentRow => f.write_str("current row"),
            FrameBound::Preceding(distance) => write!(f, "{distance} preceding"),
            FrameBound::Following(distance) => write!(f, "{distance} following"),
        }
    }
}

impl Display for OrderTerm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.expr, if self.descending { " desc" } else { "" })?;
        f.write_str(match self.nulls_last {
            None => "",
            Some(true) => " nulls last",
            Some(false) => " nulls first",
        })
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(parameter) = self.parameter() {
            return parameter.fmt(f);
        }
        self.namespace.iter().try_for_each(|namespace| write!(f, "{}:", quote(namespace)))?;
        f.write_str(&self.parts.iter().map(|part| quote(part)).collect::<Vec<_>>().join("."))
    }
}

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, with) in self.with.iter().enumerate() {
            f.write_str(match (index, with.recursive) {
                (0, false) => "with ",
                (0, true) => "with recursive ",
                _ => ", ",
            })?;
            match &with.expr {
                Expr::Subquery(_) => write!(f, "{} as {}", quote(&with.alias), with.expr)?,
                expr => write!(f, "{} as ({expr})", quote(&with.alias))?,
            }
            if !with.cycle.is_empty() {
                write!(f, " cycle {} restrict", Comma(&with.cycle))?;
            }
            with.options.iter().try_for_each(|options| write!(f, " options {options}"))?;
        }
        if !self.with.is_empty() {
            f.write_str(" ")?;
        }
        self.body.fmt(f)?;
        if !self.order.is_empty() {
            write!(f, " order by {}", Comma(&self.order))?;
        }
        self.limit.iter().try_for_each(|limit| write!(f, " limit {limit}"))?;
        self.offset.iter().try_for_each(|offset| write!(f, " offset {offset}"))
    }
}

impl Display for Body {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Body::Block(block) => block.fmt(f),
            Body::Nested(select) => write!(f, "({select})"),
            Body::Union(all, branches) => {
                let word = if *all { " union all " } else { " union " };
                branches.iter().enumerate().try_for_each(|(index, branch)| {
                    write!(f, "{}{branch}", if index > 0 { word } else { "" })
                })
            }
            Body::Set(operator, all, left, right) => {
                let word = match operator {
                    SetOp::Union => "union",
                    SetOp::Intersect => "intersect",
                    SetOp::Except => "except",
                };
                write!(f, "{left} {word}{} {right}", if *all { " all" } else { "" })
            }
        }
    }
}

impl Display for Block {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("select ")?;
        if !self.optimizer_hints.is_empty() {
            let texts: Vec<&str> =
                self.optimizer_hints.iter().map(|hint| hint.text.as_str()).collect();
            write!(f, "/*+ {} */ ", texts.join(" "))?;
        }
        if self.distinct {
            f.write_str("distinct ")?;
        }
        self.projection.fmt(f)?;
        if let Some(from) = &self.from {
            write!(f, " from {}", from.first)?;
            for join in &from.joins {
                f.write_str(match join.side {
                    Side::Inner => " ",
                    Side::Left => " left outer ",
                    Side::Right => " right outer ",
                })?;
                match (join.kind, &join.on) {
                    (JoinKind::Join, On::Nothing) => write!(f, ", {}", join.term)?,
                    (JoinKind::Join, on) => write!(f, "join {}{on}", join.term)?,
                    (JoinKind::Nest, on) => write!(f, "nest {}{on}", join.term)?,
                    (JoinKind::Unnest, _) => write!(f, "unnest {}", join.term)?,
                }
            }
        }
        fmt_assignments(f, "let", &self.lets)?;
        self.condition.iter().try_for_each(|condition| write!(f, " where {condition}"))?;
        self.group.iter().try_for_each(|group| group.fmt(f))?;
        for (index, (name, window)) in self.windows.iter().enumerate() {
            let word = if index == 0 { " window" } else { "," };
            write!(f, "{word} {} as {window}", quote(name))?;
        }
        Ok(())
    }
}

fn fmt_assignments(f: &mut Formatter<'_>, word: &str, all: &[(Name, Expr)]) -> fmt::Result {
    for (index, (name, expr)) in all.iter().enumerate() {
        let before = if index == 0 { format!(" {word} ") } else { ", ".to_owned() };
        write!(f, "{before}{} = {expr}", quote(name))?;
    }
    Ok(())
}

impl Display for Group {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, (expr, alias)) in self.by.iter().enumerate() {
            f.write_str(if index == 0 { " group by " } else { ", " })?;
            expr.fmt(f)?;
            alias.iter().try_for_each(|alias| write!(f, " as {}", quote(alias)))?;
        }
        self.name.iter().try_for_each(|name| write!(f, " group as {}", quote(name)))?;
        fmt_assignments(f, "letting", &self.letting)?;
        self.having.iter().try_for_each(|having| write!(f, " having {having}"))
    }
}

impl Display for On {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            On::Nothing => Ok(()),
            On::Condition(condition) => write!(f, " on {condition}"),
            On::Keys(keys) => write!(f, " on keys {keys}"),
            On::KeyFor(key, alias) => write!(f, " on key {key} for {}", quote(alias)),
        }
    }
}

impl Display for FromTerm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Keyspace(path) => path.fmt(f)?,
            // Parentheses prevent a single name from being read as a keyspace.
            Source::Expr(expr @ (Expr::Ident(_) | Expr::UserCall(..) | Expr::Case(_))) => {
                write!(f, "({expr})")?;
            }
            Source::Expr(expr) => expr.fmt(f)?,
        }
        write!(f, " as {}", quote(&self.alias))?;
        let hints = &self.hints;
        hints.keys.iter().try_for_each(|keys| write!(f, " use keys {keys}"))?;
        if hints.has_indexes() {
            let of_search = hints.search_indexes.iter();
            let of_search = of_search.map(|name| format!("{} using fts", quote(name)));
            let any_search = hints.any_search.then(|| "using fts".to_owned());
            let names = hints.indexes.iter().map(|name| quote(name)).chain(of_search);
            let names: Vec<String> = names.chain(any_search).collect();
            write!(f, " use index ({})", names.join(", "))?;
        }
        match hints.hash {
            None => Ok(()),
            Some(true) => f.write_str(" use hash (build)"),
            Some(false) => f.write_str(" use nl"),
        }
    }
}

impl Display for Projection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Projection::Raw(expr, alias) => {
                write!(f, "raw {expr}")?;
                alias.iter().try_for_each(|alias| write!(f, " as {}", quote(alias)))
            }
            Projection::Terms(terms, excluded) => {
                list(f, terms)?;
                if excluded.is_empty() { Ok(()) } else { write!(f, " exclude {}", Comma(excluded)) }
            }
        }
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Term::Star => f.write_str("*"),
            Term::StarOf(expr) => write!(f, "{expr}.*"),
            Term::Expr(expr, None) => expr.fmt(f),
            Term::Expr(expr, Some(alias)) => write!(f, "{expr} as {}", quote(alias)),
        }
    }
}

impl Display for IndexKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.array {
            None => "",
            Some(true) => "distinct ",
            Some(false) => "all ",
        })?;
        self.expr.fmt(f)?;
        f.write_str(if self.descending { " desc" } else { "" })?;
        f.write_str(if self.include_missing { " include missing" } else { "" })
    }
}

impl Display for CreateIndex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.primary, self.is_vector_index) {
            (true, _) => "create primary index",
            (false, true) => "create vector index",
            (false, false) => "create index",
        })?;
        self.name.iter().try_for_each(|name| write!(f, " {}", quote(name)))?;
        write!(f, " on {}", self.keyspace)?;
        for (at, key) in self.keys.iter().enumerate() {
            let attribute = if self.vector == Some(at) { " vector" } else { "" };
            write!(f, "{}{key}{attribute}", if at == 0 { "(" } else { ", " })?;
        }
        if !self.keys.is_empty() {
            f.write_str(")")?;
        }
        if !self.include.is_empty() {
            write!(f, " include({})", Comma(&self.include))?;
        }
        if !self.partition.is_empty() {
            write!(f, " partition by hash({})", Comma(&self.partition))?;
        }
        self.condition.iter().try_for_each(|condition| write!(f, " where {condition}"))?;
        match self.with.as_object() {
            Some(fields) if !fields.is_empty() => write!(f, " with {}", self.with),
            _ => Ok(()),
        }
    }
}
