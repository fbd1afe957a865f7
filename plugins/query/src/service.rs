//! The service: executes statements and keeps prepared ones.

use crate::exec::{self, PassThrough, Rows};
use crate::function::{self, FunctionCache};
use crate::prepared_key::PreparedKey;
use crate::prepared_use;
use crate::request::Request;
use crate::resolve::resolve;
use crate::response::Response;
use crate::rights::{self, Asked};
use crate::run::Run;
use crate::statistics::{self, Stamps};
use crate::{administer, dml, infer, signature, transaction, vectors};
use nacre_cost::Table;
use nacre_datastore::options;
use nacre_datastore::{Datastore, Platform};
use nacre_planner::{Page, SelectPlan, explain, hints};
use nacre_sql::ast::{Expr, FromTerm, InsertSource, Path, Source as Origin, Statement};
use nacre_sql::index::Definition;
use nacre_sql::{Content, Context, Env, Error, Name, Result, Value, eval, parse};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::vec::IntoIter;

/// Maximum number of parsed statements that an instance keeps; the first by key is dropped.
const PREPARED_MAX: usize = 1024;

/// Maximum number of parsed index definitions that an instance keeps; all are dropped together.
const DEFINITIONS_MAX: usize = 1024;

/// Maximum number of keyspaces whose parsed statistics an instance keeps; all are dropped together.
const TABLES_MAX: usize = 256;

/// A prepared statement.
pub(crate) struct Prepared {
    /// The full text, from PREPARE on.
    pub full_text: String,
    /// The text of the statement.
    pub text: String,
    pub statement: Statement,
    planned: RefCell<Option<Planned>>,
}

impl Prepared {
    /// Parses the text of a note.
    fn parse(full_text: String) -> Result<Prepared> {
        let (text, statement) = match parse(&full_text)? {
            Statement::Prepare(prepare) => (prepare.text, prepare.statement),
            // Nodes of an earlier version store only the statement.
            statement => (full_text.clone(), statement),
        };
        Ok(Prepared { full_text, text, statement, planned: RefCell::default() })
    }
}

/// A plan that depends on no parameter, with the conditions under which it is valid.
struct Planned {
    version: u64,
    statistics: Stamps,
    rights: Asked,
    context: Option<Path>,
    plan: Rc<SelectPlan>,
    signature: Value,
}

/// The caches of an instance of the service; everything in them can be read again.
#[derive(Default)]
pub struct Service {
    /// Prepared statements by the keys of their notes.
    prepared: RefCell<BTreeMap<String, Rc<Prepared>>>,
    definitions: RefCell<BTreeMap<String, Rc<Definition>>>,
    /// Statistics by the keys of their notes, with their stamps.
    tables: RefCell<BTreeMap<String, (String, Rc<Table>)>>,
    pub(crate) functions: FunctionCache,
}

/// The source of a statement's rows.
pub(crate) enum Source {
    Rows { root: Rows, plan: Rc<SelectPlan> },
    Values(IntoIter<Value>),
}

/// A statement in progress.
pub(crate) struct Begun {
    pub source: Source,
    pub signature: Value,
    /// The name of the statement that PREPARE has prepared.
    pub prepared: Option<Name>,
}

impl Begun {
    pub fn values(values: Vec<Value>) -> Begun {
        Begun { source: Source::Values(values.into_iter()), signature: Value::Null, prepared: None }
    }

    fn rows(plan: Rc<SelectPlan>, signature: Value) -> Begun {
        let root = exec::build(&plan.root, &Env::new());
        Begun { source: Source::Rows { root, plan }, signature, prepared: None }
    }
}

impl Service {
    /// Creates a service with empty caches.
    pub fn new() -> Service {
        Service::default()
    }

    /// Starts a request. Errors are reported in the response.
    pub fn start(
        &self,
        request: Request,
        store: &dyn Datastore,
        platform: &dyn Platform,
    ) -> Response {
        Response::new(self, request, store, platform)
    }

    /// Returns the parsed definition of an index.
    pub(crate) fn definition(&self, text: &str) -> Result<Rc<Definition>> {
        if let Some(known) = self.definitions.borrow().get(text) {
            return Ok(Rc::clone(known));
        }
        let definition = Rc::new(Definition::parse(text)?);
        let mut all = self.definitions.borrow_mut();
        if all.len() >= DEFINITIONS_MAX {
            all.clear();
        }
        all.insert(text.to_owned(), Rc::clone(&definition));
        Ok(definition)
    }

    /// Returns the statistics of a note with this stamp.
    pub(crate) fn table(
        &self,
        note: &str,
        stamp: &str,
        read: impl FnOnce() -> Option<Rc<Table>>,
    ) -> Option<Rc<Table>> {
        if let Some((_, known)) = self.tables.borrow().get(note).filter(|(known, _)| known == stamp)
        {
            return Some(Rc::clone(known));
        }
        let table = read()?;
        let mut all = self.tables.borrow_mut();
        if all.len() >= TABLES_MAX {
            all.clear();
        }
        all.insert(note.to_owned(), (stamp.to_owned(), Rc::clone(&table)));
        Some(table)
    }

    /// Starts a prepared statement, with its last plan if that is still valid.
    pub(crate) fn begin_prepared(
        &self,
        name: &str,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Begun> {
        let key = PreparedKey::of(name, run);
        let prepared = self.prepared_statement(&key, run.store)?;
        *run.state.prepared.borrow_mut() = Some(key);
        let version = run.store.version();
        if let Some(known) = &*prepared.planned.borrow()
            && known.version == version
            && known.context == run.settings.context
            && !run.settings.ignores_costs
            && statistics::are_current(&known.statistics, run)
        {
            for (keyspace, rights) in &known.rights {
                run.store.authorize(keyspace, *rights)?;
            }
            return Ok(Begun::rows(Rc::clone(&known.plan), known.signature.clone()));
        }
        let begun = self.begin(prepared.statement.clone(), run, context)?;
        if let Source::Rows { plan, .. } = &begun.source
            && !run.state.looked.get()
            && !run.settings.ignores_costs
        {
            let (plan, signature) = (Rc::clone(plan), begun.signature.clone());
            let context = run.settings.context.clone();
            let statistics = statistics::stamps(run);
            let rights = run.state.asked.borrow().clone();
            let planned = Planned { version, statistics, rights, context, plan, signature };
            *prepared.planned.borrow_mut() = Some(planned);
        }
        Ok(begun)
    }

    pub(crate) fn prepared_statement(
        &self,
        key: &PreparedKey,
        store: &dyn Datastore,
    ) -> Result<Rc<Prepared>> {
        let note = key.note();
        let missing = || Error::new(4040, format!("No such prepared statement: {}", key.name));
        let full_text = store.notes().recall(&note).ok_or_else(missing)?;
        if let Some(own) =
            self.prepared.borrow().get(&note).filter(|own| own.full_text == full_text)
        {
            return Ok(Rc::clone(own));
        }
        // Another instance has prepared it.
        let prepared = Rc::new(Prepared::parse(full_text)?);
        self.keep_prepared(note, Rc::clone(&prepared));
        Ok(prepared)
    }

    fn keep_prepared(&self, note: String, prepared: Rc<Prepared>) {
        let mut all = self.prepared.borrow_mut();
        if all.len() >= PREPARED_MAX {
            all.pop_first();
        }
        all.insert(note, prepared);
    }

    /// Starts a statement.
    pub(crate) fn begin(
        &self,
        mut statement: Statement,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Begun> {
        let prepares = matches!(statement, Statement::Prepare(_));
        if run.settings.readonly && !is_readonly(&statement)
            || run.settings.keeps_nothing && prepares
        {
            return Err(read_only());
        }
        transaction::check(&statement, run)?;
        if !matches!(statement, Statement::Prepare(_)) {
            resolve(&mut statement)?;
            rights::ask(&rights::of_statement(&mut statement), run)?;
        }
        let statement = statement;
        match &statement {
            Statement::Select(select) => Ok(Begun::rows(
                Rc::new(nacre_planner::plan(select, run)?),
                signature::of_select(select),
            )),
            Statement::Insert(insert) => dml::insert(insert, run, context).map(Begun::values),
            Statement::Update(update) => dml::update(update, run, context).map(Begun::values),
            Statement::Delete(delete) => dml::delete(delete, run, context).map(Begun::values),
            Statement::Merge(merge) => dml::merge(merge, run, context).map(Begun::values),
            Statement::Explain(inner) => {
                let plan = explained(inner, run)?;
                let hints = hints::report(inner, run)?;
                let text = run_text(inner);
                let fields = [("optimizer_hints", hints), ("plan", plan), ("text", text)];
                Ok(Begun::values(vec![Value::object(fields)]))
            }
            Statement::Advise(inner) => {
                let text = run_text(inner);
                let text = text.as_str().unwrap_or_default();
                Ok(Begun::values(vec![infer::advice(inner, text, run)]))
            }
            Statement::Prepare(prepare) => self.prepare(prepare, run),
            Statement::Execute { name, using } => self.execute(name, using.as_ref(), run, context),
            Statement::Infer(infer) => {
                infer::infer(infer, run, context).map(|row| Begun::values(vec![row]))
            }
            Statement::CreateFunction(function) => {
                function::create_function(function, run)?;
                Ok(Begun::values(Vec::new()))
            }
            Statement::DropFunction { path, if_exists } => {
                function::drop_function(path, *if_exists, run)?;
                Ok(Begun::values(Vec::new()))
            }
            Statement::ExecuteFunction { path, args } => {
                let args = args
                    .iter()
                    .map(|arg| eval(arg, &Env::new(), context))
                    .collect::<Result<_>>()?;
                run.state.executes.set(true);
                let value = nacre_sql::Host::call(run, &path.parts, args, context)?;
                Ok(Begun::values(vec![value]))
            }
            Statement::ExplainFunction(path) => {
                function::explain_function(path, run).map(|row| Begun::values(vec![row]))
            }
            Statement::Admin(statement) => {
                administer::administer(statement, run, context)?;
                Ok(Begun::values(Vec::new()))
            }
            Statement::BuildIndex { keyspace, names } => {
                let names = index_names(names, context)?;
                let names = vectors::without_vectors(names, keyspace, run)?;
                if !names.is_empty() {
                    let built = Statement::BuildIndex { keyspace: keyspace.clone(), names };
                    run.store.define(&built, run.settings.context.as_ref())?;
                }
                Ok(Begun::values(Vec::new()))
            }
            _ => {
                if let Statement::CreateIndex(create) = &statement {
                    options::check_index(create)?;
                }
                if !vectors::define(&statement, run)? {
                    run.store.define(&statement, run.settings.context.as_ref())?;
                }
                Ok(Begun::values(Vec::new()))
            }
        }
    }

    fn prepare(&self, prepare: &nacre_sql::ast::Prepare, run: &Run<'_>) -> Result<Begun> {
        let made =
            || Name::from(format!("{:016x}{:016x}", run.platform.random(), run.platform.random()));
        let name = prepare.name.clone().unwrap_or_else(made);
        // A query that cannot be planned is refused now rather than when it is executed.
        let mut checked = prepare.statement.clone();
        resolve(&mut checked)?;
        let (operator, signature) = match &checked {
            Statement::Select(select) => (
                explain::explain(&nacre_planner::plan(select, run)?.root),
                signature::of_select(select),
            ),
            // The plan of a data change is shown only if it can be made now, because its keyspace may be created later.
            other => (explained(other, run).unwrap_or_default(), Value::Null),
        };
        let key = PreparedKey::of(&name, run);
        let known = self.prepared_statement(&key, run.store).ok();
        if known.is_some_and(|known| known.text != prepare.text && !prepare.force) {
            return Err(Error::new(4090, format!("Unable to add name: duplicate name: {name}")));
        }
        run.store.notes().note(&key.note(), Some(&prepare.full_text));
        prepared_use::begin(&key, run);
        let row = Value::object(
            prepared_use::fields(&key)
                .into_iter()
                .chain([
                    ("operator", operator),
                    ("signature", signature),
                    ("text", prepare.full_text.as_str().into()),
                ])
                .collect::<Vec<_>>(),
        );
        let mut begun = Begun::values(vec![row]);
        begun.prepared = Some(name);
        Ok(begun)
    }

    fn execute(
        &self,
        name: &Expr,
        using: Option<&Expr>,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Begun> {
        let Expr::Literal(Value::String(name)) = name else {
            return Err(Error::new(4040, format!("No such prepared statement: {name}")));
        };
        let key = PreparedKey::of(name, run);
        let statement = self.prepared_statement(&key, run.store)?.statement.clone();
        *run.state.prepared.borrow_mut() = Some(key);
        let Some(using) = using else { return self.begin(statement, run, context) };
        let mut settings = run.settings.clone();
        match eval(using, &Env::new(), context)? {
            Value::Array(args) => settings.positional = args.to_vec(),
            Value::Object(args) => {
                settings.named = args
                    .iter()
                    .map(|(name, value)| (name.trim_start_matches('$').into(), value.clone()))
                    .collect();
            }
            other => {
                return Err(Error::execution(format!(
                    "USING needs an array or an object and not {other}"
                )));
            }
        }
        // The parameters are not those of the request, so all rows are produced here.
        let inner = Run { settings: &settings, ..*run };
        let context = inner.context();
        let mut begun = self.begin(statement, &inner, &context)?;
        let values = all_rows(&mut begun, &inner, &context)?;
        begun.source = Source::Values(values.into_iter());
        Ok(begun)
    }

    /// Returns all rows of a statement within another one.
    pub(crate) fn rows_of(
        &self,
        statement: Statement,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Vec<Value>> {
        let mut begun = self.begin(statement, run, context)?;
        all_rows(&mut begun, run, context)
    }
}

impl Source {
    /// Returns the next rows, if they are documents that are passed on unread; otherwise `None`, and the caller requests the
    /// next row.
    pub fn next_pass_through(
        &mut self,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Option<PassThrough>> {
        match self {
            Source::Rows { root, .. } => root.next_pass_through(usize::MAX, run, context),
            Source::Values(_) => Ok(None),
        }
    }

    /// Returns the next row.
    pub fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Content>> {
        match self {
            Source::Rows { root, .. } => root.next_content(run, context),
            Source::Values(values) => Ok(values.next().map(Content::Value)),
        }
    }
}

fn all_rows(begun: &mut Begun, run: &Run<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    while let Some(content) = begun.source.next(run, context)? {
        run.charge(content.value().size_bytes())?;
        values.push(content.value().clone());
    }
    if let Source::Rows { plan, .. } = &begun.source {
        run.keep(plan.root.clone());
    }
    Ok(values)
}

/// Returns the names of BUILD INDEX; expressions may return single names or arrays of names.
pub(crate) fn index_names(names: &[Expr], context: &Context<'_>) -> Result<Vec<Expr>> {
    let mut found = Vec::new();
    for name in names {
        match eval(name, &Env::new(), context)? {
            Value::Array(names) => found.extend(names.iter().cloned().map(Expr::Literal)),
            name => found.push(Expr::Literal(name)),
        }
    }
    match found.iter().find(|name| !matches!(name, Expr::Literal(Value::String(_)))) {
        Some(other) => Err(Error::execution(format!("{other} is not the name of an index"))),
        None => Ok(found),
    }
}

/// Returns the refusal of a statement that writes.
pub(crate) fn read_only() -> Error {
    let message = "The server or request is read-only and cannot accept this write statement.";
    Error::new(1000, message)
}

fn is_readonly(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Select(_)
            | Statement::Explain(_)
            | Statement::Advise(_)
            | Statement::Prepare(_)
            | Statement::Infer(_)
            | Statement::Execute { .. }
            | Statement::ExecuteFunction { .. }
            | Statement::ExplainFunction(_)
    )
}

fn run_text(statement: &Statement) -> Value {
    match statement {
        Statement::Select(select) => select.to_string().into(),
        _ => Value::Missing,
    }
}

fn explained(statement: &Statement, run: &Run<'_>) -> Result<Value> {
    let of_target =
        |target: &FromTerm, condition: Option<&Expr>, page: Page, mut steps: Vec<Value>, verb| {
            if let Origin::Keyspace(path) = &target.source {
                let (keyspace, more) = (run.keyspace(path)?, explain::page_fields(&page));
                steps.push(explain::send_step(verb, &target.alias, &keyspace, more));
            }
            let node = dml::plan_targets(target, condition, page, run)?;
            Ok(explain::with_steps(&node, steps))
        };
    match statement {
        Statement::Select(select) => Ok(explain::explain(&nacre_planner::plan(select, run)?.root)),
        Statement::Update(update) => {
            let page = Page { limit: update.limit.clone(), offset: update.offset.clone() };
            let steps = explain::change_steps(&update.changes);
            of_target(&update.target, update.condition.as_ref(), page, steps, "SendUpdate")
        }
        Statement::Delete(delete) => {
            let page = Page { limit: delete.limit.clone(), offset: delete.offset.clone() };
            of_target(&delete.target, delete.condition.as_ref(), page, Vec::new(), "SendDelete")
        }
        Statement::Merge(merge) => {
            let node = nacre_planner::plan_merge(merge, run)?;
            let step = match &merge.target.source {
                Origin::Keyspace(path) => {
                    let keyspace = run.keyspace(path)?;
                    explain::send_step("Merge", &merge.target.alias, &keyspace, Vec::new())
                }
                Origin::Expr(_) => Value::object([("#operator", Value::from("Merge"))]),
            };
            Ok(explain::with_steps(&node, vec![step]))
        }
        Statement::Insert(insert) => {
            let keyspace = run.keyspace(&insert.keyspace)?;
            let source = match &insert.source {
                InsertSource::Select(_, select) => Some(nacre_planner::plan(select, run)?),
                InsertSource::Values(_) => None,
            };
            let source = source.as_ref().map(|plan| &*plan.root);
            Ok(explain::insert_steps(insert, &keyspace, source))
        }
        other => Ok(Value::object([("#operator", Value::from(statement_name(other)))])),
    }
}

pub(crate) fn statement_name(statement: &Statement) -> &'static str {
    match statement {
        Statement::CreateIndex(create) if create.primary => "CreatePrimaryIndex",
        Statement::CreateIndex(_) => "CreateIndex",
        Statement::DropIndex { .. } => "DropIndex",
        Statement::BuildIndex { .. } => "BuildIndexes",
        Statement::AlterIndex { .. } => "AlterIndex",
        Statement::CreateScope { .. } => "CreateScope",
        Statement::DropScope { .. } => "DropScope",
        Statement::CreateCollection { .. } => "CreateCollection",
        Statement::DropCollection { .. } => "DropCollection",
        Statement::CreateFunction(_) => "CreateFunction",
        Statement::DropFunction { .. } => "DropFunction",
        Statement::ExecuteFunction { .. } => "ExecuteFunction",
        Statement::ExplainFunction(_) => "ExplainFunction",
        Statement::Infer(_) => "InferKeyspace",
        Statement::Admin(_) => "Administer",
        _ => "Statement",
    }
}
