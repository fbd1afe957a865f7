//! `cargo xtask bench isolation`: the effect of misbehaving plugins on readers and on other plugins.
//!
//! Each attack is measured in pairs, without and with it: reads by key, then requests to another deployment. The attacking
//! plugin is the one of the host's tests, which does what a document says. Its documents are in a bucket with one vBucket,
//! so that it receives them in the order of the writes.

use super::load::{self, BUCKET, Figures, median};
use super::{Limit, PORT_BASE};
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use nacre_conformance::kv::KvClient;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node, PASSWORD, USER};
use xtask_setup::plugins;

/// A design document whose map function never ends: each document uses up the function's step limit.
const ENDLESS: &str = r#"{"views": {"endless": {"map": "function (doc) { while (true) {} }"}}}"#;
/// Package and limits of the plugin. Everything that it imports must be granted, even if unused.
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
/// The deployment whose requests are measured, and its empty bucket.
const FAIR: &str = "fair";
/// Time limit for the start of an attack.
const PATIENCE: Duration = Duration::from_secs(30);

/// The behaviour of a plugin that affects others.
struct Attack {
    /// The name of the attack, its bucket and its deployment.
    name: &'static str,
    /// The plugin's step for a document; `None` for the endless map function.
    step: Option<&'static str>,
    /// Number of such documents. Others are between them, because three in a row that kill their instance end a deployment.
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

/// Measurements without or during an attack; times in microseconds.
struct Measurements {
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
/// Reports what is missing, an attack that does not run, or the limit that was exceeded.
pub fn run(rounds: usize, seconds: f64, only: Option<&str>) -> Result<(), String> {
    let is_chosen = |attack: &&Attack| only.is_none_or(|only| attack.name == only);
    let attacks: Vec<&Attack> = ATTACKS.iter().filter(is_chosen).collect();
    if attacks.is_empty() {
        let names = ATTACKS.map(|attack| attack.name).join(", ");
        return Err(format!("unknown attack: use one of {names}"));
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
        let middle = |of: fn(&Measurements) -> f64| {
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
    // Print all figures before the first exceeded limit is reported.
    let found: Vec<_> = found.collect();
    found.into_iter().collect()
}

/// Returns a folder with the plugin of the host's tests.
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
    /// Creates a bucket with one vBucket.
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

    /// Deploys the plugin for the bucket with that name.
    fn deploy(&self, name: &str) -> Result<(), String> {
        let project = self.project.display().to_string();
        let deploy = ["deploy", &project, "--bucket", name, "--name", name];
        self.node.plugin(self.binary, &[&deploy[..], &GRANTS].concat())
    }

    /// Measures without and during an attack, in alternating order.
    fn pair(&self, attack: &Attack, number: usize) -> Result<(Measurements, Measurements), String> {
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

    /// Measures during an attack; also returns the amount of work that the attack did.
    fn beside(&self, attack: &Attack) -> Result<(Measurements, u64), String> {
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

    fn measure(&self) -> Result<Measurements, String> {
        let (target, seconds) = (load::target(self.node), self.seconds.to_string());
        let reads = ["--read-percent", "100", "--connections", "4", "--depth", "1"];
        let options: Vec<&str> =
            reads.into_iter().chain(["--keys", "20000", "--seconds", &seconds]).collect();
        let reads = load::measure(self.binary, &[], &target, &options)?;
        Ok(Measurements { reads, request_p99: self.request_p99()? })
    }

    /// Sends requests to the other plugin for a while; returns the p99 of the answers in microseconds.
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

    /// Returns the amount of work of an attack: calls, or documents that were given up.
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
