//! The least and the greatest value by an index that has them at its ends: one entry is read, instead of all.

use super::group::plan_groups;
use super::{paged, plan_from};
use crate::plan::{Node, Page, Project, ScanSource};
use crate::plan_context::PlanContext;
use nacre_sql::ast::{Block, Chain, Expr, OrderTerm, Projection, Term, Unary};
use nacre_sql::{Name, Result, Value};
use std::rc::Rc;

/// `SELECT MIN(x)` or `MAX(x)` of a term, with an index that has all that is read, in the order of `x`.
///
/// NULL and MISSING are no values here, so the first entry that is one is the least.
pub(super) fn plan_extreme(
    block: &Block,
    order: &[OrderTerm],
    page: &Page,
    context: &dyn PlanContext,
) -> Result<Option<Rc<Node>>> {
    let Some(term) = ends(block).filter(|_| order.is_empty()) else { return Ok(None) };
    let mut block = block.clone();
    let known = Expr::Unary(Unary::IsKnown, Box::new(term.expr.clone()));
    block.condition = Some(match block.condition.take() {
        Some(condition) => Expr::Chain(Chain::And, vec![condition, known]),
        None => known,
    });
    let first = Page { limit: Some(Expr::Literal(Value::Int(1))), offset: None };
    let (mut wanted, mut sorted) = (vec![term], false);
    let mut root = plan_from(&mut block, &mut wanted, &first, &mut sorted, context)?;
    let covers = match &*root {
        Node::Scan(scan) => {
            matches!(scan.source, ScanSource::Keyspace { covering: true, .. })
        }
        _ => false,
    };
    if !sorted || !covers {
        return Ok(None);
    }
    if let Some(condition) = &block.condition {
        root = Rc::new(Node::Filter(root, condition.clone()));
    }
    root = Rc::new(Node::Page(root, first));
    let mut star: Vec<Name> = Vec::new();
    root = plan_groups(root, &mut block, &mut [], &mut star)?;
    root = Rc::new(Node::Project(root, Project { projection: block.projection, star }));
    Ok(Some(paged(root, page.clone())))
}

/// The order in which the only value that a block selects comes first.
fn ends(block: &Block) -> Option<OrderTerm> {
    let from = block.from.as_ref()?;
    let plain =
        from.joins.is_empty() && block.lets.is_empty() && block.group.is_none() && !block.distinct;
    let selected = match &block.projection {
        Projection::Raw(expr, _) => expr,
        Projection::Terms(terms, excluded) => match &terms[..] {
            [Term::Expr(expr, _)] if excluded.is_empty() => expr,
            _ => return None,
        },
    };
    let Expr::Aggregate(aggregate) = selected else { return None };
    let descending = match &*aggregate.name {
        "min" => false,
        "max" => true,
        _ => return None,
    };
    let [of] = &aggregate.args[..] else { return None };
    let is_plain = plain && aggregate.filter.is_none() && aggregate.over.is_none();
    is_plain.then(|| OrderTerm { expr: of.clone(), descending, nulls_last: None })
}
