//! The one place that knows whether this is a normal build or a model check.
//!
//! Everything concurrent in the crate imports its atomics, locks, cells, queues and the sharded
//! table from here. A normal build gets the standard library, crossbeam-queue and dashmap
//! ([`real`]); a build with `--cfg keyqueue_loom` gets loom's types and small stand-ins written
//! on top of them (`model`), because loom sees nothing of what another crate does inside.
//! There is no `cfg` for it anywhere else.

#[cfg(not(keyqueue_loom))]
mod real;
#[cfg(not(keyqueue_loom))]
pub(crate) use real::*;

#[cfg(keyqueue_loom)]
mod model;
#[cfg(keyqueue_loom)]
pub(crate) use model::*;
