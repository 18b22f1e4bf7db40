//! Single paths through the queue, on one thread: what an operation allocates, which is asserted here,
//! and how many instructions it takes, which valgrind counts for `.ci/jobs/instructions.sh`.
//!
//! `cargo bench -p keyqueue-benches` asserts and prints the allocations; `-- PATH COUNT` does nothing but go so
//! often along a path; `-- --list` names them. Both counts are the difference between a run of 2n
//! operations and one of n, so that whatever is done once is in neither.

use std::hint::black_box;
use std::time::Duration;

use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue::{Clock, WorkQueue, merge};
use rig::heap::{CountingHeap, allocations};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

/// A way through the queue: its name, what one operation may allocate in the long run, and a
/// function that prepares what the path needs and takes it this often.
type Path = (&'static str, f64, fn(u64));

/// Recurring keys.
const KEYS: u64 = 1024;
/// For the allocations: enough for every table to have grown and been swept.
const COUNT: u64 = 1 << 17;

/// A table may grow at another size of the set than at the last run: its hashes are random.
const NONE: f64 = 0.001;

const PATHS: [Path; 18] = [
    // P5: a queue with one level takes no instruction more for there being levels.
    ("cycle-u64", NONE, cycle_u64),
    ("cycle-string", NONE, cycle_string),
    ("cycle-handle", NONE, cycle_handle),
    ("cycle-batch", 0.02, cycle_batch),
    ("duplicate", NONE, duplicate),
    ("duplicate-handle", NONE, duplicate_handle),
    ("dirty", NONE, dirty),
    ("distinct", 0.02, distinct),
    ("backlog", 0.1, backlog),
    ("delay", 0.1, delay),
    ("delay-moved", 0.1, delay_moved),
    // The hash seed of the process decides how often a small table is rebuilt: 0.03 in most, 0.1 in some.
    ("limiter", 0.2, limiter),
    ("levels", NONE, levels),
    ("groups", NONE, groups),
    ("bounded", NONE, bounded),
    ("values", NONE, values),
    ("values-merged", NONE, values_merged),
    ("values-distinct", 0.05, values_distinct),
];

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo's own, when it runs a bench.
    arguments.retain(|argument| argument != "--bench");
    match &arguments[..] {
        [] => assert_allocations(),
        [list] if list == "--list" => PATHS.iter().for_each(|(name, ..)| println!("{name}")),
        [name, count] => {
            let path = PATHS.iter().find(|path| path.0 == name);
            let count = count.parse().expect("the second argument is a number");
            (path.expect("the first argument is a path").2)(count);
        }
        _ => panic!("no arguments, --list, or a path and a count"),
    }
}

fn assert_allocations() {
    for (name, most, run) in PATHS {
        let allocated = |count| {
            // Ordering: Relaxed, here and below; there is one thread.
            let before = allocations();
            run(count);
            (allocations() - before) as f64
        };
        let once = allocated(COUNT);
        let each = (allocated(2 * COUNT) - once) / COUNT as f64;
        println!("{name:20} {each:.4} allocations, at most {most}");
        assert!(each <= most, "{name}: {each} allocations");
    }
}

fn passes(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| n % KEYS)
}

fn finish(queue: &WorkQueue<u64>) {
    drop(black_box(queue.get()));
}

fn cycle_u64(count: u64) {
    let queue = WorkQueue::new();
    for key in passes(count) {
        queue.entry_ref(&key).add();
        finish(&queue);
    }
}

fn cycle_string(count: u64) {
    let queue = WorkQueue::<String>::new();
    let name = |n| format!("namespace-{}/object-{n:03}", n % 10);
    let names: Vec<String> = (0..KEYS).map(name).collect();
    for key in passes(count) {
        queue.entry_ref(names[key as usize].as_str()).add();
        drop(black_box(queue.get()));
    }
}

fn cycle_handle(count: u64) {
    let queue = WorkQueue::new();
    let handles: Vec<_> = (0..KEYS).map(|key| queue.handle(key)).collect();
    for key in passes(count) {
        handles[key as usize].add();
        finish(&queue);
    }
}

fn cycle_batch(count: u64) {
    const BATCH: u64 = 64;
    let queue = WorkQueue::new();
    for batch in 0..count / BATCH {
        let first = batch * BATCH % KEYS;
        queue.add_all(first..first + BATCH);
        drop(black_box(queue.get_batch(BATCH as usize)));
    }
}

fn duplicate(count: u64) {
    let queue = WorkQueue::new();
    queue.add_all(0..KEYS);
    for key in passes(count) {
        black_box(queue.entry_ref(&key).add());
    }
}

fn duplicate_handle(count: u64) {
    let queue = WorkQueue::new();
    queue.add_all(0..KEYS);
    let handles: Vec<_> = (0..KEYS).map(|key| queue.handle(key)).collect();
    for key in passes(count) {
        black_box(handles[key as usize].add());
    }
}

/// A key that is added while it is processed, and so comes back.
fn dirty(count: u64) {
    let queue = WorkQueue::new();
    queue.add(0);
    for _ in 0..count {
        let item = queue.get().expect("it was added");
        black_box(queue.entry_ref(&0).add());
        item.done();
    }
}

/// Keys that never come back, one at a time.
fn distinct(count: u64) {
    let queue = WorkQueue::new();
    for key in 0..count {
        queue.add(key);
        finish(&queue);
    }
}

/// Keys that never come back, all of them queued before the first is taken.
fn backlog(count: u64) {
    let queue = WorkQueue::new();
    queue.add_all(0..count);
    (0..count).for_each(|_| finish(&queue));
}

/// So long that nothing comes up.
const FAR: Duration = Duration::from_secs(100);

fn levels(count: u64) {
    let queue = WorkQueue::builder().levels(3).build();
    let queue = queue.expect("the settings are valid");
    for key in passes(count) {
        queue.entry_ref(&key).add();
        finish(&queue);
    }
}

fn groups(count: u64) {
    let queue = WorkQueue::builder().group_by(|key: &u64| key % 100).build();
    let queue = queue.expect("the settings are valid");
    for key in passes(count) {
        queue.entry_ref(&key).add();
        finish(&queue);
    }
}

/// Adds that need room, and have it.
fn bounded(count: u64) {
    let queue = WorkQueue::builder().capacity(KEYS as usize).build();
    let queue = queue.expect("the settings are valid");
    for key in passes(count) {
        assert!(queue.entry(key).try_add().is_ok());
        finish(&queue);
    }
}

fn summing() -> WorkQueue<u64, u64> {
    let builder = WorkQueue::builder().merge(merge::sum);
    builder.build().expect("the settings are valid")
}

fn values(count: u64) {
    let queue = summing();
    for key in passes(count) {
        queue.put(key, 1);
        drop(black_box(queue.get()));
    }
}

fn values_merged(count: u64) {
    let queue = summing();
    for key in passes(count) {
        black_box(queue.put(key, 1));
    }
}

fn values_distinct(count: u64) {
    let queue = summing();
    for key in 0..count {
        queue.put(key, 1);
        drop(black_box(queue.get()));
    }
}

/// A queue whose time stands still, with no thread.
fn still() -> WorkQueue<u64> {
    let (clock, _) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).manual_timers();
    queue.build().expect("nothing is out of range")
}

/// Delays of distinct keys.
fn delay(count: u64) {
    let queue = still();
    for key in 0..count {
        queue.add_after(key, FAR + Duration::from_millis(key % 1000));
    }
    queue.fire_due();
}

/// Recurring keys, whose delays are taken back and set again.
fn delay_moved(count: u64) {
    let queue = still();
    for key in passes(count) {
        queue.cancel(&key);
        queue.add_after(key, FAR);
        queue.fire_due();
    }
}

/// A new one from time to time: where its hashes fall differs, and the average does less.
fn limiter(count: u64) {
    for _ in 0..count / (4 * KEYS) {
        let limiter = ItemExponentialFailure::new(Duration::from_millis(5), FAR);
        // A mocked clock: calibrating a real one takes as many instructions as it likes.
        let limiter = limiter.expect("in range").with_clock(Clock::mock().0);
        for key in passes(4 * KEYS) {
            black_box(limiter.when(&key));
            limiter.forget(&key);
        }
    }
}
