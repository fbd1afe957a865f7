//! Secondary indexes: what is written into one for a document.
//!
//! ```text
//! CREATE INDEX i ON orders(status, total DESC)      {"status": "open", "total": 12}, id "o1"
//! entry = key::encode("open") ‖ key::encode(12), inverted ‖ key::encode("o1")
//! ```
//!
//! A document has no entry when its first part is MISSING (unless INCLUDE MISSING is said) or the index's condition does
//! not hold; with an array part it has one for each element.
//!
//! `PARTITION BY HASH(customer)` spreads the entries by that value: those of one customer are in one [partition](Partitioning).

use crate::ast::{CreateIndex, Expr, IndexKey, Statement};
use crate::env::{Caches, Context, Env, Meta, NoHost};
use crate::error::{Error, Result, SEMANTICS};
use crate::eval::{bindings_of, children, eval};
use crate::key;
use crate::scope::{Scope, resolve_expr};
use crate::value::{Name, Value};
use crate::visit::any_in;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The variable that documents have in the expressions of an index; no user can write it without quotes.
pub const SELF: &str = "#self";

/// How many bytes an entry may have; a document with a longer one is not indexed there.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// Partitions of an index whose statement does not say how many. Source: Couchbase.
const PARTITIONS_DEFAULT: u16 = 8;
/// How many partitions an index may have.
const PARTITIONS_MAX: u16 = 64;
/// How many more copies of a partition there may be. Source: Couchbase has as many copies of a document.
const REPLICAS_MAX: u8 = 3;

/// An option that is a number; `default` if it is not given.
fn number(with: &Value, name: &str, default: u16, range: RangeInclusive<u16>) -> Result<u16> {
    let given = with.field(name);
    if given.is_missing() {
        return Ok(default);
    }
    let given = given.as_i64().and_then(|given| u16::try_from(given).ok());
    given.filter(|given| range.contains(given)).ok_or_else(|| {
        let (low, high) = (range.start(), range.end());
        Error::new(SEMANTICS, format!("{name} is a number from {low} to {high}"))
    })
}

/// How the entries of an index are spread: those of one document are in one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Partitioning {
    /// Whose values tell the partition, over the variable [`SELF`].
    pub by: Vec<Expr>,
    /// How many partitions there are: `num_partition`.
    pub count: u16,
    /// How many copies each has beside the first: `num_replica`.
    pub replicas: u8,
}

impl Partitioning {
    fn new(by: Vec<Expr>, with: &Value) -> Result<Option<Partitioning>> {
        if by.is_empty() {
            return Ok(None);
        }
        let count = number(with, "num_partition", PARTITIONS_DEFAULT, 1..=PARTITIONS_MAX)?;
        let replicas = Partitioning::replicas_of(with)?;
        Ok(Some(Partitioning { by, count, replicas }))
    }

    /// What `num_replica` says; 0 if it is not given.
    ///
    /// # Errors
    /// It is no such number.
    pub fn replicas_of(with: &Value) -> Result<u8> {
        number(with, "num_replica", 0, 0..=u16::from(REPLICAS_MAX)).map(|replicas| replicas as u8)
    }

    /// The partition of the documents of which [`Partitioning::by`] has these values.
    pub fn of(&self, values: &[Value]) -> u16 {
        let mut bytes = Vec::new();
        values.iter().for_each(|value| key::encode(value, false, &mut bytes));
        // FNV-1a, and the finalizer of MurmurHash3, without which values that differ in one byte stay together.
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        ((hash ^ (hash >> 33)) % u64::from(self.count)) as u16
    }
}

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
    /// How its entries are spread; none where they are with their documents.
    pub partitioning: Option<Partitioning>,
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
        let partitioning = Partitioning::new(create.partition, &create.with)?;
        let condition = create.condition;
        let mut definition = Definition { name, keys, primary, condition, partitioning };
        let keys = definition.keys.iter_mut().map(|key| &mut key.expr);
        let by = definition.partitioning.iter_mut().flat_map(|partitioning| &mut partitioning.by);
        let exprs = keys.chain(&mut definition.condition).chain(by);
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

    /// Whether each document for which the condition holds has an entry, but for what cannot be put into one: a value that
    /// is too long, or that cannot be evaluated.
    pub fn is_complete(&self) -> bool {
        let has_missing = self.keys.first().is_some_and(|key| key.include_missing);
        // An empty array has no elements to make entries of.
        self.primary || has_missing && self.keys.iter().all(|key| key.array.is_none())
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
        of_document(value, meta, |env, context| self.entries_in(env, context, meta))
    }

    /// The partition that the entries of a document are in; none where they are not spread.
    ///
    /// # Errors
    /// As [`eval`].
    pub fn partition(&self, value: &Value, meta: &Arc<Meta>) -> Result<Option<u16>> {
        let Some(partitioning) = &self.partitioning else { return Ok(None) };
        of_document(value, meta, |env, context| {
            let values = partitioning.by.iter().map(|by| eval(by, env, context));
            Ok(Some(partitioning.of(&values.collect::<Result<Vec<_>>>()?)))
        })
    }

    fn entries_in(
        &self,
        env: &Env,
        context: &Context<'_>,
        meta: &Arc<Meta>,
    ) -> Result<Vec<Vec<u8>>> {
        if let Some(condition) = &self.condition
            && !eval(condition, env, context)?.truth()
        {
            return Ok(Vec::new());
        }
        let mut entries = vec![Vec::new()];
        for (at, part) in self.parts().iter().enumerate() {
            let values = part_values(part, env, context)?;
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

/// Evaluates something of a document alone.
fn of_document<T>(
    value: &Value,
    meta: &Arc<Meta>,
    run: impl FnOnce(&Env, &Context<'_>) -> Result<T>,
) -> Result<T> {
    let (named, caches) = (BTreeMap::new(), Caches::default());
    let context =
        Context { host: &NoHost, positional: &[], named: &named, statement_ms: 0, caches: &caches };
    let env = Env::new().with_document(&SELF.into(), value.clone(), Some(meta.clone()));
    run(&env, &context)
}

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
            if !matches!(elements, Value::Array(_) | Value::Object(_)) {
                return Ok(vec![Value::Missing]);
            }
            // As ANY and EVERY go through them.
            let mut all = Vec::new();
            children(&elements, &mut all);
            return Ok(all.into_iter().map(|(_, value)| value).collect());
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
        return Err(Error::new(
            SEMANTICS,
            format!("neither an index nor a filter can have this: {expr}"),
        ));
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
        Expr::Itself => *expr = Expr::Ident(to.clone()),
        _ => {
            let done = crate::visit::each_child(expr, &mut |child| {
                replace_alias(child, alias, to);
                Ok(())
            });
            debug_assert!(done.is_ok(), "renaming refuses nothing");
        }
    }
}
