//! Warmup: loads a bucket's vBuckets from its store before they are served.

use crate::bucket::{LOW_WATER_PERCENT, eviction_of};
use crate::{BucketEnv, Watermarks};
use nacre_store::{Commit, Error, Store};
use nacre_types::{VbUuid, Vbid};
use nacre_vbucket::Vbucket;

/// The vBuckets of a bucket with their stored documents, as far as memory allows.
pub(crate) struct Loaded {
    pub vbuckets: Vec<Vbucket>,
    /// The stored branch of history of each vBucket in the store.
    branches: Vec<(Vbid, VbUuid)>,
}

/// Loads the stored vBuckets, and sets `persisted` accordingly.
pub(crate) fn load(
    config: &nacre_cluster::Bucket,
    env: &dyn BucketEnv,
    store: Option<&dyn Store>,
    persisted: &Watermarks,
) -> Result<Loaded, Error> {
    let count = config.settings.vbucket_count;
    let create = |id| Vbucket::create(Vbid(id), VbUuid::of_random(env.random()), env.random());
    let mut vbuckets: Vec<Vbucket> = (0..count).map(create).collect();
    let Some(store) = store else {
        return Ok(Loaded { vbuckets, branches: Vec::new() });
    };
    let eviction = eviction_of(&config.settings);
    let records = store.records()?;
    for (vbid, record) in &records {
        let Some(slot) = vbuckets.get_mut(vbid.index()) else {
            let what = format!("the bucket has {count} vBuckets");
            return Err(Error::Inconsistent { vbid: *vbid, what });
        };
        *slot = Vbucket::new(*vbid, record.clone(), env.random());
        slot.set_eviction(eviction);
        persisted.raise(*vbid, record.high_seqno);
    }
    let resident_bytes_max = (config.settings.ram_quota_mb << 20) / 100 * LOW_WATER_PERCENT;
    let mut loaded = 0;
    nacre_store::load_all(store, &mut |vbid, document| {
        let vbucket = &mut vbuckets[vbid.index()];
        let before = vbucket.memory_bytes();
        vbucket.load(document, loaded < resident_bytes_max);
        loaded += (vbucket.memory_bytes() - before) as u64;
    })?;
    let branches = records.into_iter().map(|(vbid, record)| (vbid, record.failover_log.current()));
    Ok(Loaded { vbuckets, branches: branches.collect() })
}

impl Loaded {
    /// Begins a new branch of history, also in the store, for each vBucket that accepts writes here after an unclean
    /// stop, unless it has begun one since it was loaded. The last process may have written more than was stored. Other
    /// vBuckets keep their branch, because it is that of their active copy.
    pub(crate) fn begin_branches(
        &mut self,
        env: &dyn BucketEnv,
        store: &dyn Store,
    ) -> Result<(), Error> {
        let mut begun = Vec::new();
        for (vbid, branch) in &self.branches {
            let vbucket = &mut self.vbuckets[vbid.index()];
            if !vbucket.makes_history() || vbucket.failover_log().current() != *branch {
                continue;
            }
            vbucket.begin_branch(VbUuid::of_random(env.random()));
            let record = crate::flusher::record_of(vbucket);
            let (documents, erased, history) = Default::default();
            begun.push(Commit { vbid: *vbid, record, documents, erased, history });
        }
        store.commit(&begun)
    }
}
