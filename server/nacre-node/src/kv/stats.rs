//! Statistics: one packet a name and a value, then an empty one. The names are those that clients look for.

use super::session::{Answer, Outcome, Session};
use crate::bucket::Bucket;
use nacre_protocol::{Reply, Status};
use nacre_types::{CollectionId, VbState, Vbid};
use nacre_vbucket::Vbucket;
use std::fmt::Display;
use std::sync::Arc;

type Stats = Vec<(String, String)>;

/// Answers with the statistics of a group; the empty name is the general one.
pub(super) fn answer(
    session: &mut Session,
    group: &[u8],
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let stats = match group {
        b"" => general(session, &bucket),
        b"memory" => memory(&bucket),
        b"vbucket" => of_vbuckets(&bucket, |_, vbucket, push| {
            push("", &format!("{:?}", vbucket.state()).to_lowercase());
        }),
        b"vbucket-seqno" => of_vbuckets(&bucket, |_, vbucket, push| seqnos(vbucket, push)),
        b"vbucket-details" => of_vbuckets(&bucket, details),
        b"failovers" => of_vbuckets(&bucket, |_, vbucket, push| {
            let entries = vbucket.failover_log().entries();
            push(":num_entries", &entries.len());
            for (index, (vb_uuid, seqno)) in entries.iter().enumerate() {
                push(&format!(":{index}:id"), &vb_uuid.0);
                push(&format!(":{index}:seq"), seqno);
            }
        }),
        b"durability-monitor" => of_vbuckets(&bucket, |_, vbucket, push| {
            push(":num_tracked", &vbucket.prepare_count());
        }),
        b"collections" => collections(&bucket),
        b"scopes" => scopes(&bucket),
        b"config" => vec![
            ("ep_max_size".into(), bucket.quota_bytes().to_string()),
            ("ep_max_vbuckets".into(), bucket.vbucket_count().to_string()),
        ],
        b"dcp" => vec![("ep_dcp_count".into(), bucket.lines.count().to_string())],
        _ => return Err(Status::KeyNotFound),
    };
    for (name, value) in &stats {
        answer.send(Reply { key: name.as_bytes(), value: value.as_bytes(), ..Reply::default() });
    }
    answer.send(Reply::default());
    Ok(Outcome::Answered)
}

fn general(session: &Session, bucket: &Bucket) -> Stats {
    let (documents, memory_bytes) = bucket.usage();
    let now = session.node.now();
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

/// Statistics of each vBucket, whose names begin with it.
fn of_vbuckets(
    bucket: &Bucket,
    each: impl Fn(Vbid, &Vbucket, &mut dyn FnMut(&str, &dyn Display)),
) -> Stats {
    let mut stats = Vec::new();
    for vbid in (0..bucket.vbucket_count()).map(Vbid) {
        let Some(vbucket) = bucket.vbucket(vbid) else { continue };
        each(vbid, &vbucket, &mut |name, value| {
            stats.push((format!("vb_{}{name}", vbid.0), value.to_string()));
        });
    }
    stats
}

fn seqnos(vbucket: &Vbucket, push: &mut dyn FnMut(&str, &dyn Display)) {
    push(":uuid", &vbucket.failover_log().current().0);
    push(":high_seqno", &vbucket.high_seqno());
    push(":abs_high_seqno", &vbucket.high_seqno());
    push(":last_persisted_seqno", &vbucket.persisted());
    push(":purge_seqno", &vbucket.purge_seqno());
}

fn details(_: Vbid, vbucket: &Vbucket, push: &mut dyn FnMut(&str, &dyn Display)) {
    push("", &format!("{:?}", vbucket.state()).to_lowercase());
    seqnos(vbucket, push);
    push(":num_items", &vbucket.alive_count());
    push(":num_non_resident", &vbucket.stub_count());
    push(":ht_memory", &vbucket.memory_bytes());
    push(":max_cas", &vbucket.max_cas().0);
}

fn collections(bucket: &Bucket) -> Stats {
    let manifest = bucket.manifest();
    let mut stats = vec![("manifest_uid".to_owned(), format!("{:x}", manifest.uid))];
    for scope in &manifest.scopes {
        for collection in &scope.collections {
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

fn scopes(bucket: &Bucket) -> Stats {
    let manifest = bucket.manifest();
    let mut stats = vec![("manifest_uid".to_owned(), format!("{:x}", manifest.uid))];
    for scope in &manifest.scopes {
        stats.push((format!("0x{:x}:name", scope.id), scope.name.clone()));
        stats.push((format!("0x{:x}:collections", scope.id), scope.collections.len().to_string()));
    }
    stats
}
