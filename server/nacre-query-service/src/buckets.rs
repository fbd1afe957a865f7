//! CREATE, ALTER and DROP BUCKET, with the same rights as the corresponding management requests.

use super::failure::{code, failure};
use super::requester::Requester;
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{BucketChange, BucketSettings, Change, RAM_QUOTA_TOO_LARGE, Refusal};
use nacre_node::Error;
use nacre_sandbox::Failure;
use serde_json::Value;

/// Names and values of settings, as in the management API.
pub(super) type Fields = Vec<(String, String)>;

pub(super) fn create_bucket(
    requester: &Requester,
    name: &str,
    fields: &Fields,
    if_not_exists: bool,
) -> Result<Value, Failure> {
    requester.require_whole(Privilege::AdministerCluster)?;
    let settings = read_settings(requester, None, name, fields)?;
    check_memory(requester, name, settings.ram_quota_mb)?;
    let (name, uuid) = (name.to_owned(), requester.node.new_uuid());
    match requester.node.change(&Change::Buckets(BucketChange::CreateBucket {
        name,
        uuid,
        settings,
    })) {
        Err(Error::Refused(Refusal::BucketExists { .. })) if if_not_exists => Ok(Value::Null),
        done => done.map(|_| Value::Null).map_err(|error| of_bucket(&error)),
    }
}

pub(super) fn alter_bucket(
    requester: &Requester,
    name: &str,
    fields: &Fields,
) -> Result<Value, Failure> {
    require_bucket(requester, name)?;
    let cluster = requester.node.cluster();
    let known = cluster.bucket(name).map_err(|refusal| of_bucket(&Error::Refused(refusal)))?;
    let known = &known.settings;
    let settings = read_settings(requester, Some(known), name, fields)?;
    if settings.ram_quota_mb > known.ram_quota_mb {
        check_memory(requester, name, settings.ram_quota_mb)?;
    }
    change_bucket(
        requester,
        &Change::Buckets(BucketChange::UpdateBucket { name: name.to_owned(), settings }),
    )
}

pub(super) fn drop_bucket(requester: &Requester, name: &str) -> Result<Value, Failure> {
    require_bucket(requester, name)?;
    change_bucket(requester, &Change::Buckets(BucketChange::DropBucket { name: name.to_owned() }))
}

fn change_bucket(requester: &Requester, change: &Change) -> Result<Value, Failure> {
    requester.node.change(change).map(|_| Value::Null).map_err(|error| of_bucket(&error))
}

fn require_bucket(requester: &Requester, name: &str) -> Result<(), Failure> {
    let keyspace = Keyspace { bucket: Some(name), ..Keyspace::default() };
    requester.require_in(Privilege::AdministerBucket, keyspace)
}

fn read_settings(
    requester: &Requester,
    known: Option<&BucketSettings>,
    name: &str,
    fields: &Fields,
) -> Result<BucketSettings, Failure> {
    // The upper 48 bits of a CAS are a time.
    let now_cas = requester.node.now().unix_ns & !0xffff;
    let read = requester.node.platform.bucket_settings(known, fields, now_cas);
    read.map_err(|reason| failure(code::BUCKET_ACTION, format!("Bucket {name}: {reason}")))
}

/// Refuses a quota that exceeds the memory of this node.
fn check_memory(requester: &Requester, name: &str, quota_mb: u64) -> Result<(), Failure> {
    if requester.node.memory().has_room_for(&requester.node.cluster(), name, quota_mb) {
        return Ok(());
    }
    let message = format!("Bucket {name}: {RAM_QUOTA_TOO_LARGE}");
    Err(failure(code::BUCKET_ACTION, message))
}

fn of_bucket(error: &Error) -> Failure {
    let code = match error {
        Error::Refused(Refusal::BucketNotFound { .. }) => code::BUCKET_NOT_FOUND,
        _ => code::BUCKET_ACTION,
    };
    failure(code, error.to_string())
}
