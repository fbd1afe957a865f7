//! One node: services and loops wired together over an injected clock and store.
