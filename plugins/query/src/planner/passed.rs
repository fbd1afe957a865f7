//! Documents that are passed on: `SELECT RAW d`, `d.*`, `d` or `*` gives each as it is stored, and need not read it.

use super::mentions;
use nacre_sql::ast::{Block, Expr, Projection, Term};
use nacre_sql::{Error, Name, Result, each_child};

/// Whether a block without joins, groups, LET and DISTINCT only passes on what `alias` is bound to.
pub(super) fn passes_on(block: &Block, alias: &Name) -> bool {
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
    is_whole
        && block
            .condition
            .clone()
            .is_none_or(|mut condition| is_beside(&mut condition, alias).is_ok())
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
