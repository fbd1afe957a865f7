//! A bucket's settings in the REST interface: how a form is read, and how the settings are described.

use super::body::Invalid;
use super::compaction_settings;
use nacre_cluster::{
    BucketKind, BucketSettings, Compaction, CompressionMode, ConflictResolution, EvictionPolicy,
    RAM_QUOTA_TOO_LARGE, StorageBackend,
};
use nacre_links::platform::memory_bytes;
use serde_json::{Value, json};

/// Error text for a flag that is neither true nor false.
const NOT_A_FLAG: &str = "Must be true or false";
/// How long a document keeps versions of other clusters, in hours. Source: Couchbase.
const PRUNING_WINDOW_HOURS: u32 = 720;

/// Values of a field by their names.
type Names<T> = &'static [(&'static str, T)];

const KINDS: Names<BucketKind> = &[
    ("membase", BucketKind::Persistent),
    ("couchbase", BucketKind::Persistent),
    ("ephemeral", BucketKind::Ephemeral),
];
const EVICTION_POLICIES: Names<EvictionPolicy> = &[
    ("valueOnly", EvictionPolicy::ValueOnly),
    ("fullEviction", EvictionPolicy::Full),
    ("noEviction", EvictionPolicy::None),
    ("nruEviction", EvictionPolicy::NotRecentlyUsed),
];
const COMPRESSION_MODES: Names<CompressionMode> = &[
    ("off", CompressionMode::Off),
    ("passive", CompressionMode::Passive),
    ("active", CompressionMode::Active),
];
const CONFLICT_RESOLUTIONS: Names<ConflictResolution> = &[
    ("seqno", ConflictResolution::Seqno),
    ("lww", ConflictResolution::LastWriteWins),
    ("custom", ConflictResolution::Custom),
];
const STORAGE_BACKENDS: Names<StorageBackend> = &[
    ("couchstore", StorageBackend::Couchstore),
    ("magma", StorageBackend::Magma),
    ("sled", StorageBackend::Sled),
];
const DURABILITY_LEVELS: Names<u8> =
    &[("none", 0), ("majority", 1), ("majorityAndPersistActive", 2), ("persistToMajority", 3)];
const FLAGS: Names<bool> = &[("1", true), ("true", true), ("0", false), ("false", false)];

fn name_of<T: PartialEq>(names: Names<T>, value: T) -> &'static str {
    names.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

/// The number of threads that the description of each bucket reports: all buckets share the same threads.
pub(super) const THREADS: u8 = 3;
/// Default number of copies of a document in addition to the active one. Source: Couchbase.
const REPLICAS: u8 = 1;

/// Fields with fixed values: name, accepted values, and the reason why the value cannot change.
const FIXED: [(&str, &[&str], &str); 25] = [
    ("threadsNumber", &["3"], "All buckets share the threads of the node."),
    ("authType", &["none", "sasl"], "Users have passwords, buckets have none."),
    ("saslPassword", &[""], "Users have passwords, buckets have none."),
    ("versionPruningWindowHrs", &["720"], "Versions are remembered for a month."),
    ("pitrEnabled", &["false"], "There is no recovery to a point in time."),
    ("pitrGranularity", &["600"], "There is no recovery to a point in time."),
    ("pitrMaxHistoryAge", &["86400"], "There is no recovery to a point in time."),
    ("driftAheadThresholdMs", &["5000"], "Clocks of other clusters are not watched."),
    ("driftBehindThresholdMs", &["5000"], "Clocks of other clusters are not watched."),
    ("storageQuotaPercentage", &["50"], NO_MAGMA),
    ("maxMagmaShards", &[], NO_MAGMA),
    ("magmaKeyTreeDataBlockSize", &["4096"], NO_MAGMA),
    ("magmaSeqTreeDataBlockSize", &["4096"], NO_MAGMA),
    ("durabilityImpossibleFallback", &["disabled"], "Durable writes never become less durable."),
    ("warmupBehavior", &["background"], "Documents are served while others are still read."),
    ("accessScannerEnabled", &["false"], "Nothing has to be scanned for a fast start."),
    ("memoryLowWatermark", &["75"], "The node watches its memory itself."),
    ("memoryHighWatermark", &["85"], "The node watches its memory itself."),
    ("continuousBackupEnabled", &["false"], "There is no continuous backup."),
    ("continuousBackupInterval", &["2"], "There is no continuous backup."),
    ("continuousBackupLocation", &[""], "There is no continuous backup."),
    ("encryptionAtRestKeyId", &["-1"], "Data is encrypted by the file system, or not at all."),
    (
        "encryptionAtRestDekRotationInterval",
        &[],
        "Data is encrypted by the file system, or not at all.",
    ),
    ("encryptionAtRestDekLifetime", &[], "Data is encrypted by the file system, or not at all."),
    ("proxyPort", &["0"], "Buckets have no ports of their own."),
];
const NO_MAGMA: &str = "The store is the node's own log, whatever its name.";

/// Reads the settings of a bucket from the fields of a statement: the settings of a new bucket, or changes to the `known`
/// settings.
///
/// # Errors
/// The first field that cannot be accepted, and the reason.
pub fn of_statement(
    known: Option<&BucketSettings>,
    fields: &[(String, String)],
    now_cas: u64,
) -> Result<BucketSettings, String> {
    let read = || {
        let Some(known) = known else { return create(fields) };
        let (mut settings, mut fields) = (known.clone(), fields.to_vec());
        versioning(&mut settings, &mut fields, now_cas)?;
        apply(&mut settings, &fields)?;
        Ok(settings)
    };
    read().map_err(|Invalid { field, reason }| format!("{field}: {reason}"))
}

/// Reads the settings of a new bucket.
pub(super) fn create(form: &[(String, String)]) -> Result<BucketSettings, Invalid> {
    let mut settings = BucketSettings { replicas: REPLICAS, ..BucketSettings::default() };
    apply(&mut settings, form)?;
    let chosen = |name: &str| form.iter().any(|(field, _)| field == name);
    if !chosen("replicaIndex") {
        // Views have replicas of their rows if the bucket has replicas of its documents.
        settings.replica_index = settings.replicas > 0 && has_replica_index(&settings);
    }
    if !chosen("ramQuotaMB") && !chosen("ramQuota") {
        let reason = "The RAM Quota must be specified and must be a positive integer.";
        return Err(Invalid::new("ramQuota", reason));
    }
    if !chosen("evictionPolicy") {
        settings.eviction_policy =
            EvictionPolicy::default_of(settings.kind, settings.storage_backend);
    }
    Ok(settings)
}

/// Returns true if the bucket can keep replicas of view rows. Source: Couchbase's buckets of other kinds do not have
/// this field.
fn has_replica_index(settings: &BucketSettings) -> bool {
    settings.kind == BucketKind::Persistent && settings.storage_backend != StorageBackend::Magma
}

/// Applies the fields of a form. The function either applies or refuses a field; it never ignores one.
pub(super) fn apply(
    settings: &mut BucketSettings,
    form: &[(String, String)],
) -> Result<(), Invalid> {
    apply_fields(settings, form)?;
    apply_compaction(settings, form)?;
    let keeps_history = settings.kind == BucketKind::Persistent
        && settings.storage_backend == StorageBackend::Magma;
    let history = "historyRetentionCollectionDefault";
    if !keeps_history && form.iter().any(|(field, _)| field == history) {
        return Err(Invalid::new(history, "History Retention can only used with Magma"));
    }
    Ok(())
}

/// Reads the compaction settings of the bucket: `autoCompactionDefined=true` gives the bucket its own, `false` those of
/// the cluster.
fn apply_compaction(
    settings: &mut BucketSettings,
    form: &[(String, String)],
) -> Result<(), Invalid> {
    let defined = form.iter().find(|(field, _)| field == "autoCompactionDefined");
    let defined = defined
        .map(|(field, value)| named(FLAGS, field, value, "autoCompactionDefined is invalid"));
    let mut own = match (defined.transpose()?, settings.compaction.take()) {
        (Some(false), _) => None,
        (Some(true), known) => Some(known.unwrap_or_default()),
        (None, known) => known,
    };
    for (field, value) in form {
        let mut read = own.clone().unwrap_or_default();
        if !compaction_settings::read(&mut read, field, value)? {
            continue;
        }
        match &mut own {
            Some(own) => *own = read,
            // Forms of the web console contain all fields, even those that the user has not chosen.
            None if read == Compaction::default() || defined_as(form, "false") => {}
            None => {
                let reason = "autoCompactionDefined=true lets a bucket differ from the cluster.";
                return Err(Invalid::new(field, reason));
            }
        }
    }
    settings.compaction = own;
    Ok(())
}

fn defined_as(form: &[(String, String)], value: &str) -> bool {
    form.iter().any(|(field, is)| field == "autoCompactionDefined" && is == value)
}

fn apply_fields(settings: &mut BucketSettings, form: &[(String, String)]) -> Result<(), Invalid> {
    for (field, value) in form {
        let (field, value) = (field.as_str(), value.as_str());
        match field {
            "ramQuotaMB" | "ramQuota" => settings.ram_quota_mb = ram_quota_mb(value)?,
            "replicaNumber" => settings.replicas = number(field, value)?,
            "maxTTL" => settings.max_ttl = number(field, value)?,
            "expiryPagerSleepTime" => settings.expiry_pager_s = number(field, value)?,
            "numVBuckets" => settings.vbucket_count = number(field, value)?,
            "historyRetentionBytes" => settings.history.bytes = number(field, value)?,
            "historyRetentionSeconds" => settings.history.seconds = number(field, value)?,
            "rank" => settings.rank = number(field, value)?,
            "replicaIndex" => {
                settings.replica_index =
                    named(FLAGS, field, value, "replicaIndex can only be 1 or 0")?;
            }
            "flushEnabled" => {
                settings.flush_enabled =
                    named(FLAGS, field, value, "flushEnabled can only be 1 or 0")?;
            }
            "historyRetentionCollectionDefault" => {
                settings.history.collection_default =
                    named(FLAGS, field, value, "Must be true or false")?;
            }
            "bucketType" if value == "memcached" => {
                return Err(Invalid::new(field, "memcached buckets are no longer supported"));
            }
            "bucketType" => settings.kind = named(KINDS, field, value, "invalid bucket type")?,
            "evictionPolicy" => {
                let reason = if settings.kind == BucketKind::Ephemeral {
                    "Eviction policy must be either 'noEviction' or 'nruEviction' for ephemeral buckets"
                } else {
                    "Eviction policy must be either 'valueOnly' or 'fullEviction' for couchbase buckets"
                };
                settings.eviction_policy = named(EVICTION_POLICIES, field, value, reason)?;
            }
            "compressionMode" => {
                let reason = "compressionMode can be set to 'off', 'passive' or 'active'";
                settings.compression_mode = named(COMPRESSION_MODES, field, value, reason)?;
            }
            "conflictResolutionType" => {
                let reason = "Conflict resolution type must be 'seqno' or 'lww' or 'custom'";
                settings.conflict_resolution = named(CONFLICT_RESOLUTIONS, field, value, reason)?;
            }
            "storageBackend" => {
                let reason = "storage backend must be couchstore, magma or sled";
                settings.storage_backend = named(STORAGE_BACKENDS, field, value, reason)?;
            }
            "durabilityMinLevel" => {
                let reason = "Durability minimum level must be either 'none', 'majority', 'majorityAndPersistActive', or 'persistToMajority'";
                settings.durability_min_level =
                    named(DURABILITY_LEVELS, "durability_min_level", value, reason)?;
            }
            // For an existing bucket, the time of the change matters: see [`versioning`].
            "enableCrossClusterVersioning" => {
                if named(FLAGS, field, value, NOT_A_FLAG)? {
                    let reason = "Cross Cluster Versioning cannot be enabled on bucket create";
                    return Err(Invalid::new(field, reason));
                }
            }
            "autoCompactionDefined" => {}
            _ => check_other(field, value)?,
        }
    }
    Ok(())
}

/// For an existing bucket: reads whether it keeps version histories from now on, and removes that field from the form.
pub(super) fn versioning(
    settings: &mut BucketSettings,
    form: &mut Vec<(String, String)>,
    now_cas: u64,
) -> Result<(), Invalid> {
    const FIELD: &str = "enableCrossClusterVersioning";
    let Some((_, value)) = form.iter().find(|(field, _)| field == FIELD) else { return Ok(()) };
    settings.histories_since =
        match (named(FLAGS, FIELD, value, NOT_A_FLAG)?, settings.histories_since) {
            (true, known) => Some(known.unwrap_or(now_cas)),
            (false, _) => None,
        };
    form.retain(|(field, _)| field != FIELD);
    Ok(())
}

/// Refuses unknown fields, and fixed fields with any value other than the accepted ones.
fn check_other(field: &str, value: &str) -> Result<(), Invalid> {
    if compaction_settings::read(&mut Compaction::default(), field, value)? {
        return Ok(());
    }
    match FIXED.iter().find(|(name, ..)| *name == field) {
        Some((_, allowed, _)) if allowed.contains(&value) => Ok(()),
        Some((.., reason)) => Err(Invalid::new(field, format!("It cannot be {value}. {reason}"))),
        None => Err(Invalid::new(field, "Unsupported key")),
    }
}

/// Describes the settings as the description of a bucket contains them, except those that every cluster map contains.
pub(super) fn describe(settings: &BucketSettings) -> Value {
    let mut value = json!({
        "replicaNumber": settings.replicas,
        "maxTTL": settings.max_ttl,
        "expiryPagerSleepTime": settings.expiry_pager_s,
        "compressionMode": name_of(COMPRESSION_MODES, settings.compression_mode),
        "conflictResolutionType": name_of(CONFLICT_RESOLUTIONS, settings.conflict_resolution),
        "durabilityMinLevel": name_of(DURABILITY_LEVELS, settings.durability_min_level),
        "enableCrossClusterVersioning": settings.histories_since.is_some(),
        "evictionPolicy": name_of(EVICTION_POLICIES, settings.eviction_policy),
        "rank": settings.rank,
    });
    if has_replica_index(settings) {
        value["replicaIndex"] = json!(settings.replica_index);
    }
    value["autoCompactionSettings"] = match &settings.compaction {
        Some(own) => compaction_settings::describe(own),
        None => json!(false),
    };
    if let Some(own) = &settings.compaction {
        value["purgeInterval"] = json!(compaction_settings::purge_days(own));
    }
    if let Some(since) = settings.histories_since {
        let of_each = vec![since.to_string(); usize::from(settings.vbucket_count)];
        value["vbucketsMaxCas"] = json!(of_each);
        value["versionPruningWindowHrs"] = json!(PRUNING_WINDOW_HOURS);
    }
    // Clients conclude from these fields that the bucket can keep history.
    if settings.storage_backend == StorageBackend::Magma {
        value["historyRetentionCollectionDefault"] = json!(settings.history.collection_default);
        value["historyRetentionBytes"] = json!(settings.history.bytes);
        value["historyRetentionSeconds"] = json!(settings.history.seconds);
    }
    value
}

fn number<T: std::str::FromStr>(field: &str, text: &str) -> Result<T, Invalid> {
    text.parse().map_err(|_| Invalid::new(field, "The value must be an integer"))
}

/// Reads a quota, and refuses one that exceeds the memory of this machine.
fn ram_quota_mb(text: &str) -> Result<u64, Invalid> {
    let quota_mb: u64 = number("ramQuota", text)?;
    match memory_bytes().is_some_and(|bytes| quota_mb > bytes >> 20) {
        true => Err(Invalid::new("ramQuota", RAM_QUOTA_TOO_LARGE)),
        false => Ok(quota_mb),
    }
}

fn named<T: Copy>(names: Names<T>, field: &str, text: &str, reason: &str) -> Result<T, Invalid> {
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| Invalid::new(field, reason))
}

#[cfg(test)]
mod tests {
    use super::super::body::Reply;
    use super::*;
    use http_body_util::BodyExt;

    fn form(text: &str) -> Vec<(String, String)> {
        super::super::body::form(text.as_bytes())
    }

    fn body(invalid: Invalid) -> String {
        let reply = Reply::from(invalid);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(reply.into_body().collect()).unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn every_setting_of_a_form_is_returned() {
        let text = "ramQuotaMB=1024&bucketType=couchbase&replicaNumber=2&replicaIndex=0&flushEnabled=1&maxTTL=60&expiryPagerSleepTime=600&compressionMode=active&conflictResolutionType=lww&durabilityMinLevel=majorityAndPersistActive&evictionPolicy=fullEviction&storageBackend=magma&numVBuckets=128&historyRetentionBytes=2147483648&historyRetentionSeconds=13000&historyRetentionCollectionDefault=false&rank=9";
        let settings = create(&form(text)).unwrap();
        assert!(settings.flush_enabled && settings.vbucket_count == 128);
        insta::assert_snapshot!(describe(&settings), @r#"{"autoCompactionSettings":false,"compressionMode":"active","conflictResolutionType":"lww","durabilityMinLevel":"majorityAndPersistActive","enableCrossClusterVersioning":false,"evictionPolicy":"fullEviction","expiryPagerSleepTime":600,"historyRetentionBytes":2147483648,"historyRetentionCollectionDefault":false,"historyRetentionSeconds":13000,"maxTTL":60,"rank":9,"replicaNumber":2}"#);
    }

    #[test]
    fn a_bucket_that_exists_keeps_histories_from_now_on() {
        assert!(create(&form("ramQuotaMB=100&enableCrossClusterVersioning=true")).is_err());
        let mut settings =
            create(&form("ramQuotaMB=100&numVBuckets=2&enableCrossClusterVersioning=false"))
                .unwrap();
        let mut later = form("enableCrossClusterVersioning=true&rank=1");
        versioning(&mut settings, &mut later, 77).unwrap();
        assert_eq!((settings.histories_since, later.len()), (Some(77), 1));
        assert_eq!(describe(&settings)["vbucketsMaxCas"], json!(["77", "77"]));
        let mut again = form("enableCrossClusterVersioning=true");
        versioning(&mut settings, &mut again, 99).unwrap();
        assert_eq!(settings.histories_since, Some(77));
    }

    #[test]
    fn the_eviction_policy_follows_type_and_store_when_not_chosen() {
        let policy = |text: &str| describe(&create(&form(text)).unwrap())["evictionPolicy"].clone();
        assert_eq!(policy("ramQuotaMB=100"), "valueOnly");
        assert_eq!(policy("ramQuotaMB=100&storageBackend=magma"), "fullEviction");
        assert_eq!(policy("ramQuotaMB=100&bucketType=ephemeral"), "noEviction");
        assert_eq!(
            policy("ramQuotaMB=100&bucketType=ephemeral&evictionPolicy=nruEviction"),
            "nruEviction"
        );
    }

    #[test]
    fn a_bucket_and_the_rows_of_its_views_have_a_replica_by_default() {
        let described = |text: &str| describe(&create(&form(text)).unwrap());
        for (text, replicas, index) in [
            ("ramQuotaMB=100", 1, json!(true)),
            ("ramQuotaMB=100&replicaNumber=0", 0, json!(false)),
            ("ramQuotaMB=100&replicaIndex=0", 1, json!(false)),
            ("ramQuotaMB=100&storageBackend=magma", 1, Value::Null),
            ("ramQuotaMB=100&bucketType=ephemeral", 1, Value::Null),
        ] {
            let described = described(text);
            assert_eq!(
                (&described["replicaNumber"], &described["replicaIndex"]),
                (&json!(replicas), &index),
                "{text}"
            );
        }
    }

    #[test]
    fn a_bucket_has_its_own_compaction_if_the_form_sets_it() {
        let base = "ramQuotaMB=100&parallelDBAndViewCompaction=false";
        let own = "&databaseFragmentationThreshold[percentage]=25&purgeInterval=1";
        let defined = format!("{base}{own}&autoCompactionDefined=true");
        let described = describe(&create(&form(&defined)).unwrap());
        let settings = &described["autoCompactionSettings"];
        assert_eq!(settings["databaseFragmentationThreshold"]["percentage"], 25);
        assert_eq!(described["purgeInterval"], 1.0);
        let undefined =
            describe(&create(&form(&format!("{defined}&autoCompactionDefined=false"))).unwrap());
        assert_eq!(
            undefined["autoCompactionSettings"]["databaseFragmentationThreshold"]["percentage"], 25,
            "the first counts"
        );
        let refused = body(create(&form(&format!("{base}{own}"))).unwrap_err());
        assert!(refused.contains("autoCompactionDefined"), "{refused}");
        let mut settings = create(&form(&defined)).unwrap();
        apply(&mut settings, &form("autoCompactionDefined=false")).unwrap();
        assert_eq!(describe(&settings)["autoCompactionSettings"], false);
    }

    /// The server either applies and describes a field, or refuses it by its name.
    #[test]
    fn every_field_of_couchbase_is_honoured_or_refused() {
        for (field, _, reason) in FIXED {
            let refused =
                body(create(&form(&format!("ramQuotaMB=100&{field}=other"))).unwrap_err());
            assert!(refused.contains(field) && refused.contains(reason), "{refused}");
        }
        for field in ["unheard", "width", "weight", "otherBucketsRamQuotaMB"] {
            let refused = body(create(&form(&format!("ramQuotaMB=100&{field}=1"))).unwrap_err());
            assert_eq!(refused, format!("{{\"errors\":{{\"{field}\":\"Unsupported key\"}}}}"));
        }
        for text in
            ["historyRetentionCollectionDefault=true", "historyRetentionCollectionDefault=false"]
        {
            let refused = body(create(&form(&format!("ramQuotaMB=100&{text}"))).unwrap_err());
            assert!(refused.contains("History Retention can only used with Magma"), "{refused}");
        }
    }

    #[test]
    fn an_unknown_field_is_named() {
        let refused = |text: &str| body(create(&form(text)).unwrap_err());
        insta::assert_snapshot!(
            [
                "flushEnabled=0",
                "ramQuotaMB=much",
                "ramQuotaMB=16000000",
                "ramQuotaMB=100&bucketType=memcached",
                "ramQuotaMB=100&bucketType=jar",
                "ramQuotaMB=100&flushEnabled=2",
                "ramQuotaMB=100&evictionPolicy=x",
                "ramQuotaMB=100&compressionMode=x",
                "ramQuotaMB=100&conflictResolutionType=x",
                "ramQuotaMB=100&storageBackend=x",
                "ramQuotaMB=100&durabilityMinLevel=x",
                "ramQuotaMB=100&replicaNumber=-1",
            ]
            .map(refused)
            .join("\n"),
            @r#"
            {"errors":{"ramQuota":"The RAM Quota must be specified and must be a positive integer."}}
            {"errors":{"ramQuota":"The value must be an integer"}}
            {"errors":{"ramQuota":"RAM quota specified is too large to be provisioned into this cluster."}}
            {"errors":{"bucketType":"memcached buckets are no longer supported"}}
            {"errors":{"bucketType":"invalid bucket type"}}
            {"errors":{"flushEnabled":"flushEnabled can only be 1 or 0"}}
            {"errors":{"evictionPolicy":"Eviction policy must be either 'valueOnly' or 'fullEviction' for couchbase buckets"}}
            {"errors":{"compressionMode":"compressionMode can be set to 'off', 'passive' or 'active'"}}
            {"errors":{"conflictResolutionType":"Conflict resolution type must be 'seqno' or 'lww' or 'custom'"}}
            {"errors":{"storageBackend":"storage backend must be couchstore, magma or sled"}}
            {"errors":{"durability_min_level":"Durability minimum level must be either 'none', 'majority', 'majorityAndPersistActive', or 'persistToMajority'"}}
            {"errors":{"replicaNumber":"The value must be an integer"}}
            "#
        );
    }
}
