//! The queues on more processors than this machine has: a model, not a measurement.
//!
//! What limits a queue on many processors is the cache lines that an operation writes and another
//! processor has. This program runs itself under valgrind's lackey, which prints every load and
//! store, and lets simulated processors take the traced cycles in turn. A processor keeps a line
//! that a step writes until the step ends, and another that needs the line waits, as for a lock.
//! A read costs a transfer if another processor has written the line since, a write if another
//! has the line at all. The model leaves out back-off, waking and sleeping, retries of a failed
//! exchange, the limits of the interconnect, sockets, and preemption.

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use crossbeam_utils::CachePadded;
use keyqueue::WorkQueue;
use serde::{Deserialize, Serialize};

use crate::contenders::SingleLock;
use crate::keys::Key;
use crate::queue::Queue;

/// Nanoseconds that a cache line takes from one core to another; measured on an EPYC.
pub(crate) const TRANSFER: f64 = 54.0;
/// The contenders of which there is a model.
pub(crate) const MODELLED: [&str; 2] = ["keyqueue", "single-lock"];
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The throughput of a queue by the number of processors.
#[derive(Serialize, Deserialize)]
pub(crate) struct Curve {
    pub(crate) contender: String,
    pub(crate) points: Vec<Point>,
}

/// For each key the lines that came from another processor, and millions of keys a second.
#[derive(Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) threads: usize,
    pub(crate) transfers: f64,
    pub(crate) throughput: f64,
}

/// The curve of a contender whose cycle takes one thread this many nanoseconds.
pub(crate) fn curve(contender: &str, cycle_ns: f64) -> Result<Curve> {
    let steps = take(contender)?;
    ensure!(steps.len() == CYCLES * STEPS, "an incomplete trace");
    let accesses: usize = steps.iter().map(Vec::len).sum();
    // The time without transfers is spread evenly over the accesses.
    let access_ns = cycle_ns * CYCLES as f64 / accesses as f64;
    let points = THREADS.map(|threads| simulate(&steps, threads, access_ns));
    let (contender, points) = (contender.to_owned(), points.into());
    Ok(Curve { contender, points })
}

/// Lets that many processors take cycles in turn; the one furthest behind does its next step.
fn simulate(steps: &[Step], threads: usize, access_ns: f64) -> Point {
    let mut lines = Lines::default();
    let mut cycles = steps.chunks(STEPS);
    let mut processors = vec![(0.0, [].iter()); threads];
    // The first half of the cycles fills the caches.
    let (mut taken, mut start, mut transfers) = (0, 0.0, 0);
    let end = loop {
        let all = processors.iter_mut().enumerate();
        let behind = all.min_by(|a, b| f64::total_cmp(&a.1.0, &b.1.0));
        let (processor, (clock, steps)) = behind.expect("there is one");
        if let Some(step) = steps.next() {
            transfers += lines.run(step, processor, clock, access_ns);
        } else if let Some(cycle) = cycles.next() {
            *steps = cycle.iter();
            taken += 1;
            if taken == CYCLES / 2 {
                (start, transfers) = (*clock, 0);
            }
        } else {
            // From now on not all of the processors run.
            break *clock;
        }
    };
    let keys = (CYCLES - CYCLES / 2) as f64;
    Point {
        threads,
        transfers: transfers as f64 / keys,
        throughput: keys * 1000.0 / (end - start),
    }
}

/// Which processors have which cache line.
#[derive(Default)]
struct Lines(HashMap<u64, Line>);

#[derive(Default)]
struct Line {
    /// A bit for each processor that has it.
    holders: u64,
    is_written: bool,
    /// The end of the last access to it by the step that wrote it last.
    free_at: f64,
}

impl Lines {
    /// Runs a step on a processor and moves its clock; returns the number of transfers.
    fn run(&mut self, step: &Step, processor: usize, clock: &mut f64, access_ns: f64) -> u64 {
        let me = 1 << processor;
        let mut transfers = 0;
        for &(line, writes) in step {
            let line = self.0.entry(line).or_default();
            let is_elsewhere = line.is_written && line.holders & me == 0;
            if is_elsewhere || writes && line.holders & !me != 0 {
                transfers += 1;
                *clock = clock.max(line.free_at) + TRANSFER;
            }
            line.holders = if writes { me } else { line.holders | me };
            line.is_written |= writes;
            *clock += access_ns;
            if line.is_written && line.holders == me {
                line.free_at = *clock;
            }
        }
        transfers
    }
}

/// Recurring keys, and the number of them that is queued at any time.
const KEYS: usize = 4096;
const QUEUED: usize = 512;
/// Cycles that are traced: each key comes twice, so that every line has been written before.
const CYCLES: usize = 2 * KEYS;
/// Of a cycle: add, get, done.
const STEPS: usize = 3;

/// Valgrind places stacks from here on. Each thread has its own, so they do not count.
const STACKS: u64 = 0x1f_f000_0000;
const LINE: u64 = 64;

/// The cache lines that a step touches, in order, and whether it writes them.
type Step = Vec<(u64, bool)>;

/// Stored to between two traced steps.
static MARK: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

/// Runs under valgrind: prints the address of the mark and takes keys through the cycles.
pub(crate) fn traced(contender: &str) -> Result<()> {
    println!("{:x}", std::ptr::from_ref(&*MARK) as usize);
    match contender {
        // As many shards as the queue would choose with 64 processors.
        "keyqueue" => cycles(&WorkQueue::builder().shards(4 * 64).build()?),
        // Boxed, because what is on the stack would not count.
        "single-lock" => cycles(&*Box::new(SingleLock::<u64>::new())),
        _ => bail!("there is no model of {contender}"),
    }
    Ok(())
}

fn cycles<C: Queue<u64>>(queue: &C) {
    let keys: Vec<u64> = (0..KEYS).map(u64::nth).collect();
    keys[..QUEUED].iter().for_each(|key| queue.add_ref(key));
    // Ordering: Relaxed; one thread, and only the store itself matters.
    let mark = || MARK.store(black_box(1), Ordering::Relaxed);
    for n in 0..=KEYS + CYCLES {
        mark();
        queue.add_ref(&keys[(QUEUED + n) % KEYS]);
        mark();
        let item = queue.get().expect("a key is queued");
        mark();
        queue.done(item);
    }
}

/// Runs this program under valgrind and returns the traced steps.
fn take(contender: &str) -> Result<Vec<Step>> {
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(std::env::current_exe()?)
        .args(["--traced", contender])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("there is no valgrind")?;
    // The trace first: the program stops when the pipe is full.
    let trace = BufReader::new(child.stderr.take().expect("it is piped")).split(b'\n');
    let accesses: Step = trace.filter_map(|line| parse(&line.ok()?)).collect();
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "valgrind has failed");
    let mark = u64::from_str_radix(str::from_utf8(&output.stdout)?.trim(), 16)?;
    let mut steps = split(&accesses, mark / LINE);
    // The first round, in which the queue meets the keys, and the last cycle, which ends with the
    // program, do not count.
    steps.drain(..steps.len().min(KEYS * STEPS));
    steps.truncate(CYCLES * STEPS);
    Ok(steps)
}

/// What follows each mark. A line that a step reads and writes is fetched once, to be written.
fn split(accesses: &[(u64, bool)], mark: u64) -> Vec<Step> {
    let steps = accesses.split(|access| *access == (mark, true)).skip(1);
    let fetched = |step: &[(u64, bool)]| {
        let written = step.iter().filter(|access| access.1);
        let written: HashSet<u64> = written.map(|access| access.0).collect();
        let lines = step
            .iter()
            .map(|access| access.0)
            .filter(|line| *line != mark);
        lines.map(|line| (line, written.contains(&line))).collect()
    };
    steps.map(fetched).collect()
}

/// `None` for instructions, for other output and for stacks.
fn parse(line: &[u8]) -> Option<(u64, bool)> {
    let line = std::str::from_utf8(line).ok()?;
    let (kind, rest) = line.strip_prefix(' ')?.split_once(' ')?;
    let address = u64::from_str_radix(rest.split_once(',')?.0, 16).ok()?;
    (address < STACKS && "LSM".contains(kind)).then_some((address / LINE, kind != "L"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_costs_a_transfer_unless_the_processor_has_it() {
        let (mut lines, mut clock) = (Lines::default(), 0.0);
        let mut fetched = |at, writes| lines.run(&vec![(7, writes)], at, &mut clock, 0.0);
        assert_eq!([fetched(0, false), fetched(1, false)], [0, 0]); // Never written.
        assert_eq!([fetched(0, true), fetched(0, true)], [1, 0]); // Shared, then its own.
        assert_eq!([fetched(1, false), fetched(1, false)], [1, 0]); // Written by another.
        assert_eq!([fetched(1, true), fetched(0, true)], [1, 1]); // Shared, then another's.
        assert_eq!(clock, 4.0 * TRANSFER);
        // Processor 1 waits until the step that wrote line 7 first has written it last.
        let mut later = 0.0;
        lines.run(&vec![(8, true)], 1, &mut later, 0.0);
        lines.run(&vec![(7, true), (8, true), (7, true)], 0, &mut clock, 0.0);
        lines.run(&vec![(7, true)], 1, &mut later, 0.0);
        assert_eq!((clock, later), (5.0 * TRANSFER, 6.0 * TRANSFER));
    }

    #[test]
    fn a_trace_is_split_at_the_marks() {
        let text = "I  04001e3a,3\n L 1ffefff5e0,8\n S 00000040,8\n L 00000080,8\n M 000000c8,8\n \
                    S 00000040,8\n==1== other output\n L 00000108,4\n S 00000100,4\n L 00000040,8";
        let accesses: Step = text.lines().filter_map(|it| parse(it.as_bytes())).collect();
        let read_then_written = vec![(4, true), (4, true)];
        let steps = [vec![(2, false), (3, true)], read_then_written];
        assert_eq!(split(&accesses, 1), steps);
    }
}
