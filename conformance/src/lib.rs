//! Language-neutral conformance cases and the runner that plays them against any host.
