//! Commands, which begin with `\`.

use super::session::{Session, Stop};
use super::text::Members;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// A command: its name, its arguments and its function.
pub struct Command {
    /// The name, without the `\`.
    pub name: &'static str,
    arguments: &'static str,
    purpose: &'static str,
    run: fn(&mut Session<'_>, &str) -> Result<(), Stop>,
}

/// All commands, in the order of `\help`.
pub const COMMANDS: [Command; 14] = [
    Command { name: "help", arguments: "", purpose: "show this", run: help },
    Command {
        name: "set",
        arguments: "[NAME VALUE | $name JSON]",
        purpose: "show all settings, change one, or set an argument of statements",
        run: set,
    },
    Command {
        name: "unset",
        arguments: "NAME | $name",
        purpose: "reset a setting to its default, or remove an argument",
        run: unset,
    },
    Command {
        name: "use",
        arguments: "BUCKET.SCOPE",
        purpose: "look for lone names of collections there",
        run: |session, path| change(session, "context", path),
    },
    Command {
        name: "plan",
        arguments: "on | off",
        purpose: "show a plan as a tree or as JSON",
        run: |session, value| change(session, "plan", value),
    },
    Command { name: "list", arguments: "", purpose: "show all keyspaces", run: list },
    Command { name: "indexes", arguments: "", purpose: "show all indexes", run: indexes },
    Command {
        name: "describe",
        arguments: "KEYSPACE",
        purpose: "show the fields of its documents, of a sample",
        run: describe,
    },
    Command {
        name: "search",
        arguments: "KEYSPACE TEXT",
        purpose: "show the documents that a text finds, the best first",
        run: search,
    },
    Command {
        name: "source",
        arguments: "FILE",
        purpose: "run the statements in a file",
        run: |session, path| match path {
            "" => session.fail("\\source needs a file"),
            path => session.source(path),
        },
    },
    Command {
        name: "echo",
        arguments: "TEXT",
        purpose: "print it",
        run: |session, text| session.print_line(text),
    },
    Command { name: "quit", arguments: "", purpose: "end", run: |_, _| Err(Stop::Quit) },
    Command { name: "exit", arguments: "", purpose: "end", run: |_, _| Err(Stop::Quit) },
    Command { name: "q", arguments: "", purpose: "end", run: |_, _| Err(Stop::Quit) },
];

const LIST: &str = "SELECT IFMISSING(k.`bucket`, k.name) AS `bucket`, IFMISSING(k.`scope`, \"_default\") AS `scope`, \
    CASE WHEN k.`bucket` IS MISSING THEN \"_default\" ELSE k.name END AS `collection` \
    FROM system:keyspaces AS k ORDER BY `bucket`, `scope`, `collection`";

const INDEXES: &str = "SELECT i.name, CONCAT2(\".\", i.bucket_id, i.scope_id, i.keyspace_id) AS `keyspace`, \
    i.index_key AS `keys`, i.`condition`, i.state \
    FROM (SELECT x.*, IFMISSING(x.bucket_id, x.keyspace_id) AS bucket_id, \
    IFMISSING(x.scope_id, \"_default\") AS scope_id, \
    CASE WHEN x.bucket_id IS MISSING THEN \"_default\" ELSE x.keyspace_id END AS keyspace_id \
    FROM system:indexes AS x) AS i ORDER BY `keyspace`, i.name";

/// Number of documents that a search shows.
const HITS: u32 = 20;

/// Runs a command.
///
/// # Errors
/// The reason, if the command does not exist or fails.
pub fn run(session: &mut Session<'_>, text: &str) -> Result<(), Stop> {
    let (name, rest) = word(text);
    match COMMANDS.iter().find(|command| command.name.eq_ignore_ascii_case(name)) {
        // The semicolon at which SQL users end every line.
        Some(command) if command.name != "echo" => {
            (command.run)(session, rest.trim_end_matches(';').trim_end())
        }
        Some(command) => (command.run)(session, rest),
        None => session.fail(&format!("there is no command \\{name}: see \\help")),
    }
}

/// Returns the first word, and the text after it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word.trim_end_matches(';'), rest.trim_start())
}

fn help(session: &mut Session<'_>, _: &str) -> Result<(), Stop> {
    for Command { name, arguments, purpose, .. } in &COMMANDS {
        let usage = format!("\\{name} {arguments}");
        session.print_line(&format!("{usage:<32} {purpose}"))?;
    }
    session.print_line("A statement ends with a semicolon, a command with its line.")?;
    session
        .print_line("BEGIN WORK opens a transaction for all statements until COMMIT or ROLLBACK.")
}

fn set(session: &mut Session<'_>, text: &str) -> Result<(), Stop> {
    let (name, value) = word(text);
    if !name.is_empty() {
        return change(session, name, value);
    }
    for (name, value) in session.settings.shown() {
        session.print_line(format!("{name:<12} {value}").trim_end())?;
    }
    Ok(())
}

fn change(session: &mut Session<'_>, name: &str, value: &str) -> Result<(), Stop> {
    session.settings.set(name, value).or_else(|reason| session.fail(&reason))
}

fn unset(session: &mut Session<'_>, name: &str) -> Result<(), Stop> {
    session.settings.unset(name).or_else(|reason| session.fail(&reason))
}

fn list(session: &mut Session<'_>, _: &str) -> Result<(), Stop> {
    let rows = session.rows(LIST)?;
    show(session, &rows, &["bucket", "scope", "collection"])
}

fn indexes(session: &mut Session<'_>, _: &str) -> Result<(), Stop> {
    let rows = session.rows(INDEXES)?;
    show(session, &rows, &["keyspace", "name", "keys", "condition", "state"])
}

/// Shows objects with their members in a fixed order, which a node need not keep.
fn show(session: &mut Session<'_>, rows: &[Box<RawValue>], order: &[&str]) -> Result<(), Stop> {
    let place = |name: &str| order.iter().position(|column| *column == name);
    let ordered = rows.iter().filter_map(|row| {
        let mut members = Members::of(row)?.0;
        members.sort_by_key(|(name, _)| place(name).unwrap_or(order.len()));
        let members = members.iter().map(|(name, value)| format!("{}:{value}", json!(name)));
        RawValue::from_string(format!("{{{}}}", members.collect::<Vec<_>>().join(","))).ok()
    });
    let ordered: Vec<_> = ordered.collect();
    session.show(&ordered)
}

/// Shows the fields of a keyspace. INFER returns a list of flavors, each a JSON schema with its number of documents; each
/// field of any flavor is a row.
fn describe(session: &mut Session<'_>, keyspace: &str) -> Result<(), Stop> {
    if keyspace.is_empty() {
        return session.fail("\\describe needs a keyspace");
    }
    let rows = session.rows(&format!("INFER {}", quoted_path(keyspace)))?;
    let mut total = 0.0;
    // The name, the number of documents that have it, and the types, in the order of their first occurrence.
    let mut fields: Vec<(String, f64, Vec<String>)> = Vec::new();
    for row in &rows {
        let flavors: Value = serde_json::from_str(row.get()).unwrap_or_default();
        for flavor in flavors.as_array().into_iter().flatten() {
            total += count_of(&flavor["#docs"]);
            for (name, field) in flavor["properties"].as_object().into_iter().flatten() {
                let at = fields.iter().position(|(known, ..)| known == name).unwrap_or_else(|| {
                    fields.push((name.clone(), 0.0, Vec::new()));
                    fields.len() - 1
                });
                let (_, count, types) = &mut fields[at];
                *count += count_of(&field["#docs"]);
                for kind in types_of(&field["type"]) {
                    if !types.contains(&kind) {
                        types.push(kind);
                    }
                }
            }
        }
    }
    let shown = fields.iter().map(|(name, count, types)| {
        let share = format!("{:.0} %", 100.0 * count / total.max(1.0));
        json!({"field": name, "documents": share, "type": types.join(" or ")})
    });
    let fields: Vec<_> = shown.filter_map(|field| to_raw_value(&field).ok()).collect();
    show(session, &fields, &["field", "type", "documents"])
}

/// Searches with SQL++: uses an index of the keyspace if there is one, else scans the documents.
fn search(session: &mut Session<'_>, text: &str) -> Result<(), Stop> {
    let (keyspace, query) = word(text);
    if query.is_empty() {
        return session.fail("\\search needs a keyspace and a text");
    }
    let statement = format!(
        "SELECT META(d).id, ROUND(SEARCH_SCORE(d), 3) AS score, d AS document FROM {} AS d \
         WHERE SEARCH(d, {}) ORDER BY SEARCH_SCORE(d) DESC LIMIT {HITS}",
        quoted_path(keyspace),
        json!(query)
    );
    let rows = session.rows(&statement)?;
    show(session, &rows, &["id", "score", "document"])
}

/// Returns a number of documents: a number, or the sum of one per type.
fn count_of(count: &Value) -> f64 {
    match count {
        Value::Array(counts) => counts.iter().filter_map(Value::as_f64).sum(),
        count => count.as_f64().unwrap_or_default(),
    }
}

fn types_of(kinds: &Value) -> Vec<String> {
    let text = |kind: &Value| kind.as_str().map(str::to_owned);
    match kinds {
        Value::Array(kinds) => kinds.iter().filter_map(text).collect(),
        kind => text(kind).into_iter().collect(),
    }
}

/// Returns a path with its parts in back quotes; leaves a path unchanged that already has some.
pub fn quoted_path(path: &str) -> String {
    if path.contains('`') {
        return path.to_owned();
    }
    let path = path.strip_prefix("default:").unwrap_or(path);
    path.split('.').map(|part| format!("`{part}`")).collect::<Vec<_>>().join(".")
}
