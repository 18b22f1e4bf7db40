#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod bell;
mod clerk;
mod client;
mod config;
mod consumer;
pub mod dead_letter;
mod driver;
mod ended;
mod error;
mod key;
mod lease;
mod metadata;
mod native;
mod record;
mod shared;
mod status;
mod tenure;
mod work;

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use config::{Builder, Exhausted, Place, Room};
pub use consumer::Consumer;
pub use ended::Ended;
pub use error::Error;
pub use key::OrderBy;
/// What a handler returns, from keyqueue. The table of [`Consumer::run_until`] says what each means here.
#[doc(inline)]
pub use keyqueue::worker::{IntoVerdict, IntoVerdicts, Outcome, Verdict};
pub use metadata::Metadata;
pub use record::Record;
pub use status::{Doing, Oldest, PartitionStatus, Status};

/// Locks. No code that may panic runs under a lock here.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls what may panic, such as code of the user: a limiter, or a subscriber of `tracing` whose output is closed.
///
/// # Errors
///
/// The message of a panic.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(call)).map_err(|payload| message(&*payload))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
    text.unwrap_or_else(|| "with a value that is no text".to_owned())
}
