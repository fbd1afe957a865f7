//! Resolves names in statements other than queries.

use nacre_sql::ast::{
    Changes, Delete, FunctionBody, Insert, InsertSource, Merge, On, Projection, Set, Source,
    Statement, Update,
};
use nacre_sql::{
    Name, RESULT, Result, Scope, resolve_expr, resolve_projection, resolve_select, resolve_source,
};

/// Resolves the names of a statement.
///
/// # Errors
/// As for [`resolve_expr`].
pub(crate) fn resolve(statement: &mut Statement) -> Result<()> {
    let nothing = Scope::new();
    match statement {
        Statement::Select(select) => resolve_select(select, &nothing),
        Statement::Insert(insert) => resolve_insert(insert),
        Statement::Update(update) => resolve_update(update),
        Statement::Delete(delete) => resolve_delete(delete),
        Statement::Merge(merge) => resolve_merge(merge),
        Statement::Explain(inner) | Statement::Advise(inner) => resolve(inner),
        Statement::BuildIndex { names, .. } => {
            names.iter_mut().try_for_each(|name| resolve_expr(name, &nothing))
        }
        Statement::Infer(infer) => match &mut infer.source {
            Source::Expr(expr) => resolve_expr(expr, &nothing),
            Source::Keyspace(_) => Ok(()),
        },
        Statement::ExecuteFunction { args, .. } => {
            args.iter_mut().try_for_each(|arg| resolve_expr(arg, &nothing))
        }
        Statement::Execute { using, .. } => {
            using.iter_mut().try_for_each(|using| resolve_expr(using, &nothing))
        }
        Statement::CreateFunction(function) => {
            let mut scope = Scope::new();
            match &function.parameters {
                Some(names) => names.iter().for_each(|name| scope.add(name)),
                None => scope.add(&"args".into()),
            }
            match &mut function.body {
                FunctionBody::Expr(body, _) => resolve_expr(body, &scope),
                FunctionBody::Script(_)
                | FunctionBody::External(..)
                | FunctionBody::Deployed(..) => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn resolve_returning(returning: &mut Option<Projection>, scope: &Scope) -> Result<()> {
    returning.iter_mut().try_for_each(|projection| resolve_projection(projection, scope))
}

fn resolve_insert(insert: &mut Insert) -> Result<()> {
    let nothing = Scope::new();
    let (rows, scope) = match &mut insert.source {
        InsertSource::Values(rows) => (&mut rows[..], nothing),
        InsertSource::Select(row, select) => {
            resolve_select(select, &nothing)?;
            (std::slice::from_mut(row), Scope::of_term(&RESULT.into()))
        }
    };
    for row in rows {
        resolve_expr(&mut row.key, &scope)?;
        resolve_expr(&mut row.value, &scope)?;
        row.options.iter_mut().try_for_each(|options| resolve_expr(options, &scope))?;
    }
    resolve_returning(&mut insert.returning, &Scope::of_term(&insert.alias))
}

fn resolve_update(update: &mut Update) -> Result<()> {
    resolve_source(&mut update.target, &Scope::new())?;
    let scope = Scope::of_term(&update.target.alias);
    resolve_changes(&mut update.changes, &scope)?;
    update.condition.iter_mut().try_for_each(|condition| resolve_expr(condition, &scope))?;
    let outside = Scope::new();
    update
        .limit
        .iter_mut()
        .chain(&mut update.offset)
        .try_for_each(|expr| resolve_expr(expr, &outside))?;
    resolve_returning(&mut update.returning, &scope)
}

fn resolve_changes(changes: &mut Changes, scope: &Scope) -> Result<()> {
    changes.set.iter_mut().chain(&mut changes.unset).try_for_each(|set| resolve_set(set, scope))
}

fn resolve_set(set: &mut Set, scope: &Scope) -> Result<()> {
    let mut scope = scope.clone();
    for bindings in &mut set.each {
        let before = scope.clone();
        for binding in bindings {
            resolve_expr(&mut binding.source, &before)?;
            scope.add(&binding.variable);
            binding.position.iter().for_each(|name: &Name| scope.add(name));
        }
    }
    resolve_expr(&mut set.path, &scope)?;
    resolve_expr(&mut set.value, &scope)?;
    set.condition.iter_mut().try_for_each(|condition| resolve_expr(condition, &scope))
}

fn resolve_delete(delete: &mut Delete) -> Result<()> {
    resolve_source(&mut delete.target, &Scope::new())?;
    let scope = Scope::of_term(&delete.target.alias);
    delete.condition.iter_mut().try_for_each(|condition| resolve_expr(condition, &scope))?;
    let outside = Scope::new();
    delete
        .limit
        .iter_mut()
        .chain(&mut delete.offset)
        .try_for_each(|expr| resolve_expr(expr, &outside))?;
    resolve_returning(&mut delete.returning, &scope)
}

fn resolve_merge(merge: &mut Merge) -> Result<()> {
    resolve_source(&mut merge.source, &Scope::new())?;
    let source = Scope::of_term(&merge.source.alias);
    let mut both = source.clone();
    both.add_alias(&merge.target.alias);
    match &mut merge.on {
        On::Keys(key) => resolve_expr(key, &source)?,
        On::Condition(condition) => resolve_expr(condition, &both)?,
        On::Nothing | On::KeyFor(..) => {}
    }
    if let Some((changes, condition)) = &mut merge.update {
        resolve_changes(changes, &both)?;
        condition.iter_mut().try_for_each(|condition| resolve_expr(condition, &both))?;
    }
    if let Some(condition) = &mut merge.delete {
        condition.iter_mut().try_for_each(|condition| resolve_expr(condition, &both))?;
    }
    if let Some((row, condition)) = &mut merge.insert {
        // There is no target document here.
        resolve_expr(&mut row.key, &source)?;
        resolve_expr(&mut row.value, &source)?;
        row.options.iter_mut().try_for_each(|options| resolve_expr(options, &source))?;
        condition.iter_mut().try_for_each(|condition| resolve_expr(condition, &source))?;
    }
    merge.limit.iter_mut().try_for_each(|limit| resolve_expr(limit, &Scope::new()))?;
    resolve_returning(&mut merge.returning, &Scope::of_term(&merge.target.alias))
}
