//! The one place that knows whether this is a normal build or a model check.
//!
//! Everything concurrent in the crate imports its atomics, locks, cells and queues from here. There are three worlds:
//!
//! | build | runs on |
//! | --- | --- |
//! | normal | the standard library and crossbeam-queue ([`real`]) |
//! | `--cfg keyqueue_loom` | loom's types, and small stand-ins written on top of them (`model`), because loom sees nothing of what another crate does inside |
//! | `--cfg keyqueue_shuttle` | shuttle's types, and the same stand-ins |
//!
//! There is no `cfg` for it anywhere else.

#[cfg(not(any(keyqueue_loom, keyqueue_shuttle)))]
mod real;
#[cfg(not(any(keyqueue_loom, keyqueue_shuttle)))]
pub(crate) use real::*;

#[cfg(any(keyqueue_loom, keyqueue_shuttle))]
mod model;
#[cfg(any(keyqueue_loom, keyqueue_shuttle))]
pub(crate) use model::*;
