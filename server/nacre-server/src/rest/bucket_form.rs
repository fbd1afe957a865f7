//! A bucket's settings as REST words them: read from a form, and written into a description.

use super::body::{Reply, invalid};
use crate::platform::memory_bytes;
use nacre_cluster::{
    BucketKind, BucketSettings, CompressionMode, ConflictResolution, EvictionPolicy,
    RAM_QUOTA_TOO_LARGE, StorageBackend,
};
use serde_json::{Value, json};

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

/// The settings of a new bucket.
pub(super) fn create(form: &[(String, String)]) -> Result<BucketSettings, Reply> {
    let mut settings = BucketSettings::default();
    apply(&mut settings, form)?;
    let chosen = |name: &str| form.iter().any(|(field, _)| field == name);
    if !chosen("ramQuotaMB") && !chosen("ramQuota") {
        let reason = "The RAM Quota must be specified and must be a positive integer.";
        return Err(invalid("ramQuota", reason));
    }
    if !chosen("evictionPolicy") {
        settings.eviction_policy =
            EvictionPolicy::default_of(settings.kind, settings.storage_backend);
    }
    Ok(settings)
}

/// Takes over the fields of a form. Unknown fields are left alone: clients send what newer servers know.
pub(super) fn apply(settings: &mut BucketSettings, form: &[(String, String)]) -> Result<(), Reply> {
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
                return Err(invalid(field, "memcached buckets are no longer supported"));
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
            _ => {}
        }
    }
    Ok(())
}

/// The settings as the description of a bucket has them, but for those that every cluster map has.
pub(super) fn describe(settings: &BucketSettings) -> Value {
    let mut value = json!({
        "replicaNumber": settings.replicas,
        "replicaIndex": settings.replica_index,
        "maxTTL": settings.max_ttl,
        "expiryPagerSleepTime": settings.expiry_pager_s,
        "compressionMode": name_of(COMPRESSION_MODES, settings.compression_mode),
        "conflictResolutionType": name_of(CONFLICT_RESOLUTIONS, settings.conflict_resolution),
        "durabilityMinLevel": name_of(DURABILITY_LEVELS, settings.durability_min_level),
        "evictionPolicy": name_of(EVICTION_POLICIES, settings.eviction_policy),
        "rank": settings.rank,
    });
    // Clients conclude from these fields that the bucket can keep history.
    if settings.storage_backend == StorageBackend::Magma {
        value["historyRetentionCollectionDefault"] = json!(settings.history.collection_default);
        value["historyRetentionBytes"] = json!(settings.history.bytes);
        value["historyRetentionSeconds"] = json!(settings.history.seconds);
    }
    value
}

fn number<T: std::str::FromStr>(field: &str, text: &str) -> Result<T, Reply> {
    text.parse().map_err(|_| invalid(field, "The value must be an integer"))
}

/// A quota that this machine has memory for.
fn ram_quota_mb(text: &str) -> Result<u64, Reply> {
    let quota_mb: u64 = number("ramQuota", text)?;
    match memory_bytes().is_some_and(|bytes| quota_mb > bytes >> 20) {
        true => Err(invalid("ramQuota", RAM_QUOTA_TOO_LARGE)),
        false => Ok(quota_mb),
    }
}

fn named<T: Copy>(names: Names<T>, field: &str, text: &str, reason: &str) -> Result<T, Reply> {
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| invalid(field, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn form(text: &str) -> Vec<(String, String)> {
        super::super::body::form(text.as_bytes())
    }

    fn body(reply: Reply) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(reply.into_body().collect()).unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn every_choice_of_a_form_is_given_back() {
        let text = "ramQuotaMB=1024&bucketType=couchbase&replicaNumber=2&replicaIndex=1&flushEnabled=1&maxTTL=60&expiryPagerSleepTime=600&compressionMode=active&conflictResolutionType=lww&durabilityMinLevel=majorityAndPersistActive&evictionPolicy=fullEviction&storageBackend=magma&numVBuckets=128&historyRetentionBytes=2147483648&historyRetentionSeconds=13000&historyRetentionCollectionDefault=false&rank=9&unheard=of";
        let settings = create(&form(text)).unwrap();
        assert!(settings.flush_enabled && settings.vbucket_count == 128);
        insta::assert_snapshot!(describe(&settings), @r#"{"compressionMode":"active","conflictResolutionType":"lww","durabilityMinLevel":"majorityAndPersistActive","evictionPolicy":"fullEviction","expiryPagerSleepTime":600,"historyRetentionBytes":2147483648,"historyRetentionCollectionDefault":false,"historyRetentionSeconds":13000,"maxTTL":60,"rank":9,"replicaIndex":true,"replicaNumber":2}"#);
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
    fn a_field_that_is_not_understood_is_named() {
        let refused = |text: &str| body(create(&form(text)).unwrap_err());
        insta::assert_snapshot!(
            [
                "name=b",
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
