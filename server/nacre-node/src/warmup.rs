//! Warmup: a bucket's vBuckets as its store has them, taken into memory before they serve.

use crate::bucket::{LOW_WATER_PERCENT, eviction_of};
use crate::{Platform, Watermarks};
use nacre_store::{Commit, Error, Store};
use nacre_types::{VbUuid, Vbid};
use nacre_vbucket::Vbucket;
use std::sync::Arc;

/// The vBuckets with what is stored of them, as far as memory has room; `persisted` is told how far that is. After an
/// unclean end each begins a new branch of history, in the store too.
pub(crate) fn load(
    config: &nacre_cluster::Bucket,
    platform: &dyn Platform,
    store: Option<&dyn Store>,
    clean: bool,
    persisted: &Watermarks,
) -> Result<Vec<Vbucket>, Error> {
    let count = config.settings.vbucket_count;
    let create =
        |id| Vbucket::create(Vbid(id), VbUuid::of_random(platform.random()), platform.random());
    let mut vbuckets: Vec<Vbucket> = (0..count).map(create).collect();
    let Some(store) = store else { return Ok(vbuckets) };
    let eviction = eviction_of(&config.settings);
    let records = store.records()?;
    for (vbid, record) in &records {
        let Some(slot) = vbuckets.get_mut(vbid.index()) else {
            let what = format!("the bucket has {count} vBuckets");
            return Err(Error::Inconsistent { vbid: *vbid, what });
        };
        *slot = Vbucket::new(*vbid, record.clone(), platform.random());
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
    if !clean {
        let branches = records.iter().map(|(vbid, _)| {
            let vbucket = &mut vbuckets[vbid.index()];
            vbucket.begin_branch(VbUuid::of_random(platform.random()));
            let record = crate::flusher::record_of(vbucket);
            let history = Arc::default();
            Commit { vbid: *vbid, record, documents: Vec::new(), erased: Vec::new(), history }
        });
        store.commit(&branches.collect::<Vec<_>>())?;
    }
    Ok(vbuckets)
}
