//! UPDATE STATISTICS and ANALYZE: what the values of a keyspace look like, kept for `system:dictionary`.
//!
//! ```text
//! UPDATE STATISTICS FOR orders(status)
//! statistics/default/_default/orders   {"docCount": 8, "distributions": {"status": {"distinct": 3, …}}, …}
//! ```
//!
//! The planner does not ask for them: it chooses by the conditions alone.

use crate::datastore::Keyspace;
use crate::run::Run;
use crate::service::index_names;
use nacre_sql::ast::{CreateIndex, Expr, IndexKey, Path, Statement, Statistics, StatisticsOf};
use nacre_sql::index::Definition;
use nacre_sql::{Context, Error, Meta, Name, Result, SEMANTICS, Value, parse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Codes of refusals. Source: Couchbase's list.
const REFUSED: u32 = 5360;
const INDEX_NOT_FOUND: u32 = 5411;

/// First word of the keys of notes about statistics; the embedder checks that the user may query the keyspace.
const STATISTICS: &str = "statistics/";

/// How many documents are looked at, unless `sample_size` says how many.
const SAMPLE: usize = 10_000;
const SAMPLE_MAX: usize = 100_000;
/// Documents that are read at once.
const BATCH: usize = 1000;

/// Options, all of which are numbers. Source: SQL++ reference, UPDATE STATISTICS.
const OPTIONS: [&str; 4] = ["sample_size", "resolution", "update_statistics_timeout", "batch_size"];

/// Statistics of the values of a key.
#[derive(Default)]
struct Distribution {
    values: u64,
    missing: u64,
    null: u64,
    distinct: BTreeSet<Value>,
}

/// Makes, renews or removes statistics.
pub(crate) fn update(statistics: &Statistics, run: &Run<'_>, context: &Context<'_>) -> Result<()> {
    let sample = sample_size(&statistics.with)?;
    let keyspace = run.keyspace(&statistics.keyspace)?;
    let note = note_of(&keyspace);
    if statistics.delete {
        return remove(statistics, &note, run);
    }
    let keys = described(statistics, &keyspace, run, context)?;
    if keys.is_empty() {
        return Err(Error::new(REFUSED, format!("{keyspace} has no indexes to describe")));
    }
    let mut known = recall(&note, run).map(|row| row.field("distributions"));
    let found = look(&keyspace, &keys, sample, run)?;
    let mut all: BTreeMap<Name, Value> = BTreeMap::new();
    if let Some(Value::Object(fields)) = &mut known {
        all.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    all.extend(found.distributions);
    let names: Vec<Value> = all.keys().cloned().map(Value::from).collect();
    let count = run.store.count(&keyspace, &run.settings.consistency)?;
    let average = |bytes: u64| Value::Int((bytes / found.documents.max(1)) as i64);
    let row = Value::object([
        ("avgDocKeySize", average(found.key_bytes)),
        ("avgDocSize", average(found.body_bytes)),
        ("bucket", keyspace.bucket.clone().into()),
        ("distributionKeys", names.into()),
        ("distributions", Value::object(all)),
        ("docCount", Value::Int(count as i64)),
        ("keyspace", keyspace.collection.clone().into()),
        ("namespace", keyspace.namespace.clone().into()),
        ("sampled", Value::Int(found.documents as i64)),
        ("scope", keyspace.scope.clone().into()),
    ]);
    run.store.notes().note(&note, Some(&row.to_json()));
    Ok(())
}

/// The rows of `system:dictionary`.
pub(crate) fn rows(run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
    let row = |note: String| {
        let row = recall(&note, run)?;
        let part = |name: &str| row.field(name).as_str().map(Name::from);
        let parts = vec![part("bucket")?, part("scope")?, part("keyspace")?];
        let id = parts.join(".");
        // The keyspace may be gone.
        run.keyspace(&Path { namespace: None, parts }).ok()?;
        Some((Name::from(format!("default:{id}")), row))
    };
    Ok(run.store.notes().keys(STATISTICS)?.into_iter().filter_map(row).collect())
}

fn recall(note: &str, run: &Run<'_>) -> Option<Value> {
    Value::parse(run.store.notes().recall(note)?.as_bytes()).ok()
}

fn note_of(keyspace: &Keyspace) -> String {
    let Keyspace { bucket, scope, collection, .. } = keyspace;
    // No name of a keyspace has a slash.
    format!("{STATISTICS}{bucket}/{scope}/{collection}")
}

fn sample_size(with: &Value) -> Result<usize> {
    for (name, value) in with.as_object().into_iter().flatten() {
        let is_number = value.as_f64().is_some_and(|number| number >= 0.0);
        if !OPTIONS.contains(&&**name) || !is_number {
            let message = format!(
                "UPDATE STATISTICS has no option {name} of {value}: {}",
                OPTIONS.join(", ")
            );
            return Err(Error::new(REFUSED, message));
        }
    }
    let given = with.field("sample_size").as_i64();
    let given = given.and_then(|given| usize::try_from(given).ok()).filter(|given| *given > 0);
    Ok(given.unwrap_or(SAMPLE).min(SAMPLE_MAX))
}

fn remove(statistics: &Statistics, note: &str, run: &Run<'_>) -> Result<()> {
    let StatisticsOf::Keys(keys) = &statistics.of else {
        run.store.notes().note(note, None);
        return Ok(());
    };
    let Some(Value::Object(mut row)) = recall(note, run) else { return Ok(()) };
    let gone: Vec<String> = keys.iter().map(name_of).collect();
    let row = Arc::make_mut(&mut row);
    let kept: Vec<(Name, Value)> = row
        .get("distributions")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(name, _)| !gone.iter().any(|gone| **gone == ***name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let names: Vec<Value> = kept.iter().map(|(name, _)| name.clone().into()).collect();
    row.insert("distributionKeys".into(), names.into());
    row.insert("distributions".into(), Value::object(kept));
    let row = Value::object(row.iter().map(|(name, value)| (name.clone(), value.clone())));
    run.store.notes().note(note, Some(&row.to_json()));
    Ok(())
}

/// The keys to describe, each by its name.
fn described(
    statistics: &Statistics,
    keyspace: &Keyspace,
    run: &Run<'_>,
    context: &Context<'_>,
) -> Result<Vec<(String, Definition)>> {
    let known = || -> Result<Vec<CreateIndex>> {
        let indexes = run.store.indexes(keyspace)?;
        let parsed = indexes.iter().map(|index| match parse(&index.definition)? {
            Statement::CreateIndex(create) => Ok(*create),
            _ => Err(Error::new(SEMANTICS, "this is no CREATE INDEX")),
        });
        parsed.collect()
    };
    let keys: Vec<IndexKey> = match &statistics.of {
        StatisticsOf::Keys(keys) => keys.clone(),
        StatisticsOf::All => known()?.into_iter().flat_map(|create| create.keys).collect(),
        StatisticsOf::Indexes(names) => {
            let known = known()?;
            let mut keys = Vec::new();
            for name in index_names(names, context)? {
                let Expr::Literal(Value::String(name)) = name else { continue };
                let found = known.iter().find(|create| match &create.name {
                    Some(own) => *own == name,
                    None => *name == *"#primary",
                });
                let missing =
                    || Error::new(INDEX_NOT_FOUND, format!("Index {name} not found in {keyspace}"));
                keys.extend(found.ok_or_else(missing)?.keys.iter().cloned());
            }
            keys
        }
    };
    let mut all: BTreeMap<String, Definition> = BTreeMap::new();
    for key in keys {
        let name = name_of(&key);
        let key = IndexKey { descending: false, include_missing: true, ..key };
        all.insert(name, definition(statistics.keyspace.clone(), key)?);
    }
    Ok(all.into_iter().collect())
}

/// An index of the key alone, by which its values are found.
fn definition(keyspace: Path, key: IndexKey) -> Result<Definition> {
    Definition::new(CreateIndex {
        name: None,
        primary: false,
        keyspace,
        if_not_exists: true,
        keys: vec![key],
        condition: None,
        partition: Vec::new(),
        with: Value::Missing,
    })
}

/// The text of a key; a lone field is only its name.
fn name_of(key: &IndexKey) -> String {
    let text = match &key.expr {
        Expr::Ident(name) => name.to_string(),
        other => other.to_string(),
    };
    match key.array {
        None => text,
        Some(true) => format!("distinct {text}"),
        Some(false) => format!("all {text}"),
    }
}

/// Findings in the documents that were read.
#[derive(Default)]
struct Found {
    documents: u64,
    body_bytes: u64,
    key_bytes: u64,
    distributions: Vec<(Name, Value)>,
}

fn look(
    keyspace: &Keyspace,
    keys: &[(String, Definition)],
    sample: usize,
    run: &Run<'_>,
) -> Result<Found> {
    let mut found = Found::default();
    let mut all: Vec<Distribution> = keys.iter().map(|_| Distribution::default()).collect();
    let mut after: Option<Name> = None;
    let before = run.charged();
    while (found.documents as usize) < sample {
        nacre_sql::Host::tick(run)?;
        let left = (sample - found.documents as usize).min(BATCH);
        let consistency = &run.settings.consistency;
        let documents = run.store.scan(keyspace, after.as_deref(), true, left, consistency)?;
        let Some(last) = documents.last() else { break };
        after = Some(last.id.clone());
        for document in &documents {
            found.documents += 1;
            found.body_bytes += document.body.len() as u64;
            found.key_bytes += document.id.len() as u64;
            let value = Value::parse(&document.body).unwrap_or(Value::Null);
            let meta = Arc::new(Meta { id: document.id.clone(), json: true, ..Meta::default() });
            for ((_, definition), distribution) in keys.iter().zip(&mut all) {
                // A value that cannot be evaluated is in no index either.
                for entry in definition.entries(&value, &meta).unwrap_or_default() {
                    let value = definition.decode(&entry).map(|(mut values, _)| values.remove(0));
                    distribution.add(value.unwrap_or_default(), run)?;
                }
            }
        }
    }
    run.give_back(run.charged() - before);
    let names = keys.iter().map(|(name, _)| Name::from(name.as_str()));
    found.distributions = names.zip(all.iter().map(Distribution::row)).collect();
    Ok(found)
}

impl Distribution {
    fn add(&mut self, value: Value, run: &Run<'_>) -> Result<()> {
        match value {
            Value::Missing => self.missing += 1,
            Value::Null => self.null += 1,
            value => {
                self.values += 1;
                let bytes = value.size_bytes();
                if self.distinct.insert(value) {
                    run.charge(bytes)?;
                }
            }
        }
        Ok(())
    }

    fn row(&self) -> Value {
        let end = |value: Option<&Value>| value.cloned().unwrap_or_default();
        Value::object([
            ("distinct", Value::Int(self.distinct.len() as i64)),
            ("max", end(self.distinct.last())),
            ("min", end(self.distinct.first())),
            ("missing", Value::Int(self.missing as i64)),
            ("null", Value::Int(self.null as i64)),
            ("values", Value::Int(self.values as i64)),
        ])
    }
}
