//! A controller on kube-rs's watcher and reflector, with the queue in between.
//!
//! `cargo run -p compare --example kube`
//!
//! It keeps a copy of every ConfigMap's value. It needs no cluster, because it brings its own API
//! server: two lists, and a watch that reports two changes and then has expired. With
//! `Client::try_default` instead it would watch the cluster of the current context.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::mem;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue::WorkQueue;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Outcome, Workers};
use kube_client::client::Body;
use kube_client::{Api, Client};
use kube_runtime::WatchStreamExt;
use kube_runtime::reflector::{self, ObjectRef, Store};
use kube_runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};

type Key = ObjectRef<ConfigMap>;
type Queue = WorkQueue<Key, ItemExponentialFailure<Key>>;

/// Adds the key of every ConfigMap that changed, after the change is in the store.
async fn feed(client: Client, writer: reflector::store::Writer<ConfigMap>, queue: Arc<Queue>) {
    let store = writer.as_reader();
    let config_maps = Api::<ConfigMap>::all(client);
    let events = watcher(config_maps, watcher::Config::default());
    let mut events = pin!(events.default_backoff().reflect(writer));
    let mut before = Vec::new();
    while let Some(event) = events.next().await {
        let changed = match event {
            Ok(Event::Apply(map) | Event::Delete(map)) => vec![Arc::new(map)],
            // A list changes the store at its end. What has vanished meanwhile has changed, too.
            Ok(Event::Init) => {
                before = store.state();
                continue;
            }
            Ok(Event::InitDone) => [mem::take(&mut before), store.state()].concat(),
            Ok(Event::InitApply(_)) => continue,
            Err(error) => {
                eprintln!("the watch will go on: {error}");
                continue;
            }
        };
        queue.add_all(changed.iter().map(|map| ObjectRef::from_obj(&**map)));
    }
}

/// What the controller knows, and what it has made of it.
struct Controller {
    store: Store<ConfigMap>,
    copies: Mutex<BTreeMap<String, String>>,
    attempts: AtomicU32,
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> Result<Outcome, String> {
        // Ordering: Relaxed; a count.
        if self.attempts.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err("not this time".to_owned());
        }
        let map = self.store.get(key);
        let value = map.and_then(|map| map.data.as_ref()?.get("value").cloned());
        let mut copies = self.copies.lock().unwrap();
        let Some(value) = value else {
            copies.remove(&key.name); // It was deleted.
            return Ok(Outcome::Done);
        };
        copies.insert(key.name.clone(), value);
        Ok(Outcome::RequeueAfter(Duration::from_secs(600)))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let requests = AtomicU32::new(0);
    // Ordering: Relaxed; a count.
    let server = move |_: Request<Body>| respond(requests.fetch_add(1, Ordering::Relaxed));
    let client = Client::new(tower::service_fn(server), "default");
    let backoff = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(60))?;
    let queue: Arc<Queue> = Arc::new(WorkQueue::builder().rate_limiter(backoff).build()?);
    let (store, writer) = reflector::store();
    let controller = Arc::new(Controller {
        store,
        copies: Mutex::default(),
        attempts: AtomicU32::new(0),
    });

    let feeding = tokio::spawn(feed(client, writer, Arc::clone(&queue)));
    let workers = Workers::shared(Arc::clone(&queue))
        .tasks(4)
        .max_retries(5)
        .on_give_up(|key, end| eprintln!("gave up {key}: {end}"));
    let reconciler = Arc::clone(&controller);
    let workers =
        tokio::spawn(workers.run_async(async move |key: &Key| reconciler.reconcile(key).await));

    // Until it has caught up: `b` was deleted while the watch had expired.
    let wanted = [("a", "3"), ("c", "1")].map(|(name, value)| (name.into(), value.into()));
    let caught_up = async {
        while *controller.copies.lock().unwrap() != BTreeMap::from(wanted.clone()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), caught_up).await?;
    feeding.abort();
    assert!(feeding.await.is_err_and(|end| end.is_cancelled()));
    let drained = queue.drain_async().await;
    workers.await??;
    println!("{:?}; {}", controller.copies.lock().unwrap(), drained.left);
    Ok(())
}

/// The API server's response to the `nth` request of the watcher, which lists, watches, loses the
/// watch, lists again, and watches.
async fn respond(nth: u32) -> Result<Response<Body>, Infallible> {
    let body = match nth {
        0 => list("10", &[config_map("a", "1"), config_map("b", "1")]),
        1 => [
            json!({"type": "MODIFIED", "object": config_map("a", "2")}),
            json!({"type": "ADDED", "object": config_map("c", "1")}),
            json!({"type": "ERROR", "object": {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "too old resource version", "reason": "Expired", "code": 410,
            }}),
        ]
        .map(|event| format!("{event}\n"))
        .concat(),
        2 => list("20", &[config_map("a", "3"), config_map("c", "1")]),
        _ => pending().await,
    };
    Ok(Response::new(Body::from(body.into_bytes())))
}

fn list(version: &str, items: &[Value]) -> String {
    let metadata = json!({"resourceVersion": version});
    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items})
        .to_string()
}

fn config_map(name: &str, value: &str) -> Value {
    json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "resourceVersion": "11"},
        "data": {"value": value},
    })
}
