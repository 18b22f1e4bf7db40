//! kube-runtime: its scheduler for the workloads of delays, its applier for the loop.
//!
//! One owner polls each of them, and adds reach it through a channel, so they run no workload of
//! threads. Nor do they run `backlog`: each wake-up polls every future that is running, and a round
//! with a thousand of them takes minutes.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::controller::{Action, Config, applier};
use kube_runtime::reflector::{ObjectRef, store};
use kube_runtime::scheduler::{ScheduleRequest, scheduler};
use kube_runtime::watcher::Event;

use crate::keys::Key;
use crate::queue::Delays;
use crate::workload::{Kind, Round};
use crate::workloads::{delay, reconcile};

pub(super) fn run(round: &Round<'_>) -> Option<Vec<f64>> {
    match round.kind {
        Kind::Reconcile => Some(reconcile(round.count)),
        _ => delay::run::<Scheduler>(round),
    }
}

/// The applier looks every object up in a store, which is filled before the clock starts. It ends
/// with the stream of its requests and drops what it holds, so the stream stays open.
fn reconcile(count: usize) -> Vec<f64> {
    let names = str::first(count);
    let (reader, mut writer) = store::<ConfigMap>();
    writer.apply_watcher_event(&Event::Init);
    for name in &names {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.clone());
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);
    let objects: Vec<_> = names.iter().map(|name| ObjectRef::new(name)).collect();

    reconcile::timed(count, async |deliver| {
        let reconciler = |object: Arc<ConfigMap>, _: Arc<()>| {
            let name = object.metadata.name.as_deref();
            deliver(name.expect("every object has a name"));
            ready(Ok::<_, Infallible>(Action::await_change()))
        };
        let requests = stream::iter(objects.into_iter().map(Ok::<_, Infallible>));
        let applier = applier(
            reconciler,
            |_, error, _| match *error {},
            Arc::new(()),
            reader,
            requests.chain(stream::pending()),
            Config::default().concurrency(reconcile::TASKS),
        );
        let reconciled = applier.take(count).filter(|end| ready(end.is_ok()));
        assert_eq!(reconciled.count().await, count);
    })
}

/// The scheduler, a thread behind a channel.
struct Scheduler {
    requests: UnboundedSender<ScheduleRequest<u64>>,
    sent: AtomicUsize,
    /// How many requests the scheduler has taken in.
    taken: Arc<AtomicUsize>,
}

impl Delays for Scheduler {
    fn new(due: Sender<u64>) -> Self {
        let (requests, receiver) = unbounded();
        let taken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&taken);
        let requested = receiver.inspect(move |_| {
            // Ordering: Relaxed; a count.
            counter.fetch_add(1, Ordering::Relaxed);
        });
        // The receiver of what is due is gone only at the end of the round, like the sender of the
        // requests, with which the thread ends.
        let scheduled = scheduler(requested).for_each(move |key| ready(_ = due.send(key)));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().expect("a runtime");
        thread::spawn(move || runtime.block_on(scheduled));
        Self {
            requests,
            sent: AtomicUsize::new(0),
            taken,
        }
    }

    fn add_after(&self, key: u64, delay: Duration) {
        let request = ScheduleRequest {
            message: key,
            run_at: (Instant::now() + delay).into(),
        };
        let sent = self.requests.unbounded_send(request);
        sent.expect("the thread lives");
        // Ordering: Relaxed; only the thread that adds reads it.
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn settle(&self) {
        // Ordering: Relaxed; counts.
        while self.taken.load(Ordering::Relaxed) < self.sent.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }
}
