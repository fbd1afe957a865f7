//! Runs of the simulation that every change must pass; `cargo xtask sim` runs more.

mod clusters;
mod promises;

use nacre_sim::Simulation;

const SEEDS: u64 = 100;

#[test]
fn acknowledged_writes_survive_any_promised_faults() {
    let (mut writes, mut terms) = (0, 0);
    for seed in 0..SEEDS {
        let Ok(summary) = std::panic::catch_unwind(|| Simulation::new(seed).run()) else {
            panic!("seed {seed}");
        };
        assert_eq!(summary.undecided, 0, "seed {seed}");
        writes += summary.counts.writes;
        terms += summary.terms;
    }
    assert!(writes > 0 && terms > 0, "{writes} writes, {terms} times elsewhere");
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in 0..5 {
        let hash = || Simulation::new(seed).run().hash;
        assert_eq!(hash(), hash(), "seed {seed}");
    }
    assert_ne!(Simulation::new(0).run().hash, Simulation::new(1).run().hash);
}
