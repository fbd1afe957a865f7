//! `cargo xtask bench isolation`: what plugins that do their worst cost those who read, and other plugins.
//!
//! Each attack is measured in pairs, without it and beside it: reads by key, then requests to another deployment. What
//! is attacked with is the plugin of the host's tests, which does what a document says; its documents lie in a bucket of one
//! vBucket, so that it gets them in the order in which they were written.

use super::load::{self, BUCKET, Figures, median};
use super::{Limit, PORT_BASE};
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use nacre_conformance::kv::KvClient;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node, PASSWORD, USER};
use xtask_setup::plugins;

/// A design document whose map never ends: each document costs it all the steps it may take.
const ENDLESS: &str = r#"{"views": {"endless": {"map": "function (doc) { while (true) {} }"}}}"#;
/// Package and limits of the plugin. What it imports has to be granted, used or not.
const MANIFEST: &str = r#"name = "probe"
version = "1"
component = "probe.wasm"

[capabilities]
kv = { read = ["bench._default._default"] }
http-out = ["127.0.0.1"]

[limits]
memory_mb = 64
deadline_ms = 500
"#;
const GRANTS: [&str; 4] =
    ["--grant", "kv:read=bench._default._default", "--grant", "http-out=127.0.0.1"];
/// The deployment whose requests are measured, and its bucket, which is empty.
const FAIR: &str = "fair";
/// How long an attack may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a plugin does to others.
struct Attack {
    /// Its name, and that of its bucket and deployment.
    name: &'static str,
    /// What it does with a document: a step of the plugin. None for the endless map function.
    step: Option<&'static str>,
    /// How many of these documents there are. Between them stand others, as three in a row that kill their instance end a
    /// deployment.
    documents: usize,
    reads: Limit,
    requests: Limit,
}

const fn attack(name: &'static str, step: Option<&'static str>, documents: usize) -> Attack {
    let reads = Limit { what: name, unit: " times the p99 of reads", max: 1.2 };
    let requests =
        Limit { what: name, unit: " times the p99 of requests to another plugin", max: 1.2 };
    Attack { name, step, documents, reads, requests }
}

const ATTACKS: [Attack; 5] = [
    attack("endless-map", None, 0),
    attack("loops", Some(r#"["loop"]"#), 500),
    attack("grows", Some(r#"["grow"]"#), 5_000),
    attack("storms", Some(r#"["get-many", "bench._default._default", 1000]"#), 20_000),
    attack("traps", Some(r#"["panic", "on purpose"]"#), 20_000),
];

/// What was found without an attack, or beside it; times in microseconds.
struct Found {
    reads: Figures,
    request_p99: f64,
}

struct Bench<'a> {
    binary: &'a Path,
    node: &'a Node,
    /// The folder of the plugin.
    project: &'a Path,
    seconds: f64,
}

/// Measures pairs with and without each attack, and prints the median ratios.
///
/// # Errors
/// What is missing, that an attack does not run, or which limit is passed.
pub fn run(rounds: usize, seconds: f64, only: Option<&str>) -> Result<(), String> {
    let is_chosen = |attack: &&Attack| only.is_none_or(|only| attack.name == only);
    let attacks: Vec<&Attack> = ATTACKS.iter().filter(is_chosen).collect();
    if attacks.is_empty() {
        let names = ATTACKS.map(|attack| attack.name).join(", ");
        return Err(format!("there is no such attack: it is one of {names}"));
    }
    let binary = node::build("release")?;
    let project = project()?;
    let node = Node::start(&binary, Some(PORT_BASE), &[BUCKET], &[])?;
    let bench = Bench { binary: &binary, node: &node, project: &project, seconds };
    bench.bucket(FAIR)?;
    bench.deploy(FAIR)?;
    for Attack { name, step, documents, .. } in &attacks {
        let Some(step) = step else { continue };
        bench.bucket(name)?;
        bench.fill(name, step, *documents)?;
    }
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_header([
        "beside",
        "reads p50, us",
        "ratio",
        "reads p99, us",
        "ratio",
        "requests p99, us",
        "ratio",
    ]);
    table.column_iter_mut().skip(1).for_each(|it| it.set_cell_alignment(CellAlignment::Right));
    let mut ratios = Vec::new();
    for attack in attacks {
        let pairs: Result<Vec<_>, String> =
            (0..rounds).map(|number| bench.pair(attack, number)).collect();
        let pairs = pairs?;
        let middle = |of: fn(&Found) -> f64| {
            let beside = median(pairs.iter().map(|(_, beside)| of(beside)).collect());
            (beside, median(pairs.iter().map(|(alone, beside)| of(beside) / of(alone)).collect()))
        };
        let [p50, p99, requests] =
            [middle(|it| it.reads.p50), middle(|it| it.reads.p99), middle(|it| it.request_p99)];
        let shown = [p50, p99, requests]
            .into_iter()
            .flat_map(|(us, ratio)| [format!("{us:.0}"), format!("{ratio:.2}")]);
        table.add_row(std::iter::once(attack.name.to_owned()).chain(shown));
        ratios.push((attack, p99.1, requests.1));
    }
    node.stop()?;
    let _ = std::fs::remove_dir_all(&project);
    println!(
        "4 connections that read, and one that asks another plugin; medians of {rounds} pairs"
    );
    println!("{table}");
    let found = ratios.iter().flat_map(|(attack, reads, requests)| {
        [attack.reads.check(*reads), attack.requests.check(*requests)]
    });
    // All are shown before the first that is passed is told.
    let found: Vec<_> = found.collect();
    found.into_iter().collect()
}

/// A folder with the plugin of the host's tests.
fn project() -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join(format!("nacre-isolation-{}", std::process::id()));
    let write = || {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("plugin.toml"), MANIFEST)
    };
    write().map_err(|error| format!("{}: {error}", folder.display()))?;
    let component = plugins::build()?.join("probe.wasm");
    std::fs::copy(&component, folder.join("probe.wasm"))
        .map_err(|error| format!("{}: {error}", component.display()))?;
    Ok(folder)
}

impl Bench<'_> {
    /// Makes a bucket of one vBucket.
    fn bucket(&self, name: &str) -> Result<(), String> {
        let form = [("name", name), ("ramQuotaMB", "100"), ("numVBuckets", "1")];
        let created = self.node.rest("POST", "/pools/default/buckets", &form)?;
        match created.status {
            202 => Ok(()),
            _ => Err(format!("cannot create the bucket {name}: {}", created.text())),
        }
    }

    fn fill(&self, bucket: &str, step: &str, documents: usize) -> Result<(), String> {
        let address = format!("127.0.0.1:{}", self.node.kv_port());
        let fill = || {
            let mut client = KvClient::connect(&address, USER, PASSWORD, bucket)?;
            for number in 0..documents {
                client.set(format!("worst-{number}").as_bytes(), format!("[{step}]").as_bytes())?;
                client.set(format!("idle-{number}").as_bytes(), b"[]")?;
            }
            Ok(())
        };
        fill().map_err(|error: std::io::Error| format!("cannot fill {bucket}: {error}"))
    }

    /// Deploys the plugin for the bucket of that name.
    fn deploy(&self, name: &str) -> Result<(), String> {
        let project = self.project.display().to_string();
        let deploy = ["deploy", &project, "--bucket", name, "--name", name];
        self.node.plugin(self.binary, &[&deploy[..], &GRANTS].concat())
    }

    /// Measures without an attack and beside it; what comes first changes from pair to pair.
    fn pair(&self, attack: &Attack, number: usize) -> Result<(Found, Found), String> {
        let (alone, (beside, work)) = if number.is_multiple_of(2) {
            (self.measure()?, self.beside(attack)?)
        } else {
            let beside = self.beside(attack)?;
            (self.measure()?, beside)
        };
        println!(
            "{}: reads p50 {:.0} us, beside {:.0}; p99 {:.0} us, beside {:.0}; requests p99 {:.0} us, beside {:.0}; {work} calls \
             meanwhile",
            attack.name,
            alone.reads.p50,
            beside.reads.p50,
            alone.reads.p99,
            beside.reads.p99,
            alone.request_p99,
            beside.request_p99
        );
        Ok((alone, beside))
    }

    /// Measures beside an attack; gives also how much of it was done meanwhile.
    fn beside(&self, attack: &Attack) -> Result<(Found, u64), String> {
        match attack.step {
            None => self.node.put_design(BUCKET, attack.name, ENDLESS)?,
            Some(_) => self.deploy(attack.name)?,
        }
        let until = Instant::now() + PATIENCE;
        while self.work_of(attack)? == 0 {
            if Instant::now() > until {
                return Err(format!("{} does not run", attack.name));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = self.work_of(attack)?;
        let beside = self.measure()?;
        let work = self.work_of(attack)? - before;
        if work == 0 {
            return Err(format!("{} has done nothing meanwhile", attack.name));
        }
        match attack.step {
            None => {
                self.node.views("DELETE", &format!("/{BUCKET}/_design/{}", attack.name), "")?;
            }
            Some(_) => self.node.plugin(self.binary, &["undeploy", attack.name])?,
        }
        Ok((beside, work))
    }

    fn measure(&self) -> Result<Found, String> {
        let (target, seconds) = (load::target(self.node), self.seconds.to_string());
        let reads = ["--read-percent", "100", "--connections", "4", "--depth", "1"];
        let options: Vec<&str> =
            reads.into_iter().chain(["--keys", "20000", "--seconds", &seconds]).collect();
        let reads = load::measure(self.binary, &[], &target, &options)?;
        Ok(Found { reads, request_p99: self.request_p99()? })
    }

    /// Asks the other plugin again and again; one in a hundred answers took longer, in microseconds.
    fn request_p99(&self) -> Result<f64, String> {
        let begun = Instant::now();
        let mut took = Vec::new();
        while begun.elapsed().as_secs_f64() < self.seconds {
            let asked = Instant::now();
            let answer = self.node.rest("GET", &format!("/_plugin/{FAIR}/headers"), &[])?;
            if answer.status != 200 {
                return Err(format!("{FAIR} answers {}: {}", answer.status, answer.text()));
            }
            took.push(asked.elapsed());
        }
        took.sort_unstable();
        Ok(took[took.len() * 99 / 100].as_secs_f64() * 1e6)
    }

    /// How much of it was done: calls, or documents that were given up.
    fn work_of(&self, attack: &Attack) -> Result<u64, String> {
        let name = attack.name;
        let (answer, at) = match attack.step {
            None => {
                let path = format!("/{BUCKET}/_design/{name}/_info");
                (self.node.views("GET", &path, "")?, "/document_errors")
            }
            Some(_) => {
                (self.node.rest("GET", &format!("/deployments/{name}"), &[])?, "/writer/calls")
            }
        };
        let status = answer.json().map_err(|error| format!("{name}: {error}"))?;
        match status["state"].as_str() {
            Some("failed") => Err(format!("{name} has ended: {}", status["reason"])),
            _ => Ok(status.pointer(at).and_then(serde_json::Value::as_u64).unwrap_or(0)),
        }
    }
}
