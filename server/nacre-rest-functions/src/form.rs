//! Definitions of functions in the JSON that Couchbase exports, as clients write and read them.
//!
//! Settings that have no effect in nacre are kept and returned unchanged. For a setting that has an effect, the server
//! refuses unsupported values.

use super::error::Kind;
use nacre_cluster::{
    BucketBinding, ConstantBinding, Function, FunctionDefinition, FunctionId, FunctionKeyspace,
    FunctionState, Language, Since, UrlAuth, UrlBinding,
};
use nacre_http::body::Reply;
use nacre_plugins_service::functions::TIMEOUT_S_MAX;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Default statement before the code of a function.
const STRICT: &str = "'use strict';";
/// Default timeout of a call, in seconds.
const TIMEOUT_S: u32 = TIMEOUT_S_MAX;
/// Default size of a timer's context in bytes; below it the minimum and the maximum.
const TIMER_CONTEXT_BYTES: u32 = 1024;
const TIMER_CONTEXT_BYTES_MIN: u32 = 20;
const TIMER_CONTEXT_BYTES_MAX: u32 = 20 << 20;
/// The name that a function without a scope has as its bucket and its scope.
const ALL: &str = "*";

/// A function, as a client writes it.
#[derive(Deserialize)]
pub(super) struct Written {
    pub appname: String,
    #[serde(default)]
    pub appcode: String,
    #[serde(default)]
    pub modules: BTreeMap<String, String>,
    #[serde(default)]
    pub language: Language,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub depcfg: Config,
    #[serde(default)]
    pub settings: Map<String, Value>,
    #[serde(default)]
    pub function_scope: Option<Scope>,
}

#[derive(Deserialize, Clone)]
pub(super) struct Scope {
    #[serde(default)]
    pub bucket: String,
    #[serde(default)]
    pub scope: String,
}

/// Source and bindings of a function.
#[derive(Deserialize, Default)]
pub(super) struct Config {
    #[serde(default)]
    source_bucket: String,
    #[serde(default)]
    source_scope: String,
    #[serde(default)]
    source_collection: String,
    #[serde(default)]
    metadata_bucket: String,
    #[serde(default)]
    metadata_scope: String,
    #[serde(default)]
    metadata_collection: String,
    // Exports have null for missing lists.
    #[serde(default)]
    buckets: Option<Vec<Bucket>>,
    #[serde(default)]
    curl: Option<Vec<Url>>,
    #[serde(default)]
    constants: Option<Vec<Constant>>,
}

#[derive(Deserialize)]
struct Bucket {
    alias: String,
    bucket_name: String,
    #[serde(default)]
    scope_name: String,
    #[serde(default)]
    collection_name: String,
    #[serde(default)]
    access: String,
}

#[derive(Deserialize)]
struct Url {
    hostname: String,
    value: String,
    #[serde(default)]
    auth_type: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    bearer_key: String,
    #[serde(default)]
    allow_cookies: bool,
    #[serde(default)]
    validate_ssl_certificate: bool,
}

#[derive(Deserialize)]
struct Constant {
    value: String,
    literal: String,
}

impl Scope {
    /// Returns the bucket and the scope, or `None` for a function without a scope.
    pub fn named(&self) -> Option<(String, String)> {
        let all = |name: &str| name.is_empty() || name == ALL;
        (!all(&self.bucket) && !all(&self.scope)).then(|| (self.bucket.clone(), self.scope.clone()))
    }
}

/// Reads the functions in a body, which is one function or an array.
pub(super) fn read(body: &[u8]) -> Result<Vec<Written>, Reply> {
    let wrong = |error: serde_json::Error| Kind::Unmarshal.reply(&format!("the body: {error}"));
    let value: Value = serde_json::from_slice(body).map_err(wrong)?;
    let all = match value {
        Value::Array(all) => all,
        one => vec![one],
    };
    all.into_iter().map(|one| serde_json::from_value(one).map_err(wrong)).collect()
}

/// Returns the state that a client's settings ask for, if they do.
pub(super) fn wanted_state(settings: &Map<String, Value>) -> Result<Option<FunctionState>, Reply> {
    let flag = |name: &str| settings.get(name).map(|value| value.as_bool());
    match (flag("deployment_status"), flag("processing_status")) {
        (None, None) => Ok(None),
        (Some(Some(true)), Some(Some(true))) => Ok(Some(FunctionState::Deployed)),
        (Some(Some(true)), Some(Some(false))) => Ok(Some(FunctionState::Paused)),
        (Some(Some(false)), Some(Some(false))) => Ok(Some(FunctionState::Undeployed)),
        _ => Err(Kind::NoStatus.reply(
            "deployment_status and processing_status are true and true to deploy or resume, true and false to pause, false and false to undeploy",
        )),
    }
}

fn invalid(description: &str) -> Reply {
    Kind::InvalidConfig.reply(description)
}

fn keyspace(bucket: &str, scope: &str, collection: &str) -> FunctionKeyspace {
    let or_default = |name: &str| if name.is_empty() { "_default" } else { name }.to_owned();
    FunctionKeyspace {
        bucket: bucket.to_owned(),
        scope: or_default(scope),
        collection: or_default(collection),
    }
}

impl Config {
    /// Writes a configuration into a definition. Clients never read secrets, so they omit them: the function then keeps a secret as long as
    /// scheme, host, port, kind of authentication and user name stay the same.
    pub fn apply(self, definition: &mut FunctionDefinition) -> Result<(), Reply> {
        if self.source_bucket.is_empty() || self.metadata_bucket.is_empty() {
            return Err(invalid("depcfg needs source_bucket and metadata_bucket"));
        }
        definition.source =
            keyspace(&self.source_bucket, &self.source_scope, &self.source_collection);
        definition.metadata =
            keyspace(&self.metadata_bucket, &self.metadata_scope, &self.metadata_collection);
        let buckets = self.buckets.unwrap_or_default().into_iter().map(Bucket::binding);
        definition.buckets = buckets.collect::<Result<_, _>>()?;
        let before = std::mem::take(&mut definition.urls);
        let urls = self.curl.unwrap_or_default().into_iter().map(|url| url.binding(&before));
        definition.urls = urls.collect::<Result<_, _>>()?;
        let constant = |Constant { value, literal }| ConstantBinding { alias: value, literal };
        definition.constants =
            self.constants.unwrap_or_default().into_iter().map(constant).collect();
        Ok(())
    }
}

impl Bucket {
    fn binding(self) -> Result<BucketBinding, Reply> {
        let writes = match &self.access[..] {
            "rw" => true,
            "r" | "" => false,
            other => return Err(invalid(&format!("access is r or rw, not {other:?}"))),
        };
        let keyspace = keyspace(&self.bucket_name, &self.scope_name, &self.collection_name);
        Ok(BucketBinding { alias: self.alias, keyspace, writes })
    }
}

impl Url {
    fn binding(self, before: &[UrlBinding]) -> Result<UrlBinding, Reply> {
        let Some(origin) = nacre_sandbox::origin(&self.hostname) else {
            let reason = format!("{:?} is not a URL of the form https://host/path", self.hostname);
            return Err(invalid(&reason));
        };
        let known = before.iter().find(|known| known.alias == self.value);
        let auth = match (&self.auth_type[..], self.username, self.password, self.bearer_key) {
            ("no-auth" | "", ..) => UrlAuth::None,
            ("basic", user, password, _) => UrlAuth::Basic { user, password },
            ("bearer", _, _, key) => UrlAuth::Bearer { key },
            ("digest", user, password, _) => UrlAuth::Digest { user, password },
            (other, ..) => return Err(invalid(&format!("no such auth_type: {other:?}"))),
        };
        let auth = match known {
            Some(known) if auth.lacks_secret() && !known.auth.lacks_secret() => {
                // Otherwise a user who edits a function could make the node send the function's secrets to any server.
                let is_same_server = nacre_sandbox::origin(&known.url) == Some(origin);
                if !is_same_server || !auth.proves_the_same(&known.auth) {
                    let reason = format!(
                        "give the password or bearer_key of {:?} again: the stored one is kept only while scheme, host, port, auth_type and username stay the same",
                        self.value
                    );
                    return Err(invalid(&reason));
                }
                known.auth.clone()
            }
            _ => auth,
        };
        Ok(UrlBinding {
            alias: self.value,
            url: self.hostname,
            auth,
            allow_cookies: self.allow_cookies,
            validate_certificate: self.validate_ssl_certificate,
        })
    }
}

/// Creates a definition from a client's form. Omitted secrets come from the `known` definition, as in
/// [`Config::apply`].
pub(super) fn definition(
    written: Written,
    known: Option<&FunctionDefinition>,
) -> Result<FunctionDefinition, Reply> {
    let mut definition = empty();
    if let Some(known) = known {
        definition.urls.clone_from(&known.urls);
    }
    definition.code = written.appcode;
    definition.modules = written.modules;
    definition.language = written.language;
    definition.version = written.version;
    written.depcfg.apply(&mut definition)?;
    apply_settings(&mut definition, written.settings)?;
    Ok(definition)
}

/// Returns an empty definition.
fn empty() -> FunctionDefinition {
    let nowhere = keyspace("", "", "");
    FunctionDefinition {
        code: String::new(),
        modules: BTreeMap::new(),
        language: Language::JavaScript,
        program: None,
        version: String::new(),
        source: nowhere.clone(),
        metadata: nowhere,
        buckets: Vec::new(),
        urls: Vec::new(),
        constants: Vec::new(),
        since: Since::Everything,
        timeout_s: TIMEOUT_S,
        timer_context_bytes: TIMER_CONTEXT_BYTES,
        old_documents: false,
        filter: None,
        owner: String::new(),
        fresh_queries: false,
        query_writes: Vec::new(),
        headers: Vec::new(),
        footers: Vec::new(),
        settings: "{}".into(),
    }
}

/// Settings that are numbers, each with its minimum and maximum.
const NUMBERS: [(&str, u32, u32); 14] = [
    ("app_log_max_files", 1, u32::MAX),
    ("app_log_max_size", 1024, u32::MAX),
    ("bucket_cache_age", 1, u32::MAX),
    ("bucket_cache_size", 1, u32::MAX),
    ("checkpoint_interval", 1, u32::MAX),
    ("cpp_worker_thread_count", 1, u32::MAX),
    ("execution_timeout", 1, TIMEOUT_S_MAX),
    ("num_timer_partitions", 1, 1024),
    ("on_deploy_timeout", 1, u32::MAX),
    ("sock_batch_size", 1, u32::MAX),
    ("tick_duration", 1, u32::MAX),
    ("timer_context_size", TIMER_CONTEXT_BYTES_MIN, TIMER_CONTEXT_BYTES_MAX),
    ("timer_queue_size", 1, u32::MAX),
    ("worker_count", 1, 64),
];

/// Accepted values of `log_level`.
const LOG_LEVELS: [&str; 5] = ["ERROR", "WARNING", "INFO", "DEBUG", "TRACE"];

/// Returns true if a text has the form of a version such as `7.2.0`, including future versions of Couchbase.
fn is_version(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split('.').count() == 3 && text.split('.').all(is_number)
}

/// Checks settings, including those without effect: otherwise the server would return a wrong value as if it were in
/// effect.
fn check_settings(all: &Map<String, Value>) -> Result<(), Reply> {
    let given = |name: &str| all.get(name).filter(|value| !value.is_null());
    for (name, min, max) in NUMBERS {
        let fits = |value: &Value| {
            value.as_u64().is_some_and(|number| (u64::from(min)..=u64::from(max)).contains(&number))
        };
        if given(name).is_some_and(|value| !fits(value)) {
            return Err(invalid(&format!("{name} is a number from {min} to {max}")));
        }
    }
    let differs = |name: &str, fits: fn(&str) -> bool| {
        given(name).is_some_and(|value| !value.as_str().is_some_and(fits))
    };
    if differs("log_level", |word| LOG_LEVELS.contains(&word)) {
        return Err(invalid(&format!("log_level is one of {}", LOG_LEVELS.join(", "))));
    }
    if differs("language_compatibility", is_version) {
        return Err(invalid("language_compatibility is a version such as 7.2.0"));
    }
    match given("cursor_aware").is_none_or(Value::is_boolean) {
        true => Ok(()),
        false => Err(invalid("cursor_aware is true or false")),
    }
}

/// Adds settings to a definition.
pub(super) fn apply_settings(
    definition: &mut FunctionDefinition,
    settings: Map<String, Value>,
) -> Result<(), Reply> {
    let mut all: Map<String, Value> =
        serde_json::from_str(&definition.settings).unwrap_or_default();
    all.extend(settings);
    // These members are not settings: they describe the state of the function.
    all.remove("deployment_status");
    all.remove("processing_status");
    check_settings(&all)?;
    let number = |name: &str, default: u32| {
        let given = all.get(name).and_then(Value::as_u64);
        given.and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    };
    let lines = |name: &str| match all.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(value) => serde_json::from_value(value.clone())
            .map_err(|_| invalid(&format!("{name} is an array of strings"))),
    };
    definition.timeout_s = number("execution_timeout", TIMEOUT_S);
    definition.timer_context_bytes = number("timer_context_size", TIMER_CONTEXT_BYTES);
    definition.old_documents = match all.get("old_documents") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(wanted)) => *wanted,
        Some(_) => return Err(invalid("old_documents is true or false")),
    };
    definition.filter = match all.get("filter") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        Some(_) => return Err(invalid("filter is a condition as a string")),
    };
    definition.fresh_queries = match all.get("n1ql_consistency").map(|level| level.as_str()) {
        None | Some(Some("none" | "")) => false,
        Some(Some("request")) => true,
        Some(_) => return Err(invalid("n1ql_consistency must be \"none\" or \"request\"")),
    };
    // As in Couchbase, code runs in strict mode unless the definition has its own headers.
    definition.headers = match all.get("handler_headers") {
        None | Some(Value::Null) => vec![STRICT.to_owned()],
        Some(_) => lines("handler_headers")?,
    };
    definition.footers = lines("handler_footers")?;
    definition.since = match all.get("dcp_stream_boundary").map(|boundary| boundary.as_str()) {
        None | Some(Some("everything" | "")) => Since::Everything,
        Some(Some("from_now")) => Since::Now,
        Some(_) => return Err(invalid("dcp_stream_boundary is everything or from_now")),
    };
    definition.settings = Value::Object(all).to_string();
    Ok(())
}

/// Describes a function to clients, without its secrets.
pub(super) fn describe(id: &FunctionId, function: &Function) -> Value {
    let scope = id.scope.as_ref();
    let (bucket, scope) = scope.map_or((ALL, ALL), |(bucket, scope)| (bucket, scope));
    let mut description = json!({
        "appname": id.name,
        "appcode": function.definition.code,
        "version": function.definition.version,
        "enforce_schema": false,
        "handleruuid": function.number,
        "function_instance_id": &function.uuid[..function.uuid.len().min(6)],
        "function_scope": {"bucket": bucket, "scope": scope},
        "depcfg": describe_config(&function.definition),
        "settings": describe_settings(function),
    });
    // Members that Couchbase does not have are shown only if they are set.
    if !function.definition.modules.is_empty() {
        description["modules"] = json!(function.definition.modules);
    }
    if function.definition.language != Language::JavaScript {
        description["language"] = json!(function.definition.language);
    }
    description
}

pub(super) fn describe_config(definition: &FunctionDefinition) -> Value {
    let buckets = definition.buckets.iter().map(|binding| {
        json!({
            "alias": binding.alias,
            "bucket_name": binding.keyspace.bucket,
            "scope_name": binding.keyspace.scope,
            "collection_name": binding.keyspace.collection,
            "access": if binding.writes { "rw" } else { "r" },
        })
    });
    let urls = definition.urls.iter().map(|binding| {
        let (auth_type, user) = match &binding.auth {
            UrlAuth::None => ("no-auth", ""),
            UrlAuth::Basic { user, .. } => ("basic", &user[..]),
            UrlAuth::Digest { user, .. } => ("digest", &user[..]),
            UrlAuth::Bearer { .. } => ("bearer", ""),
        };
        json!({
            "hostname": binding.url,
            "value": binding.alias,
            "auth_type": auth_type,
            "username": user,
            "password": "",
            "bearer_key": "",
            "allow_cookies": binding.allow_cookies,
            "validate_ssl_certificate": binding.validate_certificate,
        })
    });
    let constants = definition
        .constants
        .iter()
        .map(|binding| json!({"value": binding.alias, "literal": binding.literal}));
    json!({
        "source_bucket": definition.source.bucket,
        "source_scope": definition.source.scope,
        "source_collection": definition.source.collection,
        "metadata_bucket": definition.metadata.bucket,
        "metadata_scope": definition.metadata.scope,
        "metadata_collection": definition.metadata.collection,
        "buckets": buckets.collect::<Vec<_>>(),
        "curl": urls.collect::<Vec<_>>(),
        "constants": constants.collect::<Vec<_>>(),
    })
}

pub(super) fn describe_settings(function: &Function) -> Value {
    let definition = &function.definition;
    let mut all: Map<String, Value> =
        serde_json::from_str(&definition.settings).unwrap_or_default();
    let boundary = match definition.since {
        Since::Everything => "everything",
        Since::Now => "from_now",
    };
    all.insert("dcp_stream_boundary".into(), boundary.into());
    all.insert("execution_timeout".into(), definition.timeout_s.into());
    all.insert("timer_context_size".into(), definition.timer_context_bytes.into());
    let state = function.state;
    all.insert("deployment_status".into(), (state != FunctionState::Undeployed).into());
    all.insert("processing_status".into(), (state == FunctionState::Deployed).into());
    // Clients require the following members.
    all.entry("log_level").or_insert("INFO".into());
    all.entry("worker_count").or_insert(1.into());
    all.entry("language_compatibility").or_insert("7.2.0".into());
    all.into()
}
