//! The only module that knows whether this is a normal build or a model check.
//!
//! Everything concurrent in the crate imports its atomics, locks, cells and queues from here. There
//! are three builds:
//!
//! | build | runs on |
//! | --- | --- |
//! | normal | the standard library and crossbeam-queue ([`real`]) |
//! | `--cfg keyqueue_loom` | loom's types, and stand-ins on top of them (`model`) |
//! | `--cfg keyqueue_shuttle` | shuttle's types, and the same stand-ins |
//!
//! The stand-ins are needed because loom cannot observe the internals of another crate. Only `lib.rs`
//! has another `cfg` for this: it opens the ring to loom's models.

#[cfg(not(any(keyqueue_loom, keyqueue_shuttle)))]
mod real;
#[cfg(not(any(keyqueue_loom, keyqueue_shuttle)))]
pub(crate) use real::*;

#[cfg(any(keyqueue_loom, keyqueue_shuttle))]
mod model;
#[cfg(any(keyqueue_loom, keyqueue_shuttle))]
pub(crate) use model::*;
