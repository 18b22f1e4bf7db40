//! The memory of the process: what is allocated must be the same after every life (C10).

use std::alloc::System;

use memory_stats::memory_stats;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Lives until everything that is made once has been made.
const WARM_UP: u64 = 20;
/// How much more than after the warm-up may be allocated: the runtime's own caches.
const SLACK: usize = 1 << 20;

/// Looks at the heap after each life.
#[derive(Default)]
pub(crate) struct Watch {
    lives: u64,
    /// The most that was allocated after a life of the warm-up.
    base: usize,
    /// Allocated after the last life.
    pub(crate) left: usize,
}

fn allocated() -> usize {
    let stats = HEAP.stats();
    // What a reallocation adds or takes is in both already.
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated)
}

/// What the system has given to the process, in bytes; 0 if it does not tell.
pub(crate) fn resident() -> usize {
    memory_stats().map_or(0, |stats| stats.physical_mem)
}

impl Watch {
    pub(crate) fn life_ended(&mut self) {
        self.lives += 1;
        self.left = allocated();
        if self.lives <= WARM_UP {
            self.base = self.base.max(self.left);
        }
        assert!(
            self.left <= self.base + SLACK,
            "C10: {} bytes are allocated after life {}, {} after the first {WARM_UP}",
            self.left,
            self.lives,
            self.base
        );
    }
}
