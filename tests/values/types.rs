//! What compiles, and what the types are: `Send`, `Sync`, and in which order a builder is set.

use std::cell::Cell;
use std::hash::{BuildHasher, DefaultHasher, RandomState};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::thread;

use super::{lists, tracked};
use crate::common::timed::HOUR;
use keyqueue::limiter::{ItemFastSlow, NoLimit};
use keyqueue::worker::{Job, Workers};
use keyqueue::{Added, Full, GetError, Item, KeyHandle, Receipt, WorkQueue, merge};

/// `Send`, not `Sync`.
type Lonely = Cell<u32>;

const fn is_send<T: Send>() {}
const fn is_sync<T: Sync>() {}
const fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}

const _: () = {
    is_send::<WorkQueue<u32, Lonely>>();
    is_sync::<WorkQueue<u32, Lonely>>();
    is_send::<Item<'static, u32, Lonely>>();
    is_send::<Job<'static, u32, Lonely>>();
    is_send::<KeyHandle<u32, Lonely>>();
    is_sync::<KeyHandle<u32, Lonely>>();
    is_send::<Workers<'static, u32, Lonely>>();
    is_send::<Receipt>();
    is_sync::<Receipt>();
    is_send::<Full<(u32, Lonely)>>();
    is_unwind_safe::<WorkQueue<u32, Lonely>>();
    is_unwind_safe::<Item<'static, u32, Lonely>>();
    is_unwind_safe::<Receipt>();
};

fn send<T: Send>(value: T) -> T {
    value
}

#[test] // V1 V3
fn values_that_are_not_sync_can_be_carried() {
    let merge = |older: &mut Lonely, newer: Lonely| older.set(older.get() + newer.get());
    let queue: WorkQueue<&str, Lonely> = WorkQueue::builder()
        .rate_limiter(NoLimit)
        .merge(merge)
        .build()
        .unwrap();
    queue.put("a", Cell::new(1));
    queue.entry_ref(&"a").put(Cell::new(2));
    let mut item = queue.get().unwrap();
    let value = item.value_mut();
    value.set(value.get() * 10);
    queue.handle("a").put(Cell::new(4));
    let _ = item.retry();
    let mut item = queue.get().unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(move || item.take().map(Cell::into_inner));
        assert_eq!(inside.join().unwrap(), Some(34));
    });
}

/// A hasher that must stay in its thread.
struct Local(Rc<RandomState>);

impl BuildHasher for Local {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.0.build_hasher()
    }
}

#[test]
fn what_waits_for_keys_in_a_task_is_send_and_needs_no_pin_whatever_hashes_the_keys() {
    fn waits(_: impl Send + Unpin) {}
    let builder = WorkQueue::<u32>::builder().hasher(Local(Rc::default()));
    let queue = builder.merge(merge::latest::<Lonely>).build().unwrap();
    waits(queue.get_async());
    waits(queue.stream());
}

#[test] // V3
fn owned_items_finish_or_retry_in_other_threads() {
    let queue = lists::<u32>();
    for key in 0..10 {
        queue.put(key, vec![key]);
    }
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let mut item = queue.get().map(Item::into_owned).unwrap();
            thread::spawn(move || {
                let key = *item;
                assert_eq!(*item.value(), [key]);
                item.value_mut().push(100);
                if key.is_multiple_of(2) {
                    _ = item.retry();
                } else {
                    item.done();
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let mut left = super::deliveries(&queue);
    left.sort();
    let even = [0, 2, 4, 6, 8].map(|key| (key, vec![key, 100]));
    assert_eq!(left, even);
}

#[test] // B2
fn the_futures_of_puts_and_receipts_can_be_sent() {
    let queue = WorkQueue::builder()
        .merge(merge::latest)
        .capacity(1)
        .build()
        .unwrap();
    let put = send(queue.entry("a").put_async(Cell::new(1_u32)));
    assert!(pollster::block_on(put).is_accepted());
    let receipt = send(tracked(&queue, "a", Cell::new(2)));
    queue.get().unwrap().done();
    assert_eq!(pollster::block_on(receipt), keyqueue::Ended::Done);
}

#[test]
fn an_item_with_a_value_is_its_key() {
    let queue = lists::<String>();
    queue.put("pod".into(), vec![1]);
    assert_eq!(format!("{:?}", queue.get().unwrap()), "Item(\"pod\")");
}

#[test] // B1
fn invalid_bounds_are_refused() {
    let builder = || WorkQueue::<u32>::builder().merge(merge::append::<Vec<u32>>);
    let error = builder().capacity(0).build().unwrap_err().to_string();
    assert!(error.contains("capacity"), "{error}");
    let queue = builder()
        .weight(|_| 0)
        .capacity(usize::MAX)
        .build()
        .unwrap();
    assert!(queue.entry(1).try_put(vec![]).is_ok());
}

#[test] // V1 B1 G2 P1 L1
fn a_builder_is_set_in_any_order() {
    type Build = fn() -> WorkQueue<u32, Vec<u32>>;
    // `merge` first, in the middle, and last.
    let builds: [Build; 3] = [
        || {
            let builder = WorkQueue::builder().merge(merge::append).weight(Vec::len);
            let builder = builder.group_by(|key| key % 2).group_limit(1).levels(2);
            let builder = builder.rate_limiter(ItemFastSlow::new(HOUR, HOUR, 1).unwrap());
            builder.capacity(3).manual_timers().build().unwrap()
        },
        || {
            let builder = WorkQueue::builder().group_by(|key: &u32| key % 2).levels(2);
            let builder = builder.merge(merge::append).capacity(3).manual_timers();
            let builder = builder.rate_limiter(ItemFastSlow::new(HOUR, HOUR, 1).unwrap());
            builder.weight(Vec::len).group_limit(1).build().unwrap()
        },
        || {
            let builder = WorkQueue::builder().manual_timers().capacity(3).levels(2);
            let builder = builder.rate_limiter(ItemFastSlow::new(HOUR, HOUR, 1).unwrap());
            let builder = builder.group_by(|key: &u32| key % 2).group_limit(1);
            builder
                .merge(merge::append)
                .weight(Vec::len)
                .build()
                .unwrap()
        },
    ];
    for build in builds {
        let queue = build();
        queue.put(1, vec![1]);
        queue.put(1, vec![2]);
        assert_eq!(queue.entry(3).level(0).try_put(vec![3]), Ok(Added::Queued));
        assert!(queue.entry(2).try_put(vec![4]).is_err(), "by weight");
        let item = queue.try_get().unwrap();
        assert_eq!((*item, item.level()), (3, 0));
        assert_eq!(
            queue.try_get().unwrap_err(),
            GetError::Empty,
            "one of a group"
        );
        assert_eq!(item.retry(), Added::Delayed);
        assert_eq!((queue.num_requeues(&3), queue.counts().retrying), (1, 1));
        let item = queue.try_get().unwrap();
        assert_eq!((*item, item.value()), (1, &vec![1, 2]));
    }
}

#[test] // B1
fn a_weight_before_the_merge_is_refused_by_name() {
    let builder = WorkQueue::<u32>::builder().weight(|()| 1).capacity(2);
    let error = builder.build().unwrap_err();
    assert_eq!(error.field(), "weight");
    let text = error.to_string();
    assert!(text.contains("must come after `merge`"), "{text}");
    // After it, also of values that are nothing.
    let builder = WorkQueue::<u32>::builder().merge(merge::latest);
    let queue = builder.weight(|()| 2).capacity(2).build().unwrap();
    assert!(queue.entry(1).try_put(()).is_ok());
    assert!(queue.entry(2).try_put(()).is_err());
}
