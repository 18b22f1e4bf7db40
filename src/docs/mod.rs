//! Documentation pages, for what does not fit the reference of a single item.
//!
//! | page | read it to |
//! | --- | --- |
//! | [`how_to`] | do what many programs need: workers, graceful shutdown, debounce, tests ... |
//! | [`semantics`] | know what the queue promises, state by state |
//! | [`performance`] | choose or tune the queue: what operations cost, and where it loses |
//! | [`metrics`] | operate it: what it reports, what that costs, how to inspect it |
//! | [`how_it_ends`] | shut the queue down: what each call delivers, drops and waits for |
//! | [`limitations`] | know the pitfalls and limits |
//! | [`coming_from_client_go`] | port from the Go queue: each call and its counterpart |
//! | [`internals`] | change the crate: the parts, the protocols and the reasons |

// What the pages link to.
#[cfg(doc)]
use crate::{backoff::*, limiter::*, worker::*, *};

#[doc = include_str!("coming_from_client_go.md")]
pub mod coming_from_client_go {}

#[doc = include_str!("how_it_ends.md")]
pub mod how_it_ends {}

pub mod how_to;

#[doc = include_str!("internals.md")]
pub mod internals {}

#[doc = include_str!("limitations.md")]
pub mod limitations {}

#[doc = include_str!("metrics.md")]
pub mod metrics {}

#[doc = include_str!("performance.md")]
pub mod performance {}

/// What the queue promises.
///
#[doc = include_str!("state.svg")]
///
#[doc = include_str!("semantics.md")]
pub mod semantics {}
