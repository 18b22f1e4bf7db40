//! A page in the browser for the running queues of [`keyqueue`]: what they hold, why it waits, what was given up; and, if it
//! is allowed, what to do about it.
//!
//! ```no_run
//! use std::sync::Arc;
//! use axum::Router;
//! use keyqueue::WorkQueue;
//! use keyqueue_board::{Board, Shown};
//!
//! # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
//! let queue = Arc::new(WorkQueue::<String>::new());
//! // ... workers, producers ...
//! let board = Board::new();
//! board.add("mails", Shown::display(&queue))?;
//! let app: Router = Router::new().nest_service("/queues", board.router());
//! # Ok(())
//! # }
//! ```
//!
//! # What it shows
//!
//! All queues that were [added](Board::add); of each one its depth by level and group, keys in hand, those that are held for
//! the longest time first, delayed keys with due time, attempt and last error, dead letters with value and error; a search;
//! and the last five minutes as pictures. Each page is JSON, too: `?format=json`, or `Accept: application/json`.
//!
//! With feature `nats` a board also shows fleets of `keyqueue-nats`: partitions, owners, lag and dead letters, from any
//! process that has a client; with feature `kafka`, the partitions of consumers of `keyqueue-kafka` in this process. The program `keyqueue-top` (feature `top`) shows the queues of a board in the terminal.
//!
//! Ages need a queue that is [timed](keyqueue::Builder::timing), as each one with a name is. Rates need feature `metrics`
//! and a name.
//!
//! # What it does
//!
//! Nothing, unless a [policy](Board::allow) says who may do what. Then: [each `Action`](Action). An action is a `POST` with
//! the token of the browser's cookie, so that other sites cannot act, and a `tracing` event with target `keyqueue_board`:
//! `who`, `action`, `queue`, `subject` (the key as it is shown), `count`, `partial`, `why`; a warning that says why, if it was refused. A request by a name
//! that is not in [`Board::hosts`] is refused, unless it is `localhost` or an IP address.
//!
//! # What it costs
//!
//! Nothing for a queue that nobody looks at. A look takes the lock of a shard for a tenth of a millisecond at a time. A page of keys
//! or of letters of a queue looks for 150 ms at most, and then links to where it goes on. The page of a queue visits all of its keys,
//! which viewers share: it is as old as keeps these looks below one part in 150 of a processor, at most 30 seconds. A live
//! page is sent again after a second, or later if it takes more than that part; one that asks servers, after five.
//!
//! # Who sees it
//!
//! Whoever reaches the router sees keys, values and errors. It checks nobody for that: put it behind the layer of the service
//! that does, or on a port that only operators reach. A formatter of [`Shown`] can leave out what is confidential.
#![deny(missing_docs, unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "kafka", feature = "nats")),
    allow(dead_code, reason = "what only fleets or consumers have")
)]

mod act;
mod board;
mod bulk;
mod csrf;
mod error;
mod events;
mod fleet;
mod history;
#[cfg(feature = "kafka")]
mod kafka;
mod letters;
mod live;
#[cfg(feature = "nats")]
mod nats;
mod pages;
mod picture;
mod place;
mod policy;
mod rows;
mod shown;
mod source;
mod text;
mod web;

pub use board::Board;
pub use error::NameError;
pub use policy::{Action, Asked};
pub use shown::Shown;

/// Runs the programs of the README, and of the page of `keyqueue`'s documentation, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../src/docs/how_to/board.md")]
struct Pages;
