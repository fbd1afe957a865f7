//! One world of clusters, as a seed draws it: who follows whom, who decides, and what goes wrong how often.

use crate::Chance;
use nacre_types::Cas;
use nacre_vbucket::Resolution;
use nacre_xdcr::{Echo, Judge, Policy, Settings, Site, SourceId};

/// A thousandth of a second, in nanoseconds.
pub const MS: u64 = 1_000_000;
/// A second, in nanoseconds.
pub const SECOND: u64 = 1000 * MS;

/// Which clusters follow which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each follows each.
    Mesh,
    /// Each follows the one before, and no other.
    Ring,
    /// The first follows all others, and they follow it.
    Star,
}

/// How the resolver of a cluster decides. Each is deterministic; only [`Resolver::Union`] and [`Resolver::Later`] give the
/// same answer when the sides are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// The version that is here.
    Local,
    /// The version that arrived.
    Remote,
    /// The parts of both bodies.
    Union,
    /// The version with the greater CAS.
    Later,
    /// Any of the three, by what the bodies are and which side they are on.
    Erratic,
}

/// One cluster.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Its bucket in version histories.
    pub site: Site,
    /// vBuckets of its bucket.
    pub vbuckets: u16,
    /// What its clock is ahead, or behind, in nanoseconds.
    pub skew_ns: i64,
    /// How it decides.
    pub resolver: Resolver,
}

/// What goes wrong. Each number is a weight among the faults, or one in so many times; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    /// A message is lost.
    pub loses_one_in: u64,
    /// A message comes twice.
    pub repeats_one_in: u64,
    /// A copy takes over, or a node is killed and started again.
    pub failovers: u64,
    /// A link is cut, both ways or one way.
    pub cuts: u64,
    /// A replication is paused and resumed.
    pub pauses: u64,
    /// A cluster has no memory, refuses documents, or its resolver fails.
    pub troubles: u64,
    /// A bucket is flushed.
    pub flushes: u64,
    /// Old tombstones are forgotten although a replication may not have sent them.
    pub purges: u64,
    /// The clock of a cluster steps.
    pub steps: u64,
}

/// A world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The clusters.
    pub clusters: Vec<ClusterPlan>,
    /// Who follows whom.
    pub topology: Topology,
    /// Who decides between versions.
    pub policy: Policy,
    /// True if histories are sent.
    pub keeps_histories: bool,
    /// Which side decides.
    pub judge: Judge,
    /// What is done with versions that come back.
    pub echo: Echo,
    /// True if conflicts are logged.
    pub logs_conflicts: bool,
    /// Names of the documents.
    pub keys: Vec<String>,
    /// A document that no cluster takes over, ever: as one that is too big.
    pub refused: Option<usize>,
    /// How long clients write.
    pub writes_ns: u64,
    /// The mean time between two writes.
    pub pause_ns: u64,
    /// The longest way of a message.
    pub delay_ns_max: u64,
    /// Clocks show multiples of this: coarse ones give several clusters the same CAS.
    pub clock_step_ns: u64,
    /// What goes wrong.
    pub mix: Mix,
    /// Knobs of pipelines.
    pub optimistic_bytes: usize,
    /// Documents in a request, at most.
    pub batch_count: usize,
    /// The least and the greatest window.
    pub window_bytes: (usize, usize),
    /// Time between two records.
    pub checkpoint_ns: u64,
    /// How long an answer is waited for at first.
    pub timeout_ns: u64,
}

impl Plan {
    /// Draws a world with at least `clusters.0` and at most `clusters.1` clusters.
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

    /// The links: from which cluster to which.
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

    /// The settings of a pipeline.
    pub fn settings(&self, (from, to): (usize, usize), vbid: nacre_types::Vbid) -> Settings {
        let (source, target) = (&self.clusters[from], &self.clusters[to]);
        let of_sites = (source.site.clone(), target.site.clone());
        Settings {
            target_vbuckets: target.vbuckets,
            judge: self.judge,
            keeps_histories: self.keeps_histories,
            echo: self.echo,
            logs_conflicts: self.logs_conflicts,
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

    /// Returns true if no cluster takes this key over.
    pub fn is_refused(&self, key: &[u8]) -> bool {
        self.refused.is_some_and(|number| key[1..] == *self.keys[number].as_bytes())
    }

    /// Returns true if no cluster loses what it has acknowledged.
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

    /// All weights.
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
