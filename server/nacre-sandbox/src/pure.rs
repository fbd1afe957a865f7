//! Plugins without a state: conflict resolvers and functions for queries, which can be called from any thread.

use crate::abi::exports::nacre::plugin::{
    resolution as abi, resolution_with_history as abi_with_history,
};
use crate::abi::nacre::plugin::types::Fault;
use crate::abi::{Exports, World};
use crate::call::CallView;
use crate::capsule::{Bytes, Call, Capsule, CapsuleContext};
use crate::context::{Context, Role};
use crate::instance::{Data, Instance};
use crate::pool::Pool;
use crate::{Account, Error, Plugin, Queries, Setup, Status};
use nacre_types::Cas;
use nacre_vbucket::{ConflictContext, Verdict, Version, VersionHistory};
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Store;

fn open(plugin: Plugin, setup: Setup, world: World) -> Result<Pool, Error> {
    let pool = Pool::new(Context::new(plugin, setup, world)?);
    // Creates an instance now, so that an error in the configuration is found before the first call.
    pool.give_back(None, pool.take(&None)?);
    Ok(pool)
}

/// Calls an instance of `pool` without a state. `which` builds the call for the capsule of a failure.
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

impl From<&Version> for abi_with_history::Version {
    fn from(version: &Version) -> abi_with_history::Version {
        abi_with_history::Version {
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

impl From<&VersionHistory> for abi_with_history::History {
    fn from(history: &VersionHistory) -> abi_with_history::History {
        let listed = |versions: &[(String, Cas)]| {
            let version = |(source, cas): &(String, Cas)| abi_with_history::ListedVersion {
                source: source.clone(),
                cas: cas.0,
            };
            versions.iter().map(version).collect()
        };
        abi_with_history::History {
            source: history.source.clone(),
            cas: history.cas.0,
            merged: listed(&history.merged),
            previous: listed(&history.previous),
        }
    }
}

/// Returns a conflict in the form of resolvers that see histories.
fn conflict(
    key: &[u8],
    local: &Version,
    remote: &Version,
    context: &ConflictContext,
) -> abi_with_history::Conflict {
    abi_with_history::Conflict {
        key: key.to_vec(),
        scope: context.scope.clone(),
        collection: context.collection.clone(),
        here: context.here.clone(),
        local: local.into(),
        remote: remote.into(),
        local_history: context.local.as_ref().map(Into::into),
        remote_history: context.remote.as_ref().map(Into::into),
        base: context.base.as_ref().map(Into::into),
    }
}

/// Calls the resolver in an instance with the interface that it exports.
pub(crate) fn call_resolver(
    exports: &Exports,
    store: &mut Store<Data>,
    key: &[u8],
    [local, remote]: [&Version; 2],
    context: &ConflictContext,
) -> wasmtime::Result<Result<Verdict, Fault>> {
    if exports.sees_histories() {
        let conflict = conflict(key, local, remote, context);
        let verdict = exports.resolution_with_history()?.call_resolve(store, &conflict)?;
        return Ok(verdict.map(|verdict| match verdict {
            abi_with_history::Verdict::KeepLocal => Verdict::KeepLocal,
            abi_with_history::Verdict::KeepRemote => Verdict::KeepRemote,
            abi_with_history::Verdict::Merged(body) => Verdict::Merged(body),
        }));
    }
    let (local, remote) = (local.into(), remote.into());
    let verdict = exports.resolution()?.call_resolve(store, key, &local, &remote)?;
    Ok(verdict.map(|verdict| match verdict {
        abi::Verdict::KeepLocal => Verdict::KeepLocal,
        abi::Verdict::KeepRemote => Verdict::KeepRemote,
        abi::Verdict::Merged(body) => Verdict::Merged(body),
    }))
}

/// A plugin of the world `resolver` or `resolver-with-history`.
pub struct Resolver {
    pool: Pool,
}

impl Resolver {
    /// Creates a resolver. [`crate::Limits::pure`] suits its `setup`.
    ///
    /// # Errors
    /// [`Error::World`] when `plugin` is not a resolver; other errors as for any call.
    pub fn open(plugin: Plugin, setup: Setup) -> Result<Resolver, Error> {
        Ok(Resolver { pool: open(plugin, setup, World::Resolver)? })
    }

    /// Decides between two versions of the document at `key`. A plugin of the world `resolver` does not receive `context`.
    ///
    /// # Errors
    /// The errors of any call. The next call gets a new instance.
    pub fn resolve(
        &self,
        key: &[u8],
        local: &Version,
        remote: &Version,
        context: &ConflictContext,
    ) -> Result<Verdict, Error> {
        let which = || Call::Resolve {
            key: Bytes(key.to_vec()),
            local: local.into(),
            remote: remote.into(),
            context: Box::new(CapsuleContext::from(context)),
        };
        call(&self.pool, which, |exports, store| {
            call_resolver(exports, store, key, [local, remote], context)
        })
    }

    /// Returns the status. Calls count as calls of readers.
    pub fn status(&self) -> Status {
        status(&self.pool)
    }

    /// Takes the capsules of failed calls, as a partition does.
    pub fn take_capsules(&self) -> Vec<Capsule> {
        self.pool.context.take_capsules()
    }
}

/// A plugin of the world `functions`.
pub struct Functions {
    pool: Pool,
}

impl Functions {
    /// Creates functions. [`crate::Limits::pure`] suits their `setup`.
    ///
    /// # Errors
    /// [`Error::World`] when `plugin` has no functions; other errors as for any call.
    pub fn open(plugin: Plugin, setup: Setup) -> Result<Functions, Error> {
        Ok(Functions { pool: open(plugin, setup, World::Functions)? })
    }

    /// Calls the function `name` with `arguments`, a JSON array. Returns its result as JSON.
    ///
    /// # Errors
    /// [`Error::Reject`] when there is no such function or it refuses its arguments; other errors as for any call.
    pub fn call(&self, name: &str, arguments: &str) -> Result<String, Error> {
        call(
            &self.pool,
            || function(name, arguments),
            |exports, store| exports.scalar()?.call_call(store, name, arguments),
        )
    }

    /// Returns an instance for one caller. It contains the effects of this caller's earlier calls, and of no others.
    /// Its memory is charged to `account`, if given.
    ///
    /// # Errors
    /// The errors of any call; [`Error::NodeMemory`] when the account has too little memory.
    pub fn caller(&self, account: Option<Arc<Account>>) -> Result<Caller, Error> {
        let instance = self.pool.context.instance(Role::Reader)?;
        Ok(Caller { instance, account })
    }

    /// Returns the status. Calls count as calls of readers.
    pub fn status(&self) -> Status {
        status(&self.pool)
    }

    /// Takes the capsules of failed calls, including those of callers, as a partition does.
    pub fn take_capsules(&self) -> Vec<Capsule> {
        self.pool.context.take_capsules()
    }
}

fn function(name: &str, arguments: &str) -> Call {
    Call::Function { name: name.to_owned(), arguments: arguments.to_owned() }
}

/// An instance of functions that belongs to one caller. It must be dropped after any failed call.
pub struct Caller {
    instance: Instance,
    account: Option<Arc<Account>>,
}

impl Caller {
    /// Like [`Functions::call`], but ends after `left` if that is before the deadline. `queries` answers queries of
    /// the function.
    ///
    /// # Errors
    /// The errors of [`Functions::call`].
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
            // If the request had less time than the deadline, the function is not at fault.
            let is_cut_short =
                matches!(error, Error::Deadline { .. }) && left < context.setup.limits.deadline;
            if !is_cut_short {
                context.keep(function(name, arguments), &journal, error);
            }
        }
        called
    }
}
