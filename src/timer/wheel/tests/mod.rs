//! The boundary cases of the wheel by name; `model` tests the order as a whole.

use std::collections::VecDeque;

use super::super::slot::{CHUNK, FEW, SPARE};
use super::*;

mod model;

/// The most work units of an entry: seven cascades and the firing.
const COST: usize = LEVELS;

/// Asserts the invariants in the header of the module.
fn assert_consistent<T>(wheel: &Wheel<T>) {
    let (current, draining) = (wheel.current, wheel.draining);
    assert!(wheel.late.keys().all(|&(due, _)| due < current));
    let (mut count, mut left_to_drain) = (wheel.late.len(), 0);
    for (number, slot) in wheel.slots.iter().enumerate() {
        let (level, bit) = (number / SLOTS, number % SLOTS);
        let occupied = wheel.occupied[level] & (1 << bit) != 0;
        assert_eq!(occupied, !slot.is_empty(), "bit of {level}.{bit}");
        assert!(slot.is_empty() || slot.chunks().all(|chunk| !chunk.is_empty()));
        for &Entry { due, .. } in slot.chunks().flatten() {
            count += 1;
            assert!(due >= current, "{due} in level {level} at {current}");
            assert_eq!(slot_of(level, due), number, "{due} in the wrong slot");
            if number == slot_of(draining, current) && level_of(current, due) < level {
                left_to_drain += 1;
            } else {
                assert_eq!(level, level_of(current, due), "{due} at {current}");
            }
        }
    }
    assert_eq!(wheel.len, count);
    assert!(
        draining == 0 || left_to_drain != 0,
        "draining {draining} at {current}"
    );
}

/// Returns the number of entries for which room is allocated.
fn room<T>(wheel: &Wheel<T>) -> usize {
    let chunks = wheel.slots.iter().flat_map(Slot::chunks);
    chunks.map(VecDeque::capacity).sum()
}

/// Polls without a budget at `now`, and returns what fires.
fn due<T>(wheel: &mut Wheel<T>, now: u64) -> Vec<(u64, T)> {
    let mut out = Vec::new();
    let polled = wheel.poll(now, usize::MAX, |due, value| out.push((due, value)));
    assert_eq!(polled, Polled::CaughtUp);
    out
}

// D1
#[test]
fn nothing_comes_out_a_tick_early() {
    for exponent in 0..48 {
        let tick = 1u64 << exponent;
        for tick in [tick, tick - 1, tick + 1, tick + (tick >> 1)] {
            let mut wheel = Wheel::new(0);
            wheel.insert(tick, ());
            if tick > 0 {
                assert_eq!(due(&mut wheel, tick - 1), [], "at {}", tick - 1);
            }
            assert_eq!(due(&mut wheel, tick), [(tick, ())], "at {tick}");
        }
    }
}

// D8
#[test]
fn entries_of_one_tick_keep_the_order_of_the_calls_wherever_they_were_filed() {
    let tick = (0..LEVELS).fold(0, |tick, level| tick * SLOTS as u64 + 3 + 2 * level as u64);
    let mut wheel = Wheel::new(0);
    // One from each level.
    for (call, level) in (0..LEVELS).rev().enumerate() {
        let shift = SLOT_BITS * level;
        assert_eq!(due(&mut wheel, (tick >> shift << shift) - 1), []);
        wheel.insert(tick, call);
    }
    let all: Vec<_> = (0..LEVELS).map(|call| (tick, call)).collect();
    assert_eq!(due(&mut wheel, tick), all);
}

#[test]
fn many_entries_in_a_slot_are_woken_for_when_it_begins() {
    for level in 1..LEVELS {
        let start = 1 << (SLOT_BITS * level);
        let mut wheel = Wheel::new(0);
        for _ in 0..=FEW {
            wheel.insert(start + 40, ());
        }
        assert_eq!(wheel.next_wake(), Some(start));
        assert_eq!(due(&mut wheel, start), []);
        assert_eq!(wheel.next_wake(), Some(start + 40), "from level {level}");
    }
}

// D8
#[test]
fn order_and_count_survive_the_edges_of_chunks() {
    for count in [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 1] {
        for budget in [1, CHUNK - 1, CHUNK, CHUNK + 1] {
            let mut wheel = Wheel::new(0);
            let mut out = Vec::new();
            let mut calls = count;
            (0..count).for_each(|call| wheel.insert(100, call));
            while wheel.poll(100, budget, |_, call| out.push(call)) == Polled::More {
                // As many again while the slot is partly cascaded, or partly fired.
                if calls < 2 * count {
                    wheel.insert(100, calls);
                    calls += 1;
                }
            }
            assert_consistent(&wheel);
            assert_eq!(out.len(), calls);
            assert!(out.iter().copied().eq(0..out.len()), "{count} by {budget}");
        }
    }
}

// D8
#[test]
fn a_late_entry_comes_before_what_remains_of_later_ticks() {
    let mut wheel = Wheel::new(0);
    for call in 0..3 {
        wheel.insert(40, call);
    }
    let mut out = Vec::new();
    assert_eq!(wheel.poll(50, 1, |_, call| out.push(call)), Polled::More);
    wheel.insert(30, 10);
    wheel.insert(20, 11);
    wheel.insert(40, 12);
    wheel.insert(30, 13);
    wheel.insert(45, 14);
    out.extend(due(&mut wheel, 50).into_iter().map(|(_, call)| call));
    assert_eq!(out, [0, 11, 10, 13, 1, 2, 12, 14]);
}

// D8
#[test]
fn an_insert_into_a_half_cascaded_slot_does_not_overtake() {
    for tick in [64, 64 + 9, 4096, 1 << 30, 1 << 36, (1 << 36) + 77] {
        let mut wheel = Wheel::new(0);
        wheel.insert(tick, 0);
        wheel.insert(tick, 1);
        // The first of the two is moved, the second is not.
        assert_eq!(wheel.poll(tick, 1, |_, _| unreachable!()), Polled::More);
        wheel.insert(tick, 2);
        wheel.insert(tick - 1, 3);
        assert_consistent(&wheel);
        let all = [(tick - 1, 3), (tick, 0), (tick, 1), (tick, 2)];
        assert_eq!(due(&mut wheel, tick), all);
    }
}

#[test]
fn a_budget_of_nothing_only_tells_whether_there_is_work() {
    let mut wheel = Wheel::new(0);
    wheel.insert(70, ());
    assert_eq!(wheel.poll(63, 0, |_, ()| unreachable!()), Polled::CaughtUp);
    assert_eq!(wheel.poll(70, 0, |_, ()| unreachable!()), Polled::More);
    assert_eq!(due(&mut wheel, 70), [(70, ())]);
}

// D7
#[test]
fn new_entries_never_postpone_due_ones() {
    let mut wheel = Wheel::new(0);
    wheel.insert(5000, usize::MAX);
    for call in 0..COST {
        for later in 0..100 {
            wheel.insert(5001 + later, call);
        }
        let mut found = false;
        let _ = wheel.poll(5000, 101, |_, value| found |= value == usize::MAX);
        if found {
            return;
        }
    }
    panic!("still not handed out");
}

#[test]
fn retain_in_the_middle_of_a_cascade_goes_on_with_what_is_left() {
    let mut wheel = Wheel::new(0);
    for call in 0..4 {
        wheel.insert(4096, call);
    }
    assert_eq!(wheel.poll(4096, 2, |_, _| unreachable!()), Polled::More);
    // Drops the entries that have not been moved yet, so that the slot being drained becomes empty.
    wheel.retain(|&call| call < 2);
    assert_consistent(&wheel);
    assert_eq!(due(&mut wheel, 4096), [(4096, 0), (4096, 1)]);
}

#[test]
fn retain_may_empty_any_chunk_of_a_slot() {
    for kept in [vec![], vec![0], vec![1], vec![2], vec![0, 2], vec![1, 2]] {
        for tick in [5, 70, 1 << 36] {
            let mut wheel = Wheel::new(0);
            for call in 0..3 * CHUNK {
                // The earliest come last.
                wheel.insert(tick + u64::from(call < 2 * CHUNK), call);
            }
            // One entry of each chunk that is kept.
            let keep = |call: usize| call % CHUNK == 7 && kept.contains(&(call / CHUNK));
            wheel.retain(|&call| keep(call));
            assert_consistent(&wheel);
            let first = kept.last().map(|&chunk| tick + u64::from(chunk < 2));
            assert!(wheel.next_wake() <= first, "{kept:?} at {tick}");
            let mut calls: Vec<_> = due(&mut wheel, tick + 1).iter().map(|out| out.1).collect();
            calls.sort_unstable();
            let expected: Vec<_> = (0..3 * CHUNK).filter(|&call| keep(call)).collect();
            assert_eq!(calls, expected);
        }
    }
}

// D1 D7: a sweep stops at its budget, continues where it stopped, and ends.
#[test]
fn a_sweep_visits_no_more_than_its_budget_and_a_chunk() {
    let mut wheel = Wheel::new(0);
    for call in 0..40 * CHUNK {
        // Several chunks in one slot, and slots of several levels.
        let tick = [70, 71, 5000, 1 << 20, 1 << 47][call % 5];
        wheel.insert(tick, call);
    }
    let (mut steps, mut dropped) = (0, 0);
    loop {
        let mut visited = 0;
        let ended = wheel.sweep(512, |&call| {
            visited += 1;
            dropped += usize::from(call % 7 != 0);
            call % 7 == 0
        });
        assert!(visited < 512 + CHUNK, "{visited} entries in one step");
        assert_consistent(&wheel);
        assert_eq!(wheel.is_sweeping(), !ended);
        steps += 1;
        if ended {
            break;
        }
    }
    assert!(steps > 40 * CHUNK / (512 + CHUNK), "{steps} steps");
    assert_eq!(
        dropped,
        (0..40 * CHUNK).filter(|call| call % 7 != 0).count()
    );
    assert_eq!(wheel.len(), 40 * CHUNK - dropped);
}

// C10
#[test]
#[cfg_attr(miri, ignore = "a million entries, no unsafe")]
fn memory_goes_back_after_a_million_though_one_entry_stays() {
    let mut wheel = Wheel::new(0);
    wheel.insert(1 << 35, 0);
    for call in 0..1_000_000_u64 {
        // The ticks come in no particular order.
        wheel.insert(1 + call.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 600_000, call);
    }
    assert!(room(&wheel) >= 1_000_000);
    assert_eq!(due(&mut wheel, 600_000).len(), 1_000_000);
    let kept = room(&wheel);
    assert!(kept <= LEVELS * SLOTS * SPARE, "room for {kept} entries");
    assert_eq!(wheel.len(), 1);
}

#[test]
fn an_entry_takes_eight_bytes_beside_its_value() {
    assert_eq!(size_of::<Entry<()>>(), 8);
    assert_eq!(size_of::<Entry<(&str, u32)>>(), 8 + 24);
    // The documented size of the empty wheel.
    assert!(size_of::<[Slot<u64>; LEVELS * SLOTS]>() <= 16 << 10);
}
