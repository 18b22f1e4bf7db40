//! Workers that are threads: how many there are, what panics do to them, how they end.

use std::error::Error;
use std::fmt;
use std::future::ready;
use std::io;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{
    Task, alone, alone_under, eager, eventually, figures, take_all, threads, waiting, watchdog,
};
use crate::{assert_all_done, assert_closed_by_its_drop};
use keyqueue::worker::{
    Failure, GivenUp, IntoVerdict, Job, Outcome, Reason, Running, Verdict, Workers,
};
use keyqueue::{Added, ConfigError, WorkQueue};

// ---- W1 -------------------------------------------------------------------------------------

#[test] // W1
fn so_many_threads_work_on_so_many_keys_at_once() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::<u64>::new();
    queue.add_all(0..8);
    queue.shut_down();
    let (all, most) = (Barrier::new(4), AtomicUsize::new(0));
    let in_work = AtomicUsize::new(0);
    let run = Workers::new(&queue).concurrency(4).run(|_| {
        most.fetch_max(in_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        all.wait(); // Goes on only when four are here.
        in_work.fetch_sub(1, Ordering::SeqCst);
    });
    run.unwrap();
    assert_eq!(most.into_inner(), 4);
}

#[test] // W1
fn a_single_worker_is_the_calling_thread() {
    let queue = WorkQueue::<u64>::new();
    queue.add(1);
    queue.shut_down();
    let caller = thread::current().id();
    let run = Workers::new(&queue).concurrency(1);
    run.run(|_| assert_eq!(thread::current().id(), caller))
        .unwrap();
}

#[test] // W1
fn a_function_may_return_what_it_likes() {
    fn worked<R: IntoVerdict>(f: impl Fn(Job<'_, u64>) -> R + Sync) -> usize {
        let queue = WorkQueue::new();
        queue.add_all([1, 2]);
        queue.shut_down();
        let count = AtomicUsize::new(0);
        let workers = Workers::new(&queue).concurrency(1);
        let run = workers.run(|job| {
            count.fetch_add(1, Ordering::Relaxed);
            f(job)
        });
        run.map(|()| count.into_inner()).unwrap()
    }
    assert_eq!(worked(|_| ()), 2);
    assert_eq!(worked(|_| Outcome::Done), 2);
    assert_eq!(worked(|_| Ok::<_, std::io::Error>(Outcome::Done)), 2);
    assert_eq!(worked(|_| Ok::<(), Box<dyn std::error::Error>>(())), 2);
    assert_eq!(worked(|_| Verdict::<&str>::Ok(Outcome::Done)), 2);
    assert_eq!(worked(|_| Verdict::GiveUp("never")), 2);
}

/// Asserts that so many threads, or tasks, are refused by name, and that no key is taken. Returns the errors.
fn refusals(concurrency: usize, are_tasks: bool) -> [ConfigError; 2] {
    let queue = WorkQueue::from_iter([1]);
    let workers = || Workers::new(&queue).concurrency(concurrency);
    let refusals = if are_tasks {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let spawn = workers().spawn_on(runtime.unwrap().handle(), |_| ready(()));
        let run = pollster::block_on(workers().run_async(async |_| ()));
        [run.unwrap_err(), spawn.unwrap_err()]
    } else {
        let spawn = workers().spawn(|_| ());
        [workers().run(|_| ()).unwrap_err(), spawn.unwrap_err()]
    };
    for refused in &refusals {
        assert_eq!(refused.field(), "concurrency");
        assert_eq!(refused.value(), concurrency.to_string());
    }
    assert_eq!(queue.len(), 1);
    assert_closed_by_its_drop(queue);
    refusals
}

#[test] // W1
fn a_number_of_threads_or_tasks_out_of_range_is_refused_by_name_and_takes_no_key() {
    for (most, are_tasks) in [(1 << 13, false), (1 << 16, true)] {
        for concurrency in [0, most + 1, usize::MAX] {
            refusals(concurrency, are_tasks);
        }
    }
}

#[test] // W1
fn a_name_with_a_nul_in_it_names_threads() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::builder().name("a\0b").build().unwrap();
    queue.add_all([1, 2_u64]);
    queue.shut_down();
    let (together, names) = (Barrier::new(2), Mutex::new(Vec::new()));
    let workers = Workers::new(&queue).concurrency(2);
    let run = workers.run(|_| {
        together.wait();
        let name = thread::current().name().map(str::to_owned);
        names.lock().unwrap().push(name.unwrap_or_default());
    });
    run.unwrap();
    let names = names.into_inner().unwrap();
    let expected = "keyqueue-worker-1 ab".to_owned();
    assert!(names.contains(&expected), "{names:?}");
}

#[cfg(target_os = "linux")]
#[test] // W1
fn more_threads_than_can_be_started_are_refused_and_none_is_left() {
    // Room for ten stacks and for half of another, so that what fails is always the start of a thread: std panics if
    // the little is missing that a thread allocates later.
    let limits = "export RUST_MIN_STACK=209715200 MALLOC_ARENA_MAX=1 && ulimit -v 2180000";
    alone_under(Some(limits), || {
        let _watchdog = watchdog(60);
        for refused in refusals(1 << 13, false) {
            assert!(refused.to_string().contains("can be started"), "{refused}");
            let source = refused.source().and_then(|source| source.downcast_ref());
            let kind = source.map(io::Error::kind);
            assert_eq!(kind, Some(io::ErrorKind::WouldBlock), "{refused:?}");
        }
    });
}

// ---- panics (W2) --------------------------------------------------------------------------------

/// Panics as it is dropped.
struct Nasty;

impl fmt::Display for Nasty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nasty")
    }
}

impl Drop for Nasty {
    fn drop(&mut self) {
        panic!("from the drop");
    }
}

#[test] // W2; c-r: "should recover from panics"
fn a_panic_is_an_error() {
    let queue = WorkQueue::<u64>::new();
    queue.add_all([1, 2, 3, 4]);
    let ends = Mutex::new(Vec::new());
    let workers = Workers::new(&queue).concurrency(1).max_retries(0);
    let workers = workers.on_give_up(|_, end: GivenUp<&str>| {
        ends.lock().unwrap().push(end.failure);
        if ends.lock().unwrap().len() == 4 {
            queue.shut_down();
        }
    });
    let run = workers.run(|job| -> Result<(), &'static str> {
        match *job {
            1 => panic!("a text"),
            2 => panic!("key {}", *job),
            3 => panic_any(3),
            _ => panic_any(Nasty),
        }
    });
    run.unwrap();
    let other = "a value that is not a string";
    let panics = ["a text", "key 2", other, other];
    let panics = panics.map(|text| Failure::Panic(text.to_owned()));
    assert_eq!(ends.into_inner().unwrap(), panics);
}

#[test] // W1 W2 C5
fn a_function_that_panics_every_third_call_loses_no_key_and_kills_no_worker() {
    const KEYS: u64 = 300;
    let _watchdog = watchdog(60);
    let queue = eager([]);
    let worked: Vec<_> = (0..KEYS).map(|_| AtomicBool::new(false)).collect();
    let (calls, left) = (AtomicU64::new(0), AtomicU64::new(KEYS));
    let together = Barrier::new(4);
    queue.add_all(0..KEYS + 4);
    let workers = Workers::new(&queue).concurrency(4);
    let run = workers.run(|job| {
        let key = *job;
        if key >= KEYS {
            // After all others, as they are retried at once: only four live workers come past.
            if left.load(Ordering::SeqCst) > 0 {
                return Outcome::RequeueAfter(Duration::ZERO);
            }
            together.wait();
            queue.shut_down();
            return Outcome::Done;
        }
        assert_ne!(calls.fetch_add(1, Ordering::SeqCst) % 3, 2, "every third");
        let again = worked[key as usize].swap(true, Ordering::SeqCst);
        assert!(!again, "{key} again");
        left.fetch_sub(1, Ordering::SeqCst);
        Outcome::Done
    });
    run.unwrap();
    assert!(worked.iter().all(|worked| worked.load(Ordering::SeqCst)));
    assert!(calls.into_inner() >= KEYS * 3 / 2 - 1);
    assert_all_done(&queue);
}

#[test] // W2
fn a_hook_that_panics_kills_no_worker_and_its_key_is_done() {
    let queue = WorkQueue::<u64>::new();
    queue.add_all([1, 2]);
    queue.shut_down();
    let told = AtomicUsize::new(0);
    let workers = Workers::new(&queue).concurrency(1).on_give_up(|_, _| {
        told.fetch_add(1, Ordering::SeqCst);
        panic!("from the hook");
    });
    workers.run(|_| Err::<(), _>("no")).unwrap();
    assert_eq!(told.into_inner(), 2);
    assert_all_done(&queue);
}

#[test] // W2
fn an_error_that_panics_as_it_is_dropped_kills_no_worker() {
    let queue = WorkQueue::<u64>::new();
    queue.add_all([1, 2]);
    queue.shut_down();
    let told = Mutex::new(Vec::new());
    let workers = Workers::new(&queue).concurrency(1);
    let workers = workers.on_give_up(|key, end| told.lock().unwrap().push((*key, end.reason)));
    workers.run(|_| Err::<(), _>(Nasty)).unwrap();
    let told = told.into_inner().unwrap();
    assert_eq!(told, [(1, Reason::ShutDown), (2, Reason::ShutDown)]);
    assert_all_done(&queue);
}

// ---- W4 -------------------------------------------------------------------------------------

#[test] // W4
fn it_returns_only_after_the_keys_in_flight_are_finished() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::<u64>::new();
    let (begun, gate) = (Barrier::new(3), Barrier::new(3));
    let (finished, returned) = (AtomicUsize::new(0), AtomicBool::new(false));
    queue.add_all([1, 2]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let workers = Workers::new(&queue).concurrency(2);
            let run = workers.run(|_| {
                begun.wait();
                gate.wait();
                assert!(!returned.load(Ordering::SeqCst));
                finished.fetch_add(1, Ordering::SeqCst);
            });
            run.unwrap();
            returned.store(true, Ordering::SeqCst);
            assert_eq!(finished.load(Ordering::SeqCst), 2);
        });
        begun.wait();
        assert_eq!(queue.shut_down().processing, 2);
        gate.wait();
    });
    assert_all_done(&queue);
}

#[test] // W4
fn workers_of_a_handle_stop_and_end_from_outside() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    let (sender, worked) = mpsc::channel();
    let workers = Workers::new(&queue).concurrency(3);
    let running = workers
        .spawn(move |job: Job<'_, u64>| sender.send(*job))
        .unwrap();
    queue.add_all(0..100);
    assert_eq!(worked.iter().take(100).sum::<u64>(), 4950);
    assert!(!running.is_finished());
    queue.shut_down();
    eventually("the threads end", || running.is_finished());
    running.join();
    assert_eq!(queue.add(1), Added::ShutDown);
    assert!(worked.recv().is_err(), "the function is dropped");
}

/// Two workers that wait for a key.
fn two_that_wait(queue: &WorkQueue<u64>) -> Running<u64> {
    let workers = Workers::new(queue).concurrency(2);
    let running = workers.spawn(|_| ());
    eventually("they wait", || waiting(queue) == 2);
    running.unwrap()
}

/// A worker that holds a key until the test passes the barrier.
fn gated(queue: &WorkQueue<u64>, end: Outcome) -> (Running<u64>, Arc<Barrier>) {
    let gate = Arc::new(Barrier::new(2));
    let passes = Arc::clone(&gate);
    let workers = Workers::new(queue).concurrency(1);
    let running = workers.spawn(move |_: Job<'_, u64>| {
        passes.wait(); // Begins.
        passes.wait();
        end
    });
    gate.wait();
    (running.unwrap(), gate)
}

#[test] // W4
fn an_abort_ends_workers_that_wait_and_leaves_the_queue_open() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    let running = two_that_wait(&queue);
    running.abort();
    running.join();
    assert_eq!(waiting(&queue), 0);
    assert_eq!(queue.add(1), Added::Queued);
    assert_eq!(take_all(&queue), [1]);
    assert_closed_by_its_drop(queue);
}

#[test] // W4
fn an_abort_wakes_no_other_getter_and_takes_no_key_from_it() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    let running = two_that_wait(&queue);
    let mut getter = Task::waiting(queue.get_async());
    running.abort();
    queue.add(1);
    running.join();
    assert_eq!(*getter.output().unwrap(), 1);

    let running = two_that_wait(&queue);
    let mut getter = Task::waiting(queue.get_async());
    running.abort();
    running.join();
    assert_eq!(getter.wakes(), 0);
    getter.assert_pending();
}

#[test] // W4
fn an_aborted_worker_finishes_its_key_and_gets_no_other() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3]);
    let (running, gate) = gated(&queue, Outcome::RequeueAfter(Duration::ZERO));
    running.abort();
    assert!(!running.is_finished());
    gate.wait();
    running.join();
    // What the function returned was done: it is queued again, at the tail.
    assert_eq!(take_all(&queue), [2, 3, 1]);
}

#[test] // W4
fn dropping_the_handle_waits_for_no_worker_and_ends_them() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    queue.add_all([1, 2]);
    let (running, gate) = gated(&queue, Outcome::Done);
    drop(running);
    assert_eq!(queue.add(3), Added::Queued);
    gate.wait();
    eventually("the worker ends", || Arc::strong_count(&gate) == 1);
    assert_eq!(take_all(&queue), [2, 3]);
}

#[test] // W8 S7
fn drain_within_drains_until_its_time_is_over_and_says_what_is_left() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3]);
    let (mut running, gate) = gated(&queue, Outcome::Done);
    let drained = running.drain_within(Duration::from_millis(1));
    assert!(!drained.is_finished());
    assert_eq!(figures(drained), (2, 1, 0));
    assert_eq!(queue.add(4), Added::ShutDown);
    gate.wait();
    running.join();
    // The worker took no other key.
    assert_eq!(take_all(&queue), [2, 3]);
}

#[test] // W8 S7
fn drain_within_returns_as_soon_as_every_key_is_done() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    queue.add_all(0..100);
    let worked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&worked);
    let workers = Workers::new(&queue).concurrency(2);
    let running = workers.spawn(move |_: Job<'_, u64>| _ = count.fetch_add(1, Ordering::SeqCst));
    let mut running = running.unwrap();
    let drained = running.drain_within(Duration::MAX);
    assert!(drained.is_finished());
    assert_eq!(figures(drained), (0, 0, 0));
    assert_eq!(worked.load(Ordering::SeqCst), 100);
    running.join();
}

#[test] // W4
fn a_worker_may_stop_and_join_the_others_or_drop_the_handle() {
    let _watchdog = watchdog(60);
    for join in [true, false] {
        let queue = Arc::new(WorkQueue::new());
        let handle = Arc::new(Mutex::new(None));
        let (sender, ended) = mpsc::channel();
        let (mine, its_queue) = (Arc::clone(&handle), Arc::clone(&queue));
        let workers = Workers::new(&queue).concurrency(3);
        let running = workers.spawn(move |_: Job<'_, u64>| {
            let running: Running<_> = mine.lock().unwrap().take().expect("one key only");
            if join {
                let remaining = its_queue.shut_down();
                assert_eq!(remaining.processing, 1);
                running.join();
            } else {
                drop(running);
            }
            sender.send(join).unwrap();
        });
        *handle.lock().unwrap() = Some(running.unwrap());
        queue.add(1);
        assert_eq!(ended.recv(), Ok(join));
        assert_eq!(queue.is_shutting_down(), join);
        // The thread that joined the others ends by itself.
        eventually("all workers end", || Arc::strong_count(&queue) == 1);
    }
}

#[test] // W4 S2
fn a_worker_that_joins_the_others_goes_on_with_what_is_queued_then() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    let key = queue.handle(1);
    let (handle, handle_at) = mpsc::channel::<Running<u64>>();
    let (handle_at, calls) = (Mutex::new(handle_at), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&calls);
    let workers = Workers::new(&queue).concurrency(1);
    let running = workers.spawn(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            let running = handle_at.lock().unwrap().recv().unwrap();
            key.add();
            // There are no others.
            running.join();
        }
    });
    queue.add(1);
    handle.send(running.unwrap()).unwrap();
    eventually("it is dirty, and queued again", || {
        calls.load(Ordering::SeqCst) == 2
    });
    assert!(queue.shut_down_with_drain().is_finished());
}

#[cfg(target_os = "linux")]
#[test] // W4; c-r: "should not leak goroutines when stopped"
fn stopped_workers_leave_no_thread_behind() {
    alone(|| {
        let before = threads("");
        for _ in 0..20 {
            let queue = WorkQueue::new();
            queue.add_after(1, Duration::from_secs(3600));
            let workers = Workers::new(&queue).concurrency(4);
            let running = workers.spawn(|_: Job<'_, u64>| ()).unwrap();
            let scoped = WorkQueue::<u64>::new();
            scoped.shut_down();
            Workers::new(&scoped).concurrency(4).run(|_| ()).unwrap();
            assert!(threads("") > before);
            drop(running);
        }
        // A joined thread may be listed for a moment.
        eventually("no thread is left", || threads("") == before);
    });
}
