//! The spans and events of the worker loop.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::timed::built;
use keyqueue::WorkQueue;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Outcome, Workers};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Fields by name, as text.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Fields {
    fn get(&self, field: &str) -> &str {
        self.0.get(field).map_or("-", String::as_str)
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

type Queue = WorkQueue<&'static str, ItemExponentialFailure<&'static str>>;

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
    assert_eq!(of("INFO").len(), 6);
    let (panics, ends) = (of("ERROR"), of("WARN"));
    assert_eq!((panics.len(), ends.len()), (2, 2));
    for fields in panics {
        assert!(
            fields.0.values().any(|value| value == "worse"),
            "{fields:?}"
        );
    }
    for fields in ends {
        assert_eq!(
            (fields.get("reason"), fields.get("retries")),
            ("max_retries", "1")
        );
    }
}

/// What is traced while `run` runs.
fn collect(run: impl FnOnce()) -> Collected {
    let collected = Collected::default();
    let subscriber = tracing_subscriber::registry().with(collected.clone());
    tracing::subscriber::with_default(subscriber, run);
    collected
}

#[test]
fn every_delivered_key_has_a_span_that_says_how_it_ended() {
    check(&collect(|| {
        let queue = queue();
        let workers = Workers::new(&queue).threads(1).max_retries(1).trace_keys();
        workers.run(|key| work(&queue, key)).unwrap();
    }));
    check(&collect(|| {
        let queue = queue();
        let workers = Workers::new(&queue).tasks(1).max_retries(1).trace_keys();
        let run = workers.run_async(async |key: &&'static str| work(&queue, key));
        pollster::block_on(run).unwrap();
    }));
}

#[test]
fn a_key_is_not_written_unless_asked_for() {
    let collected = collect(|| {
        let queue = WorkQueue::new();
        queue.add("secret");
        queue.shut_down();
        Workers::new(&queue).threads(1).run(|_| ()).unwrap();
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
