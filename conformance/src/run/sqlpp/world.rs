//! A dataset on the host: collections of the default scope that are created once and restored after each
//! case.

use super::{BUCKET, Dataset, Effect, Target};
use crate::http;
use crate::run::shorten;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// A dataset on the host while cases run on it.
pub(super) struct World<'a> {
    target: &'a Target,
    data: &'a Dataset,
    /// The definitions that existed before; they stay unchanged.
    found: Inventory,
    /// The expected definitions with the dataset; `None` if it must be set up.
    wanted: Option<Inventory>,
    with_indexes: bool,
    /// True if the cases created the collections and may remove them.
    is_ours: bool,
}

/// The definitions of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Inventory {
    scopes: BTreeSet<String>,
    /// Scope and name.
    collections: BTreeSet<(String, String)>,
    /// By keyspace and name, without members that differ each time the same index is created.
    indexes: BTreeMap<(String, String), Json>,
    functions: BTreeSet<String>,
    prepared: BTreeSet<String>,
}

impl<'a> World<'a> {
    /// Returns a world that is not set up.
    pub fn new(target: &'a Target, data: &'a Dataset) -> World<'a> {
        let found = Inventory::default();
        World { target, data, found, wanted: None, with_indexes: false, is_ours: false }
    }

    /// Sets up the dataset, with or without its indexes.
    pub fn make_ready(&mut self, with_indexes: bool) -> Result<(), String> {
        if self.wanted.is_some() && self.with_indexes == with_indexes {
            return Ok(());
        }
        if self.wanted.is_none() {
            self.found = self.inventory()?;
            if !self.is_ours {
                self.protect_other_documents()?;
                self.is_ours = true;
            }
            self.remove_collections()?;
            for name in self.data.keyspaces.keys() {
                self.manage("POST", "_default/collections", &format!("name={name}"))?;
                self.fill(name)?;
            }
        }
        if with_indexes {
            self.create_indexes()?;
        }
        self.with_indexes = with_indexes;
        self.wanted = Some(self.inventory()?);
        Ok(())
    }

    /// Undoes the changes of a case.
    pub fn tidy(&mut self, effect: &Effect) -> Result<(), String> {
        if effect.prepares {
            let names: Vec<_> = self.found.prepared.iter().collect();
            self.run(&format!("DELETE FROM system:prepareds WHERE name NOT IN {}", json!(names)))?;
        }
        if effect.defines {
            self.tidy_definitions()?;
        }
        let Some(text) = effect.written.as_ref().filter(|_| self.wanted.is_some()) else {
            return Ok(());
        };
        for (name, documents) in &self.data.keyspaces {
            if text.contains(name.as_str()) {
                let ids: Vec<_> = documents.keys().collect();
                self.run(&format!("DELETE FROM `{name}` WHERE META().id NOT IN {}", json!(ids)))?;
                self.fill(name)?;
            }
        }
        Ok(())
    }

    fn tidy_definitions(&mut self) -> Result<(), String> {
        let Some(wanted) = self.wanted.clone() else { return Ok(()) };
        let now = self.inventory()?;
        for name in now.functions.difference(&wanted.functions) {
            self.run(&format!("DROP FUNCTION {name}"))?;
        }
        let other = |(place, index): &(&(String, String), &Json)| {
            wanted.indexes.get(*place) != Some(*index)
        };
        for ((keyspace, name), _) in now.indexes.iter().filter(other) {
            self.run(&format!("DROP INDEX `{name}` ON {keyspace}"))?;
        }
        for scope in now.scopes.difference(&wanted.scopes) {
            self.manage("DELETE", scope, "")?;
        }
        for (scope, name) in now.collections.difference(&wanted.collections) {
            if wanted.scopes.contains(scope) {
                self.manage("DELETE", &format!("{scope}/collections/{name}"), "")?;
            }
        }
        if !now.collections.is_superset(&wanted.collections) {
            self.wanted = None;
        } else if wanted
            .indexes
            .keys()
            .any(|place| now.indexes.get(place) != wanted.indexes.get(place))
        {
            self.create_indexes()?;
        }
        Ok(())
    }

    /// Runs a statement that must succeed; returns its rows.
    pub fn run(&self, statement: &str) -> Result<Vec<Json>, String> {
        let mut answer = self.ask(&json!({"statement": statement}))?;
        match (answer["status"] == "success", answer["results"].take()) {
            (true, Json::Array(rows)) => Ok(rows),
            _ => Err(format!("{}: {}", answer["errors"], shorten(statement))),
        }
    }

    /// Returns the answer to a request. Unqualified names belong to the default scope unless the request says
    /// otherwise.
    pub fn ask(&self, request: &Json) -> Result<Json, String> {
        let mut request = request.clone();
        if request.get("query_context").is_none() {
            request["query_context"] = format!("default:{BUCKET}._default").into();
        }
        request["scan_consistency"] = "request_plus".into();
        let body = request.to_string();
        let port = self.target.query_port;
        self.send(port, "POST", "/query/service", "application/json", &body)
            .and_then(|answer| answer.json().map_err(|error| error.to_string()))
    }

    /// Stores libraries of functions, given by their paths.
    pub fn put_libraries(&self, libraries: &BTreeMap<String, String>) -> Result<(), String> {
        libraries.iter().try_for_each(|(path, code)| self.library("POST", path, code))
    }

    pub fn remove_libraries(&self, libraries: &BTreeMap<String, String>) -> Result<(), String> {
        libraries.keys().try_for_each(|path| self.library("DELETE", path, ""))
    }

    fn library(&self, method: &str, path: &str, code: &str) -> Result<(), String> {
        let place = match path.split('/').collect::<Vec<_>>()[..] {
            [bucket, scope, name] => format!("{name}?bucket={bucket}&scope={scope}"),
            _ => path.to_owned(),
        };
        let place = format!("/evaluator/v1/libraries/{place}");
        let kind = "application/json";
        let answer = self.send(self.target.query_port, method, &place, kind, code)?;
        match (method, answer.status) {
            (_, 200) | ("DELETE", 404) => Ok(()),
            (_, status) => Err(format!("{method} {place}: {status} {}", answer.text())),
        }
    }

    fn send(
        &self,
        port: u16,
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
    ) -> Result<http::Answer, String> {
        let target = self.target;
        let address = format!("{}:{port}", target.host);
        let auth = Some((target.user.as_str(), target.password.as_str()));
        http::request(&address, method, path, auth, kind, body.as_bytes())
            .map_err(|error| error.to_string())
    }

    /// Sends a request about scopes and collections; removing a missing one is not an error.
    fn manage(&self, method: &str, path: &str, form: &str) -> Result<Json, String> {
        let path = format!("/pools/default/buckets/{BUCKET}/scopes/{path}");
        let path = path.trim_end_matches('/');
        let kind = "application/x-www-form-urlencoded";
        let answer = self.send(self.target.mgmt_port, method, path, kind, form)?;
        match (method, answer.status) {
            (_, 200) => answer.json().map_err(|error| error.to_string()),
            ("DELETE", 404) => Ok(Json::Null),
            (_, status) => Err(format!("{method} {path}: {status} {}", answer.text())),
        }
    }

    fn fill(&self, name: &str) -> Result<(), String> {
        let row = |(id, value): (&String, &Json)| format!("({}, {value})", json!(id));
        let rows: Vec<_> = self.data.keyspaces[name].iter().map(row).collect();
        if rows.is_empty() {
            return Ok(());
        }
        self.run(&format!("UPSERT INTO `{name}` (KEY, VALUE) VALUES {}", rows.join(", "))).map(drop)
    }

    /// Creates the missing indexes of the dataset.
    fn create_indexes(&self) -> Result<(), String> {
        const INDEX_EXISTS: u64 = 4300;
        for statement in &self.data.indexes {
            let answer = self.ask(&json!({"statement": statement}))?;
            let is_there = answer["errors"][0]["code"] == INDEX_EXISTS;
            if answer["status"] != "success" && !is_there {
                return Err(format!("{statement}: {}", answer["errors"]));
            }
        }
        Ok(())
    }

    /// Refuses to run if a collection with a dataset's name has documents of others, which stay unchanged.
    fn protect_other_documents(&self) -> Result<(), String> {
        for (name, documents) in &self.data.keyspaces {
            if !self.found.collections.contains(&("_default".to_owned(), name.clone())) {
                continue;
            }
            let ids: Vec<_> = documents.keys().collect();
            let others = self.run(&format!(
                "SELECT RAW META().id FROM `{name}` WHERE META().id NOT IN {} LIMIT 1",
                json!(ids)
            ))?;
            if let Some(id) = others.first() {
                return Err(format!(
                    "the collection _default.{name} has documents that are not the cases', as {id}: use a node of its own, or drop the collection"
                ));
            }
        }
        Ok(())
    }

    fn remove_collections(&self) -> Result<(), String> {
        for name in self.data.keyspaces.keys() {
            self.manage("DELETE", &format!("_default/collections/{name}"), "")?;
        }
        Ok(())
    }

    fn inventory(&self) -> Result<Inventory, String> {
        let mut inventory = Inventory::default();
        let manifest = self.manage("GET", "", "")?;
        for scope in manifest["scopes"].as_array().into_iter().flatten() {
            inventory.scopes.insert(text(&scope["name"]));
            for collection in scope["collections"].as_array().into_iter().flatten() {
                let place = (text(&scope["name"]), text(&collection["name"]));
                inventory.collections.insert(place);
            }
        }
        for mut index in self.run("SELECT RAW i FROM system:indexes AS i")? {
            let path = ["bucket_id", "scope_id", "keyspace_id"].map(|part| text(&index[part]));
            let parts: Vec<_> = path.iter().filter(|part| !part.is_empty()).collect();
            let quoted: Vec<_> = parts.iter().map(|part| format!("`{part}`")).collect();
            let place = (format!("default:{}", quoted.join(".")), text(&index["name"]));
            if let Some(fields) = index.as_object_mut() {
                fields.retain(|name, _| name != "id" && name != "metadata");
            }
            inventory.indexes.insert(place, index);
        }
        let functions = "SELECT RAW f.identity FROM system:functions AS f";
        inventory.functions = self.run(functions)?.iter().map(function_path).collect();
        let prepared = "SELECT RAW p.name FROM system:prepareds AS p";
        inventory.prepared = self.run(prepared)?.iter().map(text).collect();
        Ok(inventory)
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        if self.is_ours {
            // Remains disturb only the next run, which reports them.
            let _ = self.remove_collections();
        }
    }
}

/// Returns the path of a function, from its identity in `system:functions`.
fn function_path(identity: &Json) -> String {
    let parts = ["bucket", "scope", "name"].map(|part| text(&identity[part]));
    let parts: Vec<_> = parts.iter().filter(|part| !part.is_empty()).collect();
    let quoted: Vec<_> = parts.iter().map(|part| format!("`{part}`")).collect();
    format!("default:{}", quoted.join("."))
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
