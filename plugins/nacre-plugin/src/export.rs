//! Macros that export a plugin as a component.

/// Exports a [`Service`](crate::Service) as a component of the world `service`. Does nothing outside Wasm.
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::world::exports::nacre::plugin::{feed, reader, timer_handler};
            use $crate::bindings::world::nacre::plugin::types::Fault;

            $crate::__component!($plugin, Service);

            impl feed::Guest for Component {
                fn on_batch(buffer: Vec<u8>) -> Result<feed::Outcome, Fault> {
                    with(|plugin| $crate::bindings::world::on_batch(plugin, &buffer))
                }
                fn rollback(vb: u16, seqno: u64) -> Result<Option<u64>, Fault> {
                    with(|plugin| $crate::bindings::world::rollback(plugin, vb, seqno))
                }
            }

            impl reader::Guest for Component {
                fn handle(request: reader::Request) -> Result<reader::Response, Fault> {
                    with(|plugin| $crate::bindings::world::handle(plugin, request))
                }
                fn more(cursor: Vec<u8>) -> Result<reader::Chunk, Fault> {
                    with(|plugin| $crate::bindings::world::more(plugin, &cursor))
                }
                fn merge(
                    request: reader::Request,
                    partials: Vec<reader::Response>,
                ) -> Result<reader::Response, Fault> {
                    with(|plugin| $crate::bindings::world::merge(plugin, request, partials))
                }
            }

            impl timer_handler::Guest for Component {
                fn on_timer(now_us: u64, timers: Vec<timer_handler::Due>) -> Result<(), Fault> {
                    with(|plugin| $crate::bindings::world::on_timer(plugin, now_us, timers))
                }
            }

            $crate::bindings::world::export_service!(Component with_types_in $crate::bindings::world);
        };
    };
}

/// Exports a [`Resolver`](crate::Resolver) as a component of the world `resolver-with-history`. Does nothing outside Wasm.
#[macro_export]
macro_rules! export_resolver {
    ($plugin:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::world::exports::nacre::plugin::resolution_with_history;
            use $crate::bindings::world::nacre::plugin::types::Fault;

            $crate::__component!($plugin, Resolver);

            impl resolution_with_history::Guest for Component {
                fn resolve(
                    conflict: resolution_with_history::Conflict,
                ) -> Result<resolution_with_history::Verdict, Fault> {
                    with(|plugin| $crate::bindings::world::resolve(plugin, conflict))
                }
            }

            $crate::bindings::world::export_resolver!(Component with_types_in $crate::bindings::world);
        };
    };
}

/// Exports [`Functions`](crate::Functions) as a component of the world `functions`. Does nothing outside Wasm.
#[macro_export]
macro_rules! export_functions {
    ($plugin:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::world::exports::nacre::plugin::scalar;
            use $crate::bindings::world::nacre::plugin::types::Fault;

            $crate::__component!($plugin, Functions);

            impl scalar::Guest for Component {
                fn call(name: String, arguments: String) -> Result<String, Fault> {
                    with(|plugin| $crate::bindings::world::call(plugin, &name, &arguments))
                }
            }

            $crate::bindings::world::export_functions!(Component with_types_in $crate::bindings::world);
        };
    };
}

/// Exports an [`IndexType`](crate::IndexType) as a component of the world `index-type`. Does nothing outside Wasm.
#[macro_export]
macro_rules! export_index_type {
    ($plugin:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::world::exports::nacre::plugin::projection;
            use $crate::bindings::world::nacre::plugin::types::Fault;

            $crate::__component!($plugin, IndexType);

            impl projection::Guest for Component {
                fn project(buffer: Vec<u8>) -> Result<Vec<projection::Entry>, Fault> {
                    with(|plugin| $crate::bindings::world::project(plugin, &buffer))
                }
            }

            $crate::bindings::world::export_index_type!(Component with_types_in $crate::bindings::world);
        };
    };
}

/// The common parts of components of all worlds: the plugin, `with` to access it, and `lifecycle`.
#[doc(hidden)]
#[macro_export]
macro_rules! __component {
    ($plugin:ty, $world:ident) => {
        struct Component;

        ::std::thread_local! {
            static PLUGIN: ::std::cell::RefCell<Option<$plugin>> =
                const { ::std::cell::RefCell::new(None) };
        }

        fn with<T>(call: impl FnOnce(&mut Option<$plugin>) -> T) -> T {
            PLUGIN.with_borrow_mut(call)
        }

        impl $crate::bindings::world::exports::nacre::plugin::lifecycle::Guest for Component {
            fn describe() -> String {
                <$plugin as $crate::$world>::describe()
            }
            fn init(config: String) -> Result<(), Fault> {
                let start = || <$plugin as $crate::$world>::init(&config);
                with(|plugin| $crate::bindings::init(plugin, start))
            }
        }
    };
}
