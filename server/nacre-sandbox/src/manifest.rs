//! `plugin.toml`: description, requested capabilities and limits of a plugin.
//!
//! ```toml
//! name = "orders-by-mail"
//! version = "0.1.0"
//! component = "plugin.wasm"        # or script = "main.js"
//!
//! [capabilities]
//! kv = { read = ["shop.orders"], write = ["shop.lookup"] }
//!
//! [limits]
//! memory_mb = 64
//!
//! [events]
//! old = true                       # with the previous version, if the bucket keeps history
//! ```

use crate::{Grants, KeyspaceGrant, Limits, World};
use nacre_state::StateForm;
use nacre_types::{PLUGIN_NAME_BYTES_MAX, check_plain_name};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A package's description of itself. Unknown keys are refused, so that a typo is not ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name: letters, digits, `-` and `_`, starting with a letter or digit; at most 64 characters.
    pub name: String,
    /// The version. Packages with the same version have the same content.
    pub version: String,
    /// A sentence for users who choose a plugin.
    #[serde(default)]
    pub description: String,
    /// The world of its component.
    #[serde(default)]
    pub world: World,
    /// The WebAssembly component among the files of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// The JavaScript file of the package, instead of a component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Files of the package that the script imports, such as `lib/dates.js`. They are JavaScript, whatever their
    /// extension.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Names the format of the state. A version with the same name continues with the state of its predecessor; a
    /// version with another name builds its own.
    #[serde(default = "first")]
    pub state_version: String,
    /// The form of the state, for a plugin that keeps one; if not set, the node's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateForm>,
    /// Requested capabilities.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// Requested limits, which can only lower those of the node.
    #[serde(default)]
    pub limits: Wanted,
    /// The form of events.
    #[serde(default)]
    pub events: Events,
}

/// Additional parts of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// True to deliver every version together with the one that it replaced, if the bucket keeps history.
    #[serde(default)]
    pub old: bool,
}

fn first() -> String {
    "1".into()
}

/// Capabilities that must be granted. The plugin's own state, timers, log and metrics need no grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Capabilities {
    /// Documents.
    #[serde(default, skip_serializing_if = "Keyspaces::is_empty")]
    pub kv: Keyspaces,
    /// Hosts that the plugin sends requests to, `host` or `host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http_out: Vec<String>,
}

/// Collections as `scope.collection`; `scope.*` means all of a scope, `*` all of the deployment's bucket. Collections
/// of another bucket are prefixed with its name: `bucket.scope.collection`, `bucket.scope.*`, `bucket.*.*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keyspaces {
    /// Collections that the plugin reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Collections that the plugin reads and writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
}

impl Keyspaces {
    fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }
}

/// Returns true if `pattern` covers everything that `wanted`, a keyspace or a pattern, covers.
///
/// Names of scopes and collections contain no dot, but names of buckets may. Names are therefore parsed from the end,
/// and a name before two others is a bucket. `*` alone means all of the own bucket.
pub(crate) fn covers(pattern: &str, wanted: &str) -> bool {
    let (pattern, wanted) = (Names::of(pattern), Names::of(wanted));
    let is_covered = |pattern: &str, wanted: &str| pattern == "*" || pattern == wanted;
    pattern.bucket == wanted.bucket
        && is_covered(pattern.scope, wanted.scope)
        && is_covered(pattern.collection, wanted.collection)
}

/// The parts of a keyspace or a pattern.
struct Names<'a> {
    bucket: Option<&'a str>,
    scope: &'a str,
    collection: &'a str,
}

impl Names<'_> {
    fn of(text: &str) -> Names<'_> {
        let mut names = text.rsplitn(3, '.');
        let last = names.next().unwrap_or_default();
        match (names.next(), names.next()) {
            (Some(scope), bucket) => Names { bucket, scope, collection: last },
            (None, _) if last == "*" => Names { bucket: None, scope: "*", collection: "*" },
            (None, _) => Names { bucket: None, scope: last, collection: "" },
        }
    }
}

/// Returns true if `text` has one of the forms of [`Keyspaces`].
fn is_keyspace(text: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && !name.contains('*');
    let Names { bucket, scope, collection } = Names::of(text);
    match (bucket, scope, collection) {
        (None, "*", "*") => text == "*",
        (Some(bucket), "*", "*") => is_name(bucket),
        (bucket, scope, collection) => {
            bucket.is_none_or(is_name)
                && is_name(scope)
                && (collection == "*" || is_name(collection))
        }
    }
}

/// Returns true if `text` is `host` or `host:port`; an IPv6 address is in brackets.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !host.is_empty() && host.bytes().all(is_part);
    (is_address || is_name)
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

impl Capabilities {
    /// Checks the patterns.
    ///
    /// # Errors
    /// The invalid pattern.
    pub fn check(&self) -> Result<(), String> {
        let keyspaces = [("kv.read", &self.kv.read), ("kv.write", &self.kv.write)];
        for (name, patterns) in keyspaces {
            if let Some(wrong) = patterns.iter().find(|pattern| !is_keyspace(pattern)) {
                return Err(format!(
                    "{wrong:?} in `{name}` is neither scope.collection, scope.* nor *, with or without a bucket in front"
                ));
            }
        }
        match self.http_out.iter().find(|host| !is_host(host)) {
            Some(wrong) => Err(format!("{wrong:?} in `http-out` is neither host nor host:port")),
            None => Ok(()),
        }
    }

    /// Checks that `granted` contains only requested capabilities, so that nothing is granted by mistake.
    ///
    /// # Errors
    /// The excess grant.
    pub fn check_grants(&self, granted: &Capabilities) -> Result<(), String> {
        granted.check()?;
        let wants =
            |wanted: &[String], pattern: &str| wanted.iter().any(|wanted| covers(pattern, wanted));
        let Keyspaces { read, write } = &self.kv;
        let reads = granted.kv.read.iter().filter(|pattern| !wants(read, pattern));
        let writes = granted
            .kv
            .write
            .iter()
            .filter(|pattern| !wants(write, pattern) && !wants(read, pattern));
        let hosts = granted.http_out.iter().filter(|host| !self.http_out.contains(host));
        let beyond = reads
            .map(|pattern| format!("kv:read={pattern}"))
            .chain(writes.map(|pattern| format!("kv:write={pattern}")))
            .chain(hosts.map(|host| format!("http-out={host}")));
        let beyond: Vec<_> = beyond.collect();
        match beyond.is_empty() {
            true => Ok(()),
            false => {
                Err(format!("the plugin does not ask for {}: do not grant that", beyond.join(", ")))
            }
        }
    }

    /// Returns descriptions of the capabilities that are not in `granted`, such as `write documents of shop.lookup`.
    pub fn missing_from(&self, granted: &Capabilities) -> Vec<String> {
        let lacks = |patterns: &[String], wanted: &str| {
            !patterns.iter().any(|pattern| covers(pattern, wanted))
        };
        let reads = self
            .kv
            .read
            .iter()
            .filter(|wanted| lacks(&granted.kv.read, wanted) && lacks(&granted.kv.write, wanted))
            .map(|wanted| format!("read documents of {wanted} (kv:read={wanted})"));
        let writes = self
            .kv
            .write
            .iter()
            .filter(|wanted| lacks(&granted.kv.write, wanted))
            .map(|wanted| format!("write documents of {wanted} (kv:write={wanted})"));
        let hosts = self
            .http_out
            .iter()
            .filter(|wanted| !granted.http_out.contains(wanted))
            .map(|wanted| format!("send requests to {wanted} (http-out={wanted})"));
        reads.chain(writes).chain(hosts).collect()
    }
}

/// Limits in a manifest or from a deployer; missing ones default to those of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Maximum memory of one instance, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// Maximum duration of one call, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u32>,
    /// Maximum size of the state's keys and values, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_mb: Option<u32>,
    /// Maximum size of one response body, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_mb: Option<u32>,
    /// Number of consecutive documents that may kill an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_max: Option<u32>,
}

impl Wanted {
    /// Returns the name of a limit that is 0, because nothing can run within it.
    fn nothing(&self) -> Option<&'static str> {
        let limits = [
            ("memory_mb", self.memory_mb),
            ("deadline_ms", self.deadline_ms),
            ("state_mb", self.state_mb),
            ("result_mb", self.result_mb),
            ("errors_max", self.errors_max),
        ];
        limits.into_iter().find(|(_, limit)| *limit == Some(0)).map(|(name, _)| name)
    }

    /// Returns the smaller values of `limits` and these limits.
    pub fn within(&self, limits: Limits) -> Limits {
        let bytes = |wanted: Option<u32>, limit: usize| {
            wanted.map_or(limit, |mb| limit.min((mb as usize) << 20))
        };
        let deadline = self.deadline_ms.map(|ms| Duration::from_millis(ms.into()));
        Limits {
            memory_bytes: bytes(self.memory_mb, limits.memory_bytes),
            deadline: deadline.map_or(limits.deadline, |wanted| wanted.min(limits.deadline)),
            state_bytes: bytes(self.state_mb, limits.state_bytes),
            result_bytes: bytes(self.result_mb, limits.result_bytes),
            errors_max: self
                .errors_max
                .map_or(limits.errors_max, |wanted| wanted.min(limits.errors_max)),
            ..limits
        }
    }
}

impl Manifest {
    /// Parses a `plugin.toml`.
    ///
    /// # Errors
    /// The error and its position, for the plugin's author.
    pub fn read(text: &str) -> Result<Manifest, String> {
        let manifest: Manifest =
            toml::from_str(text).map_err(|error| format!("plugin.toml: {error}"))?;
        let wrong = |reason: &str| Err(format!("plugin.toml: {reason}"));
        match (&manifest.component, &manifest.script) {
            (None, None) => {
                wrong("name a file: `component = \"plugin.wasm\"` or `script = \"main.js\"`")
            }
            (Some(_), Some(_)) => wrong("a plugin has a `component` or a `script`, not both"),
            (None, Some(_)) if manifest.world != World::Service => {
                wrong("a `script` is of the world `service`")
            }
            (Some(_), None) if !manifest.modules.is_empty() => {
                wrong("`modules` are what a `script` imports: a component has none")
            }
            _ if let Some(name) = manifest.modules.iter().find(|name| !is_module(name)) => {
                wrong(&format!(
                    "{name:?} in `modules` is not a file next to or below plugin.toml, such as \"lib/dates.js\""
                ))
            }
            _ if manifest.events.old && manifest.world == World::IndexType => wrong(
                "`events.old` is not for the world `index-type`: an index has what documents are now",
            ),
            _ if manifest.state == Some(StateForm::Segmented)
                && manifest.world != World::Service =>
            {
                wrong("`state = \"segmented\"` is for the world `service`")
            }
            _ if let Err(reason) = check_plain_name(&manifest.name, PLUGIN_NAME_BYTES_MAX) => {
                wrong(&format!("`name`: {reason}"))
            }
            _ if manifest.version.is_empty() || manifest.version.len() > 64 => {
                wrong("`version` has 1 to 64 characters")
            }
            _ => Ok(manifest),
        }
    }

    /// Checks that the manifest can be deployed. Limits and patterns are checked before a package is accepted;
    /// packages that were accepted earlier remain valid.
    ///
    /// # Errors
    /// The error, for the plugin's author.
    pub fn check(&self) -> Result<(), String> {
        if let Some(name) = self.limits.nothing() {
            return Err(format!(
                "plugin.toml: `limits.{name}` is 0: name 1 or more, or leave it out"
            ));
        }
        self.capabilities.check().map_err(|reason| format!("plugin.toml: {reason}"))
    }

    /// Returns the grants of a deployment of the package with all requested capabilities.
    pub fn grants(&self) -> Grants {
        let Capabilities { kv, http_out } = &self.capabilities;
        let keyspaces = |patterns: &[String], write: bool| -> Vec<KeyspaceGrant> {
            let grant = |keyspace: &String| KeyspaceGrant { keyspace: keyspace.clone(), write };
            patterns.iter().map(grant).collect()
        };
        Grants {
            kv: [keyspaces(&kv.read, false), keyspaces(&kv.write, true)].concat(),
            http_out: http_out.iter().map(|host| host.to_ascii_lowercase()).collect(),
            ..Grants::own()
        }
    }

    /// Returns true if its state has blobs wherever it is deployed.
    pub fn has_blobs(&self) -> bool {
        self.state == Some(StateForm::Segmented)
    }

    /// Returns the name of the component or script file.
    pub fn file(&self) -> &str {
        self.component.as_deref().or(self.script.as_deref()).unwrap_or_default()
    }

    /// Returns all files of the package, starting with the component or script.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.file()).chain(self.modules.iter().map(String::as_str))
    }
}

/// Returns true if a script can import `name` as a module of the package: the path must not leave the package.
fn is_module(name: &str) -> bool {
    let is_script = [".js", ".ts"].iter().any(|end| name.ends_with(end));
    is_script && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTER: &str = "name = \"counter\"\nversion = \"0.1.0\"\nscript = \"main.js\"\n";

    #[test]
    fn omitted_settings_have_defaults() {
        let manifest = Manifest::read(COUNTER).unwrap();
        assert_eq!((manifest.world, manifest.state_version.as_str()), (World::Service, "1"));
        assert_eq!(manifest.capabilities, Capabilities::default());
        assert_eq!(manifest.limits.within(Limits::default()), Limits::default());
    }

    #[test]
    fn a_service_chooses_the_form_of_its_state() {
        assert_eq!(Manifest::read(COUNTER).unwrap().state, None);
        let segmented = Manifest::read(&format!("{COUNTER}state = \"segmented\"")).unwrap();
        assert_eq!(segmented.state, Some(StateForm::Segmented));
        let component = "name = \"audit\"\nversion = \"0.1.0\"\ncomponent = \"audit.wasm\"\n";
        let index = format!("{component}world = \"index-type\"\nstate = ");
        let refused = Manifest::read(&format!("{index}\"segmented\"")).unwrap_err();
        assert!(refused.contains("is for the world `service`"), "{refused}");
        assert!(Manifest::read(&format!("{index}\"resident\"")).is_ok());
        assert!(Manifest::read(&format!("{COUNTER}state = \"paged\"")).is_err());
    }

    #[test]
    fn the_previous_version_is_passed_to_plugins_that_request_it() {
        let component = "name = \"audit\"\nversion = \"0.1.0\"\ncomponent = \"audit.wasm\"\n";
        let asks = |manifest: &str| Manifest::read(&format!("{manifest}[events]\nold = true"));
        assert!(!Manifest::read(component).unwrap().events.old);
        assert!(asks(component).unwrap().events.old);
        assert!(asks(COUNTER).unwrap().events.old, "a script");
        let index = asks(&format!("{component}world = \"index-type\"\n"));
        assert!(index.unwrap_err().contains("what documents are now"));
    }

    #[test]
    fn invalid_manifests_are_refused_with_a_reason() {
        let refused = |text: &str| Manifest::read(text).unwrap_err();
        insta::assert_snapshot!(
            [
                refused(""),
                refused(&format!("{COUNTER}compnent = \"x\"")),
                refused(&format!("{COUNTER}component = \"x\"")),
                refused(&format!("{COUNTER}world = \"resolver\"")),
                refused(&format!("{COUNTER}[capabilities]\nfiles = true")),
                refused("name = \"counter\"\nversion = \"0.1.0\""),
                refused("name = \"my counter\"\nversion = \"0.1.0\"\nscript = \"main.js\""),
            ]
            .join("\n---\n")
        );
    }

    #[test]
    fn modules_are_files_that_a_script_can_import() {
        let read = |modules: &str| Manifest::read(&format!("{COUNTER}modules = {modules}"));
        let manifest = read(r#"["lib.js", "lib/dates.ts"]"#).unwrap();
        assert_eq!(manifest.files().collect::<Vec<_>>(), ["main.js", "lib.js", "lib/dates.ts"]);
        for name in ["", "lib", "../lib.js", "/lib.js", "./lib.js", "a//lib.js", "lib.wasm"] {
            let refused = read(&format!("[\"good.js\", {name:?}]")).unwrap_err();
            assert!(refused.contains(&format!("{name:?} in `modules`")), "{refused}");
        }
        let component =
            "name = \"c\"\nversion = \"1\"\ncomponent = \"c.wasm\"\nmodules = [\"a.js\"]";
        assert!(Manifest::read(component).unwrap_err().contains("a component has none"));
    }

    #[test]
    fn a_manifest_can_lower_limits_but_not_raise_them() {
        let wanted = Wanted { memory_mb: Some(16), deadline_ms: Some(60_000), ..Wanted::default() };
        let limits = wanted.within(Limits::default());
        assert_eq!(limits.memory_bytes, 16 << 20);
        assert_eq!(limits.deadline, Limits::default().deadline);
    }

    #[test]
    fn zero_limits_and_invalid_patterns_are_refused() {
        let check = |more: &str| Manifest::read(&format!("{COUNTER}{more}")).unwrap().check();
        for limit in ["memory_mb", "deadline_ms", "state_mb", "result_mb", "errors_max"] {
            let refused = check(&format!("[limits]\n{limit} = 0")).unwrap_err();
            assert!(refused.contains(&format!("`limits.{limit}` is 0")), "{refused}");
            check(&format!("[limits]\n{limit} = 1")).unwrap();
        }
        let keyspaces =
            |text: &str| check(&format!("[capabilities]\nkv = {{ read = [{text:?}] }}"));
        for good in ["a.b", "a.*", "*", "bucket.a.b", "my.bucket.a.b", "bucket.a.*", "bucket.*.*"] {
            keyspaces(good).unwrap();
        }
        for wrong in ["", "a", ".b", "a.", "*.b", "*.*", "a*.b", "bucket.*.b", ".a.b", "*.a.b"] {
            let refused = keyspaces(wrong).unwrap_err();
            assert!(refused.contains(&format!("{wrong:?} in `kv.read`")), "{refused}");
        }
        let hosts = |text: &str| check(&format!("[capabilities]\nhttp-out = [{text:?}]"));
        for good in ["example.com", "Example.com:8080", "127.0.0.1:1", "[::1]", "[::1]:80"] {
            hosts(good).unwrap();
        }
        for wrong in ["", "http://x", "*", "a:99999", "a:0", "a:", ":80", "a/b", "[x]", "::1"] {
            let refused = hosts(wrong).unwrap_err();
            assert!(refused.contains(&format!("{wrong:?} in `http-out`")), "{refused}");
        }
    }

    #[test]
    fn only_requested_capabilities_are_granted() {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let of = |read: &[&str], write: &[&str], hosts: &[&str]| Capabilities {
            kv: Keyspaces { read: strings(read), write: strings(write) },
            http_out: strings(hosts),
        };
        let asks = of(&["a.b"], &["c.d"], &["x"]);
        for good in [of(&["a.*"], &["*"], &["x"]), of(&[], &["a.b"], &[]), of(&[], &[], &[])] {
            asks.check_grants(&good).unwrap();
        }
        for (beyond, named) in [
            (of(&["c.d"], &[], &[]), "kv:read=c.d"),
            (of(&[], &["e.*"], &[]), "kv:write=e.*"),
            (of(&[], &[], &["y"]), "http-out=y"),
        ] {
            assert!(asks.check_grants(&beyond).unwrap_err().contains(named), "{named}");
        }
        assert!(asks.check_grants(&of(&[""], &[], &[])).unwrap_err().contains("in `kv.read`"));
    }

    #[test]
    fn patterns_cover_only_matching_names() {
        for (pattern, wanted, covered) in [
            ("shop.orders", "shop.orders", true),
            ("shop.orders", "shop.lookup", false),
            ("shop.*", "shop.orders", true),
            ("shop.*", "shopping.orders", false),
            ("*", "shop.orders", true),
            ("shop.orders", "shop.*", false),
            ("shop", "shop.orders", false),
            ("*", "*", true),
            ("*", "other.shop.orders", false),
            ("other.shop.orders", "other.shop.orders", true),
            ("other.shop.*", "other.shop.orders", true),
            ("other.*.*", "other.shop.orders", true),
            ("other.*.*", "others.shop.orders", false),
            ("a.b.shop.*", "a.b.shop.orders", true),
            ("b.shop.*", "a.b.shop.orders", false),
            ("other.shop.orders", "shop.orders", false),
        ] {
            assert_eq!(covers(pattern, wanted), covered, "{pattern} {wanted}");
        }
    }

    #[test]
    fn an_ungranted_import_is_named() {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let wanted = Capabilities {
            kv: Keyspaces { read: strings(&["a.b", "c.d"]), write: strings(&["e.f"]) },
            http_out: strings(&["example.com"]),
        };
        let granted = Capabilities {
            kv: Keyspaces { read: strings(&["a.*"]), write: Vec::new() },
            http_out: Vec::new(),
        };
        assert_eq!(
            wanted.missing_from(&granted),
            [
                "read documents of c.d (kv:read=c.d)",
                "write documents of e.f (kv:write=e.f)",
                "send requests to example.com (http-out=example.com)"
            ]
        );
        assert_eq!(wanted.missing_from(&wanted), Vec::<String>::new());
    }
}
