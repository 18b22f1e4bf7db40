//! The queue and a single lock on 1 to 64 processors: a model, not a measurement.
//!
//! `cargo run --release -p compare --example scale`
//!
//! Simulated processors add, get and finish different keys, which recur, while 512 others are
//! queued; at once, or after 10 us of work for each. The program counts the cache lines that they
//! take from each other.
//!
//! Modelled: the shards' locks, four shards for each processor; the nodes, two in a line; the ring
//! with its hints, slots nine words apart, lost exchanges and back-off; the lock, map and list of the
//! single lock. A processor waits for each access. A read costs a transfer if another processor has
//! written the line since, a write if another has the line at all. A line makes one transfer at a
//! time.
//!
//! Not modelled: lines that are only read, new keys and sweeps, sleeping and waking, preemption, store
//! buffers, sockets, the limits of the interconnect. A lock goes from one processor to the next
//! without a lost attempt and without a system call, which flatters the single lock.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Nanoseconds, as measured on an EPYC: the way of a line from core to core, a pause, a yield.
const TRANSFER: u64 = 54;
const PAUSE: u64 = 15;
const YIELD: u64 = 500;

/// An access to a line: whether it writes, and what it takes if the processor has the line.
type Access = (bool, u64);
const READ: Access = (false, 1);
const WRITE: Access = (true, 1);
const EXCHANGE: Access = (true, 5);

/// The recurring keys, the number of keys that are queued at any time, and the ring's slots.
const KEYS: u64 = 4096;
const QUEUED: u64 = 512;
const SLOTS: u64 = 1024;
/// The keys that go through a queue before lines are counted, and while they are.
const WARM_UP: u64 = 20_000;
const COUNT: u64 = 100_000;

/// A part of a queue, and the number of a cache line in it.
type Line = (&'static str, u64);

#[derive(Default)]
struct Machine {
    now: Cell<u64>,
    /// The processor that runs now, and when each of them runs next.
    me: Cell<u64>,
    agenda: RefCell<BinaryHeap<Reverse<(u64, u64)>>>,
    /// For each line a bit for each processor that has it, and the end of its last transfer.
    lines: RefCell<HashMap<Line, (u64, u64)>>,
    transfers: Cell<u64>,
    done: Cell<u64>,
}

impl Machine {
    /// Takes the line if necessary, and returns when the processor has it.
    fn take(&self, line: Line, writes: bool) -> u64 {
        let me = 1 << self.me.get();
        let mut lines = self.lines.borrow_mut();
        let (holders, free_at) = lines.entry(line).or_default();
        let is_elsewhere = *holders & !me != 0 && (writes || *holders & me == 0);
        *holders = if writes { me } else { *holders | me };
        if !is_elsewhere {
            return self.now.get();
        }
        self.transfers.set(self.transfers.get() + 1);
        *free_at = self.now.get().max(*free_at) + TRANSFER;
        *free_at
    }

    /// Returns when the access is over. What it reads or changes takes effect then.
    async fn access(&self, line: Line, (writes, time): Access) {
        let end = self.take(line, writes) + time;
        self.sleep(end - self.now.get()).await;
    }

    async fn sleep(&self, time: u64) {
        self.run_at(self.now.get() + time, self.me.get());
        pause().await;
    }

    fn run_at(&self, time: u64, processor: u64) {
        self.agenda.borrow_mut().push(Reverse((time, processor)));
    }
}

/// Lets the others run until this processor is next on the agenda.
async fn pause() {
    let mut paused = false;
    poll_fn(|_| match std::mem::replace(&mut paused, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

#[derive(Default)]
struct Lock(Cell<bool>, RefCell<VecDeque<u64>>);

impl Lock {
    async fn lock(&self, on: &Machine, line: Line) {
        if self.0.replace(true) {
            self.1.borrow_mut().push_back(on.me.get());
            pause().await;
        }
        on.access(line, EXCHANGE).await;
    }

    async fn unlock(&self, on: &Machine, line: Line, access: Access) {
        on.access(line, access).await;
        match self.1.borrow_mut().pop_front() {
            Some(next) => on.run_at(on.now.get(), next),
            None => self.0.set(false),
        }
    }
}

/// Returns one of `lines` lines of a part, by the key's hash.
fn line(part: &'static str, key: u64, lines: u64) -> Line {
    let hash = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (part, ((hash >> 32) * lines) >> 32)
}

/// The key that is at the head when this one is at the tail.
fn oldest(key: u64) -> u64 {
    (key + KEYS - QUEUED) % KEYS
}

/// As in `src/contenders/single_lock.rs`: add, get and done.
async fn one_lock(on: &Machine, lock: &Lock, key: u64, work: u64) {
    // The map has room for twice the keys, an entry takes 16 bytes.
    let tags = |key| line("tags", key, 2 * QUEUED / 64);
    let entry = |key| line("entry", key, 2 * QUEUED / 4);
    let queued = |key| ("queued", key % SLOTS / 8);
    let old = oldest(key);
    let add = [tags(key), entry(key), queued(key)];
    for (lines, work) in [
        (&add[..], 0),
        (&[queued(old)], work),
        (&[tags(old), entry(old)], 0),
    ] {
        lock.lock(on, ("lock", 0)).await;
        on.access(("state", 0), WRITE).await;
        for line in lines {
            on.access(*line, WRITE).await;
        }
        lock.unlock(on, ("lock", 0), EXCHANGE).await;
        on.sleep(work).await;
    }
}

/// As in `src/fifo/ring`.
struct Ring {
    /// The tail and the head.
    hints: [Cell<u64>; 2],
    /// The number of pushes to and pops from each slot.
    slots: Vec<Cell<u64>>,
}

impl Ring {
    fn new() -> Self {
        let slots: Vec<_> = (0..SLOTS).map(|_| Cell::new(0)).collect();
        (0..QUEUED).for_each(|at| slots[(at * 9 % SLOTS) as usize].set(1));
        let hints = [Cell::new(QUEUED), Cell::new(0)];
        Ring { hints, slots }
    }

    /// Pushes a key (at `end` 0), or pops one (at `end` 1).
    async fn exchange(&self, on: &Machine, end: usize) {
        let hint = ("hint", end as u64);
        let mut snoozes = 0;
        loop {
            on.access(hint, READ).await;
            let mut position = self.hints[end].get();
            let (slot, line, uses) = loop {
                let (uses, at) = (2 * (position / SLOTS) + end as u64, position * 9 % SLOTS);
                let (slot, line) = (&self.slots[at as usize], ("slot", at / 8));
                on.access(line, READ).await;
                // The first attempt does not skip positions that are used.
                if slot.get() == uses || snoozes == 0 {
                    break (slot, line, uses);
                }
                position += 1;
            };
            if slot.get() == uses {
                on.access(line, EXCHANGE).await;
                if slot.get() == uses {
                    slot.set(uses + 1);
                    on.access(hint, WRITE).await;
                    return self.hints[end].set(position + 1);
                }
            }
            for _ in 0..3 {
                let time = if snoozes > 6 { YIELD } else { PAUSE << snoozes };
                on.sleep(time).await;
                snoozes += 1;
            }
        }
    }
}

/// As in `src/keys` and `src/engine`: add, get and done.
async fn keyqueue(on: &Machine, shards: &[Lock], ring: &Ring, key: u64, work: u64) {
    let node = |key| line("node", key, KEYS / 2);
    let shard = line("lock", key, shards.len() as u64);
    let lock = &shards[shard.1 as usize];
    lock.lock(on, shard).await;
    on.access(node(key), WRITE).await;
    lock.unlock(on, shard, WRITE).await;
    ring.exchange(on, 0).await;
    ring.exchange(on, 1).await;
    on.access(node(oldest(key)), EXCHANGE).await; // begin
    on.sleep(work).await;
    on.access(node(oldest(key)), EXCHANGE).await; // finish
}

/// Returns the transfers for each key, and millions of keys a second.
fn run(processors: u64, cycle: impl AsyncFn(&Machine, u64)) -> String {
    let (on, cycle) = (&Machine::default(), &cycle);
    let work = |me| async move {
        for n in 0.. {
            cycle(on, (n * processors + me) % KEYS).await;
            on.done.set(on.done.get() + 1);
        }
    };
    let mut workers: Vec<_> = (0..processors).map(|me| Box::pin(work(me))).collect();
    (0..processors).for_each(|me| on.run_at(0, me));
    let mut warm = (0, 0);
    while on.done.get() < WARM_UP + COUNT {
        let next = on.agenda.borrow_mut().pop();
        let Reverse((now, me)) = next.expect("the holder of a lock does not wait");
        on.now.set(now);
        on.me.set(me);
        let worker = workers[me as usize].as_mut();
        _ = worker.poll(&mut Context::from_waker(Waker::noop()));
        if on.done.get() < WARM_UP {
            warm = (now, on.transfers.get());
        }
    }
    let transfers = (on.transfers.get() - warm.1) as f64 / COUNT as f64;
    let speed = 1000.0 * COUNT as f64 / (on.now.get() - warm.0) as f64;
    format!("{transfers:.1} / {speed:.1}")
}

fn main() {
    println!("Lines that a key takes from other processors / millions of keys a second: a model\n");
    println!("| processors | keyqueue | one lock | keyqueue, 10 us of work | one lock, 10 us |");
    println!("| --- | --- | --- | --- | --- |");
    for processors in (0..=6).map(|log| 1 << log) {
        print!("| {processors} |");
        for work in [0, 10_000] {
            let shards: Vec<_> = (0..4 * processors).map(|_| Lock::default()).collect();
            let (ring, lock) = (&Ring::new(), &Lock::default());
            let ours = run(processors, async |on, key| {
                keyqueue(on, &shards, ring, key, work).await;
            });
            let locked = run(processors, async |on, key| {
                one_lock(on, lock, key, work).await;
            });
            print!(" {ours} | {locked} |");
        }
        println!();
    }
}
