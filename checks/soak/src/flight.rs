//! How many keys of each group are in flight (G2).

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::plan::{HELD, Plan};
use crate::settings::{GROUP, Groups};

pub(crate) struct Flight {
    /// The groups, and the limit; `None` if there is none.
    limited: Option<(Groups, usize)>,
    counts: Vec<AtomicUsize>,
}

impl Flight {
    pub(crate) fn new(plan: &Plan) -> Self {
        let groups = plan.settings.groups.clone();
        let limited = groups.and_then(|groups| {
            let limit = groups.limit?;
            Some((groups, limit))
        });
        let held = plan.holders * HELD / GROUP;
        let places = limited
            .as_ref()
            .map_or(0, |(groups, _)| groups.count + held);
        Flight {
            limited,
            counts: (0..places).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Changes the count of the group of a key. Returns it as it was before, and the limit.
    fn change(&self, number: u64, by: usize) -> Option<(usize, usize)> {
        let (groups, limit) = self.limited.as_ref()?;
        let count = &self.counts[groups.place(number)];
        // Ordering: Relaxed; a delivery that the end of another makes possible is ordered behind it by the queue.
        Some((count.fetch_add(by, Ordering::Relaxed), *limit))
    }

    /// Notes that a delivery has begun.
    pub(crate) fn begin(&self, number: u64) {
        if let Some((others, limit)) = self.change(number, 1) {
            assert!(
                others < limit,
                "G2: {others} others of the group of {number} are in flight"
            );
        }
    }

    /// Notes that the worker is about to be done with the key.
    pub(crate) fn end(&self, number: u64) {
        self.change(number, usize::MAX); // one less
    }
}
