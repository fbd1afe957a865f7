//! Cases for functions: deploys a function on a separate collection, writes documents, and checks its effects until
//! they are as expected.

use super::echo::Echo;
use super::kv::connect;
use super::{Target, same_json, shorten};
use crate::case::{EventingCase, EventingExpect, EventingFile, EventingWrite, Value};
use crate::http::{self, Answer, escape};
use crate::kv::frame::invalid;
use crate::kv::{KvClient, Request};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Time limit for a function to have all expected effects.
const WITHIN: Duration = Duration::from_secs(60);
/// The pause between two checks. Expected effects must be observed twice.
const PAUSE: Duration = Duration::from_millis(40);

pub(super) fn play(target: &Target, group: &str, file: &EventingFile, done: super::Done<'_>) {
    let cases: Vec<&EventingCase> =
        file.cases.iter().filter(|case| target.wants(group, &case.name)).collect();
    if cases.is_empty() {
        return;
    }
    let scope = format!("{}_{}", group.replace('/', "_"), target.run);
    let stage = Stage::set(target, &scope);
    for (index, case) in cases.iter().enumerate() {
        let problem = match &stage {
            Ok(stage) => stage.play(case, index).unwrap_or_else(|error| Some(error.to_string())),
            Err(error) => Some(format!("the scope could not be made: {error}")),
        };
        done(group, &case.name, problem);
    }
    if let Ok(stage) = stage {
        // Functions of the scope are removed with it.
        let _ = stage.manage("DELETE", &format!("/{scope}"), "");
    }
}

/// A scope for the cases of one file, with a collection for the metadata of functions.
struct Stage<'t> {
    target: &'t Target,
    scope: String,
    echo: Echo,
}

impl<'t> Stage<'t> {
    fn set(target: &'t Target, scope: &str) -> io::Result<Stage<'t>> {
        let stage = Stage { target, scope: scope.to_owned(), echo: Echo::start()? };
        stage.manage("POST", "", &format!("name={scope}"))?;
        stage.collection("meta")?;
        Ok(stage)
    }

    fn http(
        &self,
        port: u16,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> io::Result<Answer> {
        let address = format!("{}:{port}", self.target.host);
        let auth = (self.target.user.as_str(), self.target.password.as_str());
        http::request(&address, method, path, Some(auth), kind, body)
    }

    fn manage(&self, method: &str, path: &str, form: &str) -> io::Result<()> {
        let path = format!("/pools/default/buckets/{}/scopes{path}", escape(&self.target.bucket));
        let kind = "application/x-www-form-urlencoded";
        let answer = self.http(self.target.mgmt_port, method, &path, kind, form.as_bytes())?;
        match answer.status {
            200..=202 => Ok(()),
            status => Err(invalid(&format!("{method} {path}: {status} {}", answer.text()))),
        }
    }

    fn collection(&self, name: &str) -> io::Result<()> {
        self.manage("POST", &format!("/{}/collections", self.scope), &format!("name={name}"))
    }

    /// Sends a request about the function of a case.
    fn eventing(&self, method: &str, path: &str, query: &str, body: &str) -> io::Result<Answer> {
        let scope = format!("bucket={}&scope={}", escape(&self.target.bucket), self.scope);
        let path = format!("{path}?{scope}{query}");
        self.http(self.target.eventing_port, method, &path, "application/json", body.as_bytes())
    }

    fn play(&self, case: &EventingCase, index: usize) -> io::Result<Option<String>> {
        let names = Names {
            function: format!("case{index}"),
            source: format!("s{index}"),
            destination: format!("d{index}"),
        };
        self.collection(&names.source)?;
        self.collection(&names.destination)?;
        let mut client = connect(self.target)?;
        let places = Places {
            source: client.collection_id(&format!("{}.{}", self.scope, names.source))?,
            destination: client.collection_id(&format!("{}.{}", self.scope, names.destination))?,
        };
        for write in &case.given {
            put(&mut client, places.destination, write)?;
        }
        for write in &case.before {
            put(&mut client, places.source, write)?;
        }
        let path = format!("/api/v1/functions/{}", names.function);
        let refused = self.deploy(case, &names, &path)?.err();
        if refused != case.expect.refused {
            let (wanted, got) = (&case.expect.refused, refused);
            return Ok(Some(format!("expected the refusal {wanted:?}, got {got:?}")));
        }
        if case.expect.refused.is_some() {
            return Ok(None);
        }
        for write in &case.writes {
            put(&mut client, places.source, write)?;
        }
        let problem = self.wait(case, &names, &mut client, &places)?;
        self.eventing("POST", &format!("{path}/undeploy"), "", "")?;
        Ok(problem)
    }

    /// Defines and deploys a function; returns the name of the error if it is refused.
    fn deploy(
        &self,
        case: &EventingCase,
        names: &Names,
        path: &str,
    ) -> io::Result<Result<(), String>> {
        let body = self.definition(case, names).to_string();
        for (path, body) in [(path.to_owned(), &body[..]), (format!("{path}/deploy"), "")] {
            let answer = self.eventing("POST", &path, "", body)?;
            if answer.status != 200 {
                let name = answer.json()?["name"].as_str().unwrap_or_default().to_owned();
                return Ok(Err(name));
            }
        }
        let end = Instant::now() + WITHIN;
        loop {
            let status =
                self.eventing("GET", &format!("/api/v1/status/{}", names.function), "", "")?;
            let status = status.json()?["app"].clone();
            let wanted = if case.expect.undeployed { "undeployed" } else { "deployed" };
            if status["composite_status"] == wanted {
                return Ok(Ok(()));
            }
            if Instant::now() >= end {
                return Err(invalid(&format!("not {wanted} in time: {status}")));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn definition(&self, case: &EventingCase, names: &Names) -> Json {
        let bucket = &self.target.bucket;
        let binding = |alias: &str, collection: &str, access: &str| {
            json!({"alias": alias, "bucket_name": bucket, "scope_name": self.scope,
                "collection_name": collection, "access": access})
        };
        let urls = case.urls.iter().map(|(alias, url)| {
            let mut binding = json!({"hostname": self.fill(&url.url), "value": alias,
                "auth_type": url.auth.as_deref().unwrap_or("no-auth"),
                "allow_cookies": url.cookies, "validate_ssl_certificate": true});
            for (name, value) in &url.credentials {
                binding[name] = json!(value);
            }
            binding
        });
        let constants = case.constants.iter();
        let constants =
            constants.map(|(alias, literal)| json!({"value": alias, "literal": literal}));
        let mut definition = json!({
            "appname": names.function,
            "appcode": self.fill(&case.code)
                .replace("$SOURCE", &format!("{bucket}.{}.{}", self.scope, names.source))
                .replace("$DESTINATION", &format!("{bucket}.{}.{}", self.scope, names.destination)),
            "function_scope": {"bucket": bucket, "scope": self.scope},
            "settings": case.settings,
            "depcfg": {
                "source_bucket": bucket, "source_scope": self.scope,
                "source_collection": case.source_collection.as_ref().unwrap_or(&names.source),
                "metadata_bucket": bucket, "metadata_scope": self.scope,
                "metadata_collection": case.metadata_collection.as_deref().unwrap_or("meta"),
                "buckets": [
                    binding("src", &names.source, "rw"),
                    binding("dst", &names.destination, "rw"),
                    binding("ro", &names.destination, "r"),
                    binding("all", "*", "rw"),
                ],
                "curl": urls.collect::<Vec<_>>(),
                "constants": constants.collect::<Vec<_>>(),
            },
        });
        // Members that are not in the protocol are sent only if a case needs them.
        if let Some(language) = &case.language {
            definition["language"] = json!(language);
        }
        if !case.modules.is_empty() {
            definition["modules"] = json!(case.modules);
        }
        definition
    }

    /// Returns a text with the address of the echo server inserted.
    fn fill(&self, text: &str) -> String {
        text.replace("$SERVER", &self.echo.url())
    }

    fn wait(
        &self,
        case: &EventingCase,
        names: &Names,
        client: &mut KvClient,
        places: &Places,
    ) -> io::Result<Option<String>> {
        let end = Instant::now() + WITHIN;
        let mut agreed = 0;
        loop {
            let problem = self.look(&case.expect, names, client, places)?;
            agreed = if problem.is_none() { agreed + 1 } else { 0 };
            if agreed == 2 || Instant::now() >= end {
                return Ok(problem);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the first difference from the expected effects.
    fn look(
        &self,
        expect: &EventingExpect,
        names: &Names,
        client: &mut KvClient,
        places: &Places,
    ) -> io::Result<Option<String>> {
        let found = [(&expect.destination, places.destination), (&expect.source, places.source)];
        for (wanted, collection) in found {
            if let Some(problem) = documents(wanted, collection, client)? {
                return Ok(Some(problem));
            }
        }
        if expect.undeployed {
            return Ok(None);
        }
        let name = format!("&name={}", names.function);
        let stats = |path: &str| self.eventing("GET", path, &name, "")?.json();
        let (execution, failure) = (stats("/getExecutionStats")?, stats("/getFailureStats")?);
        for (name, wanted) in &expect.stats {
            let got = execution.get(name).or(failure.get(name)).cloned().unwrap_or_default();
            let holds = match wanted.get("at_least").and_then(Json::as_u64) {
                Some(least) => got.as_u64().is_some_and(|got| got >= least),
                None => same_json(wanted, &got),
            };
            if !holds {
                return Ok(Some(format!("expected {name} to be {wanted}, got {got}")));
            }
        }
        if !expect.log.is_empty() {
            let log = self.eventing("GET", "/getAppLog", &name, "")?.text();
            // The newest line comes first.
            let mut lines = log.lines().rev();
            if let Some(missing) =
                expect.log.iter().find(|wanted| !lines.any(|line| line.contains(*wanted)))
            {
                return Ok(Some(format!("expected {missing:?} in the log {}", shorten(&log))));
            }
        }
        let all = self.eventing("GET", "/api/v1/stats", "", "")?.json()?;
        let own = all.as_array().into_iter().flatten().find(|stats| {
            stats["function_name"] == names.function
                && stats["function_scope"]["scope"] == self.scope
        });
        let backlog = own.map(|stats| stats["events_remaining"]["dcp_backlog"].clone());
        Ok((backlog != Some(json!(0))).then(|| format!("it has yet to process {backlog:?}")))
    }
}

struct Names {
    function: String,
    source: String,
    destination: String,
}

/// Collections by ID.
struct Places {
    source: u32,
    destination: u32,
}

fn put(client: &mut KvClient, collection: u32, write: &EventingWrite) -> io::Result<()> {
    let key = client.wire_key(collection, write.key.as_bytes());
    let vbucket = client.vbid(write.key.as_bytes());
    let request = match &write.value {
        None => Request { opcode: 0x04, vbid: vbucket, key, ..Request::default() },
        Some(value) => Request {
            opcode: 0x01,
            vbid: vbucket,
            key,
            extras: [&[0; 4], &write.expiry.to_be_bytes()[..]].concat(),
            value: bytes(value)?,
            ..Request::default()
        },
    };
    let reply = client.call(&request)?;
    match reply.is_success() {
        true => Ok(()),
        false => Err(invalid(&format!("document {}: {}", write.key, reply.text()))),
    }
}

fn bytes(value: &Value) -> io::Result<Vec<u8>> {
    match value {
        Value::Json(json) => Ok(json.to_string().into_bytes()),
        Value::Text(text) => Ok(text.clone().into_bytes()),
        Value::Repeat { text, count } => Ok(text.repeat(*count).into_bytes()),
        other => Err(invalid(&format!("documents of functions are JSON or text: {other:?}"))),
    }
}

fn documents(
    wanted: &BTreeMap<String, Option<Value>>,
    collection: u32,
    client: &mut KvClient,
) -> io::Result<Option<String>> {
    for (name, wanted) in wanted {
        let (key, vbucket) =
            (client.wire_key(collection, name.as_bytes()), client.vbid(name.as_bytes()));
        let reply =
            client.call(&Request { opcode: 0x00, vbid: vbucket, key, ..Request::default() })?;
        let found = reply.is_success().then_some(&reply.value);
        let holds = match (wanted, found) {
            (None, None) => true,
            (Some(Value::Json(wanted)), Some(found)) => {
                serde_json::from_slice(found).is_ok_and(|found: Json| same_json(wanted, &found))
            }
            (Some(wanted), Some(found)) => bytes(wanted)? == *found,
            _ => false,
        };
        if !holds {
            let found = found.map(|found| String::from_utf8_lossy(found).into_owned());
            return Ok(Some(format!("expected {name} to be {wanted:?}, got {found:?}")));
        }
    }
    Ok(None)
}
