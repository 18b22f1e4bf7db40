//! Drains: threads and tasks wait until a queue that is shut down is at rest. They are on one list
//! with the tasks that wait for a shut-down to begin.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::Remaining;
use crate::engine::Core;
use crate::wait::blocking::block_until;
use crate::wait::listener::Listener;

/// The part of one drain in the redelivery of what is retried. Ends when it is dropped.
struct Redelivery<'q, K, V>(&'q Core<K, V>);

impl<K, V> Drop for Redelivery<'_, K, V> {
    fn drop(&mut self) {
        self.0.leave_redelivery();
    }
}

/// One drainer.
pub(crate) struct Drain<'q, K, V> {
    core: &'q Core<K, V>,
    /// Until the drain is out of time.
    redelivery: Option<Redelivery<'q, K, V>>,
    /// The number of releases of drainers before this one began.
    releases: usize,
    listener: Listener<'q>,
}

impl<'q, K, V> Drain<'q, K, V> {
    /// Shuts the queue down, and adds the delayed keys now if the queue is set to. A `shut_down`
    /// that begins after this call releases the drainer.
    pub(crate) fn begin(core: &'q Core<K, V>) -> Self {
        let drain = Drain {
            core,
            redelivery: Some(Redelivery(core)),
            releases: core.closing.releases(),
            listener: Listener::new(&core.closing.drainers),
        };
        core.close(core.drain_delays);
        drain
    }

    /// Blocks until the end or the deadline.
    pub(crate) fn wait(mut self, deadline: Option<Instant>) -> Remaining {
        let left = block_until(&mut self, deadline);
        left.unwrap_or_else(|| self.out_of_time())
    }

    /// Ends the redelivery, and returns what is left.
    pub(crate) fn out_of_time(&mut self) -> Remaining {
        self.redelivery = None;
        self.core.remaining()
    }
}

impl<K, V> Future for Drain<'_, K, V> {
    type Output = Remaining;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Remaining> {
        let Drain { core, releases, .. } = *self;
        let closing = &core.closing;
        self.listener.poll(context, || {
            if closing.all_finished() {
                // Counting visits every key, and none is left to count.
                return Some(Remaining {
                    delayed: closing.dropped(),
                    refused: closing.refused(),
                    ..Remaining::default()
                });
            }
            (closing.releases() != releases).then(|| core.remaining())
        })
    }
}
