//! Clusters that replicate to each other, with seeds that every change must pass. `cargo xtask sim --clusters 2..4`
//! runs more.

use nacre_sim::clusters::{Simulation, Total};

const SEEDS: u64 = 400;

#[test]
fn replicating_clusters_converge_under_any_faults() {
    let mut total = Total::default();
    for seed in 0..SEEDS {
        let Ok(summary) = std::panic::catch_unwind(|| Simulation::new(seed, (2, 4)).run()) else {
            panic!("seed {seed}");
        };
        total.add(seed, &summary);
    }
    assert!(total.has_everything(), "{total}");
}

/// A cluster lost a merge that a version of another cluster had already replaced and that a third cluster still had. The
/// record of losses did not contain it. A write was then assumed to be lost although the cluster decides about it when the
/// merge comes back.
#[test]
fn a_version_that_was_replaced_before_it_was_lost_comes_back() {
    Simulation::new(12119, (2, 4)).run();
}

/// A cluster lost a version, wrote another one without knowledge of it, and then lost the end of its history again. The lost version
/// replaced the other one without a conflict, because that was assumed to be older than the loss.
#[test]
fn versions_between_two_losses_do_not_yield_to_those_of_the_first() {
    Simulation::new(4323, (2, 4)).run();
}

#[test]
fn the_same_seed_has_the_same_clusters() {
    let run = |seed| format!("{:?}", Simulation::new(seed, (2, 4)).run());
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(0), run(1));
}
