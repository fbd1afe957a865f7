//! The guide. Its Rust examples run as tests.

#[cfg(feature = "query")]
#[doc = include_str!("../../../docs/guides/embed.md")]
struct _Guide;

#[cfg(feature = "sync")]
#[doc = include_str!("../../../docs/guides/sync-devices.md")]
struct _SyncGuide;
