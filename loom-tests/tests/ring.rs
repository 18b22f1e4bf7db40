//! The ring by itself: its laps, its limits, and what is seen of it (C1 to C3, C5, C8).
#![cfg(keyqueue_loom)]

use keyqueue_loom_tests::{NumberRing, check, spawn_with};
use loom::sync::Arc;

/// A ring for `capacity` numbers up to `most`.
fn ring(capacity: usize, most: usize) -> Arc<NumberRing> {
    Arc::new(NumberRing::new(capacity, most))
}

/// Pushes `number`, as soon as there is room.
fn push_when_room(ring: &NumberRing, number: usize) {
    while !ring.push(number) {
        loom::thread::yield_now();
    }
}

/// Pops the oldest number, as soon as there is one.
fn pop_when_there(ring: &NumberRing) -> usize {
    loop {
        if let Some(number) = ring.pop() {
            return number;
        }
        loom::thread::yield_now();
    }
}

/// Pops all that is left.
fn drain(ring: &NumberRing) -> Vec<usize> {
    std::iter::from_fn(|| ring.pop()).collect()
}

fn assert_each_once(mut popped: Vec<usize>, pushed: &[usize]) {
    popped.sort_unstable();
    assert_eq!(popped, pushed);
}

/// C5. A thread that pops a number finds what was written before it was pushed.
#[test]
fn a_popper_sees_what_was_written_before_the_push() {
    check("ring_publishes", 5, || {
        let ring = ring(2, 2);
        let pusher = spawn_with(&ring, |ring| assert!(ring.push(1) && ring.push(2)));
        let mut popped: Vec<_> = ring.pop().into_iter().collect();
        popped.extend(ring.pop());
        pusher.join().unwrap();
        popped.extend(drain(&ring));
        assert_eq!(popped, [1, 2]);
    });
}

/// `push` gives back only what there is no room for, beside a thread whose entries come and go.
#[test]
fn a_pusher_has_room_beside_one_that_takes_what_it_adds() {
    check("ring_room_again", 5, || {
        let ring = ring(2, 3);
        let other = spawn_with(&ring, |ring| {
            [1, 3].map(|number| {
                assert!(ring.push(number));
                pop_when_there(ring)
            })
        });
        assert!(ring.push(2));
        let mut popped = other.join().unwrap().to_vec();
        popped.extend(drain(&ring));
        assert_each_once(popped, &[1, 2, 3]);
    });
}

/// C1, C2. More than two laps beside a popper: nothing is lost, doubled or overtaken.
#[test]
fn laps_follow_each_other_beside_a_popper() {
    for (capacity, last) in [(1, 4), (2, 5)] {
        check(&format!("ring_laps_{capacity}"), 5, move || {
            let ring = ring(capacity, last);
            let pusher = spawn_with(&ring, move |ring| {
                (1..=last).for_each(|number| push_when_room(ring, number));
            });
            for number in 1..=last {
                assert_eq!(pop_when_there(&ring), number);
            }
            pusher.join().unwrap();
            assert!(ring.is_empty());
        });
    }
}

/// C2, C3. Interleaving: a popper has read the head, or its slot; meanwhile the ring goes round, and what the
/// popper knows of its slot is of an earlier lap.
#[test]
fn a_late_popper_takes_no_slot_for_one_of_two_laps_ago() {
    check("ring_late_popper", 3, || {
        let ring = ring(1, 4);
        let late = spawn_with(&ring, NumberRing::pop);
        let mut pushed = Vec::new();
        let mut popped = Vec::new();
        for number in 1..=4 {
            if ring.push(number) {
                pushed.push(number);
            }
            if number < 4 {
                popped.extend(ring.pop());
            }
        }
        popped.extend(late.join().unwrap());
        popped.extend(drain(&ring));
        assert_each_once(popped, &pushed);
    });
}

/// C1, C2. Two pushers and a popper, in one slot and in two: what had room comes out once, and each
/// pusher's in order.
#[test]
fn two_pushers_lose_nothing() {
    for capacity in [1, 2] {
        check(&format!("ring_two_pushers_{capacity}"), 3, move || {
            let ring = ring(capacity, 3);
            let other = spawn_with(&ring, |ring| ring.push(3));
            let pusher = spawn_with(&ring, |ring| [1, 2].map(|number| ring.push(number)));
            let mut popped: Vec<_> = [(); 2].iter().filter_map(|()| ring.pop()).collect();
            let mut had_room = pusher.join().unwrap().to_vec();
            had_room.push(other.join().unwrap());
            popped.extend(drain(&ring));
            let of_one: Vec<_> = popped.iter().filter(|number| **number < 3).collect();
            assert!(of_one.is_sorted(), "{popped:?}");
            let pushed: Vec<_> = (1..=3).filter(|number| had_room[number - 1]).collect();
            assert_each_once(popped, &pushed);
        });
    }
}

/// C1 to C3. One pusher and two poppers, of which one finds a number.
#[test]
fn two_poppers_double_nothing() {
    for (capacity, preemptions) in [(1, 3), (2, 2)] {
        let name = format!("ring_two_poppers_{capacity}");
        check(&name, preemptions, move || {
            let ring = ring(capacity, 3);
            push_when_room(&ring, 1);
            let popper = spawn_with(&ring, |ring| [(); 2].map(|()| ring.pop()));
            let pusher = spawn_with(&ring, |ring| [2, 3].map(|number| ring.push(number)));
            let mine = [(); 2].map(|()| ring.pop());
            let theirs = popper.join().unwrap();
            let had_room = pusher.join().unwrap();
            let mut popped = Vec::new();
            for got in [mine, theirs] {
                let got: Vec<_> = got.into_iter().flatten().collect();
                assert!(got.is_sorted(), "{got:?}");
                popped.extend(got);
            }
            let left = drain(&ring);
            let youngest = popped.iter().max();
            assert!(left.iter().all(|left| Some(left) > youngest));
            popped.extend(left);
            let pushed: Vec<_> = (1..=3)
                .filter(|number| *number == 1 || had_room[number - 2])
                .collect();
            assert_each_once(popped, &pushed);
        });
    }
}

/// C5. Interleaving: a pusher has the oldest place and has not filled it; another has pushed behind it, and
/// returned. Its number is not to be overlooked.
#[test]
fn a_number_behind_one_that_is_being_pushed_is_not_overlooked() {
    check("ring_pop_behind_push", 5, || {
        let ring = ring(2, 2);
        let other = spawn_with(&ring, |ring| push_when_room(ring, 1));
        push_when_room(&ring, 2);
        let first = ring.pop().expect("2 was pushed");
        other.join().unwrap();
        assert_each_once([vec![first], drain(&ring)].concat(), &[1, 2]);
    });
}

/// C5. One pushes and takes, another takes: at no moment is nothing there for each.
#[test]
fn none_is_returned_only_if_at_some_moment_all_was_taken() {
    check("ring_never_empty", 5, || {
        let ring = ring(2, 2);
        push_when_room(&ring, 1);
        let other = spawn_with(&ring, |ring| ring.pop().expect("two for two"));
        push_when_room(&ring, 2);
        let mine = ring.pop().expect("two for two");
        assert_each_once(vec![other.join().unwrap(), mine], &[1, 2]);
    });
}

/// `is_empty` beside a push and a pop: there is always something.
#[test]
fn what_was_there_all_the_time_is_not_taken_for_nothing() {
    check("ring_is_empty", 5, || {
        let ring = ring(2, 2);
        push_when_room(&ring, 1);
        let other = spawn_with(&ring, NumberRing::is_empty);
        push_when_room(&ring, 2);
        assert_eq!(ring.pop(), Some(1));
        assert!(!other.join().unwrap());
        assert!(!ring.is_empty());
        assert_eq!(ring.pop(), Some(2));
        assert!(ring.is_empty());
    });
}

/// C8. `len` beside a push and a pop: a length that the ring had.
#[test]
fn the_length_beside_a_push_and_a_pop_is_one_that_was() {
    check("ring_len_push_pop", 5, || {
        let ring = ring(2, 2);
        push_when_room(&ring, 1);
        let other = spawn_with(&ring, NumberRing::len);
        assert!(ring.push(2));
        assert_eq!(ring.pop(), Some(1));
        let len = other.join().unwrap();
        assert!(len == 1 || len == 2, "{len}");
        assert_eq!(ring.len(), 1);
    });
}

/// C8. The same beside a pop and a push: what was taken does not count along with what came later.
#[test]
fn the_length_beside_a_pop_and_a_push_is_one_that_was() {
    check("ring_len_pop_push", 5, || {
        let ring = ring(2, 2);
        push_when_room(&ring, 1);
        let other = spawn_with(&ring, NumberRing::len);
        assert_eq!(ring.pop(), Some(1));
        assert!(ring.push(2));
        let len = other.join().unwrap();
        assert!(len <= 1, "{len}");
        assert_eq!(ring.len(), 1);
    });
}
