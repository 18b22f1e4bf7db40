//! Types in signatures: defaults of the type parameters, and which types are errors.

use std::error::Error;
use std::fmt;
use std::hash::RandomState;
use std::panic::catch_unwind;
use std::sync::Mutex;

use keyqueue::limiter::default_controller;
use keyqueue::worker::{DeadLetters, Failures, GivenUp, Job, Running, Workers};
use keyqueue::{
    Added, Batch, Builder, Cursor, Item, Iter, KeyHandle, KeySnapshot, Left, Listed, Page,
    Remaining, ShutDownOnDrop, WorkQueue, merge,
};

/// Workers over `queue`, and what is taken from it, by types that name the key alone.
struct Named<'q> {
    item: Item<'q, u64>,
    batch: Batch<'q, u64>,
    workers: Workers<'q, u64>,
    running: Option<Running<u64>>,
}

#[test]
fn types_name_the_key_alone_if_the_rest_is_the_default() {
    fn is_send(_: &impl Send) {}
    let queue = WorkQueue::new();
    queue.add_all([1, 2]);
    let named = Named {
        item: queue.get().unwrap(),
        batch: queue.get_batch(2).unwrap(),
        workers: Workers::new(&queue),
        running: None,
    };
    assert_eq!((*named.item, named.batch.len()), (1, 1));
    is_send(&queue.drain_async());
    drop((named.item, named.batch));
    queue.shut_down();
    assert!(named.running.is_none());
    named.workers.concurrency(1).run(|_| ()).unwrap();
}

/// The same of a queue of values, by types that name the key and the value, and no hasher.
struct NamedWithValue<'q> {
    handle: KeyHandle<u64, Vec<u32>>,
    end: ShutDownOnDrop<'q, u64, Vec<u32>>,
    keys: Iter<'q, u64, Vec<u32>>,
    page: Page<'q, u64, Vec<u32>>,
    known: Vec<KeySnapshot<'q, u64, Vec<u32>>>,
    item: Item<'static, u64, Vec<u32>>,
    workers: Workers<'q, u64, Vec<u32>, String>,
    letters: DeadLetters<u64, Vec<u32>>,
    failures: Failures<u64, Vec<u32>>,
    left: Vec<Left<u64, Vec<u32>>>,
}

#[test]
fn types_name_no_hasher() {
    let builder: Builder<u64> = WorkQueue::builder();
    let builder = builder.merge(merge::append);
    let builder: Builder<u64, Vec<u32>, RandomState> = builder.hasher(RandomState::new());
    let queue: WorkQueue<u64, Vec<u32>, RandomState> = builder.build().unwrap();
    (1..=3).for_each(|key| _ = queue.put(key, vec![key as u32]));
    let mut named = NamedWithValue {
        handle: queue.handle(9),
        end: queue.shut_down_on_drop(),
        keys: queue.iter(),
        page: queue.page(Cursor::default(), Listed::All, 9),
        known: queue.snapshot(),
        item: queue.get().unwrap().into_owned(),
        workers: Workers::new(&queue),
        letters: DeadLetters::new(1).unwrap(),
        failures: Failures::new(1).unwrap(),
        left: Vec::new(),
    };
    assert_eq!(*named.item.value(), [1]);
    assert_eq!(*named.keys.next().unwrap().value(), [2]);
    assert_eq!((named.page.keys.len(), named.known.len()), (3, 3));
    let work = |mut job: Job<'_, u64, Vec<u32>>| {
        queue.shut_down();
        assert_eq!((*job, job.take()), (3, Some(vec![3])));
        named.handle.add();
    };
    let workers = named.workers.concurrency(1).failures(&named.failures);
    let workers = workers.dead_letters(&named.letters);
    let run = move |job: Job<'_, u64, Vec<u32>>| -> Result<(), String> {
        work(job);
        Ok(())
    };
    workers.run(run).unwrap();
    assert_eq!(named.item.retry(), Added::ShutDown);
    named.left = queue.take_left();
    assert_eq!(
        (named.left[0].key, named.left[0].value.take()),
        (1, Some(vec![1]))
    );
    drop(named.end);
}

#[test]
fn what_a_worker_holds_may_be_used_in_catch_unwind() {
    let queue = WorkQueue::new();
    let handle = queue.handle("key");
    assert!(catch_unwind(|| handle.add()).is_ok_and(Added::is_accepted));
    let item = queue.get().unwrap();
    let length = catch_unwind(|| {
        queue.add("other");
        item.len()
    });
    assert_eq!(length.unwrap(), 3);
    let boxed = WorkQueue::builder().rate_limiter(default_controller::<&str>());
    let queue = boxed.build().unwrap();
    assert!(catch_unwind(move || queue.add("key")).is_ok());
}

/// An error with a source.
#[derive(Debug)]
struct Refused(fmt::Error);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn what_is_left_or_given_up_is_an_error() {
    fn error<E: Error>(error: &E) -> (String, bool) {
        (error.to_string(), error.source().is_some())
    }

    let queue = WorkQueue::<u64>::new();
    queue.add_all(0..5);
    let held = (queue.get(), queue.get());
    let left: Remaining = queue.shut_down();
    drop(held);
    assert_eq!(
        error(&left),
        (
            "keys left: 3 queued, 2 processing, 0 delayed, 0 refused".into(),
            false
        )
    );

    let ends = Mutex::new(Vec::new());
    let queue = WorkQueue::<u64>::new();
    queue.add(1);
    queue.shut_down();
    let workers = Workers::new(&queue).concurrency(1);
    let workers = workers.on_give_up(|_, end: GivenUp<Refused>| ends.lock().unwrap().push(end));
    workers.run(|_| Err::<(), _>(Refused(fmt::Error))).unwrap();
    let end = ends.into_inner().unwrap().pop().unwrap();
    // The text contains the function's error, so the source is the error below that.
    assert_eq!(
        error(&end),
        ("refused (retries: 0, shut down)".into(), true)
    );
}
