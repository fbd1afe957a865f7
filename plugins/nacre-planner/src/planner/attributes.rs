//! Which extended attributes of documents a statement looks at: `META(alias).xattrs.name`.

use nacre_sql::ast::{Block, Body, Expr, OrderTerm, Select};
use nacre_sql::{Name, any_in, each_in_select};
use std::cell::RefCell;

/// Adds the names of those attributes of `alias` that an expression looks at.
pub fn attributes_in(expr: &Expr, alias: &Name, names: &mut Vec<Name>) {
    let found = RefCell::new(std::mem::take(names));
    any_in(expr, &|inner| {
        if let Some(name) = attribute(inner, alias) {
            let mut found = found.borrow_mut();
            if !found.contains(name) {
                found.push(name.clone());
            }
        }
        false
    });
    *names = found.into_inner();
}

fn attribute<'e>(expr: &'e Expr, alias: &Name) -> Option<&'e Name> {
    let Expr::Field(of, name, _) = expr else { return None };
    let Expr::Field(meta, field, _) = &**of else { return None };
    let Expr::Call(function, args) = &**meta else { return None };
    let is_of_alias = function.name == "META" && args[..] == [Expr::Ident(alias.clone())];
    (is_of_alias && **field == *"xattrs").then_some(name)
}

/// The same in a whole block.
pub(super) fn attributes_of(block: &Block, order: &[OrderTerm], alias: &Name) -> Vec<Name> {
    let mut names = Vec::new();
    let mut whole = Select {
        with: Vec::new(),
        body: Body::Block(Box::new(block.clone())),
        order: order.to_vec(),
        limit: None,
        offset: None,
    };
    let done = each_in_select(&mut whole, &mut |expr| {
        attributes_in(expr, alias, &mut names);
        Ok(())
    });
    debug_assert!(done.is_ok(), "looking refuses nothing");
    names
}
