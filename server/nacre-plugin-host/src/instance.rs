//! One instance of a plugin: a store with its limits, and calls into it.

use crate::abi::Service;
use crate::abi::nacre::plugin::types::Fault;
use crate::abi::nacre::plugin::{log, state, types};
use crate::host::WASM_STACK_BYTES;
use crate::space::{Refused, View};
use crate::status::LogLine;
use crate::{Error, Limits, Plugin};
use std::sync::Arc;
use wasmtime::{PoolConcurrencyLimitError, ResourceLimiter, Store, Trap};

/// Native stack that must be left before a call: what Wasm may use, and the host functions below it.
const RED_ZONE_BYTES: usize = WASM_STACK_BYTES + (512 << 10);
/// Native stack that is made when it is not.
const GROWN_STACK_BYTES: usize = RED_ZONE_BYTES + (512 << 10);
/// Elements of one table; QuickJS needs some thousands.
const TABLE_ELEMENTS_MAX: usize = 100_000;
/// Bytes that a guest may pass to the host in one call, however small its results are to be.
const HOST_CALL_BYTES_MIN: usize = 1 << 20;
/// Log lines of one call that are kept, and characters of a line.
const LOG_LINES_MAX: usize = 100;
const LOG_LINE_CHARS_MAX: usize = 2000;

/// What the host keeps beside an instance.
#[derive(Default)]
pub struct Data {
    view: View,
    limiter: Limiter,
    log: Vec<LogLine>,
}

#[derive(Default)]
struct Limiter {
    memory_bytes: usize,
    memory_refused: bool,
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let fits = desired <= self.memory_bytes;
        self.memory_refused |= !fits;
        Ok(fits)
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

impl types::Host for Data {}

impl state::Host for Data {
    fn get(&mut self, key: Vec<u8>) -> wasmtime::Result<Option<Vec<u8>>> {
        Ok(self.view.get(&key))
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> wasmtime::Result<()> {
        self.view.put(key, value).map_err(wasmtime::Error::new)
    }

    fn delete(&mut self, key: Vec<u8>) -> wasmtime::Result<()> {
        self.view.delete(key).map_err(wasmtime::Error::new)
    }

    fn scan(
        &mut self,
        start: Vec<u8>,
        end: Vec<u8>,
        limit: u32,
        reverse: bool,
    ) -> wasmtime::Result<Vec<state::Entry>> {
        let entries = self.view.scan(&start, &end, limit, reverse);
        Ok(entries.into_iter().map(|(key, value)| state::Entry { key, value }).collect())
    }
}

impl log::Host for Data {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        if self.log.len() < LOG_LINES_MAX {
            let level = match level {
                log::Level::Debug => "debug",
                log::Level::Info => "info",
                log::Level::Warn => "warn",
                log::Level::Error => "error",
            };
            let message = message.chars().take(LOG_LINE_CHARS_MAX).collect();
            self.log.push(LogLine { level, message });
        }
        Ok(())
    }
}

/// An instance. After an error of a call it must be dropped, whatever the error.
pub struct Instance {
    deployment: Arc<str>,
    limits: Limits,
    store: Store<Data>,
    service: Service,
}

impl Instance {
    /// An instance that has not been given a configuration.
    pub fn start(
        plugin: &Plugin,
        deployment: &Arc<str>,
        limits: Limits,
    ) -> Result<Instance, Error> {
        let limiter = Limiter { memory_bytes: limits.memory_bytes, memory_refused: false };
        let mut store = Store::new(&plugin.engine, Data { limiter, ..Data::default() });
        store.limiter(|data| &mut data.limiter);
        // What one call of the guest into the host may carry, or a result bring back; checked before anything is
        // copied.
        store.set_hostcall_fuel(limits.result_bytes.saturating_add(HOST_CALL_BYTES_MIN));
        store.set_epoch_deadline(limits.deadline_ticks());
        let started = stacker::maybe_grow(RED_ZONE_BYTES, GROWN_STACK_BYTES, || {
            plugin.pre.instantiate(&mut store)
        });
        match started {
            Ok(service) => {
                Ok(Instance { deployment: Arc::clone(deployment), limits, store, service })
            }
            Err(error) if error.is::<PoolConcurrencyLimitError>() => {
                Err(Error::Busy { deployment: deployment.to_string(), message: error.to_string() })
            }
            Err(error) => Err(failure(&error, deployment, limits, store.data())),
        }
    }

    /// An instance that is ready for calls.
    pub fn configured(
        plugin: &Plugin,
        deployment: &Arc<str>,
        config: &str,
        limits: Limits,
    ) -> Result<Instance, Error> {
        let mut instance = Instance::start(plugin, deployment, limits)?;
        let outcome = instance.call(View::default(), |service, store| {
            service.nacre_plugin_lifecycle().call_init(store, config)
        });
        match outcome {
            Ok(()) => Ok(instance),
            Err(Error::Reject { deployment, message }) => {
                Err(Error::Config { deployment, message })
            }
            Err(error) => Err(error),
        }
    }

    /// Calls the instance with `view` as its state; what it wrote is in [`Instance::take_view`].
    pub fn call<T>(
        &mut self,
        view: View,
        call: impl FnOnce(&Service, &mut Store<Data>) -> wasmtime::Result<Result<T, Fault>>,
    ) -> Result<T, Error> {
        let data = self.store.data_mut();
        data.view = view;
        data.limiter.memory_refused = false;
        data.log.clear();
        self.store.set_epoch_deadline(self.limits.deadline_ticks());
        let (service, store) = (&self.service, &mut self.store);
        let outcome =
            stacker::maybe_grow(RED_ZONE_BYTES, GROWN_STACK_BYTES, || call(service, store));
        let deployment = self.deployment.to_string();
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Fault::Retry(message))) => Err(Error::Retry { deployment, message }),
            Ok(Err(Fault::Reject(message))) => Err(Error::Reject { deployment, message }),
            Ok(Err(Fault::Fatal(message))) => Err(Error::Fatal { deployment, message }),
            Err(error) => Err(failure(&error, &deployment, self.limits, self.store.data())),
        }
    }

    /// The state as the last call left it; the instance keeps none.
    pub fn take_view(&mut self) -> View {
        std::mem::take(&mut self.store.data_mut().view)
    }

    /// What the last call wrote to its log.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.store.data_mut().log)
    }
}

/// Names what ended a call from within.
fn failure(error: &wasmtime::Error, deployment: &str, limits: Limits, data: &Data) -> Error {
    let deployment = deployment.to_string();
    if let Some(refused) = error.downcast_ref::<Refused>() {
        return match refused {
            Refused::StateFull => Error::State { deployment, limit_bytes: limits.state_bytes },
            Refused::ReadOnly | Refused::Key => {
                Error::Trap { deployment, reason: refused.to_string() }
            }
        };
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => Error::Deadline { deployment, after: limits.deadline },
        Some(_) if data.limiter.memory_refused => {
            Error::Memory { deployment, limit_bytes: limits.memory_bytes }
        }
        trap => {
            let cause = trap.map_or_else(|| format!("{error:#}"), ToString::to_string);
            let reason = match data.log.iter().rfind(|line| line.level == "error") {
                Some(words) => format!("{cause}: {}", words.message),
                None => cause,
            };
            Error::Trap { deployment, reason }
        }
    }
}
