//! Documentation in pages: what the reference of each item is too narrow for.
//!
//! These modules hold text alone.
//!
//! | page | for whom |
//! | --- | --- |
//! | [`semantics`] | who uses the queue: what is promised, state by state |
//! | [`performance`] | who chooses it, or tunes it: what an operation costs, and where it loses |
//! | [`metrics`] | who runs it: what it reports of itself, what that costs, how to look inside |
//! | [`limitations`] | who is about to be surprised |
//! | [`coming_from_client_go`] | who knows the Go queue: each call beside ours, and what differs |
//! | [`internals`] | who changes it: the parts, the protocols, and why they are so |

#[doc = include_str!("coming_from_client_go.md")]
pub mod coming_from_client_go {}

#[doc = include_str!("internals.md")]
pub mod internals {}

#[doc = include_str!("limitations.md")]
pub mod limitations {}

#[doc = include_str!("metrics.md")]
pub mod metrics {}

#[doc = include_str!("performance.md")]
pub mod performance {}

#[doc = include_str!("semantics.md")]
pub mod semantics {}
