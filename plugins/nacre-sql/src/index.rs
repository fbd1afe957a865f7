//! Secondary indexes: the entries for a document.
//!
//! ```text
//! CREATE INDEX i ON orders(status, total DESC)      {"status": "open", "total": 12}, id "o1"
//! entry = key::encode("open") ‖ key::encode(12), inverted ‖ key::encode("o1")
//! ```
//!
//! A document has no entry if its first part is MISSING (unless INCLUDE MISSING is given) or the index's condition does not
//! hold. With an array part it has one entry per element.
//!
//! `PARTITION BY HASH(customer)` distributes the entries by that value: those of one customer are in one
//! [partition](Partitioning).

use crate::ast::{Collect, Comprehension, CreateIndex, Expr, IndexKey, Statement};
use crate::env::{Caches, Context, Env, Meta, NoHost};
use crate::eval::{bindings_of, children, eval};
use crate::scope::{Scope, resolve_expr};
use crate::visit::any_in;
use crate::{Error, Name, Result, SEMANTICS, Value, key};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The variable for documents in the expressions of an index; users cannot write it without quotes.
pub const SELF: &str = "#self";

/// Maximum size of an entry in bytes; a document with a longer entry is not indexed.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// Default number of partitions. Source: Couchbase.
const PARTITIONS_DEFAULT: u16 = 8;
/// Maximum number of partitions.
const PARTITIONS_MAX: u16 = 64;
/// Maximum number of replicas of a partition. Source: Couchbase has the same limit for documents.
const REPLICAS_MAX: u8 = 3;

/// Returns a numeric option; `default` if it is not given.
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

/// The partitioning of an index; all entries of a document are in one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Partitioning {
    /// The partition expressions, over the variable [`SELF`].
    pub by: Vec<Expr>,
    /// The number of partitions: `num_partition`.
    pub count: u16,
    /// The number of replicas of each partition: `num_replica`.
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

    /// Returns `num_replica`; 0 if it is not given.
    ///
    /// # Errors
    /// Fails if the value is not a valid number.
    pub fn replicas_of(with: &Value) -> Result<u8> {
        number(with, "num_replica", 0, 0..=u16::from(REPLICAS_MAX)).map(|replicas| replicas as u8)
    }

    /// Returns the partition of documents for which [`Partitioning::by`] has these values.
    pub fn of(&self, values: &[Value]) -> u16 {
        let mut bytes = Vec::new();
        values.iter().for_each(|value| key::encode(value, false, &mut bytes));
        // FNV-1a with the finalizer of MurmurHash3; without it, values that differ in one byte would have nearby hashes.
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        ((hash ^ (hash >> 33)) % u64::from(self.count)) as u16
    }
}

/// An index definition, ready to derive entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The name.
    pub name: Name,
    /// The parts of its keys, over the variable [`SELF`]; for a primary index the ID, which its entries contain only once.
    pub keys: Vec<IndexKey>,
    primary: bool,
    /// The condition on its documents.
    pub condition: Option<Expr>,
    /// The partitioning; `None` if each entry is on the node of its document.
    pub partitioning: Option<Partitioning>,
}

impl Definition {
    /// Parses a CREATE INDEX statement.
    ///
    /// # Errors
    /// Fails if the text is another statement, or a part has a subquery, an aggregate, a parameter or a nondeterministic
    /// function.
    pub fn parse(text: &str) -> Result<Definition> {
        match crate::parser::parse(text)? {
            Statement::CreateIndex(create) => Definition::new(*create),
            _ => Err(Error::new(SEMANTICS, "this is not a CREATE INDEX statement")),
        }
    }

    /// Resolves and checks a parsed statement.
    ///
    /// # Errors
    /// As for [`Definition::parse`].
    pub fn new(create: CreateIndex) -> Result<Definition> {
        if create.vector.is_some() {
            return Err(Error::new(SEMANTICS, "a vector index has no sorted entries"));
        }
        let name = create.name.unwrap_or_else(|| "#primary".into());
        let primary = create.keys.is_empty();
        let keys = if primary { vec![id_key()?] } else { expanded(create.keys)? };
        let partitioning = Partitioning::new(create.partition, &create.with)?;
        let condition = create.condition;
        let mut definition = Definition { name, keys, primary, condition, partitioning };
        let keys = definition.keys.iter_mut().map(|key| &mut key.expr);
        let by = definition.partitioning.iter_mut().flat_map(|partitioning| &mut partitioning.by);
        let exprs = keys.chain(&mut definition.condition).chain(by);
        // The alias of the keyspace may qualify its fields.
        let alias: Name = create.keyspace.parts.last().expect("paths have parts").clone();
        for expr in exprs {
            resolve_key(expr, &alias)?;
        }
        let arrays = definition.keys.iter().filter(|key| key.array.is_some() && !key.joined);
        if arrays.count() > 1 {
            return Err(Error::new(SEMANTICS, "an index can have only one array key"));
        }
        Ok(definition)
    }

    /// Returns true if every document has exactly one entry, its ID.
    pub fn is_primary(&self) -> bool {
        self.primary
    }

    /// Returns true if each document that satisfies the condition has an entry, except for values that are too long or fail to
    /// evaluate.
    pub fn is_complete(&self) -> bool {
        let has_missing = self.keys.first().is_some_and(|key| key.include_missing);
        // An empty array has no elements, so it has no entries.
        self.primary || has_missing && self.keys.iter().all(|key| key.array.is_none())
    }

    /// Returns the parts that precede the ID in an entry.
    fn parts(&self) -> &[IndexKey] {
        if self.primary { &[] } else { &self.keys }
    }

    /// Returns the entries of a document, each with its ID at the end, sorted and without duplicates.
    ///
    /// # Errors
    /// As for [`eval`].
    pub fn entries(&self, value: &Value, meta: &Arc<Meta>) -> Result<Vec<Vec<u8>>> {
        if meta.id.starts_with(TRANSACTION_RECORDS) {
            return Ok(Vec::new());
        }
        of_document(value, meta, |env, context| self.entries_in(env, context, meta))
    }

    /// Returns the partition of a document's entries; `None` for an index without partitions.
    ///
    /// # Errors
    /// As for [`eval`].
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
        let mut at = 0;
        while let Some(part) = self.parts().get(at) {
            let joined = self.parts()[at + 1..].iter().take_while(|part| part.joined).count();
            let parts = &self.parts()[at..=at + joined];
            let rows = part_values(parts, env, context)?;
            let kept = rows
                .iter()
                .filter(|values| at > 0 || part.include_missing || !values[0].is_missing());
            entries = grown(&entries, &kept.collect::<Vec<_>>(), parts);
            at += parts.len();
        }
        for entry in &mut entries {
            key::encode(&Value::String(meta.id.clone()), false, entry);
        }
        entries.retain(|entry| entry.len() <= ENTRY_BYTES_MAX);
        entries.sort();
        entries.dedup();
        Ok(entries)
    }

    /// Replaces `parts` by the encodings of an entry's parts; `None` if it is not an entry of this index.
    pub fn split<'e>(&self, mut entry: &'e [u8], parts: &mut Vec<&'e [u8]>) -> Option<()> {
        parts.clear();
        for key in &self.keys {
            parts.push(key::split(&mut entry, key.descending)?);
        }
        Some(())
    }

    /// Returns the values of an entry's parts, and the ID of its document; `None` if it is not an entry of this index.
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

/// Prefix of the keys of documents that record transactions. Queries do not see them.
const TRANSACTION_RECORDS: &str = "_txn:";

/// Runs an evaluation over a single document.
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

/// Returns the part for the ID of a document.
fn id_key() -> Result<IndexKey> {
    let expr = crate::parser::parse_expr("META().id")?;
    Ok(IndexKey { expr, array: None, descending: false, include_missing: false, joined: false })
}

/// Replaces FLATTEN_KEYS by a part for each of its arguments, all of the same elements.
fn expanded(keys: Vec<IndexKey>) -> Result<Vec<IndexKey>> {
    let refused = || {
        let message =
            "FLATTEN_KEYS is the value of an array key: DISTINCT ARRAY FLATTEN_KEYS(…) FOR …";
        Err(Error::new(3283, message))
    };
    let mut all = Vec::with_capacity(keys.len());
    for key in keys {
        let value = innermost(&key.expr);
        let Expr::FlattenKeys(parts) = value else {
            if any_in(&key.expr, &|expr| matches!(expr, Expr::FlattenKeys(_))) {
                return refused();
            }
            all.push(key);
            continue;
        };
        let is_value = key.array.is_some() && matches!(key.expr, Expr::Comprehension(_));
        if !is_value || key.descending || key.include_missing {
            return refused();
        }
        for (at, part) in parts.iter().enumerate() {
            let mut expr = key.expr.clone();
            *innermost_mut(&mut expr) = part.expr.clone();
            let (descending, include_missing) = (part.descending, part.include_missing);
            let joined = at > 0;
            all.push(IndexKey { expr, array: key.array, descending, include_missing, joined });
        }
    }
    Ok(all)
}

/// Returns the value of an array key; for nested arrays, that of the innermost.
fn innermost(expr: &Expr) -> &Expr {
    match expr {
        Expr::Comprehension(comprehension) => match &comprehension.value {
            Expr::Comprehension(inner) if inner.collect == Collect::DistinctArray => {
                innermost(&comprehension.value)
            }
            value => value,
        },
        other => other,
    }
}

fn innermost_mut(expr: &mut Expr) -> &mut Expr {
    let Expr::Comprehension(comprehension) = expr else { return expr };
    let is_nested = matches!(&comprehension.value,
        Expr::Comprehension(inner) if inner.collect == Collect::DistinctArray);
    if is_nested { innermost_mut(&mut comprehension.value) } else { &mut comprehension.value }
}

fn grown(entries: &[Vec<u8>], rows: &[&Vec<Value>], parts: &[IndexKey]) -> Vec<Vec<u8>> {
    let mut longer = Vec::with_capacity(entries.len() * rows.len());
    for entry in entries {
        for values in rows {
            let mut entry = entry.clone();
            for (value, part) in values.iter().zip(parts) {
                key::encode(value, part.descending, &mut entry);
            }
            longer.push(entry);
        }
    }
    longer
}

/// Returns the values of parts that are of the same elements, for each element; for a part that is not an array, its value.
fn part_values(parts: &[IndexKey], env: &Env, context: &Context<'_>) -> Result<Vec<Vec<Value>>> {
    let exprs: Vec<&Expr> = parts.iter().map(|part| &part.expr).collect();
    if parts[0].array.is_none() {
        return Ok(vec![vec![eval(exprs[0], env, context)?]]);
    }
    if let Expr::Comprehension(_) = exprs[0] {
        let mut rows = Vec::new();
        elements(&exprs, env, context, &mut rows)?;
        return Ok(rows);
    }
    let elements = eval(exprs[0], env, context)?;
    if !matches!(elements, Value::Array(_) | Value::Object(_)) {
        return Ok(vec![vec![Value::Missing]]);
    }
    // The elements are those that ANY and EVERY visit.
    let mut all = Vec::new();
    children(&elements, &mut all);
    Ok(all.into_iter().map(|(_, value)| vec![value]).collect())
}

/// Appends the values of comprehensions that differ only in their values, for each element.
fn elements(
    exprs: &[&Expr],
    env: &Env,
    context: &Context<'_>,
    rows: &mut Vec<Vec<Value>>,
) -> Result<()> {
    let all: Vec<&Comprehension> = exprs
        .iter()
        .filter_map(|expr| match expr {
            Expr::Comprehension(comprehension) => Some(&**comprehension),
            _ => None,
        })
        .collect();
    let Some(first) = all.first() else { return Ok(()) };
    let Ok(envs) = bindings_of(&first.bindings, env, context)? else {
        rows.push(vec![Value::Missing; exprs.len()]);
        return Ok(());
    };
    let values: Vec<&Expr> = all.iter().map(|comprehension| &comprehension.value).collect();
    let is_nested =
        matches!(values[0], Expr::Comprehension(inner) if inner.collect == Collect::DistinctArray);
    for inner in &envs {
        if let Some(when) = &first.condition
            && !eval(when, inner, context)?.truth()
        {
            continue;
        }
        if is_nested {
            elements(&values, inner, context, rows)?;
        } else {
            let row = values.iter().map(|value| eval(value, inner, context));
            rows.push(row.collect::<Result<_>>()?);
        }
    }
    Ok(())
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

/// Replaces `alias.field` by a field of the document.
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
