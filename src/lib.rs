//! A keyed work queue: add a key as often as you like; it is handed out once, to one worker at a
//! time, and never lost.
#![deny(missing_docs)]

mod builder;
mod closing;
mod core;
mod drain;
mod error;
mod fifo;
mod get;
mod handle;
mod item;
mod keys;
pub mod limiter;
mod node;
mod outcome;
mod queue;
mod slab;
mod state;
mod sync;
mod wait;

pub use builder::Builder;
pub use error::{ConfigError, GetTimeoutError, TryGetError};
pub use get::GetAsync;
pub use handle::KeyHandle;
pub use item::{Batch, Item};
pub use outcome::{Added, Remaining};
pub use queue::{DefaultHasher, WorkQueue};
