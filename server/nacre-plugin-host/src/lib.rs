//! Runs plugins on wasmtime: load, grant, limit, feed DCP events, call exports.
