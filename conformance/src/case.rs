//! The cases as data. `README.md` and `schema/case.schema.json` describe the format for other languages.

use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// A file of cases for the binary protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvFile {
    /// The common subject of the cases.
    pub about: String,
    /// The source of the rules.
    pub source: String,
    /// The cases, independent of each other.
    pub cases: Vec<KvCase>,
}

/// A case for the binary protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvCase {
    /// The tested behaviour, as a sentence in snake case; unique within all files.
    pub name: String,
    /// The source of this rule, if it differs from the file's.
    #[serde(default)]
    pub source: Option<String>,
    /// The requests, in order.
    pub steps: Vec<Step>,
}

/// A request and its expected reply.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The opcode by name, or as `0x..`.
    pub op: String,
    /// The key.
    #[serde(default)]
    pub key: Option<Key>,
    /// The collection ID.
    #[serde(default)]
    pub collection: u32,
    /// The key whose vBucket a request without a key is sent to.
    #[serde(default)]
    pub vbucket_of: Option<String>,
    /// Extras by name, or `{"hex": "…"}`.
    #[serde(default)]
    pub extras: BTreeMap<String, Json>,
    /// The value.
    #[serde(default)]
    pub value: Option<Value>,
    /// The path of a sub-document request.
    #[serde(default)]
    pub path: Option<Value>,
    /// Flags of that path, by name.
    #[serde(default)]
    pub path_flags: Vec<String>,
    /// Flags of the sub-document request, by name.
    #[serde(default)]
    pub doc_flags: Vec<String>,
    /// The operations of a multi request.
    #[serde(default)]
    pub specs: Option<Vec<Spec>>,
    /// The CAS to send: a number, or `$step.cas`.
    #[serde(default)]
    pub cas: Option<Json>,
    /// True to keep the expiry of the document (framing extras).
    #[serde(default)]
    pub preserve_expiry: bool,
    /// The durability level by name (framing extras).
    #[serde(default)]
    pub durability: Option<String>,
    /// A name by which later steps refer to this reply.
    #[serde(default, rename = "as")]
    pub name: Option<String>,
    /// Repeats the step until the expectation is met, for at most this many milliseconds.
    #[serde(default)]
    pub eventually_ms: Option<u64>,
    /// The expected reply.
    #[serde(default)]
    pub expect: Expect,
}

/// A key.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Key {
    /// A key with the prefix of the case.
    Name(String),
    /// A literal or padded key.
    Special(SpecialKey),
}

/// A key that is not just a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecialKey {
    /// The prefix of the case padded to this many bytes in total.
    Bytes(usize),
    /// Exactly this key.
    Raw(String),
}

/// A value to send or to expect.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// JSON: sent compactly, compared by meaning.
    Json(Json),
    /// Text, byte for byte.
    Text(String),
    /// Bytes in base64.
    Base64(String),
    /// Bytes in hexadecimal.
    Hex(String),
    /// A text repeated.
    Repeat {
        /// The text.
        text: String,
        /// The number of repetitions.
        count: usize,
    },
    /// A number of 64 bits, big-endian: given or as `$step.field`.
    U64(Json),
}

/// One operation of a multi request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The opcode by name.
    pub op: String,
    /// The path.
    #[serde(default)]
    pub path: String,
    /// Flags by name.
    #[serde(default)]
    pub flags: Vec<String>,
    /// The value.
    #[serde(default)]
    pub value: Option<Value>,
}

/// The expected reply. Omitted members may be anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The status by name, or several alternatives; SUCCESS if omitted.
    #[serde(default)]
    pub status: Option<OneOrMore>,
    /// The value.
    #[serde(default)]
    pub value: Option<Value>,
    /// The key of the reply.
    #[serde(default)]
    pub key: Option<Key>,
    /// The CAS: `new` (unlike all previous ones in the case), `zero`, `locked` (all ones), or `$step.cas`.
    #[serde(default)]
    pub cas: Option<String>,
    /// Named parts of the reply: a value, `$step.field`, `{"at_least": …}`, `{"more_than": …}` or `{"other_than": …}`.
    #[serde(default)]
    pub fields: BTreeMap<String, Json>,
    /// The answers of a multi request.
    #[serde(default)]
    pub results: Option<Vec<SpecResult>>,
    /// True if no reply is sent (quiet requests).
    #[serde(default)]
    pub no_reply: bool,
}

/// The answer to one operation of a multi request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecResult {
    /// The index of the operation, for mutations.
    #[serde(default)]
    pub index: Option<u8>,
    /// The status by name; SUCCESS if omitted.
    #[serde(default)]
    pub status: Option<String>,
    /// The value.
    #[serde(default)]
    pub value: Option<Value>,
}

/// A name, or several alternatives.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// Exactly this name.
    One(String),
    /// Any of these names.
    More(Vec<String>),
}

impl OneOrMore {
    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        match self {
            OneOrMore::One(name) => std::slice::from_ref(name).iter(),
            OneOrMore::More(names) => names.iter(),
        }
        .map(String::as_str)
    }
}

/// A file of cases for views: documents, views, and queries.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewFile {
    /// The common subject of the cases.
    pub about: String,
    /// The source of the rules.
    pub source: String,
    /// The documents by key.
    #[serde(default)]
    pub documents: BTreeMap<String, Value>,
    /// Documents that differ only by a number: for each key prefix, the number of documents. The one with number 7 is `{"n": 7}`.
    #[serde(default)]
    pub numbered: BTreeMap<String, u32>,
    /// Views by name.
    pub views: BTreeMap<String, View>,
    /// The queries.
    pub cases: Vec<ViewCase>,
}

/// A view.
#[derive(Clone, Debug, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// The map function. `$PREFIX` is replaced by the prefix of the documents' keys.
    pub map: String,
    /// The reduce function or its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce: Option<String>,
}

/// A query and its expected answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewCase {
    /// The tested behaviour, as a sentence in snake case; unique within all files.
    pub name: String,
    /// The source of this rule, if it differs from the file's.
    #[serde(default)]
    pub source: Option<String>,
    /// Changes of documents before the query, one set after the other: a new value, or none to delete. The views process each set
    /// before the next one. Afterwards the documents are restored.
    #[serde(default)]
    pub changes: Vec<BTreeMap<String, Option<Value>>>,
    /// The views of the design document for this case, in place of the file's.
    #[serde(default)]
    pub design: Option<BTreeMap<String, View>>,
    /// The view, which need not exist. Either this or `path` is given.
    #[serde(default)]
    pub view: Option<String>,
    /// Path and query, sent unchanged except for `$BUCKET` and `$DESIGN`.
    #[serde(default)]
    pub path: Option<String>,
    /// Parameters of the view: strings are sent unchanged, other values as JSON.
    #[serde(default)]
    pub params: BTreeMap<String, Json>,
    /// The method; if omitted, GET without a body and POST with one. Objects created by PUT are deleted afterwards.
    #[serde(default)]
    pub method: Option<String>,
    /// A body.
    #[serde(default)]
    pub body: Option<Json>,
    /// A body as literal text.
    #[serde(default)]
    pub body_text: Option<String>,
    /// True to send no login.
    #[serde(default)]
    pub anonymous: bool,
    /// The expected answer.
    pub expect: ViewExpect,
}

/// The expected answer to a query. Omitted members may be anything.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewExpect {
    /// The HTTP status; 200 if omitted.
    #[serde(default)]
    pub status: Option<u16>,
    /// All rows in order, with the documents' ids without their prefix.
    #[serde(default)]
    pub rows: Option<Vec<Json>>,
    /// The number of rows.
    #[serde(default)]
    pub row_count: Option<u64>,
    /// The number of rows in the view.
    #[serde(default)]
    pub total_rows: Option<u64>,
    /// The `error` member of the answer.
    #[serde(default)]
    pub error: Option<String>,
    /// The `reason` member of the answer.
    #[serde(default)]
    pub reason: Option<String>,
    /// The number of `errors` in addition to the rows; 0 if rows are expected and this is omitted.
    #[serde(default)]
    pub error_count: Option<u64>,
    /// Members that the answer must have, with any value.
    #[serde(default)]
    pub members: Vec<String>,
    /// The complete answer.
    #[serde(default)]
    pub body: Option<Json>,
}

/// A file of cases for functions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventingFile {
    /// The common subject of the cases.
    pub about: String,
    /// The source of the rules.
    pub source: String,
    /// The cases, each with separate collections and a separate function.
    pub cases: Vec<EventingCase>,
}

/// A function, documents, and its expected effects.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventingCase {
    /// The tested behaviour, as a sentence in snake case; unique within all files.
    pub name: String,
    /// The source of this rule, if it differs from the file's.
    #[serde(default)]
    pub source: Option<String>,
    /// The code. `src` and `dst` are aliases of the source and of another collection, `ro` is a read-only alias of the latter,
    /// `all` is every collection of the scope; `$SERVER` is the URL of an echo server.
    pub code: String,
    /// `typescript`, or JavaScript if omitted.
    #[serde(default)]
    pub language: Option<String>,
    /// Files that the code imports, by names such as `./lib.js`.
    #[serde(default)]
    pub modules: BTreeMap<String, String>,
    /// The settings of the function.
    #[serde(default)]
    pub settings: BTreeMap<String, Json>,
    /// Constants: JavaScript texts by alias.
    #[serde(default)]
    pub constants: BTreeMap<String, String>,
    /// Servers by alias.
    #[serde(default)]
    pub urls: BTreeMap<String, EventingUrl>,
    /// The source collection, if it differs from the case's own.
    #[serde(default)]
    pub source_collection: Option<String>,
    /// The metadata collection, if it differs from the usual one.
    #[serde(default)]
    pub metadata_collection: Option<String>,
    /// The documents of the other collection before the function is deployed.
    #[serde(default)]
    pub given: Vec<EventingWrite>,
    /// The documents of the source before the function is deployed.
    #[serde(default)]
    pub before: Vec<EventingWrite>,
    /// Later writes to the source, in order.
    #[serde(default)]
    pub writes: Vec<EventingWrite>,
    /// The expected effects, sooner or later.
    pub expect: EventingExpect,
}

/// A server that a function may call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventingUrl {
    /// The URL.
    pub url: String,
    /// The kind of authentication; none if omitted.
    #[serde(default)]
    pub auth: Option<String>,
    /// True to keep its cookies.
    #[serde(default)]
    pub cookies: bool,
    /// Further members of its binding.
    #[serde(default)]
    pub credentials: BTreeMap<String, String>,
}

/// A document to write, or to delete if it has no value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventingWrite {
    /// The key.
    pub key: String,
    /// The body.
    #[serde(default)]
    pub value: Option<Value>,
    /// Seconds until it expires; 0 for never.
    #[serde(default)]
    pub expiry: u32,
}

/// The expected effects of a function. Omitted members may be anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventingExpect {
    /// True if the function undeploys itself; then only its documents are checked.
    #[serde(default)]
    pub undeployed: bool,
    /// The name of the error that refuses its definition or deployment.
    #[serde(default)]
    pub refused: Option<String>,
    /// The documents of the other collection; null for a missing one.
    #[serde(default)]
    pub destination: BTreeMap<String, Option<Value>>,
    /// The documents of the source; null for a missing one.
    #[serde(default)]
    pub source: BTreeMap<String, Option<Value>>,
    /// Texts in lines of the log, in this order; other lines may be between them.
    #[serde(default)]
    pub log: Vec<String>,
    /// Statistics by name: a number, or `{"at_least": …}`.
    #[serde(default)]
    pub stats: BTreeMap<String, Json>,
}

/// A file of cases for HTTP: sequences of requests to the services of a node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestFile {
    /// The subject that the cases have in common.
    pub about: String,
    /// The source of the rules.
    pub source: String,
    /// The cases, independent of each other.
    pub cases: Vec<RestCase>,
}

/// A sequence of requests over HTTP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestCase {
    /// The rule that the case shows, as a sentence in snake case; unique within all files.
    pub name: String,
    /// The source of this rule, if it differs from the file's.
    #[serde(default)]
    pub source: Option<String>,
    /// Number of unclaimed nodes that the case needs for itself; 0..=9.
    #[serde(default)]
    pub fresh: usize,
    /// The requests, in order. The first one that is not answered as expected ends the case.
    pub steps: Vec<RestStep>,
    /// Requests that remove what the case made. They are sent whatever the outcome, and their answers are not judged.
    #[serde(default)]
    pub finally: Vec<RestStep>,
}

/// A request over HTTP and what is expected of its answer. `${name}` in paths, bodies and expectations is replaced by a variable.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestStep {
    /// The method.
    #[serde(default = "get")]
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The service that receives the request; cluster management if not given.
    #[serde(default)]
    pub port: RestPort,
    /// The node that receives the request: 0 for the target, 1 for the first unclaimed node, and so on. Unclaimed nodes have only
    /// the port of cluster management.
    #[serde(default)]
    pub node: usize,
    /// The user who sends the request; the target's administrator if not given.
    #[serde(default)]
    pub login: Option<RestLogin>,
    /// Fields of a form by name: a text, number or boolean, or a list of these for a field that is repeated.
    #[serde(default)]
    pub form: Option<serde_json::Map<String, Json>>,
    /// A JSON body.
    #[serde(default)]
    pub json: Option<Json>,
    /// A body of any other type.
    #[serde(default)]
    pub text: Option<String>,
    /// The content type of `text`; `text/plain` if not given.
    #[serde(default)]
    pub content_type: Option<String>,
    /// Repeats the step until the expectation holds, for at most this many milliseconds.
    #[serde(default)]
    pub eventually_ms: Option<u64>,
    /// Variables that later steps may use: by name, the JSON pointer of a value in the answer.
    #[serde(default)]
    pub capture: BTreeMap<String, String>,
    /// The expected answer.
    #[serde(default)]
    pub expect: RestExpect,
}

fn get() -> String {
    "GET".to_owned()
}

/// A service of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestPort {
    /// Cluster management.
    #[default]
    Mgmt,
    /// Views.
    Views,
    /// Queries.
    Query,
    /// Functions.
    Eventing,
}

/// The user who sends a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum RestLogin {
    /// `nobody`: the request has no login.
    Name(String),
    /// A user with a password.
    User {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
}

/// The expected answer to a request over HTTP.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestExpect {
    /// The status, or several of which one is expected; 200 if not given.
    #[serde(default)]
    pub status: Option<StatusSet>,
    /// A pattern that the body matches as JSON.
    #[serde(default)]
    pub json: Option<Json>,
    /// A pattern that the body matches as text.
    #[serde(default)]
    pub text: Option<Json>,
    /// Patterns that headers match, by their names in lower case.
    #[serde(default)]
    pub headers: BTreeMap<String, Json>,
}

/// An HTTP status, or several of which one is expected.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum StatusSet {
    /// Just this one.
    One(u16),
    /// Any of these.
    More(Vec<u16>),
}

impl StatusSet {
    /// Returns true if `status` is expected.
    pub fn contains(&self, status: u16) -> bool {
        match self {
            StatusSet::One(only) => *only == status,
            StatusSet::More(any) => any.contains(&status),
        }
    }
}

/// The files of cases for the binary protocol: group and text.
pub const KV: &[(&str, &str)] = &[
    ("kv/store", include_str!("../cases/kv/store.json")),
    ("kv/cas", include_str!("../cases/kv/cas.json")),
    ("kv/counters", include_str!("../cases/kv/counters.json")),
    ("kv/dcp", include_str!("../cases/kv/dcp.json")),
    ("kv/durability", include_str!("../cases/kv/durability.json")),
    ("kv/append", include_str!("../cases/kv/append.json")),
    ("kv/expiry", include_str!("../cases/kv/expiry.json")),
    ("kv/locks", include_str!("../cases/kv/locks.json")),
    ("kv/limits", include_str!("../cases/kv/limits.json")),
    ("kv/meta", include_str!("../cases/kv/meta.json")),
    ("kv/collections", include_str!("../cases/kv/collections.json")),
    ("kv/subdoc_lookup", include_str!("../cases/kv/subdoc_lookup.json")),
    ("kv/subdoc_mutation", include_str!("../cases/kv/subdoc_mutation.json")),
    ("kv/subdoc_array", include_str!("../cases/kv/subdoc_array.json")),
    ("kv/subdoc_counter", include_str!("../cases/kv/subdoc_counter.json")),
    ("kv/subdoc_flags", include_str!("../cases/kv/subdoc_flags.json")),
    ("kv/subdoc_paths", include_str!("../cases/kv/subdoc_paths.json")),
    ("kv/subdoc_multi", include_str!("../cases/kv/subdoc_multi.json")),
    ("kv/xattr", include_str!("../cases/kv/xattr.json")),
];

/// The files of cases for views: group and text.
pub const VIEWS: &[(&str, &str)] = &[
    ("views/ranges", include_str!("../cases/views/ranges.json")),
    ("views/bounds", include_str!("../cases/views/bounds.json")),
    ("views/keys", include_str!("../cases/views/keys.json")),
    ("views/collation", include_str!("../cases/views/collation.json")),
    ("views/kinds", include_str!("../cases/views/kinds.json")),
    ("views/numbers", include_str!("../cases/views/numbers.json")),
    ("views/text", include_str!("../cases/views/text.json")),
    ("views/arrays", include_str!("../cases/views/arrays.json")),
    ("views/groups", include_str!("../cases/views/groups.json")),
    ("views/reduce", include_str!("../cases/views/reduce.json")),
    ("views/reductions", include_str!("../cases/views/reductions.json")),
    ("views/map", include_str!("../cases/views/map.json")),
    ("views/emit", include_str!("../cases/views/emit.json")),
    ("views/javascript", include_str!("../cases/views/javascript.json")),
    ("views/changes", include_str!("../cases/views/changes.json")),
    ("views/limits", include_str!("../cases/views/limits.json")),
    ("views/errors", include_str!("../cases/views/errors.json")),
    ("views/corners", include_str!("../cases/views/corners.json")),
    ("views/couchdb", include_str!("../cases/views/couchdb.json")),
    ("views/parameters", include_str!("../cases/views/parameters.json")),
    ("views/requests", include_str!("../cases/views/requests.json")),
];

/// The files of cases for functions: group and text.
pub const EVENTING: &[(&str, &str)] = &[
    ("eventing/accessors", include_str!("../cases/eventing/accessors.json")),
    ("eventing/aliases", include_str!("../cases/eventing/aliases.json")),
    ("eventing/builtins", include_str!("../cases/eventing/builtins.json")),
    ("eventing/curl", include_str!("../cases/eventing/curl.json")),
    ("eventing/definitions", include_str!("../cases/eventing/definitions.json")),
    ("eventing/failures", include_str!("../cases/eventing/failures.json")),
    ("eventing/filters", include_str!("../cases/eventing/filters.json")),
    ("eventing/handlers", include_str!("../cases/eventing/handlers.json")),
    ("eventing/language", include_str!("../cases/eventing/language.json")),
    ("eventing/queries", include_str!("../cases/eventing/queries.json")),
    ("eventing/recursion", include_str!("../cases/eventing/recursion.json")),
    ("eventing/services", include_str!("../cases/eventing/services.json")),
    ("eventing/subdoc", include_str!("../cases/eventing/subdoc.json")),
    ("eventing/timers", include_str!("../cases/eventing/timers.json")),
    ("eventing/typescript", include_str!("../cases/eventing/typescript.json")),
];

/// The files of cases for HTTP: group and text.
pub const REST: &[(&str, &str)] = &[
    ("rest/addresses", include_str!("../cases/rest/addresses.json")),
    ("rest/buckets", include_str!("../cases/rest/buckets.json")),
    ("rest/cluster", include_str!("../cases/rest/cluster.json")),
    ("rest/collections", include_str!("../cases/rest/collections.json")),
    ("rest/functions", include_str!("../cases/rest/functions.json")),
    ("rest/nodes", include_str!("../cases/rest/nodes.json")),
    ("rest/options", include_str!("../cases/rest/options.json")),
    ("rest/pools", include_str!("../cases/rest/pools.json")),
    ("rest/query_requests", include_str!("../cases/rest/query_requests.json")),
    ("rest/replication", include_str!("../cases/rest/replication.json")),
    ("rest/server_groups", include_str!("../cases/rest/server_groups.json")),
    ("rest/services", include_str!("../cases/rest/services.json")),
    ("rest/settings", include_str!("../cases/rest/settings.json")),
    ("rest/setup", include_str!("../cases/rest/setup.json")),
    ("rest/users", include_str!("../cases/rest/users.json")),
];

/// The files of cases for replication between clusters, which are sequences of requests over HTTP: group and text.
pub const XDCR: &[(&str, &str)] = &[
    ("xdcr/filters", include_str!("../cases/xdcr/filters.json")),
    ("xdcr/knobs", include_str!("../cases/xdcr/knobs.json")),
    ("xdcr/migration", include_str!("../cases/xdcr/migration.json")),
    ("xdcr/references", include_str!("../cases/xdcr/references.json")),
    ("xdcr/replications", include_str!("../cases/xdcr/replications.json")),
    ("xdcr/settings", include_str!("../cases/xdcr/settings.json")),
];

/// The files of cases for the backup service, which are sequences of requests over HTTP: group and text.
pub const BACKUP: &[(&str, &str)] = &[
    ("backup/plans", include_str!("../cases/backup/plans.json")),
    ("backup/repositories", include_str!("../cases/backup/repositories.json")),
    ("backup/rights", include_str!("../cases/backup/rights.json")),
    ("backup/settings", include_str!("../cases/backup/settings.json")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;
    use std::collections::BTreeSet;

    fn kv() -> Vec<(&'static str, KvFile)> {
        let parse = |(group, text): &(&'static str, &str)| {
            (*group, serde_json::from_str(text).unwrap_or_else(|error| panic!("{group}: {error}")))
        };
        KV.iter().map(parse).collect()
    }

    fn views() -> Vec<(&'static str, ViewFile)> {
        let parse = |(group, text): &(&'static str, &str)| {
            (*group, serde_json::from_str(text).unwrap_or_else(|error| panic!("{group}: {error}")))
        };
        VIEWS.iter().map(parse).collect()
    }

    fn eventing() -> Vec<(&'static str, EventingFile)> {
        let parse = |(group, text): &(&'static str, &str)| {
            (*group, serde_json::from_str(text).unwrap_or_else(|error| panic!("{group}: {error}")))
        };
        EVENTING.iter().map(parse).collect()
    }

    #[test]
    fn every_file_parses_and_every_name_is_known_and_unique() {
        let mut seen = BTreeSet::new();
        for (group, file) in kv() {
            for case in file.cases {
                assert!(seen.insert(case.name.clone()), "{group}: {} twice", case.name);
                assert!(!case.steps.is_empty(), "{}", case.name);
                for step in case.steps {
                    let ops =
                        step.specs.iter().flatten().map(|spec| spec.op.clone()).chain([step.op]);
                    for op in ops {
                        assert!(
                            op.starts_with("0x") || names::opcode(&op).is_some(),
                            "{}: {op}",
                            case.name
                        );
                    }
                    for status in step.expect.status.iter().flat_map(OneOrMore::names) {
                        assert!(names::status(status).is_some(), "{}: {status}", case.name);
                    }
                }
            }
        }
        for (group, file) in views() {
            for case in file.cases {
                assert!(seen.insert(case.name.clone()), "{group}: {} twice", case.name);
                assert!(case.view.is_some() != case.path.is_some(), "{}: view or path", case.name);
            }
        }
    }

    #[test]
    fn every_function_is_expected_to_do_something() {
        let mut seen = BTreeSet::new();
        for (group, file) in eventing() {
            for case in file.cases {
                assert!(seen.insert(case.name.clone()), "{group}: {} twice", case.name);
                let EventingExpect { undeployed, refused, destination, source, log, stats } =
                    case.expect;
                let any = (undeployed || refused.is_some())
                    || !(destination.is_empty() && source.is_empty())
                    || !(log.is_empty() && stats.is_empty());
                assert!(any, "{}", case.name);
            }
        }
    }

    #[test]
    fn every_sequence_of_requests_is_well_formed() {
        let mut seen = BTreeSet::new();
        for (group, text) in REST.iter().chain(XDCR).chain(BACKUP) {
            let file: RestFile =
                serde_json::from_str(text).unwrap_or_else(|error| panic!("{group}: {error}"));
            for case in file.cases {
                assert!(seen.insert(case.name.clone()), "{group}: {} twice", case.name);
                assert!(!case.steps.is_empty() && case.fresh <= 9, "{}", case.name);
                for step in case.steps.iter().chain(&case.finally) {
                    assert!(step.path.starts_with(['/', '$']), "{}: {}", case.name, step.path);
                    assert!(step.node <= case.fresh, "{}: node {}", case.name, step.node);
                    let bodies = [step.form.is_some(), step.json.is_some(), step.text.is_some()];
                    let bodies = bodies.iter().filter(|given| **given).count();
                    assert!(bodies <= 1, "{}: {} bodies", case.name, bodies);
                    if let Some(RestLogin::Name(name)) = &step.login {
                        assert_eq!(name, "nobody", "{}", case.name);
                    }
                    crate::run::rest_patterns_are_known(&step.expect)
                        .unwrap_or_else(|reason| panic!("{}: {reason}", case.name));
                }
            }
        }
    }

    #[test]
    fn there_are_cases_enough_to_call_it_a_suite() {
        assert!(kv().iter().map(|(_, file)| file.cases.len()).sum::<usize>() >= 120);
        assert!(views().iter().map(|(_, file)| file.cases.len()).sum::<usize>() >= 320);
        assert!(eventing().iter().map(|(_, file)| file.cases.len()).sum::<usize>() >= 273);
        let count = |files: &[(&str, &str)]| {
            let of_file = |(group, text): &(&str, &str)| {
                let file: RestFile =
                    serde_json::from_str(text).unwrap_or_else(|error| panic!("{group}: {error}"));
                file.cases.len()
            };
            files.iter().map(of_file).sum::<usize>()
        };
        assert!(count(REST) >= 200);
        assert!(count(XDCR) >= 120);
        assert!(count(BACKUP) >= 90);
    }

    #[test]
    fn every_file_in_the_folder_is_played() {
        let folder = std::path::Path::new("cases");
        let kinds = [
            ("kv", KV),
            ("views", VIEWS),
            ("eventing", EVENTING),
            ("rest", REST),
            ("xdcr", XDCR),
            ("backup", BACKUP),
        ];
        for (kind, listed) in kinds {
            let files = std::fs::read_dir(folder.join(kind)).unwrap();
            let names: BTreeSet<String> = files
                .map(|file| {
                    file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()
                })
                .map(|stem| format!("{kind}/{stem}"))
                .collect();
            let listed: BTreeSet<String> =
                listed.iter().map(|(group, _)| (*group).to_owned()).collect();
            assert_eq!(names, listed);
        }
    }
}
