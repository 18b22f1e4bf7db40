//! A reconciler that records what it sees, and can be held.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue_kube::{Action, Reconciled};
use kube_runtime::reflector::{ObjectRef, Store};
use tokio::sync::{mpsc, watch};

/// The error of test reconcilers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed(pub String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

pub(crate) type Item = Reconciled<ConfigMap, Failed>;

/// The context of the reconcilers: what has begun, in order, and whether they may end.
pub(crate) struct Probe {
    begun: Mutex<Vec<String>>,
    running: Mutex<Vec<String>>,
    most: Mutex<usize>,
    gate: watch::Sender<bool>,
}

impl Probe {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Probe {
            begun: Mutex::default(),
            running: Mutex::default(),
            most: Mutex::default(),
            gate: watch::channel(true).0,
        })
    }

    /// Creates a probe whose reconcilers wait until [`open`](Self::open).
    pub(crate) fn closed() -> Arc<Self> {
        let probe = Probe::new();
        probe.gate.send_replace(false);
        probe
    }

    pub(crate) fn open(&self) {
        self.gate.send_replace(true);
    }

    pub(crate) fn close(&self) {
        self.gate.send_replace(false);
    }

    /// The names of the objects whose reconciliation began, in order.
    pub(crate) fn begun(&self) -> Vec<String> {
        self.begun.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.begun().iter().filter(|begun| *begun == name).count()
    }

    /// The names of the objects that are being reconciled.
    pub(crate) fn running(&self) -> Vec<String> {
        self.running.lock().unwrap().clone()
    }

    /// The greatest number of reconciliations at once.
    pub(crate) fn most(&self) -> usize {
        *self.most.lock().unwrap()
    }

    /// Records a reconciliation, and waits until the gate is open.
    pub(crate) async fn visit(&self, map: &ConfigMap) {
        let name = map.metadata.name.clone().unwrap();
        let _visit = self.begin(&name);
        self.gate.subscribe().wait_for(|open| *open).await.unwrap();
    }

    fn begin(&self, name: &str) -> Visit<'_> {
        self.begun.lock().unwrap().push(name.to_owned());
        let mut running = self.running.lock().unwrap();
        assert!(
            !running.iter().any(|other| other == name),
            "{name} is reconciled twice at once"
        );
        running.push(name.to_owned());
        let mut most = self.most.lock().unwrap();
        *most = running.len().max(*most);
        let name = name.to_owned();
        Visit { probe: self, name }
    }
}

struct Visit<'p> {
    probe: &'p Probe,
    name: String,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.probe
            .running
            .lock()
            .unwrap()
            .retain(|name| *name != self.name);
    }
}

/// Visits, and waits for a change.
pub(crate) async fn visit(map: Arc<ConfigMap>, probe: Arc<Probe>) -> Result<Action, Failed> {
    probe.visit(&map).await;
    Ok(Action::await_change())
}

/// An error policy for reconcilers that do not fail.
pub(crate) fn never(_: Arc<ConfigMap>, error: &Failed, _: Arc<Probe>) -> Action {
    panic!("{error}")
}

/// What a running controller has yielded. Dropping it drops the stream.
pub(crate) struct Results<T> {
    items: mpsc::UnboundedReceiver<T>,
    task: tokio::task::JoinHandle<()>,
}

/// Locked by each test that sends a signal to the process, or whose controllers listen to signals.
pub(crate) static SIGNALS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Polls a controller in a task.
pub(crate) fn spawn<T: Send + 'static>(
    stream: impl Stream<Item = T> + Send + 'static,
) -> Results<T> {
    let (sender, items) = mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(item) = stream.next().await {
            // The test may have seen enough.
            let _ = sender.send(item);
        }
    });
    Results { items, task }
}

impl<T> Results<T> {
    /// Returns the next result; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<T> {
        within_a_minute(self.items.recv()).await
    }

    /// Drops the stream.
    pub(crate) async fn abort(mut self) {
        self.task.abort();
        assert!((&mut self.task).await.is_err_and(|end| end.is_cancelled()));
    }

    /// Waits for the end of the stream, and returns what it has yielded.
    pub(crate) async fn end(mut self) -> Vec<T> {
        let mut all = Vec::new();
        while let Some(item) = self.next().await {
            all.push(item);
        }
        all
    }
}

impl<T> Drop for Results<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The context of [`block`].
pub(crate) struct Blocked {
    end: Mutex<std::sync::mpsc::Receiver<()>>,
    begun: AtomicBool,
}

impl Blocked {
    /// Returns what ends it when it is dropped, too.
    pub(crate) fn new() -> (std::sync::mpsc::Sender<()>, Arc<Self>) {
        let (unblock, end) = std::sync::mpsc::channel();
        let (end, begun) = (Mutex::new(end), AtomicBool::new(false));
        (unblock, Arc::new(Blocked { end, begun }))
    }

    pub(crate) fn has_begun(&self) -> bool {
        // Ordering: Relaxed; only this value matters.
        self.begun.load(Ordering::Relaxed)
    }
}

/// A reconciler that blocks its thread.
pub(crate) async fn block(_: Arc<ConfigMap>, blocked: Arc<Blocked>) -> Result<Action, Failed> {
    // Ordering: Relaxed; only this value matters.
    blocked.begun.store(true, Ordering::Relaxed);
    let _ = blocked.end.lock().unwrap().recv();
    Ok(Action::await_change())
}

/// Waits until `condition` is true.
#[track_caller]
pub(crate) fn until(condition: impl Fn() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move { servers::until(&caller.to_string(), async || condition()).await }
}

/// Gives everything that is ready the time to run: for what must not happen.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn within_a_minute<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .expect("it takes a minute")
}

/// A stream that the test feeds.
pub(crate) fn channel<T: Send + 'static>()
-> (mpsc::UnboundedSender<T>, impl Stream<Item = T> + Send) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let next = async |mut receiver: mpsc::UnboundedReceiver<T>| {
        let item = receiver.recv().await?;
        Some((item, receiver))
    };
    (sender, stream::unfold(receiver, next).boxed())
}

/// Returns the version of an object in a store.
pub(crate) fn version(store: &Store<ConfigMap>, name: &str) -> Option<u64> {
    let map = store.get(&ObjectRef::new(name).within("default"))?;
    map.metadata.resource_version.as_ref()?.parse().ok()
}
