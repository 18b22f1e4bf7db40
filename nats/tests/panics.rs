//! What panics beside the handler.

mod common;

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use async_nats::{Client, jetstream};
use keyqueue_nats::{Config, Event, Fleet, dead_letter};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit, set_default_local_recorder,
};
use servers::until;

use common::{DONE, created, letters, one, one_retry, run, told};

/// A recorder that panics when this series changes, this often.
#[derive(Clone)]
struct Panics(&'static str, Arc<AtomicUsize>);

impl Panics {
    fn panic(&self) {
        // Relaxed: a number.
        let left = self
            .1
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "of the recorder");
    }
}

impl CounterFn for Panics {
    fn increment(&self, _: u64) {
        self.panic();
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Panics {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}

    fn set(&self, _: f64) {
        self.panic();
    }
}

impl Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() == self.0 {
            true => Counter::from_arc(Arc::new(self.clone())),
            false => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match key.name() == self.0 {
            true => Gauge::from_arc(Arc::new(self.clone())),
            false => Gauge::noop(),
        }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

async fn joined(client: Client, config: Config, recorder: Panics) -> Fleet {
    let _recorder = set_default_local_recorder(&recorder);
    Fleet::join(client, config, "a").await.unwrap()
}

async fn a_panic_ends_the_run(series: &'static str) {
    let config = one();
    let Some((_server, client, producer)) = created(&config).await else {
        return;
    };
    producer.add("key", "").await.unwrap();
    let fleet = joined(client, config, Panics(series, Arc::new(usize::MAX.into()))).await;
    let running = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.run(1, async |_| {}).await }
    });
    until("it has ended", async || running.is_finished()).await;
    let panic = running.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"of the recorder"));
    assert_eq!(fleet.owned(), []);
}

/// N10: a partition whose task has panicked is not kept by an owner that receives nothing.
#[tokio::test]
async fn a_panic_of_a_task_that_receives_ends_the_run() {
    a_panic_ends_the_run("keyqueue_nats_messages_total").await;
}

/// It does not end the process, if the recorder panics again while the run ends.
#[tokio::test]
async fn a_recorder_that_panics_again_and_again_ends_the_run() {
    a_panic_ends_the_run("keyqueue_nats_owned_partitions").await;
}

/// N6: a message of no producer is not left with nobody, nor stored again and again, if its event panics each time. It is told nevertheless.
#[tokio::test]
async fn a_panic_of_the_event_of_a_stranger() {
    let config = letters();
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    let stored = context.publish("work.1.0.in.no/key", "".into()).await;
    stored.unwrap().await.unwrap();
    let panics = Panics("keyqueue_nats_strangers_total", Arc::new(usize::MAX.into()));
    let fleet = joined(client.clone(), config.clone(), panics.clone()).await;
    let mut events = fleet.events();
    let replica = run(fleet, |_| ready(DONE));
    until("it is removed", async || {
        let context = jetstream::new(server.client().await);
        let stream = context.get_stream("WORK-1-0").await.unwrap();
        stream.cached_info().state.messages == 0
    })
    .await;
    // Relaxed: a number.
    assert_eq!(panics.1.load(Relaxed), usize::MAX - 1);
    let letters = dead_letter::count(&client, &config).await.unwrap();
    assert_eq!(letters, Some(1));
    replica.leave().await;
    let stranger = |event| matches!(event, Event::Stranger { .. }).then_some(());
    told(&mut events, stranger).await;
}

struct Error;

impl fmt::Display for Error {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("of the error");
    }
}

/// N6: an error that panics when it is displayed is a failure like others.
#[tokio::test]
async fn a_panic_of_an_error_is_a_failure() {
    let config = one_retry();
    let Some((_server, client, producer)) = created(&config).await else {
        return;
    };
    producer.add("key", "").await.unwrap();
    let fleet = Fleet::join(client.clone(), config.clone(), "a").await;
    let fleet = fleet.unwrap();
    let running = tokio::spawn(async move { fleet.run(1, async |_| Err::<(), _>(Error)).await });
    until("it is given up", async || {
        dead_letter::count(&client, &config).await.unwrap() == Some(1)
    })
    .await;
    let letters = dead_letter::list(&client, &config, 0, 1).await.unwrap();
    assert_eq!(letters[0].error, "panicked: of the error");
    running.abort();
}
