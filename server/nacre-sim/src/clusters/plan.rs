//! The random plan of a world of clusters: topology, policies, and the frequency of faults.

use crate::Chance;
use nacre_types::Cas;
use nacre_vbucket::Resolution;
use nacre_xdcr::{Echo, Judge, Policy, Settings, Site, SourceId};

/// A millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;
/// A second, in nanoseconds.
pub const SECOND: u64 = 1000 * MS;

/// The replication topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each cluster replicates to every other.
    Mesh,
    /// Each cluster replicates from its predecessor only.
    Ring,
    /// The first cluster replicates to and from all others.
    Star,
}

/// The behaviour of a cluster's resolver. Each is deterministic; only [`Resolver::Union`] and [`Resolver::Later`] give the
/// same answer when the sides are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// Keeps the local version.
    Local,
    /// Keeps the arriving version.
    Remote,
    /// Unites the parts of both bodies.
    Union,
    /// Keeps the version with the greater CAS.
    Later,
    /// Chooses one of the above by the bodies and their sides.
    Erratic,
}

/// The plan of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Identity of its bucket in version histories.
    pub site: Site,
    /// Number of vBuckets.
    pub vbuckets: u16,
    /// Offset of its clock in nanoseconds.
    pub skew_ns: i64,
    /// Its resolver.
    pub resolver: Resolver,
}

/// Frequency of faults. Each number is a weight among the faults, or one in so many times; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    /// One message in this many is lost.
    pub loses_one_in: u64,
    /// One message in this many arrives twice.
    pub repeats_one_in: u64,
    /// Weight of failovers to another copy, and of crashes with a restart.
    pub failovers: u64,
    /// Weight of cut links, in one or both directions.
    pub cuts: u64,
    /// Weight of paused replications.
    pub pauses: u64,
    /// Weight of temporary trouble: no memory, refused documents, or a failing resolver.
    pub troubles: u64,
    /// Weight of bucket flushes.
    pub flushes: u64,
    /// Weight of premature purges of tombstones.
    pub purges: u64,
    /// Weight of clock steps.
    pub steps: u64,
}

/// The plan of a world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The clusters.
    pub clusters: Vec<ClusterPlan>,
    /// Replication topology.
    pub topology: Topology,
    /// Conflict resolution policy.
    pub policy: Policy,
    /// True if histories are sent.
    pub keeps_histories: bool,
    /// The side that judges.
    pub judge: Judge,
    /// Handling of versions that originate at the target.
    pub echo: Echo,
    /// True if conflicts are logged.
    pub logs_conflicts: bool,
    /// True if clusters send only the versions that they wrote or merged themselves.
    pub sends_own_only: bool,
    /// Names of the documents.
    pub keys: Vec<String>,
    /// Index of a document that every cluster permanently refuses, as if it were too big.
    pub refused: Option<usize>,
    /// Duration of the clients' writes.
    pub writes_ns: u64,
    /// Mean time between two writes.
    pub pause_ns: u64,
    /// Maximum delay of a message.
    pub delay_ns_max: u64,
    /// Resolution of the clocks; a coarse one gives several clusters the same CAS.
    pub clock_step_ns: u64,
    /// Frequency of faults.
    pub mix: Mix,
    /// Optimistic replication threshold of the pipelines, in bytes.
    pub optimistic_bytes: usize,
    /// Maximum number of documents in a request.
    pub batch_count: usize,
    /// Minimum and maximum window in bytes.
    pub window_bytes: (usize, usize),
    /// Checkpoint interval.
    pub checkpoint_ns: u64,
    /// Initial timeout of answers.
    pub timeout_ns: u64,
}

impl Plan {
    /// Draws a world of `clusters.0` to `clusters.1` clusters.
    pub fn draw(chance: &mut Chance, clusters: (u64, u64)) -> Plan {
        let count = chance.between(clusters.0, clusters.1) as usize;
        let topology =
            chance.one_of(&[Topology::Mesh, Topology::Mesh, Topology::Ring, Topology::Star]);
        let rule = chance.one_of(&[Resolution::LastWriteWins, Resolution::Seqno]);
        let asks = !chance.once_in(3);
        let policy = if asks { Policy::Resolver(rule) } else { Policy::Rule(rule) };
        let keeps_histories = asks || chance.once_in(2);
        let judge = if asks && chance.once_in(5) { Judge::Source } else { Judge::Target };
        let mix = Mix::draw(chance);
        let loses_nothing = mix.failovers + mix.flushes == 0;
        let echo = if loses_nothing && chance.once_in(2) { Echo::Skip } else { Echo::LookUp };
        let common = chance.one_of(&[
            Resolver::Local,
            Resolver::Remote,
            Resolver::Union,
            Resolver::Union,
            Resolver::Later,
            Resolver::Erratic,
        ]);
        let (same_count, vbuckets) = (!chance.once_in(4), chance.between(1, 4) as u16);
        let is_ahead = chance.once_in(8).then(|| chance.below(count as u64));
        let clusters = (0..count as u64).map(|number| ClusterPlan {
            site: site(number, keeps_histories),
            vbuckets: if same_count { vbuckets } else { chance.between(1, 4) as u16 },
            skew_ns: match is_ahead {
                Some(ahead) if ahead == number => 3600 * SECOND as i64,
                _ => chance.below(4 * SECOND) as i64 - 2 * SECOND as i64,
            },
            resolver: if chance.once_in(8) { Resolver::Erratic } else { common },
        });
        Plan {
            clusters: clusters.collect(),
            topology,
            policy,
            keeps_histories,
            judge,
            echo,
            logs_conflicts: false,
            sends_own_only: false,
            keys: (0..chance.between(1, 6)).map(|number| format!("key{number}")).collect(),
            refused: chance.once_in(10).then_some(0),
            writes_ns: chance.between(2, 8) * SECOND,
            pause_ns: chance.between(10, 200) * MS,
            delay_ns_max: chance.between(1, 150) * MS,
            // A failover takes longer than a tick of any clock.
            clock_step_ns: match loses_nothing {
                true => chance.one_of(&[1, SECOND]),
                false => 1,
            },
            mix,
            optimistic_bytes: chance.one_of(&[0, 256, 256, 1 << 20]),
            batch_count: chance.between(1, 8) as usize,
            window_bytes: chance.one_of(&[(1, 500), (1000, 4000), (1 << 20, 64 << 20)]),
            checkpoint_ns: chance.between(300, 3000) * MS,
            timeout_ns: chance.between(200, 1000) * MS,
        }
    }

    /// Returns the links as pairs of source and target.
    pub fn links(&self) -> Vec<(usize, usize)> {
        let count = self.clusters.len();
        let all = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let follows = |&(from, to): &(usize, usize)| {
            from != to
                && match self.topology {
                    Topology::Mesh => true,
                    Topology::Ring => to == (from + 1) % count,
                    Topology::Star => from == 0 || to == 0,
                }
        };
        all.filter(follows).collect()
    }

    /// Returns the settings of a pipeline.
    pub fn settings(&self, (from, to): (usize, usize), vbid: nacre_types::Vbid) -> Settings {
        let (source, target) = (&self.clusters[from], &self.clusters[to]);
        let of_sites = (source.site.clone(), target.site.clone());
        Settings {
            target_vbuckets: target.vbuckets,
            judge: self.judge,
            keeps_histories: self.keeps_histories,
            echo: self.echo,
            logs_conflicts: self.logs_conflicts,
            sends_own_only: self.sends_own_only,
            optimistic_bytes: self.optimistic_bytes,
            batch_count: self.batch_count,
            window_bytes: self.window_bytes,
            checkpoint_ns: self.checkpoint_ns,
            timeout_ns: self.timeout_ns,
            attempts_max: 5,
            rest_ns: 10 * SECOND,
            seed: (from * 64 + to) as u64,
            ..Settings::new(of_sites.0, of_sites.1, vbid, source.vbuckets, self.policy)
        }
    }

    /// Returns true if every cluster refuses this key.
    pub fn is_refused(&self, key: &[u8]) -> bool {
        self.refused.is_some_and(|number| key[1..] == *self.keys[number].as_bytes())
    }

    /// Returns true if clusters converge without passing on the versions of others: each receives them from the cluster that wrote
    /// them, and nothing has to come back from a third one.
    pub fn needs_no_forwarding(&self) -> bool {
        let has_all_links = self.topology == Topology::Mesh;
        has_all_links && self.keeps_histories && self.loses_nothing() && self.mix.purges == 0
    }

    /// Returns true if no cluster loses acknowledged writes.
    pub fn loses_nothing(&self) -> bool {
        self.mix.failovers + self.mix.flushes == 0
    }
}

impl Mix {
    fn draw(chance: &mut Chance) -> Mix {
        let mut weight = |of| if chance.once_in(of) { 1 + chance.below(3) } else { 0 };
        Mix {
            failovers: weight(2),
            cuts: weight(2),
            pauses: weight(4),
            troubles: weight(3),
            flushes: weight(16),
            purges: weight(8),
            steps: weight(8),
            loses_one_in: chance.one_of(&[0, 0, 10, 100]),
            repeats_one_in: chance.one_of(&[0, 0, 5, 50]),
        }
    }

    /// Returns the sum of the weights.
    pub fn total(&self) -> u64 {
        let Mix { failovers, cuts, pauses, troubles, flushes, purges, steps, .. } = *self;
        failovers + cuts + pauses + troubles + flushes + purges + steps
    }
}

fn site(number: u64, keeps_histories: bool) -> Site {
    let id = SourceId::of(&format!("bucket{number}"), &format!("cluster{number}"));
    let since = if keeps_histories { Cas::ANY } else { Cas(u64::MAX) };
    Site { id, since }
}
