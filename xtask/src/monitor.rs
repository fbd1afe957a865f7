//! `cargo xtask monitor`: checks alert rules and dashboard with Prometheus.
//!
//! `promtool` checks the rules and runs their tests. Then Prometheus scrapes a running node that has a view. It must be able to
//! evaluate every expression of the dashboard and the rules; those of the dashboard must have values.

use clap::Args;
use nacre_conformance::http;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xtask_setup::command::{run, workspace};
use xtask_setup::node::{self, Node, PASSWORD, USER};
use xtask_setup::tools;

/// Ports of the node and of Prometheus.
const NODE_PORT_BASE: u16 = 19_700;
const PROMETHEUS_PORT: u16 = 19_790;
/// Time limit for each expression to have a value.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options of `cargo xtask monitor`.
#[derive(Args, Debug)]
pub struct Monitor {
    /// Only check files: start neither a node nor Prometheus
    #[arg(long)]
    files: bool,
}

/// Checks rules and dashboard.
///
/// # Errors
/// Reports the wrong expression and its error.
pub fn run_chore(options: &Monitor) -> Result<(), String> {
    let programs = programs()?;
    let rules = workspace().join("packaging/prometheus/nacre.rules.yaml");
    let promtool = |arguments: &[&str], file: &Path| {
        let mut command = Command::new(programs.join("promtool"));
        command.args(arguments).arg(file).current_dir(rules.parent().unwrap_or(Path::new(".")));
        run(&mut command, &format!("pass promtool {}", arguments.join(" ")))
    };
    promtool(&["check", "rules"], &rules)?;
    promtool(&["test", "rules"], &rules.with_file_name("nacre.tests.yaml"))?;
    every_alert_is_explained(&rules)?;
    if options.files {
        return Ok(());
    }
    let binary = node::built("dev")?;
    let node = Node::start(&binary, Some(NODE_PORT_BASE), &["default"], &[])?;
    let view = r#"{"views": {"v": {"map": "function (doc) { emit(doc.n) }"}}}"#;
    node.put_design("default", "d", view)?;
    node.view("default", "d", "v", "")?;
    let outcome = Prometheus::start(&programs, &node).and_then(|prometheus| prometheus.evaluate());
    node.stop()?;
    outcome
}

/// Returns the folder of Prometheus's programs: installed ones, or else those of Debian's package.
fn programs() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_both =
        |folder: &PathBuf| folder.join("promtool").exists() && folder.join("prometheus").exists();
    if let Some(folder) = std::env::split_paths(&path).find(has_both) {
        return Ok(folder);
    }
    let folder = tools::dir()?.join("prometheus");
    tools::once(&folder, || {
        let mut fetch = Command::new("apt-get");
        fetch.args(["download", "--quiet", "prometheus"]).current_dir(&folder);
        run(&mut fetch, "fetch the Debian package prometheus (or install Prometheus yourself)")?;
        let unpack = "for package in prometheus_*.deb; do dpkg-deb -x \"$package\" .; done";
        run(Command::new("sh").args(["-c", unpack]).current_dir(&folder), "unpack Prometheus")
    })?;
    Ok(folder.join("usr/bin"))
}

/// Checks that the page for operators has a section for each alert.
fn every_alert_is_explained(rules: &Path) -> Result<(), String> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let rules = read(rules)?;
    let page = read(&workspace().join("docs/operate/monitor.md"))?;
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let mut count = 0;
    for alert in alerts {
        if !page.contains(&format!("\n### {alert}\n")) {
            return Err(format!("docs/operate/monitor.md has no section {alert}"));
        }
        count += 1;
    }
    if count == 0 { Err("there are no alerts".to_owned()) } else { Ok(()) }
}

/// A Prometheus that scrapes a node. It ends when this value is dropped.
struct Prometheus {
    process: Child,
    folder: PathBuf,
}

impl Prometheus {
    fn start(programs: &Path, node: &Node) -> Result<Prometheus, String> {
        let folder = std::env::temp_dir().join(format!("nacre-prometheus-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let login = format!("basic_auth: {{username: {USER}, password: {PASSWORD}}}");
        let address = node.address();
        let rules = workspace().join("packaging/prometheus/nacre.rules.yaml");
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n  - job_name: nacre\n    \
             {login}\n    http_sd_configs:\n      - url: http://{address}/prometheus_sd_config\n        refresh_interval: 1s\n        {login}\n",
            rules.display()
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, configuration).map_err(|error| error.to_string())?;
        let mut command = Command::new(programs.join("prometheus"));
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"));
        command.arg("--log.level=error").stdin(Stdio::null());
        let process =
            command.spawn().map_err(|error| format!("cannot start Prometheus: {error}"))?;
        Ok(Prometheus { process, folder })
    }

    /// Evaluates every expression until each expression of the dashboard has a value.
    fn evaluate(&self) -> Result<(), String> {
        let page = workspace().join("packaging/grafana/nacre.json");
        let page = std::fs::read_to_string(&page).map_err(|error| error.to_string())?;
        let page: Value = serde_json::from_str(&page).map_err(|error| error.to_string())?;
        let panels = page["panels"].as_array().into_iter().flatten();
        let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let expressions: Vec<String> = targets
            .filter_map(|target| target["expr"].as_str())
            .map(|text| text.replace("$__rate_interval", "5s"))
            .map(|text| text.replace("\"$instance\"", "\".+\"").replace("\"$bucket\"", "\".+\""))
            .collect();
        if expressions.len() < 10 {
            return Err("the dashboard has hardly any expressions".to_owned());
        }
        let begun = Instant::now();
        for expression in &expressions {
            loop {
                let values = self.values(expression)?;
                if values > 0 {
                    break;
                }
                if begun.elapsed() > PATIENCE {
                    return Err(format!("no value for {expression}"));
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        println!("{} expressions of the dashboard have values", expressions.len());
        let rules = self.ask("/api/v1/rules")?;
        let groups = rules["data"]["groups"].as_array().into_iter().flatten();
        let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
        let mut count = 0;
        for rule in rules {
            let health = rule["health"].as_str().unwrap_or_default();
            if health == "err" || rule["state"] == "firing" {
                return Err(format!("{}: {health}, {}", rule["name"], rule["state"]));
            }
            count += 1;
        }
        println!("{count} alerts evaluate, and none fires at a node that is well");
        if count == 0 { Err("Prometheus has no rules".to_owned()) } else { Ok(()) }
    }

    /// Returns the number of series of an expression.
    fn values(&self, expression: &str) -> Result<usize, String> {
        let path = format!("/api/v1/query?query={}", http::escape(expression));
        let Ok(answer) = self.ask(&path) else { return Ok(0) };
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"]["result"].as_array().map_or(0, Vec::len)),
            _ => Err(format!("{expression}: {}", answer["error"])),
        }
    }

    fn ask(&self, path: &str) -> Result<Value, String> {
        let address = format!("127.0.0.1:{PROMETHEUS_PORT}");
        let answer = http::request(&address, "GET", path, None, "", b"");
        answer.map_err(|error| error.to_string())?.json().map_err(|error| error.to_string())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
