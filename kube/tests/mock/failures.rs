//! What failures lead to.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keyqueue_kube::limiter::ItemExponentialFailure;
use keyqueue_kube::{Action, Controller, Error, GivenUp, QueueError, current};
use kube_runtime::reflector::{self, ObjectRef};
use kube_runtime::utils::Backoff;
use kube_runtime::watcher::{Config, DefaultBackoff};
use serde_json::json;

use crate::probe::{Failed, Item, Probe, never, settle, spawn, until, visit};
use crate::server::{MAPS, SECRETS, Server};

/// The numbers of the attempts.
type Attempts = Mutex<Vec<u32>>;

async fn fail(_: Arc<ConfigMap>, attempts: Arc<Attempts>) -> Result<Action, Failed> {
    let number = current().unwrap().number;
    attempts.lock().unwrap().push(number);
    Err(Failed(format!("attempt {number}")))
}

fn quick() -> ItemExponentialFailure<reflector::ObjectRef<ConfigMap>> {
    ItemExponentialFailure::new(Duration::from_millis(1), Duration::from_millis(2)).unwrap()
}

fn failure(item: Option<Item>) -> String {
    match item.expect("the stream goes on") {
        Err(Error::ReconcilerFailed(Failed(text), object)) => format!("{}: {text}", object.name),
        other => panic!("{other:?}"),
    }
}

/// K7
#[tokio::test]
async fn the_error_policy_chooses_the_delay_of_the_retry() {
    async fn twice(_: Arc<ConfigMap>, attempts: Arc<Attempts>) -> Result<Action, Failed> {
        let number = current().unwrap().number;
        attempts.lock().unwrap().push(number);
        match number {
            3 => Ok(Action::await_change()),
            _ => Err(Failed(number.to_string())),
        }
    }
    let (server, attempts) = (Server::default(), Arc::new(Attempts::default()));
    server.put("a");
    let policy = |_, _: &Failed, _| Action::requeue(Duration::from_millis(1));
    let controller = Controller::new(server.maps(), Config::default());
    let mut results = spawn(controller.run(twice, policy, Arc::clone(&attempts)));
    assert_eq!(failure(results.next().await), "a: 1");
    assert_eq!(failure(results.next().await), "a: 2");
    assert_eq!(
        results.next().await.unwrap().unwrap().1,
        Action::await_change()
    );
    assert_eq!(*attempts.lock().unwrap(), [1, 2, 3]);
}

/// K7
#[tokio::test]
async fn an_error_policy_that_awaits_a_change_causes_no_retry() {
    let (server, attempts) = (Server::default(), Arc::new(Attempts::default()));
    server.put("a");
    let policy = |_, _: &Failed, _| Action::await_change();
    let controller = Controller::new(server.maps(), Config::default());
    let mut results = spawn(controller.run(fail, policy, Arc::clone(&attempts)));
    assert_eq!(failure(results.next().await), "a: attempt 1");
    settle().await;
    assert_eq!(*attempts.lock().unwrap(), [1]);
    server.put("a");
    assert_eq!(failure(results.next().await), "a: attempt 1");
}

/// K7
#[tokio::test]
async fn without_a_policy_failures_are_retried_and_then_given_up() {
    let (server, attempts) = (Server::default(), Arc::new(Attempts::default()));
    server.put("a");
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&given_up);
    let controller = Controller::new(server.maps(), Config::default())
        .retry(quick())
        .max_retries(3)
        .on_give_up(move |object, end: GivenUp<String>| {
            reports
                .lock()
                .unwrap()
                .push(format!("{}: {end}", object.name));
        });
    let mut results = spawn(controller.run_with_retries(fail, Arc::clone(&attempts)));
    for n in 1..=4 {
        assert_eq!(failure(results.next().await), format!("a: attempt {n}"));
    }
    settle().await;
    assert_eq!(*attempts.lock().unwrap(), [1, 2, 3, 4]);
    assert_eq!(*given_up.lock().unwrap(), ["a: attempt 4 (retries: 3)"]);
    // A change begins from the start.
    server.put("a");
    assert_eq!(failure(results.next().await), "a: attempt 1");
}

/// K13
#[tokio::test]
async fn the_hook_gets_the_object_that_was_created_again() {
    let (server, attempts) = (Server::default(), Arc::new(Attempts::default()));
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&given_up);
    let controller =
        Controller::new(server.maps(), Config::default()).on_give_up(move |object, _| {
            let uid = object.extra.uid.clone();
            reports.lock().unwrap().push(uid.unwrap());
        });
    let store = controller.store();
    let give_up = |_, _: &Failed, _| Action::await_change();
    let mut results = spawn(controller.run(fail, give_up, attempts));
    for uid in ["first", "second"] {
        let metadata = json!({ "name": "a", "namespace": "default", "uid": uid });
        server.write(MAPS, json!({ "metadata": metadata }));
        failure(results.next().await);
        server.delete(MAPS, "a");
        until(|| store.is_empty()).await;
    }
    until(|| *given_up.lock().unwrap() == ["first", "second"]).await;
}

/// K6, K7
#[tokio::test]
async fn the_failures_of_a_deleted_object_are_forgotten() {
    let (server, attempts) = (Server::default(), Arc::new(Attempts::default()));
    server.put("a");
    // The third failure is retried after an hour.
    let hour = Duration::from_secs(3600);
    let delay = move |_: &_, error: &Failed| match error.0.as_str() {
        "attempt 3" => hour,
        _ => Duration::from_millis(1),
    };
    let policy = move |map: Arc<ConfigMap>, error: &Failed, _| Action::requeue(delay(&map, error));
    let controller = Controller::new(server.maps(), Config::default());
    let store = controller.store();
    let mut results = spawn(controller.run(fail, policy, Arc::clone(&attempts)));
    for n in 1..=3 {
        assert_eq!(failure(results.next().await), format!("a: attempt {n}"));
    }
    server.delete(MAPS, "a");
    until(|| store.is_empty()).await;
    settle().await;
    server.put("a");
    assert_eq!(failure(results.next().await), "a: attempt 1");
}

/// K6, K7: the watch was interrupted between the deletion and the creation.
#[tokio::test]
async fn the_failures_of_an_object_that_is_replaced_unseen_are_forgotten() {
    let (server, attempts) = (Server::default(), Arc::new(Attempts::default()));
    let put = |uid| {
        let metadata = json!({ "name": "a", "namespace": "default", "uid": uid });
        server.write(MAPS, json!({ "metadata": metadata }))
    };
    put("first");
    let hour = Duration::from_secs(3600);
    let policy = move |_, _: &Failed, _| Action::requeue(hour);
    let controller = Controller::new(server.maps(), Config::default());
    let mut results = spawn(controller.run(fail, policy, Arc::clone(&attempts)));
    assert_eq!(failure(results.next().await), "a: attempt 1");
    put("first");
    assert_eq!(failure(results.next().await), "a: attempt 2");
    server.behind_the_watches(MAPS, || {
        server.delete(MAPS, "a");
        put("second");
    });
    let interrupted = results.next().await;
    assert!(matches!(interrupted, Some(Err(Error::QueueError(_)))));
    assert_eq!(failure(results.next().await), "a: attempt 1");
}

/// K7
#[tokio::test]
async fn a_panic_is_a_failure_of_its_object_alone() {
    async fn panic_once(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Failed> {
        let is_first = current().unwrap().number == 1;
        assert!(
            !is_first || map.metadata.name.as_deref() != Some("a"),
            "a panic, as expected"
        );
        Ok(Action::await_change())
    }
    let server = Server::default();
    server.put_all(&["a", "b"]);
    let controller = Controller::new(server.maps(), Config::default()).retry(quick());
    let mut results = spawn(controller.run_with_retries(panic_once, Arc::new(())));
    let mut done = Vec::new();
    for _ in 0..2 {
        done.push(results.next().await.unwrap().unwrap().0.name);
    }
    done.sort();
    assert_eq!(done, ["a", "b"]);
}

struct Immediately;

impl Iterator for Immediately {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl Backoff for Immediately {
    fn reset(&mut self) {}
}

/// K3
#[tokio::test]
async fn a_watch_that_fails_is_reported_and_started_again() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put("a");
    server.fail(2);
    let controller = Controller::new(server.maps(), Config::default()).trigger_backoff(Immediately);
    let mut results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    for _ in 0..2 {
        match results.next().await.unwrap() {
            Err(Error::QueueError(QueueError::Watch(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(results.next().await.unwrap().is_ok());
}

/// Has one delay.
struct Once(bool);

impl Iterator for Once {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let is_first = !std::mem::replace(&mut self.0, true);
        is_first.then_some(Duration::from_millis(1))
    }
}

impl Backoff for Once {
    fn reset(&mut self) {
        self.0 = false;
    }
}

/// K3
#[tokio::test]
async fn a_back_off_that_ends_does_not_end_the_controller() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put("a");
    server.fail(4);
    let controller = Controller::new(server.maps(), Config::default()).trigger_backoff(Once(false));
    let mut results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    for _ in 0..4 {
        assert!(results.next().await.unwrap().is_err());
    }
    assert!(results.next().await.unwrap().is_ok());
}

/// K3
#[tokio::test(start_paused = true)]
async fn a_watch_whose_list_goes_on_failing_waits_longer() {
    for (is_shared, is_later_page) in [(false, false), (false, true), (true, false), (true, true)] {
        let server = Server::default();
        server.put("a");
        server.put_owned("s", "a");
        if is_later_page {
            server.break_lists();
        } else {
            server.fail(usize::MAX);
        }
        let mut controller = Controller::new(server.maps(), Config::default())
            .owns(server.secrets(), Config::default());
        if is_shared {
            controller = controller.trigger_backoff(DefaultBackoff::default());
        }
        let results = controller.run(visit, never, Probe::new());
        let failures = results.take_until(tokio::time::sleep(Duration::from_secs(600)));
        // A delay of at most 1.6 s would make it 375 of each watch; kube's doubles up to a minute.
        let failures = failures.count().await;
        assert!((10..100).contains(&failures), "{failures}");
    }
}

/// Counts the failures since the last success, and keeps the greatest number.
struct Count(usize, Arc<Mutex<usize>>);

impl Iterator for Count {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0 += 1;
        let mut most = self.1.lock().unwrap();
        *most = self.0.max(*most);
        Some(Duration::from_millis(1))
    }
}

impl Backoff for Count {
    fn reset(&mut self) {
        self.0 = 0;
    }
}

/// K3: of a watch whose events ask for nothing.
#[tokio::test]
async fn the_back_off_of_a_watch_that_works_begins_anew() {
    for has_lost_its_place in [false, true] {
        let (server, most) = (Server::default(), Arc::new(Mutex::new(0)));
        let seen = Arc::new(Mutex::new(0));
        let sees = Arc::clone(&seen);
        let mapper = move |_: Secret| -> [ObjectRef<ConfigMap>; 0] {
            *sees.lock().unwrap() += 1;
            []
        };
        let controller = Controller::new(server.maps(), Config::default())
            .watches(server.secrets(), Config::default(), mapper)
            .trigger_backoff(Count(0, Arc::clone(&most)));
        let _results = spawn(controller.run(visit, never, Probe::new()));
        for n in 1..=5 {
            until(|| server.watches() == 2).await;
            match has_lost_its_place {
                true => server.behind_the_watches(SECRETS, || ()),
                false => {
                    server.disturb(SECRETS);
                    server.put_owned("s", "nobody");
                    until(|| *seen.lock().unwrap() == n).await;
                }
            }
        }
        until(|| server.watches() == 2).await;
        assert_eq!(*most.lock().unwrap(), 1);
    }
}

#[tokio::test]
async fn a_setting_that_is_out_of_range_is_named() {
    type Set = fn(Controller<ConfigMap>) -> Controller<ConfigMap>;
    let cases: [(&str, Set); 6] = [
        ("concurrency", |controller| controller.workers(0)),
        ("name", |controller| controller.name("")),
        ("group_limit", |controller| controller.group_limit(0)),
        ("min_interval", |controller| {
            controller.min_interval(Duration::ZERO)
        }),
        ("starvation_limit", |controller| {
            controller.starvation_limit(1)
        }),
        ("starvation_limit", |controller| {
            controller.levels(false).starvation_limit(0)
        }),
    ];
    for (field, set) in cases {
        let (server, probe) = (Server::default(), Probe::new());
        server.put("a");
        let controller = set(Controller::new(server.maps(), Config::default()));
        let results = spawn(controller.run(visit, never, Arc::clone(&probe)))
            .end()
            .await;
        match &results[..] {
            [Err(Error::QueueError(QueueError::Config(error)))] => assert_eq!(error.field(), field),
            other => panic!("{field}: {other:?}"),
        }
        assert_eq!(probe.begun(), [""; 0]);
    }
}

/// K1
#[tokio::test]
async fn a_store_that_will_never_be_ready_is_an_error() {
    let (store, writer) = reflector::store::<ConfigMap>();
    let controller = Controller::for_stream(futures_util::stream::pending(), store);
    let results = spawn(controller.run(visit, never, Probe::new()));
    drop(writer);
    match &results.end().await[..] {
        [Err(Error::RunnerError(_))] => {}
        other => panic!("{other:?}"),
    }
}

/// K7
#[tokio::test]
async fn a_change_takes_the_place_of_a_pending_retry() {
    async fn fail_once(map: Arc<ConfigMap>, count: Arc<Attempts>) -> Result<Action, Failed> {
        let version = map.metadata.resource_version.clone().unwrap();
        let mut count = count.lock().unwrap();
        count.push(version.parse().unwrap());
        match count.len() {
            1 => Err(Failed("the first".into())),
            // Of the two delays it is this one that counts, not the earlier.
            _ => Ok(Action::requeue(Duration::from_secs(3600))),
        }
    }
    let delay = Duration::from_millis(500);
    for _ in 0..20 {
        let (server, count) = (Server::default(), Arc::new(Attempts::default()));
        server.put("a");
        let policy = move |_, _: &Failed, _| Action::requeue(delay);
        let controller = Controller::new(server.maps(), Config::default());
        let mut results = spawn(controller.run(fail_once, policy, Arc::clone(&count)));
        let begin = Instant::now();
        assert!(results.next().await.unwrap().is_err());
        server.put("a");
        assert!(results.next().await.unwrap().is_ok());
        if begin.elapsed() >= delay {
            continue; // The machine is slow: this may have been the retry.
        }
        tokio::time::sleep(delay * 2).await;
        assert_eq!(*count.lock().unwrap(), [1, 2]);
        return;
    }
    panic!("a change is not reconciled before the retry");
}
