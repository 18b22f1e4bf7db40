//! The resources of the wheel: memory, and values across drops and panics.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::super::super::slot::SPARE;
use super::super::*;
use super::{SLOTS, assert_consistent, due, for_each_slot, scattered};

/// Returns the number of entries for which room is allocated.
fn room<T>(wheel: &Wheel<T>) -> usize {
    let mut room = 0;
    for_each_slot(wheel, |_, slot| {
        room += slot.chunks().map(VecDeque::capacity).sum::<usize>();
    });
    room
}

#[test]
fn values_are_dropped_once_and_with_the_wheel_at_the_latest() {
    let value = Rc::new(());
    let mut wheel = Wheel::new(0);
    for tick in [0, 1, 100, 1 << 20, 1 << 40, u64::MAX] {
        wheel.insert(tick, Rc::clone(&value));
    }
    drop(due(&mut wheel, 10));
    assert_eq!(Rc::strong_count(&value), 1 + 4);
    let mut dropped = 0;
    wheel.retain(|_| {
        dropped += 1;
        dropped > 1
    });
    assert_eq!(Rc::strong_count(&value), 1 + 3);
    drop(wheel);
    assert_eq!(Rc::strong_count(&value), 1);
}

#[test]
fn a_panic_in_fire_loses_no_other_entry() {
    for tick in [3, 64, 1 << 40] {
        for now in [0, u64::MAX] {
            // With a `now` of `u64::MAX` first, all of them are late.
            let mut wheel = Wheel::new(0);
            assert_eq!(due(&mut wheel, now), []);
            wheel.insert(tick, 0);
            wheel.insert(tick, 1);
            wheel.insert(tick + 1, 2);
            for bad in 0..3 {
                let polled = AssertUnwindSafe(|| {
                    wheel.poll(tick + 1, usize::MAX, |_, call| assert_ne!(call, bad))
                });
                catch_unwind(polled).expect_err("fire panicked");
                assert_eq!(wheel.len(), 2 - bad);
            }
            assert_eq!(wheel.next_wake(), None);
            wheel.insert(tick + 1, 9);
            assert_eq!(due(&mut wheel, tick + 1), [(tick + 1, 9)]);
            assert_consistent(&wheel);
        }
    }
}

#[test]
fn a_panic_in_retain_or_in_a_drop_leaves_the_count_right() {
    struct Bomb(u32);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert_ne!(self.0, 1, "boom");
        }
    }
    for tick in [3, 64, 1 << 40] {
        let mut wheel = Wheel::new(0);
        for number in 0..4 {
            wheel.insert(tick, Bomb(number));
        }
        let keep = AssertUnwindSafe(|| wheel.retain(|bomb| bomb.0 < 2 || panic!("no")));
        catch_unwind(keep).expect_err("keep panicked");
        assert_eq!(wheel.len(), 4);
        let drops = AssertUnwindSafe(|| wheel.retain(|bomb| bomb.0 > 2));
        catch_unwind(drops).expect_err("a drop panicked");
        assert_eq!(wheel.len(), 1);
        let left: Vec<_> = due(&mut wheel, tick)
            .iter()
            .map(|(_, bomb)| bomb.0)
            .collect();
        assert_eq!(left, [3]);
        assert_consistent(&wheel);
    }
}

// C10
#[test]
#[cfg_attr(miri, ignore = "a million entries, no unsafe")]
fn memory_goes_back_after_a_million_though_one_entry_stays() {
    let mut wheel = Wheel::new(0);
    wheel.insert(1 << 35, 0);
    for (tick, call) in scattered(1).zip(0..1_000_000) {
        wheel.insert(1 + tick % 600_000, call);
    }
    assert!(room(&wheel) >= 1_000_000);
    assert_eq!(due(&mut wheel, 600_000).len(), 1_000_000);
    let kept = room(&wheel);
    assert!(
        kept <= LEVELS * SLOTS * SPARE,
        "room for {kept} entries kept"
    );
    assert_eq!(wheel.len(), 1);
}

// C10
#[test]
#[cfg_attr(miri, ignore = "100 000 entries, no unsafe")]
fn memory_goes_back_after_a_sweep() {
    let mut wheel = Wheel::new(0);
    for (tick, call) in scattered(2).zip(0..100_000) {
        wheel.insert(tick, call);
    }
    assert_eq!(wheel.retain(|&call| call % 1000 == 0), 99_900);
    let kept = room(&wheel);
    assert!(
        kept <= LEVELS * SLOTS * SPARE + 4 * 100,
        "room for {kept} entries kept"
    );
}

#[test]
fn an_entry_takes_eight_bytes_beside_its_value() {
    assert_eq!(size_of::<Entry<()>>(), 8);
    assert_eq!(size_of::<Entry<u64>>(), 8 + 8);
    assert_eq!(size_of::<Entry<(Rc<()>, u32)>>(), 8 + 16);
    // The documented size of the empty wheel.
    assert!(size_of::<[Level<u64>; LEVELS]>() <= 25 << 10);
}
