//! Settings of the cluster as a whole, as in Couchbase.
//!
//! A [`SettingsChange`] replaces a section as a whole. Most sections take effect on every node. Where a value is only stored and
//! returned, because tools write it and expect to read it back, the docstring of its field says so.

use crate::{Cluster, EndSessions, EndedSessions, Refusal, StorageBackend};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum quota of the data service, in MiB. Source: Couchbase.
pub const DATA_QUOTA_MB_MIN: u64 = 256;
/// Range of the fragmentation threshold for compaction, in percent. Source: Couchbase.
const FRAGMENTATION_PERCENT: std::ops::RangeInclusive<u8> = 2..=100;
/// Minimum purge age of tombstones, in seconds: 0.01 days. Source: Couchbase.
pub(crate) const PURGE_AGE_S_MIN: u32 = 864;
/// Minimum purge age for an ephemeral bucket, whose tombstones occupy memory.
pub(crate) const PURGE_AGE_EPHEMERAL_S_MIN: u32 = 60;
/// Maximum purge age of tombstones, in seconds: 60 days. Source: Couchbase.
const PURGE_AGE_S_MAX: u32 = 60 * 24 * 3600;
/// Maximum number of vBuckets that a node moves concurrently in a rebalance. Source: Couchbase.
pub const MOVES_PER_NODE_MAX: usize = 64;
/// Maximum length of a list of URLs, headers, suites or users.
const LIST_MAX: usize = 500;
/// Maximum length of an entry in such a list, in bytes.
const ENTRY_BYTES_MAX: usize = 1024;

/// Settings of the cluster as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSettings {
    /// Memory quotas of services.
    pub quotas: ServiceQuotas,
    /// Maximum number of vBuckets that a node sends or receives concurrently in a rebalance, 1..=64; `None` for no
    /// limit per node.
    pub moves_per_node: Option<usize>,
    /// Compaction of buckets without their own setting.
    pub compaction: Compaction,
    /// TLS and HTTP headers.
    pub security: Security,
    /// The audit log.
    pub audit: Audit,
    /// URLs that queries may read.
    pub curl: CurlAccess,
    /// True if the cluster may report its version. Only stored: nothing is ever sent.
    pub send_stats: bool,
    /// Browser sessions that were ended explicitly.
    pub ended_sessions: EndedSessions,
    /// Origins of web pages that may use the HTTP API, such as `https://app.example`; empty by default.
    pub api_origins: BTreeSet<String>,
}

/// Memory quotas of services on each node, in MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceQuotas {
    /// Limit of the sum of the buckets' quotas; `None` if only the machine's memory limits it.
    pub data_mb: Option<u64>,
    /// Quotas of other services by their names in REST, such as `indexMemoryQuota`; only stored.
    pub others_mb: BTreeMap<String, u64>,
}

/// Compaction settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compaction {
    /// Share of dead bytes above which a part of a store is rewritten, 2..=100 percent; `None` for the node's default.
    pub fragmentation_percent: Option<u8>,
    /// Percentage for buckets with the storage backend `magma`.
    pub magma_fragmentation_percent: Option<u8>,
    /// Age in seconds at which tombstones are purged; `None` for the node's default.
    pub purge_age_s: Option<u32>,
    /// Only stored: stores and views are always compacted independently of each other.
    pub parallel: bool,
}

impl Compaction {
    /// Refuses values out of range; `purge_age_s_min` is the minimum purge age of tombstones.
    pub(crate) fn check(&self, purge_age_s_min: u32) -> Result<(), Refusal> {
        for (field, percent) in [
            ("databaseFragmentationThreshold[percentage]", self.fragmentation_percent),
            ("magmaFragmentationPercentage", self.magma_fragmentation_percent),
        ] {
            if percent.is_some_and(|percent| !FRAGMENTATION_PERCENT.contains(&percent)) {
                return refuse(field, "The value must be in range from 2 to 100");
            }
        }
        if self.purge_age_s.is_some_and(|age| !(purge_age_s_min..=PURGE_AGE_S_MAX).contains(&age)) {
            return refuse("purgeInterval", "The value must be in range from 0.01 to 60 days");
        }
        Ok(())
    }

    /// Returns the fragmentation threshold for a bucket with this backend.
    pub fn percent(&self, backend: StorageBackend) -> Option<u8> {
        match backend {
            StorageBackend::Magma => self.magma_fragmentation_percent,
            _ => self.fragmentation_percent,
        }
    }
}

/// The minimum TLS version of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsFloor {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// TLS of client connections, and HTTP headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Security {
    /// The minimum version.
    pub tls_min: TlsFloor,
    /// Cipher suites by their IANA names, in order of preference; empty for all supported suites.
    pub cipher_suites: Vec<String>,
    /// True if the server's order of preference decides between common suites.
    pub honor_cipher_order: bool,
    /// True if 401 responses omit `WWW-Authenticate`, so that browsers do not prompt for a password.
    pub hide_challenge: bool,
    /// Value of `Strict-Transport-Security` in responses over TLS.
    pub hsts: Option<String>,
    /// True if the web console is not served without TLS.
    pub disable_ui_http: bool,
    /// True if the web console is not served over TLS.
    pub disable_ui_https: bool,
}

/// Settings of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Audit {
    /// True if the audit log is written.
    pub enabled: bool,
    /// IDs of excluded events.
    pub disabled_events: BTreeSet<u32>,
    /// Users whose events are excluded, as `name/domain`.
    pub disabled_users: BTreeSet<String>,
    /// Age in seconds at which a file is rotated.
    pub rotate_s: u32,
    /// Size in bytes at which a file is rotated.
    pub rotate_bytes: u64,
    /// Age in seconds at which closed files are removed; 0 for never.
    pub prune_s: u32,
}

impl Default for Audit {
    fn default() -> Audit {
        Audit {
            enabled: false,
            disabled_events: BTreeSet::new(),
            disabled_users: BTreeSet::new(),
            rotate_s: 24 * 3600,
            rotate_bytes: 20 << 20,
            prune_s: 0,
        }
    }
}

/// The URLs that the function CURL of the query language may access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CurlAccess {
    /// True if all URLs are allowed.
    pub all_access: bool,
    /// Prefixes of allowed URLs.
    pub allowed_urls: Vec<String>,
    /// Prefixes of denied URLs; they take precedence over all other rules.
    pub disallowed_urls: Vec<String>,
}

/// A new value of a section of [`ClusterSettings`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettingsChange {
    /// Memory quotas of services.
    Quotas(ServiceQuotas),
    /// See [`ClusterSettings::moves_per_node`].
    MovesPerNode(usize),
    /// Compaction of buckets without their own setting.
    Compaction(Compaction),
    /// TLS and HTTP headers.
    Security(Security),
    /// The audit log.
    Audit(Audit),
    /// URLs that queries may read.
    Curl(CurlAccess),
    /// See [`ClusterSettings::send_stats`].
    SendStats(bool),
    /// Browser sessions to end, in addition to those already ended.
    EndSessions(EndSessions),
    /// See [`ClusterSettings::api_origins`].
    ApiOrigins(BTreeSet<String>),
}

fn refuse<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Invalid { field, reason: reason.into() })
}

fn check_list<'t>(
    field: &'static str,
    list: impl ExactSizeIterator<Item = &'t String>,
) -> Result<(), Refusal> {
    let (count, mut list) = (list.len(), list);
    if count > LIST_MAX || list.any(|entry| entry.len() > ENTRY_BYTES_MAX) {
        return refuse(
            field,
            format!("at most {LIST_MAX} entries of at most {ENTRY_BYTES_MAX} bytes are allowed"),
        );
    }
    Ok(())
}

/// Returns true for an origin in the form of browsers: `http` or `https`, a lower-case host, and a port unless it is the default
/// one.
fn is_origin(text: &str) -> bool {
    let host =
        [("http://", ":80"), ("https://", ":443")].into_iter().find_map(|(scheme, usual)| {
            text.strip_prefix(scheme).filter(|rest| !rest.ends_with(usual))
        });
    let is_of_host =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:[]_".contains(&byte);
    host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_of_host))
}

/// Replaces a section of the settings.
pub(crate) fn change_settings(
    cluster: &mut Cluster,
    change: &SettingsChange,
) -> Result<(), Refusal> {
    let settings = &mut cluster.settings;
    match change {
        SettingsChange::Quotas(quotas) => {
            let used_mb = cluster.bucket_quotas_mb();
            let least_mb = used_mb.max(DATA_QUOTA_MB_MIN);
            if quotas.data_mb.is_some_and(|quota_mb| quota_mb < least_mb) {
                let reason = format!(
                    "The data service quota cannot be less than {least_mb}MB (current total buckets quota, or at least {DATA_QUOTA_MB_MIN}MB)."
                );
                return refuse("memoryQuota", reason);
            }
            check_list("_", quotas.others_mb.keys())?;
            cluster.settings.quotas = quotas.clone();
        }
        SettingsChange::MovesPerNode(moves) => {
            if !(1..=MOVES_PER_NODE_MAX).contains(moves) {
                let reason = format!("The value must be in range from 1 to {MOVES_PER_NODE_MAX}");
                return refuse("rebalanceMovesPerNode", reason);
            }
            settings.moves_per_node = Some(*moves);
        }
        SettingsChange::Compaction(compaction) => {
            compaction.check(PURGE_AGE_S_MIN)?;
            settings.compaction = compaction.clone();
        }
        SettingsChange::Security(security) => {
            check_list("cipherSuites", security.cipher_suites.iter())?;
            check_list("responseHeaders", security.hsts.as_slice().iter())?;
            settings.security = security.clone();
        }
        SettingsChange::Audit(audit) => {
            check_list("disabledUsers", audit.disabled_users.iter())?;
            if audit.disabled_events.len() > LIST_MAX {
                return refuse("disabled", format!("at most {LIST_MAX} events are allowed"));
            }
            settings.audit = audit.clone();
        }
        SettingsChange::Curl(curl) => {
            check_list("allowed_urls", curl.allowed_urls.iter())?;
            check_list("disallowed_urls", curl.disallowed_urls.iter())?;
            settings.curl = curl.clone();
        }
        SettingsChange::SendStats(allowed) => settings.send_stats = *allowed,
        SettingsChange::EndSessions(end) => settings.ended_sessions.end(end)?,
        SettingsChange::ApiOrigins(origins) => {
            check_list("allowed_origins", origins.iter())?;
            if let Some(origin) = origins.iter().find(|origin| !is_origin(origin)) {
                let reason = format!(
                    "{origin:?} is not an origin as browsers send it, such as https://app.example or http://localhost:5173"
                );
                return refuse("allowed_origins", reason);
            }
            settings.api_origins = origins.clone();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketChange, BucketSettings, Change, ClusterChange};

    fn apply(cluster: &mut Cluster, change: SettingsChange) -> Result<(), Refusal> {
        cluster
            .apply(&Change::Cluster(ClusterChange::ChangeSettings { change: Box::new(change) }))
            .map(drop)
    }

    fn quota(data_mb: u64) -> SettingsChange {
        SettingsChange::Quotas(ServiceQuotas { data_mb: Some(data_mb), ..Default::default() })
    }

    fn create(cluster: &mut Cluster, name: &str, ram_quota_mb: u64) -> Result<(), Refusal> {
        let settings = BucketSettings { ram_quota_mb, ..BucketSettings::default() };
        let (name, uuid) = (name.to_owned(), "u".to_owned());
        cluster
            .apply(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings }))
            .map(drop)
    }

    #[test]
    fn buckets_share_the_quota_of_the_data_service() {
        let mut cluster = Cluster::new("c".into());
        create(&mut cluster, "a", 200).unwrap();
        assert!(apply(&mut cluster, quota(199)).is_err(), "less than the least");
        apply(&mut cluster, quota(300)).unwrap();
        create(&mut cluster, "b", 100).unwrap();
        assert!(create(&mut cluster, "c", 100).is_err());
        let more = BucketSettings { ram_quota_mb: 201, ..BucketSettings::default() };
        let change =
            Change::Buckets(BucketChange::UpdateBucket { name: "a".into(), settings: more });
        assert!(cluster.apply(&change).is_err());
        assert!(apply(&mut cluster, quota(299)).is_err(), "less than the buckets have");
        apply(&mut cluster, quota(400)).unwrap();
        cluster.apply(&change).unwrap();
    }

    #[test]
    fn settings_out_of_bounds_are_refused_by_the_name_of_the_field() {
        let mut cluster = Cluster::new("c".into());
        let compaction = |percent, purge_age_s| {
            SettingsChange::Compaction(Compaction {
                fragmentation_percent: Some(percent),
                purge_age_s: Some(purge_age_s),
                ..Compaction::default()
            })
        };
        let long = vec!["x".repeat(ENTRY_BYTES_MAX + 1)];
        for (change, field) in [
            (quota(255), "memoryQuota"),
            (SettingsChange::MovesPerNode(0), "rebalanceMovesPerNode"),
            (SettingsChange::MovesPerNode(65), "rebalanceMovesPerNode"),
            (compaction(1, 864), "databaseFragmentationThreshold[percentage]"),
            (compaction(30, 863), "purgeInterval"),
            (compaction(30, PURGE_AGE_S_MAX + 1), "purgeInterval"),
            (
                SettingsChange::Curl(CurlAccess { allowed_urls: long, ..Default::default() }),
                "allowed_urls",
            ),
        ] {
            let before = cluster.clone();
            match apply(&mut cluster, change) {
                Err(Refusal::Invalid { field: named, .. }) => assert_eq!(named, field),
                other => panic!("{field}: {other:?}"),
            }
            assert_eq!(cluster, before);
        }
        apply(&mut cluster, compaction(30, 864)).unwrap();
        apply(&mut cluster, SettingsChange::MovesPerNode(1)).unwrap();
        assert_eq!(cluster.settings.moves_per_node, Some(1));
    }

    #[test]
    fn origins_are_as_browsers_send_them() {
        for origin in
            ["https://app.example", "http://localhost:5173", "http://[::80]", "https://a-b.c:8443"]
        {
            let mut cluster = Cluster::new("c".into());
            let origins = BTreeSet::from([origin.to_owned()]);
            apply(&mut cluster, SettingsChange::ApiOrigins(origins.clone())).unwrap();
            assert_eq!(cluster.settings.api_origins, origins);
        }
        for origin in [
            "*",
            "null",
            "",
            "app.example",
            "https://",
            "https://App.example",
            "https://app.example/",
            "https://app.example:443",
            "http://app.example:80",
            "https://a b",
            "ftp://app.example",
            "https://*.example",
            "https://user@app.example",
            "http://a\r\nb",
        ] {
            let mut cluster = Cluster::new("c".into());
            let change = SettingsChange::ApiOrigins(BTreeSet::from([origin.to_owned()]));
            assert!(apply(&mut cluster, change).is_err(), "{origin:?}");
        }
    }

    #[test]
    fn a_cluster_stored_before_there_were_settings_has_the_defaults() {
        let cluster: Cluster =
            serde_json::from_str(r#"{"uuid":"c","rev":7,"buckets":{}}"#).unwrap();
        assert_eq!(cluster.settings, ClusterSettings::default());
        let stored = serde_json::to_string(&ClusterSettings::default()).unwrap();
        assert_eq!(serde_json::from_str::<ClusterSettings>(&stored).unwrap(), cluster.settings);
    }
}
