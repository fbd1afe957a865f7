//! Collections with documents, and both ways to answer a query.

use nacre_analytics::catalog::{Catalog, Collection};
use nacre_analytics::error::Result;
use nacre_analytics::names::Resolver;
use nacre_analytics::plan::{Outcome, Planner};
use nacre_analytics::rows::{self, Patience, Snapshots};
use nacre_analytics::shadow::{Row, Shadow};
use nacre_query::Settings;
use nacre_sql::ast::{Select, Statement};
use nacre_sql::{Value, parse_analytics};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct World {
    planner: Planner,
    snapshots: Snapshots,
    catalog: Catalog,
}

/// How a query was answered over columns.
pub enum Answer {
    Rows(Vec<String>),
    NoPlan(String),
}

impl World {
    /// Makes a world of collections with documents, each of which was written before with another value.
    pub fn new(collections: &[(&str, Vec<Value>)]) -> World {
        let (mut snapshots, mut catalog) = (Snapshots::new(), Catalog::default());
        for (name, documents) in collections {
            let mut shadow = Shadow::default();
            for round in 0..2 {
                for (at, document) in documents.iter().enumerate() {
                    let text = if round == 0 {
                        "{\"a\":\"stale\"}".to_owned()
                    } else {
                        document.to_json()
                    };
                    let id = format!("k{at:04}");
                    let (id, text) = (id.as_str().into(), text.as_str().into());
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
        World { planner: Planner::new(256 << 20, &folder).unwrap(), snapshots, catalog }
    }

    fn select(&self, text: &str) -> Result<Box<Select>> {
        let Statement::Select(mut select) = parse_analytics(text)? else {
            panic!("{text} is no query")
        };
        Resolver::new(&self.catalog, "Default", text).select(&mut select)?;
        Ok(select)
    }

    fn patience() -> Patience {
        Patience {
            deadline: Instant::now() + Duration::from_secs(60),
            is_cancelled: Arc::default(),
        }
    }

    /// Answers over columns, if there is a plan.
    pub fn columns(&self, text: &str) -> Result<Answer> {
        let select = self.select(text)?;
        match self.planner.plan(&select, &self.snapshots, &Settings::default())? {
            Outcome::Rows(reason) => Ok(Answer::NoPlan(reason)),
            Outcome::Columns(query) => {
                let mut rows = Vec::new();
                self.planner.run(query, &World::patience(), &mut |row| {
                    rows.push(row);
                    Ok(())
                })?;
                Ok(Answer::Rows(rows))
            }
        }
    }

    /// Answers document by document.
    pub fn rows(&self, text: &str) -> Result<Vec<String>> {
        let text = self.select(text)?.to_string();
        let mut found = Vec::new();
        rows::run(&text, Settings::default(), &self.snapshots, &World::patience(), &mut |row| {
            found.push(row);
            Ok(())
        })?;
        Ok(found)
    }
}

/// Documents from JSON texts.
pub fn documents(texts: &[&str]) -> Vec<Value> {
    texts.iter().map(|text| Value::parse(text.as_bytes()).unwrap()).collect()
}

/// Rows in an order of their own, with numbers rounded, as sums of doubles depend on their order.
pub fn normal(rows: &[String]) -> Vec<String> {
    let mut normal: Vec<String> = rows
        .iter()
        .map(|row| rounded(&Value::parse(row.as_bytes()).unwrap()).to_sorted_json())
        .collect();
    normal.sort();
    normal
}

fn rounded(value: &Value) -> Value {
    match value {
        Value::Float(number) => Value::string(format!("{number:.9e}")),
        Value::Int(number) => Value::string(format!("{:.9e}", *number as f64)),
        Value::Array(elements) => Value::array(elements.iter().map(rounded).collect()),
        Value::Object(fields) => {
            Value::object(fields.iter().map(|(name, value)| (name.clone(), rounded(value))))
        }
        other => other.clone(),
    }
}
