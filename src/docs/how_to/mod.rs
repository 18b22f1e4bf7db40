//! How to do what many programs need. Each page is short, and its program runs as a test.
//!
//! | page | for |
//! | --- | --- |
//! | [`workers`] | a worker loop with retries, back-off and dead letters |
//! | [`graceful_shutdown`] | ending at SIGTERM, in threads and in tokio |
//! | [`leader_election`] | stopping the workers, keeping the queue, resuming |
//! | [`debounce`] | debounce, throttle, rate limits |
//! | [`kinds_of_keys`] | one queue for several kinds of keys |
//! | [`in_order`] | every message counts, in order for each key |
//! | [`latest_value`] | the latest value wins |
//! | [`acknowledge`] | messages that are acknowledged after the work |
//! | [`back_pressure`] | producers that wait for room |
//! | [`batches`] | batches to a database |
//! | [`testing`] | tests of retries and delays without sleeping |
//! | [`metrics`] | metrics in ten lines |
//! | [`tenants`] | tenants that take turns; limits, rates and holds for each |
//! | [`priorities`] | urgent keys first, without starving the others |
//! | [`borrowed_keys`] | keys that borrow, or are costly to copy |
//! | [`from_channels`] | coming from a channel |
//! | [`from_controller_runtime`] | coming from controller-runtime (for client-go: [`coming_from_client_go`](super::coming_from_client_go)) |
//! | [`from_kube`] | coming from kube-rs, or using its watchers |

// What the pages link to.
#[cfg(doc)]
use crate::{limiter::*, worker::*, *};

#[doc = include_str!("acknowledge.md")]
pub mod acknowledge {}

#[doc = include_str!("back_pressure.md")]
pub mod back_pressure {}

#[doc = include_str!("batches.md")]
pub mod batches {}

#[doc = include_str!("borrowed_keys.md")]
pub mod borrowed_keys {}

#[doc = include_str!("debounce.md")]
pub mod debounce {}

#[doc = include_str!("from_channels.md")]
pub mod from_channels {}

#[doc = include_str!("from_controller_runtime.md")]
pub mod from_controller_runtime {}

#[doc = include_str!("from_kube.md")]
pub mod from_kube {}

#[doc = include_str!("graceful_shutdown.md")]
pub mod graceful_shutdown {}

#[doc = include_str!("in_order.md")]
pub mod in_order {}

#[doc = include_str!("kinds_of_keys.md")]
pub mod kinds_of_keys {}

#[doc = include_str!("latest_value.md")]
pub mod latest_value {}

#[doc = include_str!("leader_election.md")]
pub mod leader_election {}

#[doc = include_str!("metrics.md")]
pub mod metrics {}

#[doc = include_str!("priorities.md")]
#[doc = include_str!("priorities.svg")]
pub mod priorities {}

#[doc = include_str!("tenants.md")]
#[doc = include_str!("tenants.svg")]
pub mod tenants {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("workers.md")]
pub mod workers {}
