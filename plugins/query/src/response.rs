//! Responses: one JSON object in pieces. Rows precede the status, because clients read them as they arrive.

use crate::controls;
use crate::exec::PassThrough;
use crate::object_text::ObjectText;
use crate::prepared_key::PreparedKey;
use crate::prepared_use;
use crate::request::Request;
use crate::run::{Run, State};
use crate::service::{Begun, Service, Source};
use crate::style::Style;
use crate::transaction;
use crate::watch::{self, End};
use nacre_datastore::{Datastore, DocumentRange, Platform};
use nacre_planner::explain;
use nacre_sql::ast::{Expr, Statement};
use nacre_sql::{Content, Context, Error, Json, Result, Value, parse, write_string};
use std::sync::Arc;

/// Approximate size of a piece in bytes.
const PIECE_BYTES: usize = 64 << 10;
/// The same, including documents that are passed on, which a piece only references.
const PASSED_BYTES: usize = 256 << 10;

/// A piece of a response: its text, and the byte positions in it, in order, where held documents are
/// inserted.
#[derive(Default)]
pub struct Piece {
    /// The text around the documents.
    pub text: String,
    /// The documents, each with its position.
    pub passed: Vec<(usize, Passed)>,
    passed_bytes: usize,
}

/// The documents at one position of a piece.
pub enum Passed {
    /// A document.
    Document(Arc<Json>),
    /// Several, separated by a text.
    Range(DocumentRange, String),
}

impl Piece {
    /// Returns the whole text, including the documents.
    pub fn into_text(self) -> String {
        let Piece { text, passed, passed_bytes } = self;
        if passed.is_empty() {
            return text;
        }
        let mut whole = String::with_capacity(text.len() + passed_bytes);
        let mut from = 0;
        for (at, passed) in passed {
            whole.push_str(&text[from..at]);
            match passed {
                Passed::Document(json) => whole.push_str(json.text()),
                Passed::Range(documents, between) => {
                    let texts: Vec<_> = documents.texts().collect();
                    whole.push_str(&texts.join(&between));
                }
            }
            from = at;
        }
        whole.push_str(&text[from..]);
        whole
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.passed_bytes
    }

    fn add_row(&mut self, row: &Content, style: Style) {
        if !style.is_plain() {
            return style.write(row.value(), &mut self.text);
        }
        let Piece { text, passed, passed_bytes } = self;
        row.write_json_by(text, &mut |json, text| match json.as_held() {
            Some(held) => {
                *passed_bytes += held.bytes;
                passed.push((text.len(), Passed::Document(Arc::clone(json))));
            }
            None => text.push_str(json.text()),
        });
    }

    /// Adds rows; `before` precedes the first. Returns their total size in bytes.
    fn add_pass_through(&mut self, before: &str, rows: PassThrough) -> usize {
        let PassThrough { documents, name } = rows;
        let (mut begin, mut end) = (String::new(), "");
        if let Some(name) = name {
            begin.push('{');
            write_string(&name, &mut begin);
            begin.push(':');
            end = "}";
        }
        let between = [end, NEXT_ROW, &begin].concat();
        let bytes = documents.bytes + (begin.len() + end.len()) * documents.count;
        self.passed_bytes += documents.bytes + between.len() * (documents.count - 1);
        self.text.push_str(before);
        self.text.push_str(&begin);
        self.passed.push((self.text.len(), Passed::Range(documents, between)));
        self.text.push_str(end);
        bytes
    }
}

/// The separators before the first row, and before any other.
const FIRST_ROW: &str = "\n";
const NEXT_ROW: &str = ",\n";

/// The next part of a result.
enum Next {
    Row(Content),
    Rows(PassThrough),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Head,
    Rows,
    Done,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The request succeeded.
    Success,
    /// The request failed while it ran.
    Errors,
    /// The request could not begin.
    Fatal,
    /// The request timed out.
    Timeout,
    /// The request was cancelled.
    Stopped,
}

impl Status {
    fn text(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::Errors => "errors",
            Status::Fatal => "fatal",
            Status::Timeout => "timeout",
            Status::Stopped => "stopped",
        }
    }
}

/// A request while it is being answered.
pub struct Response {
    request: Request,
    /// The time of its arrival.
    came_us: i64,
    state: State,
    begun: Option<Begun>,
    /// Rows that did not fit into the last piece.
    left: Option<PassThrough>,
    phase: Phase,
    errors: Vec<Error>,
    fatal: bool,
    result_count: u64,
    result_bytes: u64,
}

impl Response {
    pub(crate) fn new(
        service: &Service,
        mut request: Request,
        store: &dyn Datastore,
        platform: &dyn Platform,
    ) -> Response {
        let came_us = platform.now_us();
        request.settings.statement_ms = came_us / 1000;
        if request.transaction.is_given() && request.settings.consistency.level.is_empty() {
            // As in Couchbase, a transaction sees what was committed before it.
            request.settings.consistency.level = "request_plus".into();
        }
        let state = State::of(new_id(platform));
        watch::begin(&state.id, &request, store);
        let run = Run { store, platform, service, settings: &request.settings, state: &state };
        let begun = begin(service, &request, &run);
        let took_us = platform.now_us() - came_us;
        state.plan_us.set((took_us - state.parse_us.get()).max(0));
        Response::of(request, came_us, state, begun)
    }

    fn of(request: Request, came_us: i64, state: State, begun: Result<Begun>) -> Response {
        let (begun, errors) = match begun {
            Ok(begun) => (Some(begun), Vec::new()),
            Err(error) => (None, vec![error]),
        };
        let fatal = begun.is_none();
        Response {
            request,
            came_us,
            state,
            begun,
            left: None,
            phase: Phase::Head,
            errors,
            fatal,
            result_count: 0,
            result_bytes: 0,
        }
    }

    /// Creates the response to an invalid request.
    pub fn refused(error: Error, platform: &dyn Platform) -> Response {
        let mut request = Request { metrics: true, ..Request::default() };
        let came_us = platform.now_us();
        request.settings.statement_ms = came_us / 1000;
        let state = State::of(new_id(platform));
        Response::of(request, came_us, state, Err(error))
    }

    /// Returns true if the last piece was returned.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Returns the errors so far.
    pub fn errors(&self) -> &[Error] {
        &self.errors
    }

    /// Returns the outcome so far.
    pub fn status(&self) -> Status {
        match self.errors.first().map(|error| error.code) {
            None => Status::Success,
            Some(1080) => Status::Timeout,
            Some(1190) => Status::Stopped,
            // Clients treat both as an error; the difference is whether there can have been rows.
            Some(1000..4000) if self.fatal => Status::Fatal,
            Some(_) => Status::Errors,
        }
    }

    /// Returns the HTTP status for the progress of the request so far. Source: Couchbase's query service.
    pub fn http_status(&self) -> u16 {
        let Some(error) = self.errors.first() else { return 200 };
        match (self.status(), error.code) {
            (Status::Timeout | Status::Stopped, _) => 200,
            (_, 12001 | 12003) => 424,
            (_, 4040 | 12016 | 12021) => 404,
            (_, 10000 | 13014) => 401,
            (_, 1000) => 403,
            (_, 4300) => 409,
            (_, 1000..5000) => 400,
            _ => 200,
        }
    }

    /// Returns the next row, for callers that need no JSON.
    ///
    /// # Errors
    /// The error of the request; the same error is in [`Response::errors`].
    pub fn next_row(
        &mut self,
        service: &Service,
        store: &dyn Datastore,
        platform: &dyn Platform,
    ) -> Result<Option<Value>> {
        let content =
            self.step(service, store, platform, |source, run, context| source.next(run, context))?;
        Ok(content.map(|content| content.value().clone()))
    }

    fn next(
        &mut self,
        service: &Service,
        store: &dyn Datastore,
        platform: &dyn Platform,
    ) -> Result<Option<Next>> {
        if let Some(left) = self.left.take() {
            return Ok(Some(Next::Rows(left)));
        }
        let is_plain = self.request.style.is_plain();
        self.step(service, store, platform, |source, run, context| {
            let rows = if is_plain { source.next_pass_through(run, context)? } else { None };
            match rows {
                Some(rows) => Ok(Some(Next::Rows(rows))),
                None => Ok(source.next(run, context)?.map(Next::Row)),
            }
        })
    }

    /// Requests more from the statement's source.
    fn step<T>(
        &mut self,
        service: &Service,
        store: &dyn Datastore,
        platform: &dyn Platform,
        pull: impl FnOnce(&mut Source, &Run<'_>, &Context<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(error) = self.errors.first() {
            return Err(error.clone());
        }
        let Some(begun) = &mut self.begun else { return Ok(None) };
        let run =
            Run { store, platform, service, settings: &self.request.settings, state: &self.state };
        let next = nacre_sql::Host::tick(&run)
            .and_then(|()| pull(&mut begun.source, &run, &run.context()));
        if !matches!(next, Ok(Some(_)))
            && let Some(key) = self.state.prepared.take()
        {
            prepared_use::count(&key, platform.now_us() - self.came_us, store, platform);
        }
        next.inspect_err(|error| self.errors.push(error.clone()))
    }

    /// Returns the next piece of the body; `None` after the last.
    pub fn next_chunk(
        &mut self,
        service: &Service,
        store: &dyn Datastore,
        platform: &dyn Platform,
    ) -> Option<Piece> {
        let mut piece = Piece::default();
        if self.phase == Phase::Done {
            return None;
        }
        if self.phase == Phase::Head {
            self.head(&mut piece.text);
            self.phase = Phase::Rows;
        }
        while piece.text.len() < PIECE_BYTES && piece.bytes() < PASSED_BYTES {
            let row_begin = if self.result_count > 0 { NEXT_ROW } else { FIRST_ROW };
            match self.next(service, store, platform) {
                Ok(Some(Next::Rows(rows))) => {
                    let PassThrough { documents, name } = rows;
                    let (now, left) = documents.split(PASSED_BYTES - piece.bytes());
                    self.left = left.map(|documents| PassThrough { documents, name: name.clone() });
                    self.result_count += now.count as u64;
                    let now = PassThrough { documents: now, name };
                    self.result_bytes += piece.add_pass_through(row_begin, now) as u64;
                }
                Ok(Some(Next::Row(row))) => {
                    piece.text.push_str(row_begin);
                    let before = piece.bytes();
                    piece.add_row(&row, self.request.style);
                    self.result_bytes += (piece.bytes() - before) as u64;
                    self.result_count += 1;
                }
                Ok(None) | Err(_) => {
                    self.end_transaction(service, store, platform);
                    self.tail(&mut piece.text, platform.now_us());
                    watch::end(&self.state.id, &self.request, &self.end(), store, platform);
                    self.phase = Phase::Done;
                    break;
                }
            }
        }
        Some(piece)
    }

    /// Leaves the transaction after the last row, so that another request can use it.
    fn end_transaction(
        &mut self,
        service: &Service,
        store: &dyn Datastore,
        platform: &dyn Platform,
    ) {
        let run =
            Run { store, platform, service, settings: &self.request.settings, state: &self.state };
        let ended = transaction::end(&self.request, self.errors.is_empty(), &run);
        self.errors.extend(ended.err());
    }

    fn end(&self) -> End {
        End {
            state: match self.status() {
                Status::Success | Status::Errors => "completed",
                other => other.text(),
            },
            error_count: self.errors.len(),
            result_count: self.result_count,
            result_bytes: self.result_bytes,
            mutation_count: self.state.mutation_count.get(),
        }
    }

    fn head(&self, out: &mut String) {
        out.push_str("{\n\"requestID\":");
        write_string(&self.state.id, out);
        if let Some(id) = &self.request.client_context_id {
            out.push_str(",\n\"clientContextID\":");
            write_string(id, out);
        }
        if let Some(begun) = &self.begun {
            if self.request.signature {
                out.push_str(",\n\"signature\":");
                begun.signature.write_json(out);
            }
            if let Some(name) = &begun.prepared {
                out.push_str(",\n\"prepared\":");
                write_string(name, out);
            }
        }
        out.push_str(",\n\"results\":[");
    }

    fn tail(&self, out: &mut String, now_us: i64) {
        out.push_str("\n]");
        if !self.errors.is_empty() {
            out.push_str(",\n\"errors\":");
            let limit = match self.request.error_limit {
                0 => self.errors.len(),
                limit => limit,
            };
            Value::array(self.errors.iter().take(limit).map(error_value).collect()).write_json(out);
        }
        out.push_str(",\n\"status\":");
        write_string(self.status().text(), out);
        if self.request.metrics {
            out.push_str(",\n\"metrics\":");
            out.push_str(&self.metrics(now_us));
        }
        if self.request.controls {
            out.push_str(",\n\"controls\":");
            controls::of(&self.request).write_json(out);
        }
        if matches!(self.request.profile.as_str(), "phases" | "timings") {
            out.push_str(",\n\"profile\":");
            self.profile(now_us).write_json(out);
        }
        out.push_str("\n}\n");
    }

    /// Returns the profile for `profile=phases` and `profile=timings`: times, and the executed plan.
    fn profile(&self, now_us: i64) -> Value {
        let (parse_us, plan_us) = (self.state.parse_us.get(), self.state.plan_us.get());
        let run_us = now_us - self.came_us - parse_us - plan_us;
        let time = |us: i64| Value::from(duration(us.max(1)));
        let times = Value::object([
            ("parse", time(parse_us)),
            ("plan", time(plan_us)),
            ("run", time(run_us)),
        ]);
        let counts = Value::object([
            ("output", Value::Int(self.result_count as i64)),
            ("sort", Value::Int(self.state.sort_count.get() as i64)),
        ]);
        let plan = match &self.begun {
            Some(Begun { source: Source::Rows { plan, .. }, .. })
                if self.request.profile == "timings" =>
            {
                explain::explain(&plan.root)
            }
            _ => Value::Missing,
        };
        Value::object([("phaseTimes", times), ("phaseCounts", counts), ("executionTimings", plan)])
    }

    fn metrics(&self, now_us: i64) -> String {
        // Some clients take a time of zero for a server without measurements.
        let elapsed = duration((now_us - self.came_us).max(1));
        let mut metrics = ObjectText::new();
        metrics.text("elapsedTime", &elapsed);
        metrics.text("executionTime", &elapsed);
        metrics.number("resultCount", self.result_count);
        metrics.number("resultSize", self.result_bytes);
        for (name, count) in [
            ("mutationCount", self.state.mutation_count.get()),
            ("sortCount", self.state.sort_count.get()),
            ("errorCount", self.errors.len() as u64),
        ] {
            if count > 0 {
                metrics.number(name, count);
            }
        }
        metrics.end()
    }
}

/// Formats a duration as clients read it, with microseconds, because many statements take less than a millisecond
/// and some clients reject a duration of zero.
pub(crate) fn duration(us: i64) -> String {
    match (us / 1000, us % 1000) {
        (ms, 0) => format!("{ms}ms"),
        (ms, us) => format!("{ms}.{us:03}ms"),
    }
}

/// Returns 32 random hexadecimal digits, grouped as in UUIDs.
fn new_id(platform: &dyn Platform) -> String {
    let digits = format!("{:016x}{:016x}", platform.random(), platform.random());
    [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)].map(|(from, to)| &digits[from..to]).join("-")
}

fn begin(service: &Service, request: &Request, run: &Run<'_>) -> Result<Begun> {
    set_terms(request, run)?;
    let context = run.context();
    if let Some(name) = &request.prepared {
        let key = PreparedKey::of(name, run);
        let statement = service.prepared_statement(&key, run.store)?.statement.clone();
        if !request.transaction.is_given() && !matches!(statement, Statement::Transaction(_)) {
            return service.begin_prepared(name, run, &context);
        }
        let begin = || service.begin_prepared(name, run, &context);
        return transaction::within(&statement, request, run, begin);
    }
    let text = request.statement.as_deref();
    let text = text.ok_or_else(|| Error::new(1050, "No statement or prepared value"))?;
    let from_us = run.platform.now_us();
    let mut statement = parse(text)?;
    run.state.parse_us.set(run.platform.now_us() - from_us);
    // A prepared statement may also begin or end a transaction.
    if let Statement::Execute { name: Expr::Literal(Value::String(name)), using: None } = &statement
        && let Ok(prepared) = service.prepared_statement(&PreparedKey::of(name, run), run.store)
        && matches!(prepared.statement, Statement::Transaction(_))
    {
        statement = prepared.statement.clone();
    }
    if !request.transaction.is_given() && !matches!(statement, Statement::Transaction(_)) {
        return begin_parsed(service, statement, request, run);
    }
    transaction::within(&statement.clone(), request, run, || {
        begin_parsed(service, statement, request, run)
    })
}

/// Passes the terms of the request's reads and writes to the store.
fn set_terms(request: &Request, run: &Run<'_>) -> Result<()> {
    let is_bounded = !matches!(request.settings.consistency.level.as_str(), "" | "not_bounded");
    let scan_wait = request.scan_wait_ms.filter(|_| is_bounded);
    // A transaction has its own durability setting.
    let durability = Some(request.transaction.settings.durability.as_str())
        .filter(|level| !level.is_empty() && !request.transaction.is_given());
    if scan_wait.is_none() && durability.is_none() {
        return Ok(());
    }
    let scan_wait = scan_wait.and_then(|ms| i64::try_from(ms).ok());
    let terms = Value::object([
        ("do", "set_terms".into()),
        ("scan_wait_ms", scan_wait.map_or(Value::Missing, Value::Int)),
        ("durability", durability.map_or(Value::Missing, Value::from)),
    ]);
    run.store.administer(&terms).map(drop)
}

fn begin_parsed(
    service: &Service,
    statement: Statement,
    request: &Request,
    run: &Run<'_>,
) -> Result<Begun> {
    let context = run.context();
    let prepared = match &statement {
        Statement::Prepare(prepare) if request.auto_execute => Some(prepare.statement.clone()),
        _ => None,
    };
    let begun = service.begin(statement, run, &context)?;
    match prepared {
        None => Ok(begun),
        Some(statement) => Ok(Begun {
            prepared: begun.prepared.clone(),
            ..service.begin(statement, run, &context)?
        }),
    }
}

fn error_value(error: &Error) -> Value {
    Value::object([
        ("code", Value::Int(i64::from(error.code))),
        ("msg", error.message.as_str().into()),
        (
            if transaction::is_of_transactions(error) { "cause" } else { "reason" },
            error.reason.clone(),
        ),
        ("retry", if error.retry { true.into() } else { Value::Missing }),
    ])
}
