//! kube-runtime: its scheduler for the workloads of delays, its applier for the loop.
//!
//! One owner polls each of them, and adds reach it through a channel; threads cannot share them, so
//! they run no workload of threads. The applier looks every object up in a store, which is filled
//! before the clock starts. It ends with the stream of its requests and drops what it holds, so the
//! stream stays open and the deliveries are counted.
//!
//! It takes no part in `backlog`: each wake-up polls every future that is running, and a round with
//! a thousand of them takes minutes.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::controller::{Action, Config, applier};
use kube_runtime::reflector::{ObjectRef, store};
use kube_runtime::scheduler::{ScheduleRequest, scheduler};
use kube_runtime::watcher::Event;

use super::Contender;
use super::delay::Delaying;
use crate::keys::{Key, Tally};
use crate::queue::Delays;
use crate::spec::{Kind, Round, Scale};
use crate::workloads::reconcile;

pub(super) fn kube() -> impl Contender {
    Kube(Delaying::named(NAME))
}

const NAME: &str = "kube-runtime";

struct Kube(Delaying<Scheduler>);

impl Contender for Kube {
    fn name(&self) -> &'static str {
        NAME
    }

    fn run(&self, workload: Kind, scale: &Scale, round: &Round) -> Option<Vec<f64>> {
        match workload {
            Kind::Reconcile => Some(reconcile(scale)),
            _ => self.0.run(workload, scale, round),
        }
    }
}

/// The counterpart of [`reconcile::keyqueue`].
fn reconcile(scale: &Scale) -> Vec<f64> {
    let names: Vec<String> = (0..scale.reconciled).map(str::nth).collect();
    let (reader, mut writer) = store::<ConfigMap>();
    writer.apply_watcher_event(&Event::Init);
    for name in &names {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.clone());
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);

    let objects: Vec<_> = names.iter().map(|name| ObjectRef::new(name)).collect();
    let delivered = Cell::new(Tally::default());
    let reconciler = |object: Arc<ConfigMap>, _: Arc<()>| {
        let mut tally = delivered.get();
        let name = object.metadata.name.as_deref();
        tally.count(name.expect("every object has a name"));
        delivered.set(tally);
        ready(Ok::<_, Infallible>(Action::await_change()))
    };
    let start = Instant::now();
    reconcile::runtime().block_on(async {
        let requests = stream::iter(objects.into_iter().map(Ok::<_, Infallible>));
        let applier = applier(
            reconciler,
            |_, error, _| match *error {},
            Arc::new(()),
            reader,
            requests.chain(stream::pending()),
            Config::default().concurrency(scale.reconcilers),
        );
        let reconciled = applier
            .take(scale.reconciled)
            .filter(|end| ready(end.is_ok()));
        assert_eq!(reconciled.count().await, scale.reconciled);
    });
    let elapsed = start.elapsed();
    assert_eq!(delivered.get(), Tally::of_first::<str>(scale.reconciled));
    vec![elapsed.as_nanos() as f64 / scale.reconciled as f64]
}

/// The scheduler, on its own thread, behind a channel.
struct Scheduler {
    requests: Option<UnboundedSender<ScheduleRequest<u64>>>,
    sent: AtomicUsize,
    /// How many requests the scheduler has taken in.
    taken: Arc<AtomicUsize>,
    ready: Mutex<Receiver<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl Delays for Scheduler {
    const CANCELS: bool = false;

    fn new() -> Self {
        let (requests, receiver) = unbounded();
        let (send, ready) = mpsc::channel();
        let taken = Arc::new(AtomicUsize::new(0));
        let thread = std::thread::spawn({
            let taken = Arc::clone(&taken);
            move || drive(receiver, &taken, &send)
        });
        Self {
            requests: Some(requests),
            sent: AtomicUsize::new(0),
            taken,
            ready: Mutex::new(ready),
            thread: Some(thread),
        }
    }

    fn add_after(&self, key: u64, delay: Duration) {
        let request = ScheduleRequest {
            message: key,
            run_at: (Instant::now() + delay).into(),
        };
        let requests = self.requests.as_ref().expect("there until the drop");
        requests.unbounded_send(request).expect("the thread lives");
        // Ordering: Relaxed; only the thread that adds reads it.
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn cancel(&self, _: u64) -> bool {
        false
    }

    fn settle(&self) {
        // Ordering: Relaxed; a count.
        let sent = self.sent.load(Ordering::Relaxed);
        // Ordering: Relaxed; a count.
        while self.taken.load(Ordering::Relaxed) < sent {
            std::thread::yield_now();
        }
    }

    fn get(&self) -> u64 {
        let ready = self
            .ready
            .lock()
            .expect("no thread panics while it holds the lock");
        ready.recv().expect("the thread lives")
    }
}

fn drive(
    requests: UnboundedReceiver<ScheduleRequest<u64>>,
    taken: &AtomicUsize,
    ready: &mpsc::Sender<u64>,
) {
    let requests = requests.inspect(|_| {
        // Ordering: Relaxed; a count.
        taken.fetch_add(1, Ordering::Relaxed);
    });
    reconcile::runtime().block_on(async {
        let mut due = pin!(scheduler(requests));
        while let Some(key) = due.next().await {
            // The receiver is gone only at the end of the round.
            let _ = ready.send(key);
        }
    });
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let end = thread.join();
            end.expect("the thread panicked");
        }
    }
}
