//! Eventing functions: code that reacts to document changes, with its definition and state.

use crate::change::DroppedPath;
use crate::{Refusal, Since};
use nacre_types::check_plain_name;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The longest name of a function, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// The largest code, in bytes.
pub const CODE_BYTES_MAX: usize = 1 << 20;
/// Wildcard for all scopes or all collections.
const ALL: &str = "*";

/// Identifies a function. Functions of different scopes, and functions without a scope, have separate namespaces.
///
/// The text form `name` or `bucket/scope/name` is a key of the agreed state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FunctionId {
    /// Bucket and scope of the function, if it has one.
    pub scope: Option<(String, String)>,
    /// The name.
    pub name: String,
}

impl FunctionId {
    /// Parses a key.
    pub fn of_key(key: &str) -> FunctionId {
        match key.splitn(3, '/').collect::<Vec<_>>()[..] {
            [bucket, scope, name] => {
                FunctionId { scope: Some((bucket.into(), scope.into())), name: name.into() }
            }
            _ => FunctionId { scope: None, name: key.into() },
        }
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Some((bucket, scope)) => write!(f, "{bucket}/{scope}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The keyspace of a function's source or of its bindings; `*` stands for all scopes or all collections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionKeyspace {
    /// The bucket.
    pub bucket: String,
    /// The scope.
    pub scope: String,
    /// The collection.
    pub collection: String,
}

impl FunctionKeyspace {
    /// Returns the scope, or `None` for all scopes.
    pub fn scope(&self) -> Option<&str> {
        Some(&self.scope[..]).filter(|scope| *scope != ALL)
    }

    /// Returns true if a document can be in both keyspaces.
    pub fn meets(&self, other: &FunctionKeyspace) -> bool {
        let both = |own: &str, other: &str| own == other || own == ALL || other == ALL;
        self.bucket == other.bucket
            && both(&self.scope, &other.scope)
            && both(&self.collection, &other.collection)
    }

    /// Returns the collection, or `None` for all collections.
    pub fn collection(&self) -> Option<&str> {
        Some(&self.collection[..]).filter(|collection| *collection != ALL)
    }
}

/// A keyspace that the code accesses by an alias.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketBinding {
    /// Name in the code.
    pub alias: String,
    /// The keyspace.
    pub keyspace: FunctionKeyspace,
    /// True if the function may change the documents.
    pub writes: bool,
}

/// Authentication of a function to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UrlAuth {
    /// No authentication.
    None,
    /// User name and password (HTTP Basic).
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A bearer token.
    Bearer {
        /// The token.
        key: String,
    },
    /// Digest authentication: only a digest of the password is sent.
    Digest {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
}

impl UrlAuth {
    /// Returns true if a password or token is required but empty, as in responses to clients.
    #[must_use]
    pub fn lacks_secret(&self) -> bool {
        match self {
            UrlAuth::None => false,
            UrlAuth::Basic { password: secret, .. }
            | UrlAuth::Digest { password: secret, .. }
            | UrlAuth::Bearer { key: secret } => secret.is_empty(),
        }
    }

    /// Returns true if both have the same kind and user, regardless of their secrets.
    #[must_use]
    pub fn proves_the_same(&self, other: &UrlAuth) -> bool {
        match (self, other) {
            (UrlAuth::None, UrlAuth::None) | (UrlAuth::Bearer { .. }, UrlAuth::Bearer { .. }) => {
                true
            }
            (UrlAuth::Basic { user: own, .. }, UrlAuth::Basic { user: other, .. })
            | (UrlAuth::Digest { user: own, .. }, UrlAuth::Digest { user: other, .. }) => {
                own == other
            }
            _ => false,
        }
    }
}

/// A server that the code accesses by an alias.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlBinding {
    /// Name in the code.
    pub alias: String,
    /// `https://host/path`.
    pub url: String,
    /// Authentication.
    pub auth: UrlAuth,
    /// True if cookies of the server are sent back.
    pub allow_cookies: bool,
    /// Only stored and returned: certificates are always checked.
    pub validate_certificate: bool,
}

/// A constant available to the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConstantBinding {
    /// Name in the code.
    pub alias: String,
    /// JavaScript text.
    pub literal: String,
}

/// Language of the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Runs as it is.
    #[default]
    JavaScript,
    /// Runs after its types are removed.
    TypeScript,
}

/// The program to run: TypeScript without its types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The main file.
    pub code: String,
    /// Imported modules, by names such as `./lib.js`.
    pub modules: BTreeMap<String, String>,
}

/// The definition of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionDefinition {
    /// The code.
    pub code: String,
    /// Imported modules, by names such as `./lib.js`; those that end in `.ts` are TypeScript.
    #[serde(default)]
    pub modules: BTreeMap<String, String>,
    /// Language of the code.
    #[serde(default)]
    pub language: Language,
    /// The program to run, if it differs from the code.
    #[serde(default)]
    pub program: Option<Program>,
    /// Only stored and returned.
    pub version: String,
    /// The keyspace whose changes the function handles.
    pub source: FunctionKeyspace,
    /// The keyspace in which Couchbase keeps the state. It must exist, but is not used.
    pub metadata: FunctionKeyspace,
    /// Keyspaces bound to aliases.
    pub buckets: Vec<BucketBinding>,
    /// Servers bound to aliases.
    pub urls: Vec<UrlBinding>,
    /// Constants of the code.
    pub constants: Vec<ConstantBinding>,
    /// Where a new deployment starts to read.
    pub since: Since,
    /// Timeout of a call of the code, in seconds.
    pub timeout_s: u32,
    /// Maximum size of a timer's context, in bytes.
    pub timer_context_bytes: u32,
    /// True if the function receives every version of a document with the previous one.
    #[serde(default)]
    pub old_documents: bool,
    /// A SQL++ condition that selects documents; `None` for all documents.
    #[serde(default)]
    pub filter: Option<String>,
    /// The user who last defined the function. Its queries have this user's privileges.
    #[serde(default)]
    pub owner: String,
    /// True if the function's queries wait for all previous writes by default (`request_plus`).
    #[serde(default)]
    pub fresh_queries: bool,
    /// Keyspaces changed by the queries in the code, as far as the code names them.
    #[serde(default)]
    pub query_writes: Vec<FunctionKeyspace>,
    /// Lines inserted before the code.
    pub headers: Vec<String>,
    /// Lines appended to the code.
    pub footers: Vec<String>,
    /// All settings given by the author, as a JSON object.
    pub settings: String,
}

/// State of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FunctionState {
    /// The function does not run and has no state.
    Undeployed,
    /// The function runs.
    Deployed,
    /// The function does not run; it resumes where it stopped.
    Paused,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// UUID of 32 hexadecimal digits, chosen at the first definition. It marks the function's writes.
    pub uuid: String,
    /// The UUID as a number, for clients.
    pub number: u32,
    /// The definition.
    pub definition: FunctionDefinition,
    /// The state.
    pub state: FunctionState,
    /// Number of deployments. Each has a new state.
    pub deployments: u64,
    /// Number of deployments and resumes.
    pub launches: u64,
    /// Time of the pause in milliseconds since the Unix epoch; 0 unless paused.
    pub paused_ms: u64,
    /// Duration of the last pause, in milliseconds.
    pub delay_ms: u64,
}

impl Function {
    /// Creates an undeployed function without identity.
    pub fn new(definition: FunctionDefinition) -> Function {
        Function {
            uuid: String::new(),
            number: 0,
            definition,
            state: FunctionState::Undeployed,
            deployments: 0,
            launches: 0,
            paused_ms: 0,
            delay_ms: 0,
        }
    }

    /// Returns true if `other` listens to a keyspace that this function writes to.
    fn wakes(&self, other: &Function) -> bool {
        let bound = self.definition.buckets.iter().filter(|binding| binding.writes);
        let bound = bound.map(|binding| &binding.keyspace);
        let mut written = bound.chain(&self.definition.query_writes);
        written.any(|keyspace| keyspace.meets(&other.definition.source))
    }
}

/// All functions, by the text of their IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Functions(pub BTreeMap<String, Function>);

impl Functions {
    /// Returns the function `id`.
    ///
    /// # Errors
    /// [`Refusal::FunctionNotFound`].
    pub fn get(&self, id: &FunctionId) -> Result<&Function, Refusal> {
        self.0.get(&id.to_string()).ok_or_else(|| not_found(id))
    }

    fn get_mut(&mut self, id: &FunctionId) -> Result<&mut Function, Refusal> {
        self.0.get_mut(&id.to_string()).ok_or_else(|| not_found(id))
    }

    /// Iterates over all functions with their IDs.
    pub fn iter(&self) -> impl Iterator<Item = (FunctionId, &Function)> {
        self.0.iter().map(|(key, function)| (FunctionId::of_key(key), function))
    }

    /// Creates a function, or changes one that is not running.
    pub(crate) fn put(
        &mut self,
        id: &FunctionId,
        uuid: &str,
        number: u32,
        definition: &FunctionDefinition,
    ) -> Result<(), Refusal> {
        check_name(&id.name)?;
        check(definition)?;
        if let Some(known) = self.0.get_mut(&id.to_string()) {
            let before = &known.definition;
            let keyspaces_stay =
                (&before.source, &before.metadata) == (&definition.source, &definition.metadata);
            match known.state {
                FunctionState::Deployed => return Err(Refusal::FunctionDeployed),
                // The state belongs to the previous keyspaces.
                FunctionState::Paused if !keyspaces_stay => return Err(Refusal::FunctionDeployed),
                _ => known.definition = definition.clone(),
            }
            return Ok(());
        }
        let function =
            Function { uuid: uuid.to_owned(), number, ..Function::new(definition.clone()) };
        self.0.insert(id.to_string(), function);
        Ok(())
    }

    /// Sets the user whose privileges a function has, whether or not it runs.
    pub(crate) fn set_owner(&mut self, id: &FunctionId, owner: &str) -> Result<(), Refusal> {
        owner.clone_into(&mut self.get_mut(id)?.definition.owner);
        Ok(())
    }

    pub(crate) fn drop_function(&mut self, id: &FunctionId) -> Result<(), Refusal> {
        if self.get(id)?.state != FunctionState::Undeployed {
            return Err(Refusal::FunctionDeployed);
        }
        self.0.remove(&id.to_string());
        Ok(())
    }

    /// Checks that deploying a function creates no cycle through the running ones. Its own writes to its source through
    /// an alias do not trigger it; those of queries are not allowed.
    pub(crate) fn check_recursion(&self, id: &FunctionId) -> Result<(), Refusal> {
        let wanted = self.get(id)?;
        let source = &wanted.definition.source;
        if wanted.definition.query_writes.iter().any(|written| written.meets(source)) {
            return Err(Refusal::FunctionRecursion { name: id.name.clone(), crosses: true });
        }
        let runs = |(other, function): &(FunctionId, &Function)| {
            other != id && function.state != FunctionState::Undeployed
        };
        let others: Vec<_> = self.iter().filter(runs).collect();
        // Functions triggered by the writes, directly or indirectly.
        let mut reached = BTreeSet::new();
        let mut writers = vec![wanted];
        while let Some(writer) = writers.pop() {
            for (name, function) in &others {
                if writer.wakes(function) && reached.insert(name.to_string()) {
                    if function.wakes(wanted) {
                        let crosses = function.definition.source.bucket != source.bucket;
                        let name = name.name.clone();
                        return Err(Refusal::FunctionRecursion { name, crosses });
                    }
                    writers.push(function);
                }
            }
        }
        Ok(())
    }

    /// Deploys, pauses, resumes or undeploys a function at `unix_ms`.
    pub(crate) fn set_state(
        &mut self,
        id: &FunctionId,
        state: FunctionState,
        unix_ms: u64,
    ) -> Result<(), Refusal> {
        use FunctionState::{Deployed, Paused, Undeployed};
        let function = self.get_mut(id)?;
        match (function.state, state) {
            (Undeployed, Deployed) => {
                function.deployments += 1;
                function.launches += 1;
                function.delay_ms = 0;
            }
            (Paused, Deployed) => {
                function.launches += 1;
                // At least 1, because 0 is the delay of a deployment.
                function.delay_ms = unix_ms.saturating_sub(function.paused_ms).max(1);
                function.paused_ms = 0;
            }
            (Deployed, Paused) => function.paused_ms = unix_ms,
            (Deployed | Paused, Undeployed) => function.paused_ms = 0,
            (Deployed, Deployed) => return Err(Refusal::FunctionRuns),
            (Undeployed, Undeployed) => return Err(Refusal::FunctionNotDeployed),
            (Undeployed, Paused) => return Err(Refusal::FunctionNotDeployed),
            (Paused, Paused) => return Err(Refusal::FunctionPaused),
        }
        function.state = state;
        Ok(())
    }

    /// Restarts with an empty state, which replaces a damaged one.
    pub(crate) fn restart(&mut self, id: &FunctionId, since: Since) -> Result<(), Refusal> {
        let function = self.get_mut(id)?;
        if function.state == FunctionState::Undeployed {
            return Err(Refusal::FunctionNotDeployed);
        }
        function.definition.since = since;
        function.state = FunctionState::Deployed;
        function.deployments += 1;
        function.launches += 1;
        (function.paused_ms, function.delay_ms) = (0, 0);
        Ok(())
    }

    /// Removes the functions of a dropped keyspace, and undeploys the functions that listen to it.
    pub(crate) fn forget(&mut self, dropped: &DroppedPath<'_>) {
        self.0.retain(|key, _| !dropped.contains_key(key));
        let DroppedPath { bucket, scope, collection } = *dropped;
        let is_gone = |keyspace: &FunctionKeyspace| {
            keyspace.bucket == bucket
                && scope.is_none_or(|scope| keyspace.scope == scope)
                && collection.is_none_or(|collection| keyspace.collection == collection)
        };
        for function in self.0.values_mut() {
            if is_gone(&function.definition.source) {
                function.state = FunctionState::Undeployed;
            }
        }
    }
}

/// Returns true if the name is valid for a module: a path below the main file, such as `./lib/dates.js`.
fn is_module_name(name: &str) -> bool {
    let stem = name.strip_suffix(".js").or_else(|| name.strip_suffix(".ts"));
    let Some(path) = stem.and_then(|stem| stem.strip_prefix("./")) else { return false };
    path.split('/').all(|part| {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_fine)
    })
}

fn not_found(id: &FunctionId) -> Refusal {
    Refusal::FunctionNotFound { name: id.name.clone() }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    check_plain_name(name, NAME_BYTES_MAX)
        .map_err(|reason| Refusal::Invalid { field: "appname", reason })
}

fn check(definition: &FunctionDefinition) -> Result<(), Refusal> {
    let invalid = |field: &'static str, reason: String| Err(Refusal::Invalid { field, reason });
    let modules = definition.modules.iter().map(|(name, text)| name.len() + text.len());
    if definition.code.len() + modules.sum::<usize>() > CODE_BYTES_MAX {
        let reason = format!("code may have {CODE_BYTES_MAX} bytes, its modules included");
        return invalid("appcode", reason);
    }
    if let Some(name) = definition.modules.keys().find(|name| !is_module_name(name)) {
        let reason = format!(
            "{name:?} cannot be the name of a module: they are called ./name.js or ./name.ts"
        );
        return invalid("modules", reason);
    }
    if definition.source == definition.metadata {
        return Err(Refusal::SameKeyspace);
    }
    let aliases = definition.buckets.iter().map(|binding| &binding.alias);
    let aliases = aliases.chain(definition.urls.iter().map(|binding| &binding.alias));
    let aliases = aliases.chain(definition.constants.iter().map(|binding| &binding.alias));
    let mut seen = Vec::new();
    for alias in aliases {
        if !is_identifier(alias) {
            return invalid("alias", format!("{alias:?} cannot be the name of a binding"));
        }
        if TAKEN.contains(&alias.as_str()) {
            let reason = format!("{alias:?} has a meaning already: a binding needs another name");
            return invalid("alias", reason);
        }
        if seen.contains(&alias) {
            return invalid("alias", format!("two bindings are called {alias:?}"));
        }
        seen.push(alias);
    }
    Ok(())
}

/// Names that bindings cannot have: handlers, reserved words of JavaScript, and names used by the runtime.
const TAKEN: &[&str] = &[
    "OnUpdate",
    "OnDelete",
    "OnDeploy",
    "arguments",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "of",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
    "Array",
    "ArrayBuffer",
    "BigInt",
    "Boolean",
    "DataView",
    "Date",
    "Error",
    "Function",
    "Infinity",
    "Intl",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "Proxy",
    "Reflect",
    "RegExp",
    "Set",
    "String",
    "Symbol",
    "WeakMap",
    "WeakSet",
    "globalThis",
    "undefined",
    "isFinite",
    "isNaN",
    "parseFloat",
    "parseInt",
    "CurlError",
    "KVError",
    "N1QL",
    "N1QLError",
    "N1qlQuery",
    "cancelTimer",
    "couchbase",
    "crc64",
    "createTimer",
    "curl",
    "log",
];

/// Returns true if the text is a JavaScript identifier.
fn is_identifier(text: &str) -> bool {
    let starts = |c: char| c.is_alphabetic() || c == '_' || c == '$';
    let mut chars = text.chars();
    text.len() <= 64
        && chars.next().is_some_and(starts)
        && chars.all(|c| starts(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyspace(collection: &str) -> FunctionKeyspace {
        FunctionKeyspace { bucket: "b".into(), scope: "s".into(), collection: collection.into() }
    }

    fn definition() -> FunctionDefinition {
        FunctionDefinition {
            code: String::new(),
            version: String::new(),
            source: keyspace("source"),
            metadata: keyspace("metadata"),
            buckets: Vec::new(),
            urls: Vec::new(),
            constants: Vec::new(),
            since: Since::Everything,
            timeout_s: 60,
            timer_context_bytes: 1024,
            old_documents: false,
            filter: None,
            modules: BTreeMap::new(),
            language: Language::JavaScript,
            program: None,
            owner: String::new(),
            fresh_queries: false,
            query_writes: Vec::new(),
            headers: Vec::new(),
            footers: Vec::new(),
            settings: "{}".into(),
        }
    }

    fn id(text: &str) -> FunctionId {
        FunctionId::of_key(text)
    }

    fn functions() -> Functions {
        let mut functions = Functions::default();
        functions.put(&id("f"), "u", 1, &definition()).unwrap();
        functions.put(&id("b/s/f"), "v", 2, &definition()).unwrap();
        functions
    }

    #[test]
    fn a_function_makes_only_allowed_state_transitions() {
        use FunctionState::*;
        let mut functions = functions();
        let mut go = |state, ms| functions.set_state(&id("f"), state, ms);
        assert_eq!(go(Undeployed, 0), Err(Refusal::FunctionNotDeployed));
        assert_eq!(go(Paused, 0), Err(Refusal::FunctionNotDeployed));
        go(Deployed, 0).unwrap();
        assert_eq!(go(Deployed, 0), Err(Refusal::FunctionRuns));
        go(Paused, 1000).unwrap();
        assert_eq!(go(Paused, 0), Err(Refusal::FunctionPaused));
        go(Deployed, 3500).unwrap();
        let function = functions.get(&id("f")).unwrap();
        assert_eq!((function.deployments, function.launches, function.delay_ms), (1, 2, 2500));
        assert_eq!(functions.drop_function(&id("f")), Err(Refusal::FunctionDeployed));
        assert_eq!(functions.put(&id("f"), "", 0, &definition()), Err(Refusal::FunctionDeployed));
        functions.set_state(&id("f"), Paused, 0).unwrap();
        functions
            .put(&id("f"), "", 0, &FunctionDefinition { code: "x".into(), ..definition() })
            .unwrap();
        let moved = FunctionDefinition { source: keyspace("other"), ..definition() };
        assert_eq!(functions.put(&id("f"), "", 0, &moved), Err(Refusal::FunctionDeployed));
        functions.set_state(&id("f"), Undeployed, 0).unwrap();
        functions.drop_function(&id("f")).unwrap();
        assert!(functions.get(&id("f")).is_err());
        assert!(functions.get(&id("b/s/f")).is_ok(), "another function of the same name");
    }

    /// Returns a function that reads one collection and writes others.
    fn copying(source: &str, written: &[&str]) -> FunctionDefinition {
        let binding = |(at, name): (usize, &&str)| BucketBinding {
            alias: format!("b{at}"),
            keyspace: keyspace(name),
            writes: true,
        };
        let buckets = written.iter().enumerate().map(binding).collect();
        FunctionDefinition { source: keyspace(source), buckets, ..definition() }
    }

    #[test]
    fn functions_that_trigger_each_other_are_refused() {
        let mut functions = Functions::default();
        let mut define = |name: &str, definition| functions.put(&id(name), "u", 1, &definition);
        define("ab", copying("a", &["b", "a"])).unwrap();
        define("bc", copying("b", &["c", "x"])).unwrap();
        define("ca", copying("c", &["a"])).unwrap();
        define("all", copying("*", &["a"])).unwrap();
        define("cd", copying("c", &["d"])).unwrap();
        let mut reading = copying("c", &["a"]);
        reading.buckets[0].writes = false;
        define("reads", reading).unwrap();
        for name in ["ab", "bc"] {
            functions.check_recursion(&id(name)).unwrap();
            functions.set_state(&id(name), FunctionState::Deployed, 0).unwrap();
        }
        let refusal = functions.check_recursion(&id("ca"));
        assert_eq!(refusal, Err(Refusal::FunctionRecursion { name: "bc".into(), crosses: false }));
        for name in ["cd", "reads"] {
            assert_eq!(functions.check_recursion(&id(name)), Ok(()), "{name}");
        }
        let refusal = functions.check_recursion(&id("all"));
        let through_ab = Refusal::FunctionRecursion { name: "ab".into(), crosses: false };
        assert_eq!(
            refusal,
            Err(through_ab),
            "it listens to what `ab` writes, and writes to its source"
        );
        functions.set_state(&id("bc"), FunctionState::Paused, 0).unwrap();
        assert!(functions.check_recursion(&id("ca")).is_err(), "it goes on some time");
        functions.set_state(&id("bc"), FunctionState::Undeployed, 0).unwrap();
        assert_eq!(functions.check_recursion(&id("ca")), Ok(()));
        functions.set_state(&id("ab"), FunctionState::Undeployed, 0).unwrap();
        assert_eq!(functions.check_recursion(&id("all")), Ok(()), "it does not wake itself");
    }

    #[test]
    fn writes_of_queries_wake_functions_too() {
        let mut functions = Functions::default();
        let queries = |definition, written: FunctionKeyspace| FunctionDefinition {
            query_writes: vec![written],
            ..definition
        };
        let own = queries(copying("a", &[]), keyspace("a"));
        functions.put(&id("own"), "u", 1, &own).unwrap();
        let to_itself = Refusal::FunctionRecursion { name: "own".into(), crosses: true };
        assert_eq!(functions.check_recursion(&id("own")), Err(to_itself));
        let elsewhere = FunctionKeyspace { bucket: "other".into(), ..keyspace("b") };
        let there = queries(copying("a", &[]), elsewhere.clone());
        functions.put(&id("there"), "u", 1, &there).unwrap();
        let back =
            queries(FunctionDefinition { source: elsewhere, ..copying("b", &[]) }, keyspace("a"));
        functions.put(&id("back"), "u", 1, &back).unwrap();
        functions.check_recursion(&id("there")).unwrap();
        functions.set_state(&id("there"), FunctionState::Deployed, 0).unwrap();
        let across = Refusal::FunctionRecursion { name: "there".into(), crosses: true };
        assert_eq!(functions.check_recursion(&id("back")), Err(across));
    }

    #[test]
    fn dropped_keyspaces_take_their_functions_with_them() {
        let mut functions = functions();
        functions.set_state(&id("f"), FunctionState::Deployed, 0).unwrap();
        functions.forget(&DroppedPath { bucket: "b", scope: Some("s"), collection: Some("other") });
        assert_eq!(functions.get(&id("f")).unwrap().state, FunctionState::Deployed);
        functions.forget(&DroppedPath {
            bucket: "b",
            scope: Some("s"),
            collection: Some("source"),
        });
        assert_eq!(functions.get(&id("f")).unwrap().state, FunctionState::Undeployed);
        functions.forget(&DroppedPath { bucket: "b", scope: Some("s"), collection: None });
        assert!(functions.get(&id("b/s/f")).is_err());
        assert!(functions.get(&id("f")).is_ok());
    }

    #[test]
    fn names_and_bindings_are_checked() {
        let mut functions = functions();
        for name in ["", "-a", "a b", "a.b", &"x".repeat(101)] {
            let id = FunctionId { scope: None, name: name.into() };
            let refusal = functions.put(&id, "", 0, &definition());
            assert!(matches!(refusal, Err(Refusal::Invalid { field: "appname", .. })), "{name:?}");
        }
        let mut twice = definition();
        let constant = ConstantBinding { alias: "a".into(), literal: "1".into() };
        twice.constants = vec![constant.clone(), constant];
        assert!(matches!(functions.put(&id("g"), "", 0, &twice), Err(Refusal::Invalid { .. })));
        twice.constants = vec![ConstantBinding { alias: "a b".into(), literal: "1".into() }];
        assert!(matches!(functions.put(&id("g"), "", 0, &twice), Err(Refusal::Invalid { .. })));
        for alias in ["class", "OnUpdate", "log", "couchbase", "Math"] {
            twice.constants = vec![ConstantBinding { alias: alias.into(), literal: "1".into() }];
            let refusal = functions.put(&id("g"), "", 0, &twice);
            assert!(matches!(refusal, Err(Refusal::Invalid { field: "alias", .. })), "{alias}");
        }
        let same = FunctionDefinition { metadata: keyspace("source"), ..definition() };
        assert_eq!(functions.put(&id("g"), "", 0, &same), Err(Refusal::SameKeyspace));
    }

    #[test]
    fn a_restart_begins_with_a_new_state_and_an_owner_can_be_replaced() {
        let mut functions = Functions::default();
        functions.put(&id("f"), "uuid", 1, &definition()).unwrap();
        assert_eq!(functions.restart(&id("f"), Since::Now), Err(Refusal::FunctionNotDeployed));
        functions.set_state(&id("f"), FunctionState::Deployed, 0).unwrap();
        functions.set_state(&id("f"), FunctionState::Paused, 5).unwrap();
        functions.set_owner(&id("f"), "bob").unwrap();
        functions.restart(&id("f"), Since::Now).unwrap();
        let known = functions.get(&id("f")).unwrap();
        assert_eq!((known.state, known.deployments), (FunctionState::Deployed, 2));
        assert_eq!((known.launches, known.paused_ms, known.delay_ms), (2, 0, 0));
        assert_eq!((known.definition.since, &known.definition.owner[..]), (Since::Now, "bob"));
    }
}
