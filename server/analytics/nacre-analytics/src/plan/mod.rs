//! Queries over columns: translates SQL++ to plans of the engine.
//!
//! ```text
//! Select ─ parameters ─► Block ─► inputs, conditions, groups, order ─► LogicalPlan ─► batches ─► rows of JSON
//!                                   └ expr: typed columns, or evaluated row by row
//! ```
//!
//! A query without a plan is answered from rows by [`crate::rows`], and EXPLAIN returns the reason. A plan is bound to
//! the snapshots for which it was made, so the types of its columns are those of all documents, not of a sample.

mod block;
mod evaluate;
mod expr;
pub mod fragment;
mod join;
mod native;
mod output;
mod relation;
mod scope;

use crate::error::{Error, Result};
use crate::rows::{Patience, Snapshots};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use nacre_query::Settings;
use nacre_sql::ast::{Expr as Sql, OrderTerm, Select};
use nacre_sql::{
    Name, Scope as Names, Value, each_child, each_in_select, resolve_select, write_string,
};
use relation::Relation;
pub(crate) use scope::path_of;
use scope::{Input, Inputs, Leaf};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Stack size of a planning thread: planning is recursive.
const STACK_BYTES: usize = 16 << 20;
/// Maximum number of batches that wait for the client.
const BATCHES_MAX: usize = 2;
/// Interval at which a running query checks whether it must end.
const TURN: Duration = Duration::from_millis(100);

/// The reason why a query has no plan.
#[derive(Debug)]
pub enum Stop {
    /// The query is answered from rows, for this reason.
    Unsupported(String),
    /// The query is refused.
    Failed(Error),
}

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Stop {
        match error {
            DataFusionError::ResourcesExhausted(_) => Stop::Failed(error.into()),
            // The evaluator answers queries that the engine cannot plan.
            other => Stop::Unsupported(format!("the engine refuses it: {other}")),
        }
    }
}

fn unsupported<T>(reason: impl Into<String>) -> std::result::Result<T, Stop> {
    Err(Stop::Unsupported(reason.into()))
}

/// The shape of a row.
#[derive(Clone, Debug)]
enum Out {
    /// A value.
    Leaf(Leaf),
    /// An object.
    Object(Vec<(Name, Out)>),
    /// The fields of an object in JSON text, without further members.
    Fields(Leaf),
}

/// A query with a plan.
#[derive(Debug)]
pub struct Query {
    plan: LogicalPlan,
    physical: Arc<dyn ExecutionPlan>,
    out: Out,
    notes: Vec<String>,
    /// The tables that it reads.
    relations: Vec<Relation>,
}

impl Query {
    /// Returns the approximate bytes of the columns that it reads.
    pub fn bytes(&self) -> usize {
        self.relations.iter().map(Relation::bytes).sum()
    }
}

/// The way a query is answered.
#[derive(Debug)]
pub enum Outcome {
    /// Over columns.
    Columns(Box<Query>),
    /// Document by document, for this reason.
    Rows(String),
}

/// Creates plans and runs them.
pub struct Planner {
    context: SessionContext,
    memory_bytes: usize,
    /// The threads of the queries; `None` only while it is dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Planner {
    fn drop(&mut self) {
        // A cancelled query still finishes its step. Do not wait for it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Planner {
    /// Returns a planner whose queries share `memory_bytes` of memory; they spill larger data to files in `folder`.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn new(memory_bytes: usize, folder: &Path) -> Result<Planner> {
        let spills = folder.join("spills");
        std::fs::create_dir_all(&spills)
            .map_err(|error| Error::internal(format!("{}: {error}", spills.display())))?;
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(memory_bytes)))
            .with_temp_file_path(spills)
            .build_arc()?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let config = SessionConfig::new().with_target_partitions(threads);
        let context = SessionContext::new_with_config_rt(config, environment);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_stack_size(STACK_BYTES)
            .thread_name("query")
            .enable_time()
            .build()
            .map_err(Error::internal)?;
        Ok(Planner { context, memory_bytes, runtime: Some(runtime) })
    }

    fn runtime(&self) -> &tokio::runtime::Runtime {
        self.runtime.as_ref().expect("it is taken at the end alone")
    }

    /// Returns the memory limit of queries.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Plans a query whose names are resolved.
    ///
    /// # Errors
    /// The reason, if the query is refused.
    pub fn plan(
        &self,
        select: &Select,
        snapshots: &Snapshots,
        settings: &Settings,
    ) -> Result<Outcome> {
        // Recursion over the tree needs more stack than this thread may have.
        let planned = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let planning =
                thread.spawn_scoped(scope, || self.plan_here(select, snapshots, settings));
            planning.map(|thread| thread.join())
        });
        match planned {
            Ok(Ok(Ok(query))) => Ok(Outcome::Columns(Box::new(query))),
            Ok(Ok(Err(Stop::Unsupported(reason)))) => Ok(Outcome::Rows(reason)),
            Ok(Ok(Err(Stop::Failed(error)))) => Err(error),
            Ok(Err(_)) => Err(Error::internal("planning has ended early")),
            Err(error) => Err(Error::internal(error)),
        }
    }

    fn plan_here(
        &self,
        select: &Select,
        snapshots: &Snapshots,
        settings: &Settings,
    ) -> std::result::Result<Query, Stop> {
        let mut select = substituted(select, settings)?;
        resolve_select(&mut select, &Names::new()).map_err(refused)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut builder = Builder {
            snapshots,
            inputs: Inputs::default(),
            notes: Vec::new(),
            with: Vec::new(),
            order: Vec::new(),
            ids: 0,
            parts: std::thread::available_parallelism().map_or(1, usize::from),
            statement_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        };
        let planned = builder.select(&select, &scope::Scope::default())?;
        let state = self.context.state();
        let plan = state.optimize(&planned.plan)?;
        // Check here that the engine can run the plan, while the query can still be answered from rows.
        let physical =
            self.runtime().block_on(state.query_planner().create_physical_plan(&plan, &state))?;
        builder.notes.sort();
        builder.notes.dedup();
        let relations = builder.inputs.all.into_iter().filter_map(|input| match input {
            Input::Relation(relation) => Some(relation),
            Input::Plan(..) => None,
        });
        let (out, notes) = (planned.out, builder.notes);
        Ok(Query { plan, physical, out, notes, relations: relations.collect() })
    }

    /// Runs a query, and passes each row to `take` as JSON text.
    ///
    /// # Errors
    /// The errors of the query and of `take`, and the end of patience.
    pub fn run(
        &self,
        query: Box<Query>,
        patience: &Patience,
        take: &mut dyn FnMut(String) -> Result<()>,
    ) -> Result<()> {
        let (sender, batches) = sync_channel::<Result<Option<RecordBatch>>>(BATCHES_MAX);
        let task_context = self.context.task_ctx();
        let Query { physical, out, .. } = *query;
        let task = self.runtime().spawn(async move {
            let mut stream = match execute_stream(physical, task_context) {
                Ok(stream) => stream,
                Err(error) => {
                    let _ = sender.send(Err(error.into()));
                    return;
                }
            };
            while let Some(batch) = stream.next().await {
                if sender.send(batch.map(Some).map_err(Error::from)).is_err() {
                    return;
                }
            }
            let _ = sender.send(Ok(None));
        });
        let mut take_batch = |batch: &RecordBatch| {
            patience.check()?;
            output::write(batch, &out, take)
        };
        let outcome = loop {
            let outcome = match batches.recv_timeout(TURN) {
                Ok(Ok(Some(batch))) => take_batch(&batch),
                Ok(Ok(None)) => break Ok(()),
                Ok(Err(error)) => Err(error),
                Err(RecvTimeoutError::Timeout) => patience.check(),
                // Without an end, rows are missing.
                Err(RecvTimeoutError::Disconnected) => {
                    Err(Error::internal("the engine has ended early: the log says why"))
                }
            };
            if outcome.is_err() {
                break outcome;
            }
        };
        task.abort();
        outcome
    }
}

fn refused(error: nacre_sql::Error) -> Stop {
    // The evaluator refuses it with the right message.
    Stop::Unsupported(error.message)
}

/// Returns a query with the values of its parameters.
///
/// # Errors
/// The reason, if a parameter has no value.
fn substituted(select: &Select, settings: &Settings) -> std::result::Result<Select, Stop> {
    let mut select = select.clone();
    let mut outcome = Ok(());
    let walked = each_in_select(&mut select, &mut |expr| {
        if outcome.is_ok() {
            outcome = substitute(expr, settings);
        }
        Ok(())
    });
    walked.map_err(refused)?;
    outcome?;
    Ok(select)
}

/// Replaces parameters by their values.
fn substitute(expr: &mut Sql, settings: &Settings) -> std::result::Result<(), Stop> {
    let value: Option<&Value> = match expr {
        Sql::Positional(position) => match settings.positional.get(*position - 1) {
            Some(value) => Some(value),
            None => return unsupported(format!("no value for ${position}")),
        },
        Sql::Named(name) => match settings.named.get(name) {
            Some(value) => Some(value),
            None => return unsupported(format!("no value for ${name}")),
        },
        _ => None,
    };
    if let Some(value) = value {
        *expr = Sql::Literal(value.clone());
        return Ok(());
    }
    let mut outcome = Ok(());
    let walked = each_child(expr, &mut |child| {
        if outcome.is_ok() {
            outcome = substitute(child, settings);
        }
        Ok(())
    });
    walked.map_err(refused)?;
    outcome
}

/// Builds the plan of one statement.
struct Builder<'a> {
    snapshots: &'a Snapshots,
    inputs: Inputs,
    /// Expressions that are evaluated row by row.
    notes: Vec<String>,
    /// The visible queries of WITH.
    with: Vec<(Name, Select)>,
    /// ORDER BY of the block being planned.
    order: Vec<OrderTerm>,
    ids: usize,
    parts: usize,
    statement_ms: i64,
}

impl Builder<'_> {
    fn next_id(&mut self) -> usize {
        self.ids += 1;
        self.ids
    }
}

/// Describes as JSON how a query is answered.
pub fn explain(planned: &Result<Outcome>) -> String {
    let mut text = String::from("{\"engine\":");
    match planned {
        Ok(Outcome::Columns(query)) => {
            text.push_str("\"columns\",\"evaluated\":");
            write_list(&query.notes, &mut text);
            text.push_str(",\"plan\":");
            let plan = query.plan.display_indent().to_string();
            write_list(&plan.lines().map(str::to_owned).collect::<Vec<_>>(), &mut text);
        }
        Ok(Outcome::Rows(reason)) => {
            text.push_str("\"rows\",\"reason\":");
            write_string(reason, &mut text);
        }
        Err(error) => {
            text.push_str("\"none\",\"reason\":");
            write_string(&error.message, &mut text);
        }
    }
    text.push('}');
    text
}

fn write_list(lines: &[String], text: &mut String) {
    text.push('[');
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        write_string(line, text);
    }
    text.push(']');
}
