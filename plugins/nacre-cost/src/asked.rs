//! Conditions on a key that an index can answer.

use nacre_sql::ast::{Binary, Expr, Unary};
use nacre_sql::{Name, any_in, each_child};

/// A condition that an index can answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Sarg {
    /// Equal to a value.
    Equal(Expr),
    /// Equal to an element of an array.
    In(Expr),
    /// A lower bound; true if the bound belongs to the range.
    Above(Expr, bool),
    /// An upper bound; true if the bound belongs to the range.
    Below(Expr, bool),
    /// Matches a pattern, with an optional escape character.
    Like(Expr, Option<Expr>),
    /// NULL.
    IsNull,
    /// MISSING.
    IsMissing,
    /// Neither NULL nor MISSING.
    IsKnown,
    /// NULL or a value.
    NotMissing,
}

/// Returns true if `expr` mentions one of `names` as a variable.
pub fn mentions(expr: &Expr, names: &[Name]) -> bool {
    any_in(expr, &|inner| match inner {
        Expr::Ident(name) => names.contains(name),
        // A bound expression uses the variables of the expression that it replaces.
        Expr::Bound(bound) => mentions(&bound.of, names),
        _ => false,
    })
}

/// Replaces the variable `from` by the variable `to`.
pub fn rename(expr: &mut Expr, from: &str, to: &Name) {
    if let Expr::Ident(name) = expr {
        if **name == *from {
            *name = to.clone();
        }
        return;
    }
    let done = each_child(expr, &mut |child| {
        rename(child, from, to);
        Ok(())
    });
    debug_assert!(done.is_ok(), "renaming refuses nothing");
}

/// Returns a copy of `expr` in which the variable `to` replaces the variable `from`.
pub fn renamed(expr: &Expr, from: &str, to: &Name) -> Expr {
    let mut expr = expr.clone();
    rename(&mut expr, from, to);
    expr
}

/// Returns the constraint that `condition` puts on `key`; `own` are the variables that have no
/// value yet.
pub fn sarg(key: &Expr, condition: &Expr, own: &[Name]) -> Option<Sarg> {
    let free = |expr: &Expr| !mentions(expr, own);
    match condition {
        Expr::Binary(operator, a, b) if **a == *key && free(b) => {
            of_operator(*operator, (**b).clone())
        }
        Expr::Binary(operator, a, b) if **b == *key && free(a) => {
            of_operator(turned(*operator)?, (**a).clone())
        }
        Expr::Like(of, pattern, escape) if **of == *key && free(pattern) => {
            let escape = escape.as_deref().cloned();
            escape.iter().all(free).then(|| Sarg::Like((**pattern).clone(), escape.clone()))
        }
        Expr::Unary(Unary::IsNull, of) if **of == *key => Some(Sarg::IsNull),
        Expr::Unary(Unary::IsMissing, of) if **of == *key => Some(Sarg::IsMissing),
        Expr::Unary(Unary::IsKnown, of) if **of == *key => Some(Sarg::IsKnown),
        Expr::Unary(Unary::Not, inner) => match &**inner {
            Expr::Unary(Unary::IsNull, of) if **of == *key => Some(Sarg::IsKnown),
            Expr::Unary(Unary::IsMissing, of) if **of == *key => Some(Sarg::NotMissing),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the operator for exchanged operands.
fn turned(operator: Binary) -> Option<Binary> {
    Some(match operator {
        Binary::Equal => Binary::Equal,
        Binary::Less => Binary::Greater,
        Binary::LessOrEqual => Binary::GreaterOrEqual,
        Binary::Greater => Binary::Less,
        Binary::GreaterOrEqual => Binary::LessOrEqual,
        _ => return None,
    })
}

fn of_operator(operator: Binary, value: Expr) -> Option<Sarg> {
    Some(match operator {
        Binary::Equal => Sarg::Equal(value),
        Binary::In => Sarg::In(value),
        Binary::Greater => Sarg::Above(value, false),
        Binary::GreaterOrEqual => Sarg::Above(value, true),
        Binary::Less => Sarg::Below(value, false),
        Binary::LessOrEqual => Sarg::Below(value, true),
        _ => return None,
    })
}
