//! What a queue holds, and what it allocates (C10).
//!
//! A global allocator counts. Each test runs in a separate process; `--nocapture` shows the
//! figures.

#[path = "../common/mod.rs"]
mod common;

mod delays;
mod groups;
mod queue;
mod steady;

use common::heap::CountingHeap;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;
