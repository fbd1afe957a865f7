//! GROUP BY over index entries in their stored form: only aggregated values are decoded.

use super::group::Bucket;
use super::scan::StoredEntries;
use crate::run::Run;
use nacre_planner::{Access, Group, Pushed, Scan, ScanSource};
use nacre_sql::index::Definition;
use nacre_sql::{Context, Env, Error, Host, Result, Value, key};
use std::collections::{BTreeMap, VecDeque};

/// Number of entries requested at a time.
const BATCH: usize = 1024;

/// Returns the groups of the entries that a scan reads.
pub(super) fn read(
    group: &Group,
    pushed: &Pushed,
    scan: &Scan,
    base: &Env,
    run: &Run<'_>,
    context: &Context<'_>,
) -> Result<VecDeque<Bucket>> {
    let ScanSource::Keyspace { keyspace, access: Access::Index(index), .. } = &scan.source else {
        return Err(Error::execution("groups of entries need an index"));
    };
    let definition = &index.definition;
    let mut entries = StoredEntries::open(index, base, context)?;
    let mut groups = Groups::of(group, pushed, definition);
    loop {
        let found = entries.next(keyspace, BATCH, run)?;
        let (Some(first), Some(last)) = (found.first(), found.last()) else { break };
        let mut parts = Vec::new();
        for entry in &found {
            run.tick()?;
            definition.split(entry, &mut parts).ok_or_else(foreign)?;
            groups.add(&parts, run)?;
        }
        // If a group has many more entries than needed, skip to the next group.
        if let Some(count) = pushed.leading
            && found.len() >= BATCH
            && groups.is_known()
        {
            definition.split(last, &mut parts).ok_or_else(foreign)?;
            let length: usize = parts[..count].iter().map(|part| part.len()).sum();
            if first.get(..length) == Some(&last[..length]) {
                entries.skip_to([&last[..length], &[key::AFTER]].concat());
            }
        }
    }
    Ok(groups.end())
}

fn foreign() -> Error {
    Error::execution("an index has an entry of another document")
}

/// The groups so far.
struct Groups<'a> {
    group: &'a Group,
    pushed: &'a Pushed,
    definition: &'a Definition,
    /// Positions of the groups by the encodings of their keys.
    places: BTreeMap<Vec<u8>, usize>,
    buckets: VecDeque<Bucket>,
    /// The group of the last entry; entries of one group are often adjacent.
    last: Vec<u8>,
    place: usize,
    /// The keys of the current entry.
    key: Vec<u8>,
}

impl<'a> Groups<'a> {
    fn of(group: &'a Group, pushed: &'a Pushed, definition: &'a Definition) -> Groups<'a> {
        Groups {
            group,
            pushed,
            definition,
            places: BTreeMap::new(),
            buckets: VecDeque::new(),
            last: Vec::new(),
            place: 0,
            key: Vec::new(),
        }
    }

    /// Adds an entry with these parts.
    fn add(&mut self, parts: &[&[u8]], run: &Run<'_>) -> Result<()> {
        self.key.clear();
        self.pushed.keys.iter().for_each(|at| self.key.extend_from_slice(parts[*at]));
        if self.buckets.is_empty() || self.key != self.last {
            self.find(parts, run)?;
        }
        let bucket = &mut self.buckets[self.place];
        let aggregates = self.group.aggregates.iter().zip(&self.pushed.parts);
        for (((_, aggregate), part), accumulator) in aggregates.zip(&mut bucket.accumulators) {
            let Some(at) = *part else {
                accumulator.count_row();
                continue;
            };
            if &*aggregate.name == "count" && !aggregate.distinct {
                if key::is_known(parts[at], self.definition.keys[at].descending) {
                    accumulator.count_row();
                }
                continue;
            }
            let value = decoded(self.definition, at, parts)?;
            run.charge(accumulator.take(&aggregate.name, value))?;
        }
        Ok(())
    }

    /// Moves to the group of the current keys, which may be new.
    fn find(&mut self, parts: &[&[u8]], run: &Run<'_>) -> Result<()> {
        self.last.clone_from(&self.key);
        if let Some(place) = self.places.get(&self.key) {
            self.place = *place;
            return Ok(());
        }
        let keys = self.pushed.keys.iter().map(|at| decoded(self.definition, *at, parts));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        run.charge(self.key.len() * 2 + 128)?;
        self.place = self.buckets.len();
        self.places.insert(self.key.clone(), self.place);
        self.buckets.push_back(Bucket::new(self.group, keys));
        Ok(())
    }

    /// Returns true if all aggregates of the last group have seen a value.
    fn is_known(&self) -> bool {
        let bucket = self.buckets.get(self.place);
        bucket.is_some_and(|bucket| bucket.accumulators.iter().all(|one| one.has_seen()))
    }

    /// Returns all groups; without keys there is always one.
    fn end(mut self) -> VecDeque<Bucket> {
        if self.buckets.is_empty() && self.group.keys.is_empty() {
            self.buckets.push_back(Bucket::new(self.group, Vec::new()));
        }
        self.buckets
    }
}

fn decoded(definition: &Definition, at: usize, parts: &[&[u8]]) -> Result<Value> {
    key::decode(&mut &*parts[at], definition.keys[at].descending).ok_or_else(foreign)
}
