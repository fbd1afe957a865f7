//! Overview of everything that follows the documents of a cluster: deployments of plugins, views and indexes.

use super::remote::{All, List};
use nacre_cli::{Listing, Server};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reedline::{KeyCode, KeyModifiers};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

/// Interval at which `top` reads the state.
const TOP_INTERVAL: Duration = Duration::from_secs(1);

/// Shows what is deployed, and the views and indexes beside it.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn list(options: &List) -> Result<(), String> {
    let all = everything(options.all.server())?;
    let mut listing = Listing::new(&[
        "name",
        "package",
        "state",
        "documents",
        "failed",
        "lag",
        "traps",
        "state_bytes",
        "reason",
    ]);
    for one in &all {
        listing.add([
            one["name"].clone(),
            package(one).into(),
            one["state"].clone(),
            one["documents"].clone(),
            failed(one).into(),
            one["lag"].clone(),
            one.get("traps").unwrap_or(&one["readers"]["failures"]).clone(),
            one["state_bytes"].clone(),
            reason(one).into(),
        ]);
    }
    options.format.show(&listing);
    Ok(())
}

/// Returns why a deployment has stopped, or else its last failed document.
fn reason(one: &Value) -> Option<String> {
    if let Some(reason) = one["reason"].as_str() {
        return Some(reason.to_owned());
    }
    let error = one["last_errors"].as_array().and_then(|all| all.last())?;
    Some(format!("document {} failed: {}", error["id"], text(&error["reason"])))
}

/// Shows each second what all of them do, until somebody types q.
///
/// # Errors
/// A sentence for the person at the terminal.
pub fn top(options: &All) -> Result<(), String> {
    let keys = Keys::open();
    let mut before: BTreeMap<String, [f64; 3]> = BTreeMap::new();
    loop {
        let all = everything(options.server())?;
        // Clears the screen and begins at its top.
        let mut screen = String::from("\x1b[2J\x1b[H");
        let _ = writeln!(
            screen,
            "{:<24} {:<10} {:>11} {:>11} {:>7} {:>8} {:>8} {:>10} {:>10}",
            "NAME",
            "STATE",
            "DOCUMENTS/S",
            "REQUESTS/S",
            "TIME %",
            "FAILED",
            "LAG",
            "MEMORY MB",
            "STATE MB"
        );
        for one in &all {
            let _ = writeln!(screen, "{}", line_of_top(one, &mut before));
        }
        if keys.is_some() {
            screen.push_str("q ends\n");
        }
        // A terminal that is read key by key goes to the beginning of a line only when it is told to.
        let screen = if keys.is_some() { screen.replace('\n', "\r\n") } else { screen };
        let mut out = std::io::stdout();
        out.write_all(screen.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| format!("cannot write: {error}"))?;
        match &keys {
            Some(keys) if keys.ask_to_end_within(TOP_INTERVAL) => return Ok(()),
            Some(_) => {}
            None => std::thread::sleep(TOP_INTERVAL),
        }
    }
}

fn line_of_top(one: &Value, before: &mut BTreeMap<String, [f64; 3]>) -> String {
    let name = text(&one["name"]);
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let now = [
        number(&one["documents"]),
        number(&one["readers"]["calls"]),
        number(&one["writer"]["elapsed_ns"]) + number(&one["readers"]["elapsed_ns"]),
    ];
    let then = before.insert(name.clone(), now).unwrap_or(now);
    let rate = |index: usize| (now[index] - then[index]) / TOP_INTERVAL.as_secs_f64();
    // What follows no documents has no numbers of them.
    let if_any = |member: &str, shown: String| match one.get(member) {
        Some(_) => shown,
        None => "-".to_owned(),
    };
    format!(
        "{name:<24} {:<10} {:>11} {:>11} {:>7} {:>8} {:>8} {:>10} {:>10}",
        text(&one["state"]),
        if_any("documents", format!("{:.0}", rate(0))),
        if_any("readers", format!("{:.0}", rate(1))),
        if_any("writer", format!("{:.1}", rate(2) / 1e7)),
        failed(one).map_or_else(|| "-".to_owned(), |count| count.to_string()),
        if_any("lag", number(&one["lag"]).to_string()),
        if_any("memory_bytes", format!("{:.1}", number(&one["memory_bytes"]) / 1e6)),
        if_any("state_bytes", format!("{:.1}", number(&one["state_bytes"]) / 1e6)),
    )
}

/// All deployments, then the views, then the indexes that the user may see.
fn everything(server: &Server) -> Result<Vec<Value>, String> {
    let deployed = server.call("GET", "/deployments", b"")?;
    let mut all = deployed.as_array().cloned().unwrap_or_default();
    // Who may manage plugins need not see buckets and what is in them.
    all.extend(views(server).unwrap_or_default());
    all.extend(indexes(server).unwrap_or_default());
    Ok(all)
}

fn views(server: &Server) -> Result<Vec<Value>, String> {
    let buckets = server.call("GET", "/pools/default/buckets", b"")?;
    let mut service = None;
    let mut views = Vec::new();
    for bucket in buckets.as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()) {
        let path = format!("/pools/default/buckets/{}/ddocs", encoded(bucket));
        let documents = server.call("GET", &path, b"")?;
        for row in documents["rows"].as_array().into_iter().flatten() {
            let id = row["doc"]["meta"]["id"].as_str().unwrap_or_default();
            let Some(name) = id.strip_prefix("_design/") else { continue };
            let base = match &service {
                Some(base) => base,
                None => service.insert(server.views()?),
            };
            let path = format!("/{}/_design/{}/_info", encoded(bucket), encoded(name));
            let mut info = server.call_at(base, "GET", &path, b"")?;
            info["name"] = json!(format!("{bucket}/{name}"));
            info["package"] = json!("views");
            views.push(info);
        }
    }
    Ok(views)
}

fn indexes(server: &Server) -> Result<Vec<Value>, String> {
    let status = server.call("GET", "/getIndexStatus", b"")?;
    let index = |index: &Value| {
        let name = ["bucket", "scope", "collection", "name"].map(|member| text(&index[member]));
        let state = text(&index["status"]).to_lowercase();
        json!({"name": name.join("."), "package": "index", "state": state})
    };
    Ok(status["status"].as_array().into_iter().flatten().map(index).collect())
}

fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

fn package(one: &Value) -> String {
    match &one["version"] {
        Value::Null => text(&one["package"]),
        version => format!("{} {}", text(&one["package"]), text(version)),
    }
}

/// Documents that failed, and those that were skipped.
fn failed(one: &Value) -> Option<u64> {
    let counts = [&one["document_errors"], &one["dead_letter_count"]].map(Value::as_u64);
    counts.iter().any(Option::is_some).then(|| counts.into_iter().flatten().sum())
}

/// A terminal that gives each key as it is typed, until this is dropped.
struct Keys;

impl Keys {
    /// None when nobody types there.
    fn open() -> Option<Keys> {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        (is_terminal && crossterm::terminal::enable_raw_mode().is_ok()).then_some(Keys)
    }

    /// Returns true if the user types q, Esc or Ctrl-C in that time.
    fn ask_to_end_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match crossterm::event::poll(left) {
                Ok(true) => {}
                Ok(false) | Err(_) => return false,
            }
            if let Ok(crossterm::event::Event::Key(key)) = crossterm::event::read() {
                let is_interrupt =
                    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                if is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return true;
                }
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_with_skipped_documents() {
        assert_eq!(failed(&json!({"document_errors": 361, "dead_letter_count": 2})), Some(363));
        assert_eq!(failed(&json!({"state": "ready"})), None);
    }

    #[test]
    fn the_reason_of_a_deployment_comes_before_its_last_failed_document() {
        let failed =
            json!({"last_errors": [{"id": "a", "reason": "one"}, {"id": "b", "reason": "two"}]});
        assert_eq!(reason(&failed).as_deref(), Some("document \"b\" failed: two"));
        assert_eq!(reason(&json!({"reason": "out of memory"})).as_deref(), Some("out of memory"));
        assert_eq!(reason(&json!({"state": "running"})), None);
    }

    #[test]
    fn rates_cover_the_time_since_the_last_refresh() {
        let mut before = BTreeMap::new();
        let one = |documents: u64| json!({"name": "n", "state": "running", "documents": documents});
        line_of_top(&one(10), &mut before);
        let line = line_of_top(&one(25), &mut before);
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["n", "running", "15", "-", "-", "-", "-", "-", "-"]
        );
    }
}
