//! Groups that leave: values of keys in hand, delays that have nothing to deliver, and those of queued keys (G8).

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::leaving::{lists, sorted};
use crate::common::timed::HOUR;
use crate::common::{figures, there};
use keyqueue::{Added, Ended, LeftReason, State, WorkQueue};

#[test] // G8 V2 S12
fn a_key_in_hand_whose_newer_value_is_taken_back_is_idle_when_it_is_done() {
    let (queue, _) = lists(|builder| builder);
    for number in 0..3 {
        queue.put(("a", number), vec![1]);
    }
    let mut items = queue.get_batch(3).unwrap().into_iter();
    queue.put(("a", 0), vec![2]);
    queue.entry(("a", 1)).after(HOUR).put(vec![3]);
    queue.put(("a", 1), vec![4]);
    queue.entry(("a", 2)).after(HOUR).put(vec![5]);
    // The last of two reasons.
    let expected = [
        (0, Some(vec![2]), LeftReason::Queued),
        (1, Some(vec![3, 4]), LeftReason::Queued),
        (2, Some(vec![5]), LeftReason::Delayed),
    ];
    assert_eq!(sorted(queue.take_group(&"a")), expected);
    items.by_ref().take(2).for_each(keyqueue::Item::done);
    assert_eq!(
        (queue.len(), queue.state(&("a", 0)), queue.state(&("a", 1))),
        (0, None, None)
    );
    // No back-off is cut short.
    assert_eq!(items.next().unwrap().retry_after(HOUR), Added::Delayed);
    assert_eq!(queue.state(&("a", 2)), Some(State::Idle));
}

#[test] // G8 V2
fn a_drain_of_a_group_counts_no_delay_that_has_nothing_to_deliver() {
    let (queue, _) = lists(|builder| builder);
    let left = || figures(queue.drain_group(&"a", Duration::ZERO).unwrap());
    queue.entry(("a", 1)).after(HOUR).put(vec![1]);
    assert_eq!(left(), (0, 0, 1));
    queue.put(("a", 1), vec![2]);
    assert_eq!(left(), (1, 0, 0));
    let item = queue.get().unwrap();
    assert_eq!(left(), (0, 1, 0));
    queue.entry(("a", 1)).after(HOUR).put(vec![3]);
    assert_eq!(left(), (0, 1, 1));
    queue.put(("a", 1), vec![4]);
    assert_eq!(left(), (0, 1, 0));
    item.done();
    assert_eq!(left(), (1, 0, 0));
    assert_eq!(there(&queue).count(), 1);
    assert!(
        queue
            .drain_group(&"a", Duration::ZERO)
            .unwrap()
            .is_nothing()
    );
    assert_eq!(queue.counts().delayed, 1);
}

#[test] // G8 V6
fn an_add_without_a_value_of_a_key_in_work_is_not_taken_back() {
    let (queue, _time) = lists(|builder| builder);
    queue.put(("a", 1), vec![1]);
    let item = queue.get().unwrap();
    let (entry, receipt) = queue.entry(("a", 1)).tracked();
    assert_eq!(entry.add(), Added::Deferred);
    assert_eq!(sorted(queue.take_group(&"a")), []);
    assert_eq!(receipt.ended(), None);
    queue.put(("a", 1), vec![2]);
    item.done();
    let item = queue.get().unwrap();
    assert_eq!((item.value().as_slice(), receipt.ended()), (&[2][..], None));
    item.done();
    assert_eq!(receipt.ended(), Some(Ended::Done));
}

thread_local! {
    /// Runs when the name of a group is hashed, which is before the entries of its keys are taken.
    static HASHED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

#[derive(Clone, PartialEq, Eq)]
struct Heard;

impl Hash for Heard {
    fn hash<H: Hasher>(&self, _: &mut H) {
        if let Some(run) = HASHED.take() {
            run();
        }
    }
}

#[test] // G8
fn a_queued_key_that_a_getter_is_faster_to_take_keeps_its_delay() {
    let queue = WorkQueue::builder().group_by(|_: &u32| Heard).build();
    let queue = Arc::new(queue.unwrap());
    queue.add_after(1, HOUR);
    queue.add(1);
    let getter = Arc::clone(&queue);
    HASHED.set(Some(Box::new(move || getter.try_get().unwrap().done())));
    assert!(queue.take_group(&Heard).unwrap().is_empty());
    assert!(HASHED.take().is_none());
    let left = queue.drain_group(&Heard, Duration::ZERO).unwrap();
    assert_eq!(figures(left), (0, 0, 1));
    let taken = queue.take_group(&Heard).unwrap();
    let taken: Vec<_> = taken.iter().map(|left| (left.key, left.reason)).collect();
    assert_eq!(taken, [(1, LeftReason::Delayed)]);
}
