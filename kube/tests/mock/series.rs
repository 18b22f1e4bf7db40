//! What can be seen from outside: series and spans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue_kube::{Action, Controller, LeaderElection};
use kube_runtime::watcher::Config;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Event};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::probe::{Failed, settle, spawn, until};
use crate::server::{LEASES, Server};

/// Fails for "fails", and otherwise does what the name says.
async fn by_name(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Failed> {
    match map.metadata.name.as_deref().unwrap() {
        "waits" => Ok(Action::await_change()),
        "comes-back" => Ok(Action::requeue(Duration::from_secs(3600))),
        _ => Err(Failed("it fails".into())),
    }
}

fn policy(_: Arc<ConfigMap>, _: &Failed, _: Arc<()>) -> Action {
    Action::requeue(Duration::from_secs(3600))
}

async fn reconcile_three(controller: impl FnOnce(Controller<ConfigMap>) -> Controller<ConfigMap>) {
    let server = Server::default();
    server.put_all(&["waits", "comes-back", "fails"]);
    let controller = controller(Controller::new(server.maps(), Config::default()));
    let mut results = spawn(controller.run(by_name, policy, Arc::new(())));
    for _ in 0..3 {
        results.next().await.unwrap().ok();
    }
    settle().await;
}

/// K12
#[tokio::test]
async fn the_series_have_the_names_that_dashboards_know() {
    // For the process, since a thread of the queue reports: the name tells this test from others.
    let handle = PrometheusBuilder::new().install_recorder().unwrap();
    reconcile_three(|controller| controller.name("books").workers(4)).await;
    for line in [
        r#"controller_runtime_reconcile_total{controller="books",result="success"} 1"#,
        r#"controller_runtime_reconcile_total{controller="books",result="requeue"} 0"#,
        r#"controller_runtime_reconcile_total{controller="books",result="requeue_after"} 1"#,
        r#"controller_runtime_reconcile_total{controller="books",result="error"} 1"#,
        r#"controller_runtime_reconcile_errors_total{controller="books"} 1"#,
        r#"controller_runtime_reconcile_panics_total{controller="books"} 0"#,
        r#"controller_runtime_reconcile_time_seconds_count{controller="books"} 3"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="books"} 4"#,
        r#"controller_runtime_active_workers{controller="books"} 0"#,
        r#"workqueue_adds_total{name="books"} 3"#,
        r#"workqueue_retries_total{name="books"} 2"#,
        r#"workqueue_queue_duration_seconds_count{name="books"} 3"#,
    ] {
        let is_there = async || handle.render().lines().any(|found| found == line);
        servers::until(line, is_there).await;
    }
}

/// K12
#[tokio::test]
async fn each_reconciliation_has_a_span_with_its_object_and_reason() {
    let spans = Spans::default();
    // If there is only one subscriber, tracing asks that of the thread which comes first to a span, and a thread
    // of another test here has none (tokio-rs/tracing#2874).
    let _other = Dispatch::new(tracing_subscriber::registry().with(LevelFilter::OFF));
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let _installed = tracing::subscriber::set_default(subscriber);
    reconcile_three(|controller| controller).await;
    let mut spans = spans.0.lock().unwrap().clone();
    spans.sort();
    assert_eq!(spans.len(), 3);
    assert!(
        spans[0]["object.ref"].starts_with("ConfigMap.v1./comes-back.default"),
        "{spans:?}"
    );
    assert!(
        spans
            .iter()
            .all(|span| span["object.reason"] == "object updated"),
        "{spans:?}"
    );
}

/// K10: also if the lease has run out while nothing was tried.
#[tokio::test(start_paused = true)]
async fn a_candidate_says_when_it_leads_no_more_and_who_does() {
    let says = Says::default();
    let _other = Dispatch::new(tracing_subscriber::registry().with(LevelFilter::OFF));
    let subscriber = tracing_subscriber::registry().with(says.clone());
    let _installed = tracing::subscriber::set_default(subscriber);
    let said = |field: &str| {
        let says = says.0.lock().unwrap();
        let said = says.iter().filter_map(|event| event.get(field).cloned());
        said.collect::<Vec<_>>()
    };
    let server = Server::default();
    let election = LeaderElection::new(server.client(), "default", "books");
    let election = election
        .identity("one")
        .retry_period(Duration::from_secs(8));
    let leadership = election.start().unwrap();
    leadership.acquired().await;
    // One renewal fails. When the next one is sent, the lease has run out.
    server.fail(1);
    leadership.lost().await;
    until(|| said("leads") == ["true", "false", "true"]).await;
    // Requests fail at once.
    server.fail(usize::MAX);
    leadership.lost().await;
    until(|| said("leads").len() == 4).await;
    server.fail(0);
    until(|| said("leads").len() == 5).await;
    let spec = json!({"holderIdentity": "two", "leaseDurationSeconds": 15});
    server.write(LEASES, json!({"metadata": {"name": "books"}, "spec": spec}));
    until(|| said("holder").contains(&r#""two""#.to_owned())).await;
}

/// The fields of events.
#[derive(Clone, Default)]
struct Says(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

impl<S: tracing::Subscriber> Layer<S> for Says {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
}

/// The fields of the spans named "reconciling object".
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

impl<S: tracing::Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if attributes.metadata().name() == "reconciling object" {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            self.0.lock().unwrap().push(fields.0);
        }
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
