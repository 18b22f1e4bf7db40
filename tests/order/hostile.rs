//! Defects that a hostile review has found (`h`), and tests for planted bugs that none has found (`s`).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::timed::{HOUR, built, ms, secs};
use keyqueue::{ValueQueue, WorkQueue, merge};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

type Key = (&'static str, u32);

#[test] // C9 G6
fn h1_a_getter_that_ends_a_hold_wakes_the_others() {
    let (queue, time) = built(|builder| builder.group_by(|key: &Key| key.0));
    for group in ["a", "b", "c"] {
        queue.hold_group(&group, secs(1));
        queue.add((group, 1));
    }
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut asleep = Box::pin(queue.get_async());
    assert!(asleep.as_mut().poll(&mut context).is_pending());
    time.advance(secs(1));
    // Before the timer's tick, a worker that has become free looks for a key.
    let item = queue.try_get().unwrap();
    // The timer's tick.
    queue.fire_due();
    // Two groups are ready, each with a key.
    assert!(
        count.get() > 0,
        "the getter sleeps, {} keys are ready",
        queue.len()
    );
    drop(item);
}

#[test] // C9 T1
fn h2_each_token_wakes_a_getter_when_the_keys_are_in_several_groups() {
    let (queue, time) = built(|builder| builder.group_by(|key: &Key| key.0).dispatch_rate(10.0, 1));
    queue.add_all([("a", 1), ("b", 1), ("c", 1)]);
    let first = queue.try_get().unwrap();
    let wakers: Vec<_> = (0..2).map(|_| Arc::new(Count::default())).collect();
    let mut getters: Vec<_> = wakers
        .iter()
        .map(|count| (Waker::from(Arc::clone(count)), Box::pin(queue.get_async())))
        .collect();
    for (waker, getter) in &mut getters {
        let mut context = Context::from_waker(waker);
        assert!(getter.as_mut().poll(&mut context).is_pending());
    }
    let mut items = vec![first];
    let mut done = [false; 2];
    for _ in 0..20 {
        // A token each time. The timer ticks, and who was woken is polled.
        time.advance(ms(100));
        queue.fire_due();
        for (n, (waker, getter)) in getters.iter_mut().enumerate() {
            if wakers[n].get() > 0 && !done[n] {
                wakers[n].0.store(0, Ordering::SeqCst);
                let mut context = Context::from_waker(waker);
                if let Poll::Ready(item) = getter.as_mut().poll(&mut context) {
                    items.push(item.unwrap());
                    done[n] = true;
                }
            }
        }
    }
    assert_eq!(
        items.len(),
        3,
        "a getter sleeps with tokens and a key there"
    );
}

fn paced_values() -> (ValueQueue<&'static str, u32>, keyqueue::MockClock) {
    let (clock, time) = keyqueue::Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = builder
        .merge(merge::latest)
        .dispatch_rate(1.0, 1)
        .build()
        .unwrap();
    (queue, time)
}

#[test] // T1
fn h3_a_removed_value_costs_no_token() {
    let (queue, _) = paced_values();
    queue.put("a", 1);
    assert_eq!(queue.remove(&"a"), Some(1));
    queue.put("b", 1);
    assert_eq!(
        queue.try_get().map(|item| *item.key().key()).ok(),
        Some("b")
    );
}

#[test] // T1
fn h4_clear_costs_no_token_and_takes_all() {
    let (queue, _) = built(|builder| builder.dispatch_rate(1.0, 2));
    queue.add_all(0..10);
    assert_eq!(queue.clear(), 10);
}

#[test] // G6
fn h4b_clear_takes_the_keys_of_held_groups() {
    let (queue, _) = built(|builder| builder.group_by(|key: &Key| key.0));
    queue.hold_group(&"a", HOUR);
    queue.add_all([("a", 1), ("b", 1)]);
    assert_eq!(queue.clear(), 2);
}

#[test] // T2 C10
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn h5_keys_whose_interval_is_over_are_forgotten() {
    let queue = WorkQueue::builder().min_interval(ms(1)).build().unwrap();
    #[derive(Clone)]
    struct K(u64, #[allow(dead_code)] Arc<()>);
    impl PartialEq for K {
        fn eq(&self, o: &K) -> bool {
            self.0 == o.0
        }
    }
    impl Eq for K {}
    impl std::hash::Hash for K {
        fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
            self.0.hash(h)
        }
    }
    let alive = Arc::new(());
    for n in 0..100_000 {
        queue.add(K(n, Arc::clone(&alive)));
        queue.get().unwrap().done();
    }
    let end = std::time::Instant::now() + ms(300);
    while std::time::Instant::now() < end {
        let _ = queue.get_timeout(ms(10)); // a getter that waits may sweep
    }
    queue.shrink();
    let left = Arc::strong_count(&alive) - 1;
    assert!(
        left < 10_000,
        "{left} idle keys are kept, 300 times their interval later"
    );
}

#[test] // T1
fn h6_a_bucket_that_never_fills_is_refused() {
    let refused = WorkQueue::<u32>::builder().dispatch_rate(1e-9, 100).build();
    assert_eq!(refused.unwrap_err().field(), "dispatch_rate");
}

#[test] // P2
fn h7_a_removed_value_costs_no_turn_of_its_level() {
    let queue = WorkQueue::builder()
        .merge(merge::latest)
        .levels(2)
        .starvation_limit(4)
        .build()
        .unwrap();
    for n in 0..100 {
        queue.put_at(0, n, 0);
    }
    for n in 100..140 {
        queue.put_at(1, n, 0);
    }
    // Most of the less urgent keys are taken back.
    for n in 100..139 {
        queue.remove(&n);
    }
    let first = queue
        .try_iter()
        .position(|item| *item.key().key() == 139)
        .unwrap();
    assert!(first < 4, "delivery {first}: the level has starved");
}

#[test] // T2
fn h8_a_removed_value_begins_no_interval() {
    let (clock, _time) = keyqueue::Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = builder
        .merge(merge::latest)
        .min_interval(HOUR)
        .build()
        .unwrap();
    queue.put("a", 1);
    assert_eq!(queue.remove(&"a"), Some(1));
    assert!(queue.try_get().is_err());
    queue.put("a", 2);
    assert!(
        queue.try_get().is_ok(),
        "was never delivered, and has to wait for an hour"
    );
}

#[test] // P3 C10
fn h9_raised_keys_that_are_done_are_forgotten_while_urgent_keys_come() {
    let queue = WorkQueue::builder().levels(2).build().unwrap();
    #[derive(Clone)]
    struct K(u64, #[allow(dead_code)] Arc<()>);
    impl PartialEq for K {
        fn eq(&self, o: &K) -> bool {
            self.0 == o.0
        }
    }
    impl Eq for K {}
    impl std::hash::Hash for K {
        fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
            self.0.hash(h)
        }
    }
    let alive = Arc::new(());
    // One more urgent key is always there.
    queue.add_at(0, K(u64::MAX, Arc::clone(&alive)));
    for n in 0..100_000 {
        let key = K(n, Arc::clone(&alive));
        queue.add_at(1, key.clone());
        queue.add_at(0, key);
        queue.get().unwrap().done();
    }
    queue.shrink();
    let left = Arc::strong_count(&alive) - 1;
    assert!(
        left < 10_000,
        "{left} idle keys are kept, {} are queued",
        queue.len()
    );
}

#[test] // G3
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn h10_a_group_is_not_forgotten_while_a_delivery_of_it_ends() {
    use std::sync::atomic::AtomicBool;
    let queue = WorkQueue::builder()
        .group_by(|key: &u64| *key)
        .timing(true)
        .shards(2)
        .build()
        .unwrap();
    let stop = AtomicBool::new(false);
    let stop = &stop;
    let queue = &queue;
    std::thread::scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || {
                struct Stop<'a>(&'a AtomicBool);
                impl Drop for Stop<'_> {
                    fn drop(&mut self) {
                        self.0.store(true, Ordering::Relaxed)
                    }
                }
                let _stop = Stop(stop);
                let mut n = thread;
                let end = std::time::Instant::now() + secs(20);
                while !stop.load(Ordering::Relaxed) && std::time::Instant::now() < end {
                    n += 6;
                    queue.add(n);
                    if let Ok(item) = queue.try_get() {
                        item.done();
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    queue.shrink();
                }
            });
        }
    });
}

/// Takes a key as it is woken: an executor that polls at once.
struct TakesAtOnce(Arc<ValueQueue<&'static str, u32>>);

impl Wake for TakesAtOnce {
    fn wake(self: Arc<Self>) {
        drop(self.0.try_get());
    }
}

fn put_beside_a_waker_that_takes(raise: bool) {
    let _watchdog = crate::common::watchdog(10);
    let builder = WorkQueue::builder().merge(merge::latest).levels(2);
    let queue = Arc::new(builder.build().unwrap());
    let kept = Waker::from(Arc::new(Count::default()));
    let mut kept_asleep = Box::pin(queue.get_async());
    if raise {
        // The first put wakes this one, which does not take its key.
        assert!(
            kept_asleep
                .as_mut()
                .poll(&mut Context::from_waker(&kept))
                .is_pending()
        );
    }
    let waker = Waker::from(Arc::new(TakesAtOnce(Arc::clone(&queue))));
    let mut asleep = Box::pin(queue.get_async());
    assert!(
        asleep
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    queue.put_at(1, "b", 1);
    if raise {
        queue.put_at(0, "b", 2);
    }
    assert!(queue.is_empty());
}

#[test] // C9 P3, passes: a put that raises nothing
fn h11a_control_a_waker_may_take_the_key_of_a_put() {
    put_beside_a_waker_that_takes(false);
}

#[test] // C9 P3
fn h11_a_waker_may_take_the_key_that_a_put_raises() {
    put_beside_a_waker_that_takes(true);
}

#[test] // G5 C10
fn h13_a_bucket_costs_no_memory_for_each_token_taken() {
    let (queue, _) = built(|builder| {
        builder
            .group_by(|key: &Key| key.0)
            .group_rate(1.0, 10_000_000)
    });
    let rss = || -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    };
    let before = rss();
    for _ in 0..5_000_000 {
        queue.add(("a", 1));
        queue.try_get().unwrap().done();
    }
    queue.shrink();
    let grown = rss().saturating_sub(before) >> 20;
    assert!(grown < 10, "one key of one group: {grown} MiB");
}

#[test] // B2
#[cfg_attr(miri, ignore = "slow")]
fn h16_a_merged_add_takes_no_room_from_another_one() {
    let queue = WorkQueue::builder().capacity(2).build().unwrap();
    queue.add(0);
    let (mut tries, mut refused) = (0_usize, 0_usize);
    std::thread::scope(|scope| {
        let merges = scope.spawn(|| {
            for _ in 0..1_000_000 {
                let _ = queue.try_add(0);
            }
        });
        while !merges.is_finished() {
            // Only key 0 is queued, so there is room for one key more.
            tries += 1;
            refused += usize::from(queue.try_add(1).is_err());
            // Both are delivered; then key 0 is queued again.
            let items: Vec<_> = queue.try_iter().collect();
            drop(items);
            queue.add(0);
        }
    });
    let counts = queue.counts();
    let room = (10..20).filter(|key| queue.try_add(*key).is_ok()).count();
    assert_eq!((refused, room), (0, 1), "of {tries}; {counts:?}");
}

#[test] // S8 G6
fn h17_groups_of_an_abandoned_queue_have_no_queued_keys() {
    let (queue, _) = built(|builder| builder.group_by(|key: &Key| key.0));
    queue.add(("a", 1));
    queue.hold_group(&"a", HOUR);
    assert_eq!(queue.shut_down_now().queued, 1);
    let groups = queue.groups::<&str>();
    assert!(groups.iter().all(|group| group.queued == 0), "{groups:?}");
}

#[test] // C10
fn h18_one_key_that_is_raised_over_and_over_costs_no_memory() {
    let queue = WorkQueue::builder().levels(2).build().unwrap();
    queue.add_at(0, 7);
    let rss = || -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = rss();
    for _ in 0..5_000_000 {
        queue.add_at(1, 1);
        queue.add_at(0, 1);
        let item = queue.get().unwrap();
        queue.add_at(0, 7);
        item.done();
    }
    let grown = rss().saturating_sub(before) >> 20;
    let began = std::time::Instant::now();
    while queue.try_get().is_ok() {}
    assert!(
        grown < 10,
        "two keys: {grown} MiB; the next get took {:?}",
        began.elapsed()
    );
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn room_is_kept(seed: u64, set: impl Fn(keyqueue::Builder<u64>) -> keyqueue::Builder<u64>) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1);
    let (queue, time) = built(|builder| set(builder).capacity(6));
    let handle = queue.handle(3);
    let mut held = Vec::new();
    let mut log = Vec::new();
    for _ in 0..60 {
        let key = random.below(8);
        let op = random.below(14);
        log.push((op, key));
        match op {
            0 => _ = queue.add(key),
            1 => _ = queue.add_at(random.below(3) as usize, key),
            2 | 3 => _ = queue.try_add(key),
            4 => _ = queue.add_after(key, ms(random.below(30))),
            5 => _ = queue.cancel(&key),
            6 | 7 => held.extend(queue.try_get().ok()),
            8 if !held.is_empty() => held.swap_remove(0).done(),
            9 if !held.is_empty() => _ = held.swap_remove(0).retry_after(ms(random.below(20))),
            10 => {
                time.advance(ms(random.below(20)));
                queue.fire_due();
            }
            11 if random.below(4) == 0 => _ = queue.clear(),
            12 => _ = handle.add(),
            13 => _ = queue.add_wait_timeout(key, std::time::Duration::ZERO),
            _ => {}
        }
    }
    let counts = queue.counts();
    let room = 6_usize.saturating_sub(counts.queued + counts.delayed);
    let found = (100..120).filter(|key| queue.try_add(*key).is_ok()).count();
    assert_eq!(found, room, "seed {seed}, {counts:?}, {log:?}");
    drop(held);
    // And nothing is lost: all that is queued comes out.
    for _ in 0..2000 {
        time.advance(ms(10));
        queue.fire_due();
        while let Ok(item) = queue.try_get() {
            item.done();
        }
    }
    let counts = queue.counts();
    assert_eq!(
        (counts.queued, counts.delayed, queue.len()),
        (0, 0, 0),
        "seed {seed}"
    );
    let found = (100..120).filter(|key| queue.try_add(*key).is_ok()).count();
    assert_eq!(found, 6, "seed {seed}, {log:?}");
}

#[test] // B1 B3
fn h20_room_is_neither_lost_nor_doubled() {
    use keyqueue::DelayPolicy;
    for seed in 1..4000 {
        room_is_kept(seed, |builder| builder);
        room_is_kept(seed, |builder| builder.levels(3).supersede_delays(true));
        room_is_kept(seed, |builder| {
            builder.levels(3).delay_policy(DelayPolicy::Latest)
        });
        room_is_kept(seed, |builder| {
            builder
                .group_by(|key| key % 2)
                .group_limit(1)
                .levels(3)
                .group_rate(200.0, 2)
        });
        room_is_kept(seed, |builder| {
            builder
                .group_by(|key| key % 2)
                .min_interval(ms(15))
                .supersede_delays(true)
        });
    }
}

/// Returns how many of 200 deliveries go to a group of weight 3, beside one of weight 1.
fn share(workers: usize, limit: usize) -> u32 {
    let (queue, _) = built(|builder| {
        builder
            .group_by(|key: &Key| key.0)
            .group_limit(limit)
            .group_weight(|group: &&str| if *group == "paying" { 3 } else { 1 })
    });
    for n in 0..300 {
        queue.add_all([("free", n), ("paying", n)]);
    }
    let mut held = std::collections::VecDeque::new();
    let (mut paying, mut all) = (0, 0);
    while all < 200 {
        match queue.try_get() {
            Ok(item) if held.len() < workers => {
                all += 1;
                paying += u32::from(item.0 == "paying");
                held.push_back(item);
                if held.len() == workers {
                    held.pop_front();
                }
            }
            _ => _ = held.pop_front(),
        }
    }
    paying
}

#[test] // G1 G2
fn h21_a_weight_holds_with_a_limit() {
    let shares: Vec<_> = [
        (1, 9),
        (2, 9),
        (4, 9),
        (2, 1),
        (2, 2),
        (3, 2),
        (3, 3),
        (4, 3),
        (8, 4),
    ]
    .map(|(workers, limit)| (workers, limit, share(workers, limit)))
    .into();
    println!("(workers, limit, of 200): {shares:?}");
}

#[test] // G6
fn h22_a_short_hold_does_not_end_a_long_one() {
    use keyqueue::worker::{Outcome, Workers};
    let (queue, time) = built(|builder| builder.group_by(|key: &Key| key.0));
    queue.add(("a", 1));
    let queue = &queue;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            Workers::new(queue).threads(1).run(|_: &Key| {
                // Somebody who looks after the tenant stops it for an hour.
                queue.hold_group(&"a", HOUR);
                drop(queue.shut_down_on_drop());
                Outcome::HoldGroup(secs(1))
            })
        });
    });
    let held = queue
        .groups::<&str>()
        .first()
        .and_then(|group| group.held_for);
    let _ = time;
    assert_eq!(held, Some(HOUR));
}

/// Blocking getters sleep; others try, time out, are dropped after they were woken, or take batches. All keys
/// have to come, and no later add or shut-down makes up for a lost wake-up.
fn nobody_oversleeps(
    name: &str,
    rounds: usize,
    set: impl Fn(keyqueue::Builder<u64>) -> keyqueue::Builder<u64>,
) {
    use std::sync::atomic::AtomicBool;
    for round in 0..rounds {
        let queue = set(WorkQueue::builder()).build().unwrap();
        let seen = AtomicUsize::new(0);
        let noise_ends = AtomicBool::new(false);
        let (queue, seen, noise_ends) = (&queue, &seen, &noise_ends);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(move || {
                    for item in queue.iter() {
                        item.done();
                        seen.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            scope.spawn(move || {
                let waker = Waker::from(Arc::new(Count::default()));
                let mut n = round;
                while !noise_ends.load(Ordering::SeqCst) {
                    n += 1;
                    let got = match n % 5 {
                        0 => usize::from(queue.try_get().is_ok()),
                        1 => {
                            let limit = std::time::Duration::from_micros(30);
                            usize::from(queue.get_timeout(limit).is_ok())
                        }
                        2 | 3 => {
                            let mut getter = Box::pin(queue.get_async());
                            let mut context = Context::from_waker(&waker);
                            let mut got = 0;
                            for _ in 0..n % 3 {
                                if let Poll::Ready(Some(_)) = getter.as_mut().poll(&mut context) {
                                    got = 1;
                                    break;
                                }
                                std::thread::yield_now();
                            }
                            got
                        }
                        _ => queue.try_get_batch(3).map_or(0, |batch| batch.len()),
                    };
                    seen.fetch_add(got, Ordering::SeqCst);
                }
            });
            let mut keys = 0;
            for n in 0..40 {
                keys += usize::from(queue.add(n) == keyqueue::Added::Queued);
                if n % 8 == 3 {
                    queue.hold_group(&(n % 5), std::time::Duration::from_micros(700));
                }
                if n % 16 == 9 {
                    queue.release_group(&(n % 5));
                }
            }
            noise_ends.store(true, Ordering::SeqCst);
            let began = std::time::Instant::now();
            while seen.load(Ordering::SeqCst) < keys {
                if began.elapsed() > secs(5) {
                    let (len, groups) = (queue.len(), queue.groups::<u64>());
                    queue.shut_down();
                    panic!("{name}, round {round}: {len} queued, {groups:?}, {queue:?}");
                }
                std::thread::yield_now();
            }
            queue.shut_down();
        });
    }
}

#[test] // C9
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn h30_nobody_oversleeps() {
    let by = |builder: keyqueue::Builder<u64>| builder.group_by(|key| key % 5);
    nobody_oversleeps("groups", 300, by);
    nobody_oversleeps("pace", 150, |builder| by(builder).dispatch_rate(5000.0, 1));
    nobody_oversleeps("pace 1e6", 300, |builder| by(builder).dispatch_rate(1e6, 1));
    nobody_oversleeps("rate", 150, |builder| by(builder).group_rate(2000.0, 2));
    nobody_oversleeps("limit", 300, |builder| by(builder).group_limit(1).levels(3));
    nobody_oversleeps("all", 100, |builder| {
        by(builder)
            .group_limit(1)
            .group_rate(3000.0, 2)
            .dispatch_rate(8000.0, 3)
            .group_weight(|_: &u64| u32::MAX)
            .min_interval(std::time::Duration::from_micros(300))
    });
}

#[test] // C9 G6, passes: for the planted bug "pop never says more"
fn s1_a_getter_that_leaves_keys_in_its_group_wakes_another() {
    let (queue, _) = built(|builder| builder.group_by(|key: &Key| key.0));
    queue.hold_group(&"a", HOUR);
    queue.add_all([("a", 1), ("a", 2)]);
    assert!(queue.try_get().is_err());
    let counts = [(); 2].map(|()| Arc::new(Count::default()));
    let mut getters = [(); 2].map(|()| Box::pin(queue.get_async()));
    for (getter, count) in getters.iter_mut().zip(&counts) {
        let waker = Waker::from(Arc::clone(count));
        assert!(
            getter
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    queue.release_group(&"a");
    assert_eq!((counts[0].get(), counts[1].get()), (1, 0));
    let waker = Waker::from(Arc::clone(&counts[0]));
    let item = getters[0].as_mut().poll(&mut Context::from_waker(&waker));
    assert!(item.is_ready());
    assert_eq!(counts[1].get(), 1);
}

#[test] // T1 G1, passes: for the planted bug "without a token, the group goes to the tail"
fn s2_a_group_that_misses_a_token_keeps_its_place() {
    let (queue, time) = built(|builder| builder.group_by(|key: &Key| key.0).dispatch_rate(1.0, 1));
    queue.add_all([("a", 1), ("a", 2), ("b", 1)]);
    assert_eq!(*queue.try_get().unwrap(), ("a", 1));
    for _ in 0..3 {
        assert!(queue.try_get().is_err());
    }
    time.advance(secs(1));
    assert_eq!(*queue.try_get().unwrap(), ("b", 1));
}

#[test] // P2 G4, passes: for the planted bug "the same less urgent level each time"
fn s3_the_less_urgent_levels_of_a_group_take_turns() {
    let (queue, _) = built(|builder| {
        builder
            .group_by(|key: &Key| key.0)
            .levels(3)
            .starvation_limit(2)
    });
    for n in 0..12 {
        queue.add_at(n as usize % 3, ("a", n));
    }
    let levels: Vec<_> = queue.try_iter().take(8).map(|item| item.level()).collect();
    assert_eq!(levels, [0, 1, 0, 2, 0, 1, 0, 2]);
}
