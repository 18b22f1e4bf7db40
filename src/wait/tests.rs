//! The list of waiters compared with a plain queue, and its notifications in a race.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::task::Wake;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::scaled::scaled;
use crate::sync::catch_panic::Bomb;

/// Calls a function when it is woken.
struct Call<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Call<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn calling(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Call(f)))
}

/// Counts how often its wakers are woken.
#[derive(Clone, Default)]
pub(crate) struct Bell(Arc<AtomicUsize>);

impl Bell {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn waker(&self) -> Waker {
        let bell = self.clone();
        calling(move || bell.ring())
    }

    pub(crate) fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns whether one of its wakers is still there.
    pub(crate) fn has_waker(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

fn bells(count: usize) -> Vec<Bell> {
    (0..count).map(|_| Bell::default()).collect()
}

fn register(list: &WaitList, bells: &[Bell]) -> Vec<Waiter> {
    let wakers = bells.iter().map(Bell::waker);
    wakers.map(|waker| list.register(&waker)).collect()
}

fn rings(bells: &[Bell]) -> Vec<usize> {
    bells.iter().map(Bell::rings).collect()
}

// C9
#[test]
fn a_notification_wakes_exactly_the_first_ones_in_line() {
    // Around the size of one batch, which is woken with the list unlocked.
    let counts: &[usize] = if cfg!(miri) {
        &[2, 33]
    } else {
        &[1, 2, 31, 32, 33, 64, 65, 100]
    };
    for &count in counts {
        for most in [0, 1, 2, 31, 32, 33, 64, 65, 99, 100, 1000, usize::MAX] {
            let list = WaitList::default();
            let bells = bells(count);
            let waiters = register(&list, &bells);
            list.notify(most);
            let woken = most.min(count);
            let expected = (0..count).map(|place| usize::from(place < woken));
            assert!(expected.eq(rings(&bells)), "{most} of {count}");
            assert_eq!(list.len(), count - woken, "{most} of {count}");
            for (place, waiter) in waiters.into_iter().enumerate() {
                assert_eq!(waiter.is_notified(Waker::noop()), place < woken);
                assert_eq!(list.cancel(waiter), place < woken);
            }
            assert_eq!(list.len(), 0);
        }
    }
}

#[test]
fn the_waker_stored_last_is_the_one_that_is_run() {
    let list = WaitList::default();
    let bells = bells(2);
    let waiter = register(&list, &bells[..1]).remove(0);
    assert!(!waiter.is_notified(&bells[1].waker()));
    list.notify(1);
    assert_eq!(rings(&bells), [0, 1]);
    assert!(waiter.is_notified(Waker::noop()));
    list.cancel(waiter);
}

#[test]
fn panicking_wakers_cost_nobody_else_the_wake_up() {
    for broken in [&[0][..], &[31], &[0, 1], &[5, 40, 99]] {
        let list = WaitList::default();
        let bells = bells(101);
        let waiter = |(place, bell): (usize, &Bell)| {
            let (bell, broken) = (bell.clone(), broken.contains(&place));
            let waker = calling(move || {
                bell.ring();
                if broken {
                    std::panic::panic_any(Bomb);
                }
            });
            list.register(&waker)
        };
        let mut waiters: Vec<_> = bells[..100].iter().enumerate().map(waiter).collect();
        list.notify_all();
        assert_eq!(rings(&bells[..100]), [1; 100], "broken: {broken:?}");
        // The list still works.
        waiters.extend(register(&list, &bells[100..]));
        list.notify(1);
        assert_eq!(rings(&bells[100..]), [1]);
        assert!(waiters.into_iter().all(|waiter| list.cancel(waiter)));
    }
}

#[test]
fn a_waker_runs_with_the_list_unlocked() {
    let list = Arc::new(WaitList::default());
    let seen = Arc::new(AtomicUsize::new(0));
    let waker = {
        let (list, seen) = (Arc::clone(&list), Arc::clone(&seen));
        calling(move || {
            // If the list were locked this would never return.
            let waiter = list.register(Waker::noop());
            seen.store(list.len(), Ordering::SeqCst);
            list.cancel(waiter);
        })
    };
    let waiter = list.register(&waker);
    list.notify(1);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    assert!(list.cancel(waiter));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Register,
    Cancel(usize),
    Poll(usize),
    Notify(usize),
    NotifyAll,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => Just(Op::Register),
        2 => any::<usize>().prop_map(Op::Cancel),
        2 => any::<usize>().prop_map(Op::Poll),
        3 => (0..4_usize).prop_map(Op::Notify),
        1 => (0..80_usize).prop_map(Op::Notify),
        1 => Just(Op::NotifyAll),
    ];
    let most = if cfg!(miri) { 20 } else { 200 };
    prop::collection::vec(op, 1..most)
}

proptest! {
    // C9
    #[test]
    fn the_list_is_a_line_of_people(ops in ops()) {
        let list = WaitList::default();
        let mut line = VecDeque::new();
        let mut bells = Vec::<Bell>::new();
        let mut expected = Vec::<usize>::new();
        let mut waiters = Vec::<(usize, Waiter)>::new();
        for op in ops {
            match op {
                Op::Register => {
                    let bell = Bell::default();
                    let number = bells.len();
                    waiters.push((number, list.register(&bell.waker())));
                    line.push_back(number);
                    bells.push(bell);
                    expected.push(0);
                }
                Op::Cancel(which) if !waiters.is_empty() => {
                    let (number, waiter) = waiters.swap_remove(which % waiters.len());
                    let listed = line.contains(&number);
                    line.retain(|other| *other != number);
                    prop_assert_eq!(list.cancel(waiter), !listed);
                }
                Op::Poll(which) if !waiters.is_empty() => {
                    let (number, waiter) = &waiters[which % waiters.len()];
                    let notified = waiter.is_notified(&bells[*number].waker());
                    prop_assert_eq!(notified, !line.contains(number));
                }
                Op::Cancel(_) | Op::Poll(_) => {}
                Op::Notify(most) => {
                    list.notify(most);
                    line.drain(..most.min(line.len())).for_each(|woken| expected[woken] += 1);
                }
                Op::NotifyAll => {
                    list.notify_all();
                    line.drain(..).for_each(|woken| expected[woken] += 1);
                }
            }
            prop_assert_eq!(list.len(), line.len());
            prop_assert_eq!(&rings(&bells), &expected);
        }
        for (_, waiter) in waiters {
            list.cancel(waiter);
        }
        prop_assert_eq!(list.len(), 0);
    }
}

// C9: the protocol in the header, at full speed: a waiter that registers and checks again does not
// sleep after something was published.
#[test]
fn no_wake_up_is_lost_in_a_race_of_waiting_and_publishing() {
    const ROUNDS: usize = scaled(20_000);
    let list = WaitList::default();
    let published = AtomicUsize::new(0);
    let (taken, next) = mpsc::channel();
    thread::scope(|scope| {
        let (list, published) = (&list, &published);
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                published.fetch_add(1, Ordering::Relaxed);
                list.notify(1);
                // One at a time, so that each round is a race of its own.
                if next.recv().is_err() {
                    return;
                }
            }
        });
        let waiting = thread::current();
        let waker = calling(move || waiting.unpark());
        for round in 1..=ROUNDS {
            while published.load(Ordering::Relaxed) < round {
                let waiter = list.register(&waker);
                if published.load(Ordering::Relaxed) >= round {
                    list.cancel(waiter);
                    break;
                }
                while !waiter.is_notified(&waker) {
                    thread::park();
                }
            }
            taken.send(()).expect("the publisher lives");
        }
    });
    assert_eq!(list.len(), 0);
}

// C9: a notification that is not acted on is passed on once a later waiter comes back.
#[test]
fn a_waiter_that_comes_back_counts_those_it_has_overtaken_once() {
    let list = WaitList::default();
    let [stuck, first, second, third] = [(); 4].map(|()| list.register(Waker::noop()));
    list.notify(3);
    assert_eq!(list.come_back(first), 1, "the stuck one was before it");
    assert_eq!(list.come_back(second), 0, "it has been made up for");
    list.notify(1);
    assert_eq!(list.come_back(third), 0);
    // It comes back after all, or is dropped.
    assert!(list.cancel(stuck), "it was notified");
    let [gone, last] = [(); 2].map(|()| list.register(Waker::noop()));
    list.notify(2);
    assert!(list.cancel(gone));
    assert_eq!(list.come_back(last), 0, "a cancelled waiter owes nothing");
}

#[test]
fn a_notification_of_all_makes_up_for_nobody() {
    let list = WaitList::default();
    let [stuck, other] = [(); 2].map(|()| list.register(Waker::noop()));
    list.notify_all();
    assert_eq!(list.come_back(other), 0);
    drop(stuck);
}

// C12
#[test]
fn several_wake_each_getter_that_lingers_once_though_it_lingers_again() {
    // More than are woken at a time. The others wake nobody: they are counted.
    const GETTERS: usize = BATCH + 8;
    let list = Arc::new(WaitList::default());
    let bells = bells(GETTERS);
    for (bell, until) in bells.iter().zip(1..) {
        let (bell, again) = (bell.clone(), Arc::clone(&list));
        let waker = calling(move || {
            bell.ring();
            again.linger(&bell.waker(), until);
        });
        list.linger(&waker, until);
    }
    let other = Bell::default();
    let _waiter = list.register(&other.waker());
    list.notify(GETTERS);
    assert_eq!(
        (rings(&bells), rings(&[other])),
        (vec![0; GETTERS], vec![1])
    );
    list.notify_several(1);
    assert_eq!(rings(&bells), [1; GETTERS]);
    assert_eq!(list.len(), GETTERS);
}

// B2 C12
#[test]
fn those_whose_time_is_over_are_woken_and_no_others_are_visited_before() {
    let list = WaitList::default();
    let woken = Arc::new(Mutex::new(Vec::new()));
    let waiters = [40, 30, 20, 10].map(|until| {
        let log = Arc::clone(&woken);
        list.linger(&calling(move || log.lock().push(until)), until)
    });
    list.stop_lingering(&waiters[3]);
    // The list would tell that 20 is the first by now.
    list.expire(|| 9);
    assert_eq!(list.next_expiry(), Some(10));
    list.expire(|| 10);
    assert_eq!((list.next_expiry(), list.len()), (Some(20), 3));
    list.stop_lingering(&waiters[1]);
    list.expire(|| 40);
    assert_eq!(*woken.lock(), [20, 40], "in the order of their times");
    assert_eq!((list.next_expiry(), list.len()), (None, 0));
}

// C9
#[test]
fn all_are_woken_once_though_they_come_back_to_the_list() {
    const WAITERS: usize = BATCH + 8;
    let list = Arc::new(WaitList::default());
    let bells = bells(WAITERS);
    for bell in &bells {
        let (bell, again) = (bell.clone(), Arc::clone(&list));
        let waker = calling(move || {
            bell.ring();
            again.register(&bell.waker());
        });
        list.register(&waker);
    }
    list.notify_all();
    assert_eq!(rings(&bells), [1; WAITERS]);
    assert_eq!(list.len(), WAITERS);
}
