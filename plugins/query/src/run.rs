//! A running request: gives expressions access to subqueries, time, memory and the store.

use crate::exec;
use crate::exec::staged::Changed;
use crate::function::UserFunction;
use crate::prepared_key::PreparedKey;
use crate::rights::{self, Asked};
use crate::search;
use crate::service::Service;
use crate::service_functions;
use crate::statistics;
use crate::watch;
use nacre_cost::Table;
use nacre_datastore::{Consistency, Datastore, Keyspace, Platform};
use nacre_planner::{Node, PlanContext, SelectPlan};
use nacre_sql::ast::{Expr, Path, Select};
use nacre_sql::index::Definition;
use nacre_sql::{
    Caches, Context, Env, Error, Host, MEMORY, Name, Result, Searched, Value, parse_path,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum nesting of calls between queries and functions. The parser allows 16 nested queries.
const CALLS_MAX: usize = 24;

/// Number of rows between two checks whether the request may continue.
const TICKS: u32 = 64;

/// The settings of a request.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `$1`, ….
    pub positional: Vec<Value>,
    /// `$name`.
    pub named: BTreeMap<Name, Value>,
    /// The query context, in which single names of keyspaces are resolved.
    pub context: Option<Path>,
    /// True to refuse statements that change anything.
    pub readonly: bool,
    /// True to refuse statements that keep something for later requests: PREPARE, and those of transactions.
    pub keeps_nothing: bool,
    /// Maximum memory of sorts, groups and similar operators in bytes; 0 for no limit.
    pub memory_quota: usize,
    /// The consistency of reads.
    pub consistency: Consistency,
    /// The start of the statement in milliseconds since 1970.
    pub statement_ms: i64,
    /// True to keep the expiry of documents that are written.
    pub preserve_expiry: bool,
    /// True to plan by rules, even if there are statistics.
    pub ignores_costs: bool,
    /// True to use search indexes where `USE INDEX (USING FTS)` would.
    pub uses_search: bool,
}

/// The statistics of a keyspace with their stamp, if there are any.
pub(crate) type Described = (Option<String>, Option<Rc<Table>>);

/// The state of a request.
#[derive(Default)]
pub(crate) struct State {
    /// The ID of the request; empty if it cannot be stopped.
    pub id: String,
    caches: Caches,
    memory: Cell<usize>,
    calls: Cell<usize>,
    ticks: Cell<u32>,
    /// Plans of subqueries, by their address; the enclosing tree outlives the request.
    plans: RefCell<BTreeMap<usize, Rc<SelectPlan>>>,
    /// Results of subqueries that depend on no row.
    results: RefCell<BTreeMap<usize, Vec<Value>>>,
    /// Plans with evaluated expressions; they are kept alive so that their addresses are not reused.
    kept: RefCell<Vec<Rc<Node>>>,
    functions: RefCell<BTreeMap<String, Rc<UserFunction>>>,
    /// The statistics that plans depend on, with their stamps, by the keys of their notes.
    pub described: RefCell<BTreeMap<String, Described>>,
    /// The user's rights that have been checked.
    pub asked: RefCell<Asked>,
    /// True if a plan depends on the values of parameters.
    pub looked: Cell<bool>,
    /// True if the statement is EXECUTE FUNCTION, which allows functions to change data.
    pub executes: Cell<bool>,
    /// True if the statement sees the changes of a transaction.
    pub in_transaction: Cell<bool>,
    /// These changes, by index.
    pub changed: RefCell<BTreeMap<u64, Rc<Changed>>>,
    /// The prepared statement being executed.
    pub prepared: RefCell<Option<PreparedKey>>,
    pub mutation_count: Cell<u64>,
    pub sort_count: Cell<u64>,
    /// Microseconds spent on parsing, and on planning including all work before the first row.
    pub parse_us: Cell<i64>,
    pub plan_us: Cell<i64>,
}

impl State {
    /// Creates the state of a request with that ID.
    pub fn of(id: String) -> State {
        State { id, ..State::default() }
    }
}

/// A running request.
pub(crate) struct Run<'a> {
    pub store: &'a dyn Datastore,
    pub platform: &'a dyn Platform,
    pub service: &'a Service,
    pub settings: &'a Settings,
    pub state: &'a State,
}

impl<'a> Run<'a> {
    pub fn context(&'a self) -> Context<'a> {
        Context {
            host: self,
            positional: &self.settings.positional,
            named: &self.settings.named,
            statement_ms: self.settings.statement_ms,
            caches: &self.state.caches,
        }
    }

    pub fn keyspace(&self, path: &Path) -> Result<Keyspace> {
        let context = self.settings.context.as_ref();
        let keyspace = match path.parameter() {
            Some(parameter) => Keyspace::of(&self.path_of(&parameter)?, context)?,
            None => Keyspace::of(path, context)?,
        };
        self.store.check(&keyspace)?;
        Ok(keyspace)
    }

    /// Returns the path of the keyspace that a parameter names. Plans that use it are valid only for this
    /// request.
    fn path_of(&self, parameter: &Expr) -> Result<Path> {
        let value = nacre_planner::literal(parameter, self);
        let none = || Error::execution(format!("No value for parameter {parameter}"));
        let value = value.ok_or_else(none)?;
        let path = value.as_str().and_then(|text| parse_path(text).ok());
        path.ok_or_else(|| Error::new(5010, format!("{parameter} names no keyspace: {value}")))
    }

    /// Charges memory that is kept until the request, or the subquery, ends.
    pub fn charge(&self, bytes: usize) -> Result<()> {
        let memory = self.state.memory.get() + bytes;
        self.state.memory.set(memory);
        let quota = self.settings.memory_quota;
        if quota > 0 && memory > quota {
            return Err(Error::new(
                MEMORY,
                format!("Request has exceeded its memory quota of {quota} bytes"),
            ));
        }
        Ok(())
    }

    /// Returns the memory charged now.
    pub fn charged(&self) -> usize {
        self.state.memory.get()
    }

    /// Returns memory of data that is no longer kept.
    pub fn give_back(&self, bytes: usize) {
        self.state.memory.set(self.state.memory.get().saturating_sub(bytes));
    }

    /// Keeps a plan alive until the request ends, because cached results of its subqueries are found by their
    /// address.
    pub fn keep(&self, node: Rc<Node>) {
        self.state.kept.borrow_mut().push(node);
    }

    /// Returns a function, the same for the whole request.
    fn function(&self, path: &[Name]) -> Result<Rc<UserFunction>> {
        let name = path.join(".");
        if let Some(function) = self.state.functions.borrow().get(&name) {
            return Ok(function.clone());
        }
        let function = {
            let context = self.settings.context.as_ref();
            self.service.functions.get(path, context, self.store)?
        };
        rights::ask(&function.needs, self)?;
        self.state.functions.borrow_mut().insert(name, function.clone());
        Ok(function)
    }

    pub fn nested<T>(&self, inner: impl FnOnce() -> Result<T>) -> Result<T> {
        let calls = self.state.calls.get();
        if calls >= CALLS_MAX {
            return Err(Error::execution("queries and functions are nested too deeply"));
        }
        let memory = self.state.memory.get();
        self.state.calls.set(calls + 1);
        let result = inner();
        self.state.calls.set(calls);
        self.state.memory.set(memory);
        result
    }

    fn subquery_plan(&self, select: &Select) -> Result<Rc<SelectPlan>> {
        let address = std::ptr::from_ref(select) as usize;
        if let Some(plan) = self.state.plans.borrow().get(&address) {
            return Ok(plan.clone());
        }
        let plan = Rc::new(nacre_planner::plan(select, self)?);
        self.state.plans.borrow_mut().insert(address, plan.clone());
        Ok(plan)
    }
}

impl PlanContext for Run<'_> {
    fn keyspace(&self, path: &Path) -> Result<Keyspace> {
        Run::keyspace(self, path)
    }

    fn indexes(&self, keyspace: &Keyspace) -> Result<Vec<(u64, Rc<Definition>)>> {
        let ready = self.store.indexes(keyspace)?.into_iter().filter(|index| index.online);
        ready.map(|index| Ok((index.id, self.service.definition(&index.definition)?))).collect()
    }

    fn statistics(&self, keyspace: &Keyspace) -> Option<Rc<Table>> {
        statistics::table(keyspace, self)
    }

    fn search_index(
        &self,
        keyspace: &Keyspace,
        field: Option<String>,
        options: Value,
    ) -> Result<Option<Name>> {
        search::find(keyspace, field, options, self)
    }

    fn uses_search(&self) -> bool {
        self.settings.uses_search
    }

    fn flexible_index(
        &self,
        keyspace: &Keyspace,
        predicate: Value,
        names: &[Name],
    ) -> Option<(Name, Value)> {
        self.state.looked.set(true);
        // A search index does not see the changes of the transaction.
        let is_possible = !self.state.in_transaction.get();
        is_possible.then(|| search::find_flexible(keyspace, predicate, names, self)).flatten()
    }

    fn positional(&self, position: usize) -> Option<Value> {
        self.state.looked.set(true);
        self.settings.positional.get(position - 1).cloned()
    }

    fn named(&self, name: &Name) -> Option<Value> {
        self.state.looked.set(true);
        self.settings.named.get(name).cloned()
    }
}

impl Host for Run<'_> {
    fn subquery(
        &self,
        select: &Select,
        env: &Env,
        limit: usize,
        context: &Context<'_>,
    ) -> Result<Vec<Value>> {
        let address = std::ptr::from_ref(select) as usize;
        if let Some(rows) = self.state.results.borrow().get(&address) {
            return Ok(rows.clone());
        }
        let plan = self.subquery_plan(select)?;
        let rows = self.nested(|| {
            let mut root = exec::build(&plan.root, env);
            let mut rows = Vec::new();
            while rows.len() < limit
                && let Some(row) = root.next(self, context)?
            {
                let value = exec::result_of(&row);
                self.charge(value.size_bytes())?;
                rows.push(value);
            }
            Ok(rows)
        })?;
        if plan.alone {
            self.charge(rows.iter().map(Value::size_bytes).sum())?;
            self.state.results.borrow_mut().insert(address, rows.clone());
        }
        Ok(rows)
    }

    fn call(&self, path: &[Name], args: Vec<Value>, context: &Context<'_>) -> Result<Value> {
        let function = self.function(path)?;
        let count = function.definition.parameters.as_ref().map_or(args.len(), Vec::len);
        if count != args.len() {
            let message = format!(
                "Incorrect number of arguments supplied to function '{}': {} instead of {count}",
                path.join("."),
                args.len(),
            );
            return Err(Error::new(10104, message));
        }
        function.call(args, self, context)
    }

    fn service_function(&self, name: &str, args: &[Value], _: &Context<'_>) -> Result<Value> {
        service_functions::call(name, args, self)
    }

    fn search(&self, searched: &Searched<'_>) -> Result<Option<Value>> {
        search::evaluate(searched, self)
    }

    fn now_ms(&self) -> i64 {
        self.platform.now_ms()
    }

    fn random(&self) -> u64 {
        self.platform.random()
    }

    fn tick(&self) -> Result<()> {
        let ticks = self.state.ticks.get().wrapping_add(1);
        self.state.ticks.set(ticks);
        if !ticks.is_multiple_of(TICKS) {
            return Ok(());
        }
        self.platform.check()?;
        watch::check(&self.state.id, self.store)
    }
}
