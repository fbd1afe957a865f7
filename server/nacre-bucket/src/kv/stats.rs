//! Statistics: one packet for each name and value, then an empty one. The names are those that clients expect.

use super::session::{Answer, Outcome, Session};
use crate::Bucket;
use nacre_protocol::{Reply, Status};
use nacre_types::{CollectionId, VbState, Vbid};
use nacre_vbucket::Vbucket;
use std::fmt::Display;
use std::sync::Arc;

type Stats = Vec<(String, String)>;

/// Answers with the statistics of a group; the empty name selects the general group. After a space, a group may name a
/// vBucket, collection or scope.
pub(super) fn answer(
    session: &mut Session,
    group: &[u8],
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let group = str::from_utf8(group).map_err(|_| Status::InvalidArguments)?;
    let (group, part) = match group.split_once(' ') {
        Some((group, part)) => (group, Some(part)),
        None => (group, None),
    };
    let stats = match part {
        None => of_all(session, &bucket, group)?,
        Some(part) => of_part(&bucket, group, part)?,
    };
    for (name, value) in &stats {
        answer.send(Reply { key: name.as_bytes(), value: value.as_bytes(), ..Reply::default() });
    }
    answer.send(Reply::default());
    Ok(Outcome::Answered)
}

fn of_all(session: &Session, bucket: &Bucket, group: &str) -> Result<Stats, Status> {
    if let Some(each) = of_vbucket(group) {
        let vbids = (0..bucket.vbucket_count()).map(Vbid);
        return Ok(vbids.filter_map(|vbid| stats_of(bucket, vbid, each)).flatten().collect());
    }
    Ok(match group {
        "" => general(session, bucket),
        "memory" => memory(bucket),
        "collections" => collections(bucket, |_| true),
        "scopes" => scopes(bucket, |_| true),
        "config" => vec![
            ("ep_max_size".into(), bucket.quota_bytes().to_string()),
            ("ep_max_vbuckets".into(), bucket.vbucket_count().to_string()),
        ],
        "dcp" => vec![("ep_dcp_count".into(), bucket.dcp_connections.count().to_string())],
        "uuid" => vec![("uuid".into(), bucket.uuid.clone())],
        _ => return Err(Status::KeyNotFound),
    })
}

fn of_part(bucket: &Bucket, group: &str, part: &str) -> Result<Stats, Status> {
    if let Some(each) = of_vbucket(group) {
        let vbid = part.parse().map(Vbid).map_err(|_| Status::InvalidArguments)?;
        return stats_of(bucket, vbid, each).ok_or(Status::NotMyVbucket);
    }
    let manifest = bucket.manifest();
    match group {
        "collections" => {
            let id = manifest.resolve(part).map_err(|_| Status::UnknownCollection)?;
            Ok(collections(bucket, |collection| collection == id.0))
        }
        "scopes" => {
            let scope = manifest.scopes.iter().find(|scope| scope.name == part);
            let id = scope.ok_or(Status::UnknownScope)?.id;
            Ok(scopes(bucket, |scope| scope == id))
        }
        _ => Err(Status::KeyNotFound),
    }
}

type Push<'a> = &'a mut dyn FnMut(&str, &dyn Display);
type OfVbucket = fn(&Vbucket, Push<'_>);

/// Returns the function that lists the statistics of one vBucket, if `group` has a per-vBucket form.
fn of_vbucket(group: &str) -> Option<OfVbucket> {
    Some(match group {
        "vbucket" => state,
        "vbucket-seqno" => seqnos,
        "vbucket-details" => details,
        "failovers" => failovers,
        "durability-monitor" => |vbucket, push| push(":num_tracked", &vbucket.prepare_count()),
        _ => return None,
    })
}

/// Returns the statistics of a vBucket, whose names begin with its number; `None` if this node has no copy.
fn stats_of(bucket: &Bucket, vbid: Vbid, each: OfVbucket) -> Option<Stats> {
    let vbucket = bucket.vbucket(vbid)?;
    let mut stats = Vec::new();
    each(&vbucket, &mut |name, value| {
        stats.push((format!("vb_{}{name}", vbid.0), value.to_string()));
    });
    Some(stats)
}

fn general(session: &Session, bucket: &Bucket) -> Stats {
    let (documents, memory_bytes) = bucket.usage();
    let now = session.env.now();
    let vbuckets = |state: VbState| {
        let vbids = (0..bucket.vbucket_count()).map(Vbid);
        vbids.filter(|vbid| bucket.vbucket(*vbid).is_some_and(|v| v.state() == state)).count()
    };
    let pairs: [(&str, &dyn Display); 9] = [
        ("version", &env!("CARGO_PKG_VERSION")),
        ("uptime", &(now.monotonic_ns / 1_000_000_000)),
        ("time", &now.unix_s()),
        ("curr_items", &documents),
        ("vb_active_num", &vbuckets(VbState::Active)),
        ("vb_replica_num", &vbuckets(VbState::Replica)),
        ("mem_used", &memory_bytes),
        ("ep_max_size", &bucket.quota_bytes()),
        ("ep_version", &env!("CARGO_PKG_VERSION")),
    ];
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect()
}

fn memory(bucket: &Bucket) -> Stats {
    let (mut keys, mut stubs, mut history) = (0, 0, 0);
    for vbid in (0..bucket.vbucket_count()).map(Vbid) {
        let Some(vbucket) = bucket.vbucket(vbid) else { continue };
        keys += vbucket.key_count();
        stubs += vbucket.stub_count();
        history += vbucket.checkpoint().memory_bytes();
    }
    let disk = bucket.disk_usage();
    let pairs: [(&str, u64); 7] = [
        ("mem_used", bucket.memory_bytes()),
        ("ep_max_size", bucket.quota_bytes()),
        ("ep_checkpoint_memory", history as u64),
        ("ep_keys_in_memory", keys),
        ("ep_num_non_resident", stubs),
        ("ep_db_file_size", disk.disk_bytes),
        ("ep_db_data_size", disk.live_bytes),
    ];
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect()
}

fn state(vbucket: &Vbucket, push: Push<'_>) {
    push("", &format!("{:?}", vbucket.state()).to_lowercase());
}

fn failovers(vbucket: &Vbucket, push: Push<'_>) {
    let entries = vbucket.failover_log().entries();
    push(":num_entries", &entries.len());
    for (index, (vb_uuid, seqno)) in entries.iter().enumerate() {
        push(&format!(":{index}:id"), &vb_uuid.0);
        push(&format!(":{index}:seq"), seqno);
    }
}

fn seqnos(vbucket: &Vbucket, push: Push<'_>) {
    push(":uuid", &vbucket.failover_log().current().0);
    push(":high_seqno", &vbucket.high_seqno());
    push(":abs_high_seqno", &vbucket.high_seqno());
    push(":last_persisted_seqno", &vbucket.persisted());
    push(":purge_seqno", &vbucket.purge_seqno());
}

fn details(vbucket: &Vbucket, push: Push<'_>) {
    state(vbucket, push);
    seqnos(vbucket, push);
    push(":num_items", &vbucket.alive_count());
    push(":num_non_resident", &vbucket.stub_count());
    push(":ht_memory", &vbucket.memory_bytes());
    push(":max_cas", &vbucket.max_cas().0);
}

/// Returns the statistics of the collections whose ids `wanted` accepts.
fn collections(bucket: &Bucket, wanted: impl Fn(u32) -> bool) -> Stats {
    let manifest = bucket.manifest();
    let mut stats = vec![("manifest_uid".to_owned(), format!("{:x}", manifest.uid))];
    for scope in &manifest.scopes {
        for collection in scope.collections.iter().filter(|c| wanted(c.id)) {
            let counts = bucket.counts_of(CollectionId(collection.id));
            let mut push = |name: &str, value: &dyn Display| {
                let at = format!("0x{:x}:0x{:x}", scope.id, collection.id);
                stats.push((format!("{at}:{name}"), value.to_string()));
            };
            push("name", &collection.name);
            push("scope_name", &scope.name);
            push("items", &counts.documents);
            push("data_size", &counts.memory_bytes);
        }
    }
    stats
}

fn scopes(bucket: &Bucket, wanted: impl Fn(u32) -> bool) -> Stats {
    let manifest = bucket.manifest();
    let mut stats = vec![("manifest_uid".to_owned(), format!("{:x}", manifest.uid))];
    for scope in manifest.scopes.iter().filter(|scope| wanted(scope.id)) {
        stats.push((format!("0x{:x}:name", scope.id), scope.name.clone()));
        stats.push((format!("0x{:x}:collections", scope.id), scope.collections.len().to_string()));
    }
    stats
}
