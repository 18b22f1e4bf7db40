//! What compiles, and what the types are: `Send`, `Sync`, and how a key with a value behaves.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::thread;

use super::lists;
use keyqueue::worker::ValueWorkers;
use keyqueue::{
    Full, KeyHandle, OwnedItem, Receipt, ValueItem, ValueQueue, Valued, WorkQueue, merge,
};

/// `Send`, not `Sync`.
type Lonely = Cell<u32>;

const fn is_send<T: Send>() {}
const fn is_sync<T: Sync>() {}
const fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}

const _: () = {
    is_send::<Valued<u32, Lonely>>();
    is_sync::<Valued<u32, Lonely>>();
    is_send::<ValueQueue<u32, Lonely>>();
    is_sync::<ValueQueue<u32, Lonely>>();
    is_send::<ValueItem<'static, u32, Lonely>>();
    is_send::<OwnedItem<Valued<u32, Lonely>>>();
    is_send::<KeyHandle<Valued<u32, Lonely>>>();
    is_sync::<KeyHandle<Valued<u32, Lonely>>>();
    is_send::<ValueWorkers<'static, u32, Lonely>>();
    is_send::<Receipt>();
    is_sync::<Receipt>();
    is_send::<Full<(u32, Lonely)>>();
    is_unwind_safe::<ValueQueue<u32, Lonely>>();
    is_unwind_safe::<ValueItem<'static, u32, Lonely>>();
    is_unwind_safe::<Receipt>();
};

fn send<T: Send>(value: T) -> T {
    value
}

#[test] // V1 V3
fn values_that_are_not_sync_can_be_carried() {
    let merge = |older: &mut Lonely, newer: Lonely| older.set(older.get() + newer.get());
    let queue: ValueQueue<&str, Lonely> = WorkQueue::builder().merge(merge).build().unwrap();
    queue.put("a", Cell::new(1));
    queue.entry_ref(&"a").put(Cell::new(2));
    let mut item = queue.get().unwrap();
    let value = item.value_mut();
    value.set(value.get() * 10);
    queue.handle("a".into()).put(Cell::new(4));
    let _ = item.retry();
    let mut item = queue.get().unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(move || item.take().map(Cell::into_inner));
        assert_eq!(inside.join().unwrap(), Some(34));
    });
}

#[test] // V3
fn owned_items_finish_or_retry_in_other_threads() {
    let queue = Arc::new(lists::<u32>());
    for key in 0..10 {
        queue.put(key, vec![key]);
    }
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let mut item = queue.get_owned().unwrap();
            thread::spawn(move || {
                let key = **item.key();
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
    let receipt = send(queue.entry("a").tracked().put(Cell::new(2)).1);
    queue.get().unwrap().done();
    assert_eq!(pollster::block_on(receipt), keyqueue::Ended::Done);
}

#[test]
fn a_key_with_a_value_is_the_key() {
    let key = || Valued::<String, Vec<u32>>::from(String::from("pod"));
    assert_eq!((key().key().as_str(), key().len()), ("pod", 3));
    assert_eq!(
        (format!("{:?}", key()), format!("{}", key())),
        ("\"pod\"".into(), "pod".into())
    );
    assert!(HashSet::from([key()]).contains(&String::from("pod")));
    assert!(key() == key() && key() != String::from("other").into());
    let queue = lists::<String>();
    queue.put("pod".into(), vec![1]);
    assert_eq!(format!("{:?}", queue.get().unwrap()), "Item(\"pod\")");
}

#[test] // B1
fn invalid_bounds_are_refused() {
    let builder = || WorkQueue::<u32>::builder().merge(merge::append::<Vec<u32>, _>);
    let error = builder().capacity(0).build().unwrap_err().to_string();
    assert!(error.contains("capacity"), "{error}");
    let queue = builder()
        .weight(|_| 0)
        .capacity(usize::MAX)
        .build()
        .unwrap();
    assert!(queue.entry(1).refuse().put(vec![]).is_ok());
}
