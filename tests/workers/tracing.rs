//! The spans and events of the worker loop.

use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use crate::common::poll_until_idle;
use crate::common::timed::built;
use keyqueue::WorkQueue;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{DeadLetters, Failed, Failures, Job, Outcome, Verdict, Workers};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// Fields with their names, as text. JSON has no room for two of one name.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fields(Vec<(&'static str, String)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }
}

impl Fields {
    fn get(&self, field: &str) -> &str {
        let found = self.0.iter().find(|(name, _)| *name == field);
        found.map_or("-", |(_, value)| value)
    }

    fn all<const N: usize>(&self, fields: [&str; N]) -> [&str; N] {
        fields.map(|field| self.get(field))
    }

    fn are_unique(&self) -> bool {
        let names: BTreeSet<_> = self.0.iter().map(|(name, _)| name).collect();
        names.len() == self.0.len()
    }
}

/// What was closed, and what was said within it.
#[derive(Clone, Default)]
struct Collected {
    spans: Arc<Mutex<Vec<Fields>>>,
    /// Level, fields, and the number of spans it was in.
    events: Arc<Mutex<Vec<(String, Fields, usize)>>>,
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Collected {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        assert_eq!(attributes.metadata().target(), "keyqueue");
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        record.record(span.extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let depth = context.event_scope(event).into_iter().flatten().count();
        let level = event.metadata().level().to_string();
        self.events.lock().unwrap().push((level, fields, depth));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let fields = span.extensions().get::<Fields>().unwrap().clone();
        self.spans.lock().unwrap().push(fields);
    }
}

type Queue = WorkQueue<&'static str>;

/// A queue with keys of every fate, that have waited for 2 s.
fn queue() -> Queue {
    let limiter = ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO).unwrap();
    let (queue, time) = built(|builder| builder.name("pods").rate_limiter(limiter));
    queue.add_all(["good", "later", "bad", "worse"]);
    time.advance(Duration::from_secs(2));
    queue
}

fn work(queue: &Queue, key: &str) -> Result<Outcome, &'static str> {
    tracing::info!(target: "mine", "work");
    match key {
        "good" => Ok(Outcome::Done),
        "later" => Ok(Outcome::RequeueAfter(Duration::from_secs(1))),
        "bad" => Err("bad"),
        _ => {
            if queue.num_requeues(&"worse") == 1 {
                queue.shut_down();
            }
            panic!("worse")
        }
    }
}

fn check(collected: &Collected) {
    let spans = collected.spans.lock().unwrap();
    let rows: Vec<_> = spans
        .iter()
        .map(|span| ["key", "attempt", "outcome"].map(|name| span.get(name)))
        .collect();
    let expected = [
        ["\"good\"", "1", "done"],
        ["\"later\"", "1", "requeue_after"],
        ["\"bad\"", "1", "retry"],
        ["\"worse\"", "1", "retry"],
        ["\"bad\"", "2", "given_up"],
        ["\"worse\"", "2", "given_up"],
    ];
    assert_eq!(rows, expected);
    assert!(spans.iter().all(|span| span.get("queue") == "pods"));
    assert_eq!(spans[0].get("queue_seconds"), "2.0");

    let events = collected.events.lock().unwrap();
    let of = |level: &str| -> Vec<_> {
        let of = events.iter().filter(|event| event.0 == level);
        of.map(|event| &event.1).collect()
    };
    // Each in its span, the user's own as well.
    assert!(events.iter().all(|event| event.2 == 1), "{events:?}");
    assert!(
        events.iter().all(|event| event.1.are_unique()),
        "{events:?}"
    );
    assert_eq!(of("INFO").len(), 6);
    let said = |fields: &&Fields| fields.all(["message", "panic"]).map(str::to_owned);
    let panic = ["the worker's function panicked", "worse"].map(str::to_owned);
    assert_eq!(
        of("ERROR").iter().map(said).collect::<Vec<_>>(),
        [panic.clone(), panic]
    );

    let fields = [
        "key",
        "error",
        "attempt",
        "next_delay_seconds",
        "reason",
        "retries",
    ];
    let warnings: Vec<_> = of("WARN").iter().map(|event| event.all(fields)).collect();
    let (bad, worse) = ("\"bad\"", "\"worse\"");
    let expected = [
        [bad, "bad", "1", "0.0", "-", "-"],
        [worse, "panicked: worse", "1", "0.0", "-", "-"],
        [bad, "bad", "2", "-", "-", "-"],
        [bad, "bad", "-", "-", "max_retries", "1"],
        [worse, "panicked: worse", "2", "-", "-", "-"],
        [worse, "panicked: worse", "-", "-", "max_retries", "1"],
    ];
    assert_eq!(warnings, expected);
}

/// A second subscriber, which wants nothing. Beside it, tracing asks every subscriber about a new callsite. If there
/// is only one, it asks that of the thread which is there first, and a thread of another test here has none
/// (tokio-rs/tracing#2874).
static OTHER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::registry().with(LevelFilter::OFF)));

/// Runs `run` with this layer over a registry.
pub(crate) fn under<T>(layer: impl Layer<Registry> + Send + Sync, run: impl FnOnce() -> T) -> T {
    LazyLock::force(&OTHER);
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, run)
}

/// What is traced while `run` runs.
fn collect(run: impl FnOnce()) -> Collected {
    let collected = Collected::default();
    under(collected.clone(), run);
    collected
}

#[test] // W7
fn every_delivered_key_has_a_span_that_says_how_it_ended_and_every_failure_an_event() {
    check(&collect(|| {
        let queue = queue();
        let workers = Workers::new(&queue)
            .concurrency(1)
            .max_retries(1)
            .trace_keys();
        workers.run(|job| work(&queue, &job)).unwrap();
    }));
    check(&collect(|| {
        let queue = queue();
        let workers = Workers::new(&queue)
            .concurrency(1)
            .max_retries(1)
            .trace_keys();
        let run = workers.run_async(async |job: Job<'_, &'static str>| work(&queue, &job));
        pollster::block_on(run).unwrap();
    }));
}

#[test] // S5 W7
fn a_retry_that_a_shut_down_drops_has_an_event_with_its_error() {
    let collected = collect(|| {
        let hour = Duration::from_secs(3600);
        let limiter = ItemExponentialFailure::new(hour, hour).unwrap();
        let queue = WorkQueue::builder().rate_limiter(limiter).build().unwrap();
        queue.add("bad");
        let workers = Workers::new(&queue).concurrency(1).on_give_up(|_, _| ());
        let mut run = Box::pin(workers.run_async(async |_| Err::<(), _>("no route")));
        assert!(poll_until_idle(&mut run).is_pending());
        queue.shut_down();
        assert!(poll_until_idle(&mut run).is_ready());
    });
    let events = collected.events.lock().unwrap();
    let fields = ["error", "next_delay_seconds", "reason", "retries", "key"];
    let events: Vec<_> = events.iter().map(|event| event.1.all(fields)).collect();
    let expected = [
        ["no route", "3600.0", "-", "-", "-"],
        ["no route", "-", "dropped", "0", "-"],
    ];
    assert_eq!(events, expected);
}

#[test] // W7 W10
fn a_batch_that_fails_as_a_whole_has_an_event_and_each_of_its_keys_a_span() {
    let collected = collect(|| {
        let queue = WorkQueue::from_iter([1_u64, 2]);
        queue.shut_down();
        let workers = Workers::new(&queue).concurrency(1);
        let run = workers.run_batches(2, |jobs: Vec<Job<'_, u64>>| match *jobs[0] {
            1 => Err("no route"),
            _ => Ok(()),
        });
        run.unwrap();
    });
    let events = collected.events.lock().unwrap();
    let said = |event: &(String, Fields, usize)| {
        let fields = ["keys", "error", "reason"];
        (event.1.all(fields).map(str::to_owned), event.2)
    };
    let expected = [
        (["2", "no route", "-"].map(str::to_owned), 0),
        (["-", "no route", "-"].map(str::to_owned), 1),
        (["-", "no route", "shut_down"].map(str::to_owned), 1),
    ];
    assert_eq!(events.iter().map(said).collect::<Vec<_>>(), expected);
    let spans = collected.spans.lock().unwrap();
    let outcomes: Vec<_> = spans.iter().map(|span| span.get("outcome")).collect();
    assert_eq!(outcomes, ["given_up", "done"]);
}

/// An error whose cause is written with `{:#}` alone, as that of an `anyhow::Error`.
struct Caused;

impl fmt::Display for Caused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = if f.alternate() { ": link down" } else { "" };
        write!(f, "no route{cause}")
    }
}

#[test] // W7 W10 X1 X2
fn the_cause_of_an_error_is_in_each_record_and_in_a_report_that_is_written_with_it() {
    let said = Mutex::new(Vec::new());
    let collected = collect(|| {
        let limiter = ItemExponentialFailure::new(Duration::from_millis(5), Duration::MAX).unwrap();
        let (queue, _time) = built(|builder| builder.rate_limiter(limiter));
        queue.add_all([1, 2]);
        let failures = Failures::new(1).unwrap();
        let letters = DeadLetters::new(1).unwrap();
        let workers = Workers::new(&queue)
            .concurrency(1)
            .failures(&failures)
            .dead_letters(&letters)
            .on_error(|_, failed: &Failed<'_, Caused>| {
                let texts = [format!("{failed}"), format!("{failed:#}")];
                said.lock().unwrap().extend(texts);
            })
            .on_give_up(|_, given_up| {
                let texts = [format!("{given_up}"), format!("{given_up:#}")];
                said.lock().unwrap().extend(texts);
            });
        let run = workers.run_batches_async(2, async |jobs: Vec<Job<'_, u64>>| {
            match jobs.len() == 1 && *jobs[0] == 2 {
                true => Verdict::GiveUp(Caused),
                false => Verdict::Retry(Caused),
            }
        });
        let mut run = Box::pin(run);
        assert!(poll_until_idle(&mut run).is_pending());
        let error = failures.of(&queue.snapshot()[0]).map(|it| it.error);
        assert_eq!(error.as_deref(), Some("no route: link down"));
        assert_eq!(letters.list()[0].error, "no route: link down");
        queue.shut_down();
        assert!(poll_until_idle(&mut run).is_ready());
    });
    let expected = [
        "no route (attempt 1, the next in 5ms)",
        "no route: link down (attempt 1, the next in 5ms)",
        "no route (attempt 1, given up)",
        "no route: link down (attempt 1, given up)",
        "no route (retries: 0, the next dropped by the shut-down)",
        "no route: link down (retries: 0, the next dropped by the shut-down)",
    ];
    assert_eq!(said.into_inner().unwrap(), expected);
    let events = collected.events.lock().unwrap();
    let errors: Vec<_> = events.iter().map(|event| event.1.get("error")).collect();
    assert_eq!(errors, ["no route: link down"; 5]);
}

/// An error that must not be written.
struct Unwritten;

impl fmt::Display for Unwritten {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("written");
    }
}

#[test] // W7
fn an_error_is_not_written_if_nobody_listens_and_may_panic_as_it_is() {
    let written = Mutex::new(0);
    let work = || {
        let queue = WorkQueue::from_iter([1_u64]);
        queue.shut_down();
        let workers = Workers::new(&queue).concurrency(1);
        let workers = workers.on_give_up(|_, _| *written.lock().unwrap() += 1);
        workers.run(|_| Err::<(), _>(Unwritten)).unwrap();
    };
    work();
    collect(work);
    assert_eq!(written.into_inner().unwrap(), 2);
}

#[test]
fn a_key_is_not_written_unless_asked_for() {
    let collected = collect(|| {
        let queue = WorkQueue::<u64>::new();
        queue.add(1);
        queue.shut_down();
        Workers::new(&queue).concurrency(1).run(|_| ()).unwrap();
    });
    let spans = collected.spans.lock().unwrap();
    assert_eq!(spans.len(), 1);
    for field in ["key", "queue", "queue_seconds"] {
        assert_eq!(spans[0].get(field), "-", "{field}");
    }
    assert_eq!(
        (spans[0].get("attempt"), spans[0].get("outcome")),
        ("1", "done")
    );
}
