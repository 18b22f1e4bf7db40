//! What becomes of the queues with more processors than there are here: a model, not a measurement.
//!
//! Two cores show no contention worth the name. What limits a queue on many is known, though: the
//! cache lines that an operation writes and another processor has. So the operations are traced,
//! and the lines of the trace are handed round among simulated processors.
//!
//! 1. `trace`: this program runs itself under valgrind's lackey, which prints the address of every
//!    load and store. [`traced`] is what runs there: recurring keys through `add`, `get` and `done`
//!    of the real queue, on one thread, with others queued in between, and a mark before each step.
//! 2. `lines`: who has which line, and what the next access to it costs. A line that another
//!    processor has written costs a transfer, and so does writing one that others have read.
//! 3. [`curve`]: so many processors take the traced cycles in turn, each at its own time; a line that
//!    a step writes is its own from its first access to its last, and whoever wants it waits. That
//!    is how a lock works, and a contended counter.
//!
//! What it leaves out: back-off, waking and sleeping, retries of a failed exchange, the
//! interconnect's own limits, sockets, and that an operation may be preempted.

mod lines;
mod trace;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail, ensure};
use crossbeam_utils::CachePadded;
use keyqueue::WorkQueue;
use serde::{Deserialize, Serialize};

use crate::contenders::{Queue, SingleLock};
use crate::keys::Key;
use lines::Lines;
use trace::Operation;

/// Nanoseconds for a cache line to get from one core to another; measured on the machine of the
/// published figures.
pub(crate) const TRANSFER: f64 = 54.0;

/// Those of which there is a model.
pub(crate) const MODELLED: [&str; 2] = ["keyqueue", "single-lock"];

const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What the queue would choose itself with the most processors.
const SHARDS: usize = 4 * THREADS[THREADS.len() - 1];

/// Recurring keys, and how many of them are queued at any time.
const KEYS: usize = 4096;
const QUEUED: usize = 512;
/// Cycles that are traced: each key comes twice, so that every line has been written before.
const CYCLES: usize = 2 * KEYS;
/// Of a cycle: add, get, done.
const STEPS: usize = 3;

/// A queue by the number of processors.
#[derive(Serialize, Deserialize)]
pub(crate) struct Curve {
    pub(crate) contender: String,
    pub(crate) points: Vec<Point>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) threads: usize,
    /// Lines that came from another processor, for each key.
    pub(crate) transfers: f64,
    /// Millions of keys a second, all processors together.
    pub(crate) throughput: f64,
}

/// The curve of a contender, whose cycle takes one thread so many nanoseconds.
pub(crate) fn curve(contender: &str, cycle_ns: f64) -> Result<Curve> {
    let operations = trace::take(contender)?;
    ensure!(operations.len() == CYCLES * STEPS, "an incomplete trace");
    let accesses: usize = operations.iter().map(|it| it.accesses.len()).sum();
    let access_ns = cycle_ns * CYCLES as f64 / accesses as f64;
    let points = THREADS.map(|threads| simulate(&operations, threads, access_ns));
    Ok(Curve {
        contender: contender.to_owned(),
        points: points.into(),
    })
}

/// Lets that many processors take cycles in turn, and whoever is behind do its next step.
fn simulate(operations: &[Operation], threads: usize, access_ns: f64) -> Point {
    let mut lines = Lines::default();
    let mut cycles = operations.chunks(STEPS);
    let mut processors = vec![(0.0, [].iter()); threads];
    let mut transfers = 0;
    // The first half of the cycles warms the caches up.
    let (mut taken, mut start) = (0, 0.0);
    loop {
        let behind =
            (0..threads).min_by(|a, b| f64::total_cmp(&processors[*a].0, &processors[*b].0));
        let processor = behind.expect("there is one");
        let (clock, steps) = &mut processors[processor];
        if let Some(step) = steps.next() {
            transfers += lines.run(step, processor, clock, access_ns);
            continue;
        }
        let Some(cycle) = cycles.next() else { break };
        *steps = cycle.iter();
        taken += 1;
        if taken == CYCLES / 2 {
            (start, transfers) = (*clock, 0);
        }
    }
    // Whoever is the first to find none left: from then on they are no longer so many.
    let end = processors
        .iter()
        .map(|it| it.0)
        .fold(f64::INFINITY, f64::min);
    let keys = (CYCLES - CYCLES / 2) as f64;
    Point {
        threads,
        transfers: transfers as f64 / keys,
        throughput: keys * 1000.0 / (end - start),
    }
}

/// Stored to between two traced operations.
static MARK: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

/// What runs under valgrind: says where the mark is, and goes through the cycles.
pub(crate) fn traced(contender: &str) -> Result<()> {
    println!("{:x}", std::ptr::from_ref(&*MARK) as usize);
    match contender {
        "keyqueue" => {
            let queue = WorkQueue::builder().shards(SHARDS).build()?;
            cycles(&queue);
        }
        // Boxed, since what is on the stack counts as each thread's own.
        "single-lock" => cycles(&*Box::new(SingleLock::<u64>::new())),
        _ => bail!("there is no model of {contender}"),
    }
    Ok(())
}

fn cycles<C: Queue<u64>>(queue: &C) {
    let keys: Vec<u64> = (0..KEYS).map(u64::nth).collect();
    keys[..QUEUED].iter().for_each(|key| queue.add_ref(key));
    for n in 0..KEYS + CYCLES {
        // Once round without marks: every key is known by then.
        let mark = || {
            if n >= KEYS {
                // Ordering: Relaxed; one thread, and all that matters is that it is stored.
                MARK.store(black_box(1), Ordering::Relaxed);
            }
        };
        mark();
        queue.add_ref(&keys[(QUEUED + n) % KEYS]);
        mark();
        let item = queue.get().expect("a key is queued");
        mark();
        queue.done(item);
    }
    // Ordering: Relaxed; as above.
    MARK.store(black_box(1), Ordering::Relaxed);
}
