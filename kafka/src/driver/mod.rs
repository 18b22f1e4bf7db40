//! The thread that owns the client: it receives records, replies to the group, and has offsets committed.
//!
//! It never waits for a handler or for a broker, and holds no lock over a call of the client. What takes long is a state that
//! each turn looks at:
//!
//! ```text
//!     the group assigns    --> the clerk reads what is committed --> tenures, assign, pause, split the queues, resume
//!                              --> those that cannot be read stay paused, and are read again; so do all, if the group wants
//!                                  something else by then, and is a cooperative one
//!     the group revokes    --> nothing begins any more; what runs ends, or is cancelled at the limit
//!                              --> the clerk commits --> unassign
//!     the assignment is lost --> nothing begins, what runs is cancelled, nothing is committed --> unassign
//!     the group assigns before that, or an eager one on top of what there is --> what there is counts as lost
//!     the signal           --> as a revocation of all, within the grace --> close
//!     a fatal error, a panic --> nothing begins, what runs is cancelled, nothing is committed --> the error
//!     the end              --> what the group wants is replied to by the close, and not before
//! ```
//!
//! Other partitions go on while some are revoked, if the protocol of the group is a cooperative one.
//!
//! # Three facts of librdkafka
//!
//! * A pause throws away what is prefetched. So a partition that has no room is not paused: its queue is split off, and not polled.
//! * Records that were fetched before the split come by the main queue. So a partition is paused between its assignment and the split,
//!   which makes them outdated. If one comes out of order all the same, the partition is read again from there ([`intake`]).
//! * A queue must not be dropped while its partition is assigned.

mod intake;
mod lost;
mod rebalance;
mod unread;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::clerk::{Clerk, Job, Reply};
use crate::client::{Client, Context, Event};
use crate::shared::Shared;
use crate::tenure::Tenure;
use crate::{Ended, Error, Status, caught, lock};
use rebalance::{Leaving, Rebalancing};
use unread::Unread;

/// The longest the driver sleeps, as the callbacks that wake it may be missed.
const DOZE: Duration = Duration::from_millis(20);
/// The events that are served in a turn.
const EVENTS: usize = 8;
/// How often it looks at what has no callback: the limits, and whether the client has failed.
const LOOK: Duration = Duration::from_millis(100);
/// How often it sets the series, and looks for stalls.
const REPORT: Duration = Duration::from_millis(500);
/// How long after a commit of where partitions begin it is tried again, if it was refused.
const START: Duration = Duration::from_secs(1);
/// How long after a commit that should renew the lease it asks for another one, at most.
const RENEW: Duration = Duration::from_millis(500);

pub(crate) struct Driver {
    shared: Arc<Shared>,
    /// By slot. Dropped before the client.
    partitions: BTreeMap<u32, Assigned>,
    clerk: Clerk,
    client: Arc<Client>,
    slots: HashMap<(Arc<str>, i32), u32>,
    events: VecDeque<Event>,
    rebalancing: Rebalancing,
    unread: Unread,
    /// Those in which it has read records.
    turns: usize,
    /// The end has begun.
    leaving: Option<Leaving>,
    last_id: u64,
    next_commit: Instant,
    /// A commit is due; and one that is not the last of its tenures is on its way. There is one at most, and what changes until it is
    /// taken waits for the next one.
    wants_commit: bool,
    is_committing: bool,
    /// The last commits of tenures that are on their way.
    last_commits: usize,
    /// When it commits where partitions begin that wait for that, if there are some.
    next_start: Option<Instant>,
    next_renewal: Instant,
    next_look: Instant,
    next_report: Instant,
    /// The records that stall, of which it has warned.
    stalls: BTreeSet<(String, i32, u64)>,
    /// It has warned that nothing begins.
    is_held_up: bool,
}

/// A partition that this member has.
struct Assigned {
    tenure: Arc<Tenure>,
    queue: PartitionQueue<Context>,
    /// It has to be read again from here, which the client has refused until now.
    seek: Option<u64>,
    /// The client could not read it on, and has read no record since: it stands, or reads the same again and again.
    stands: bool,
}

impl Driver {
    pub(crate) fn new(client: Client, shared: Arc<Shared>) -> Result<Self, Error> {
        let client = Arc::new(client);
        let clerk = Clerk::start(&client, &shared);
        let clerk = clerk.map_err(Error::other("starting a thread"))?;
        let topics: Vec<_> = shared.settings.topics.iter().map(String::as_str).collect();
        client
            .subscribe(&topics)
            .map_err(Error::client("subscribing"))?;
        let now = Instant::now();
        Ok(Driver {
            next_commit: after(now, shared.settings.commit_every),
            wants_commit: false,
            is_committing: false,
            last_commits: 0,
            next_start: None,
            next_renewal: now,
            next_look: now,
            next_report: now + REPORT,
            shared,
            partitions: BTreeMap::new(),
            clerk,
            client,
            slots: HashMap::new(),
            events: VecDeque::new(),
            rebalancing: Rebalancing::Idle,
            unread: Unread::default(),
            turns: 0,
            leaving: None,
            last_id: 0,
            stalls: BTreeSet::new(),
            is_held_up: false,
        })
    }

    /// Runs until the stop, a fatal error, or a panic, as of a subscriber of `tracing`. It does not panic itself.
    pub(crate) fn run(&mut self) -> Result<Ended, Error> {
        self.shared.bell.answer();
        let ended = caught(|| self.turns()).unwrap_or_else(|message| {
            // Perhaps the group waits for a reply.
            self.rebalancing = Rebalancing::Loading(None, Vec::new());
            Err(Error::panicked(message))
        });
        if ended.is_err() {
            let tenures = || self.partitions.values().map(|assigned| &assigned.tenure);
            // First all: what is cancelled lets others begin.
            tenures().for_each(|tenure| tenure.revoke());
            tenures().for_each(|tenure| tenure.cancel());
            // What runs ends at its next await point. Then the group may have others handle it.
            let end = Instant::now() + rebalance::NOTICE;
            while tenures().any(|tenure| tenure.running() > 0) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Each and its records hold each other.
            tenures().for_each(|tenure| _ = caught(|| self.forget(tenure)));
        }
        _ = caught(|| self.close());
        lock(&self.shared.tenures).clear();
        lock(&self.shared.unread).clear();
        // What was counted since the last report. The partitions have shown that they are gone.
        _ = caught(|| Status::of(&self.shared, Instant::now()).show(&self.shared));
        // The last reference to the client leaves the group, once those of the queues and of the clerk are dropped.
        ended
    }

    fn turns(&mut self) -> Result<Ended, Error> {
        loop {
            self.shared.bell.clear();
            match self.turn()? {
                Turn::Busy => {}
                Turn::Idle => self
                    .shared
                    .bell
                    .wait(DOZE.min(self.shared.settings.commit_every)),
                // All queues are full. A wake-up for each record that ends would cost more than this.
                Turn::Full => self.shared.bell.wait(Duration::from_millis(1)),
                Turn::Ended(ended) => return Ok(ended),
            }
        }
    }

    /// Gives all partitions back. The client closes when it is dropped.
    fn close(&mut self) {
        let client = &self.client;
        client.context().close();
        self.events.extend(client.context().events());
        let is_idle = self.events.is_empty() && matches!(self.rebalancing, Rebalancing::Idle);
        if is_idle && self.is_cooperative() {
            // Such a client takes this only as a reply, and gives back what it has when it is dropped.
            return;
        }
        let mut closing = Ok(());
        if !is_idle {
            // The group waits for a reply, and a client that closes would wait for it forever. It takes this one once it closes, and
            // not before that if the group is a cooperative one.
            closing = client.close_queue();
        }
        if let Err(error) = client.unassign().and(closing) {
            tracing::debug!(target: "keyqueue_kafka", %error, "the client does not unassign");
        }
    }

    fn turn(&mut self) -> Result<Turn, Error> {
        let now = Instant::now();
        let mut busy = self.poll_events()?;
        while let Ok(reply) = self.clerk.replies.try_recv() {
            busy = true;
            match reply {
                Reply::Loaded(id, loaded) => self.loaded(id, loaded)?,
                Reply::Committed(Some(id), failed) => self.note_committed(id, failed),
                Reply::Committed(None, _) => self.is_committing = false,
                Reply::Panicked(message) => return Err(Error::panicked(message)),
            }
        }
        if self.leaving.is_none()
            && let Some(grace) = self.shared.stop()
        {
            self.leave(after(now, grace));
        }
        if let Some(ended) = self.go_on_leaving(now) {
            return Ok(Turn::Ended(ended));
        }
        self.rebalance(now)?;
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.check_fatal()?;
            if self.leaving.is_none() && self.shared.lease.is_refused() {
                let reason = "brokers take no commit of this member, and librdkafka does not join the group again";
                return Err(Error::fatal(RDKafkaErrorCode::UnknownMemberId, reason));
            }
            let (records, bytes) = self.room_of_partition();
            self.partitions.values().for_each(|assigned| {
                let order = &self.shared.settings.order;
                assigned
                    .tenure
                    .look_at_failing(order, records / 2, bytes / 2);
            });
        }
        if now >= self.next_commit {
            self.next_commit = after(now, self.shared.settings.commit_every);
            self.wants_commit = true;
        }
        if now >= self.next_report {
            self.next_report = now + REPORT;
            self.report();
        }
        if !self.is_committing {
            let renews = now >= self.next_renewal && self.is_lease_due(now);
            if renews {
                self.next_renewal = now + RENEW.min(self.shared.lease.limit / 4);
            }
            if mem::take(&mut self.wants_commit) || renews {
                self.is_committing = self.commit(None, |_| true);
            } else if self.next_start.is_some_and(|time| now >= time) {
                self.is_committing = self.commit(None, Tenure::waits_for_commit);
                self.next_start = self.is_committing.then(|| now + START);
            }
        }
        let intake = match self.leaving {
            None => self.intake(now),
            Some(_) => Turn::Idle,
        };
        Ok(match intake {
            Turn::Idle if busy => Turn::Busy,
            intake => intake,
        })
    }

    /// Serves the main queue: what the group wants, errors, and records of partitions that are not split yet.
    fn poll_events(&mut self) -> Result<bool, Error> {
        let mut busy = false;
        let client = Arc::clone(&self.client);
        // A poll that has served a log line or an event returns nothing, as one that found nothing.
        let mut nothing = 0;
        while nothing < EVENTS {
            let polled = client.poll(Duration::ZERO);
            busy |= polled.is_some();
            match polled {
                None => nothing += 1,
                Some(Ok(message)) => self.stray(&message),
                // The context has noted it, with its reason.
                Some(Err(_)) => self.check_fatal()?,
            }
        }
        let events = client.context().events();
        busy |= !events.is_empty();
        self.events.extend(events);
        Ok(busy)
    }

    /// Keeps the error of a call to show, and ends the run if the client has failed for good.
    fn note_error(&self, error: KafkaError) -> Result<(), Error> {
        self.shared.errors.note(error.to_string());
        self.check_fatal()
    }

    fn check_fatal(&self) -> Result<(), Error> {
        match self.client.client().fatal_error() {
            Some((code, reason)) => Err(Error::fatal(code, reason)),
            None => Ok(()),
        }
    }

    /// Whether the lease has to be renewed. A member that holds no record needs none.
    fn is_lease_due(&self, now: Instant) -> bool {
        let mut tenures = self.partitions.values().map(|assigned| &assigned.tenure);
        self.shared.lease.is_due(now) && tenures.any(|tenure| tenure.held().0 > 0)
    }

    /// Asks the clerk to commit what has changed of these tenures, and all if the lease has to be renewed. With an id it is their
    /// last commit. Returns whether there will be a reply: there is something to commit, or to wait for.
    fn commit(&self, last: Option<(u64, Instant)>, of: impl Fn(&Tenure) -> bool) -> bool {
        let metadata = self.shared.metadata();
        let is_renewal = last.is_none() && self.is_lease_due(Instant::now());
        let snapshot = |assigned: &Assigned| {
            let tenure = &assigned.tenure;
            let is_due = of(tenure) && (last.is_some() || !tenure.is_revoked());
            let snapshot =
                is_due.then(|| tenure.snapshot(metadata, last.is_some(), is_renewal))??;
            Some((Arc::clone(tenure), snapshot))
        };
        let snapshots: Vec<_> = self.partitions.values().filter_map(snapshot).collect();
        // A last one without anything is replied to when what is on its way has arrived.
        let asks = !snapshots.is_empty() || last.is_some() && self.is_committing;
        if asks {
            self.clerk.ask(Job::Commit(last, snapshots));
        }
        asks
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Sets the series, and warns of stalls.
    fn report(&mut self) {
        let status = Status::of(&self.shared, Instant::now());
        status.show(&self.shared);
        self.warn_of_stalls(&status);
        let is_held_up = status.held_up.is_some();
        if is_held_up && !self.is_held_up {
            let error = status.last_error.as_deref().unwrap_or_default();
            tracing::warn!(target: "keyqueue_kafka", since = ?status.held_up, error, "nothing begins: brokers have taken no commit for too long");
        }
        self.is_held_up = is_held_up;
    }

    /// Warns once of each record that has become a stall.
    fn warn_of_stalls(&mut self, status: &Status) {
        let mut stalls = BTreeSet::new();
        for of in &status.partitions {
            let Some(oldest) = of.oldest.as_ref().filter(|oldest| oldest.is_stalled) else {
                continue;
            };
            let stall = (of.topic.clone(), of.partition, oldest.offset);
            if !self.stalls.contains(&stall) {
                let (topic, partition, offset) = &stall;
                let error = oldest.error.as_deref().unwrap_or_default();
                tracing::warn!(target: "keyqueue_kafka", topic, partition, offset, key = ?oldest.key, age = ?oldest.age, doing = %oldest.doing, error, records = of.records, "a partition stalls");
            }
            stalls.insert(stall);
        }
        self.stalls = stalls;
    }
}

/// So long after a moment; a century at most, as a clock has an end.
fn after(now: Instant, time: Duration) -> Instant {
    now + time.min(Duration::from_secs(100 * 365 * 24 * 3600))
}

enum Turn {
    Busy,
    Idle,
    Full,
    Ended(Ended),
}
