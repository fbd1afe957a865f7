//! The rights that a statement needs. They are checked once before it runs, so a statement is refused whether or not it would
//! find anything to read or change.
//!
//! | statement | on its target | on what it selects from |
//! | --- | --- | --- |
//! | SELECT, INFER | | select |
//! | INSERT | insert | select |
//! | UPSERT | insert, update | select |
//! | UPDATE | update | select |
//! | DELETE | delete | select |
//! | MERGE | those of its actions | select |
//!
//! RETURNING also needs select on the target; subqueries and the source of MERGE are selected from. Finding the documents that
//! are changed needs no separate right. EXPLAIN and ADVISE need what their statement needs. Source: Couchbase's authorization of
//! SQL++.

use crate::run::Run;
use nacre_datastore::{Keyspace, Rights};
use nacre_sql::ast::{
    Body, Changes, Delete, Expr, FromTerm, Insert, InsertSource, Merge, On, Path, Projection, Row,
    Select, Set, Source, Statement, Term, Update,
};
use nacre_sql::{Result, each_child, each_in_select};
use std::collections::BTreeMap;

/// Keyspaces named in a statement, with the rights needed there. A keyspace may occur several times.
pub(crate) type Needs = Vec<(Path, Rights)>;

/// The rights that a request has been found to have.
pub(crate) type Asked = BTreeMap<Keyspace, Rights>;

/// Returns the rights that a statement needs. Its names must be resolved. The walk takes a mutable tree but leaves it unchanged.
pub(crate) fn of_statement(statement: &mut Statement) -> Needs {
    let mut needs = Needs::new();
    add_statement(statement, &mut needs);
    needs
}

/// Returns the rights that the queries in an expression need.
pub(crate) fn of_expr(expr: &mut Expr) -> Needs {
    let mut needs = Needs::new();
    add_expr(expr, &mut needs);
    needs
}

/// Checks rights that the request has not been found to have yet. Missing keyspaces are left to the code that reads them.
///
/// # Errors
/// Code 13014 if the user lacks a right.
pub(crate) fn ask(needs: &[(Path, Rights)], run: &Run<'_>) -> Result<()> {
    let mut wanted = Asked::new();
    for (path, rights) in needs {
        if let Ok(keyspace) = run.keyspace(path) {
            let known: &mut Rights = wanted.entry(keyspace).or_default();
            *known = known.and(*rights);
        }
    }
    for (keyspace, rights) in wanted {
        let known = run.state.asked.borrow().get(&keyspace).copied().unwrap_or_default();
        if known.and(rights) != known {
            run.store.authorize(&keyspace, rights)?;
            run.state.asked.borrow_mut().insert(keyspace, known.and(rights));
        }
    }
    Ok(())
}

fn add_statement(statement: &mut Statement, needs: &mut Needs) {
    match statement {
        Statement::Select(select) => add_select(select, needs),
        Statement::Insert(insert) => add_insert(insert, needs),
        Statement::Update(update) => add_update(update, needs),
        Statement::Delete(delete) => add_delete(delete, needs),
        Statement::Merge(merge) => add_merge(merge, needs),
        Statement::Explain(inner) | Statement::Advise(inner) => add_statement(inner, needs),
        Statement::Infer(infer) => add_source(&mut infer.source, needs),
        Statement::ExecuteFunction { args, .. } => add_all(args, needs),
        _ => {}
    }
}

fn add(path: &Path, rights: Rights, needs: &mut Needs) {
    // Catalogs show users only what they may see.
    if !path.is_system() {
        needs.push((path.clone(), rights));
    }
}

fn add_expr(expr: &mut Expr, needs: &mut Needs) {
    match expr {
        Expr::Subquery(select) => add_select(select, needs),
        other => forgive(each_child(other, &mut |child| {
            add_expr(child, needs);
            Ok(())
        })),
    }
}

/// Discards the result of a walk that cannot fail.
fn forgive(walked: Result<()>) {
    debug_assert!(walked.is_ok(), "collecting refuses nothing");
}

fn add_all<'a>(exprs: impl IntoIterator<Item = &'a mut Expr>, needs: &mut Needs) {
    exprs.into_iter().for_each(|expr| add_expr(expr, needs));
}

fn add_select(select: &mut Select, needs: &mut Needs) {
    add_terms(&select.body, needs);
    forgive(each_in_select(select, &mut |expr| {
        add_expr(expr, needs);
        Ok(())
    }));
}

/// Adds the keyspaces of FROM. The expressions of all clauses are walked separately.
fn add_terms(body: &Body, needs: &mut Needs) {
    match body {
        Body::Union(_, branches) => branches.iter().for_each(|branch| add_terms(branch, needs)),
        Body::Set(_, _, left, right) => {
            add_terms(left, needs);
            add_terms(right, needs);
        }
        Body::Nested(select) => add_terms(&select.body, needs),
        Body::Block(block) => {
            let from = block.from.iter();
            let terms = from.flat_map(|from| {
                std::iter::once(&from.first).chain(from.joins.iter().map(|join| &join.term))
            });
            for term in terms {
                if let Source::Keyspace(path) = &term.source {
                    add(path, Rights::SELECT, needs);
                }
            }
        }
    }
}

fn add_source(source: &mut Source, needs: &mut Needs) {
    match source {
        Source::Keyspace(path) => add(path, Rights::SELECT, needs),
        Source::Expr(expr) => add_expr(expr, needs),
    }
}

/// Adds the target of a statement with the rights needed there.
fn add_target(
    target: &mut FromTerm,
    rights: Rights,
    returning: &mut Option<Projection>,
    needs: &mut Needs,
) {
    match &mut target.source {
        Source::Keyspace(path) => {
            add(path, rights, needs);
            add_returning(path, returning, needs);
        }
        Source::Expr(expr) => add_expr(expr, needs),
    }
    add_all(&mut target.hints.keys, needs);
}

fn add_returning(target: &Path, returning: &mut Option<Projection>, needs: &mut Needs) {
    let Some(projection) = returning else { return };
    add(target, Rights::SELECT, needs);
    match projection {
        Projection::Raw(expr, _) => add_expr(expr, needs),
        Projection::Terms(terms, without) => {
            for term in terms {
                match term {
                    Term::Star => {}
                    Term::StarOf(expr) | Term::Expr(expr, _) => add_expr(expr, needs),
                }
            }
            add_all(without, needs);
        }
    }
}

fn add_insert(insert: &mut Insert, needs: &mut Needs) {
    let rights = if insert.upsert { Rights::INSERT.and(Rights::UPDATE) } else { Rights::INSERT };
    add(&insert.keyspace, rights, needs);
    add_returning(&insert.keyspace, &mut insert.returning, needs);
    match &mut insert.source {
        InsertSource::Values(rows) => rows.iter_mut().for_each(|row| add_row(row, needs)),
        InsertSource::Select(row, select) => {
            add_row(row, needs);
            add_select(select, needs);
        }
    }
}

fn add_row(Row { key, value, options }: &mut Row, needs: &mut Needs) {
    add_all([key, value].into_iter().chain(options), needs);
}

fn add_changes(changes: &mut Changes, needs: &mut Needs) {
    for Set { path, value, each, condition } in changes.set.iter_mut().chain(&mut changes.unset) {
        let sources = each.iter_mut().flatten().map(|binding| &mut binding.source);
        add_all([path, value].into_iter().chain(sources).chain(condition), needs);
    }
}

fn add_update(update: &mut Update, needs: &mut Needs) {
    add_target(&mut update.target, Rights::UPDATE, &mut update.returning, needs);
    add_changes(&mut update.changes, needs);
    add_all(update.condition.iter_mut().chain(&mut update.limit).chain(&mut update.offset), needs);
}

fn add_delete(delete: &mut Delete, needs: &mut Needs) {
    add_target(&mut delete.target, Rights::DELETE, &mut delete.returning, needs);
    add_all(delete.condition.iter_mut().chain(&mut delete.limit).chain(&mut delete.offset), needs);
}

fn add_merge(merge: &mut Merge, needs: &mut Needs) {
    let rights = Rights {
        select: false,
        insert: merge.insert.is_some(),
        update: merge.update.is_some(),
        delete: merge.delete.is_some(),
    };
    add_target(&mut merge.target, rights, &mut merge.returning, needs);
    add_source(&mut merge.source.source, needs);
    add_all(&mut merge.source.hints.keys, needs);
    match &mut merge.on {
        On::Nothing => {}
        On::Condition(expr) | On::Keys(expr) | On::KeyFor(expr, _) => add_expr(expr, needs),
    }
    if let Some((changes, condition)) = &mut merge.update {
        add_changes(changes, needs);
        add_all(condition, needs);
    }
    add_all(merge.delete.iter_mut().flatten(), needs);
    if let Some((row, condition)) = &mut merge.insert {
        add_row(row, needs);
        add_all(condition, needs);
    }
    add_all(&mut merge.limit, needs);
}
