//! The log of the node: lines for people, on standard error.
//!
//! Text in a line may come from strangers: names, reasons, exceptions of functions. It can neither begin a line
//! ([`Escaped`]) nor fill the disk that keeps the log ([`Limiter`]): of the lines of one kind, which is the place in
//! the code that writes them, [`BURST`] are written at once and [`PER_SECOND`] a second after that. How many were left
//! out is logged. If no program reads the log, threads do not wait for one ([`Output`]). Where user data is marked
//! ([`nacre_auth::UserData`]), a hash can take its place.

mod output;

use nacre_auth::Redaction;
use output::Output;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::{self, Debug, Write};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, Format, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, format::Full};
use tracing_subscriber::registry::LookupSpan;

/// Filter of the log when `NACRE_LOG` does not set another.
const LOG_DEFAULT: &str = "info";
/// Lines of one kind that are written at once. A node with 30 buckets writes as many when it starts.
const BURST: u32 = 50;
/// Lines of one kind that are written a second after that: 60 MB a day, when they are long.
const PER_SECOND: u32 = 5;
/// Characters of a line that was left out that are shown.
const SAMPLE_CHARACTERS: usize = 120;

/// Writes the log to standard error from now on, with hashes in place of user data if it `redacts`.
pub fn to_stderr(redacts: bool) {
    let wanted = std::env::var("NACRE_LOG").unwrap_or_else(|_| LOG_DEFAULT.into());
    // Raft reports lost nodes many times a second; the links report them once.
    let wanted =
        if wanted.contains("openraft") { wanted } else { format!("{wanted},openraft=off") };
    let (filter, refused) = match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(format!("{LOG_DEFAULT},openraft=off")), Some(error)),
    };
    let is_json = std::env::var("NACRE_LOG_FORMAT").is_ok_and(|form| form == "json");
    // The log is for people: no module names, and colours only on a terminal.
    let terminal = !is_json && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let fields = format::debug_fn(|writer, field, value| write_field(writer, field.name(), value));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(terminal)
        .fmt_fields(fields.delimited(" "))
        .event_format(Lines {
            format: Format::default().with_target(false).with_ansi(terminal),
            limiter: Limiter::default(),
            is_json,
            redaction: redacts.then(|| Redaction::new(&rand::random::<[u8; 16]>())),
        });
    let note = if is_json { lost_in_json } else { lost_in_text };
    let output = std::sync::Mutex::new(Output::new(std::io::stderr(), note));
    // A second call in one process keeps the first log.
    let _ = log.with_writer(output).try_init();
    if let Some(error) = refused {
        tracing::warn!("Ignoring NACRE_LOG: not a valid filter: {error}");
    }
}

/// Returns what the log says about lines that nobody has read.
fn about_lost(count: u64) -> String {
    format!(
        "nobody has read the log of this node: {count} lines are lost; write it to a file, or to journald"
    )
}

fn lost_in_text(count: u64) -> String {
    let mut line = String::new();
    // Writing to a text does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut line));
    format!("{line}  WARN {}\n", about_lost(count))
}

fn lost_in_json(count: u64) -> String {
    let mut members = Members::default();
    members.0.insert("message".to_owned(), about_lost(count).into());
    let mut line = String::new();
    let _ = write_json(&mut Writer::new(&mut line), "warn", members);
    line
}

fn write_field(writer: &mut Writer<'_>, name: &str, value: &dyn Debug) -> fmt::Result {
    let mut escaped = Escaped(writer);
    match name {
        "message" => write!(escaped, "{value:?}"),
        // Metadata of a line from the `log` crate.
        name if name.starts_with("log.") => Ok(()),
        name => write!(escaped, "{name}={value:?}"),
    }
}

/// Writes text as one line: characters that would end the line, or that a terminal obeys, appear as escapes.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_special) {
            let (plain, special) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut characters = special.chars();
            if let Some(character) = characters.next() {
                write!(self.0, "{}", character.escape_default())?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Control characters, ends of lines, and characters that change the direction of a text.
fn is_special(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}')
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats events, but for those that are too many.
struct Lines {
    format: Format<Full>,
    limiter: Limiter,
    /// True if each line is an object, for programs.
    is_json: bool,
    /// Replaces user data by hashes; `None` if the log contains the data itself.
    redaction: Option<Redaction>,
}

impl Lines {
    /// Returns a text as the log may have it.
    fn shown(&self, text: String) -> String {
        match &self.redaction {
            Some(redaction) => redaction.redact(&text),
            None => text,
        }
    }

    /// Writes an event as an object.
    fn write_object(&self, writer: &mut Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut members = Members::default();
        event.record(&mut members);
        for value in members.0.values_mut() {
            if let serde_json::Value::String(text) = value {
                *text = self.shown(std::mem::take(text));
            }
        }
        write_json(writer, event.metadata().level().as_str(), members)
    }
}

/// Fields of an event as members of an object.
#[derive(Default)]
struct Members(serde_json::Map<String, serde_json::Value>);

impl Members {
    fn put(&mut self, field: &Field, value: impl Into<serde_json::Value>) {
        // Where a line of another logger comes from.
        if !field.name().starts_with("log.") {
            self.0.insert(field.name().to_owned(), value.into());
        }
    }
}

impl Visit for Members {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }
}

/// Writes a line of JSON: `time`, `level`, and `message` with the other fields of the event.
fn write_json(writer: &mut Writer<'_>, level: &str, mut members: Members) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    members.0.insert("time".to_owned(), time.into());
    members.0.insert("level".to_owned(), level.to_ascii_lowercase().into());
    writeln!(writer, "{}", serde_json::Value::Object(members.0))
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let kind = event.metadata().callsite();
        let (is_written, left_out) = self.limiter.take(kind.clone(), Instant::now());
        for (count, sample) in left_out {
            if self.is_json {
                let mut members = Members::default();
                let message =
                    format!("{count} lines were left out that are like this one: {sample}");
                members.0.insert("message".to_owned(), message.into());
                write_json(&mut writer, "warn", members)?;
                continue;
            }
            SystemTime.format_time(&mut writer)?;
            writeln!(
                writer,
                "  WARN {count} lines were left out that are like this one: {sample}"
            )?;
        }
        if is_written && self.is_json {
            return self.write_object(&mut writer, event);
        }
        if is_written && self.redaction.is_none() {
            return self.format.format_event(context, writer, event);
        }
        if is_written {
            let mut line = String::new();
            self.format.format_event(context, Writer::new(&mut line), event)?;
            return writeln!(writer, "{}", self.shown(line.trim_end_matches('\n').to_owned()));
        }
        if self.limiter.wants_sample(&kind) {
            let mut sample = String::new();
            context.format_fields(Writer::new(&mut sample), event)?;
            let sample = self.shown(sample);
            self.limiter.set_sample(&kind, sample.chars().take(SAMPLE_CHARACTERS).collect());
        }
        Ok(())
    }
}

/// Counts lines by their kind.
#[derive(Default)]
struct Limiter(Mutex<Kinds>);

#[derive(Default)]
struct Kinds {
    by_kind: HashMap<Identifier, Kind>,
    /// Kinds of which lines were left out that were not reported.
    suppressed: usize,
}

struct Kind {
    /// Lines that may be written, as of `at`.
    tokens: f64,
    at: Instant,
    left_out: u64,
    sample: Option<String>,
    /// When lines of it were left out first.
    since: Instant,
}

/// Interval at which the log counts lines that were left out.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

impl Limiter {
    /// Returns true if a line of `kind` is written; and how many lines of any kind were left out, with the beginning of one of them, where it
    /// is time to report that.
    fn take(&self, kind: Identifier, now: Instant) -> (bool, Vec<(u64, String)>) {
        let mut kinds = self.0.lock();
        let Kinds { by_kind, suppressed } = &mut *kinds;
        let mut reports = Vec::new();
        if *suppressed > 0 {
            for kind in by_kind.values_mut() {
                if kind.left_out > 0 && now.saturating_duration_since(kind.since) >= REPORT_INTERVAL
                {
                    let sample = kind.sample.take().unwrap_or_default();
                    reports.push((std::mem::take(&mut kind.left_out), sample));
                    *suppressed -= 1;
                }
            }
        }
        let fresh =
            || Kind { tokens: BURST.into(), at: now, left_out: 0, sample: None, since: now };
        let kind = by_kind.entry(kind).or_insert_with(fresh);
        let elapsed = now.saturating_duration_since(kind.at).as_secs_f64();
        kind.tokens = (kind.tokens + elapsed * f64::from(PER_SECOND)).min(BURST.into());
        kind.at = now;
        if kind.tokens >= 1.0 {
            kind.tokens -= 1.0;
            return (true, reports);
        }
        kind.left_out += 1;
        if kind.left_out == 1 {
            kind.since = now;
            *suppressed += 1;
        }
        (false, reports)
    }

    fn wants_sample(&self, kind: &Identifier) -> bool {
        self.0.lock().by_kind.get(kind).is_some_and(|kind| kind.sample.is_none())
    }

    fn set_sample(&self, kind: &Identifier, sample: String) {
        if let Some(kind) = self.0.lock().by_kind.get_mut(kind) {
            kind.sample = Some(sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_auth::UserData;
    use std::io;
    use std::sync::Arc;
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Sink {
        type Writer = Sink;

        fn make_writer(&'a self) -> Sink {
            self.clone()
        }
    }

    /// Returns the log lines of `write`.
    fn logged(write: impl FnOnce()) -> String {
        logged_as(false, None, write)
    }

    fn logged_as(is_json: bool, redaction: Option<Redaction>, write: impl FnOnce()) -> String {
        let sink = Sink::default();
        let fields =
            format::debug_fn(|writer, field, value| write_field(writer, field.name(), value));
        let log = tracing_subscriber::fmt()
            .fmt_fields(fields.delimited(" "))
            .event_format(Lines {
                format: Format::default().with_target(false).with_ansi(false),
                limiter: Limiter::default(),
                is_json,
                redaction,
            })
            .with_writer(sink.clone())
            .finish();
        tracing::subscriber::with_default(log, write);
        String::from_utf8(sink.0.lock().clone()).unwrap()
    }

    #[test]
    fn users_cannot_begin_their_own_log_lines() {
        let thrown = "x\n2026-01-01T00:00:00Z  INFO FAKE\r\u{1b}[2J\u{2028}\u{202e}ü";
        let text = logged(|| tracing::warn!(user = thrown, "a function failed: {thrown}"));
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(
            text.ends_with('\n') && !text.contains(['\r', '\u{1b}', '\u{2028}', '\u{202e}']),
            "{text}"
        );
        assert!(
            text.contains(r"x\n2026-01-01T00:00:00Z  INFO FAKE\r\u{1b}[2J") && text.contains('ü'),
            "{text}"
        );
    }

    #[test]
    fn a_json_line_is_one_object_for_any_content() {
        let thrown = "x\n{\"level\":\"error\"}";
        let text = logged_as(true, None, || {
            tracing::warn!(user = thrown, count = 3, "failed: {thrown}");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        let members = ["level", "message", "user"].map(|member| line[member].as_str().unwrap());
        assert_eq!(members, ["warn", &format!("failed: {thrown}"), thrown]);
        assert!(line["count"] == 3 && line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    }

    #[test]
    fn user_data_is_hashed_in_both_forms_of_the_log() {
        let redaction = Redaction::new(b"salt");
        let hashed = redaction.redact(&UserData("order:1").to_string());
        for is_json in [false, true] {
            let text = logged_as(is_json, Some(redaction.clone()), || {
                for _ in 0..2 * BURST {
                    tracing::warn!(user = %UserData("ann"), "slow: {}", UserData("order:1"));
                }
            });
            assert!(!text.contains("order:1") && !text.contains("ann"), "{text}");
            assert!(text.lines().all(|line| line.contains(&hashed)), "{text}");
            if is_json {
                let mut lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
                assert!(lines.all(|line| line.is_ok()), "{text}");
            }
        }
        let plain = logged(|| tracing::warn!("slow: {}", UserData("order:1")));
        assert!(plain.contains("slow: <ud>order:1</ud>"), "{plain}");
    }

    #[test]
    fn lost_lines_are_counted_in_the_form_of_the_log() {
        let text = lost_in_text(3);
        assert!(text.contains("Z  WARN ") && text.ends_with('\n'), "{text}");
        assert!(text.contains("3 lines are lost") && text.contains("to a file"), "{text}");
        let line: serde_json::Value = serde_json::from_str(&lost_in_json(3)).unwrap();
        assert_eq!(line["level"], "warn");
        assert_eq!(line["message"], about_lost(3));
    }

    #[test]
    fn lines_of_one_kind_are_limited_and_others_are_not() {
        let text = logged(|| {
            for number in 0..10_000 {
                tracing::warn!("a stranger's line {number}");
            }
            tracing::info!("another line");
        });
        let count = text.matches("a stranger's line").count();
        assert!((BURST as usize..BURST as usize + 50).contains(&count), "{count}");
        assert!(text.contains("another line"));
    }

    #[test]
    fn omitted_lines_are_counted_in_the_log() {
        let (limiter, begun) = (Limiter::default(), Instant::now());
        let (flood, other) = (Identifier(&FLOOD), Identifier(&OTHER));
        for _ in 0..BURST + 7 {
            limiter.take(flood.clone(), begun);
        }
        assert!(limiter.wants_sample(&flood));
        limiter.set_sample(&flood, "closed".into());
        let later = begun + REPORT_INTERVAL;
        assert_eq!(limiter.take(other.clone(), later), (true, vec![(7, "closed".into())]));
        assert_eq!(limiter.take(other, later), (true, Vec::new()));
        assert!(limiter.take(flood, later).0, "there is room again");
    }

    /// Not of size 0, because places are told apart by their addresses.
    struct Place(#[expect(dead_code, reason = "gives it a size")] u8);

    impl tracing::Callsite for Place {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}

        fn metadata(&self) -> &tracing::Metadata<'_> {
            unreachable!("nobody asks for it")
        }
    }

    static FLOOD: Place = Place(0);
    static OTHER: Place = Place(1);
}
