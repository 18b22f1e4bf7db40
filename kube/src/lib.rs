#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod action;
mod attempt;
mod changes;
mod controller;
mod debounce;
mod error;
pub mod leader;
#[cfg_attr(not(feature = "metrics"), path = "metrics_off.rs")]
mod metrics;
mod reconcile;
mod work;

pub use attempt::{Attempt, current};
pub use controller::{Config, Controller, Reconciled};
pub use error::QueueError;
pub use keyqueue::worker::{Failure, GivenUp, Reason};
pub use keyqueue::{ConfigError, limiter};
pub use kube_runtime::controller::{Action, Error};
pub use leader::{LeaderElection, Leadership};
