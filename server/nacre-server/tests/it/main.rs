//! The binary from outside: real processes, real sockets, real signals.
#![expect(clippy::disallowed_methods, reason = "these tests start processes and wait for them")]

mod bad_input;
mod bench;
mod changes;
mod cluster;
mod copies;
mod crash;
mod dcp;
mod eventing;
mod eventing_queries;
mod eventing_trials;
mod eventing_typescript;
mod exactly_once;
mod graph;
mod history;
mod impostor;
mod models;
mod node_tls;
mod partitions;
mod plugin_functions;
mod plugin_projects;
mod plugin_resolver;
mod plugins;
mod process;
mod queries;
mod restart;
mod seats;
mod sh;
mod slow_clients;
mod space;
mod spread;
mod tls;
mod transactions;
mod user_functions;
mod users;
mod views;
