//! The service: what statements do, and what outlives a request (prepared statements and functions).

use crate::datastore::{Datastore, Keyspace, Platform, UserFunction};
use crate::exec::{self, Rows};
use crate::plan::SelectPlan;
use crate::request::Request;
use crate::resolve::resolve;
use crate::response::Response;
use crate::run::Run;
use crate::{dml, explain, infer, planner};
use nacre_sql::ast::{Body, CreateFunction, Expr, FromTerm, Path, Projection, Select, Statement};
use nacre_sql::{Context, Env, Error, Name, Result, Value, each_child, eval, parse};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::vec::IntoIter;

/// What the keys of notes begin with.
const PREPARED: &str = "prepared/";
const FUNCTION: &str = "function/";

/// How many statements are kept prepared; the first by name makes room.
const PREPARED_MAX: usize = 16_384;

/// How deep the body of a function may nest, as functions call each other and each call takes its stack anew.
const FUNCTION_HEIGHT_MAX: usize = 30;

/// A statement under a name.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub text: String,
    pub statement: Statement,
}

/// What is shared by all requests.
#[derive(Default)]
pub struct Service {
    prepared: RefCell<BTreeMap<Name, Rc<Prepared>>>,
    functions: RefCell<BTreeMap<String, Rc<UserFunction>>>,
}

/// Where the rows of a statement come from.
pub(crate) enum Source {
    Rows { root: Rows, _plan: Rc<SelectPlan> },
    Values(IntoIter<Value>),
}

/// A statement that has begun.
pub(crate) struct Begun {
    pub source: Source,
    pub signature: Value,
    /// The name of the statement that was prepared.
    pub prepared: Option<Name>,
}

impl Begun {
    fn values(values: Vec<Value>) -> Begun {
        Begun { source: Source::Values(values.into_iter()), signature: Value::Null, prepared: None }
    }
}

impl Service {
    /// A service that knows nothing yet.
    pub fn new() -> Service {
        Service::default()
    }

    /// Begins a request. Whatever goes wrong is told in the response.
    pub fn start(
        &self,
        request: Request,
        store: &dyn Datastore,
        platform: &dyn Platform,
    ) -> Response {
        Response::new(self, request, store, platform)
    }

    /// The statement of a request, parsed.
    pub(crate) fn statement(&self, request: &Request, store: &dyn Datastore) -> Result<Statement> {
        match (&request.prepared, &request.statement) {
            (Some(name), _) => Ok(self.prepared_statement(name, store)?.statement.clone()),
            (None, Some(text)) => parse(text),
            (None, None) => Err(Error::new(1050, "No statement or prepared value")),
        }
    }

    fn prepared_statement(&self, name: &str, store: &dyn Datastore) -> Result<Rc<Prepared>> {
        let own = self.prepared.borrow().get(name).cloned();
        let noted = store.notes().map(|notes| notes.recall(&format!("{PREPARED}{name}")));
        match (own, noted) {
            (Some(own), None) => Ok(own),
            (Some(own), Some(Some(text))) if own.text == text => Ok(own),
            // Another instance has prepared it.
            (_, Some(Some(text))) => {
                let prepared = Rc::new(Prepared { statement: parse(&text)?, text });
                self.prepared.borrow_mut().insert(name.into(), Rc::clone(&prepared));
                Ok(prepared)
            }
            _ => Err(Error::new(4040, format!("No such prepared statement: {name}"))),
        }
    }

    /// All that is prepared, by name.
    fn all_prepared(&self, store: &dyn Datastore) -> Result<Vec<(Name, Rc<Prepared>)>> {
        let own = || self.prepared.borrow().keys().cloned().collect();
        let names: Vec<Name> = store.notes().map_or_else(own, |notes| {
            let keys = notes.keys(PREPARED).into_iter();
            keys.map(|key| key[PREPARED.len()..].into()).collect()
        });
        let named = |name: Name| Ok((name.clone(), self.prepared_statement(&name, store)?));
        names.into_iter().map(named).collect()
    }

    /// The function of a path, which may leave away what the query context says.
    pub(crate) fn function(
        &self,
        path: &[Name],
        context: Option<&Path>,
        store: &dyn Datastore,
    ) -> Result<Rc<UserFunction>> {
        let found = self.known_function(&function_key(path, context), store)?;
        found.ok_or_else(|| Error::new(10101, format!("Function not found: {}", path.join("."))))
    }

    /// The function of a key, whichever instance has made it.
    fn known_function(&self, key: &str, store: &dyn Datastore) -> Result<Option<Rc<UserFunction>>> {
        let own = self.functions.borrow().get(key).cloned();
        let Some(notes) = store.notes() else { return Ok(own) };
        let Some(text) = notes.recall(&format!("{FUNCTION}{key}")) else { return Ok(None) };
        if let Some(own) = own.filter(|own| statement_of(&own.definition) == text) {
            return Ok(Some(own));
        }
        let Statement::CreateFunction(definition) = parse(&text)? else { return Ok(None) };
        let function = Rc::new(UserFunction { definition: *definition });
        self.functions.borrow_mut().insert(key.to_owned(), Rc::clone(&function));
        Ok(Some(function))
    }

    /// All functions, by key.
    fn all_functions(&self, store: &dyn Datastore) -> Result<Vec<(String, Rc<UserFunction>)>> {
        let own = || self.functions.borrow().keys().cloned().collect();
        let keys: Vec<String> = store.notes().map_or_else(own, |notes| {
            let keys = notes.keys(FUNCTION).into_iter();
            keys.map(|key| key[FUNCTION.len()..].to_owned()).collect()
        });
        let mut found = Vec::new();
        for key in keys {
            found.extend(self.known_function(&key, store)?.map(|function| (key, function)));
        }
        Ok(found)
    }

    /// The rows of a catalog.
    pub(crate) fn catalog(&self, name: &str, run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
        let dual = || (Name::from("dual"), Value::Null);
        Ok(match name {
            "dual" => vec![dual()],
            "prepareds" => {
                let row = |(name, prepared): (Name, Rc<Prepared>)| {
                    let fields = [
                        ("name", Value::from(name.clone())),
                        ("statement", prepared.text.as_str().into()),
                    ];
                    (name.clone(), Value::object(fields))
                };
                self.all_prepared(run.store)?.into_iter().map(row).collect()
            }
            "functions" => self
                .all_functions(run.store)?
                .into_iter()
                .map(|(key, function)| (key.as_str().into(), function_row(&key, &function)))
                .collect(),
            _ => run.store.catalog(name)?.ok_or_else(|| {
                Error::new(12003, format!("Keyspace not found in CB datastore: system:{name}"))
            })?,
        })
    }

    /// Begins a statement.
    pub(crate) fn begin(
        &self,
        mut statement: Statement,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Begun> {
        if run.settings.readonly && !is_readonly(&statement) {
            let message =
                "The server or request is read-only and cannot accept this write statement.";
            return Err(Error::new(1000, message));
        }
        if !matches!(statement, Statement::Prepare(_)) {
            resolve(&mut statement)?;
        }
        let statement = statement;
        match &statement {
            Statement::Select(select) => {
                let plan = Rc::new(planner::plan(select, run)?);
                let root = exec::build(&plan.root, &Env::new());
                let signature = signature(select);
                Ok(Begun { source: Source::Rows { root, _plan: plan }, signature, prepared: None })
            }
            Statement::Insert(insert) => dml::insert(insert, run, context).map(Begun::values),
            Statement::Update(update) => dml::update(update, run, context).map(Begun::values),
            Statement::Delete(delete) => dml::delete(delete, run, context).map(Begun::values),
            Statement::Merge(merge) => dml::merge(merge, run, context).map(Begun::values),
            Statement::Explain(inner) => {
                let plan = explained(inner, run)?;
                let text = run_text(inner);
                Ok(Begun::values(vec![Value::object([("plan", plan), ("text", text)])]))
            }
            Statement::Advise(inner) => Ok(Begun::values(vec![infer::advise(inner)])),
            Statement::Prepare(prepare) => self.prepare(prepare, run),
            Statement::Execute { name, using } => self.execute(name, using.as_ref(), run, context),
            Statement::Infer(target) => {
                infer::infer(target, run).map(|row| Begun::values(vec![row]))
            }
            Statement::CreateFunction(function) => {
                self.create_function(function, run)?;
                Ok(Begun::values(Vec::new()))
            }
            Statement::DropFunction { path, if_exists } => {
                let key = function_key(&path.parts, run.settings.context.as_ref());
                let known = self.known_function(&key, run.store)?;
                self.functions.borrow_mut().remove(&key);
                if let Some(notes) = run.store.notes() {
                    notes.note(&format!("{FUNCTION}{key}"), None);
                }
                if known.is_none() && !if_exists {
                    return Err(Error::new(10101, format!("Function not found: {path}")));
                }
                Ok(Begun::values(Vec::new()))
            }
            Statement::ExecuteFunction { path, args } => {
                let args = args
                    .iter()
                    .map(|arg| eval(arg, &Env::new(), context))
                    .collect::<Result<_>>()?;
                let value = nacre_sql::Host::call(run, &path.parts, args, context)?;
                Ok(Begun::values(vec![value]))
            }
            Statement::BuildIndex { keyspace, names } => {
                let names = index_names(names, context)?;
                let built = Statement::BuildIndex { keyspace: keyspace.clone(), names };
                run.store.define(&built, run.settings.context.as_ref())?;
                Ok(Begun::values(Vec::new()))
            }
            _ => {
                run.store.define(&statement, run.settings.context.as_ref())?;
                Ok(Begun::values(Vec::new()))
            }
        }
    }

    fn prepare(&self, prepare: &nacre_sql::ast::Prepare, run: &Run<'_>) -> Result<Begun> {
        let made =
            || Name::from(format!("{:016x}{:016x}", run.platform.random(), run.platform.random()));
        let name = prepare.name.clone().unwrap_or_else(made);
        // What cannot be planned is refused now rather than when it is executed.
        let mut checked = prepare.statement.clone();
        resolve(&mut checked)?;
        if let Statement::Select(select) = &checked {
            planner::plan(select, run)?;
        }
        let known = self.prepared_statement(&name, run.store).ok();
        let mut all = self.prepared.borrow_mut();
        match known {
            Some(known) if known.text != prepare.text && !prepare.force => {
                return Err(Error::new(
                    4090,
                    format!("Unable to add name: duplicate name: {name}"),
                ));
            }
            None if all.len() >= PREPARED_MAX => {
                all.pop_first();
            }
            _ => {}
        }
        let prepared =
            Prepared { text: prepare.text.clone(), statement: prepare.statement.clone() };
        if let Some(notes) = run.store.notes() {
            notes.note(&format!("{PREPARED}{name}"), Some(&prepared.text));
        }
        all.insert(name.clone(), Rc::new(prepared));
        let row = Value::object([
            ("encoded_plan", Value::from("")),
            ("name", name.clone().into()),
            ("text", prepare.text.as_str().into()),
        ]);
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
        let statement = self.prepared_statement(name, run.store)?.statement.clone();
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
        // These parameters are not the request's, so all rows are made here.
        let inner = Run { settings: &settings, ..*run };
        let context = inner.context();
        let mut begun = self.begin(statement, &inner, &context)?;
        let mut values = Vec::new();
        while let Some(value) = begun.source.next(&inner, &context)? {
            inner.charge(value.size_bytes())?;
            values.push(value);
        }
        if let Source::Rows { _plan: plan, .. } = &begun.source {
            run.keep(plan.root.clone());
        }
        begun.source = Source::Values(values.into_iter());
        Ok(begun)
    }

    fn create_function(&self, function: &CreateFunction, run: &Run<'_>) -> Result<()> {
        if height(&function.body) > FUNCTION_HEIGHT_MAX {
            return Err(Error::new(
                3000,
                format!("The body of function {} nests too deeply.", function.path),
            ));
        }
        let key = function_key(&function.path.parts, run.settings.context.as_ref());
        let known = self.known_function(&key, run.store)?;
        if known.is_some() && !function.replace {
            if function.if_not_exists {
                return Ok(());
            }
            return Err(Error::new(10102, format!("Function already exists: {}", function.path)));
        }
        if let Some(notes) = run.store.notes() {
            notes.note(&format!("{FUNCTION}{key}"), Some(&statement_of(function)));
        }
        let function = Rc::new(UserFunction { definition: function.clone() });
        self.functions.borrow_mut().insert(key, function);
        Ok(())
    }
}

/// How many expressions are in each other.
fn height(expr: &Expr) -> usize {
    let mut below = 0;
    let walked = each_child(&mut expr.clone(), &mut |child| {
        below = below.max(height(child));
        Ok(())
    });
    debug_assert!(walked.is_ok(), "measuring refuses nothing");
    below + 1
}

impl Source {
    /// The next row.
    pub fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Value>> {
        match self {
            Source::Rows { root, .. } => {
                Ok(root.next(run, context)?.map(|row| exec::result_of(&row)))
            }
            Source::Values(values) => Ok(values.next()),
        }
    }
}

/// Functions with a lone name belong to the scope of the query context, if there is one.
fn function_key(path: &[Name], context: Option<&Path>) -> String {
    match (path, context.map(|context| &context.parts[..])) {
        ([name], Some([bucket, scope])) => format!("{bucket}.{scope}.{name}"),
        _ => path.join("."),
    }
}

/// The statement that makes a function, for instances that have not seen it.
fn statement_of(function: &CreateFunction) -> String {
    let parameters = match &function.parameters {
        None => "...".to_owned(),
        Some(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let CreateFunction { path, text, .. } = function;
    format!("CREATE OR REPLACE FUNCTION {path}({parameters}) {{ {text} }}")
}

fn function_row(key: &str, function: &UserFunction) -> Value {
    let parameters = function.definition.parameters.as_ref().map_or(Value::Null, |names| {
        Value::array(names.iter().map(|name| name.clone().into()).collect())
    });
    let definition = Value::object([
        ("#language", Value::from("inline")),
        ("parameters", parameters),
        ("text", function.definition.text.as_str().into()),
    ]);
    let identity = Value::object([("name", key)].map(|(name, value)| (name, Value::from(value))));
    Value::object([("definition", definition), ("identity", identity)])
}

/// The names of BUILD INDEX, which expressions may give alone or as arrays.
fn index_names(names: &[Expr], context: &Context<'_>) -> Result<Vec<Expr>> {
    let mut found = Vec::new();
    for name in names {
        match eval(name, &Env::new(), context)? {
            Value::Array(names) => found.extend(names.iter().cloned().map(Expr::Literal)),
            name => found.push(Expr::Literal(name)),
        }
    }
    match found.iter().find(|name| !matches!(name, Expr::Literal(Value::String(_)))) {
        Some(other) => Err(Error::execution(format!("{other} is no name of an index"))),
        None => Ok(found),
    }
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
    )
}

/// The kinds of the fields of a row, which are not known before they are there.
fn signature(select: &Select) -> Value {
    let projection = match &select.body {
        Body::Block(block) => &block.projection,
        _ => return "json".into(),
    };
    match projection {
        Projection::Raw(..) => "json".into(),
        Projection::Terms(..) => {
            Value::object(projection.names().into_iter().map(|name| match name {
                Some(name) => (name, Value::from("json")),
                None => ("*".into(), "*".into()),
            }))
        }
    }
}

fn run_text(statement: &Statement) -> Value {
    match statement {
        Statement::Select(select) => select.to_string().into(),
        _ => Value::Missing,
    }
}

fn explained(statement: &Statement, run: &Run<'_>) -> Result<Value> {
    let of_target = |target: &FromTerm, condition: Option<&Expr>, verb: &str| -> Result<Value> {
        let known = planner::conjuncts(condition);
        let scan = planner::plan_term(target, &known, std::slice::from_ref(&target.alias), run)?;
        let mut node = Rc::new(crate::plan::Node::Scan(scan));
        if let Some(condition) = condition {
            node = Rc::new(crate::plan::Node::Filter(node, condition.clone()));
        }
        Ok(explain::with_step(&node, verb))
    };
    match statement {
        Statement::Select(select) => Ok(explain::explain(&planner::plan(select, run)?.root)),
        Statement::Update(update) => {
            of_target(&update.target, update.condition.as_ref(), "SendUpdate")
        }
        Statement::Delete(delete) => {
            of_target(&delete.target, delete.condition.as_ref(), "SendDelete")
        }
        Statement::Merge(merge) => {
            Ok(explain::with_step(&*planner::plan_merge(merge, run)?, "Merge"))
        }
        Statement::Insert(insert) => {
            run.keyspace(&insert.keyspace)?;
            let verb = if insert.upsert { "SendUpsert" } else { "SendInsert" };
            Ok(explain::with_step(&crate::plan::Node::Dummy, verb))
        }
        other => Ok(Value::object([("#operator", Value::from(statement_name(other)))])),
    }
}

fn statement_name(statement: &Statement) -> &'static str {
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
        Statement::Infer(_) => "InferKeyspace",
        _ => "Statement",
    }
}

/// A keyspace by the path that stands in FROM.
pub(crate) fn keyspace_of(target: &FromTerm, run: &Run<'_>) -> Result<Keyspace> {
    match &target.source {
        nacre_sql::ast::Source::Keyspace(path) => run.keyspace(path),
        nacre_sql::ast::Source::Expr(expr) => {
            Err(Error::new(3000, format!("{expr} is no keyspace")))
        }
    }
}
