//! One instance of a plugin: a store with its limits, and calls into it.

use crate::abi::Exports;
use crate::abi::nacre::plugin::turn;
use crate::abi::nacre::plugin::types::{self, Fault};
use crate::call::{CallView, CurrentItem, Failure};
use crate::capability::{Capability, Filled, Held, LogLine, MetricChanges, OpenQueries};
use crate::context::{Context, Role};
use crate::host::WASM_STACK_BYTES;
use crate::journal::Journal;
use crate::{Error, Exceeded, Permit, Purpose};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wasmtime::{
    PoolConcurrencyLimitError, ResourceLimiter, Store, Trap, UpdateDeadline, WasmBacktrace,
};

/// Native stack that must be free before a call: the part that Wasm may use, and the part for host functions.
const RED_ZONE_BYTES: usize = WASM_STACK_BYTES + (512 << 10);
/// Size of the native stack that is allocated if there is too little.
const GROWN_STACK_BYTES: usize = RED_ZONE_BYTES + (512 << 10);
/// Ticks between two checks of a running call.
const QUESTION_TICKS: u64 = 2;
/// Maximum number of elements of one table; QuickJS needs several thousand.
const TABLE_ELEMENTS_MAX: usize = 100_000;
/// Bytes that a guest may pass to the host in one call, even if its results must be small.
const HOST_CALL_BYTES_MIN: usize = 1 << 20;

/// The reason why the host ended a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    State(#[from] nacre_state::Refused),
    #[error("too many keys at once")]
    Keys,
    #[error("the guest asked for a document that is not held")]
    NotHeld,
    #[error("a document is placed outside its piece of the answer")]
    Place,
    #[error("the held documents exceed the memory limit")]
    Memory,
    #[error("the node has no memory for the held documents")]
    NodeMemory,
    #[error("{0} cannot be used before init has returned")]
    Starting(Capability),
    #[error("{0} is not granted")]
    Denied(Capability),
    #[error("an item began out of order")]
    CurrentItem,
    #[error("the deadline has passed")]
    Deadline,
    #[error("the caller no longer waits for the answer")]
    Over,
}

impl Refused {
    /// Returns the trap that ends a call whose change of the state was refused.
    pub fn trap(of_state: nacre_state::Refused) -> wasmtime::Error {
        wasmtime::Error::new(Refused::State(of_state))
    }
}

/// The host's data of an instance.
pub struct Data {
    pub context: Arc<Context>,
    pub view: CallView,
    pub log: Vec<LogLine>,
    pub metrics: MetricChanges,
    pub journal: Journal,
    pub queries: OpenQueries,
    pub held: Held,
    host_calls: [u64; Capability::ALL.len()],
    limiter: Limiter,
    is_running: bool,
    begun_tick: u64,
}

impl Data {
    fn new(context: Arc<Context>, role: Role) -> Data {
        let budgets = &context.setup.budgets;
        let permit = match role {
            Role::Writer => budgets.of_writers(&context.setup.name).permit(Purpose::Writer),
            // Until a call names its account.
            Role::Reader => budgets.of_parts().permit(Purpose::Instance),
        };
        let limiter = Limiter {
            limit_bytes: context.setup.limits.memory_bytes,
            bytes: 0,
            held_bytes: 0,
            refused: None,
            of_deployment: Arc::clone(&context.memory),
            permit,
        };
        Data {
            context,
            view: CallView::default(),
            log: Vec::new(),
            metrics: MetricChanges::default(),
            journal: Journal::default(),
            queries: OpenQueries::default(),
            held: Held::default(),
            host_calls: Default::default(),
            limiter,
            is_running: false,
            begun_tick: 0,
        }
    }

    /// Counts a call into the host. Refuses capabilities other than the log during initialization, and interfaces that
    /// are linked but not granted.
    pub fn count(&mut self, capability: Capability) -> wasmtime::Result<()> {
        self.host_calls[capability as usize] += 1;
        // Capabilities that have their own error for this return that error.
        let says_so =
            matches!(capability, Capability::Kv | Capability::HttpOut | Capability::Query);
        if !self.is_running && capability != Capability::Log {
            return Err(wasmtime::Error::new(Refused::Starting(capability)));
        }
        if !says_so && !self.context.setup.grants.allows(capability) {
            return Err(wasmtime::Error::new(Refused::Denied(capability)));
        }
        Ok(())
    }

    /// Charges the bodies that the host holds for the guest to the memory of the instance.
    pub fn charge_held(&mut self) -> wasmtime::Result<()> {
        self.limiter.held_bytes = self.held.bytes();
        let bytes = self.limiter.bytes.saturating_add(self.limiter.held_bytes);
        if bytes > self.limiter.limit_bytes {
            return Err(wasmtime::Error::new(Refused::Memory));
        }
        self.limiter.permit.try_set(bytes).map_err(|exceeded| {
            self.limiter.refused = Some(ExceededLimit::Budget(exceeded));
            wasmtime::Error::new(Refused::NodeMemory)
        })
    }

    /// Releases everything that is held for the guest.
    fn release_all(&mut self) {
        self.held.clear();
        self.limiter.hold(0);
    }

    /// Returns the time that the call, or its current item, has taken.
    fn passed(&self) -> Duration {
        let now = self.context.plugin.clock.ticks();
        Duration::from_millis(now.saturating_sub(self.begun_tick))
    }

    /// Returns the time left for the call, or for its current item. If there is none, returns an error that ends the
    /// call. After the deadline, the rest of the grace period is left.
    pub fn time_left(&self) -> wasmtime::Result<Duration> {
        let now = self.context.plugin.clock.ticks();
        let limits = self.context.setup.limits;
        let of_call = match limits.deadline.saturating_sub(self.passed()) {
            Duration::ZERO => (limits.deadline + limits.grace).saturating_sub(self.passed()),
            left => left,
        };
        let of_request =
            self.view.ends_tick.map(|end| Duration::from_millis(end.saturating_sub(now)));
        let left = of_request.map_or(of_call, |of_request| of_request.min(of_call));
        if left.is_zero() { Err(wasmtime::Error::new(Refused::Deadline)) } else { Ok(left) }
    }

    /// Returns the number of ticks until the next check of the running call; 1 while the profiler is on.
    fn pause_ticks(&self, left: u64) -> u64 {
        if self.context.profiler.is_on() {
            return 1;
        }
        QUESTION_TICKS.min(left)
    }

    /// Checks whether the call may continue. Returns the time of the next check; an error ends the call.
    fn check_deadline(&self) -> wasmtime::Result<UpdateDeadline> {
        let is_over = self.view.database.as_ref().is_some_and(|database| database.is_over());
        if is_over {
            return Err(wasmtime::Error::new(Refused::Over));
        }
        let left = self.time_left()?.as_millis() as u64;
        self.context.plugin.clock.on_long_call();
        Ok(UpdateDeadline::Continue(self.pause_ticks(left).max(1)))
    }
}

impl types::Host for Data {}

impl turn::Host for Data {
    fn begin(&mut self, index: u32) -> wasmtime::Result<()> {
        let index = index as usize;
        let CallView { view, current_item, items_count, .. } = &mut self.view;
        if index >= *items_count
            || current_item.as_ref().is_some_and(|current_item| index <= current_item.index)
        {
            return Err(wasmtime::Error::new(Refused::CurrentItem));
        }
        let mut done =
            current_item.take().map(|current_item| current_item.writes).unwrap_or_default();
        if let Some(writes) = &mut view.writes {
            done.extend(std::mem::take(writes));
        }
        *current_item = Some(CurrentItem { index, state: view.state.clone(), writes: done });
        self.journal.begin(&self.view.state);
        self.begun_tick = self.context.plugin.clock.ticks();
        Ok(())
    }

    fn failed(&mut self, index: u32, message: String) -> wasmtime::Result<()> {
        // A plugin may name an event that does not exist, or the same event repeatedly; both are ignored.
        let CallView { failures, items_count, .. } = &mut self.view;
        if failures.len() < *items_count {
            failures.push(Failure::new(index, &message));
        }
        Ok(())
    }

    fn passed_ms(&mut self) -> wasmtime::Result<u32> {
        Ok(u32::try_from(self.passed().as_millis()).unwrap_or(u32::MAX))
    }
}

struct Limiter {
    limit_bytes: usize,
    bytes: usize,
    /// Bytes of documents that the host holds for the instance.
    held_bytes: usize,
    /// The limit that refused the last growth.
    refused: Option<ExceededLimit>,
    of_deployment: Arc<AtomicUsize>,
    /// Permit for the memory of the instance and the held bodies.
    permit: Permit,
}

/// A limit that an instance would have exceeded.
enum ExceededLimit {
    /// The limit of the deployment.
    Limit,
    /// The memory of the node.
    Budget(Exceeded),
}

impl Limiter {
    fn hold(&mut self, bytes: usize) {
        self.held_bytes = bytes;
        self.permit.set(self.bytes + bytes);
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let grown = desired.saturating_sub(current);
        let granted = match desired.saturating_add(self.held_bytes) <= self.limit_bytes {
            true => self.permit.grow(grown).map_err(ExceededLimit::Budget),
            false => Err(ExceededLimit::Limit),
        };
        match granted {
            Ok(()) => {
                self.bytes += grown;
                self.of_deployment.fetch_add(grown, Ordering::Relaxed);
                Ok(true)
            }
            Err(beyond) => {
                self.refused = Some(beyond);
                Ok(false)
            }
        }
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.of_deployment.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An instance. It must be dropped after any failed call.
pub struct Instance {
    context: Arc<Context>,
    role: Role,
    store: Store<Data>,
    exports: Exports,
}

impl Instance {
    /// Creates an instance without a configuration.
    pub fn start(context: &Arc<Context>, role: Role) -> Result<Instance, Error> {
        let limits = context.setup.limits;
        let plugin = &context.plugin;
        let mut store = Store::new(&plugin.engine, Data::new(Arc::clone(context), role));
        store.limiter(|data| &mut data.limiter);
        // Limits the bytes of one call of the guest into the host, and of a result; checked before data is copied.
        store.set_hostcall_fuel(limits.result_bytes.saturating_add(HOST_CALL_BYTES_MIN));
        let _running = plugin.clock.begin_call();
        store.set_epoch_deadline(limits.deadline_ticks());
        store.epoch_deadline_callback(|store| {
            let profiler = &store.data().context.profiler;
            if profiler.is_on() {
                profiler.add(&WasmBacktrace::force_capture(&store));
            }
            store.data().check_deadline()
        });
        let started = stacker::maybe_grow(RED_ZONE_BYTES, GROWN_STACK_BYTES, || {
            let instance = context.pre.instantiate(&mut store)?;
            plugin.indices.load(&mut store, &instance)
        });
        match started {
            Ok(exports) => Ok(Instance { context: Arc::clone(context), role, store, exports }),
            Err(error) if error.is::<PoolConcurrencyLimitError>() => Err(Error::Busy {
                deployment: context.setup.name.clone(),
                message: format!("no free instance: {error}"),
            }),
            Err(error) => Err(failure(&error, store.data_mut())),
        }
    }

    /// Creates an instance that is ready for calls.
    pub fn configured(context: &Arc<Context>, role: Role) -> Result<Instance, Error> {
        let mut instance = Instance::start(context, role)?;
        let outcome = instance.call(CallView::default(), |exports, store| {
            exports.lifecycle.call_init(store, &context.setup.config)
        });
        match outcome {
            Ok(()) => {
                instance.store.data_mut().is_running = true;
                Ok(instance)
            }
            Err(Error::Reject { deployment, message }) => {
                Err(Error::Config { deployment, message })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the context of the instance.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the tick at which `left` will have passed.
    pub fn tick_after(&self, left: Duration) -> u64 {
        let ticks = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        self.context.plugin.clock.ticks().saturating_add(ticks)
    }

    /// Calls the instance with `view` as its state. [`Instance::take_view`] returns its writes.
    pub fn call<T>(
        &mut self,
        view: CallView,
        call: impl FnOnce(&Exports, &mut Store<Data>) -> wasmtime::Result<Result<T, Fault>>,
    ) -> Result<T, Error> {
        let data = self.store.data_mut();
        data.release_all();
        let budgets = &self.context.setup.budgets;
        let account = match self.role {
            Role::Writer => None,
            Role::Reader => Some(view.account.clone().unwrap_or_else(|| budgets.of_parts())),
        };
        if let Some(account) = account {
            let charged = data.limiter.permit.transfer_to(&account, Purpose::Instance);
            charged.map_err(|exceeded| {
                let deployment = self.context.setup.name.clone();
                Error::NodeMemory { deployment, exceeded }
            })?;
        }
        data.journal.begin(&view.state);
        data.view = view;
        self.resume(call)
    }

    /// Returns the time left for further parts of the call, if the guest has limited it.
    pub fn time_left(&self) -> Option<Duration> {
        let ends_tick = self.store.data().view.ends_tick?;
        let left_ms = ends_tick.saturating_sub(self.context.plugin.clock.ticks());
        Some(Duration::from_millis(left_ms))
    }

    /// Returns the size of the linear memory in bytes: the maximum that the instance ever needed.
    pub fn memory_bytes(&self) -> usize {
        self.store.data().limiter.bytes
    }

    /// Charges the memory of the instance to idle instances.
    ///
    /// # Errors
    /// [`Exceeded`] when idle instances have reached their limit: the instance must be dropped.
    pub fn charge_to_idle(&mut self) -> Result<(), Exceeded> {
        let idle = self.context.setup.budgets.of_idle();
        self.store.data_mut().limiter.permit.transfer_to(&idle, Purpose::Idle)
    }

    /// Calls the instance for the next part of the previous call, with the same view.
    pub fn resume<T>(
        &mut self,
        call: impl FnOnce(&Exports, &mut Store<Data>) -> wasmtime::Result<Result<T, Fault>>,
    ) -> Result<T, Error> {
        let clock = Arc::clone(&self.context.plugin.clock);
        let _running = clock.begin_call();
        let data = self.store.data_mut();
        data.limiter.refused = None;
        data.host_calls = Default::default();
        data.begun_tick = clock.ticks();
        let of_request =
            data.view.ends_tick.map(|end| end.saturating_sub(data.begun_tick).saturating_add(1));
        let of_call = self.context.setup.limits.deadline_ticks();
        let left = of_request.map_or(of_call, |of_request| of_request.min(of_call));
        let pause_ticks = data.pause_ticks(left);
        self.store.set_epoch_deadline(pause_ticks);
        let (exports, store) = (&self.exports, &mut self.store);
        let begun_ns = clock.now_ns();
        let outcome =
            stacker::maybe_grow(RED_ZONE_BYTES, GROWN_STACK_BYTES, || call(exports, store));
        let elapsed_ns = clock.now_ns().saturating_sub(begun_ns);
        let data = self.store.data_mut();
        // Queries end with the call.
        data.queries = OpenQueries::default();
        let deployment = self.context.setup.name.clone();
        let outcome = match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Fault::Retry(message))) => Err(Error::Retry { deployment, message }),
            Ok(Err(Fault::Reject(message))) => Err(Error::Reject { deployment, message }),
            Ok(Err(Fault::Fatal(message))) => Err(Error::Fatal { deployment, message }),
            Err(error) => Err(failure(&error, data)),
        };
        self.context.count(self.role, elapsed_ns, &data.host_calls, outcome.is_err());
        self.context.add_log(std::mem::take(&mut data.log));
        let metrics = std::mem::take(&mut data.metrics);
        // Metrics of processed items must not be counted again.
        if outcome.is_ok() || self.store.data().view.current_item.is_some() {
            self.context.change_metrics(metrics);
        }
        outcome
    }

    /// Takes the state after the last call; the instance keeps none.
    pub fn take_view(&mut self) -> CallView {
        let data = self.store.data_mut();
        data.journal = Journal::default();
        data.release_all();
        std::mem::take(&mut data.view)
    }

    /// Returns a piece of the last call's reply with the placed documents filled in.
    pub fn fill(&mut self, piece: Vec<u8>) -> Result<Vec<u8>, Error> {
        let Data { held, context, limiter, .. } = self.store.data_mut();
        let limit_bytes = context.setup.limits.result_bytes;
        let filled = held.fill(piece, limit_bytes);
        limiter.hold(held.bytes());
        let deployment = || context.setup.name.clone();
        filled.map_err(|reason| match reason {
            Filled::TooLarge(bytes) => {
                Error::Result { deployment: deployment(), bytes, limit_bytes }
            }
            Filled::Outside => {
                Error::Trap { deployment: deployment(), reason: Refused::Place.to_string() }
            }
        })
    }

    /// Takes the journal of the last call.
    pub fn take_journal(&mut self) -> Journal {
        std::mem::take(&mut self.store.data_mut().journal)
    }
}

/// Returns the error for the limit that a state has reached: `granted` bytes, or the node's memory.
pub fn state_full(deployment: String, granted: usize, bytes_max: usize) -> Error {
    match bytes_max < granted {
        true => Error::NodeState { deployment, limit_bytes: bytes_max },
        false => Error::State { deployment, limit_bytes: granted },
    }
}

/// Returns the error for a call that ended with an error of the engine or the host.
fn failure(error: &wasmtime::Error, data: &mut Data) -> Error {
    let deployment = data.context.setup.name.clone();
    let limits = data.context.setup.limits;
    let deadline = |deployment| Error::Deadline { deployment, after: limits.deadline };
    if let Some(refused) = error.downcast_ref::<Refused>() {
        return match refused {
            Refused::State(nacre_state::Refused::StateFull) => {
                state_full(deployment, limits.state_bytes, data.view.bytes_max)
            }
            Refused::State(nacre_state::Refused::Damaged(damage)) => {
                Error::Storage { deployment, message: damage.to_string() }
            }
            // A full disk is not the fault of the current document.
            Refused::State(nacre_state::Refused::Blob(nacre_state::BlobError::Disk(message))) => {
                Error::Retry { deployment, message: message.clone() }
            }
            Refused::NodeMemory => match data.limiter.refused.take() {
                Some(ExceededLimit::Budget(exceeded)) => Error::NodeMemory { deployment, exceeded },
                _ => Error::Trap { deployment, reason: refused.to_string() },
            },
            Refused::Deadline => deadline(deployment),
            Refused::Memory => Error::Memory { deployment, limit_bytes: limits.memory_bytes },
            _ => Error::Trap { deployment, reason: refused.to_string() },
        };
    }
    let trap = error.downcast_ref::<Trap>();
    match data.limiter.refused.take() {
        Some(ExceededLimit::Budget(exceeded)) => Error::NodeMemory { deployment, exceeded },
        Some(ExceededLimit::Limit) if trap.is_some() => {
            Error::Memory { deployment, limit_bytes: limits.memory_bytes }
        }
        _ => {
            // The text before the root cause is a backtrace of addresses.
            let root = || error.root_cause().to_string();
            let cause = trap.map_or_else(root, ToString::to_string);
            let reason = match data.log.iter().rfind(|line| line.level == "error") {
                Some(words) => format!("{cause}: {}", words.message),
                None => cause,
            };
            Error::Trap { deployment, reason }
        }
    }
}
