//! A simulation of devices in step with a hub, in one thread, with faults that a seed determines.
//!
//! The databases are complete databases in folders, and the hub answers with complete sessions of the key-value protocol;
//! connections and clocks are simulated. Devices and the clients of the hub write the same few documents, while networks flap,
//! devices sleep, clocks jump and show the same time for seconds, processes are killed with unstored writes, and folders are
//! copied to further devices.
//!
//! | Property | checked |
//! | --- | --- |
//! | Once all faults are over, every device has the same documents as the hub, with the same CAS | at the end |
//! | Each stored edit exists, is part of one that exists, or is parked with a reason ([`ledger`]) | at the end |
//! | Nothing panics, and no session ends for good | always |

mod chance;
mod ledger;
mod link;
mod simulation;
mod site;

use simulation::{Simulation, Total};

/// Number of seeds, unless `NACRE_DEVICE_SEEDS` sets another. `NACRE_DEVICE_FROM` sets the first seed.
const SEEDS: u64 = 60;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("it is a number"))
}

#[test]
fn devices_converge_with_the_hub_and_lose_no_edit_under_any_faults() {
    let (from, count) = (number("NACRE_DEVICE_FROM", 0), number("NACRE_DEVICE_SEEDS", SEEDS));
    let most = number("NACRE_DEVICE_MOST", 6);
    let mut total = Total::default();
    for seed in from..from + count {
        let run = || {
            let mut simulation = Simulation::new(seed, (2, most));
            simulation.trace(std::env::var_os("NACRE_DEVICE_TRACE").is_some());
            simulation.run()
        };
        let Ok(summary) = std::panic::catch_unwind(run) else {
            panic!("seed {seed}: see above");
        };
        total.add(&summary);
    }
    println!("{total}");
    assert!(count < SEEDS || total.has_everything(), "{total}");
}
