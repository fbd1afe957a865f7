//! Arrays in FROM, for the evaluator: in analytics a value that is not an array has no elements, while SQL++ on the query service
//! treats it as an array of one.
//!
//! ```text
//! FROM orders o, o.lines l     becomes     FROM orders o, (CASE WHEN ISARRAY(o.lines) THEN o.lines ELSE [] END) l
//! ```

use crate::names::parts_of;
use crate::plan::path_of;
use nacre_sql::ast::{Body, Case, Expr, FromTerm, JoinKind, Path, Select, Source};
use nacre_sql::{Name, Value, each_child, each_in_select, functions};

/// Changes all arrays in FROM of a query whose names are resolved, so that only arrays have elements.
pub fn of_arrays_alone(select: &mut Select) {
    in_select(select, &mut Vec::new());
}

/// Changes a query. `queries` are the visible names of WITH.
fn in_select(select: &mut Select, queries: &mut Vec<Name>) {
    let before = queries.len();
    queries.extend(select.with.iter().map(|with| with.alias.clone()));
    in_body(&mut select.body, queries);
    let walked = each_in_select(select, &mut |expr| {
        in_expr(expr, queries);
        Ok(())
    });
    debug_assert!(walked.is_ok(), "nothing is refused");
    queries.truncate(before);
}

/// Changes the FROM terms of the body itself; expressions are visited separately.
fn in_body(body: &mut Body, queries: &[Name]) {
    match body {
        Body::Union(_, branches) => {
            branches.iter_mut().for_each(|branch| in_body(branch, queries));
        }
        Body::Set(_, _, left, right) => {
            in_body(left, queries);
            in_body(right, queries);
        }
        Body::Nested(select) => {
            let mut inner = queries.to_vec();
            inner.extend(select.with.iter().map(|with| with.alias.clone()));
            in_body(&mut select.body, &inner);
        }
        Body::Block(block) => {
            if let Some(from) = &mut block.from {
                in_term(&mut from.first, queries);
                // UNNEST itself takes only the elements of arrays.
                let others = from.joins.iter_mut().filter(|join| join.kind != JoinKind::Unnest);
                others.for_each(|join| in_term(&mut join.term, queries));
            }
        }
    }
}

fn in_expr(expr: &mut Expr, queries: &mut Vec<Name>) {
    if let Expr::Subquery(select) = expr {
        return in_select(select, queries);
    }
    let walked = each_child(expr, &mut |child| {
        in_expr(child, queries);
        Ok(())
    });
    debug_assert!(walked.is_ok(), "nothing is refused");
}

fn in_term(term: &mut FromTerm, queries: &[Name]) {
    let Some(array) = array_of(&term.source, queries) else { return };
    let is_array = functions::find("ISARRAY").expect("it is a function of the language");
    term.source = Source::Expr(Expr::Case(Box::new(Case {
        operand: None,
        whens: vec![(Expr::Call(is_array, vec![array.clone()]), array)],
        otherwise: Some(Expr::Literal(Value::array(Vec::new()))),
    })));
}

/// Returns the value whose elements are the rows of a term; `None` if the term needs no change.
fn array_of(source: &Source, queries: &[Name]) -> Option<Expr> {
    match source {
        Source::Keyspace(path) => {
            let is_query = matches!(&path.parts[..], [name] if queries.contains(name));
            (parts_of(path).is_none() && !is_query).then(|| expr_of(path))
        }
        // Names that were resolved before have made the path an expression: a fragment is the text of such a query.
        Source::Expr(expr) => {
            let (variable, path) = path_of(expr)?;
            let is_query = path.is_empty() && queries.contains(variable);
            (!is_query).then(|| expr.clone())
        }
    }
}

/// Returns a path that begins with a variable as an expression.
fn expr_of(path: &Path) -> Expr {
    let (variable, fields) = path.parts.split_first().expect("paths have parts");
    fields.iter().fold(Expr::Ident(variable.clone()), |of, name| {
        Expr::Field(Box::new(of), name.clone(), false)
    })
}
