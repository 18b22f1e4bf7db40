//! Workers, and a subscriber of `tracing` that panics: no worker dies, and no key, message or report is lost.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

use crate::batches::Jobs;
use crate::common::timed::HOUR;
use crate::common::{poll_until_idle, watchdog};
use crate::jobs::Way;
use crate::tracing::under;
use keyqueue::limiter::NoLimit;
use keyqueue::worker::{GivenUp, Job, Outcome, Verdict, Workers};
use keyqueue::{Clock, LeftReason, WorkQueue, merge};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Span, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// Where a layer panics, each time, at the spans and events of workers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Panics {
    Nowhere,
    NewSpan,
    Enter,
    Record,
    Event,
    Exit,
    Close,
}

impl Panics {
    const ALL: [Self; 7] = [
        Self::Nowhere,
        Self::NewSpan,
        Self::Enter,
        Self::Record,
        Self::Event,
        Self::Exit,
        Self::Close,
    ];

    fn at(self, here: Self, of: &Metadata<'_>) {
        if self == here && of.target() == "keyqueue" {
            resume_unwind(Box::new("by the subscriber"));
        }
    }
}

impl Layer<Registry> for Panics {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, Registry>) {
        self.at(Self::NewSpan, span.metadata());
    }

    fn on_enter(&self, id: &Id, context: Context<'_, Registry>) {
        self.at(Self::Enter, context.metadata(id).unwrap());
    }

    fn on_record(&self, id: &Id, _: &Record<'_>, context: Context<'_, Registry>) {
        self.at(Self::Record, context.metadata(id).unwrap());
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, Registry>) {
        self.at(Self::Event, event.metadata());
    }

    fn on_exit(&self, id: &Id, context: Context<'_, Registry>) {
        self.at(Self::Exit, context.metadata(id).unwrap());
    }

    fn on_close(&self, id: Id, context: Context<'_, Registry>) {
        self.at(Self::Close, context.metadata(&id).unwrap());
    }
}

/// What the function gets.
#[derive(Clone, Copy, Debug)]
enum Gets {
    Key,
    Message,
    Batch,
}

type Lists = WorkQueue<u64, Vec<u32>>;

/// Says what becomes of a value by its first message, and logs the try. Shuts the queue down at the last try.
fn work(
    queue: &Lists,
    log: &Mutex<Vec<String>>,
    job: &Job<'_, u64, Vec<u32>>,
) -> Verdict<&'static str> {
    let (value, attempt) = (job.value(), job.attempt());
    log.lock().unwrap().push(format!("{value:?} at {attempt}"));
    match value[0] {
        2 => Verdict::Ok(Outcome::Later(HOUR)),
        3 => Verdict::Retry("no"),
        4 => {
            if attempt == 2 {
                queue.shut_down();
            }
            resume_unwind(Box::new("by the function"))
        }
        _ => Verdict::Ok(Outcome::Done),
    }
}

/// What is left of a key.
type Remains = (u64, Option<Vec<u32>>, LeftReason);

/// Runs a worker on the calling thread. Returns its tries, its reports, and what is left.
fn run(way: Way, gets: Gets, panics: Panics) -> (Vec<String>, Vec<Remains>) {
    let (clock, _time) = Clock::mock();
    let builder = WorkQueue::builder().rate_limiter(NoLimit).clock(clock);
    let builder = builder.manual_timers().merge(merge::append);
    let queue = Arc::new(builder.build().unwrap());
    for key in 1..5 {
        queue.put(key.into(), vec![key, 10 * key]);
    }
    let log = Arc::new(Mutex::new(Vec::new()));
    let (failures, ends) = (Arc::clone(&log), Arc::clone(&log));
    let workers = Workers::new(&queue).max_retries(1);
    let workers = workers.on_error(move |key, failed| {
        failures.lock().unwrap().push(format!("{key}: {failed}"));
    });
    let workers = workers.on_give_up(move |key, end: GivenUp<_, Vec<_>>| {
        let value = end.value.as_ref().unwrap();
        ends.lock()
            .unwrap()
            .push(format!("{key}: {value:?}, {end}"));
    });
    let (ending, tries) = (Arc::clone(&queue), Arc::clone(&log));
    let f = move |job: &Job<'_, _, _>| work(&ending, &tries, job);
    under(panics, || {
        let outer = tracing::info_span!(target: "mine", "outer").entered();
        match gets {
            Gets::Key => way.run(workers, move |job: Job<'_, _, _>| f(&job)),
            Gets::Message => way.run(workers.each(9), move |job: Job<'_, _, _>| f(&job)),
            Gets::Batch => {
                let all = move |jobs: Jobs<'_, _>| jobs.iter().map(&f).collect::<Vec<_>>();
                way.run_batches(workers, all);
            }
        }
        assert_eq!(Span::current().id(), outer.id(), "a span is not left");
    });
    let log = std::mem::take(&mut *log.lock().unwrap());
    let left = queue.take_left().into_iter();
    (log, left.map(|it| (it.key, it.value, it.reason)).collect())
}

#[test] // W2 W7 W10 W11 S12
fn a_subscriber_that_panics_changes_nothing_of_what_becomes_of_keys() {
    let _watchdog = watchdog(60);
    let failures = [
        "3: no (attempt 1, the next immediately)",
        "4: panicked: by the function (attempt 1, the next immediately)",
        "3: no (attempt 2, given up)",
        "4: panicked: by the function (attempt 2, given up)",
    ];
    for gets in [Gets::Key, Gets::Message, Gets::Batch] {
        for way in [Way::Scoped, Way::Future] {
            let (expected, left) = run(way, gets, Panics::Nowhere);
            let all = match gets {
                Gets::Message => ["3: [3], no (retries: 1)", "[30] at 1", "[40] at 1"],
                _ => [
                    "3: [3, 30], no (retries: 1)",
                    "[1, 10] at 1",
                    "[2, 20] at 1",
                ],
            };
            for said in failures.iter().chain(&all) {
                assert!(expected.iter().any(|it| it == said), "{said}: {expected:?}");
            }
            assert_eq!(left, [(2, Some(vec![2, 20]), LeftReason::Delayed)]);
            for panics in Panics::ALL {
                let (log, left_then) = run(way, gets, panics);
                assert_eq!(log, expected, "{gets:?} {way:?} {panics:?}");
                assert_eq!(left_then, left, "{gets:?} {way:?} {panics:?}");
            }
        }
    }
}

/// Records an event when it is dropped.
struct Says;

impl Drop for Says {
    fn drop(&mut self) {
        tracing::info!(target: "mine", "dropped");
    }
}

/// How many spans each event is in.
#[derive(Clone, Default)]
struct Depths(Arc<Mutex<Vec<usize>>>);

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Depths {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let scope = context.event_scope(event).into_iter().flatten();
        self.0.lock().unwrap().push(scope.count());
    }
}

#[test] // W6 W7
fn what_a_future_drops_when_it_is_cancelled_is_within_its_span() {
    let depths = Depths::default();
    under(depths.clone(), || {
        let queue = WorkQueue::from_iter([1_u64]);
        let workers = Workers::new(&queue).concurrency(1);
        let mut run = Box::pin(workers.run_async(async |_: Job<'_, u64>| {
            let _says = Says;
            pending::<()>().await;
        }));
        assert!(poll_until_idle(&mut run).is_pending());
        drop(run);
        assert_eq!(queue.len(), 1, "the key is put back");
    });
    assert_eq!(*depths.0.lock().unwrap(), [1]);
}
