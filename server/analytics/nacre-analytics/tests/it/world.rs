//! Collections with documents, and both ways to answer a query.

use nacre_analytics::catalog::{Catalog, Collection};
use nacre_analytics::error::{Error, Result};
use nacre_analytics::names::Resolver;
use nacre_analytics::plan::fragment::{Fragment, PARTIAL, Split, split};
use nacre_analytics::plan::{Outcome, Planner};
use nacre_analytics::rows::{self, Patience, Snapshots};
use nacre_analytics::shadow::{Row, Shadow, Snapshot};
use nacre_query::Settings;
use nacre_sql::ast::{Select, Statement};
use nacre_sql::{Name, Value, parse_analytics};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct World {
    planner: Planner,
    snapshots: Snapshots,
    catalog: Catalog,
    settings: Settings,
}

/// The way a query over columns was answered.
pub enum Answer {
    Rows(Vec<String>),
    NoPlan(String),
}

impl World {
    /// Creates collections with documents, each of which was written before with another value.
    pub fn new(collections: &[(&str, Vec<Value>)]) -> World {
        let named = |documents: &[Value]| -> Vec<(String, String)> {
            let texts = documents.iter().map(Value::to_json).enumerate();
            texts.map(|(at, text)| (format!("k{at:04}"), text)).collect()
        };
        let collections: Vec<_> =
            collections.iter().map(|(name, documents)| (*name, named(documents))).collect();
        World::with_ids(&collections)
    }

    /// Like `new`, for documents with their IDs.
    pub fn with_ids(collections: &[(&str, Vec<(String, String)>)]) -> World {
        let (mut snapshots, mut catalog) = (Snapshots::new(), Catalog::default());
        for (name, documents) in collections {
            let mut shadow = Shadow::default();
            for round in 0..2 {
                for (id, text) in documents {
                    let text = if round == 0 { "{\"a\":\"stale\"}" } else { text };
                    let (id, text) = (id.as_str().into(), text.into());
                    shadow.upsert(Row { id, vbid: 0, cas: 1, flags: 0, expiry: 0, text });
                }
                shadow.snapshot();
            }
            snapshots.insert(("Default".to_owned(), (*name).to_owned()), shadow.snapshot());
            let source = ["b".to_owned(), "s".to_owned(), (*name).to_owned()];
            let collection = Collection { source, condition: None, indexes: BTreeMap::new() };
            let scope = catalog.scope_mut("Default").unwrap();
            scope.collections.insert((*name).to_owned(), collection);
        }
        let folder = std::env::temp_dir().join("nacre-analytics-tests");
        let planner = Planner::new(256 << 20, &folder).unwrap();
        World { planner, snapshots, catalog, settings: Settings::default() }
    }

    /// Sets the parameters of the following queries.
    pub fn set_parameters(&mut self, positional: Vec<Value>, named: BTreeMap<Name, Value>) {
        self.settings = Settings { positional, named, ..self.settings.clone() };
    }

    fn select(&self, text: &str) -> Result<Box<Select>> {
        let Statement::Select(mut select) = parse_analytics(text)? else {
            return Err(Error::new(24001, format!("{text} is not a query")));
        };
        Resolver::new(&self.catalog, "Default", text).select(&mut select)?;
        Ok(select)
    }

    /// Sets the memory limit of all queries together.
    pub fn set_memory(&mut self, bytes: usize) {
        let folder = std::env::temp_dir().join("nacre-analytics-tests");
        self.planner = Planner::new(bytes, &folder).unwrap();
        self.settings.memory_quota = bytes;
    }

    /// Returns a patience of ten minutes, because a busy machine is slow.
    pub fn patience() -> Patience {
        Patience {
            deadline: Instant::now() + Duration::from_secs(600),
            is_cancelled: Arc::default(),
            client: None,
        }
    }

    /// Answers over columns, if there is a plan.
    pub fn columns(&self, text: &str) -> Result<Answer> {
        self.columns_within(text, &World::patience())
    }

    /// Like `columns`, with a time limit.
    pub fn columns_within(&self, text: &str, patience: &Patience) -> Result<Answer> {
        let select = self.select(text)?;
        match self.planner.plan(&select, &self.snapshots, &self.settings)? {
            Outcome::Rows(reason) => Ok(Answer::NoPlan(reason)),
            Outcome::Columns(query) => {
                let mut rows = Vec::new();
                self.planner.run(query, patience, &mut |row| {
                    rows.push(row);
                    Ok(())
                })?;
                Ok(Answer::Rows(rows))
            }
        }
    }

    /// Answers document by document.
    pub fn rows(&self, text: &str) -> Result<Vec<String>> {
        self.rows_within(text, &World::patience())
    }

    /// Answers as several processes do: each runs the fragments over its part of the documents, and one combines their rows.
    pub fn processes(&self, text: &str, count: usize) -> Result<Vec<String>> {
        let Statement::Select(mut select) = parse_analytics(text)? else {
            return Err(Error::new(24001, format!("{text} is not a query")));
        };
        let mut resolver = Resolver::new(&self.catalog, "Default", text);
        resolver.select(&mut select)?;
        let used = std::mem::take(&mut resolver.used);
        let Split { groups, documents } = split(&select, &used, &self.settings);
        if let Some((fragment, last)) = groups
            && let Ok(mut rows) = self.gathered(std::slice::from_ref(&fragment), count)
        {
            let rows = rows.remove(&fragment.collection).unwrap_or_default();
            let name = (PARTIAL.0.to_owned(), PARTIAL.1.to_owned());
            return self.run(&last, &Snapshots::from([(name, rows)]), &self.settings);
        }
        let snapshots = match self.gathered(&documents, count) {
            Ok(snapshots) => snapshots,
            Err(_) => {
                let whole: Vec<Fragment> = used.iter().map(Fragment::whole).collect();
                self.gathered(&whole, count)?
            }
        };
        self.run(&select, &snapshots, &self.settings)
    }

    /// Returns the rows of fragments over all parts.
    fn gathered(&self, fragments: &[Fragment], count: usize) -> Result<Snapshots> {
        let mut gathered = Snapshots::new();
        for Fragment { collection, statement } in fragments {
            let mut rows: Vec<Row> = Vec::new();
            for part in 0..count {
                let documents = self.part(collection, part, count);
                let Some(statement) = statement else {
                    rows.extend(documents);
                    continue;
                };
                let Statement::Select(select) = parse_analytics(statement)? else {
                    panic!("{statement} is not a query")
                };
                let snapshots = Snapshots::from([(collection.clone(), Snapshot::of(documents))]);
                for text in self.run(&select, &snapshots, &Settings::default())? {
                    let (id, text) = (format!("{part}:{}", rows.len()).into(), text.into());
                    rows.push(Row { id, vbid: 0, cas: 0, flags: 0, expiry: 0, text });
                }
            }
            gathered.insert(collection.clone(), Snapshot::of(rows));
        }
        Ok(gathered)
    }

    /// Returns the documents of a part of a collection.
    fn part(&self, collection: &(String, String), part: usize, count: usize) -> Vec<Row> {
        let views = &self.snapshots[collection].views;
        let documents = views.iter().flat_map(|view| {
            view.live_rows().map(|at| view.segment.rows[at].clone()).collect::<Vec<Row>>()
        });
        let numbered = documents.enumerate().filter(|(at, _)| at % count == part);
        numbered.map(|(_, row)| row).collect()
    }

    /// Answers over columns if there is a plan, otherwise document by document.
    fn run(
        &self,
        select: &Select,
        snapshots: &Snapshots,
        settings: &Settings,
    ) -> Result<Vec<String>> {
        let (mut found, patience) = (Vec::new(), World::patience());
        let mut take = |row: String| {
            found.push(row);
            Ok(())
        };
        match self.planner.plan(select, snapshots, settings)? {
            Outcome::Columns(query) => self.planner.run(query, &patience, &mut take)?,
            Outcome::Rows(_) => {
                rows::run(select.clone(), settings.clone(), snapshots, &patience, &mut take)?;
            }
        }
        Ok(found)
    }

    /// Like `rows`, with a time limit.
    pub fn rows_within(&self, text: &str, patience: &Patience) -> Result<Vec<String>> {
        let select = *self.select(text)?;
        let mut found = Vec::new();
        rows::run(select, self.settings.clone(), &self.snapshots, patience, &mut |row| {
            found.push(row);
            Ok(())
        })?;
        Ok(found)
    }
}

/// Parses documents from JSON texts.
pub fn documents(texts: &[&str]) -> Vec<Value> {
    texts.iter().map(|text| Value::parse(text.as_bytes()).unwrap()).collect()
}

/// Returns rows in a normal order, with rounded numbers.
pub fn normal(rows: &[String]) -> Vec<String> {
    let mut normal = in_order(rows);
    normal.sort();
    normal
}

/// Returns rows in their order, with rounded numbers, because sums of doubles depend on their order. -0
/// becomes 0.
pub fn in_order(rows: &[String]) -> Vec<String> {
    let parsed = rows.iter().map(|row| Value::parse(row.as_bytes()).unwrap());
    parsed.map(|row| rounded(&row).to_sorted_json()).collect()
}

/// All doubles above this magnitude are integral.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// The first double beyond the 64-bit integers.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

fn rounded(value: &Value) -> Value {
    match value {
        Value::Float(number) if *number == 0.0 => Value::Int(0),
        // Such a number equals an integer.
        Value::Float(number) if number.abs() > EXACT && (-BEYOND..BEYOND).contains(number) => {
            Value::Int(*number as i64)
        }
        Value::Float(number) => Value::string(format!("{number:.9e}")),
        Value::Int(number) if number.unsigned_abs() > 1 << 53 => value.clone(),
        Value::Int(0) => Value::Int(0),
        Value::Int(number) => Value::string(format!("{:.9e}", *number as f64)),
        Value::Array(elements) => Value::array(elements.iter().map(rounded).collect()),
        Value::Object(fields) => {
            Value::object(fields.iter().map(|(name, value)| (name.clone(), rounded(value))))
        }
        other => other.clone(),
    }
}
