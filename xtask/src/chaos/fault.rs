//! The faults of the nodes, and their schedule.

use super::Chaos;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;
use xtask_setup::cluster::Cluster;

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    /// The leader of the nodes, which decides about failovers.
    Leader,
    /// The node that serves most of the documents, unless it leads.
    Busiest,
    /// The node with that number.
    Node(usize),
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The process is killed and started again.
    Kill,
    /// The process is paused.
    Pause,
    /// Other nodes do not receive its messages.
    Mute,
    /// It does not receive the messages of other nodes.
    Deafen,
    /// Both directions are cut.
    Isolate,
    /// It leaves the cluster in a rebalance, and rejoins in another one.
    Rebalance,
    /// Its disk is full.
    FullDisk,
}

/// One fault of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub what: FaultKind,
    /// The target.
    pub whom: FaultTarget,
    /// The duration.
    pub lasts: Duration,
}

impl Fault {
    /// Returns the name under which faults of the same kind are counted. `leads`: the fault hits the
    /// leader, whatever its target was.
    pub fn kind(&self, leads: bool) -> String {
        let of = if leads { "leader" } else { "node" };
        match self.what {
            // A process that is back before anyone misses it is another kind.
            FaultKind::Kill if self.lasts < Duration::from_secs(5) => format!("kill,briefly:{of}"),
            FaultKind::Kill => format!("kill:{of}"),
            FaultKind::Pause => format!("pause:{of}"),
            FaultKind::Mute | FaultKind::Deafen => format!("one-way-cut:{of}"),
            FaultKind::Isolate => format!("cut:{of}"),
            FaultKind::Rebalance => "rebalance".into(),
            FaultKind::FullDisk => "full-disk".into(),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} for {:.1} s", self.what, self.whom, self.lasts.as_secs_f64())
    }
}

/// Returns the faults in order. The same seed and numbers give the same faults.
pub fn schedule(options: &Chaos) -> Vec<Fault> {
    let mut random = StdRng::seed_from_u64(options.seed);
    let mut faults = Vec::new();
    let counts = [
        (options.kills, &[FaultKind::Kill][..], 0.2..8.0),
        (options.pauses, &[FaultKind::Pause], 0.2..12.0),
        (options.partitions, &[FaultKind::Isolate, FaultKind::Mute, FaultKind::Deafen], 0.5..12.0),
        (options.rebalances, &[FaultKind::Rebalance], 0.0..1.0),
        (options.full_disks, &[FaultKind::FullDisk], 1.0..8.0),
    ];
    for (count, kinds, seconds) in counts {
        for number in 0..count {
            let what = kinds[number % kinds.len()];
            let whom = match number % 3 {
                0 => FaultTarget::Busiest,
                1 => FaultTarget::Leader,
                _ => FaultTarget::Node(random.random_range(0..options.nodes).into()),
            };
            let lasts = Duration::from_secs_f64(random.random_range(seconds.clone()));
            faults.push(Fault { what, whom, lasts });
        }
    }
    faults.shuffle(&mut random);
    faults
}

impl Fault {
    /// Returns the affected node, given the leader and the active nodes of the documents.
    pub fn victim(&self, leader: usize, active: &[usize], count: usize) -> usize {
        match self.whom {
            FaultTarget::Leader => leader,
            FaultTarget::Node(number) => number,
            FaultTarget::Busiest => {
                let served = |node: &usize| active.iter().filter(|by| *by == node).count();
                let others = (0..count).filter(|node| *node != leader);
                others.max_by_key(served).unwrap_or_default()
            }
        }
    }

    /// Injects the fault into `victim`, and repairs it afterwards.
    ///
    /// # Errors
    /// Fails when the system or a node misbehaves.
    pub fn inject(&self, cluster: &mut Cluster, victim: usize) -> Result<(), String> {
        let others = (0..cluster.nodes.len()).filter(|node| *node != victim);
        let others: Vec<usize> = others.collect();
        match self.what {
            FaultKind::Kill => {
                cluster.nodes[victim].kill()?;
                std::thread::sleep(self.lasts);
                cluster.nodes[victim].respawn()
            }
            FaultKind::Pause => {
                cluster.nodes[victim].signal(libc::SIGSTOP);
                std::thread::sleep(self.lasts);
                cluster.nodes[victim].signal(libc::SIGCONT);
                Ok(())
            }
            FaultKind::Mute | FaultKind::Deafen | FaultKind::Isolate => {
                for other in others {
                    if self.what != FaultKind::Deafen {
                        cluster.network.cut(victim, other)?;
                    }
                    if self.what != FaultKind::Mute {
                        cluster.network.cut(other, victim)?;
                    }
                }
                std::thread::sleep(self.lasts);
                cluster.network.heal()
            }
            FaultKind::Rebalance => {
                let by = others.choose(&mut StdRng::seed_from_u64(0)).copied().unwrap_or_default();
                cluster.remove(by, victim)?;
                cluster.add(by, victim)
            }
            FaultKind::FullDisk => {
                let filler = cluster.fill_disk(victim)?;
                std::thread::sleep(self.lasts);
                std::fs::remove_file(filler).map_err(|error| format!("free the disk: {error}"))
            }
        }
    }
}
