//! INSERT, UPSERT, UPDATE, DELETE and MERGE: find rows, write them in batches, and return them.
//!
//! All rows are found before the first is written, so a statement never sees its own changes.

mod change;

use crate::exec::{self, projected};
use crate::run::Run;
use crate::transaction;
use nacre_datastore::{Action, Keyspace, Mutation, Refusal};
use nacre_planner::{Node, Page, Project, attributes_in, conjuncts, plan_merge, plan_term};
use nacre_sql::ast::{
    Delete, Expr, FromTerm, Insert, InsertSource, Merge, On, Projection, Row, Source, Update,
};
use nacre_sql::{Context, DEPTH_MAX, Env, Error, Meta, Name, Result, Value, eval};
use std::rc::Rc;
use std::sync::Arc;

/// Number of documents written at a time.
const BATCH: usize = 256;

/// A mutation with the row that RETURNING sees.
struct Write {
    mutation: Mutation,
    env: Env,
    value: Value,
}

/// Writes documents to a keyspace and collects the results.
struct Writer<'a> {
    keyspace: Keyspace,
    alias: Name,
    verb: &'static str,
    returning: Option<Project>,
    run: &'a Run<'a>,
    context: &'a Context<'a>,
    waiting: Vec<Write>,
    rows: Vec<Value>,
}

impl<'a> Writer<'a> {
    fn new(
        keyspace: Keyspace,
        alias: &Name,
        verb: &'static str,
        returning: Option<&Projection>,
        run: &'a Run<'a>,
        context: &'a Context<'a>,
    ) -> Writer<'a> {
        let returning = returning
            .map(|projection| Project { projection: named(projection), star: vec![alias.clone()] });
        let (waiting, rows) = (Vec::new(), Vec::new());
        let alias = alias.clone();
        Writer { keyspace, alias, verb, returning, run, context, waiting, rows }
    }

    fn push(&mut self, write: Write) -> Result<()> {
        if write.value.nests_deeper_than(DEPTH_MAX) {
            return Err(Error::execution(format!(
                "document {} nests too deeply",
                write.mutation.id
            )));
        }
        self.run.charge(write.mutation.body.len() + 128)?;
        self.waiting.push(write);
        if self.waiting.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let writes = std::mem::take(&mut self.waiting);
        if writes.is_empty() {
            return Ok(());
        }
        let mutations: Vec<Mutation> = writes.iter().map(|write| write.mutation.clone()).collect();
        let results = self.run.store.mutate(&self.keyspace, &mutations)?;
        let mut refused = None;
        for (write, result) in writes.into_iter().zip(results) {
            match result {
                Ok(cas) => self.written(write, cas)?,
                // The other mutations of a batch are still applied.
                Err(refusal) => {
                    refused = refused.or(Some(self.refusal(&write.mutation.id, refusal)))
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    fn written(&mut self, write: Write, cas: u64) -> Result<()> {
        let count = &self.run.state.mutation_count;
        count.set(count.get() + 1);
        let Some(returning) = &self.returning else { return Ok(()) };
        let meta = Meta {
            id: write.mutation.id,
            keyspace: self.keyspace.to_string().into(),
            cas,
            expiration: write.mutation.expiration.unwrap_or(0),
            flags: 0x0200_0000,
            json: true,
            ..Meta::default()
        };
        let env = write.env.with_document(&self.alias, write.value, Some(Arc::new(meta)));
        let row = projected(returning, &env, self.context)?;
        self.run.charge(row.size_bytes())?;
        self.rows.push(row);
        Ok(())
    }

    fn refusal(&self, id: &str, refusal: Refusal) -> Error {
        if self.run.state.in_transaction.get() {
            return transaction::refused(id, refusal);
        }
        let (code, cause) = match refusal {
            Refusal::Exists => (17012, format!("Duplicate Key: {id}")),
            Refusal::NotFound => (17014, format!("Key not found: {id}")),
            Refusal::CasMismatch => (12033, format!("CAS mismatch: {id}")),
            Refusal::Other(error) => return error,
        };
        let message = format!(
            "DML Error, possible causes include concurrent modification. Failed to perform {} - cause: {cause}",
            self.verb
        );
        let reason = Value::object([
            ("caller", Value::from("dml")),
            ("code", Value::Int(code)),
            ("key", id.into()),
            ("message", cause.into()),
        ]);
        Error::new(12009, message).with_reason(reason)
    }

    fn finish(mut self) -> Result<Vec<Value>> {
        self.flush()?;
        Ok(self.rows)
    }

    fn expiration(&self, options: &Value) -> Option<u32> {
        match options.field("expiration").as_i64() {
            Some(seconds) => Some(u32::try_from(seconds).unwrap_or(0)),
            None if self.run.settings.preserve_expiry => None,
            None => Some(0),
        }
    }

    /// Writes a row of INSERT, UPSERT or MERGE.
    fn insert(
        &mut self,
        action: Action,
        id: Value,
        value: Value,
        options: &Value,
        env: &Env,
    ) -> Result<()> {
        let Some(id) = id.as_str() else {
            return Err(Error::new(5073, format!("Cannot {} non-string key {id}", self.verb)));
        };
        if value.is_missing() {
            return Err(Error::new(5072, format!("No value is given for key {id}")));
        }
        let mutation = Mutation {
            action,
            id: id.into(),
            body: value.to_sorted_json().into_bytes(),
            expiration: self.expiration(options),
        };
        self.push(Write { mutation, env: env.clone(), value })
    }
}

/// Names the terms of RETURNING like those of SELECT.
fn named(projection: &Projection) -> Projection {
    let mut projection = projection.clone();
    nacre_planner::name_terms(&mut projection);
    projection
}

fn option_value(options: Option<&Expr>, env: &Env, context: &Context<'_>) -> Result<Value> {
    options.map_or(Ok(Value::Missing), |options| eval(options, env, context))
}

pub(crate) fn insert(insert: &Insert, run: &Run<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
    let keyspace = run.keyspace(&insert.keyspace)?;
    let (verb, action) =
        if insert.upsert { ("UPSERT", Action::Upsert) } else { ("INSERT", Action::Insert) };
    let mut writer =
        Writer::new(keyspace, &insert.alias, verb, insert.returning.as_ref(), run, context);
    let env = Env::new();
    match &insert.source {
        InsertSource::Values(rows) => {
            for Row { key, value, options } in rows {
                let id = eval(key, &env, context)?;
                let value = eval(value, &env, context)?;
                let options = option_value(options.as_ref(), &env, context)?;
                writer.insert(action.clone(), id, value, &options, &env)?;
            }
        }
        InsertSource::Select(row, select) => {
            let rows = nacre_sql::Host::subquery(run, select, &env, usize::MAX, context)?;
            for value in rows {
                // The fields of the selected row are the variables of key and value.
                let env = env.with(&nacre_sql::RESULT.into(), value.clone());
                let id = eval(&row.key, &env, context)?;
                let document = match &row.value {
                    Expr::Literal(Value::Missing) => value,
                    expr => eval(expr, &env, context)?,
                };
                let options = option_value(row.options.as_ref(), &env, context)?;
                writer.insert(action.clone(), id, document, &options, &Env::new())?;
            }
        }
    }
    writer.finish()
}

/// Plans how to find the rows of a target that a statement changes.
pub(crate) fn plan_targets(
    target: &FromTerm,
    condition: Option<&Expr>,
    page: Page,
    run: &Run<'_>,
) -> Result<Rc<Node>> {
    plan_targets_with(target, condition, page, Vec::new(), run)
}

/// As [`plan_targets`], with extended attributes that are also needed outside of the condition.
fn plan_targets_with(
    target: &FromTerm,
    condition: Option<&Expr>,
    page: Page,
    mut attributes: Vec<Name>,
    run: &Run<'_>,
) -> Result<Rc<Node>> {
    let known = conjuncts(condition);
    let mut scan = plan_term(target, &known, std::slice::from_ref(&target.alias), run)?;
    condition.iter().for_each(|expr| attributes_in(expr, &target.alias, &mut attributes));
    scan.attributes = attributes;
    let mut root = Rc::new(Node::Scan(scan));
    if let Some(condition) = condition {
        root = Rc::new(Node::Filter(root, condition.clone()));
    }
    if page.limit.is_some() || page.offset.is_some() {
        root = Rc::new(Node::Page(root, page));
    }
    Ok(root)
}

/// Returns the rows of a target that a statement changes.
fn targets(
    target: &FromTerm,
    condition: Option<&Expr>,
    page: Page,
    attributes: Vec<Name>,
    run: &Run<'_>,
    context: &Context<'_>,
) -> Result<Vec<Env>> {
    let root = plan_targets_with(target, condition, page, attributes, run)?;
    let mut rows = exec::build(&root, &Env::new());
    let mut found = Vec::new();
    while let Some(row) = rows.next(run, context)? {
        run.charge(row.get(&target.alias).map_or(0, Value::size_bytes))?;
        found.push(row);
    }
    run.keep(root);
    Ok(found)
}

fn target_keyspace(target: &FromTerm, run: &Run<'_>) -> Result<Keyspace> {
    match &target.source {
        Source::Keyspace(path) => run.keyspace(path),
        Source::Expr(expr) => Err(Error::new(3000, format!("{expr} is not a keyspace"))),
    }
}

pub(crate) fn update(update: &Update, run: &Run<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
    let keyspace = target_keyspace(&update.target, run)?;
    let alias = &update.target.alias;
    let page = Page { limit: update.limit.clone(), offset: update.offset.clone() };
    let mut attributes = Vec::new();
    for set in &update.changes.set {
        attributes_in(&set.value, alias, &mut attributes);
    }
    let condition = update.condition.as_ref();
    let rows = targets(&update.target, condition, page, attributes, run, context)?;
    let mut writer =
        Writer::new(keyspace, alias, "UPDATE", update.returning.as_ref(), run, context);
    for row in rows {
        write_changes(&mut writer, &update.changes, &row)?;
    }
    writer.finish()
}

fn write_changes(
    writer: &mut Writer<'_>,
    changes: &nacre_sql::ast::Changes,
    row: &Env,
) -> Result<()> {
    let Some(meta) = row.meta(&writer.alias).cloned() else { return Ok(()) };
    let changed = change::changed(changes, &writer.alias, row, writer.context)?;
    let expiration = match changed.expiration {
        Some(seconds) => Some(seconds),
        None if writer.run.settings.preserve_expiry => None,
        None => Some(0),
    };
    let mutation = Mutation {
        action: Action::Replace(meta.cas),
        id: meta.id.clone(),
        body: changed.value.to_json().into_bytes(),
        expiration,
    };
    writer.push(Write { mutation, env: row.clone(), value: changed.value })
}

fn write_removal(writer: &mut Writer<'_>, row: &Env) -> Result<()> {
    let Some(meta) = row.meta(&writer.alias).cloned() else { return Ok(()) };
    let value = row.get(&writer.alias).cloned().unwrap_or_default();
    // A transaction fails at the first document that has changed since it was read; other statements continue with
    // the next document.
    let version = if writer.run.state.in_transaction.get() { meta.cas } else { 0 };
    let mutation = Mutation {
        action: Action::Remove(version),
        id: meta.id.clone(),
        body: Vec::new(),
        expiration: None,
    };
    writer.push(Write { mutation, env: row.clone(), value })
}

pub(crate) fn delete(delete: &Delete, run: &Run<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
    if let Some(catalog) = catalog_of(&delete.target) {
        return delete_entries(catalog, delete, run, context);
    }
    let keyspace = target_keyspace(&delete.target, run)?;
    let page = Page { limit: delete.limit.clone(), offset: delete.offset.clone() };
    let rows = targets(&delete.target, delete.condition.as_ref(), page, Vec::new(), run, context)?;
    let alias = &delete.target.alias;
    let mut writer =
        Writer::new(keyspace, alias, "DELETE", delete.returning.as_ref(), run, context);
    for row in rows {
        write_removal(&mut writer, &row)?;
    }
    writer.finish()
}

/// Returns the catalog that a target names, if it is one.
fn catalog_of(target: &FromTerm) -> Option<&Name> {
    let Source::Keyspace(path) = &target.source else { return None };
    path.parts.first().filter(|_| path.is_system())
}

/// Deletes entries of the service's own `system:` catalogs.
fn delete_entries(
    catalog: &str,
    delete: &Delete,
    run: &Run<'_>,
    context: &Context<'_>,
) -> Result<Vec<Value>> {
    let page = Page { limit: delete.limit.clone(), offset: delete.offset.clone() };
    let rows = targets(&delete.target, delete.condition.as_ref(), page, Vec::new(), run, context)?;
    let alias = &delete.target.alias;
    let returning = delete
        .returning
        .as_ref()
        .map(|projection| Project { projection: named(projection), star: vec![alias.clone()] });
    let mut returned = Vec::new();
    for row in rows {
        let Some(meta) = row.meta(alias) else { continue };
        run.service.remove_entry(catalog, &meta.id, run)?;
        run.state.mutation_count.set(run.state.mutation_count.get() + 1);
        if let Some(returning) = &returning {
            returned.push(projected(returning, &row, context)?);
        }
    }
    Ok(returned)
}

pub(crate) fn merge(merge: &Merge, run: &Run<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
    let keyspace = target_keyspace(&merge.target, run)?;
    let root = plan_merge(merge, run)?;
    let mut rows = exec::build(&root, &Env::new());
    let mut found = Vec::new();
    while let Some(row) = rows.next(run, context)? {
        run.charge(128)?;
        found.push(row);
    }
    run.keep(root);
    let limit = merge
        .limit
        .as_ref()
        .map_or(Ok(Value::Missing), |limit| eval(limit, &Env::new(), context))?;
    let limit = limit.as_i64().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(0));
    let alias = &merge.target.alias;
    let mut writer = Writer::new(keyspace, alias, "MERGE", merge.returning.as_ref(), run, context);
    let mut touched = std::collections::BTreeSet::new();
    let mut inserted = std::collections::BTreeSet::new();
    let mut count = 0;
    let holds = |condition: &Option<Expr>, row: &Env| -> Result<bool> {
        condition.as_ref().map_or(Ok(true), |condition| Ok(eval(condition, row, context)?.truth()))
    };
    for row in &found {
        if count >= limit {
            break;
        }
        let before = writer.waiting.len() + writer.run.state.mutation_count.get() as usize;
        match row.meta(alias) {
            Some(meta) => {
                let update = match &merge.update {
                    Some((changes, condition)) if holds(condition, row)? => Some(changes),
                    _ => None,
                };
                let removes = match &merge.delete {
                    Some(condition) => holds(condition, row)?,
                    None => false,
                };
                if (update.is_some() || removes) && !touched.insert(meta.id.clone()) {
                    let message = format!(
                        "Multiple UPDATE/DELETE of the same document (document key '{}') in a MERGE statement",
                        meta.id
                    );
                    return Err(Error::new(5320, message));
                }
                match update {
                    Some(changes) => write_changes(&mut writer, changes, row)?,
                    None if removes => write_removal(&mut writer, row)?,
                    None => {}
                }
            }
            None => {
                if let Some((Row { key, value, options }, condition)) = &merge.insert
                    && holds(condition, row)?
                {
                    // With ON KEY, the key that was not found becomes the key of the new document.
                    let key = match (key, &merge.on) {
                        (Expr::Literal(Value::Missing), On::Keys(looked_up)) => looked_up,
                        (key, _) => key,
                    };
                    let id = eval(key, row, context)?;
                    if let Some(id) = id.as_str()
                        && !inserted.insert(Name::from(id))
                    {
                        let message = format!(
                            "Multiple INSERT of the same document (document key '{id}') in a MERGE statement"
                        );
                        return Err(Error::new(5330, message));
                    }
                    let options = option_value(options.as_ref(), row, context)?;
                    writer.insert(Action::Insert, id, eval(value, row, context)?, &options, row)?;
                }
            }
        }
        count += (writer.waiting.len() + writer.run.state.mutation_count.get() as usize)
            .saturating_sub(before);
    }
    writer.finish()
}
