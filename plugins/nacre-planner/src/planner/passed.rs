//! Documents that are passed on: `SELECT RAW d`, `d.*`, `d` or `*` gives each as it is stored, and need not read it.

use super::{conjuncts, mentions};
use crate::plan::{Access, Passing, Sarg, Scan, ScanSource};
use nacre_cost::{renamed, sarg};
use nacre_sql::ast::{Block, Expr, Projection, Term};
use nacre_sql::index::SELF;
use nacre_sql::{Error, Name, Result, each_child};

/// What becomes of the documents of a scan in a block without joins, groups and DISTINCT; `own` are its variables.
pub(super) fn passing(block: &Block, scan: &Scan, own: &[Name]) -> Passing {
    let alias = &scan.alias;
    let is_document = |expr: &Expr| matches!(expr, Expr::Ident(name) if name == alias);
    let is_whole = match &block.projection {
        Projection::Raw(expr, _) => is_document(expr),
        Projection::Terms(terms, excluded) => {
            excluded.is_empty()
                && match &terms[..] {
                    [Term::Star] => true,
                    [Term::StarOf(expr) | Term::Expr(expr, _)] => is_document(expr),
                    _ => false,
                }
        }
    };
    let is_beside = |mut condition: Expr| {
        if is_beside(&mut condition, alias).is_ok() { Passing::Some } else { Passing::No }
    };
    match &block.condition {
        _ if !is_whole || !block.lets.is_empty() => Passing::No,
        None => Passing::All,
        Some(condition) if is_asked(condition, scan, own) => Passing::All,
        Some(condition) => is_beside(condition.clone()),
    }
}

/// Whether a condition says no more than what is asked of a primary index, whose entries are true for ever: a document keeps its id.
fn is_asked(condition: &Expr, scan: &Scan, own: &[Name]) -> bool {
    let ScanSource::Keyspace { access: Access::Index(index), .. } = &scan.source else {
        return false;
    };
    let [key] = &index.definition.keys[..] else { return false };
    let id = renamed(&key.expr, SELF, &scan.alias);
    index.definition.is_primary()
        && conjuncts(Some(condition)).iter().all(|condition| {
            let asked = sarg(&id, condition, own);
            let is_exact =
                matches!(asked, Some(Sarg::Equal(_) | Sarg::Above(..) | Sarg::Below(..)));
            is_exact
                && asked
                    .is_some_and(|asked| index.parts.iter().flatten().any(|known| *known == asked))
        })
}

/// Refuses an expression that looks into a document; what is known beside it may be looked at.
fn is_beside(expr: &mut Expr, alias: &Name) -> Result<()> {
    let looks = || Err(Error::execution("it looks into a document"));
    match expr {
        Expr::Call(function, args) if function.name == "META" => match &args[..] {
            [Expr::Ident(_)] => Ok(()),
            _ => looks(),
        },
        // What has variables of its own may mean something else by the name, and is not looked into.
        Expr::Ident(_) | Expr::Bound(_) | Expr::Subquery(_)
            if mentions(expr, std::slice::from_ref(alias)) =>
        {
            looks()
        }
        Expr::Subquery(_) => Ok(()),
        _ => each_child(expr, &mut |child| is_beside(child, alias)),
    }
}
