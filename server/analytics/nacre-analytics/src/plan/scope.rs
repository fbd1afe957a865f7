//! Variables of a query and their columns.

use super::relation::{EXACT_MAX, Form, Relation, Ty, Wanted};
use super::{Stop, unsupported};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, lit};
use nacre_sql::Name;
use nacre_sql::ast::{self, Expr as Sql};
use std::collections::{BTreeSet, HashMap};

/// An expression of the engine whose known values have one type.
#[derive(Clone, Debug)]
pub struct Typed {
    /// The expression; null where the value is unknown.
    pub expr: Expr,
    /// The type; `None` if the value is always unknown.
    pub ty: Option<Ty>,
    /// True if it can be MISSING.
    pub missing: bool,
    /// True if it can be NULL.
    pub null: bool,
    /// The maximum magnitude of integers.
    pub magnitude: u64,
    /// The estimated number of distinct values, if known.
    pub distinct: Option<f64>,
}

impl Typed {
    /// Returns a value that is never unknown.
    pub fn known(expr: Expr, ty: Ty) -> Typed {
        Typed {
            expr,
            ty: Some(ty),
            missing: false,
            null: false,
            magnitude: u64::MAX,
            distinct: None,
        }
    }

    /// Returns true if its integers are exact as doubles.
    pub fn is_exact(&self) -> bool {
        self.ty != Some(Ty::Int) || self.magnitude <= EXACT_MAX
    }

    /// Returns true if it can be both MISSING and NULL.
    pub fn is_mixed(&self) -> bool {
        self.missing && self.null
    }
}

/// Returns null of a type.
pub fn null(ty: Ty) -> Expr {
    lit(match ty {
        Ty::Bool => ScalarValue::Boolean(None),
        Ty::Int => ScalarValue::Int64(None),
        Ty::Float => ScalarValue::Float64(None),
        Ty::String => ScalarValue::Utf8View(None),
    })
}

/// Returns a column by its name.
pub fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// The form in which a value is found.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// As a value of one type.
    Typed(Typed),
    /// As JSON text.
    Json(Expr),
}

/// A value in a column of a subquery.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Name of the column.
    pub column: String,
    /// The value if it has one type; otherwise the column is JSON text.
    pub typed: Option<Typed>,
}

impl Leaf {
    fn resolved(&self) -> Resolved {
        match &self.typed {
            Some(typed) => Resolved::Typed(Typed { expr: column(&self.column), ..typed.clone() }),
            None => Resolved::Json(column(&self.column)),
        }
    }
}

/// A variable.
#[derive(Clone, Debug)]
pub enum Variable {
    /// Documents, or elements of their arrays: input and level.
    Row(usize, usize),
    /// Rows of a subquery: input and its fields.
    Fields(usize, Vec<(Name, Leaf)>),
    /// Values of a subquery: input and value.
    Value(usize, Leaf),
}

/// An operand of a join.
#[derive(Clone, Debug)]
pub enum Input {
    /// A table.
    Relation(Relation),
    /// The rows of a subquery, and their approximate number.
    Plan(LogicalPlan, f64),
}

/// All inputs of a statement, with the owners of columns.
#[derive(Default)]
pub struct Inputs {
    /// Inputs.
    pub all: Vec<Input>,
    /// Inputs that can be missing as a whole, because they are on the right of a left join.
    pub nullable: BTreeSet<usize>,
    /// The input of each column, by name.
    pub owners: HashMap<String, usize>,
}

impl Inputs {
    /// Returns the relation of an input.
    pub fn relation(&mut self, input: usize) -> Option<&mut Relation> {
        match &mut self.all[input] {
            Input::Relation(relation) => Some(relation),
            Input::Plan(..) => None,
        }
    }

    /// Returns the name of a relation's column with this content, and adds the column if it is new.
    pub fn want(&mut self, input: usize, label: &str, wanted: Wanted) -> String {
        let count = self.owners.len();
        let Some(relation) = self.relation(input) else { return label.to_owned() };
        if let Some((name, _)) = relation.columns.iter().find(|(_, known)| *known == wanted) {
            return name.clone();
        }
        let name = format!("{label}#{count}");
        relation.columns.push((name.clone(), wanted));
        self.owners.insert(name.clone(), input);
        name
    }

    /// Returns the inputs whose columns an expression reads.
    pub fn of(&self, expr: &Expr) -> BTreeSet<usize> {
        expr.column_refs()
            .iter()
            .filter_map(|column| self.owners.get(&column.name).copied())
            .collect()
    }

    fn label(variable: &str, path: &[Name], suffix: &str) -> String {
        let mut label = variable.to_owned();
        for name in path {
            label.push('.');
            label.push_str(name);
        }
        label + suffix
    }

    /// Finds the value of a path that begins with a variable.
    pub fn resolve(&mut self, name: &Name, variable: &Variable, path: &[Name]) -> Option<Resolved> {
        let (input, leaf) = match variable {
            Variable::Row(input, level) => {
                return Some(self.resolve_row(name, *input, *level, path));
            }
            Variable::Value(input, leaf) if path.is_empty() => (*input, leaf),
            Variable::Fields(input, fields) => {
                let [field] = path else { return None };
                (*input, &fields.iter().find(|(name, _)| name == field)?.1)
            }
            Variable::Value(..) => return None,
        };
        let mut resolved = leaf.resolved();
        if let Resolved::Typed(typed) = &mut resolved {
            typed.missing |= self.nullable.contains(&input);
        }
        Some(resolved)
    }

    fn resolve_row(&mut self, name: &Name, input: usize, level: usize, path: &[Name]) -> Resolved {
        let is_nullable = self.nullable.contains(&input);
        let known = self.relation(input).expect("rows are of relations").known(level, path);
        let Some(ty) = known.ty() else {
            return Resolved::Json(self.json(name, input, level, path));
        };
        let has = |kind| known.kinds.has(kind);
        let expr = match ty {
            Some(ty) => {
                let wanted = Wanted { level, path: path.to_vec(), form: Form::Typed(ty) };
                column(&self.want(input, &Inputs::label(name, path, ""), wanted))
            }
            None => null(Ty::String),
        };
        Resolved::Typed(Typed {
            expr,
            ty,
            missing: has(crate::column::Kind::Missing) || is_nullable,
            null: has(crate::column::Kind::Null),
            magnitude: known.magnitude(),
            distinct: known
                .range
                .filter(|_| ty == Some(Ty::Int))
                .map(|(low, high)| high as f64 - low as f64 + 1.0),
        })
    }

    /// Returns the JSON text of a path of a relation.
    pub fn json(&mut self, name: &Name, input: usize, level: usize, path: &[Name]) -> Expr {
        let wanted = Wanted { level, path: path.to_vec(), form: Form::Json };
        column(&self.want(input, &Inputs::label(name, path, "#json"), wanted))
    }
}

/// The visible variables.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The variables of this block, then those of surrounding ones: the first with a name applies.
    pub variables: Vec<(Name, Variable)>,
    /// Values of complete expressions, after grouping.
    pub bound: Vec<(Sql, Leaf)>,
    /// True if only `bound` is visible.
    pub is_grouped: bool,
}

impl Scope {
    /// Returns the variable with this name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|(known, _)| **known == *name).map(|(_, variable)| variable)
    }

    /// Returns the value that an expression is bound to.
    pub fn bound(&self, expr: &Sql) -> Option<Resolved> {
        self.bound.iter().find(|(known, _)| known == expr).map(|(_, leaf)| leaf.resolved())
    }
}

/// Returns variable and path of `v.a.b`.
pub fn path_of(expr: &Sql) -> Option<(&Name, Vec<Name>)> {
    match expr {
        Sql::Ident(name) => Some((name, Vec::new())),
        Sql::Field(of, name, false) => {
            let (variable, mut path) = path_of(of)?;
            path.push(name.clone());
            Some((variable, path))
        }
        _ => None,
    }
}

/// Collects the conditions that must all be true.
pub fn conjuncts(expr: &Sql, into: &mut Vec<Sql>) {
    match expr {
        Sql::Chain(ast::Chain::And, operands) => {
            operands.iter().for_each(|operand| conjuncts(operand, into))
        }
        Sql::Between(of, low, high) => {
            let side =
                |operator, bound: &Sql| Sql::Binary(operator, of.clone(), Box::new(bound.clone()));
            into.push(side(ast::Binary::GreaterOrEqual, low));
            into.push(side(ast::Binary::LessOrEqual, high));
        }
        Sql::Chain(ast::Chain::Or, branches) => {
            let (common, rest) = factored(branches);
            into.extend(common);
            into.extend(rest);
        }
        other => into.push(other.clone()),
    }
}

/// Returns the conditions that all branches of an OR have in common, and the OR of the remaining ones, unless a branch has no
/// others.
fn factored(branches: &[Sql]) -> (Vec<Sql>, Option<Sql>) {
    let parts: Vec<Vec<Sql>> = branches
        .iter()
        .map(|branch| {
            let mut parts = Vec::new();
            conjuncts(branch, &mut parts);
            parts
        })
        .collect();
    let Some((first, others)) = parts.split_first() else { return (Vec::new(), None) };
    let is_common = |part: &&Sql| others.iter().all(|other| other.contains(part));
    let common: Vec<Sql> = first.iter().filter(is_common).cloned().collect();
    let left = |parts: &Vec<Sql>| -> Vec<Sql> {
        parts.iter().filter(|part| !common.contains(part)).cloned().collect()
    };
    let rests: Vec<Vec<Sql>> = parts.iter().map(left).collect();
    if rests.iter().any(Vec::is_empty) {
        return (common, None);
    }
    let of_branch = |mut rest: Vec<Sql>| match rest.len() {
        1 => rest.remove(0),
        _ => Sql::Chain(ast::Chain::And, rest),
    };
    (common, Some(Sql::Chain(ast::Chain::Or, rests.into_iter().map(of_branch).collect())))
}

/// Returns the number of a LIMIT or OFFSET.
///
/// # Errors
/// The reason, if it is not a literal number.
pub fn count_of(expr: &Sql) -> Result<usize, Stop> {
    match expr {
        Sql::Literal(value) => match value.as_i64().and_then(|count| usize::try_from(count).ok()) {
            Some(count) => Ok(count),
            None => unsupported("LIMIT or OFFSET is no whole number"),
        },
        _ => unsupported("LIMIT or OFFSET is computed"),
    }
}
