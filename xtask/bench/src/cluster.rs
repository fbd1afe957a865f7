//! `cargo xtask bench cluster`: the performance of clusters of one to five nodes for an application with the official Go
//! SDK, by durability level and number of documents, and while a node is killed; as a page with plots.
//!
//! ```text
//! Cluster (as in `chaos`: each node in a network namespace) ◄── conformance/evaluation ──► Timings, Curve ──► plots, page
//! ```

use super::application::Program;
use plotters::prelude::*;
use serde::Deserialize;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use xtask_setup::cluster::Cluster;
use xtask_setup::command::workspace;
use xtask_setup::node;

/// The levels, in order of their cost.
const LEVELS: [&str; 3] = ["none", "majority", "persistToMajority"];
const OPERATIONS: [&str; 4] = ["insert", "update", "query", "delete"];
const COLOURS: [RGBColor; 3] =
    [RGBColor(27, 108, 168), RGBColor(46, 147, 60), RGBColor(209, 73, 91)];
/// Number of nodes of the cluster that loses one.
const CURVE_NODES: usize = 3;
/// The duration of the curve, and the time at which a node is killed, in seconds.
const CURVE_S: u64 = 30;
const KILL_AFTER: Duration = Duration::from_secs(10);
/// Points of the curve per second.
const CURVE_RATE: usize = 10;
/// Seconds of silence after which a node is failed over.
const FAILOVER_S: u64 = 1;
/// The ratio of the height of a plot to that of its data, which leaves space for the legend.
const HEADROOM: f64 = 1.35;
/// The folder of the page and its plots.
const FOLDER: &str = "docs/reference";

/// Milliseconds of each of [`OPERATIONS`] for all documents, and of the slowest single one.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Timings {
    insert: f64,
    update: f64,
    query: f64,
    delete: f64,
    slowest: f64,
}

impl Timings {
    fn all(&self) -> [f64; OPERATIONS.len()] {
        [self.insert, self.update, self.query, self.delete]
    }
}

/// One row: a cluster, a level, a number of documents, and the times.
struct Cell {
    nodes: usize,
    level: usize,
    documents: usize,
    timings: Timings,
}

impl Cell {
    /// Returns the milliseconds per operation of a kind.
    fn each_ms(&self, operation: usize) -> f64 {
        self.timings.all()[operation] / self.documents as f64
    }
}

/// Successful operations in each tenth of a second.
#[derive(Debug, Deserialize)]
struct Curve {
    reads: Vec<u32>,
    writes: Vec<u32>,
}

/// Measures clusters of up to `nodes_max` nodes with each number of documents, and writes the page.
///
/// # Errors
/// Fails when a cluster does not do its part.
pub fn run(nodes_max: usize, documents: &[usize]) -> Result<(), String> {
    let binary = node::build("release")?;
    let program = Program::build()?;
    let mut cells = Vec::new();
    for nodes in 1..=nodes_max {
        let cluster = Cluster::start(&binary, nodes, FAILOVER_S, false)?;
        for (level, name) in LEVELS.iter().enumerate() {
            for count in documents {
                let arguments = ["-count", &count.to_string(), "-durability", name, "documents"];
                let timings = program.start(&cluster, &arguments)?.answer()?;
                let cell = Cell { nodes, level, documents: *count, timings };
                println!("{nodes} nodes, {count} documents, {name}: {timings:?}");
                cells.push(cell);
            }
        }
        cluster.stop()?;
    }
    let curve = lose_a_node(&binary, &program)?;
    let put = |name: &str, text: &str| {
        let path = workspace().join(FOLDER).join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    let drawn = |drawing: Result<String, Box<dyn Error>>| {
        drawing.map_err(|error| format!("the plot cannot be drawn: {error}"))
    };
    let largest = documents.iter().copied().max().unwrap_or_default();
    put("cluster-nodes.svg", &drawn(by_nodes(&cells, largest))?)?;
    put("cluster-failover.svg", &drawn(over_time(&curve))?)?;
    put("cluster-figures.md", &page(&cells, &curve, nodes_max))
}

/// Runs readers and durable writers on a cluster in which a node is killed.
fn lose_a_node(binary: &Path, program: &Program) -> Result<Curve, String> {
    let mut cluster = Cluster::start(binary, CURVE_NODES, FAILOVER_S, false)?;
    let leader = cluster.leader()?;
    let victim = (leader + 1) % CURVE_NODES;
    let mut curve = program.start(&cluster, &["-seconds", &CURVE_S.to_string(), "curve"])?;
    curve.wait_until_begun()?;
    std::thread::sleep(KILL_AFTER);
    cluster.nodes[victim].kill()?;
    let curve = curve.answer();
    cluster.nodes[victim].respawn()?;
    cluster.make_whole(false)?;
    cluster.stop()?;
    curve
}

/// Plots the time of one operation by the number of nodes: a panel for each kind, a line for each level.
fn by_nodes(cells: &[Cell], documents: usize) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (900, 640)).into_drawing_area();
        root.fill(&WHITE)?;
        let nodes_max = cells.iter().map(|cell| cell.nodes).max().unwrap_or(1);
        for (operation, area) in root.split_evenly((2, 2)).iter().enumerate() {
            let of_size = || cells.iter().filter(|cell| cell.documents == documents);
            let top = of_size().map(|cell| cell.each_ms(operation)).fold(0.0, f64::max) * HEADROOM;
            let mut chart = ChartBuilder::on(area)
                .caption(OPERATIONS[operation], ("sans-serif", 18))
                .margin(10)
                .x_label_area_size(36)
                .y_label_area_size(56)
                .build_cartesian_2d(0.9..nodes_max as f64 + 0.1, 0.0..top)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .max_light_lines(1)
                .x_labels(nodes_max)
                .x_label_formatter(&|nodes| format!("{nodes:.0}"))
                .x_desc("nodes")
                .y_desc("ms")
                .draw()?;
            for (level, (name, colour)) in LEVELS.iter().zip(COLOURS).enumerate() {
                let points = of_size().filter(|cell| cell.level == level);
                let points = points.map(|cell| (cell.nodes as f64, cell.each_ms(operation)));
                let line = LineSeries::new(points, colour.stroke_width(2)).point_size(3);
                chart.draw_series(line)?.label(*name).legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                });
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .draw()?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// Plots operations per second over time.
fn over_time(curve: &Curve) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (900, 360)).into_drawing_area();
        root.fill(&WHITE)?;
        let rate = |count: &u32| f64::from(*count) * CURVE_RATE as f64;
        let top = curve.reads.iter().chain(&curve.writes).map(rate).fold(0.0, f64::max) * HEADROOM;
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..CURVE_S as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(1)
            .x_label_formatter(&|seconds| format!("{seconds:.0}"))
            .y_label_formatter(&|rate| format!("{rate:.0}"))
            .x_desc("seconds")
            .y_desc("operations/s")
            .draw()?;
        for (name, counts, colour) in
            [("reads", &curve.reads, COLOURS[0]), ("durable writes", &curve.writes, COLOURS[2])]
        {
            let points = counts.iter().enumerate();
            let points = points.map(|(at, count)| (at as f64 / CURVE_RATE as f64, rate(count)));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?.label(name).legend(
                move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)),
            );
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        root.present()?;
    }
    Ok(svg)
}

/// Returns the milliseconds after the kill in which fewer operations succeeded than a tenth of the rate before.
fn gap_ms(counts: &[u32]) -> usize {
    let kill = KILL_AFTER.as_secs() as usize * CURVE_RATE;
    let mut before = counts[..kill.min(counts.len())].to_vec();
    before.sort_unstable();
    let usual = before.get(before.len() / 2).copied().unwrap_or_default();
    let after = counts.iter().skip(kill);
    after.filter(|count| **count < usual / 10).count() * 1000 / CURVE_RATE
}

fn page(cells: &[Cell], curve: &Curve, nodes_max: usize) -> String {
    let mut page = format!(
        "# Clusters in figures\n\n\
         Written by `cargo xtask bench cluster`. The nodes run on one machine of two cores, each in a network namespace of its own, so\n\
         that more nodes share what there is: what grows with their number here is the work of all, not only the way to others.\n\
         One client of the official Go SDK does one operation after the other, on documents of some 200 bytes; queries are\n\
         prepared, ask for one document by an index, and take what the index has. Buckets have up to two replicas.\n\n\
         ![milliseconds of an operation by nodes and level](cluster-nodes.svg)\n\n\
         ## One operation, in milliseconds\n\n\
         | nodes | documents | durability | {} | slowest of all |\n|---:|---:|---|{}---:|\n",
        OPERATIONS.join(" | "),
        "---:|".repeat(OPERATIONS.len())
    );
    for nodes in 1..=nodes_max {
        for cell in cells.iter().filter(|cell| cell.nodes == nodes) {
            let times: Vec<String> =
                (0..OPERATIONS.len()).map(|at| format!("{:.2}", cell.each_ms(at))).collect();
            let Cell { documents, level, .. } = cell;
            let _ = writeln!(
                page,
                "| {nodes} | {documents} | {} | {} | {:.0} |",
                LEVELS[*level],
                times.join(" | "),
                cell.timings.slowest
            );
        }
    }
    let _ = write!(
        page,
        "\n## A node is killed\n\n\
         Three nodes, 16 clients that read and 16 whose writes are durable (`majority`); after {} s a node is killed with `kill -9`.\n\
         A failover replaces it after {FAILOVER_S} s of silence. The documents of the other two are served all the time; clients\n\
         that wait for one of the third do nothing else meanwhile, so that the whole stands still: fewer than a tenth of the reads\n\
         as usual for {} ms, of the writes for {} ms.\n\n\
         ![operations a second while a node is killed](cluster-failover.svg)\n",
        KILL_AFTER.as_secs(),
        gap_ms(&curve.reads),
        gap_ms(&curve.writes)
    );
    page
}
