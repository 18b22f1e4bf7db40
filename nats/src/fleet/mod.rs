//! The membership of one process in the fleet: [`Fleet`].
//!
//! ```text
//!     driver    the ownership protocol: which partitions are ours, and until when (lease)
//!     receive   one task for each owned partition: its messages (pull), into the queue, as many as there is room for (room)
//!     queue     keyqueue's: one delivery of a key at a time, messages merged while it waits (load)
//!     work      one task for each delivery that may run: lease, handler, acknowledgement (acks); what is handled (handled, marks), and
//!               how often it has failed (attempts)
//! ```

mod acks;
pub(crate) mod attempts;
pub(crate) mod bucket;
mod delivery;
mod driver;
mod event;
mod handled;
mod lease;
pub(crate) mod load;
mod marks;
mod pull;
mod receive;
mod room;
mod series;
mod stalled;
mod stranger;
mod tenure;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::ready;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::Context;
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::stream::Stream;
use futures_util::StreamExt;
use keyqueue::WorkQueue;
use keyqueue::worker::{IntoVerdict, Workers};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_stream::wrappers::BroadcastStream;

use self::acks::{Acks, Outbox};
use self::attempts::FEW;
use self::bucket::Bucket;
pub use self::delivery::{Delivery, Fence};
use self::driver::{Driver, Leave};
pub use self::event::{Event, Left};
use self::lease::Lease;
use self::load::Load;
pub use self::load::Message;
use self::marks::Marks;
use self::receive::LIMIT;
use self::room::Room;
use self::series::Series;
use self::tenure::Tenure;
use self::work::{HEALTHY, LEVELS};
use crate::{Config, Error, config, stream};

type Queue = WorkQueue<String, Load>;

/// How many events a receiver of them may be behind.
const EVENTS: usize = 1024;
/// How long `leave` waits for handlers that it has cancelled.
const CANCEL: Duration = Duration::from_secs(1);

/// This process's membership in a fleet of replicas that share the keys of one stream.
///
/// Each key belongs to a partition, and each partition to one replica at a time, by a lease. A
/// replica receives the messages of its partitions, and delivers each key to one of its tasks at
/// a time. Replicas may join and leave at any time; the partitions move, and no key is delivered
/// by two of them at once.
///
/// A clone is another handle to the same membership. The [page of the crate](crate) has a program.
#[derive(Clone)]
pub struct Fleet {
    shared: Arc<Shared>,
    leave: mpsc::Sender<Leave>,
    stage: Arc<Mutex<Stage>>,
}

enum Stage {
    /// `run` was not called yet.
    Joined(Box<Seat>),
    Running,
    /// `leave` was called before `run`.
    Left,
}

/// What only `run` has.
struct Seat {
    bucket: Bucket,
    leaves: mpsc::Receiver<Leave>,
    outbox: Outbox,
}

/// What the parts of one membership share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) context: Context,
    replica: String,
    pub(crate) client: Client,
    /// Of the partitions.
    streams: Vec<Stream>,
    /// The bucket of owners.
    owners: Store,
    /// That of what outlives them.
    counts: Store,
    /// What is handled, of each partition.
    marks: Vec<Marks>,
    /// The bytes that are held.
    memory: Arc<Room>,
    /// Permits for keys that may have killed a process.
    suspects: Semaphore,
    queue: Arc<Queue>,
    lease: Arc<Lease>,
    acks: Acks,
    series: Arc<Series>,
    events: broadcast::Sender<Event>,
    /// How many times the client has connected.
    connects: watch::Sender<u64>,
    owned: Mutex<BTreeMap<u16, Owned>>,
    /// The partitions whose messages do not come.
    stalled: Mutex<BTreeSet<u16>>,
}

/// A partition of this replica, until it is lost or handed over.
#[derive(Clone)]
struct Owned {
    tenure: Arc<Tenure>,
    /// Of the task that receives.
    receiver: AbortHandle,
}

impl Owned {
    /// Ends it without handing over.
    fn lose(&self) {
        self.tenure.lose();
        self.receiver.abort();
    }
}

impl Fleet {
    /// Checks the stream and the bucket against the configuration, and returns a handle. The replica
    /// takes part when [`run`](Self::run) is called.
    ///
    /// `replica` names this process in records and logs: 1 to 64 letters, digits, `-` and `_`. Two
    /// processes of the same name do no harm: each has sessions of its own, `<replica>.<random>.<n>` in the bucket, and
    /// owns partitions of its own. In logs you cannot tell them apart by the name.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a field of the configuration or the name is out of range,
    /// [`Error::Mismatch`] if the stream or the bucket is different, [`Error::Server`] if the server cannot
    /// be reached or has no such stream.
    pub async fn join(client: Client, config: Config, replica: &str) -> Result<Fleet, Error> {
        config.check()?;
        config::check_token("replica", replica)?;
        let (context, streams, [owners, counts]) = stream::open(&client, &config).await?;
        let (acks, outbox) = Acks::new();
        let series = Arc::new(Series::new(&config.stream, config.partitions));
        let merge = {
            let (acks, series, coalesce) = (acks.clone(), Arc::clone(&series), config.coalesce);
            move |older: &mut Load, newer: Load| {
                let superseded = older.merge(newer, coalesce, &acks);
                series.superseded.increment(superseded as u64);
            }
        };
        let queue = WorkQueue::builder()
            .merge(merge)
            .levels(LEVELS)
            .default_level(HEALTHY)
            .name(config.stream.clone())
            .build()
            .map_err(|error| Error::config("stream", &config.stream, error.to_string()))?;
        let (leave, leaves) = mpsc::channel(1);
        let bucket = Bucket {
            context: context.clone(),
            store: owners.clone(),
            partitions: config.partitions,
            limit: LIMIT.min(config.lease / 4),
            written: AtomicU64::new(0),
            trouble: Mutex::default(),
        };
        Ok(Fleet {
            shared: Arc::new(Shared {
                context,
                replica: replica.to_owned(),
                client,
                streams,
                owners,
                counts,
                marks: (0..config.partitions).map(|_| Marks::default()).collect(),
                memory: Arc::new(Room::new(
                    usize::try_from(config.max_held_bytes).unwrap_or(usize::MAX),
                )),
                suspects: Semaphore::new(FEW as usize),
                queue: Arc::new(queue),
                lease: Arc::new(Lease::new()),
                acks,
                series,
                events: broadcast::Sender::new(EVENTS),
                connects: watch::Sender::new(0),
                owned: Mutex::default(),
                stalled: Mutex::default(),
                config,
            }),
            leave,
            stage: Arc::new(Mutex::new(Stage::Joined(Box::new(Seat {
                bucket,
                leaves,
                outbox,
            })))),
        })
    }

    /// Takes part in the fleet: claims partitions, receives their messages, and calls `handler` with
    /// each delivery, at most `tasks` of them at once, as tasks of the current tokio runtime. Returns after
    /// [`leave`](Self::leave).
    ///
    /// | the handler's result | the messages | the key |
    /// | --- | --- | --- |
    /// | `()`, `Ok(())`, [`Outcome::Done`] | are acknowledged | is done |
    /// | [`Outcome::RequeueAfter`] | stay | is delivered again after this time, or with a new message |
    /// | [`Outcome::Later`], [`Outcome::HoldGroup`] | stay | is delivered again after this time; not counted as a failure |
    /// | [`Outcome::RequeueRateLimited`] | stay | is delivered again after [`Config::backoff`]; not counted as a failure |
    /// | `Err`, [`Verdict::Retry`], a panic | stay | is retried after [`Config::backoff`], doubled with each failure |
    /// | [`Verdict::RetryAfter`] | stay | is retried after this time |
    /// | [`Verdict::GiveUp`], or a failure after [`Config::max_retries`] retries | are published to [`Config::dead_letters`] and removed | is given up |
    ///
    /// The error of a `Result` or a `Verdict` is any type that implements `Display`. For a handler see
    /// [what a handler returns](crate#what-a-handler-returns).
    ///
    /// Messages that stay are in the stream: if this replica dies, they are delivered by another one,
    /// immediately. The count of failures is kept on the server. With [`Config::max_retries`] so are deliveries in which the process has
    /// ended, from the second time on: a key is given up after six of them, or one more than that.
    ///
    /// [`Outcome::Done`]: crate::Outcome::Done
    /// [`Outcome::RequeueAfter`]: crate::Outcome::RequeueAfter
    /// [`Outcome::Later`]: crate::Outcome::Later
    /// [`Outcome::HoldGroup`]: crate::Outcome::HoldGroup
    /// [`Outcome::RequeueRateLimited`]: crate::Outcome::RequeueRateLimited
    /// [`Verdict::Retry`]: crate::Verdict::Retry
    /// [`Verdict::RetryAfter`]: crate::Verdict::RetryAfter
    /// [`Verdict::GiveUp`]: crate::Verdict::GiveUp
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `tasks` is 0 or more than the queue can have, or if `run` was called before on a handle of this
    /// membership. Errors of the server are no errors of this function: the replica suspends, tries
    /// again, and tells so with [`events`](Self::events).
    ///
    /// # Panics
    ///
    /// If your recorder of metrics or subscriber of tracing panics. If it does so in a task that works on a key, the key is tried again
    /// instead. A panic of the handler is a failure.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the handlers and stops the renewals, without handing over: other
    /// replicas take the partitions when the lease has run out.
    pub async fn run<F, R>(&self, tasks: usize, handler: F) -> Result<(), Error>
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: IntoVerdict> + Send + 'static,
    {
        let (shared, handler) = (Arc::clone(&self.shared), Arc::new(handler));
        let (mut seat, workers) = {
            let mut stage = self.stage();
            match *stage {
                Stage::Joined(_) => {}
                Stage::Left => return Ok(()),
                Stage::Running => {
                    let reason = "a membership is run once";
                    return Err(Error::config("run", "a second call", reason));
                }
            }
            let workers = Workers::new(&shared.queue)
                .concurrency(tasks)
                .max_retries(u32::MAX)
                .spawn_on(&Handle::current(), {
                    let shared = Arc::clone(&shared);
                    move |job| work::work(Arc::clone(&shared), Arc::clone(&handler), job)
                })
                .map_err(|error| Error::config("tasks", tasks, error.to_string()))?;
            let Stage::Joined(seat) = mem::replace(&mut *stage, Stage::Running) else {
                unreachable!("checked above");
            };
            (seat, workers)
        };
        let _end = End(&shared);
        let mut background = JoinSet::new();
        background.spawn(seat.outbox.send(shared.client.clone()));
        Driver::new(Arc::clone(&shared), seat.bucket)
            .run(&mut seat.leaves)
            .await;
        workers.abort();
        let _ = timeout(CANCEL, workers.join_async()).await;
        // Acknowledgements that the client has not sent yet.
        let _ = timeout(CANCEL, shared.client.flush()).await;
        Ok(())
    }

    /// Leaves the fleet: no delivery begins any more, the running ones finish, their messages are
    /// acknowledged, and the partitions are released, which their next owners claim immediately. Queued
    /// keys are left to them. [`run`](Self::run) returns then.
    ///
    /// Handlers that still run after `deadline` are cancelled at their next await point, and their
    /// partitions are not released: other replicas take them when the lease has run out, and
    /// deliver these keys again.
    ///
    /// Returns immediately if `run` has returned. If it was not called yet, it will return immediately.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the leaving.
    pub async fn leave(&self, deadline: Duration) -> Left {
        {
            let mut stage = self.stage();
            if !matches!(*stage, Stage::Running) {
                *stage = Stage::Left;
                return Left::default();
            }
        }
        let (left, end) = oneshot::channel();
        if self.leave.send(Leave { deadline, left }).await.is_err() {
            return Left::default();
        }
        end.await.unwrap_or_default()
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the partitions that this replica owns, with their epochs, in the order of the
    /// partitions.
    #[must_use]
    pub fn owned(&self) -> Vec<Fence> {
        self.shared
            .owned()
            .values()
            .map(|owned| owned.tenure.fence)
            .collect()
    }

    /// Returns what happens to this membership from now on: call it before [`run`](Self::run) to miss nothing. A receiver
    /// that is more than 1024 events behind misses the oldest.
    ///
    /// The stream ends when `run` has returned and the last handle of the membership is dropped. Its `next` is a method of
    /// `StreamExt`, of the crate `futures-util` or `tokio-stream`.
    ///
    /// ```no_run
    /// use futures_util::StreamExt;
    /// use keyqueue_nats::{Event, Fleet};
    ///
    /// # async fn run(fleet: Fleet) -> Result<(), keyqueue_nats::Error> {
    /// let mut events = fleet.events(); // before `run`
    /// tokio::spawn(async move {
    ///     while let Some(event) = events.next().await {
    ///         match event {
    ///             Event::GivenUp { key, error, .. } => eprintln!("a person has to look at {key}: {error}"),
    ///             event => println!("{event}"),
    ///         }
    ///     }
    /// });
    /// fleet.run(64, |_| async {}).await
    /// # }
    /// ```
    pub fn events(&self) -> impl futures_util::Stream<Item = Event> + Send + Unpin + use<> {
        let events = BroadcastStream::new(self.shared.events.subscribe());
        events.filter_map(|event| ready(event.ok()))
    }
}

/// Ends the deliveries when `run` returns, or is dropped.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // A recorder that has panicked may do so again, which would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.0.abandon();
            self.0.series.end();
        }));
        self.0.queue.shut_down_now();
    }
}

impl Shared {
    fn owned(&self) -> MutexGuard<'_, BTreeMap<u16, Owned>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, fence: Fence, owned: Owned) {
        let mut all = self.owned();
        all.insert(fence.partition, owned);
        self.series.owned.set(all.len() as f64);
    }

    fn owned_of(&self, fence: Fence) -> Option<Owned> {
        let all = self.owned();
        let owned = all.get(&fence.partition)?;
        (owned.tenure.fence == fence).then(|| owned.clone())
    }

    fn remove(&self, fence: Fence) -> Option<Owned> {
        let owned = self.owned_of(fence)?;
        let mut all = self.owned();
        all.remove(&fence.partition);
        self.series.owned.set(all.len() as f64);
        self.forget_stalled(fence);
        Some(owned)
    }

    fn stream(&self, fence: Fence) -> &Stream {
        &self.streams[usize::from(fence.partition)]
    }

    fn marks(&self, fence: Fence) -> &Marks {
        &self.marks[usize::from(fence.partition)]
    }

    /// Ends all tenures without handing over. Returns those that were left.
    fn abandon(&self) -> Vec<Fence> {
        let all = mem::take(&mut *self.owned());
        let end = |owned: Owned| {
            owned.lose();
            owned.tenure.fence
        };
        let ended: Vec<Fence> = all.into_values().map(end).collect();
        self.series.owned.set(0);
        ended.iter().for_each(|fence| self.forget_stalled(*fence));
        ended
    }

    pub(crate) fn tell(&self, event: Event) {
        // First, because a subscriber of tracing or a recorder may panic. An error: nobody listens.
        let _ = self.events.send(event.clone());
        tracing::info!(replica = self.replica, %event, "fleet");
        self.series.event(&event);
    }

    /// The same where a subscriber of tracing, or a recorder, that panics must not keep a message where it is.
    pub(crate) fn tell_caught(&self, event: Event) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.tell(event)));
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("replica", &self.shared.replica)
            .field("owned", &self.owned())
            .finish_non_exhaustive()
    }
}
