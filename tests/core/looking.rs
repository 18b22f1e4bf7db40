//! Looking at a running queue in bounded steps, and running a delayed key now.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, built, secs};
use crate::common::{scaled, take_all, there};
use keyqueue::{Added, Clock, Counts, Cursor, Listed, State, WorkQueue, merge};

/// The keys on all pages, the number of pages, and what was counted.
fn pages(queue: &WorkQueue<u64>, listed: Listed, max: usize) -> (Vec<u64>, usize, Counts) {
    let (mut keys, mut counts, mut count) = (Vec::new(), Counts::default(), 0);
    counts.by_level = queue.counts().by_level.iter().map(|_| 0).collect();
    let mut next = Some(Cursor::default());
    while let Some(from) = next {
        let page = queue.page(from, listed, max);
        assert!(page.keys.len() < max + 16, "{} keys", page.keys.len());
        keys.extend(page.keys.iter().map(|key| *key.key()));
        counts.queued += page.counts.queued;
        counts.delayed += page.counts.delayed;
        counts.processing += page.counts.processing;
        assert_eq!(counts.by_level.len(), page.counts.by_level.len());
        for (all, more) in counts.by_level.iter_mut().zip(page.counts.by_level) {
            *all += more;
        }
        next = page.next;
        count += 1;
    }
    keys.sort_unstable();
    (keys, count, counts)
}

#[test] // X2 X4
fn all_pages_together_have_each_key_once_and_count_all() {
    for levels in [1, 3] {
        all_pages_of(built(|builder| builder.levels(levels)).0);
    }
}

fn all_pages_of(queue: WorkQueue<u64>) {
    let (queued, delayed) = (scaled(5000) as u64, scaled(300) as u64);
    queue.add_all(0..queued);
    queue.entry(queued / 2).level(0).add();
    (queued..queued + delayed).for_each(|key| _ = queue.add_after(key, HOUR));
    let held: Vec<_> = there(&queue).take(scaled(20)).collect();
    queue.add(*held[0]);
    for max in [1, 16, 100, usize::MAX - 16] {
        let (all, count, counts) = pages(&queue, Listed::All, max);
        assert!(all.into_iter().eq(0..queued + delayed), "{max} a page");
        assert_eq!(counts, queue.counts(), "{max} a page");
        assert!(max != 1 || count >= (queued + delayed) as usize / 16);
    }
    let hands: BTreeSet<u64> = held.iter().map(|item| **item).collect();
    let (processing, ..) = pages(&queue, Listed::Processing, 7);
    assert!(processing.into_iter().eq(hands.iter().copied()));
    let (later, ..) = pages(&queue, Listed::Delayed, 7);
    assert!(later.into_iter().eq(queued..queued + delayed));
    let (waiting, ..) = pages(&queue, Listed::Queued, 7);
    assert!(
        waiting
            .into_iter()
            .eq((0..queued).filter(|key| !hands.contains(key)))
    );
}

#[test] // X2
fn a_page_has_the_state_age_level_and_delay_of_a_key() {
    let (queue, time) = built::<u64>(|builder| builder.levels(3).timing(true));
    queue.entry(1).level(2).add();
    queue.add_after(2, secs(9));
    time.advance(secs(4));
    let page = queue.page(Cursor::default(), Listed::All, 10);
    let mut keys: Vec<_> = page.keys.iter().collect();
    keys.sort_by_key(|key| *key.key());
    assert_eq!((keys[0].state(), keys[0].level()), (State::Queued, Some(2)));
    assert_eq!((keys[0].age(), keys[0].due_in()), (Some(secs(4)), None));
    assert_eq!(
        (keys[1].state(), keys[1].due_in()),
        (State::Idle, Some(secs(5)))
    );
    assert_eq!((&*page.counts.by_level, page.next), (&[0, 0, 1][..], None));
}

#[test] // X4
fn a_page_looks_at_a_bounded_number_of_places_and_says_where_it_ended() {
    let (queue, _time) = built::<u64>(|builder| builder);
    let keys = scaled(300_000) as u64;
    queue.add_all(0..keys);
    // Nothing is delayed, so no page fills up.
    let (delayed, count, counts) = pages(&queue, Listed::Delayed, 10);
    assert_eq!((delayed.len(), counts.queued as u64), (0, keys));
    assert!(cfg!(miri) || count > 300_000 / 65_536, "{count} pages");
    let page = queue.page(Cursor::default(), Listed::Delayed, 10);
    assert!(page.counts.queued <= 65_536, "{:?}", page.counts);
}

#[test] // X4
#[cfg_attr(miri, ignore = "takes too long")]
fn a_page_that_begins_within_a_portion_looks_at_no_more_places() {
    let (queue, _time) = built::<u64>(|builder| builder.shards(64));
    queue.add_all(0..300_000);
    let page = queue.page(Cursor::from_bits(16), Listed::Delayed, 10);
    // The tables have powers of two of places, some of which it has passed: it has looked at 65 536.
    let next = page.next.unwrap().to_bits();
    assert_eq!((next >> 32 > 0, next % 1024), (true, 16));
}

#[test] // X4
fn a_cursor_survives_as_a_number_and_one_from_elsewhere_is_harmless() {
    let queue = WorkQueue::from_iter(0..1000_u64);
    let next = queue.page(Cursor::default(), Listed::All, 1).next.unwrap();
    assert_eq!(Cursor::from_bits(next.to_bits()), next);
    for bits in [1, 9 << 32, u64::MAX, u64::MAX >> 32, 1 << 63] {
        let _ = queue.page(Cursor::from_bits(bits), Listed::All, 10);
    }
    assert!(
        queue
            .page(Cursor::from_bits(u64::MAX), Listed::All, 10)
            .next
            .is_none()
    );
}

#[test] // X2 X4
fn pages_are_read_while_keys_come_and_go() {
    let queue = WorkQueue::new();
    queue.add_all(0..100_u64);
    thread::scope(|scope| {
        let _end = queue.shut_down_on_drop();
        scope.spawn(|| {
            queue
                .iter()
                .for_each(|item| _ = item.retry_after(Duration::from_micros(1)));
        });
        scope.spawn(|| (0..scaled(50_000) as u64).for_each(|key| _ = queue.add(key)));
        for _ in 0..scaled(200) {
            let _ = pages(&queue, Listed::All, 50);
        }
    });
}

#[test] // X3
fn a_delayed_key_is_run_now_once_with_its_level() {
    let (queue, time) = built::<u64>(|builder| builder.levels(3));
    queue.entry(1).level(0).after(HOUR).add();
    queue.add(2);
    assert_eq!(queue.run_now(&1), Some(Added::Queued));
    assert_eq!(
        (queue.counts().delayed, queue.counts().by_level),
        (0, vec![1, 1, 0])
    );
    time.advance(2 * HOUR);
    assert_eq!(queue.fire_due(), 0);
    assert_eq!(take_all(&queue), [1, 2]);
    for unknown in [1, 9] {
        assert_eq!(queue.run_now(&unknown), None);
    }
    queue.add_after(1, HOUR);
    queue.shut_down();
    assert_eq!(queue.run_now(&1), None);
}

#[test] // X3 D4
fn a_key_that_is_busy_is_run_now_as_by_an_add() {
    let (queue, _time) = built::<u64>(|builder| builder.capacity(2));
    queue.add_all([1, 2]);
    let item = queue.try_get().unwrap();
    (1..=2).for_each(|key| _ = queue.add_after(key, HOUR));
    assert_eq!(queue.run_now(&1), Some(Added::Deferred));
    assert_eq!(queue.run_now(&2), Some(Added::Merged));
    drop(item);
    assert_eq!(take_all(&queue), [2, 1]);
    // The room of the delays is free again.
    assert!(queue.entry(3).try_add().is_ok());
    assert!(queue.entry(4).try_add().is_ok());
    assert!(queue.entry(5).try_add().is_err());
}

#[test] // X3 V2
fn a_delayed_value_goes_with_its_key_that_is_run_now() {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue: WorkQueue<u64, Vec<u32>> = builder.merge(merge::append).build().unwrap();
    queue.entry(1).after(HOUR).put(vec![1]);
    assert_eq!(queue.run_now(&1), Some(Added::Queued));
    queue.put(1, vec![2]);
    let item = queue.try_get().unwrap();
    assert_eq!(item.value(), &[1, 2]);
    drop(item);
    time.advance(2 * HOUR);
    queue.fire_due();
    assert!(queue.try_get().is_err());
}

#[test] // X2
fn the_value_that_waits_can_be_looked_at() {
    let queue: WorkQueue<u64, Vec<u32>> =
        WorkQueue::builder().merge(merge::append).build().unwrap();
    queue.put(1, vec![7]);
    let read = || {
        let page = queue.page(Cursor::default(), Listed::All, 10);
        page.keys[0].with_value(|value| value.map(|numbers| numbers.to_vec()))
    };
    assert_eq!(read(), Some(vec![7]));
    let item = queue.get().unwrap();
    assert_eq!(read(), None); // the delivery has it
    queue.put(1, vec![8]);
    assert_eq!(read(), Some(vec![8]));
    assert_eq!(item.value(), &[7]);
}

#[test] // X2 V4
fn a_panic_while_a_value_is_looked_at_reaches_the_caller_alone() {
    let queue: WorkQueue<u64, Vec<u32>> =
        WorkQueue::builder().merge(merge::append).build().unwrap();
    queue.put(1, vec![7]);
    let page = queue.page(Cursor::default(), Listed::All, 10);
    let look = || page.keys[0].with_value(|_| panic!("while it looks"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err());
    drop(page);
    queue.put(1, vec![8]);
    assert_eq!(queue.get().unwrap().value(), &[7, 8]);
}
