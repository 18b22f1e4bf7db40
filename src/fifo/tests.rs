//! The FIFO compared with a plain deque, and, when threads race, with the times of the calls.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::keys::hash::ShortHash;
use crate::keys::node::{Node, NodeRef};
use crate::keys::state::State;
use crate::scaled::scaled;
use crate::sync::atomic::AtomicUsize;

const RINGS: [usize; 4] = [1, 2, 3, 1024];

/// Pushes a node in its own allocation.
fn push<K>(fifo: &Fifo<K>, key: K) {
    let node = Box::new(Node::new(ShortHash::of(0), State::Queued, false, key));
    let node = NodeRef(NonNull::from(Box::leak(node)));
    fifo.push(Queued::of_new(node));
}

fn pop<K>(fifo: &Fifo<K>) -> Option<K> {
    let link = fifo.pop()?.link();
    // SAFETY: the link of a node from `push`, which was popped once.
    let node = unsafe {
        let node = link.byte_sub(offset_of!(Node<K>, link));
        Box::from_raw(node.cast::<Node<K>>().as_ptr())
    };
    Some(node.key)
}

/// Runs of pushes (true) and pops, and how long each is.
fn ops() -> impl Strategy<Value = Vec<(bool, usize)>> {
    // Bursts beyond one refill, and beyond the large ring.
    let many = prop_oneof![6 => 1..6_usize, 2 => 1..300_usize, 1 => 1..1500_usize];
    let most = if cfg!(miri) { 6 } else { 60 };
    prop::collection::vec((any::<bool>(), many), 1..most)
}

proptest! {
    // C1, C8
    #[test]
    fn one_thread_sees_a_deque(ring in prop::sample::select(&RINGS[..]), ops in ops()) {
        let fifo = Fifo::new(ring);
        let mut model = VecDeque::new();
        let mut next = 0_u64;
        for (pushes, many) in ops {
            for _ in 0..many {
                if pushes {
                    push(&fifo, next);
                    model.push_back(next);
                    next += 1;
                } else {
                    prop_assert_eq!(pop(&fifo), model.pop_front());
                }
            }
            prop_assert_eq!(fifo.len(), model.len());
            prop_assert_eq!(fifo.is_empty(), model.is_empty());
        }
        while let Some(expected) = model.pop_front() {
            prop_assert_eq!(pop(&fifo), Some(expected));
        }
        prop_assert!(pop(&fifo).is_none());
        prop_assert_eq!(fifo.len(), 0);
    }
}

/// What a pop returned, and when it began and ended on the common clock.
type Popped = (Option<(usize, usize)>, Range<usize>);

fn timed_pop(fifo: &Fifo<(usize, usize)>, clock: &AtomicUsize) -> Popped {
    let began = clock.fetch_add(1, Ordering::SeqCst);
    let entry = pop(fifo);
    (entry, began..clock.fetch_add(1, Ordering::SeqCst))
}

/// Each producer's entries came out once each, and no pop of a later one had returned before the
/// pop of an earlier one began.
fn assert_exactly_once_in_order(mut pops: Vec<Popped>, producers: usize, entries: usize) {
    pops.retain(|(entry, _)| entry.is_some());
    pops.sort_by_key(|(entry, _)| *entry);
    let expected = (0..producers)
        .flat_map(|producer| (0..entries).map(move |sequence| Some((producer, sequence))));
    let popped = pops.iter().map(|(entry, _)| *entry);
    assert!(popped.eq(expected), "an entry is lost, or came out twice");
    for pops in pops.chunks(entries) {
        let mut later_ended = usize::MAX;
        for (entry, time) in pops.iter().rev() {
            let overtaken = time.start > later_ended;
            assert!(
                !overtaken,
                "{entry:?} at {time:?}, a later one until {later_ended}"
            );
            later_ended = later_ended.min(time.end);
        }
    }
}

// C1, C3, C5
#[test]
fn racing_threads_get_every_entry_once_and_each_producers_in_order() {
    const PRODUCERS: usize = 3;
    const POPPERS: usize = 3;
    const ENTRIES: usize = scaled(4_000);
    for ring in RINGS {
        let fifo = Fifo::new(ring);
        let (clock, popped) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let start = Barrier::new(PRODUCERS + POPPERS);
        let logs = thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let (fifo, start) = (&fifo, &start);
                scope.spawn(move || {
                    start.wait();
                    for sequence in 0..ENTRIES {
                        push(fifo, (producer, sequence));
                        if sequence % 97 == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
            let poppers: Vec<_> = (0..POPPERS)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        let mut log = Vec::new();
                        while popped.load(Ordering::SeqCst) < PRODUCERS * ENTRIES {
                            let pop = timed_pop(&fifo, &clock);
                            match pop.0 {
                                None => thread::yield_now(),
                                Some(_) => _ = popped.fetch_add(1, Ordering::SeqCst),
                            }
                            log.push(pop);
                        }
                        log
                    })
                })
                .collect();
            let logs = poppers.into_iter().map(|popper| popper.join().unwrap());
            logs.flatten().collect()
        });
        assert_exactly_once_in_order(logs, PRODUCERS, ENTRIES);
        assert!(pop(&fifo).is_none());
        assert_eq!(fifo.len(), 0);
    }
}

// C5: the hazard in the header: a pop does not miss entries that are being moved.
#[test]
fn none_is_answered_only_when_nothing_is_left() {
    const POPPERS: usize = 3;
    const ENTRIES: usize = 12;
    for round in 0..scaled(3_000) {
        let fifo = Fifo::new(1 + round % 3);
        let clock = AtomicUsize::new(0);
        let start = Barrier::new(POPPERS);
        (0..ENTRIES).for_each(|entry| push(&fifo, (0, entry)));
        let pop_until_none = || {
            let mut log = Vec::new();
            start.wait();
            while log.last().is_none_or(|(last, _): &Popped| last.is_some()) {
                log.push(timed_pop(&fifo, &clock));
            }
            log
        };
        let log: Vec<_> = thread::scope(|scope| {
            let poppers = [(); POPPERS].map(|()| scope.spawn(pop_until_none));
            let logs = poppers
                .into_iter()
                .flat_map(|popper| popper.join().unwrap());
            logs.collect()
        });
        let (some, none): (Vec<_>, Vec<_>) = log.iter().partition(|(entry, _)| entry.is_some());
        assert_eq!(some.len(), ENTRIES);
        let last_began = some.iter().map(|(_, time)| time.start).max().unwrap();
        let first_none = none.iter().map(|(_, time)| time.end).min().unwrap();
        assert!(
            last_began < first_none,
            "None was answered at {first_none}, a pop that began at {last_began} found an entry",
        );
    }
}

// C1: a popper that reads the count of the overflow also finds what is in the ring. Nothing but the
// count orders the two; Miri lets the popper read the ring as it was.
#[test]
fn visibility_of_the_ring_to_a_reader_of_the_count() {
    for _ in 0..scaled(1000) {
        let fifo = Fifo::new(1);
        thread::scope(|scope| {
            scope.spawn(|| (1..=2).for_each(|entry| push(&fifo, entry)));
            let mut popped = Vec::new();
            while popped.len() < 2 {
                match pop(&fifo) {
                    Some(entry) => popped.push(entry),
                    None => thread::yield_now(),
                }
            }
            assert_eq!(popped, [1, 2]);
        });
    }
}
