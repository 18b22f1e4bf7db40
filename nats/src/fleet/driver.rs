//! Drives the ownership protocol: feeds the [`Member`] with what the bucket and the clock say, and carries out
//! its actions. All decisions are the member's.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::bucket::Bucket;
use super::handled::delete_handled;
use super::receive::{PAUSE, delete_consumer, receive};
use super::tenure::Tenure;
use super::{Left, Owned, Shared};
use crate::ownership::{Action, Input, Member, Revision};
use crate::{Event, Fence};

/// How many changes of the bucket may wait for the driver. The watcher waits for room.
const CHANGES: usize = 256;

/// A request to hand everything over within this time.
pub(super) struct Leave {
    pub(super) deadline: Duration,
    pub(super) left: oneshot::Sender<Left>,
}

pub(super) struct Driver {
    shared: Arc<Shared>,
    bucket: Arc<Bucket>,
    member: Member,
    /// Writes, reads and hand-overs in progress.
    steps: FuturesUnordered<BoxFuture<'static, Option<Input>>>,
    /// The watcher of the bucket, and one task for each owned partition. Dropping it aborts them.
    tasks: JoinSet<()>,
    /// The partitions that were told as stalled because another replica does not renew its lease, with the revision of its last renewal.
    waits: BTreeMap<Fence, Revision>,
    /// While the replica leaves. Those that it owns still are not released.
    handed_over: BTreeSet<Fence>,
    /// With the time at which the deadline is over.
    leaving: Option<(Instant, Leave)>,
    /// Whether it leaves, for the hand-overs in progress.
    leaves: watch::Sender<bool>,
    left: bool,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, bucket: Bucket) -> Self {
        Driver {
            member: member(&shared),
            shared,
            bucket: Arc::new(bucket),
            steps: FuturesUnordered::new(),
            tasks: JoinSet::new(),
            waits: BTreeMap::new(),
            handed_over: BTreeSet::new(),
            leaving: None,
            leaves: watch::Sender::new(false),
            left: false,
        }
    }

    /// Runs until a [`Leave`] has been carried out, or its time is up.
    pub(super) async fn run(mut self, leaves: &mut mpsc::Receiver<Leave>) {
        while self.drive(leaves).await {
            let wait = self.begin_again();
            tokio::select! {
                () = sleep(wait) => {}
                Some(leave) = leaves.recv() => {
                    self.leaving = Some((Instant::now(), leave));
                    break;
                }
            }
        }
        self.forget_waits();
        let mut abandoned = BTreeSet::from_iter(self.shared.abandon());
        abandoned.extend(self.owned());
        if let Some((_, leave)) = self.leaving {
            let _ = leave.left.send(Left {
                handed_over: self.handed_over.difference(&abandoned).count(),
                abandoned: abandoned.into_iter().collect(),
            });
        }
    }

    /// Runs until the replica has left, or is to begin again: then it returns true.
    async fn drive(&mut self, leaves: &mut mpsc::Receiver<Leave>) -> bool {
        let mut changes = self.watch();
        while !self.left {
            let deadline = self.leaving.as_ref().map(|(at, _)| *at);
            let now = self.shared.lease.now();
            let wait = self.member.next_tick().saturating_sub(now);
            let input = tokio::select! {
                Some(input) = changes.recv() => input,
                Some(input) = self.steps.next(), if !self.steps.is_empty() => match input {
                    Some(read) if self.member.is_older(self.shared.lease.now(), &read) => {
                        return self.leaving.is_none();
                    }
                    Some(input) => input,
                    None => continue,
                },
                Some(leave) = leaves.recv(), if self.leaving.is_none() => {
                    let now = Instant::now();
                    let at = now.checked_add(leave.deadline).unwrap_or(now + YEAR);
                    self.leaving = Some((at, leave));
                    self.leaves.send_replace(true);
                    Input::Leave
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => break,
                () = sleep(wait.min(SECOND)) => Input::Tick,
            };
            if self.member.is_of_another_bucket(&input) {
                return self.leaving.is_none();
            }
            self.step(input);
            while let Some(ended) = self.tasks.try_join_next() {
                // Its partition would have an owner that receives nothing.
                if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                    resume_unwind(panic);
                }
            }
        }
        false
    }

    /// Forgets everything, and returns how long to wait: for a lease. By then no replica begins anything by what was in the former bucket.
    fn begin_again(&mut self) -> Duration {
        self.shared.abandon();
        self.shared.lease.set(Duration::ZERO);
        self.forget_waits();
        self.tasks.abort_all();
        self.steps.clear();
        // Relaxed: a number. The new bucket's revisions may be lower: the watcher would never show this one.
        self.bucket.written.store(0, Relaxed);
        self.shared.tell(Event::Suspended {
            reason: format!(
                "the bucket {} was made again, or restored",
                self.bucket.store.name
            ),
        });
        self.member = member(&self.shared).suspended();
        self.shared.config.lease
    }

    fn forget_waits(&mut self) {
        for fence in std::mem::take(&mut self.waits).into_keys() {
            self.shared.forget_stalled(fence);
        }
    }

    /// Spawns the task that watches the bucket.
    fn watch(&mut self) -> mpsc::Receiver<Input> {
        let (sender, changes) = mpsc::channel(CHANGES);
        let bucket = Arc::clone(&self.bucket);
        self.tasks.spawn(async move {
            while !sender.is_closed() {
                if let Err(error) = bucket.watch(&sender).await {
                    tracing::debug!(%error, "the watcher of the bucket ends");
                    let mut trouble = bucket.trouble();
                    if trouble.is_empty() {
                        let name = &bucket.store.name;
                        *trouble = format!("the bucket {name} cannot be watched: {error}");
                    }
                }
                sleep(PAUSE).await;
            }
        });
        changes
    }

    fn step(&mut self, input: Input) {
        let connects = self.shared.client.statistics().connects.load(Relaxed);
        self.shared
            .connects
            .send_if_modified(|old| std::mem::replace(old, connects) != connects);
        if let Input::HandedOver { partition, epoch } = input
            && self.leaving.is_some()
        {
            self.handed_over.insert(Fence { partition, epoch });
        }
        let now = self.shared.lease.now();
        for action in self.member.step(now, input) {
            self.act(action);
        }
        // After the actions: deliveries of a lost partition must not begin under a new session's lease.
        let until = self.member.may_begin_until();
        self.shared.lease.set(until);
        let left = until.saturating_sub(now);
        let series = &self.shared.series;
        series.lease_left.set(left);
        series.memory.set(self.shared.memory.held() as f64);
        self.tell_waits(now);
    }

    fn owned(&self) -> impl Iterator<Item = Fence> {
        let owned = self.member.owned();
        owned.map(|(partition, epoch)| Fence { partition, epoch })
    }

    /// Tells which partitions wait for the lease of another replica to end, and that they do no more (N13).
    fn tell_waits(&mut self, now: Duration) {
        let lease = self.shared.config.lease;
        // A renewal was due a second ago.
        let after = lease / 4 + SECOND;
        let (shared, member) = (&self.shared, &self.member);
        self.waits.retain(|fence, renewed| {
            let waits = member.is_late(fence.partition, fence.epoch, *renewed);
            // Otherwise the task that receives tells it.
            if !waits && !shared.owned().contains_key(&fence.partition) {
                shared.stalled(*fence, None);
            }
            waits
        });
        for late in member.late(now, after) {
            let (partition, epoch) = (late.partition, late.epoch);
            let fence = Fence { partition, epoch };
            if self.waits.insert(fence, late.renewed).is_none() {
                let (owner, age) = (late.owner, now.saturating_sub(late.since));
                let reason = format!(
                    "{owner}, which owns it, has not renewed its lease for {age:.1?}: it is taken over after {lease:?}"
                );
                shared.stalled(fence, Some(reason));
            }
        }
    }

    fn act(&mut self, action: Action) {
        tracing::debug!(?action, replica = self.shared.replica, "ownership");
        let bucket = Arc::clone(&self.bucket);
        match action {
            Action::Write { key, value, expect } => {
                let write = async move { Some(bucket.write(key, value, expect).await) };
                self.steps.push(Box::pin(write));
            }
            Action::Read { key } => {
                self.steps
                    .push(Box::pin(async move { bucket.read(key).await }));
            }
            Action::Start { partition, epoch } => self.start(Fence { partition, epoch }),
            Action::HandOver { partition, epoch } => self.hand_over(Fence { partition, epoch }),
            Action::Lost { partition, epoch } => {
                let fence = Fence { partition, epoch };
                if let Some(owned) = self.shared.owned_of(fence) {
                    owned.lose();
                    self.shared.remove(fence);
                    self.shared.tell(Event::Lost(fence));
                }
            }
            Action::Suspended => {
                let reason = self.bucket.trouble().clone();
                self.shared.tell(Event::Suspended { reason });
            }
            Action::Resumed => self.shared.tell(Event::Resumed),
            Action::Left => self.left = true,
        }
    }

    fn start(&mut self, fence: Fence) {
        let window = usize::try_from(self.shared.config.window).unwrap_or(usize::MAX);
        let statistics = self.shared.client.statistics();
        let tenure = Arc::new(Tenure::new(fence, window, statistics));
        let (higher, outranked) = oneshot::channel();
        let receive = receive(Arc::clone(&self.shared), Arc::clone(&tenure), higher);
        let partition = fence.partition;
        self.steps.push(Box::pin(async move {
            let above = outranked.await.ok()?;
            Some(Input::Outranked { partition, above })
        }));
        let receiver = self.tasks.spawn(receive);
        self.shared.insert(fence, Owned { tenure, receiver });
        self.shared.tell(Event::Acquired(fence));
    }

    fn hand_over(&mut self, fence: Fence) {
        let Some(owned) = self.shared.owned_of(fence) else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let mut leaves = self.leaves.subscribe();
        self.steps.push(Box::pin(async move {
            let began = Instant::now();
            let Owned { tenure, receiver } = owned;
            let end = began + shared.config.max_handover;
            // Other keys do not wait for a slow handler, unless the replica leaves. In the end they wait for those that have begun beside it.
            tokio::select! {
                biased;
                _ = leaves.wait_for(|leaves| *leaves) => {}
                _ = timeout_at(end, tenure.outlast()) => {}
            }
            receiver.abort();
            let limit = async {
                tokio::select! {
                    biased;
                    // That has its own deadline for what runs.
                    _ = leaves.wait_for(|leaves| *leaves) => {}
                    () = sleep_until(end) => tenure.cancel(),
                }
                pending::<()>().await;
            };
            tokio::select! {
                () = tenure.finish() => {}
                () = limit => {}
            }
            let (mut until, mut left) = (None, tenure.attempts.hand_on(&shared));
            loop {
                // Without the lease no count is written.
                tokio::select! {
                    biased;
                    () = tenure.lost() => return None,
                    () = shared.lease.held() => {}
                }
                let now = shared.lease.until();
                let is_renewed = until.replace(now).is_some_and(|former| former != now);
                let before = left;
                left = tenure.attempts.write_again(&shared, &tenure).await;
                // The server has replied since the last try: if it stores no counts, it may never do so.
                if left == 0 || is_renewed && left >= before {
                    break;
                }
                sleep(PAUSE).await;
            }
            shared.acks.settled(&shared.client, &tenure).await;
            // What is left then, the next owner may deliver again.
            tokio::select! {
                _ = timeout(DOUBT, delete_handled(&shared, &tenure)) => {}
                () = tenure.lost() => {}
            }
            delete_consumer(&shared, &tenure).await;
            // It may have been lost meanwhile, and that is told.
            shared.remove(fence)?;
            // For what a handler has left behind, before another replica owns the partition.
            tenure.lose();
            shared.series.hand_over.record(began.elapsed());
            shared.tell(Event::HandedOver(fence));
            Some(Input::HandedOver {
                partition: fence.partition,
                epoch: fence.epoch,
            })
        }));
    }
}

/// How long a hand-over looks for what is handled and not acknowledged.
const DOUBT: Duration = Duration::from_secs(5);

fn member(shared: &Shared) -> Member {
    let (partitions, lease) = (shared.config.partitions, shared.config.lease);
    let now = shared.lease.now();
    Member::new(&shared.replica, &nuid::next(), partitions, lease, now)
}

/// How long a partition may stand still untold.
const SECOND: Duration = Duration::from_secs(1);
/// A deadline that is as good as none.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
