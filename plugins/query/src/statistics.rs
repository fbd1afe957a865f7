//! UPDATE STATISTICS and ANALYZE: collect statistics of a keyspace's values, which `system:dictionary` shows.
//!
//! ```text
//! UPDATE STATISTICS FOR orders(status)
//! statistics/default/_default/orders         {"docCount": 8, "distributions": {"status": {"distinct": 3, …}}, "histograms": …}
//! statistics/default/_default/orders/stamp   changes with them
//! ```
//!
//! The member `refresh` of a row has the texts of the keys and the options of the last statement, with which the store repeats the
//! statement after enough changes. The store keeps the rows for all instances, and shows them as notes. The planner reads the
//! histograms ([`table`]). The stamp shows whether an instance's copy, and a prepared plan, are still valid.

use crate::run::Run;
use crate::service::index_names;
use nacre_cost::{Table, Tally};
use nacre_datastore::Keyspace;
use nacre_sql::ast::{CreateIndex, Expr, IndexKey, Path, Statement, Statistics, StatisticsOf};
use nacre_sql::index::Definition;
use nacre_sql::{Context, Error, Meta, Name, Result, SEMANTICS, Value, parse};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Codes of refusals. Source: Couchbase's list.
const REFUSED: u32 = 5360;
const INDEX_NOT_FOUND: u32 = 5411;

/// Members of a row that `system:dictionary` does not show: the planner uses `histograms`, the store uses `refresh`.
const HISTOGRAMS: &str = "histograms";
const REFRESH: &str = "refresh";

/// First word of the keys of notes about statistics; the host checks that the user may query the keyspace.
const STATISTICS: &str = "statistics/";

/// Default and maximum of `sample_size`, the number of documents in the sample.
const SAMPLE: usize = 10_000;
const SAMPLE_MAX: usize = 100_000;
/// Number of documents read at a time.
const BATCH: usize = 1000;

/// Options, all of which are numbers. Source: SQL++ reference, UPDATE STATISTICS.
const OPTIONS: [&str; 4] = ["sample_size", "resolution", "update_statistics_timeout", "batch_size"];

/// Creates, updates or removes statistics.
pub(crate) fn update(statistics: &Statistics, run: &Run<'_>, context: &Context<'_>) -> Result<()> {
    let sample = sample_size(&statistics.with)?;
    let resolution = statistics.with.field("resolution").as_f64();
    let keyspace = run.keyspace(&statistics.keyspace)?;
    let note = note_of(&keyspace);
    if statistics.delete {
        return remove(statistics, &keyspace, run);
    }
    let keys = described(statistics, &keyspace, run, context)?;
    if keys.is_empty() {
        return Err(Error::new(REFUSED, format!("{keyspace} has no indexes to describe")));
    }
    let known = recall(&note, run).unwrap_or_default();
    let found = look(&keyspace, &keys, sample, run)?;
    let with_known = |member: &str, of: &dyn Fn(&Tally) -> Value| {
        let mut all = members(&known.field(member));
        let found = keys.iter().zip(&found.tallies);
        all.extend(found.map(|(key, tally)| (Name::from(key.name.as_str()), of(tally))));
        all
    };
    let all = with_known("distributions", &Tally::summary);
    let mut histograms =
        with_known(HISTOGRAMS, &|tally| tally.histogram(found.documents, resolution));
    let mut texts = members(&known.field(REFRESH).field("keys"));
    for DescribedKey { name, text, definition } in &keys {
        texts.insert(name.as_str().into(), text.as_str().into());
        let key = &definition.keys[0];
        let expression = Table::key_of(&key.expr, key.array);
        histograms.entry(name.as_str().into()).and_modify(|histogram| {
            let fields = members(histogram).into_iter();
            let expression = ("expression".into(), expression.into());
            *histogram = Value::object(fields.chain([expression]));
        });
    }
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
        (HISTOGRAMS, Value::object(histograms)),
        ("keyspace", keyspace.collection.clone().into()),
        ("namespace", keyspace.namespace.clone().into()),
        (
            REFRESH,
            Value::object([("keys", Value::object(texts)), ("with", statistics.with.clone())]),
        ),
        ("sampled", Value::Int(found.documents as i64)),
        ("scope", keyspace.scope.clone().into()),
    ]);
    keep(&keyspace, Some(row), run)
}

/// Stores statistics, or removes them. The store gives them a new stamp, which invalidates plans made with earlier ones.
fn keep(keyspace: &Keyspace, row: Option<Value>, run: &Run<'_>) -> Result<()> {
    let Keyspace { bucket, scope, collection, .. } = keyspace;
    let request = Value::object([
        ("do", "put_statistics".into()),
        ("bucket", bucket.clone().into()),
        ("scope", scope.clone().into()),
        ("collection", collection.clone().into()),
        ("row", row.unwrap_or_default()),
    ]);
    run.store.administer(&request).map(drop)
}

/// Returns the statistics of a keyspace for the planner; `None` if there are none, or the request disables costs.
pub(crate) fn table(keyspace: &Keyspace, run: &Run<'_>) -> Option<Rc<Table>> {
    if run.settings.ignores_costs {
        return None;
    }
    let note = note_of(keyspace);
    if let Some((_, known)) = run.state.described.borrow().get(&note) {
        return known.clone();
    }
    let stamp = run.store.notes().recall(&stamp_of(&note));
    let table = stamp.as_ref().and_then(|stamp| {
        run.service.table(&note, stamp, || Table::from_row(&recall(&note, run)?).map(Rc::new))
    });
    run.state.described.borrow_mut().insert(note, (stamp, table.clone()));
    table
}

/// Returns true if a plan's statistics are still current.
pub(crate) fn are_current(known: &Stamps, run: &Run<'_>) -> bool {
    known.iter().all(|(note, stamp)| run.store.notes().recall(&stamp_of(note)) == *stamp)
}

/// The stamps of the statistics that a plan used, by the keys of their notes.
pub(crate) type Stamps = Vec<(String, Option<String>)>;

/// Returns the stamps of the statistics that the request has looked up.
pub(crate) fn stamps(run: &Run<'_>) -> Stamps {
    let described = run.state.described.borrow();
    described.iter().map(|(note, (stamp, _))| (note.clone(), stamp.clone())).collect()
}

/// Returns the rows of `system:dictionary`.
pub(crate) fn rows(run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
    let row = |note: String| {
        let row = recall(&note, run)?;
        let part = |name: &str| row.field(name).as_str().map(Name::from);
        let parts = vec![part("bucket")?, part("scope")?, part("keyspace")?];
        let id = parts.join(".");
        // The keyspace may have been dropped.
        run.keyspace(&Path { namespace: None, parts }).ok()?;
        let shown = members(&row).into_iter();
        let shown = shown.filter(|(name, _)| ![HISTOGRAMS, REFRESH].contains(&&**name));
        Some((Name::from(format!("default:{id}")), Value::object(shown)))
    };
    Ok(run.store.notes().keys(STATISTICS)?.into_iter().filter_map(row).collect())
}

fn recall(note: &str, run: &Run<'_>) -> Option<Value> {
    Value::parse(run.store.notes().recall(note)?.as_bytes()).ok()
}

fn note_of(keyspace: &Keyspace) -> String {
    let Keyspace { bucket, scope, collection, .. } = keyspace;
    // Names of keyspaces contain no slash.
    format!("{STATISTICS}{bucket}/{scope}/{collection}")
}

/// Returns the key of the note that changes with the statistics.
fn stamp_of(note: &str) -> String {
    format!("{note}/stamp")
}

fn members(value: &Value) -> BTreeMap<Name, Value> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
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

fn remove(statistics: &Statistics, keyspace: &Keyspace, run: &Run<'_>) -> Result<()> {
    let StatisticsOf::Keys(keys) = &statistics.of else {
        return keep(keyspace, None, run);
    };
    let Some(row) = recall(&note_of(keyspace), run) else { return Ok(()) };
    let mut row = members(&row);
    let gone: Vec<Name> = keys.iter().map(|key| name_of(key).into()).collect();
    let without = |all: &Value| {
        let mut kept = members(all);
        gone.iter().for_each(|name| drop(kept.remove(name)));
        Value::object(kept)
    };
    for member in ["distributions", HISTOGRAMS] {
        let Some(all) = row.get_mut(member) else { continue };
        *all = without(&*all);
    }
    if let Some(refresh) = row.get_mut(REFRESH) {
        let mut kept = members(refresh);
        let texts = without(&refresh.field("keys"));
        kept.insert("keys".into(), texts);
        *refresh = Value::object(kept);
    }
    let names = members(&row.get("distributions").cloned().unwrap_or_default()).into_keys();
    let names: Vec<Value> = names.map(Value::from).collect();
    row.insert("distributionKeys".into(), names.into());
    keep(keyspace, Some(Value::object(row)), run)
}

/// A key to describe.
struct DescribedKey {
    /// The name in `distributionKeys`.
    name: String,
    /// The text in a statement.
    text: String,
    /// An index definition with only this key, which evaluates it.
    definition: Definition,
}

/// Returns the keys to describe, in the order of their names.
fn described(
    statistics: &Statistics,
    keyspace: &Keyspace,
    run: &Run<'_>,
    context: &Context<'_>,
) -> Result<Vec<DescribedKey>> {
    let known = || -> Result<Vec<CreateIndex>> {
        let indexes = run.store.indexes(keyspace)?;
        let parsed = indexes.iter().map(|index| match parse(&index.definition)? {
            Statement::CreateIndex(create) => Ok(*create),
            _ => Err(Error::new(SEMANTICS, "this is not a CREATE INDEX statement")),
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
    let mut all: BTreeMap<String, DescribedKey> = BTreeMap::new();
    for key in keys {
        let name = name_of(&key);
        let key = IndexKey { descending: false, include_missing: true, ..key };
        let text = key.to_string();
        let definition = definition(statistics.keyspace.clone(), key)?;
        all.insert(name.clone(), DescribedKey { name, text, definition });
    }
    Ok(all.into_values().collect())
}

/// Returns an index definition with only this key, which is used to evaluate the key.
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
        vector: None,
        is_vector_index: false,
        include: Vec::new(),
    })
}

/// Returns the text of a key; for a single field, only its name.
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

/// Statistics of the documents that were read.
#[derive(Default)]
struct Found {
    documents: u64,
    body_bytes: u64,
    key_bytes: u64,
    /// One tally per key.
    tallies: Vec<Tally>,
}

fn look(keyspace: &Keyspace, keys: &[DescribedKey], sample: usize, run: &Run<'_>) -> Result<Found> {
    let tallies = keys.iter().map(|_| Tally::default()).collect();
    let mut found = Found { tallies, ..Found::default() };
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
            for (DescribedKey { definition, .. }, tally) in keys.iter().zip(&mut found.tallies) {
                // A value that fails to evaluate has no index entry either.
                for entry in definition.entries(&value, &meta).unwrap_or_default() {
                    let value = definition.decode(&entry).map(|(mut values, _)| values.remove(0));
                    let value = value.unwrap_or_default();
                    let bytes = value.size_bytes();
                    if tally.add(value) {
                        run.charge(bytes)?;
                    }
                }
            }
        }
    }
    run.give_back(run.charged() - before);
    Ok(found)
}
