//! The store of dead letters (X1), and where else a key may be instead (S13).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use crate::common::timed::{HOUR, built};
use crate::common::{eager, poll_until_idle, watchdog};
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{DeadLetters, Failed, GivenUp, Job, Reason, Verdict, Workers};
use keyqueue::{Added, LeftReason, WorkQueue, merge};

type Store = DeadLetters<u64>;

/// Works on all that is queued, fails it, and returns.
fn fail_all(queue: &WorkQueue<u64>, letters: &Store, error: &'static str) {
    let workers = Workers::new(queue).max_retries(1).dead_letters(letters);
    let mut run = Box::pin(
        workers
            .concurrency(1)
            .run_async(async move |_: Job<'_, u64>| Err::<(), _>(error)),
    );
    assert!(poll_until_idle(&mut run).is_pending());
}

fn keys(letters: &Store) -> Vec<u64> {
    letters.list().iter().map(|letter| *letter.key).collect()
}

#[test] // X1
fn a_key_that_is_given_up_is_kept_with_its_error_attempts_and_times() {
    let (queue, _time) = built::<u64>(|builder| builder);
    let letters = Store::new(10).unwrap();
    let before = SystemTime::now();
    queue.add(1);
    fail_all(&queue, &letters, "no route");
    let letter = letters.list().pop().unwrap();
    assert_eq!((*letter.key, &*letter.error), (1, "no route"));
    assert_eq!((letter.attempts, letter.reason), (2, Reason::MaxRetries));
    assert!(letter.first >= before && letter.first == letter.last);
    assert!(letter.value.is_none());

    // Given up again, it is one letter.
    queue.add_all([1, 2]);
    fail_all(&queue, &letters, "still none");
    let [again, other] = letters.list().try_into().unwrap();
    assert_eq!(
        (again.id, *again.key, &*again.error),
        (letter.id, 1, "still none")
    );
    assert_eq!((again.attempts, again.first), (4, letter.first));
    assert!(again.last >= letter.last && other.id > again.id);
    assert_eq!((letters.len(), letters.lost()), (2, 0));
}

#[test] // X1 S1
fn a_letter_is_put_back_once_or_dropped() {
    let (queue, _time) = built::<u64>(|builder| builder);
    let letters = Store::new(10).unwrap();
    queue.add_all([1, 2, 3]);
    fail_all(&queue, &letters, "no");
    let ids: Vec<_> = letters.list().iter().map(|letter| letter.id).collect();
    assert_eq!(letters.put_back(ids[0]), Some(Added::Queued));
    assert_eq!(
        (letters.put_back(ids[0]), keys(&letters)),
        (None, vec![2, 3])
    );
    assert_eq!(queue.num_requeues(&1), 0);
    // It starts again, with a letter of its own.
    fail_all(&queue, &letters, "no");
    let last = letters.list().pop().unwrap();
    assert!(last.id > ids[2] && *last.key == 1 && last.attempts == 2);
    let removed = letters.remove(ids[1]).unwrap();
    assert_eq!((*removed.key, letters.remove(ids[1]).is_none()), (2, true));
    assert_eq!(letters.put_back(ids[1]), None);
    queue.shut_down();
    assert_eq!(letters.put_back(ids[2]), Some(Added::ShutDown));
    assert_eq!(keys(&letters), [3, 1]);
    drop(queue);
    assert_eq!(letters.put_back(ids[2]), Some(Added::ShutDown));
}

#[test] // X1 S13
fn a_full_store_says_so_and_drops_the_oldest_only_if_it_is_told_to() {
    assert_eq!(Store::new(0).unwrap_err().field(), "capacity");
    let (queue, _time) = built::<u64>(|builder| builder);
    let letters = Store::new(2).unwrap();
    queue.add_all([1, 2, 3]);
    fail_all(&queue, &letters, "no");
    assert_eq!((keys(&letters), letters.lost()), (vec![1, 2], 1));
    // A letter that is known has room.
    queue.add(1);
    fail_all(&queue, &letters, "no");
    assert_eq!((letters.list()[0].attempts, letters.lost()), (4, 1));
    // The hook gets what the store has no room for, and only that.
    let reported = Mutex::new(Vec::new());
    let workers = Workers::new(&queue).dead_letters(&letters);
    let workers = workers.on_give_up(|key, _| reported.lock().unwrap().push(*key));
    queue.add_all([2, 4]);
    queue.shut_down();
    workers
        .concurrency(1)
        .run(|_| Verdict::GiveUp("no"))
        .unwrap();
    assert_eq!(
        (reported.into_inner().unwrap(), keys(&letters)),
        (vec![4], vec![1, 2])
    );
    assert_eq!(letters.lost(), 2);

    let (queue, _time) = built::<u64>(|builder| builder);
    let letters = Store::new(2).unwrap().drop_oldest();
    for key in [1, 2, 1, 3] {
        queue.add(key);
        fail_all(&queue, &letters, "no");
    }
    assert_eq!((keys(&letters), letters.lost()), (vec![2, 3], 1));
    // The key of a letter that was dropped has a new one.
    queue.add(1);
    fail_all(&queue, &letters, "no");
    assert_eq!(letters.list()[1].attempts, 2);
}

#[test] // X1 V1 V3
fn a_letter_carries_the_value_and_newer_ones_are_merged_into_it() {
    let queue = WorkQueue::builder().merge(merge::append).build().unwrap();
    let letters = DeadLetters::new(10).unwrap();
    let fail = |error: &'static str| {
        let workers = Workers::new(&queue).dead_letters(&letters).concurrency(1);
        let work = async move |mut job: Job<'_, u64, Vec<u32>>| {
            job.value_mut().push(0); // what the function leaves in it
            Verdict::GiveUp(error)
        };
        assert!(poll_until_idle(&mut Box::pin(workers.run_async(work))).is_pending());
    };
    queue.put(1, vec![1]);
    fail("no");
    let listed = letters.list().pop().unwrap();
    queue.put(1, vec![2]);
    fail("no");
    let letter = letters.list().pop().unwrap();
    assert_eq!((letter.id, letter.attempts), (listed.id, 2));
    assert_eq!(*letter.value.unwrap(), [1, 0, 2, 0]);
    // A list that is held changes nothing.
    assert_eq!(*listed.value.unwrap(), [1, 0]);
    queue.put(1, vec![3]);
    assert_eq!(letters.put_back(letter.id), Some(Added::Merged));
    assert_eq!(*queue.get().unwrap().value(), [3, 1, 0, 2, 0]);
    assert!(letters.is_empty());

    // A put that a shut-down refuses loses nothing.
    queue.put(2, vec![4]);
    fail("no");
    queue.shut_down();
    let id = letters.list()[0].id;
    assert_eq!(letters.put_back(id), Some(Added::ShutDown));
    assert_eq!(*letters.remove(id).unwrap().value.unwrap(), [4, 0]);
    assert!(queue.take_left().is_empty());
}

#[test] // S12 S13 X1
fn what_a_shut_down_ends_is_left_or_reported_and_not_in_the_store() {
    let limiter = || ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    for has_hook in [false, true] {
        let (queue, _time) = built::<u64>(|builder| builder.rate_limiter(limiter()));
        let letters = Store::new(10).unwrap();
        let reported = Mutex::new(Vec::new());
        let mut workers = Workers::new(&queue).dead_letters(&letters).concurrency(1);
        if has_hook {
            let hook =
                |key: &u64, end: GivenUp<_>| reported.lock().unwrap().push((*key, end.reason));
            workers = workers.on_give_up(hook);
        }
        queue.add_all([1, 2, 3]);
        let queue = &queue;
        let mut run = Box::pin(
            workers.run_async(async move |job: Job<'_, u64>| match *job {
                1 => Verdict::Retry("later"),
                2 => Verdict::GiveUp("never"),
                _ => {
                    queue.shut_down();
                    Verdict::Retry("refused")
                }
            }),
        );
        assert!(poll_until_idle(&mut run).is_ready());
        drop(run);
        assert_eq!(keys(&letters), [2]);
        let mut left: Vec<_> = queue
            .take_left()
            .iter()
            .map(|left| (left.key, left.reason))
            .collect();
        left.sort_unstable();
        let (said, expected) = match has_hook {
            true => (vec![(3, Reason::ShutDown), (1, Reason::Dropped)], vec![]),
            false => (
                vec![],
                vec![(1, LeftReason::Delayed), (3, LeftReason::Refused)],
            ),
        };
        assert_eq!((reported.into_inner().unwrap(), left), (said, expected));
    }
}

#[test] // W7 X1
fn on_error_sees_a_key_that_the_store_keeps() {
    let queue = WorkQueue::from_iter([1]);
    let letters = Store::new(1).unwrap();
    let seen = AtomicUsize::new(0);
    let saw = |_: &u64, failed: &Failed<'_, &str>| {
        assert!(failed.next.is_none());
        seen.fetch_add(1, Ordering::SeqCst);
        queue.shut_down();
    };
    let workers = Workers::new(&queue).concurrency(1).max_retries(0);
    workers
        .on_error(saw)
        .dead_letters(&letters)
        .run(|_| Err::<(), _>("no"))
        .unwrap();
    assert_eq!((seen.into_inner(), letters.len()), (1, 1));
}

type Letters = DeadLetters<u64, Calls>;

/// A value, and an error, whose user code calls the store.
struct Calls(Arc<OnceLock<Letters>>);

impl Calls {
    fn call(&self) {
        let letters = self.0.get().expect("set before");
        assert!(letters.list().len() <= 1 && !format!("{letters:?}").is_empty());
        assert_eq!(letters.put_back(u64::MAX), None);
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call();
        panic!("this text cannot be written");
    }
}

impl Clone for Calls {
    fn clone(&self) -> Self {
        self.call();
        Calls(Arc::clone(&self.0))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.call();
    }
}

#[test] // S15 X1
fn user_code_of_values_and_errors_may_call_the_store() {
    let _watchdog = watchdog(60);
    let letters = Letters::new(1).unwrap().drop_oldest();
    let calls = Calls(Arc::new(OnceLock::from(letters.clone())));
    let merge = |older: &mut Calls, newer: Calls| {
        older.call();
        drop(newer);
    };
    let queue: WorkQueue<u64, Calls> = WorkQueue::builder().merge(merge).build().unwrap();
    for key in [1, 1, 2, 2, 3] {
        queue.put(key, calls.clone());
        let held = letters.list();
        let workers = Workers::new(&queue).dead_letters(&letters);
        let error = calls.clone();
        let work = async move |_: Job<'_, u64, Calls>| Verdict::GiveUp(error.clone());
        let mut run = Box::pin(workers.concurrency(1).run_async(work));
        assert!(poll_until_idle(&mut run).is_pending());
        drop(held);
    }
    assert_eq!((letters.len(), letters.lost()), (1, 2));
    let letter = letters.list().pop().unwrap();
    assert_eq!(
        letter.error,
        "its text panicked: this text cannot be written"
    );
    assert_eq!(letters.put_back(letter.id), Some(Added::Queued));
    assert_eq!(queue.len(), 1);
}

#[test] // S13 X1
fn threads_that_fail_and_threads_that_put_back_lose_no_key() {
    let _watchdog = watchdog(120);
    let count: u64 = if cfg!(miri) { 20 } else { 2_000 };
    let queue = WorkQueue::builder().merge(merge::append).build().unwrap();
    let letters = DeadLetters::new(usize::MAX).unwrap();
    let finished = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while finished.load(Ordering::SeqCst) < count as usize {
                    for letter in letters.list() {
                        let _ = letters.put_back(letter.id);
                    }
                }
                queue.shut_down();
            });
        }
        (0..count).for_each(|key| _ = queue.put(key, vec![1]));
        // Each key fails twice, and carries its value to the third try.
        let workers = Workers::new(&queue).concurrency(2).dead_letters(&letters);
        let tries: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        let work = |job: Job<'_, u64, Vec<u32>>| {
            if tries[*job as usize].fetch_add(1, Ordering::SeqCst) < 2 {
                return Verdict::GiveUp("not yet");
            }
            assert_eq!(*job.value(), [1], "of {}", *job);
            finished.fetch_add(1, Ordering::SeqCst);
            Verdict::Ok(Default::default())
        };
        workers.run(work).unwrap();
    });
    assert_eq!((finished.into_inner() as u64, letters.lost()), (count, 0));
    assert!(letters.is_empty());
}

/// A value that calls this when it is cloned.
struct Clones(Vec<u32>, Option<OnClone>);

type OnClone = Arc<dyn Fn() + Send + Sync>;

impl Clone for Clones {
    fn clone(&self) -> Self {
        self.1.iter().for_each(|call| call());
        Clones(self.0.clone(), None)
    }
}

type CloneQueue = WorkQueue<u64, Clones>;
type CloneLetters = DeadLetters<u64, Clones>;

/// A queue and a full store of one letter, of key 1, with the value `[0]`. A clone of that calls `on_clone`.
fn full_store(
    drops_oldest: bool,
    on_clone: impl Fn(&CloneQueue, &CloneLetters) + Send + Sync + 'static,
) -> (Arc<CloneQueue>, CloneLetters) {
    let merge = |older: &mut Clones, newer: Clones| older.0.extend(newer.0);
    let queue: Arc<CloneQueue> = Arc::new(WorkQueue::builder().merge(merge).build().unwrap());
    let mut letters = CloneLetters::new(1).unwrap();
    if drops_oldest {
        letters = letters.drop_oldest();
    }
    let call = {
        let (queue, letters) = (Arc::downgrade(&queue), letters.clone());
        move || on_clone(&queue.upgrade().unwrap(), &letters)
    };
    queue.put(1, Clones(vec![0], Some(Arc::new(call))));
    give_up(&queue, &letters);
    (queue, letters)
}

/// Puts a value for a key, whose delivery fails for good.
fn fail(queue: &CloneQueue, letters: &CloneLetters, key: u64, value: u32) {
    queue.put(key, Clones(vec![value], None));
    give_up(queue, letters);
}

fn give_up(queue: &CloneQueue, letters: &CloneLetters) {
    let workers = Workers::new(queue).dead_letters(letters).concurrency(1);
    let run = workers.run_async(async |_: Job<'_, u64, Clones>| Verdict::GiveUp("no"));
    assert!(poll_until_idle(&mut Box::pin(run)).is_pending());
}

/// Removes all letters: the first value holds their store, so that neither would be dropped.
fn clear(letters: &CloneLetters) {
    for letter in letters.list() {
        drop(letters.remove(letter.id));
    }
}

/// The key, the attempts and the value of each letter.
fn letters_of(letters: &CloneLetters) -> Vec<(u64, u64, Vec<u32>)> {
    let letters = letters.list().into_iter();
    letters
        .map(|letter| {
            let value = letter.value.unwrap().0.clone();
            (*letter.key.key(), letter.attempts, value)
        })
        .collect()
}

#[test] // X1
fn a_key_that_fails_while_its_put_back_panics_has_one_letter() {
    let (queue, letters) = full_store(false, |queue, letters| {
        fail(queue, letters, 1, 1);
        fail(queue, letters, 1, 2);
        panic!("a clone");
    });
    let id = letters.list()[0].id;
    for round in 1..=10 {
        let put_back = AssertUnwindSafe(|| letters.put_back(id));
        assert!(catch_unwind(put_back).is_err());
        let value = [[0].as_slice(), &[1, 2].repeat(round)].concat();
        assert_eq!(letters_of(&letters), [(1, 1 + 2 * round as u64, value)]);
    }
    assert_eq!((letters.list()[0].id, letters.lost()), (id, 0));
    assert!(queue.is_empty());
    clear(&letters);
}

#[test] // X1
fn a_key_that_fails_while_its_put_back_is_refused_has_one_letter() {
    let (_queue, letters) = full_store(false, |queue, letters| {
        fail(queue, letters, 1, 1);
        queue.shut_down();
    });
    let id = letters.list()[0].id;
    assert_eq!(letters.put_back(id), Some(Added::ShutDown));
    assert_eq!(letters_of(&letters), [(1, 2, vec![0, 1])]);
    assert!(letters.remove(id).is_some());
}

#[test] // X1 S13
fn a_letter_keeps_its_place_while_it_is_put_back() {
    // Another key fails meanwhile: it has not the place of this one, whether that has failed again or not.
    for (drops_oldest, fails, is_removed) in [
        (false, false, false),
        (false, true, false),
        (false, true, true),
        (true, false, false),
        (true, true, false),
        (true, true, true),
    ] {
        let (queue, letters) = full_store(drops_oldest, move |queue, letters| {
            if fails {
                fail(queue, letters, 1, 1);
            }
            if is_removed {
                assert!(letters.remove(letters.list()[1].id).is_some());
            }
            fail(queue, letters, 2, 2);
            panic!("a clone");
        });
        let id = letters.list()[0].id;
        let put_back = AssertUnwindSafe(|| letters.put_back(id));
        assert!(catch_unwind(put_back).is_err());
        let (attempts, value) = match fails && !is_removed {
            true => (2, vec![0, 1]),
            false => (1, vec![0]),
        };
        assert_eq!(letters_of(&letters), [(1, attempts, value)]);
        assert_eq!(letters.lost(), 1);
        assert!(queue.is_empty());
        clear(&letters);
    }
}

#[test] // X1
fn a_store_is_shared_by_workers_of_several_queues() {
    let letters = Store::new(10).unwrap();
    let queues = [1, 2].map(|key| eager([key]));
    for queue in &queues {
        fail_all(queue, &letters.clone(), "no");
    }
    assert_eq!(keys(&letters), [1, 2]);
    for letter in letters.list() {
        assert_eq!(letters.put_back(letter.id), Some(Added::Queued));
    }
    assert!(
        queues
            .iter()
            .zip(1..)
            .all(|(queue, key)| queue.state(&key).is_some())
    );
}

#[test] // X1 X2
fn letters_come_in_pages() {
    let (queue, _time) = built::<u64>(|builder| builder);
    let letters = Store::new(10).unwrap();
    queue.add_all(0..7);
    fail_all(&queue, &letters, "no");
    drop(letters.remove(letters.list()[2].id));
    let (mut found, mut from) = (Vec::new(), 0);
    loop {
        let page = letters.page(from, 2);
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        from = last.id + 1;
        found.extend(page.iter().map(|letter| *letter.key));
    }
    assert_eq!((found, letters.capacity()), (vec![0, 1, 3, 4, 5, 6], 10));
}
