//! Plugins without a state: conflict resolvers and functions for queries, called from any thread.

use crate::abi::exports::nacre::plugin::resolution as abi;
use crate::abi::nacre::plugin::types::Fault;
use crate::abi::{Exports, World};
use crate::call::CallView;
use crate::capsule::{Bytes, Call, Capsule};
use crate::context::{Context, Role};
use crate::instance::{Data, Instance};
use crate::pool::Pool;
use crate::{Account, Error, Plugin, Queries, Setup, Status};
use nacre_vbucket::{Verdict, Version};
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Store;

fn open(plugin: Plugin, setup: Setup, world: World) -> Result<Pool, Error> {
    let pool = Pool::new(Context::new(plugin, setup, world)?);
    // Creates an instance now, so that a mistake in the configuration is found before the first call.
    pool.give_back(None, pool.take(&None)?);
    Ok(pool)
}

/// Calls an instance of `pool`, which has no state to see. `which`: the call, to be kept when it fails.
fn call<T>(
    pool: &Pool,
    which: impl FnOnce() -> Call,
    call: impl FnOnce(&Exports, &mut Store<Data>) -> wasmtime::Result<Result<T, Fault>>,
) -> Result<T, Error> {
    let mut instance = pool.take(&None)?;
    let called = instance.call(CallView::default(), call);
    match &called {
        Ok(_) => pool.give_back(None, instance),
        Err(error) => pool.context.keep(which(), &instance.take_journal(), error),
    }
    called
}

fn status(pool: &Pool) -> Status {
    let context = &pool.context;
    Status {
        readers: context.usage(Role::Reader),
        memory_bytes: context.memory_bytes(),
        log: context.log(),
        ..Status::default()
    }
}

impl From<&Version> for abi::Version {
    fn from(version: &Version) -> abi::Version {
        abi::Version {
            body: version.body.clone(),
            deleted: version.is_deleted,
            cas: version.cas.0,
            rev: version.rev,
            flags: version.flags,
            expiry: version.expiry,
            datatype: u8::from(version.is_json),
        }
    }
}

/// A plugin of the world `resolver`.
pub struct Resolver {
    pool: Pool,
}

impl Resolver {
    /// Prepares a resolver; [`crate::Limits::pure`] suits its `setup`.
    ///
    /// # Errors
    /// [`Error::World`] when `plugin` is not a resolver; others as for any call.
    pub fn open(plugin: Plugin, setup: Setup) -> Result<Resolver, Error> {
        Ok(Resolver { pool: open(plugin, setup, World::Resolver)? })
    }

    /// Decides between two versions of the document at `key`.
    ///
    /// # Errors
    /// As for any call; the next one finds a fresh instance.
    pub fn resolve(&self, key: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Error> {
        let which = || Call::Resolve {
            key: Bytes(key.to_vec()),
            local: local.into(),
            remote: remote.into(),
        };
        let (local, remote) = (local.into(), remote.into());
        let verdict = call(&self.pool, which, |exports, store| {
            exports.resolution()?.call_resolve(store, key, &local, &remote)
        })?;
        Ok(match verdict {
            abi::Verdict::KeepLocal => Verdict::KeepLocal,
            abi::Verdict::KeepRemote => Verdict::KeepRemote,
            abi::Verdict::Merged(body) => Verdict::Merged(body),
        })
    }

    /// Returns its status: its calls are those of readers.
    pub fn status(&self) -> Status {
        status(&self.pool)
    }

    /// Takes the capsules of failed calls, as for a partition.
    pub fn take_capsules(&self) -> Vec<Capsule> {
        self.pool.context.take_capsules()
    }
}

/// A plugin of the world `functions`.
pub struct Functions {
    pool: Pool,
}

impl Functions {
    /// Prepares the functions; [`crate::Limits::pure`] suits their `setup`.
    ///
    /// # Errors
    /// [`Error::World`] when `plugin` has no functions; others as for any call.
    pub fn open(plugin: Plugin, setup: Setup) -> Result<Functions, Error> {
        Ok(Functions { pool: open(plugin, setup, World::Functions)? })
    }

    /// Calls the function `name` with `arguments`, a JSON array. Returns its result as JSON.
    ///
    /// # Errors
    /// [`Error::Reject`] when there is no such function or it refuses its arguments; others as for any call.
    pub fn call(&self, name: &str, arguments: &str) -> Result<String, Error> {
        call(
            &self.pool,
            || function(name, arguments),
            |exports, store| exports.scalar()?.call_call(store, name, arguments),
        )
    }

    /// Returns an instance for one caller, which finds the results of its own earlier calls in it, and of no others.
    /// Its memory is charged to `account`, if there is one.
    ///
    /// # Errors
    /// As for any call; [`Error::NodeMemory`] when the account has too little.
    pub fn caller(&self, account: Option<Arc<Account>>) -> Result<Caller, Error> {
        let instance = self.pool.context.instance(Role::Reader)?;
        Ok(Caller { instance, account })
    }

    /// Returns their status: their calls are those of readers.
    pub fn status(&self) -> Status {
        status(&self.pool)
    }

    /// Takes the capsules of failed calls, as for a partition, including those of callers.
    pub fn take_capsules(&self) -> Vec<Capsule> {
        self.pool.context.take_capsules()
    }
}

fn function(name: &str, arguments: &str) -> Call {
    Call::Function { name: name.to_owned(), arguments: arguments.to_owned() }
}

/// An instance of functions that one caller keeps. It must be dropped after any error of a call.
pub struct Caller {
    instance: Instance,
    account: Option<Arc<Account>>,
}

impl Caller {
    /// As [`Functions::call`]; ends after `left` if that is before the deadline. `queries` answers queries of the
    /// function.
    ///
    /// # Errors
    /// As [`Functions::call`].
    pub fn call(
        &mut self,
        name: &str,
        arguments: &str,
        queries: Arc<dyn Queries>,
        left: Duration,
    ) -> Result<String, Error> {
        let ends_tick = Some(self.instance.tick_after(left));
        let account = self.account.clone();
        let view = CallView { queries: Some(queries), ends_tick, account, ..CallView::default() };
        let instance = &mut self.instance;
        let called = instance
            .call(view, |exports, store| exports.scalar()?.call_call(store, name, arguments));
        if let Err(error) = &called {
            let journal = instance.take_journal();
            let context = instance.context();
            // If the request had less time than the deadline, the function is not to blame.
            let is_cut_short =
                matches!(error, Error::Deadline { .. }) && left < context.setup.limits.deadline;
            if !is_cut_short {
                context.keep(function(name, arguments), &journal, error);
            }
        }
        called
    }
}
