//! Secondary indexes: what is written into one for a document.
//!
//! ```text
//! CREATE INDEX i ON orders(status, total DESC)      {"status": "open", "total": 12}, id "o1"
//! entry = key::encode("open") ‖ key::encode(12), inverted ‖ key::encode("o1")
//! ```
//!
//! A document has no entry when its first part is MISSING (unless INCLUDE MISSING is said) or the index's condition does
//! not hold; with an array part it has one for each element.

use crate::ast::{CreateIndex, Expr, IndexKey, Statement};
use crate::env::{Caches, Context, Env, Meta, NoHost};
use crate::error::{Error, Result, SEMANTICS};
use crate::eval::{bindings_of, eval};
use crate::key;
use crate::scope::{Scope, resolve_expr};
use crate::value::{Name, Value};
use crate::visit::any_in;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The variable that documents have in the expressions of an index.
pub const SELF: &str = "self";

/// How many bytes an entry may have; a document with a longer one is not indexed there.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// An index, ready to be maintained.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: Name,
    /// The parts of its keys, over the variable [`SELF`]; for a primary index the id, which its entries have once.
    pub keys: Vec<IndexKey>,
    primary: bool,
    /// Which documents it has.
    pub condition: Option<Expr>,
}

impl Definition {
    /// Reads a CREATE INDEX statement.
    ///
    /// # Errors
    /// It is no such statement; a part has a subquery, an aggregate, a parameter, or what differs each time.
    pub fn parse(text: &str) -> Result<Definition> {
        match crate::parser::parse(text)? {
            Statement::CreateIndex(create) => Definition::new(*create),
            _ => Err(Error::new(SEMANTICS, "this is no CREATE INDEX")),
        }
    }

    /// Resolves and checks what was parsed.
    ///
    /// # Errors
    /// As [`Definition::parse`].
    pub fn new(create: CreateIndex) -> Result<Definition> {
        let name = create.name.unwrap_or_else(|| "#primary".into());
        let primary = create.keys.is_empty();
        let keys = if primary { vec![id_key()?] } else { create.keys };
        let mut definition = Definition { name, keys, primary, condition: create.condition };
        let exprs =
            definition.keys.iter_mut().map(|key| &mut key.expr).chain(&mut definition.condition);
        // The alias of the keyspace may stand before its fields.
        let alias: Name = create.keyspace.parts.last().expect("paths have parts").clone();
        for expr in exprs {
            resolve_key(expr, &alias)?;
        }
        if definition.keys.iter().filter(|key| key.array.is_some()).count() > 1 {
            return Err(Error::new(SEMANTICS, "an index can have only one array key"));
        }
        Ok(definition)
    }

    /// Whether every document has exactly one entry, which is its id.
    pub fn is_primary(&self) -> bool {
        self.primary
    }

    /// The parts that stand before the id in an entry.
    fn parts(&self) -> &[IndexKey] {
        if self.primary { &[] } else { &self.keys }
    }

    /// The entries of a document, each with its id at the end; in order, without duplicates.
    ///
    /// # Errors
    /// As [`eval`].
    pub fn entries(&self, value: &Value, meta: &Arc<Meta>) -> Result<Vec<Vec<u8>>> {
        if meta.id.starts_with(TRANSACTION_RECORDS) {
            return Ok(Vec::new());
        }
        let (named, caches) = (BTreeMap::new(), Caches::default());
        let context = Context {
            host: &NoHost,
            positional: &[],
            named: &named,
            statement_ms: 0,
            caches: &caches,
        };
        let env = Env::new().with_document(&SELF.into(), value.clone(), Some(meta.clone()));
        if let Some(condition) = &self.condition
            && !eval(condition, &env, &context)?.truth()
        {
            return Ok(Vec::new());
        }
        let mut entries = vec![Vec::new()];
        for (at, part) in self.parts().iter().enumerate() {
            let values = part_values(part, &env, &context)?;
            let kept =
                values.iter().filter(|value| at > 0 || part.include_missing || !value.is_missing());
            let kept: Vec<&Value> = kept.collect();
            entries = grown(&entries, &kept, part.descending);
        }
        for entry in &mut entries {
            key::encode(&Value::String(meta.id.clone()), false, entry);
        }
        entries.retain(|entry| entry.len() <= ENTRY_BYTES_MAX);
        entries.sort();
        entries.dedup();
        Ok(entries)
    }

    /// The values of an entry's parts, and the id of its document; `None` when it is no entry of this index.
    pub fn decode(&self, mut entry: &[u8]) -> Option<(Vec<Value>, Name)> {
        let parts = self.parts().iter();
        let mut values = parts
            .map(|part| key::decode(&mut entry, part.descending))
            .collect::<Option<Vec<_>>>()?;
        let Value::String(id) = key::decode(&mut entry, false)? else { return None };
        if self.primary {
            values.push(id.clone().into());
        }
        Some((values, id))
    }
}

/// What the keys of documents begin with in which transactions are recorded. Queries do not see them.
const TRANSACTION_RECORDS: &str = "_txn:";

/// The part that stands for the id of a document.
fn id_key() -> Result<IndexKey> {
    let expr = crate::parser::parse_expr("META().id")?;
    Ok(IndexKey { expr, array: None, descending: false, include_missing: false })
}

fn grown(entries: &[Vec<u8>], values: &[&Value], descending: bool) -> Vec<Vec<u8>> {
    let mut longer = Vec::with_capacity(entries.len() * values.len());
    for entry in entries {
        for value in values {
            let mut entry = entry.clone();
            key::encode(value, descending, &mut entry);
            longer.push(entry);
        }
    }
    longer
}

fn part_values(part: &IndexKey, env: &Env, context: &Context<'_>) -> Result<Vec<Value>> {
    if part.array.is_none() {
        return Ok(vec![eval(&part.expr, env, context)?]);
    }
    let (bindings, value, condition) = match &part.expr {
        Expr::Comprehension(comprehension) => {
            (&comprehension.bindings, &comprehension.value, &comprehension.condition)
        }
        whole => {
            let elements = eval(whole, env, context)?;
            return Ok(elements.as_array().map_or_else(|| vec![Value::Missing], <[Value]>::to_vec));
        }
    };
    let Ok(envs) = bindings_of(bindings, env, context)? else { return Ok(vec![Value::Missing]) };
    let mut values = Vec::new();
    for inner in &envs {
        let wanted = condition
            .as_ref()
            .map_or(Ok(true), |when| eval(when, inner, context).map(|v| v.truth()))?;
        if wanted {
            values.push(eval(value, inner, context)?);
        }
    }
    Ok(values)
}

/// Resolves an expression of an index over [`SELF`].
pub(crate) fn resolve_key(expr: &mut Expr, alias: &Name) -> Result<()> {
    let unfit = |expr: &Expr| match expr {
        Expr::Subquery(_)
        | Expr::Aggregate(_)
        | Expr::Positional(_)
        | Expr::Named(_)
        | Expr::UserCall(..) => true,
        Expr::Call(function, _) => !function.is_deterministic(),
        _ => false,
    };
    if any_in(expr, &unfit) {
        return Err(Error::new(SEMANTICS, format!("this cannot be indexed: {expr}")));
    }
    let document: Name = SELF.into();
    replace_alias(expr, alias, &document);
    resolve_expr(expr, &Scope::of_term(&document))
}

/// `alias.field` is a field of the document.
fn replace_alias(expr: &mut Expr, alias: &Name, to: &Name) {
    match expr {
        Expr::Field(of, ..) if matches!(&**of, Expr::Ident(name) if name == alias) => {
            **of = Expr::Ident(to.clone());
        }
        Expr::Call(function, args) if function.name == "META" => {
            *args = vec![Expr::Ident(to.clone())];
        }
        _ => {
            let done = crate::visit::each_child(expr, &mut |child| {
                replace_alias(child, alias, to);
                Ok(())
            });
            debug_assert!(done.is_ok(), "renaming refuses nothing");
        }
    }
}
