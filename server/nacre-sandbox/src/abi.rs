//! The host's side of all worlds, generated from `plugins/wit`.
//!
//! The bindings use one world with all interfaces, which no plugin implements, so that a type is the same in all
//! worlds.

wasmtime::component::bindgen!({
    path: "../../plugins/wit",
    inline: "
        package nacre:host;
        world everything {
            import nacre:plugin/log@0.1.0;
            import nacre:plugin/kv@0.1.0;
            import nacre:plugin/timer@0.1.0;
            import nacre:plugin/turn@0.1.0;
            import nacre:plugin/http-out@0.1.0;
            import nacre:plugin/metrics@0.1.0;
            import nacre:plugin/blob@0.1.0;
            import nacre:plugin/query@0.1.0;
            import nacre:plugin/database@0.1.0;
            export nacre:plugin/lifecycle@0.1.0;
            export nacre:plugin/feed@0.1.0;
            export nacre:plugin/reader@0.1.0;
            export nacre:plugin/timer-handler@0.1.0;
            export nacre:plugin/resolution@0.1.0;
            export nacre:plugin/resolution-with-history@0.1.0;
            export nacre:plugin/scalar@0.1.0;
            export nacre:plugin/projection@0.1.0;
        }
    ",
    world: "nacre:host/everything",
    imports: { default: trappable },
});

use crate::Error;
use crate::capability::Capability;
use crate::instance::Data;
use exports::nacre::plugin::{
    feed, lifecycle, projection, reader, resolution, resolution_with_history, scalar, timer_handler,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use wasmtime::component::{Instance, InstancePre};
use wasmtime::{AsContextMut, Result};

/// The interface of resolvers that see histories.
const RESOLUTION_WITH_HISTORY: &str = "nacre:plugin/resolution-with-history@0.1.0";

/// The world of a plugin, determined by its exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// Keeps state from the change stream, acts on changes, and answers requests.
    #[default]
    Service,
    /// Decides between two versions of a document: a component of the world `resolver` or `resolver-with-history`.
    Resolver,
    /// Functions for queries.
    Functions,
    /// Creates index entries from documents.
    IndexType,
}

impl World {
    /// All worlds, each with an interface that identifies it.
    const MARKS: [(World, &str); 5] = [
        (World::Service, "nacre:plugin/feed@0.1.0"),
        (World::Resolver, RESOLUTION_WITH_HISTORY),
        (World::Resolver, "nacre:plugin/resolution@0.1.0"),
        (World::Functions, "nacre:plugin/scalar@0.1.0"),
        (World::IndexType, "nacre:plugin/projection@0.1.0"),
    ];

    /// Returns the name in `plugins/wit`.
    pub fn as_str(self) -> &'static str {
        match self {
            World::Service => "service",
            World::Resolver => "resolver",
            World::Functions => "functions",
            World::IndexType => "index-type",
        }
    }

    /// Returns true if a plugin of this world may import `capability`: plugins without state may only log, and
    /// functions may also query.
    pub fn has(self, capability: Capability) -> bool {
        match self {
            World::Service => true,
            World::Functions => matches!(capability, Capability::Log | Capability::Query),
            World::Resolver | World::IndexType => capability == Capability::Log,
        }
    }

    /// Returns the world of a component that exports `interfaces`.
    pub(crate) fn of(interfaces: &[String]) -> std::result::Result<World, Error> {
        let marked = |(_, mark): &&(World, &str)| interfaces.iter().any(|name| name == mark);
        let world = World::MARKS.iter().find(marked).map(|(world, _)| *world);
        world.ok_or_else(|| {
            let marks: Vec<_> = World::MARKS.iter().map(|(_, mark)| *mark).collect();
            Error::Component(format!("it exports none of {}", marks.join(", ")))
        })
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Indices of the exports of a component's world; the types of the exports are checked.
#[derive(Clone)]
pub struct Indices {
    lifecycle: lifecycle::GuestIndices,
    feed: Option<feed::GuestIndices>,
    reader: Option<reader::GuestIndices>,
    timer_handler: Option<timer_handler::GuestIndices>,
    resolution: Option<resolution::GuestIndices>,
    resolution_with_history: Option<resolution_with_history::GuestIndices>,
    scalar: Option<scalar::GuestIndices>,
    projection: Option<projection::GuestIndices>,
}

impl Indices {
    /// Returns the indices for `world`, for a component that exports `interfaces`.
    pub fn new(world: World, interfaces: &[String], pre: &InstancePre<Data>) -> Result<Indices> {
        let is = |wanted: World| (world == wanted).then_some(pre);
        let service = is(World::Service);
        let sees_histories = interfaces.iter().any(|name| name == RESOLUTION_WITH_HISTORY);
        let resolver = |of_this_version: bool| is(World::Resolver).filter(|_| of_this_version);
        Ok(Indices {
            lifecycle: lifecycle::GuestIndices::new(pre)?,
            feed: service.map(feed::GuestIndices::new).transpose()?,
            reader: service.map(reader::GuestIndices::new).transpose()?,
            timer_handler: service.map(timer_handler::GuestIndices::new).transpose()?,
            resolution: resolver(!sees_histories).map(resolution::GuestIndices::new).transpose()?,
            resolution_with_history: resolver(sees_histories)
                .map(resolution_with_history::GuestIndices::new)
                .transpose()?,
            scalar: is(World::Functions).map(scalar::GuestIndices::new).transpose()?,
            projection: is(World::IndexType).map(projection::GuestIndices::new).transpose()?,
        })
    }

    /// Returns the exports of an instance.
    pub fn load(
        &self,
        mut store: impl AsContextMut<Data = Data>,
        instance: &Instance,
    ) -> Result<Exports> {
        macro_rules! load {
            ($interface:ident) => {
                match &self.$interface {
                    Some(indices) => Some(indices.load(&mut store, instance)?),
                    None => None,
                }
            };
        }
        Ok(Exports {
            lifecycle: self.lifecycle.load(&mut store, instance)?,
            feed: load!(feed),
            reader: load!(reader),
            timer_handler: load!(timer_handler),
            resolution: load!(resolution),
            resolution_with_history: load!(resolution_with_history),
            scalar: load!(scalar),
            projection: load!(projection),
        })
    }
}

/// The callable exports. A call to an interface of another world is an error, not a panic.
pub struct Exports {
    pub lifecycle: lifecycle::Guest,
    feed: Option<feed::Guest>,
    reader: Option<reader::Guest>,
    timer_handler: Option<timer_handler::Guest>,
    resolution: Option<resolution::Guest>,
    resolution_with_history: Option<resolution_with_history::Guest>,
    scalar: Option<scalar::Guest>,
    projection: Option<projection::Guest>,
}

macro_rules! exported {
    ($($interface:ident)*) => {
        impl Exports {
            $(pub fn $interface(&self) -> Result<&$interface::Guest> {
                let missing = || wasmtime::Error::msg(concat!("it does not export ", stringify!($interface)));
                self.$interface.as_ref().ok_or_else(missing)
            })*
        }
    };
}

exported!(feed reader timer_handler resolution resolution_with_history scalar projection);

impl Exports {
    /// Returns true if the component is a resolver that sees histories.
    pub fn sees_histories(&self) -> bool {
        self.resolution_with_history.is_some()
    }
}
