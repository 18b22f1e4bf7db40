//! One controller in a process of its own. It reports by lines of JSON, and ends when its input does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::ValueEnum;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::Action;
use kube::runtime::{controller, watcher};
use kube::{Api, ResourceExt};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::time::sleep;

use crate::objects;

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Contender {
    /// keyqueue-kube
    Keyqueue,
    /// kube-runtime, with the same limit of reconciliations at once
    KubeRuntime,
    /// kube-runtime as it is by default: no limit
    Unlimited,
}

impl Contender {
    pub(crate) const ALL: [Self; 3] = [Self::Keyqueue, Self::KubeRuntime, Self::Unlimited];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Keyqueue => "keyqueue-kube",
            Contender::KubeRuntime => "kube-runtime, same limit",
            Contender::Unlimited => "kube-runtime, no limit",
        }
    }
}

/// What a reconciliation does.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Work {
    /// Writes a copy: one request
    Copy,
    /// Waits 10 ms, as for a slow request
    Wait,
    /// Computes for 5 ms
    Compute,
}

const WAIT: Duration = Duration::from_millis(10);
pub(crate) const COMPUTE: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long, value_enum)]
    pub(crate) contender: Contender,
    #[arg(long, value_enum)]
    pub(crate) work: Work,
    /// The API server's
    #[arg(long)]
    pub(crate) port: u16,
    #[arg(long)]
    pub(crate) namespace: String,
    /// How many objects there are
    #[arg(long)]
    pub(crate) objects: usize,
    /// How many are reconciled at once
    #[arg(long)]
    pub(crate) limit: u16,
    /// How many steps a computation has
    #[arg(long)]
    pub(crate) steps: u64,
    /// The value that is waited for
    #[arg(long)]
    pub(crate) goal: String,
}

/// A report. Times are seconds since 1970.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// A tenth of the objects were reconciled; this is one that was not.
    Waits { object: String, totals: Totals },
    /// All objects were reconciled, for the first time.
    Listed(Totals),
    /// The first object with the goal's value was reconciled.
    First(Totals),
    /// All objects have the goal's value.
    All(Totals),
    /// The input has ended.
    End(Totals),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Totals {
    pub(crate) at: f64,
    pub(crate) reconciliations: usize,
    /// Processor time, in seconds.
    pub(crate) cpu: f64,
    /// When the first reconciliation began.
    pub(crate) began: f64,
}

struct State {
    options: Options,
    api: Api<ConfigMap>,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    /// The last value that was seen of each object.
    values: HashMap<String, String>,
    /// How many of them are the goal.
    reached: usize,
    reconciliations: usize,
    began: Option<f64>,
}

impl Record {
    fn totals(&self) -> Totals {
        Totals {
            at: now(),
            reconciliations: self.reconciliations,
            cpu: clock(ClockId::ProcessCPUTime).as_secs_f64(),
            began: self.began.unwrap_or_default(),
        }
    }
}

pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

fn clock(id: ClockId) -> Duration {
    clock_gettime(id).try_into().unwrap_or_default()
}

fn report(report: &Report) {
    println!("{}", serde_json::to_string(report).expect("no maps in it"));
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let client = control_plane::client(options.port);
    let api = Api::<ConfigMap>::namespaced(client, &options.namespace);
    let state = Arc::new(State {
        options,
        api,
        record: Mutex::default(),
    });
    let running = tokio::spawn(controller(&state));
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    running.abort();
    let record = state.record.lock().unwrap_or_else(PoisonError::into_inner);
    report(&Report::End(record.totals()));
    Ok(())
}

fn controller(state: &Arc<State>) -> BoxFuture<'static, ()> {
    let (api, limit) = (state.api.clone(), state.options.limit);
    let sources = watcher::Config::default().labels(objects::LABEL);
    let state = Arc::clone(state);
    // The two have the same methods.
    match state.options.contender {
        Contender::Keyqueue => keyqueue_kube::Controller::new(api, sources)
            .workers(limit.into())
            .run(reconcile, again, state)
            .for_each(async |_| {})
            .boxed(),
        contender => {
            let limit = if contender == Contender::Unlimited {
                0
            } else {
                limit
            };
            controller::Controller::new(api, sources)
                .with_config(controller::Config::default().concurrency(limit))
                .run(reconcile, again, state)
                .for_each(async |_| {})
                .boxed()
        }
    }
}

fn again(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<State>) -> Action {
    Action::requeue(Duration::from_millis(100))
}

/// Keeps one processor busy: each step needs the one before.
pub(crate) fn compute(steps: u64) {
    let mut value = steps;
    for _ in 0..steps {
        value = std::hint::black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ (value >> 33));
    }
}

async fn reconcile(source: Arc<ConfigMap>, state: Arc<State>) -> Result<Action, kube::Error> {
    {
        let record = &mut *state.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.began.get_or_insert_with(now);
    }
    match state.options.work {
        Work::Copy => objects::copy(&state.api, &source).await?,
        Work::Wait => sleep(WAIT).await,
        Work::Compute => compute(state.options.steps),
    }
    state.reconciled(source.name_any(), objects::value(&source));
    Ok(Action::await_change())
}

impl State {
    fn reconciled(&self, name: String, value: String) {
        let record = &mut *self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.reconciliations += 1;
        let is_goal = value == self.options.goal;
        let former = record.values.insert(name, value);
        let count = record.values.len();
        if former.is_none() {
            if count == self.options.objects / 10 {
                self.find_one_that_waits(record);
            }
            if count == self.options.objects {
                report(&Report::Listed(record.totals()));
            }
        }
        if is_goal && former.is_none_or(|former| former != self.options.goal) {
            record.reached += 1;
            if record.reached == 1 {
                report(&Report::First(record.totals()));
            }
            if record.reached == self.options.objects {
                report(&Report::All(record.totals()));
            }
        }
    }

    /// Any that waits: kube-runtime has no order.
    fn find_one_that_waits(&self, record: &Record) {
        let waits = loop {
            let object = objects::name(fastrand::usize(..self.options.objects));
            if !record.values.contains_key(&object) {
                break object;
            }
        };
        report(&Report::Waits {
            object: waits,
            totals: record.totals(),
        });
    }
}
