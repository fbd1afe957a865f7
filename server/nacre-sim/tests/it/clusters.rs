//! Clusters that follow each other: seeds that every change has to survive; `cargo xtask sim --clusters 2..4` has more.

use nacre_sim::clusters::{Simulation, Total};

const SEEDS: u64 = 400;

#[test]
fn whatever_breaks_clusters_that_follow_each_other_end_the_same() {
    let mut total = Total::default();
    for seed in 0..SEEDS {
        let Ok(summary) = std::panic::catch_unwind(|| Simulation::new(seed, (2, 4)).run()) else {
            panic!("seed {seed}");
        };
        total.add(seed, &summary);
    }
    assert!(total.has_everything(), "{total}");
}

/// A cluster lost a merge that it had replaced by a version of another cluster before, and that a third cluster had. The books
/// did not have that loss, so that a write was taken to be gone about which the cluster decides when the merge comes back.
#[test]
fn a_version_that_was_replaced_before_it_was_lost_comes_back() {
    Simulation::new(12119, (2, 4)).run();
}

/// A cluster lost a version, wrote another one that does not know it, and lost the end of its history once more, after that: the lost
/// version replaced the other one without a question, which was taken to be older than the loss.
#[test]
fn what_was_written_between_two_losses_does_not_give_way_to_what_the_first_one_lost() {
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
