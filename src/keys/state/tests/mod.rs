//! The transitions of one key's word as a table.

use super::pins::{MOST_HANDLES, MOST_PINS};
use super::*;
use crate::LeftReason;

mod visibility;

const PHASES: [State; 4] = [State::Idle, State::Queued, State::Processing, State::Dirty];

impl KeyState {
    /// Pins as often as a caller does that leaks all handles it can get.
    pub(crate) fn pin_most_handles(&self) {
        self.0.fetch_add(MOST_HANDLES * PIN, Ordering::SeqCst);
    }
}

fn state(word: u64) -> KeyState {
    KeyState(AtomicU64::new(word))
}

fn word(state: &KeyState) -> u64 {
    state.0.load(Ordering::SeqCst)
}

fn bits(phase: State) -> u64 {
    word(&KeyState::new(ShortHash::of(0), phase, false))
}

/// All other bits of the word, in every combination.
fn companions() -> Vec<u64> {
    let hashes = [0, PIN - HASH, 0x0ACE_0F01 * HASH];
    let retry = [0, RETRY];
    let pins = [0, PIN, 2 * PIN, (MOST_PINS - 1) * PIN];
    let mut words = vec![0];
    for bits in [&[0, RECURRING][..], &[0, CLOSED], &retry, &hashes, &pins] {
        let with = |word| bits.iter().map(move |bits| word | bits);
        words = words.into_iter().flat_map(with).collect();
    }
    words
}

// The table reads the hash whenever it grows, whatever has happened to the key meanwhile.
#[test]
fn a_new_state_has_its_phase_and_its_hash_in_bits_of_their_own() {
    for (phase, expected) in PHASES.into_iter().zip([0b00, 0b01, 0b10, 0b11]) {
        for hash in [0, 1, 1 << 27, (1 << 28) - 1, 0x0ACE_0F01] {
            for (closed, flag) in [(false, 0), (true, CLOSED)] {
                let state = KeyState::new(ShortHash::from_bits(hash), phase, closed);
                assert_eq!(word(&state), expected | flag | (u64::from(hash) * HASH));
                state.pin();
                assert_eq!((state.hash().bits(), state.phase()), (hash, phase));
            }
        }
    }
}

// C2, C4, C6: the whole table of `add`, with and without the shard's lock.
#[test]
fn an_add_follows_the_table_and_touches_nothing_else() {
    type Add = fn(&KeyState) -> Marked;
    let table = [
        (State::Idle, State::Queued, RECURRING, Marked::Queued),
        (State::Queued, State::Queued, 0, Marked::Merged),
        (State::Processing, State::Dirty, 0, Marked::Deferred),
        (State::Dirty, State::Dirty, 0, Marked::Merged),
    ];
    let adds: [(&str, Add); 2] = [
        ("add_locked", KeyState::add_locked),
        ("add_pinned", KeyState::add_pinned),
    ];
    for (name, add) in adds {
        for (before, after, sets, marked) in table {
            for beside in companions() {
                let state = state(bits(before) | beside);
                let was = word(&state);
                let answer = add(&state);
                if beside & CLOSED == 0 {
                    assert_eq!(answer, marked, "{name} of {before:?} beside {beside:#x}");
                    assert_eq!(word(&state), bits(after) | beside | sets, "{name}");
                } else {
                    assert_eq!(answer, Marked::Closed, "{name} of {before:?}");
                    assert_eq!(word(&state), was, "{name} changed a closed key");
                }
            }
        }
    }
}

// B1: the queue asks for room where the key is idle.
#[test]
fn an_add_is_admitted_by_the_state_that_the_key_has() {
    type Add = fn(&KeyState, &mut dyn FnMut(State) -> Admit) -> Option<Marked>;
    let adds: [Add; 2] = [
        |state, admit| state.add_locked_at(1, admit),
        |state, admit| state.add_at(1, admit),
    ];
    for add in adds {
        for (phase, beside) in PHASES
            .into_iter()
            .flat_map(|phase| companions().into_iter().map(move |word| (phase, word)))
        {
            let (state, mut asked) = (state(bits(phase) | beside), Vec::new());
            let answer = add(&state, &mut |state| {
                asked.push(state);
                Admit::Yes
            });
            if beside & CLOSED == 0 {
                assert_eq!(asked, [phase], "beside {beside:#x}");
            } else {
                assert_eq!((answer, asked.len()), (Some(Marked::Closed), 0));
            }
        }
    }
}

// C4
#[test]
fn begin_and_finish_follow_the_table_and_tell_whether_the_key_was_closed() {
    let table = [
        (State::Processing, State::Idle),
        (State::Dirty, State::Queued),
    ];
    for beside in companions() {
        let queued = state(bits(State::Queued) | beside);
        let (closed, abandoned) = (beside & CLOSED != 0, beside & ABANDONED != 0);
        let begun = queued.begin();
        assert_eq!(begun.is_plain(), beside & (CLOSED | RETRY) == 0);
        assert_eq!(begun.is_retry(), beside & RETRY != 0);
        assert_eq!(begun.is_closed(), closed && !abandoned);
        assert_eq!(begun.is_abandoned(), closed && abandoned);
        assert_eq!(u64::from(begun.level()), beside % PIN / LEVEL);
        assert_eq!(word(&queued), bits(State::Processing) | beside);
        for (before, after) in table {
            let state = state(bits(before) | beside);
            assert_eq!(state.finish(), (after, beside & CLOSED != 0));
            assert_eq!(word(&state), bits(after) | beside, "{before:?}");
        }
    }
}

#[test]
#[should_panic(expected = "begin found")]
#[cfg(debug_assertions)]
fn begin_of_a_key_that_is_not_queued_is_noticed() {
    state(bits(State::Processing)).begin();
}

#[test]
#[should_panic(expected = "finish found")]
#[cfg(debug_assertions)]
fn finish_of_a_key_that_nobody_holds_is_noticed() {
    state(bits(State::Queued)).finish();
}

// S1, S2
#[test]
fn closing_answers_the_phase_once_and_leaves_it_alone() {
    for phase in PHASES {
        for beside in companions()
            .into_iter()
            .filter(|beside| beside & CLOSED == 0)
        {
            let state = state(bits(phase) | beside);
            let closed = bits(phase) | (beside & !RECURRING) | CLOSED;
            assert_eq!(state.close(), Some(phase));
            assert_eq!(word(&state), closed);
            assert_eq!(state.close(), None, "closed twice");
            assert_eq!(word(&state), closed);
        }
    }
    assert_eq!(
        KeyState::new(ShortHash::of(0), State::Idle, true).close(),
        None
    );
}

// S8
#[test]
fn abandoning_ends_the_deliveries_of_a_closed_key() {
    let table = [
        (State::Idle, State::Idle, 0),
        (State::Queued, State::Queued, ABANDONED | left::DISCARDED),
        (State::Processing, State::Processing, 0),
        (State::Dirty, State::Processing, left::DISCARDED),
    ];
    let is_closed = |beside: &u64| beside & CLOSED != 0 && beside & ABANDONED == 0;
    for (before, after, sets) in table {
        for beside in companions().into_iter().filter(is_closed) {
            let state = state(bits(before) | beside);
            let is_hidden = sets & ABANDONED != 0;
            let seen = if is_hidden { State::Idle } else { after };
            assert_eq!(state.abandon(), before);
            assert_eq!(
                (state.phase(), word(&state)),
                (seen, bits(after) | beside | sets)
            );
            assert_eq!(state.abandon(), seen, "abandoned twice");
            assert_eq!(
                (state.phase(), word(&state)),
                (seen, bits(after) | beside | sets)
            );
        }
    }
}

// S11
#[test]
fn a_closed_key_is_added_again_for_its_worker_in_a_drain_or_if_it_is_dirty() {
    let table = [
        (State::Processing, true, State::Dirty, Marked::Deferred),
        (State::Processing, false, State::Processing, Marked::Closed),
        (State::Dirty, true, State::Dirty, Marked::Merged),
        (State::Dirty, false, State::Dirty, Marked::Merged),
    ];
    for (before, redelivers, after, marked) in table {
        let state = state(bits(before) | CLOSED);
        assert_eq!(state.readd(0, redelivers), marked);
        assert_eq!(word(&state), bits(after) | CLOSED);
    }
}

// S12
#[test]
fn what_is_left_of_a_key_is_taken_once() {
    let state = state(bits(State::Dirty) | CLOSED);
    assert!(!state.has_left());
    assert_eq!(state.take_left(), None);
    state.abandon();
    assert!(state.has_left());
    assert_eq!(state.take_left(), Some(LeftReason::Queued));
    assert_eq!(state.take_left(), None);
    state.abandon();
    assert_eq!(state.take_left(), None, "nothing new");
    state.refuse();
    assert_eq!(state.take_left(), Some(LeftReason::Refused));
    assert_eq!(word(&state), bits(State::Processing) | CLOSED);
}

#[test]
fn pins_are_counted_beside_the_phase() {
    for phase in PHASES {
        // Not of an abandoned key, which shows as idle.
        let fits = |beside: &u64| beside / PIN < 3 && beside & CLOSED == 0;
        for beside in companions().into_iter().filter(fits) {
            let state = state(bits(phase) | beside);
            state.pin();
            state.pin();
            assert_eq!(word(&state), (bits(phase) | beside) + 2 * PIN);
            assert_eq!(state.phase(), phase);
            state.unpin();
            state.unpin();
            assert_eq!(word(&state), bits(phase) | beside);
        }
    }
}

#[test]
fn the_last_pin_fits_and_one_more_panics_without_a_trace() {
    let state = state(((MOST_PINS - 1) * PIN) | bits(State::Dirty) | RECURRING);
    state.pin();
    let full = word(&state);
    assert_eq!(full / PIN, MOST_PINS);
    let refused = std::panic::catch_unwind(|| state.pin());
    assert!(refused.is_err(), "pin number {} was granted", MOST_PINS + 1);
    assert_eq!(word(&state), full);
    assert_eq!(state.phase(), State::Dirty);
}

// C11
#[test]
fn the_queue_pins_a_key_with_the_most_handles() {
    let state = state(((MOST_HANDLES - 1) * PIN) | bits(State::Queued));
    state.pin();
    state.grant();
    state.pin();
    let refused = std::panic::catch_unwind(|| state.grant());
    assert!(
        refused.is_err(),
        "handle number {} was granted",
        MOST_HANDLES + 1
    );
    assert_eq!(word(&state) / PIN, MOST_HANDLES + 1);
}

// C10: what a sweep may do, for every word there is.
#[test]
fn only_idle_unpinned_keys_leave_and_recurring_ones_are_spared_once() {
    for forget in [false, true] {
        for phase in PHASES {
            for beside in companions() {
                let state = state(bits(phase) | beside);
                let was = word(&state);
                let (expected, after) = if phase != State::Idle || beside >= PIN {
                    (Residence::Stay, was)
                } else if beside & RECURRING != 0 && !forget {
                    (Residence::Spared, was & !RECURRING)
                } else {
                    (Residence::Leave, was)
                };
                let answer = state.residence(forget);
                assert_eq!(answer, expected, "{phase:?} beside {beside:#x}, {forget}");
                assert_eq!(word(&state), after, "{phase:?} beside {beside:#x}");
                if answer == Residence::Spared {
                    assert_eq!(state.residence(false), Residence::Leave, "spared twice");
                }
            }
        }
    }
}
