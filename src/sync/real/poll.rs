//! How long a thread looks again for what it waits for, before it sleeps.
//!
//! Polls that find something spare the other thread the system call that wakes this one. Polls in vain take
//! processor time: a third of what a sleep and a wake-up take. So a thread polls at every wait while that
//! finds something, and at few waits after it was in vain:
//!
//! | waits of the thread since its polls have found something | polls |
//! | --- | --- |
//! | fewer than [`EAGER`] | at each |
//! | more | at each [`SELDOM`]th |
//!
//! This is the idea of KVM's adaptive halt polling, with waits counted instead of timed.

use std::cell::Cell;
use std::{hint, thread};

/// The number of pauses before a consumer that found nothing checks the FIFO again.
///
/// Each check takes the cache line from the producer, so infrequent checks keep a producer and a
/// consumer on two cores fast; see the performance notes.
const PAUSES_PER_POLL: u32 = 64;

/// The checks after pauses, before the consumer yields instead.
const SPINNING: u32 = 4;

/// The checks after a yield, before it sleeps.
const YIELDING: u32 = 4;

/// The number of waits at which a thread polls although its polls were in vain before: in a busy queue some polls
/// fail, and the next ones do not.
const EAGER: u32 = 4;

/// The polls of one wait in this number find out whether keys come faster again.
const SELDOM: u32 = 16;

/// What a thread remembers of its polls.
#[derive(Default)]
pub(super) struct Polls {
    /// The number of waits since its polls have found something.
    waits: Cell<u32>,
}

impl Polls {
    /// Calls `look` after short pauses until it returns something, or it is time to sleep. After polls in vain
    /// most calls return `None` immediately: see the header.
    pub(super) fn poll<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let waits = self.waits.get();
        self.waits.set(waits.wrapping_add(1));
        if waits >= EAGER && !waits.is_multiple_of(SELDOM) {
            return None;
        }
        for at in 0..SPINNING + YIELDING {
            if at < SPINNING {
                (0..PAUSES_PER_POLL).for_each(|_| hint::spin_loop());
            } else {
                thread::yield_now();
            }
            let found = look();
            if found.is_some() {
                self.waits.set(0);
                return found;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits once, and finds something at the last look if `finds`. Returns the number of looks.
    fn wait(polls: &Polls, finds: bool) -> u32 {
        let mut looks = 0;
        let found = polls.poll(|| {
            looks += 1;
            (finds && looks == SPINNING + YIELDING).then_some(())
        });
        assert_eq!(found.is_some(), finds && looks > 0);
        looks
    }

    fn waits<const N: usize>(polls: &Polls) -> [u32; N] {
        [(); N].map(|()| wait(polls, false))
    }

    const ALL: u32 = SPINNING + YIELDING;

    #[test] // C9
    fn a_thread_that_polls_in_vain_soon_polls_seldom() {
        let polls = Polls::default();
        assert_eq!(waits(&polls), [ALL; EAGER as usize]);
        assert_eq!(waits(&polls), [0; (SELDOM - EAGER) as usize]);
        for _ in 0..3 {
            assert_eq!(
                wait(&polls, false),
                ALL,
                "it finds out whether that has changed"
            );
            assert_eq!(waits(&polls), [0; SELDOM as usize - 1]);
        }
    }

    #[test] // C9
    fn a_thread_whose_polls_find_something_polls_at_every_wait_again() {
        let polls = Polls::default();
        let _: [u32; SELDOM as usize] = waits(&polls);
        assert_eq!(wait(&polls, true), ALL);
        for _ in 0..100 {
            assert_eq!(waits(&polls), [ALL; EAGER as usize - 1]);
            assert_eq!(wait(&polls, true), ALL, "a few in vain change nothing");
        }
        assert_eq!(waits(&polls), [ALL; EAGER as usize]);
        assert_eq!(
            wait(&polls, true),
            0,
            "it does not poll, so it finds nothing"
        );
    }
}
