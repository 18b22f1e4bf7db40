#![cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#![doc = include_str!("README.md")]

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("acknowledge.md")]
pub mod acknowledge {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("back_pressure.md")]
pub mod back_pressure {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("batches.md")]
pub mod batches {}

// Its programs are tests of keyqueue-board.
#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[cfg_attr(not(doctest), doc = include_str!("board.md"))]
pub mod board {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("borrowed_keys.md")]
pub mod borrowed_keys {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
// T3: its programs are tests.
#[doc = include_str!("debounce.md")]
pub mod debounce {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
// V6: its program has most combinations.
#[doc = include_str!("entries.md")]
pub mod entries {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("from_channels.md")]
pub mod from_channels {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("from_controller_runtime.md")]
pub mod from_controller_runtime {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("from_delay_queue.md")]
pub mod from_delay_queue {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("from_kube.md")]
pub mod from_kube {}

// Its programs need the feature. `cfg(doctest)` is set while programs are collected.
#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[cfg_attr(any(all(feature = "tokio", unix), not(doctest)), doc = include_str!("graceful_shutdown.md"))]
pub mod graceful_shutdown {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("in_order.md")]
pub mod in_order {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("kinds_of_keys.md")]
pub mod kinds_of_keys {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("latest_value.md")]
pub mod latest_value {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("leader_election.md")]
pub mod leader_election {}

// Its program needs the feature, too.
#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[cfg_attr(any(feature = "metrics", not(doctest)), doc = include_str!("metrics.md"))]
pub mod metrics {}

// Its program is a test of loom-tests and of checks/shuttle.
#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[cfg_attr(not(doctest), doc = include_str!("model_checking.md"))]
pub mod model_checking {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("priorities.md")]
#[doc = include_str!("priorities.svg")]
pub mod priorities {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("tenants.md")]
#[doc = include_str!("tenants.svg")]
pub mod tenants {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("testing.md")]
pub mod testing {}

#[cfg_attr(not(doctest), doc = include_str!("../links.md"))]
#[doc = include_str!("workers.md")]
pub mod workers {}
