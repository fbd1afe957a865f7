//! The common data of a file of view cases: documents and a design document on the host.

use super::Target;
use super::kv::{connect, prefix};
use crate::case::{Value, View, ViewCase, ViewFile};
use crate::http::{self, Answer, escape};
use crate::kv::KvClient;
use crate::kv::frame::invalid;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Time limit for a new design document to become queryable.
const READY_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Fixture<'t> {
    pub target: &'t Target,
    file: &'t ViewFile,
    /// The prefix of the documents' keys.
    pub prefix: String,
    /// The name of the design document.
    pub design: String,
}

impl<'t> Fixture<'t> {
    pub fn new(target: &'t Target, group: &str, file: &'t ViewFile) -> Fixture<'t> {
        let name = group.replace('/', "_");
        let design = format!("{name}_{}", target.run);
        Fixture { target, file, prefix: prefix(target, &name), design }
    }

    /// Sends a request to the host's views, without a login if `anonymous`.
    pub fn http(
        &self,
        method: &str,
        path: &str,
        anonymous: bool,
        body: &[u8],
    ) -> io::Result<Answer> {
        let address = format!("{}:{}", self.target.host, self.target.views_port);
        let auth = (self.target.user.as_str(), self.target.password.as_str());
        let auth = (!anonymous).then_some(auth);
        http::request(&address, method, path, auth, "application/json", body)
    }

    pub fn design_path(&self) -> String {
        format!("/{}/_design/{}", escape(&self.target.bucket), escape(&self.design))
    }

    /// Stores all documents and views of the file.
    pub fn put(&self) -> io::Result<()> {
        let mut client = connect(self.target)?;
        for (key, value) in self.documents() {
            self.set(&mut client, &key, Some(&value))?;
        }
        self.put_design(&self.file.views)
    }

    /// Changes documents and views as a case requires.
    pub fn prepare(&self, case: &ViewCase) -> io::Result<()> {
        if let Some(views) = &case.design {
            self.put_design(views)?;
        }
        case.changes.iter().try_for_each(|documents| self.change(documents))
    }

    /// Restores the file's documents and views after a case.
    pub fn restore(&self, case: &ViewCase) -> io::Result<()> {
        if !case.changes.is_empty() {
            let file: BTreeMap<String, Value> = self.documents().collect();
            let mut client = connect(self.target)?;
            for key in case.changes.iter().flat_map(BTreeMap::keys) {
                match file.get(key) {
                    Some(value) => self.set(&mut client, key, Some(value))?,
                    // The case may have deleted the document itself.
                    None => drop(self.set(&mut client, key, None)),
                }
            }
        }
        if case.design.is_some() { self.put_design(&self.file.views) } else { Ok(()) }
    }

    pub fn remove(&self) -> io::Result<()> {
        self.http("DELETE", &self.design_path(), false, &[])?;
        let mut client = connect(self.target)?;
        for (key, _) in self.documents() {
            client.delete(format!("{}{key}", self.prefix).as_bytes(), 0)?;
        }
        Ok(())
    }

    /// Returns the documents of the file, including the numbered ones.
    fn documents(&self) -> impl Iterator<Item = (String, Value)> {
        let numbered = self.file.numbered.iter().flat_map(|(name, count)| {
            (0..*count).map(move |n| (format!("{name}{n}"), Value::Json(json!({ "n": n }))))
        });
        let documents = self.file.documents.iter();
        documents.map(|(key, value)| (key.clone(), value.clone())).chain(numbered)
    }

    fn put_design(&self, views: &BTreeMap<String, View>) -> io::Result<()> {
        let design = json!({ "views": views }).to_string().replace("$PREFIX", &self.prefix);
        let answer = self.http("PUT", &self.design_path(), false, design.as_bytes())?;
        if !matches!(answer.status, 200..=202) {
            return Err(invalid(&format!("design document: {} {}", answer.status, answer.text())));
        }
        let Some(view) = views.keys().next() else { return Ok(()) };
        let probe = format!("{}/_view/{}?stale=ok&limit=1", self.design_path(), escape(view));
        let end = Instant::now() + READY_WITHIN;
        while self.http("GET", &probe, false, &[])?.status == 404 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Changes documents whose previous rows are already in the views.
    fn change(&self, documents: &BTreeMap<String, Option<Value>>) -> io::Result<()> {
        if let Some(view) = self.file.views.keys().next() {
            let path = format!("{}/_view/{}?stale=false&limit=0", self.design_path(), escape(view));
            self.http("GET", &path, false, &[])?;
        }
        let mut client = connect(self.target)?;
        documents.iter().try_for_each(|(key, value)| self.set(&mut client, key, value.as_ref()))
    }

    /// Stores or deletes a document.
    fn set(&self, client: &mut KvClient, key: &str, value: Option<&Value>) -> io::Result<()> {
        let whole = format!("{}{key}", self.prefix);
        let reply = match value {
            Some(value) => client.set(whole.as_bytes(), &bytes(value)?)?,
            None => client.delete(whole.as_bytes(), 0)?,
        };
        if reply.is_success() {
            return Ok(());
        }
        let status = crate::names::status_name(reply.status);
        Err(invalid(&format!("document {key}: {status}")))
    }
}

/// Returns the body of a document.
fn bytes(value: &Value) -> io::Result<Vec<u8>> {
    match value {
        Value::Json(json) => Ok(json.to_string().into_bytes()),
        Value::Text(text) => Ok(text.clone().into_bytes()),
        Value::Base64(text) => STANDARD.decode(text).map_err(|_| invalid("base64 of a document")),
        other => Err(invalid(&format!("documents of views are JSON, text or base64: {other:?}"))),
    }
}
