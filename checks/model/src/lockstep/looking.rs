//! What can be seen of the keys (M2), compared.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Seen;
use crate::limit::{self, Span};
use keyqueue::KeySnapshot;

use super::{Held, Lockstep};
use crate::ledger::Key;

impl Lockstep<'_> {
    pub(super) fn snapshot(&self) {
        let expected = self.model.snapshot();
        assert_eq!(seen(&self.queue.snapshot()), self.visible(expected));
    }

    pub(super) fn stuck(&self, older_than: Span) {
        let mut keys = self.queue.snapshot();
        keys.retain(|key| key.held() >= Some(older_than.duration()));
        let mut expected = self.visible(self.model.snapshot());
        expected.retain(|_, key| key.held.is_some_and(|held| held >= older_than.nanos()));
        assert_eq!(seen(&keys), expected);
    }

    pub(super) fn compare_queue_time(&self, item: &Held<'_>) {
        let expected = limit::duration(self.model.queue_time(item.number));
        let expected = self.setup.timed().then_some(expected);
        assert_eq!(item.queue_time(), expected, "queue time of {}", item.number);
    }

    /// Without the ages, in a queue that is not timed.
    fn visible(&self, mut keys: BTreeMap<u64, Seen>) -> BTreeMap<u64, Seen> {
        if !self.setup.timed() {
            for key in keys.values_mut() {
                (key.age, key.held) = (None, None);
            }
        }
        keys
    }
}

fn seen(keys: &[KeySnapshot<'_, Key>]) -> BTreeMap<u64, Seen> {
    let nanos = |time: Option<Duration>| time.map(|time| time.as_nanos());
    let seen = keys.iter().map(|key| {
        let seen = Seen {
            state: key.state(),
            age: nanos(key.age()),
            held: nanos(key.held()),
            requeues: key.requeues(),
            due_in: nanos(key.due_in()),
        };
        (key.key().number, seen)
    });
    let by_id: BTreeMap<_, _> = seen.collect();
    assert_eq!(by_id.len(), keys.len(), "a key is there twice");
    by_id
}
