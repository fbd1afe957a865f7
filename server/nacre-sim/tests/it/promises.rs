//! The guarantees for an acknowledged write: each cell of the table in `docs/concepts/durability.md`.

use nacre_sim::cluster::MS;
use nacre_sim::faults::{Fault, Mix};
use nacre_sim::{Chance, Simulation};

/// Number of runs for each cell with a guarantee.
const SEEDS: u64 = 12;
/// Maximum number of runs that search for a loss in a cell without a guarantee.
const SEEDS_MAX: u64 = 4000;
const SECOND: u64 = 1000 * MS;

/// Durability level and number of replicas of a column.
type Column = (u8, u8);
const COLUMNS: [Column; 8] = [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)];

/// Name of an event in the table, its simulation, and for each column `+` if the write is kept or `-` if it may be
/// lost.
type Row = (&'static str, fn(&mut Simulation), &'static str);
const ROWS: [Row; 8] = [
    ("a node is stopped, and started again", stop, "++++++++"),
    ("copies are moved in a rebalance", rebalance, "++++++++"),
    ("a node is failed over by hand while it works", fail_over, "--++++++"),
    ("a node is killed, and started again at once", kill_shortly, "--++++++"),
    ("a node is killed, and replaced", kill, "--++++++"),
    ("a node is cut off from the others, and replaced", isolate, "--++++++"),
    ("a node is killed and replaced, then another one is killed", kill_two, "--++++++"),
    ("all nodes lose their power at once", power_cut, "----++++"),
];

fn inject_fault(simulation: &mut Simulation, fault: Fault, lasts_ns: u64) {
    simulation.break_one(fault, lasts_ns);
    simulation.pass(lasts_ns);
    simulation.put_right(fault);
}

fn stop(simulation: &mut Simulation) {
    inject_fault(simulation, Fault::Stop(0), SECOND / 5);
}

fn rebalance(simulation: &mut Simulation) {
    inject_fault(simulation, Fault::RebalanceOut(0), 3 * SECOND);
}

fn fail_over(simulation: &mut Simulation) {
    inject_fault(simulation, Fault::FailOver(0), 8 * SECOND);
}

fn kill_shortly(simulation: &mut Simulation) {
    inject_fault(simulation, Fault::Kill { node: 0, tears: false }, SECOND / 5);
}

fn kill(simulation: &mut Simulation) {
    inject_fault(simulation, Fault::Kill { node: 0, tears: false }, 12 * SECOND);
}

fn isolate(simulation: &mut Simulation) {
    inject_fault(simulation, Fault::Isolate(0), 12 * SECOND);
}

fn kill_two(simulation: &mut Simulation) {
    let first = Fault::Kill { node: 0, tears: false };
    simulation.break_one(first, 0);
    simulation.pass(10 * SECOND);
    inject_fault(simulation, Fault::Kill { node: 1, tears: false }, 3 * SECOND);
    simulation.put_right(first);
}

fn power_cut(simulation: &mut Simulation) {
    inject_fault(simulation, Fault::PowerCut, SECOND);
}

/// Returns true if the run of a seed loses something.
fn loses(seed: u64, (level, replicas): Column, happens: fn(&mut Simulation)) -> bool {
    let mut chance = Chance::new(seed);
    let calm_ms = 1000 + chance.below(1000);
    let mut simulation = Simulation::with(Mix::calm(3, replicas, level), chance);
    // Disks and networks are slow, so that a write exists only in memory, or only on one node, for a while.
    let slow = [Fault::SlowDisk(0), Fault::SlowDisk(1), Fault::SlowDisk(2), Fault::Weather];
    slow.iter().for_each(|fault| simulation.break_one(*fault, 0));
    simulation.pass(calm_ms * MS);
    happens(&mut simulation);
    slow.iter().for_each(|fault| simulation.put_right(*fault));
    simulation.mend();
    simulation.count_lost() > 0
}

#[test]
fn each_cell_matches_the_simulation() {
    for (name, happens, cells) in ROWS {
        for (column, cell) in COLUMNS.into_iter().zip(cells.chars()) {
            match cell {
                '+' => {
                    let lost = (0..SEEDS).find(|seed| loses(*seed, column, happens));
                    assert_eq!(lost, None, "{name}: level and replicas {column:?} promise it");
                }
                _ => {
                    let lost = (0..SEEDS_MAX).find(|seed| loses(*seed, column, happens));
                    assert!(lost.is_some(), "{name}: level and replicas {column:?} lose nothing");
                }
            }
        }
    }
}

#[test]
fn the_page_has_the_table() {
    let page = include_str!("../../../../docs/concepts/durability.md");
    for (name, _, cells) in ROWS {
        let shown = cells.chars().map(|cell| if cell == '+' { "kept" } else { "may be lost" });
        let row = format!("| {name} | {} |", shown.collect::<Vec<_>>().join(" | "));
        assert!(page.contains(&row), "{row}");
    }
}
