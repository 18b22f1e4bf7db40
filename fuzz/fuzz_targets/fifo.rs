//! The ring and its overflow against a plain deque, in bursts that go beyond a refill (C1, C8).
#![no_main]

use std::collections::VecDeque;
use std::rc::Rc;

use arbitrary::Arbitrary;
use boxed::Boxed;
use libfuzzer_sys::fuzz_target;

#[path = "../src/sync.rs"]
mod sync;

// The files themselves: they have no public names to be reached by. (rustfmt would go on to their
// unit tests, and look for them here.)
#[path = "../../src/fifo/overflow/boxed.rs"]
mod boxed;

#[rustfmt::skip]
#[allow(dead_code, reason = "the queue uses all of it")]
#[path = "../../src/fifo/mod.rs"]
mod fifo;

/// At most so many bursts.
const BURSTS: usize = 64;

#[derive(Debug, Arbitrary)]
struct Input {
    ring: u8,
    /// Pushes and pops in turn, so many each.
    bursts: Vec<(u16, u16)>,
}

fuzz_target!(|input: Input| {
    let rings = [1, 2, 3, 4, 127, 128, 129, 1024];
    let fifo = fifo::Fifo::new(rings[usize::from(input.ring) % rings.len()]);
    let mut model = VecDeque::new();
    let alive = Rc::new(());
    let mut next = 0_u64;
    for (pushes, pops) in input.bursts.iter().take(BURSTS) {
        for _ in 0..pushes % 700 {
            fifo.push(Boxed::new((next, Rc::clone(&alive))));
            model.push_back(next);
            next += 1;
            assert_eq!(fifo.len(), model.len());
        }
        for _ in 0..pops % 700 {
            assert_eq!(fifo.pop().map(|entry| entry.value().0), model.pop_front());
            assert_eq!(fifo.len(), model.len());
        }
        assert_eq!(Rc::strong_count(&alive) - 1, model.len());
    }
    // Half of what is left comes out, and half is dropped with the FIFO.
    for expected in model.drain(..model.len() / 2) {
        assert_eq!(fifo.pop().map(|entry| entry.value().0), Some(expected));
    }
    drop(fifo);
    assert_eq!(Rc::strong_count(&alive), 1, "entries were leaked");
});
