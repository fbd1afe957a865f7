//! Translates SQL++ expressions to expressions of the engine.
//!
//! There are three ways, and the first possible one is used: over typed columns; as a function that evaluates each row
//! ([`super::evaluate`]); not at all.
//!
//! MISSING and NULL are both null in the engine. Where the difference matters (select list, GROUP BY, ORDER BY, IS NULL), an
//! expression that can be both is evaluated row by row.

use super::block::selects_aggregate;
use super::evaluate::{Argument, Evaluate, Mode};
use super::relation::{Form, Ty, Wanted};
use super::scope::{Resolved, Scope, Typed, Variable, column, null, path_of};
use super::{Builder, Stop, unsupported};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Operator, ScalarUDF, cast, in_list, lit, scalar_subquery, when,
};
use nacre_sql::ast::{Binary, Body, Case, Chain, Expr as Sql, Select, Unary};
use nacre_sql::{Name, Value, each_child};
use std::sync::Arc;

type Planned<T> = Result<T, Stop>;

/// Functions whose known results all have one type: name and type.
const FUNCTIONS: &[(&str, Ty)] = &[
    ("DATE_PART_STR", Ty::Int),
    ("DATE_ADD_STR", Ty::String),
    ("DATE_TRUNC_STR", Ty::String),
    ("SUBSTR", Ty::String),
    ("SUBSTR0", Ty::String),
    ("SUBSTR1", Ty::String),
    ("LOWER", Ty::String),
    ("UPPER", Ty::String),
    ("TRIM", Ty::String),
    ("LTRIM", Ty::String),
    ("RTRIM", Ty::String),
    ("REPLACE", Ty::String),
    ("LENGTH", Ty::Int),
    ("CONTAINS", Ty::Bool),
    ("ROUND", Ty::Float),
    ("TRUNC", Ty::Float),
    ("FLOOR", Ty::Float),
    ("CEIL", Ty::Float),
    ("SQRT", Ty::Float),
    ("POWER", Ty::Float),
    ("REGEXP_CONTAINS", Ty::Bool),
];

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

/// Returns the result of an operator with operands `a` and `b`: unknown if one of them is.
fn strict(expr: Expr, ty: Ty, a: &Typed, b: &Typed) -> Typed {
    Typed { missing: a.missing || b.missing, null: a.null || b.null, ..Typed::known(expr, ty) }
}

fn as_float(typed: &Typed) -> Expr {
    match typed.ty {
        Some(Ty::Int) => cast(typed.expr.clone(), datafusion::arrow::datatypes::DataType::Float64),
        _ => typed.expr.clone(),
    }
}

/// Returns a number for comparing or grouping: the engine orders bits, so that -0 differs from 0.
pub fn comparable(typed: &Typed) -> Expr {
    match (&typed.expr, typed.ty) {
        (Expr::Literal(ScalarValue::Float64(Some(number)), _), _) if *number != 0.0 => {
            typed.expr.clone()
        }
        (_, Some(Ty::Float)) => binary(typed.expr.clone(), Operator::Plus, lit(0.0_f64)),
        _ => typed.expr.clone(),
    }
}

fn literal(value: &Value) -> Option<Typed> {
    Some(match value {
        Value::Null => Typed { ty: None, null: true, ..Typed::known(null(Ty::String), Ty::String) },
        Value::Missing => {
            Typed { ty: None, missing: true, ..Typed::known(null(Ty::String), Ty::String) }
        }
        Value::Bool(truth) => Typed::known(lit(*truth), Ty::Bool),
        Value::Int(number) => Typed {
            magnitude: number.unsigned_abs(),
            distinct: Some(1.0),
            ..Typed::known(lit(*number), Ty::Int)
        },
        Value::Float(number) => {
            Typed { distinct: Some(1.0), ..Typed::known(lit(*number), Ty::Float) }
        }
        Value::String(text) => {
            let text = ScalarValue::Utf8View(Some(text.to_string()));
            Typed { distinct: Some(1.0), ..Typed::known(lit(text), Ty::String) }
        }
        Value::Array(_) | Value::Object(_) => return None,
    })
}

impl Builder<'_> {
    /// Translates an expression over typed columns; `None` if it must be evaluated.
    ///
    /// # Errors
    /// The reason, if the query has no plan because a required part has none.
    pub fn typed(&mut self, expr: &Sql, scope: &Scope) -> Planned<Option<Typed>> {
        if let Some(resolved) = scope.bound(expr) {
            return Ok(match resolved {
                Resolved::Typed(typed) => Some(typed),
                Resolved::Json(_) => None,
            });
        }
        match expr {
            Sql::Literal(value) => Ok(literal(value)),
            Sql::Ident(_) => self.typed_path(expr, scope),
            Sql::Field(of, name, false) => {
                if let Some(typed) = self.typed_id(of, name, scope)? {
                    return Ok(Some(typed));
                }
                if path_of(expr).is_some() {
                    return self.typed_path(expr, scope);
                }
                match element_of_subquery(of) {
                    Some(select) => self.scalar(select, Some(name), scope),
                    None => Ok(None),
                }
            }
            Sql::Element(of, index) => match element_of_subquery(expr) {
                Some(select) => self.scalar(select, None, scope),
                None => self.code_point(expr, of, index, scope),
            },
            Sql::Unary(operator, of) => self.unary(*operator, of, scope),
            Sql::Binary(Binary::In, item, list) => self.in_list(item, list, scope),
            Sql::Binary(operator, a, b) => {
                let (Some(a), Some(b)) = (self.typed(a, scope)?, self.typed(b, scope)?) else {
                    return Ok(None);
                };
                Ok(arithmetic(*operator, &a, &b).or_else(|| comparison(*operator, &a, &b)))
            }
            Sql::Fold(first, rest) => {
                let Some(mut left) = self.typed(first, scope)? else { return Ok(None) };
                for (operator, operand) in rest {
                    let Some(right) = self.typed(operand, scope)? else { return Ok(None) };
                    match arithmetic(*operator, &left, &right) {
                        Some(next) => left = next,
                        None => return Ok(None),
                    }
                }
                Ok(Some(left))
            }
            Sql::Chain(chain @ (Chain::And | Chain::Or), operands) => {
                self.logic(*chain, operands, scope)
            }
            Sql::Like(of, pattern, None) => self.like(of, pattern, scope),
            Sql::Between(of, low, high) => {
                let (Some(of), Some(low), Some(high)) =
                    (self.typed(of, scope)?, self.typed(low, scope)?, self.typed(high, scope)?)
                else {
                    return Ok(None);
                };
                let above = comparison(Binary::GreaterOrEqual, &of, &low);
                let below = comparison(Binary::LessOrEqual, &of, &high);
                Ok(above.zip(below).map(|(above, below)| {
                    let expr = binary(above.expr.clone(), Operator::And, below.expr.clone());
                    strict(expr, Ty::Bool, &above, &below)
                }))
            }
            Sql::Case(case) => self.case(case, scope),
            Sql::Call(function, arguments) => {
                let found = FUNCTIONS.iter().find(|(name, _)| *name == function.name);
                match found {
                    Some((_, ty)) => self.call(expr, arguments, *ty, scope),
                    None => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn typed_path(&mut self, expr: &Sql, scope: &Scope) -> Planned<Option<Typed>> {
        match self.resolve(expr, scope)? {
            Some(Resolved::Typed(typed)) => Ok(Some(typed)),
            _ => Ok(None),
        }
    }

    /// Finds the value of a path; `None` if only a part of it has a column.
    fn resolve(&mut self, expr: &Sql, scope: &Scope) -> Planned<Option<Resolved>> {
        let Some((name, path)) = path_of(expr) else { return Ok(None) };
        if scope.is_grouped {
            return Ok(None);
        }
        match scope.variable(name).cloned() {
            Some(variable) => Ok(self.inputs.resolve(name, &variable, &path)),
            None => unsupported(format!("the name {name} is no variable of the query")),
        }
    }

    /// Translates `META(v).id`.
    fn typed_id(&mut self, of: &Sql, name: &str, scope: &Scope) -> Planned<Option<Typed>> {
        let Sql::Call(function, arguments) = of else { return Ok(None) };
        let ("META", "id", [Sql::Ident(variable)]) = (function.name, name, &arguments[..]) else {
            return Ok(None);
        };
        if scope.is_grouped {
            return Ok(None);
        }
        match scope.variable(variable) {
            Some(Variable::Row(input, 0)) => {
                let wanted = Wanted { level: 0, path: Vec::new(), form: Form::Id };
                let name = self.inputs.want(*input, &format!("{variable}#id"), wanted);
                let missing = self.inputs.nullable.contains(input);
                Ok(Some(Typed { missing, ..Typed::known(column(&name), Ty::String) }))
            }
            _ => unsupported("META of something else than a document"),
        }
    }

    /// Translates the first row of an uncorrelated query, or a field of it.
    fn scalar(
        &mut self,
        select: &Select,
        field: Option<&Name>,
        scope: &Scope,
    ) -> Planned<Option<Typed>> {
        let planned = self.select_apart(select, scope)?;
        let leaf = match (&planned.out, field) {
            (super::Out::Leaf(leaf), None) => leaf.clone(),
            (super::Out::Object(fields), Some(name)) => {
                match fields.iter().find(|(known, _)| known == name) {
                    Some((_, super::Out::Leaf(leaf))) => leaf.clone(),
                    _ => return unsupported("a field of a subquery that has no column"),
                }
            }
            _ => return unsupported("the first row of a subquery as an object"),
        };
        let Some(typed) = leaf.typed else {
            return unsupported("a subquery whose values have several types");
        };
        let plan = datafusion::logical_expr::LogicalPlanBuilder::from(planned.plan)
            .project([column(&leaf.column)])?
            // The engine refuses a second row.
            .limit(0, Some(1))?
            .build()?;
        // No row means MISSING.
        let missing = typed.missing || !has_one_row(select);
        let expr = scalar_subquery(Arc::new(plan));
        Ok(Some(Typed { expr, missing, distinct: Some(1.0), ..typed }))
    }

    fn unary(&mut self, operator: Unary, of: &Sql, scope: &Scope) -> Planned<Option<Typed>> {
        if operator == Unary::Exists {
            return Ok(None);
        }
        let Some(typed) = self.typed(of, scope)? else { return Ok(None) };
        let Some(ty) = typed.ty else {
            return Ok(match operator {
                Unary::IsKnown => Some(Typed::known(lit(false), Ty::Bool)),
                _ => None,
            });
        };
        let is_null = || typed.expr.clone().is_null();
        Ok(match operator {
            Unary::IsKnown => Some(Typed::known(typed.expr.is_not_null(), Ty::Bool)),
            Unary::IsNull | Unary::IsMissing if typed.is_mixed() => None,
            Unary::IsMissing if typed.missing => Some(Typed::known(is_null(), Ty::Bool)),
            Unary::IsMissing => Some(Typed::known(lit(false), Ty::Bool)),
            Unary::IsNull if typed.null => Some(Typed::known(is_null(), Ty::Bool)),
            // IS NULL of MISSING is MISSING.
            Unary::IsNull if typed.missing => {
                let expr = when(is_null(), null(Ty::Bool)).otherwise(lit(false))?;
                Some(Typed { missing: true, ..Typed::known(expr, Ty::Bool) })
            }
            Unary::IsNull => Some(Typed::known(lit(false), Ty::Bool)),
            Unary::Not if ty == Ty::Bool => Some(Typed { expr: !typed.expr.clone(), ..typed }),
            Unary::Negate if ty == Ty::Float || ty == Ty::Int && typed.magnitude < 1 << 62 => {
                Some(Typed { expr: Expr::Negative(Box::new(typed.expr.clone())), ..typed })
            }
            Unary::Not | Unary::Negate | Unary::Exists => None,
        })
    }

    /// Translates `STRING_TO_CODEPOINT(text)[0]`, by which rows are joined.
    fn code_point(
        &mut self,
        expr: &Sql,
        of: &Sql,
        index: &Sql,
        scope: &Scope,
    ) -> Planned<Option<Typed>> {
        let Sql::UserCall(path, arguments) = of else { return Ok(None) };
        let is_known = path.join(".").eq_ignore_ascii_case("string_to_codepoint");
        if !is_known || !matches!(index, Sql::Literal(Value::Int(0))) || arguments.len() != 1 {
            return Ok(None);
        }
        let Some(text) = self.typed(&arguments[0], scope)? else { return Ok(None) };
        let expr = self.evaluated(expr, scope, Mode::Typed(Ty::Int))?;
        // An empty text has no first code point: MISSING.
        let typed = Typed::known(expr, Ty::Int);
        Ok(Some(Typed {
            missing: true,
            null: text.null || text.ty != Some(Ty::String),
            magnitude: 0x10_ffff,
            distinct: Some(200.0),
            ..typed
        }))
    }

    fn in_list(&mut self, item: &Sql, list: &Sql, scope: &Scope) -> Planned<Option<Typed>> {
        let Sql::Literal(Value::Array(elements)) = list else { return Ok(None) };
        let Some(item) = self.typed(item, scope)? else { return Ok(None) };
        let elements: Option<Vec<Typed>> = elements.iter().map(literal).collect();
        let is_alike = |element: &Typed| element.ty.is_some() && element.ty == item.ty;
        match elements {
            Some(elements) if !elements.is_empty() && elements.iter().all(is_alike) => {
                let list = elements.iter().map(comparable).collect();
                Ok(Some(Typed {
                    ty: Some(Ty::Bool),
                    expr: in_list(comparable(&item), list, false),
                    ..item
                }))
            }
            _ => Ok(None),
        }
    }

    fn logic(&mut self, chain: Chain, operands: &[Sql], scope: &Scope) -> Planned<Option<Typed>> {
        let mut all: Option<Typed> = None;
        for operand in operands {
            // A part without a type is evaluated separately.
            let next = match self.typed(operand, scope)? {
                Some(typed) if typed.ty == Some(Ty::Bool) => typed,
                _ => {
                    let expr = self.evaluated(operand, scope, Mode::Condition)?;
                    Typed { missing: true, null: true, ..Typed::known(expr, Ty::Bool) }
                }
            };
            let operator = if chain == Chain::And { Operator::And } else { Operator::Or };
            all = Some(match all {
                None => next,
                Some(all) => strict(
                    binary(all.expr.clone(), operator, next.expr.clone()),
                    Ty::Bool,
                    &all,
                    &next,
                ),
            });
        }
        Ok(all)
    }

    fn like(&mut self, of: &Sql, pattern: &Sql, scope: &Scope) -> Planned<Option<Typed>> {
        let Sql::Literal(Value::String(pattern)) = pattern else { return Ok(None) };
        let Some(of) = self.typed(of, scope)? else { return Ok(None) };
        if of.ty != Some(Ty::String) || pattern.contains('\\') {
            return Ok(None);
        }
        let pattern = lit(ScalarValue::Utf8View(Some(pattern.to_string())));
        let like = Like::new(false, Box::new(of.expr.clone()), Box::new(pattern), None, false);
        Ok(Some(Typed { expr: Expr::Like(like), ty: Some(Ty::Bool), ..of }))
    }

    fn case(&mut self, case: &Case, scope: &Scope) -> Planned<Option<Typed>> {
        let mut branches = Vec::new();
        for (condition, result) in &case.whens {
            let condition = match &case.operand {
                None => condition.clone(),
                Some(operand) => Sql::Binary(
                    Binary::Equal,
                    Box::new(operand.clone()),
                    Box::new(condition.clone()),
                ),
            };
            let Some(result) = self.typed(result, scope)? else { return Ok(None) };
            branches.push((Some(self.condition(&condition, scope)?), result));
        }
        let otherwise = match &case.otherwise {
            Some(expr) => match self.typed(expr, scope)? {
                Some(typed) => typed,
                None => return Ok(None),
            },
            None => literal(&Value::Null).expect("null is a literal"),
        };
        branches.push((None, otherwise));
        let types: Vec<Ty> = branches.iter().filter_map(|(_, result)| result.ty).collect();
        let Some(first) = types.first().copied() else { return Ok(None) };
        let is_number = |ty: &Ty| matches!(ty, Ty::Int | Ty::Float);
        let ty = match () {
            () if types.iter().all(|ty| *ty == first) => first,
            () if types.iter().all(is_number)
                && branches.iter().all(|(_, result)| result.is_exact()) =>
            {
                Ty::Float
            }
            () => return Ok(None),
        };
        let value = |result: &Typed| match result.ty {
            None => null(ty),
            Some(Ty::Int) if ty == Ty::Float => as_float(result),
            _ => result.expr.clone(),
        };
        let (_, last) = branches.pop().expect("the last was pushed");
        let mut whole = value(&last);
        for (condition, result) in branches.iter().rev() {
            let condition = condition.clone().expect("only the last has none");
            whole = when(condition, value(result)).otherwise(whole)?;
        }
        let all = || branches.iter().map(|(_, result)| result).chain([&last]);
        Ok(Some(Typed {
            missing: all().any(|result| result.missing),
            null: all().any(|result| result.null),
            magnitude: all()
                .map(|result| if result.ty.is_some() { result.magnitude } else { 0 })
                .max()
                .unwrap_or(u64::MAX),
            ..Typed::known(whole, ty)
        }))
    }

    /// Translates a function with a result of one type, evaluated row by row.
    fn call(
        &mut self,
        expr: &Sql,
        arguments: &[Sql],
        ty: Ty,
        scope: &Scope,
    ) -> Planned<Option<Typed>> {
        let mut missing = false;
        for argument in arguments {
            match self.typed(argument, scope)? {
                // The result of a function that returns an integer unchanged is not a double.
                Some(typed) if ty == Ty::Float && !typed.is_exact() => return Ok(None),
                Some(typed) => missing |= typed.missing,
                None => return Ok(None),
            }
        }
        let expr = self.evaluated(expr, scope, Mode::Typed(ty))?;
        Ok(Some(Typed { missing, null: true, magnitude: 1 << 31, ..Typed::known(expr, ty) }))
    }

    /// Translates a condition: its users treat null like FALSE.
    ///
    /// # Errors
    /// The reason, if the query has no plan.
    pub fn condition(&mut self, expr: &Sql, scope: &Scope) -> Planned<Expr> {
        match self.typed(expr, scope)? {
            Some(Typed { expr, ty: Some(Ty::Bool), .. }) => Ok(expr),
            Some(Typed { ty: None, .. }) => Ok(lit(false)),
            _ => self.evaluated(expr, scope, Mode::Condition),
        }
    }

    /// Translates an expression that is evaluated row by row.
    ///
    /// # Errors
    /// The reason, if it has a subquery or something else that only a complete query can have.
    pub fn evaluated(&mut self, expr: &Sql, scope: &Scope, mode: Mode) -> Planned<Expr> {
        let mut body = expr.clone();
        let mut arguments = Vec::new();
        self.bind(&mut body, scope, &mut arguments)?;
        let names = arguments.iter().enumerate();
        let names = names.map(|(at, (_, argument, _))| (argument_name(at), *argument)).collect();
        let id = self.next_id();
        self.notes.push(expr.to_string());
        let function = Evaluate::new(id, body, names, mode, self.statement_ms);
        let arguments = arguments.into_iter().map(|(_, _, column)| column).collect();
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::new(ScalarUDF::from(function)),
            arguments,
        )))
    }

    /// Replaces all paths that have a column by arguments.
    fn bind(
        &mut self,
        expr: &mut Sql,
        scope: &Scope,
        arguments: &mut Vec<(Sql, Argument, Expr)>,
    ) -> Planned<()> {
        if let Some((argument, column)) = self.argument(expr, scope)? {
            let at = arguments.iter().position(|(known, ..)| known == expr).unwrap_or_else(|| {
                arguments.push((expr.clone(), argument, column));
                arguments.len() - 1
            });
            *expr = Sql::Ident(argument_name(at));
            return Ok(());
        }
        match expr {
            Sql::Ident(name) => unsupported(format!("the whole of {name} in an expression")),
            Sql::Subquery(_) => unsupported("a subquery in an expression"),
            Sql::Aggregate(_) => unsupported("an aggregate in this place"),
            Sql::Itself => unsupported("SELF"),
            Sql::Call(function, _) if !function.is_deterministic() || function.name == "META" => {
                unsupported(function.name)
            }
            Sql::UserCall(path, _) if *path.join(".").to_ascii_lowercase() == *"sleep" => {
                unsupported("SLEEP")
            }
            Sql::Quantified(quantified) => {
                // Its variables hide those of the query.
                let mut inner = scope.clone();
                for binding in &mut quantified.bindings {
                    self.bind(&mut binding.source, scope, arguments)?;
                    hide(&mut inner, &binding.variable);
                }
                self.bind_open(&mut quantified.condition, &inner, arguments)
            }
            Sql::Comprehension(_) => unsupported("a comprehension over columns"),
            _ => {
                let mut outcome = Ok(());
                let walked = each_child(expr, &mut |child| {
                    if outcome.is_ok() {
                        outcome = self.bind(child, scope, arguments);
                    }
                    Ok(())
                });
                walked.map_err(|error| Stop::Unsupported(error.message))?;
                outcome
            }
        }
    }

    /// Like `bind`, within the variables of a quantifier, which stay unchanged.
    fn bind_open(
        &mut self,
        expr: &mut Sql,
        scope: &Scope,
        arguments: &mut Vec<(Sql, Argument, Expr)>,
    ) -> Planned<()> {
        if let Some((name, _)) = path_of(expr)
            && scope.variables.iter().any(|(known, variable)| known == name && is_hidden(variable))
        {
            return Ok(());
        }
        if matches!(expr, Sql::Quantified(_) | Sql::Comprehension(_)) {
            return unsupported("quantifiers in each other");
        }
        if self.argument(expr, scope)?.is_some() || matches!(expr, Sql::Ident(_) | Sql::Subquery(_))
        {
            return self.bind(expr, scope, arguments);
        }
        let mut outcome = Ok(());
        let walked = each_child(expr, &mut |child| {
            if outcome.is_ok() {
                outcome = self.bind_open(child, scope, arguments);
            }
            Ok(())
        });
        walked.map_err(|error| Stop::Unsupported(error.message))?;
        outcome
    }

    /// Returns the column of an expression as an argument, if it has one.
    fn argument(&mut self, expr: &Sql, scope: &Scope) -> Planned<Option<(Argument, Expr)>> {
        let resolved = match scope.bound(expr) {
            Some(resolved) => Some(resolved),
            None => match expr {
                Sql::Field(of, name, false) if path_of(expr).is_none() => {
                    match element_of_subquery(of) {
                        Some(select) => self.scalar(select, Some(name), scope)?,
                        None => self.typed_id(of, name, scope)?,
                    }
                    .map(Resolved::Typed)
                }
                Sql::Element(..) => match element_of_subquery(expr) {
                    Some(select) => self.scalar(select, None, scope)?.map(Resolved::Typed),
                    None => None,
                },
                _ => match path_of(expr) {
                    Some((name, _)) if scope.variable(name).is_some_and(is_hidden) => None,
                    Some(_) => self.resolve(expr, scope)?,
                    None => None,
                },
            },
        };
        Ok(match resolved {
            None => None,
            Some(Resolved::Json(column)) => Some((Argument::Json, column)),
            Some(Resolved::Typed(typed)) if typed.is_mixed() => {
                let (name, path) = match path_of(expr) {
                    Some(found) if !scope.is_grouped => found,
                    _ => return unsupported("a value that can be both MISSING and NULL"),
                };
                match scope.variable(name).cloned() {
                    Some(Variable::Row(input, level)) => {
                        Some((Argument::Json, self.inputs.json(name, input, level, &path)))
                    }
                    _ => return unsupported("a value that can be both MISSING and NULL"),
                }
            }
            Some(Resolved::Typed(typed)) => {
                Some((Argument::Typed { is_missing: typed.missing }, typed.expr))
            }
        })
    }
}

fn argument_name(at: usize) -> Name {
    format!("#{at}").into()
}

fn hide(scope: &mut Scope, name: &Name) {
    scope.variables.insert(0, (name.clone(), Variable::Fields(usize::MAX, Vec::new())));
}

fn is_hidden(variable: &Variable) -> bool {
    matches!(variable, Variable::Fields(usize::MAX, _))
}

/// Returns the query of `(SELECT …)[0]`.
fn element_of_subquery(expr: &Sql) -> Option<&Select> {
    match expr {
        Sql::Element(of, index) => match (&**of, &**index) {
            (Sql::Subquery(select), Sql::Literal(Value::Int(0))) => Some(select),
            _ => None,
        },
        _ => None,
    }
}

/// Returns true if a query has exactly one row, because it aggregates all rows that it reads.
fn has_one_row(select: &Select) -> bool {
    match &select.body {
        Body::Block(block) => {
            block.group.is_none()
                && selects_aggregate(block)
                && select.limit.is_none()
                && select.offset.is_none()
        }
        Body::Nested(inner) => {
            select.limit.is_none() && select.offset.is_none() && has_one_row(inner)
        }
        _ => false,
    }
}

/// Translates arithmetic that cannot overflow; `None` if the evaluator must examine each value.
fn arithmetic(operator: Binary, a: &Typed, b: &Typed) -> Option<Typed> {
    let (x, y) = (a.ty?, b.ty?);
    let is_number = |ty| matches!(ty, Ty::Int | Ty::Float);
    if !is_number(x) || !is_number(y) {
        return None;
    }
    let are_ints = x == Ty::Int && y == Ty::Int;
    // The evaluator truncates doubles before it computes a remainder.
    if operator == Binary::Modulo && !are_ints {
        return None;
    }
    // A quotient of integers is a division of doubles. The least integer divided by -1, as for a remainder, exceeds 64 bits.
    // An integer combined with a double is converted in both engines, with the same rounding.
    let needs_exact = are_ints && operator == Binary::Divide;
    if needs_exact && !(a.is_exact() && b.is_exact())
        || operator == Binary::Modulo && a.magnitude > i64::MAX as u64
    {
        return None;
    }
    let engine = match operator {
        Binary::Add => Operator::Plus,
        Binary::Subtract => Operator::Minus,
        Binary::Multiply => Operator::Multiply,
        Binary::Divide => Operator::Divide,
        Binary::Modulo => Operator::Modulo,
        _ => return None,
    };
    if matches!(operator, Binary::Divide | Binary::Modulo) {
        return Some(division(operator, engine, a, b, are_ints));
    }
    if !are_ints {
        return Some(strict(binary(as_float(a), engine, as_float(b)), Ty::Float, a, b));
    }
    let (m, n) = (u128::from(a.magnitude), u128::from(b.magnitude));
    let magnitude = if operator == Binary::Multiply { m * n } else { m + n };
    let magnitude =
        u64::try_from(magnitude).ok().filter(|magnitude| *magnitude <= i64::MAX as u64)?;
    let typed = strict(binary(a.expr.clone(), engine, b.expr.clone()), Ty::Int, a, b);
    Some(Typed { magnitude, ..typed })
}

/// Translates a division or a remainder. `/` divides doubles; both return NULL for a divisor of 0.
fn division(operator: Binary, engine: Operator, a: &Typed, b: &Typed, are_ints: bool) -> Typed {
    let is_whole = are_ints && operator == Binary::Modulo;
    let (left, right, zero, ty) = match is_whole {
        true => (a.expr.clone(), b.expr.clone(), lit(0_i64), Ty::Int),
        false => (as_float(a), as_float(b), lit(0.0_f64), Ty::Float),
    };
    let divisor = match &right {
        Expr::Literal(value, _) => match value {
            ScalarValue::Int64(Some(number)) if *number != 0 => Some(number.unsigned_abs()),
            ScalarValue::Float64(Some(number)) if *number != 0.0 => Some(u64::MAX),
            _ => None,
        },
        _ => None,
    };
    let quotient = |right: Expr| binary(left.clone(), engine, right);
    let expr = match divisor {
        Some(_) => quotient(right.clone()),
        None => {
            // Without a replacement for 0 the engine fails, whichever branch is taken.
            let safe = when(right.clone().eq(zero), null(ty)).otherwise(right.clone());
            safe.map(quotient).unwrap_or_else(|_| null(ty))
        }
    };
    let typed = strict(expr, ty, a, b);
    let distinct =
        divisor.filter(|_| is_whole && divisor != Some(u64::MAX)).map(|count| count as f64);
    Typed {
        null: typed.null || divisor.is_none(),
        magnitude: if is_whole { a.magnitude.min(b.magnitude) } else { u64::MAX },
        distinct,
        ..typed
    }
}

fn comparison(operator: Binary, a: &Typed, b: &Typed) -> Option<Typed> {
    let engine = match operator {
        Binary::Equal => Operator::Eq,
        Binary::NotEqual => Operator::NotEq,
        Binary::Less => Operator::Lt,
        Binary::LessOrEqual => Operator::LtEq,
        Binary::Greater => Operator::Gt,
        Binary::GreaterOrEqual => Operator::GtEq,
        _ => return None,
    };
    let (Some(x), Some(y)) = (a.ty, b.ty) else {
        return Some(strict(null(Ty::Bool), Ty::Bool, a, b));
    };
    let (left, right) = match (x, y) {
        (Ty::Int, Ty::Float) | (Ty::Float, Ty::Int) if a.is_exact() && b.is_exact() => {
            let of = |typed: &Typed| match typed.ty {
                Some(Ty::Int) => as_float(typed),
                _ => comparable(typed),
            };
            (of(a), of(b))
        }
        (x, y) if x == y => (comparable(a), comparable(b)),
        _ => return None,
    };
    Some(strict(binary(left, engine, right), Ty::Bool, a, b))
}
