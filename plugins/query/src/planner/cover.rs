//! Covering: when all that a block reads of a term is in the index, no document is fetched.

use super::access::renamed;
use crate::plan::{Access, IndexScan, Scan, ScanSource};
use nacre_sql::ast::{Block, Body, Bound, Expr, OrderTerm, Projection, Select, Term};
use nacre_sql::index::SELF;
use nacre_sql::{Error, Name, Result, any_in, each_child, each_in_select};

/// The scan as a covering one, if it can be, with the expressions of the block and its order put right.
pub(crate) fn cover(scan: &Scan, block: &mut Block, order: &mut Vec<OrderTerm>) -> Option<Scan> {
    let ScanSource::Keyspace { keyspace, access: Access::Index(index), .. } = &scan.source else {
        return None;
    };
    let starred = match &block.projection {
        Projection::Terms(terms, _) => terms.contains(&Term::Star),
        Projection::Raw(..) => false,
    };
    let collected = block.group.as_ref().is_some_and(|group| group.name.is_some());
    if starred || collected {
        return None;
    }
    let covers = names(index, &scan.alias);
    let keys: Vec<(Expr, Name)> = index
        .definition
        .keys
        .iter()
        .zip(&covers)
        .filter(|(key, _)| key.array.is_none())
        .map(|(key, name)| (renamed(&key.expr, SELF, &scan.alias), name.clone()))
        .collect();
    let mut whole = Select {
        with: Vec::new(),
        body: Body::Block(Box::new(block.clone())),
        order: order.clone(),
        limit: None,
        offset: None,
    };
    each_in_select(&mut whole, &mut |expr| replace(expr, &scan.alias, &keys)).ok()?;
    let Body::Block(covered) = whole.body else { return None };
    *block = *covered;
    *order = whole.order;
    let access = Access::Index(IndexScan { covers, ..index.clone() });
    let source = ScanSource::Keyspace { keyspace: keyspace.clone(), access, covering: true };
    Some(Scan { source, ..scan.clone() })
}

/// Names that no user can write, one for each part of the keys.
fn names(index: &IndexScan, alias: &str) -> Vec<Name> {
    (0..index.definition.keys.len()).map(|at| format!("#cover.{alias}.{at}").into()).collect()
}

/// Puts parts of the index in the place of what they hold.
///
/// The error says that there is more than the index holds; nobody sees it.
fn replace(expr: &mut Expr, alias: &Name, keys: &[(Expr, Name)]) -> Result<()> {
    if let Some((of, name)) = keys.iter().find(|(key, _)| key == expr) {
        *expr = Expr::Bound(Box::new(Bound { name: name.clone(), of: of.clone(), cover: true }));
        return Ok(());
    }
    let more = || Err(Error::execution("not covered"));
    let is_alias = |expr: &Expr| matches!(expr, Expr::Ident(name) if name == alias);
    match expr {
        Expr::Ident(name) if name == alias => more(),
        Expr::Field(of, name, _)
            if **name == *"id"
                && matches!(&**of, Expr::Call(f, args) if f.name == "META" && is_alias(&args[0])) =>
        {
            Ok(())
        }
        Expr::Subquery(_) if any_in(expr, &is_alias) => more(),
        Expr::Subquery(_) => Ok(()),
        _ => each_child(expr, &mut |child| replace(child, alias, keys)),
    }
}
