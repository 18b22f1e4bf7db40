//! A consumer, and its run.

use std::fmt;
use std::pin::pin;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use keyqueue::limiter::NoLimit;
use keyqueue::worker::{IntoVerdict, IntoVerdicts, Running, Workers};
use keyqueue::{UpTo, WorkQueue, merge};
use rdkafka::config::FromClientConfigAndContext;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::bell::Bell;
use crate::client::{Client, Context};
use crate::config::Builder;
use crate::dead_letter::{Letters, Writer};
use crate::driver::Driver;
use crate::key::{Backlog, Job, Key};
use crate::lease::Lease;
use crate::shared::{Counts, Shared};
use crate::work;
use crate::{Ended, Error, Record, Status, lock};

/// A member of a consumer group, which handles the records of its partitions: those of different keys at the same time, those
/// of a key one after the other. See the [crate].
///
/// A clone is the same consumer.
#[derive(Clone)]
pub struct Consumer {
    pub(crate) shared: Arc<Shared>,
}

type Queued = Workers<'static, Key, Backlog, &'static str>;

impl Consumer {
    /// Begins the settings of a consumer of the group at these servers: `host:port`, several separated by commas.
    pub fn builder(servers: &str, group: &str) -> Builder {
        Builder::new(servers, group)
    }

    pub(crate) fn create(settings: Builder) -> Result<Self, Error> {
        let (bell, errors) = <(Arc<Bell>, Arc<_>)>::default();
        let context = Context {
            bell: Arc::clone(&bell),
            errors: Arc::clone(&errors),
            ..Context::default()
        };
        let client = Client::from_config_and_context(&settings.client, context);
        let mut client = client.map_err(Error::client("creating the client"))?;
        let read = settings.lease_and_reset();
        let (lease, reset) = read.map_err(Error::client("reading the settings"))?;
        let ring = Arc::clone(&bell);
        client.set_nonempty_callback(move || ring.ring());
        let letters = settings.dead_letters.as_ref();
        let letters = letters.map(|topic| Writer::new(&settings.producer, topic, &settings.group));
        let queue = WorkQueue::builder()
            .rate_limiter(NoLimit)
            .adds_wait_for_retries(true);
        let queue = queue.merge(merge::append).build();
        let queue = queue
            .map_err(|error| Error::config(error.field(), error.value(), error.to_string()))?;
        let shared = Shared {
            lease: Arc::new(Lease::new(lease)),
            metadata: Mutex::new(settings.metadata),
            reset,
            settings,
            client: Mutex::new(Some(client)),
            queue,
            letters: letters.transpose()?,
            read_letters: Arc::default(),
            bell,
            counts: Counts::default(),
            tenures: Mutex::default(),
            unread: Mutex::default(),
            errors,
            stop: Mutex::default(),
        };
        Ok(Consumer {
            shared: Arc::new(shared),
        })
    }

    /// Joins the group, and handles records until `signal` is ready. Then no other record begins; what runs may take until the
    /// end of `grace`, also if the group wants its partition back meanwhile and waits for that; what is finished is committed; and the
    /// group is left, in the background if brokers do not reply. With the 10 s that the last commit is tried for, `grace` must be less than
    /// `max.poll.interval.ms` (five minutes): brokers may remove a member that takes longer, and others begin while its handlers run.
    ///
    /// `f` is called by [`concurrency`](Builder::concurrency) tasks of the tokio runtime that runs this. It returns `()`, a `Result`, an
    /// [`Outcome`](crate::Outcome) or a [`Verdict`](crate::Verdict):
    ///
    /// | it returns | the record |
    /// | --- | --- |
    /// | `()`, `Ok(())`, `Outcome::Done` | is finished |
    /// | `Err(e)`, `Verdict::Retry(e)`, or it panics | is retried after the limiter's delay, and its key waits; after the last [retry](Builder::retries) it is [`Exhausted`](crate::Exhausted) |
    /// | `Verdict::RetryAfter(e, delay)` | the same, with this delay |
    /// | `Verdict::GiveUp(e)` | is exhausted now |
    /// | `Outcome::RequeueAfter(delay)` | is handled again then, and what failed before is forgotten |
    /// | `Outcome::Later(delay)`, `HoldGroup(delay)` | is handled again then; this is no failure |
    /// | `Outcome::RequeueRateLimited` | the same, after the limiter's delay |
    ///
    /// A handler must not block its thread: use `tokio::task::spawn_blocking` for what blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Fatal`] if the group has fenced this member, at once, or has removed it, and librdkafka does not join again: what ran was
    /// cancelled, and nothing was committed.
    /// [`Error::Config`] if a regular expression of the topics matches the topic of dead letters.
    /// [`Error::Client`] if a thread of the run has panicked, as with a subscriber of `tracing` whose output is closed: what ran was cancelled,
    /// and the group is left; and, before anything runs, if librdkafka refuses a regular expression of the topics.
    /// [`Error::HasRun`] if this was called before.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the run without a grace: what runs is cancelled, what is finished is committed, by a thread in the
    /// background.
    pub async fn run_until<F, R>(
        &self,
        signal: impl Future,
        grace: Duration,
        f: F,
    ) -> Result<Ended, Error>
    where
        F: Fn(Record) -> R + Send + Sync + 'static,
        R: Future<Output: IntoVerdict> + Send + 'static,
    {
        let f = Arc::new((Arc::clone(&self.shared), f));
        let work = move |job: Job| {
            let f = Arc::clone(&f);
            async move { work::work(&f.0, &f.1, job).await }
        };
        let spawn = |workers: Queued| workers.each(work::TURN).spawn_on(&Handle::current(), work);
        self.run(signal, grace, spawn).await
    }

    /// The same with a handler that gets up to `max` records at a time, of many keys, those of a key in order. It returns for all of
    /// them, or for each, what [`run_until`](Self::run_until) has in its table: see [`IntoVerdicts`].
    ///
    /// If it fails for the batch as a whole, with an error or a panic, it is called again for the halves of it, until the bad record
    /// is alone: that one has failed, and the others are finished. So what a call has done before it fails has to be undone, as a
    /// transaction is. The same holds for a call that is cancelled because one of its partitions was given back: the handler is called
    /// again for the records of the others, but not for those of a partition that is being given back, too. If it returns a verdict for each, the records of a key behind one that is not finished are handled again.
    ///
    /// [`concurrency`](Builder::concurrency) is the number of batches at the same time.
    ///
    /// # Errors
    ///
    /// As for `run_until`, whose sections on panics and cancel safety hold, too.
    pub async fn run_batches_until<F, R>(
        &self,
        signal: impl Future,
        grace: Duration,
        max: usize,
        f: F,
    ) -> Result<Ended, Error>
    where
        F: Fn(Vec<Record>) -> R + Send + Sync + 'static,
        R: Future<Output: IntoVerdicts> + Send + 'static,
    {
        let f = Arc::new((Arc::clone(&self.shared), f));
        let up_to = UpTo::new(max).linger(self.shared.settings.linger);
        let work = move |jobs: Vec<Job>| {
            let f = Arc::clone(&f);
            async move { work::batches::work(&f.0, &f.1, max, jobs).await }
        };
        let spawn = |workers: Queued| workers.spawn_batches_on(&Handle::current(), up_to, work);
        self.run(signal, grace, spawn).await
    }

    async fn run(
        &self,
        signal: impl Future,
        grace: Duration,
        spawn: impl FnOnce(Queued) -> Result<Running<Key, Backlog>, keyqueue::ConfigError>,
    ) -> Result<Ended, Error> {
        // Panics if there is no time: now, not when the first letter is waited for.
        drop(tokio::time::sleep(Duration::ZERO));
        let client = lock(&self.shared.client).take().ok_or(Error::HasRun)?;
        // Cancels what runs when it is dropped.
        let end = End(&self.shared);
        let workers =
            Workers::new(&self.shared.queue).concurrency(self.shared.settings.concurrency);
        let running = spawn(workers);
        let _running = running
            .map_err(|error| Error::config("concurrency", error.value(), error.to_string()))?;
        let (to_us, ended) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let run = move || {
            let mut driver = match Driver::new(client, shared) {
                Ok(driver) => driver,
                Err(error) => return drop(to_us.send(Err(error))),
            };
            let ended = driver.run();
            // An error is told before the group is left, which may take time.
            let _late = match ended {
                Ok(_) => {
                    leave(driver, LEAVING);
                    None
                }
                Err(_) => Some(driver),
            };
            _ = to_us.send(ended);
        };
        let started = thread::Builder::new()
            .name("keyqueue-kafka".into())
            .spawn(run);
        started.map_err(Error::other("starting a thread"))?;
        // If it has ended already, the signal is not waited for.
        let result = match select(ended, pin!(signal)).await {
            Either::Left((result, _)) => result,
            Either::Right((_, ended)) => {
                self.shared.end(grace);
                ended.await
            }
        };
        drop(end);
        result.map_err(Error::other("the thread of the driver has panicked"))?
    }

    /// Returns what the consumer is doing: its partitions, and for each the oldest record that is not finished, since when, and why.
    /// Takes time linear in the records in memory.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.shared, Instant::now())
    }

    /// Returns the dead letters of the group, to read and to put back; `None` without [a topic](Builder::dead_letters) for them.
    #[must_use]
    pub fn dead_letters(&self) -> Option<Letters> {
        Letters::new(&self.shared.settings, &self.shared.read_letters)
    }
}

/// How long a run waits for the client to leave its group.
const LEAVING: Duration = Duration::from_secs(30);

/// Drops what leaves the group, and waits for that, but not for longer than this. A client that closes while the group gives it partitions may
/// ask itself something that it does not reply to any more (librdkafka 2.12).
fn leave(driver: impl Send + 'static, limit: Duration) {
    let (left, leaves) = mpsc::channel();
    let leave = move || {
        drop(driver);
        _ = left.send(());
    };
    let leaving = thread::Builder::new().name("keyqueue-kafka-leave".into());
    // An error: no thread, and it was dropped here.
    if leaving.spawn(leave).is_ok() && leaves.recv_timeout(limit) == Err(RecvTimeoutError::Timeout)
    {
        tracing::warn!(target: "keyqueue_kafka", "the client has not left its group within {limit:?}, and is left behind");
    }
}

/// Ends a run.
struct End<'c>(&'c Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // The caller is gone, and waits for nothing.
        if self.0.stop().is_none() {
            self.0.end(Duration::ZERO);
        }
        self.0.queue.shut_down_now();
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends its drop when the sender does.
    struct Driver {
        ends: mpsc::Receiver<()>,
        _alive: Arc<()>,
    }

    impl Drop for Driver {
        fn drop(&mut self) {
            _ = self.ends.recv();
        }
    }

    #[test] // R6
    fn a_client_that_does_not_leave_is_left_behind() {
        let alive = Arc::new(());
        let client = || {
            let (end, ends) = mpsc::channel();
            let _alive = Arc::clone(&alive);
            (end, Driver { ends, _alive })
        };
        let (end, hangs) = client();
        leave(hangs, Duration::from_millis(50));
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(end);
        let (_, leaves) = client();
        leave(leaves, Duration::MAX);
        while Arc::strong_count(&alive) > 1 {
            thread::yield_now();
        }
    }
}
