//! Assignments and revocations, and the end.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::consumer::{Consumer, RebalanceProtocol};
use rdkafka::error::KafkaError;

use super::lost::{is_next, named};
use super::{Assigned, Driver, after};
use crate::clerk::{Job, Loaded, Of};
use crate::client::{self, Event, Partition};
use crate::tenure::{Start, Tenure};
use crate::{Ended, Error, PartitionStatus, lock, work};

/// How long the last commit of a tenure is tried, beyond the limit of its revocation. It is not waited for longer.
const COMMIT: Duration = Duration::from_secs(10);
/// How long what is cancelled may take to notice.
pub(super) const NOTICE: Duration = Duration::from_millis(200);
/// How long after a failure what is committed is asked for again.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// What the group has asked for, and is not replied to yet.
pub(super) enum Rebalancing {
    Idle,
    /// The clerk reads what is committed, with this number. `None`: it is not asked before commits that are on their way have a reply.
    Loading(Option<u64>, Vec<Partition>),
    Revoking(Vec<Partition>, Leaving),
}

/// Tenures that end.
pub(super) struct Leaving {
    slots: BTreeSet<u32>,
    began: Instant,
    /// What runs is cancelled then.
    deadline: Instant,
    step: Step,
    is_lost: bool,
    failed: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// For what runs.
    Waiting,
    /// For what was cancelled, until then.
    Cancelled(Instant),
    /// For the last commit with this number, until then.
    Committing(u64, Instant),
    Left,
}

impl Driver {
    /// Goes on with what the group has asked for.
    pub(super) fn rebalance(&mut self, now: Instant) -> Result<(), Error> {
        if self.leaving.is_some() {
            // The end gives all back, and replies to what is wanted until then.
            return Ok(());
        }
        self.read_unread(now);
        if !self.events.is_empty() || !matches!(self.rebalancing, Rebalancing::Idle) {
            // The group has not forgotten this member.
            self.shared.lease.forgive();
        }
        match mem::replace(&mut self.rebalancing, Rebalancing::Idle) {
            Rebalancing::Idle => {}
            Rebalancing::Loading(id, partitions) if !self.events.is_empty() => {
                self.assign_early(id, &partitions)?;
            }
            Rebalancing::Loading(None, partitions) => self.load(partitions)?,
            Rebalancing::Revoking(partitions, mut leaving) => {
                if !leaving.is_lost && self.events.iter().any(is_next) {
                    self.lose(&mut leaving, now);
                }
                self.end_tenures(&mut leaving, now);
                if leaving.step == Step::Left {
                    return self.unassign(&partitions, &leaving);
                }
                self.rebalancing = Rebalancing::Revoking(partitions, leaving);
            }
            loading => self.rebalancing = loading,
        }
        if let Rebalancing::Idle = self.rebalancing {
            match self.events.pop_front() {
                None => {}
                Some(Event::Assign(partitions)) if self.is_outdated() => {
                    self.events.push_front(Event::Assign(partitions));
                    self.revoke(Vec::new(), true, now);
                }
                Some(Event::Assign(partitions)) => self.load(partitions)?,
                Some(Event::Revoke(partitions, is_lost)) => self.revoke(partitions, is_lost, now),
            }
        }
        Ok(())
    }

    /// Whether an assignment finds partitions of an earlier one, in a group that is not a cooperative one. The group changed while that one
    /// was read, and librdkafka revokes nothing that waits for the reply to an assignment. So others may have had these since.
    fn is_outdated(&self) -> bool {
        let has_some = !self.partitions.is_empty() || !self.unread.all().is_empty();
        has_some && !self.is_cooperative()
    }

    pub(super) fn is_cooperative(&self) -> bool {
        let protocol = self.client.rebalance_protocol();
        matches!(protocol, RebalanceProtocol::Cooperative)
    }

    /// Whether a commit is on its way, which may be of an earlier tenure of a partition whose offset is to be read.
    pub(super) fn commits(&self) -> bool {
        self.is_committing || self.last_commits > 0
    }

    /// Has the clerk read what is committed, once no commit is on its way.
    ///
    /// # Errors
    ///
    /// A pattern has brought the topic of dead letters: the group would give up each letter by another one, without an end.
    fn load(&mut self, partitions: Vec<Partition>) -> Result<(), Error> {
        let letters = self.shared.settings.dead_letters.as_deref();
        if let Some(topic) = letters
            && partitions.iter().any(|(of, _)| of == topic)
        {
            // The end has to reply to the group.
            self.rebalancing = Rebalancing::Loading(None, partitions);
            let rule = "matches a pattern of the topics that are read";
            return Err(Error::config("dead_letters", topic, rule));
        }
        if self.commits() {
            self.rebalancing = Rebalancing::Loading(None, partitions);
            return Ok(());
        }
        tracing::info!(target: "keyqueue_kafka", ?partitions, "assigned");
        let id = self.next_id();
        self.clerk
            .ask(Job::Load(id, partitions.clone(), Of::Assignment));
        self.rebalancing = Rebalancing::Loading(Some(id), partitions);
        Ok(())
    }

    /// Takes in what the clerk has read, if it is still wanted.
    pub(super) fn loaded(
        &mut self,
        of: u64,
        loaded: Result<Loaded, KafkaError>,
    ) -> Result<(), Error> {
        if self.unread.is_asked(of) {
            return self.begin_unread(of, loaded);
        }
        let partitions = match &self.rebalancing {
            Rebalancing::Loading(Some(id), partitions) if *id == of => partitions,
            _ => return Ok(()),
        };
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                // The group waits for the assignment, and the other partitions with it. So these are read again later.
                let failed = partitions.clone();
                self.note_error(error)?;
                Loaded {
                    failed,
                    ..Loaded::default()
                }
            }
        };
        self.rebalancing = Rebalancing::Idle;
        self.assign(loaded)
    }

    /// Ends an assignment whose partitions are being read, as the group wants something else. A cooperative group has counted them as
    /// this member's since it sent the assignment: it does not assign them again, and it waits forever if it revokes one that the client
    /// does not have. So they are assigned, and read on as unread ones. Other groups assign all partitions again.
    fn assign_early(&mut self, id: Option<u64>, partitions: &[Partition]) -> Result<(), Error> {
        if !self.is_cooperative() {
            tracing::debug!(target: "keyqueue_kafka", ?partitions, "an assignment was taken back");
            return Ok(());
        }
        self.assign(Loaded {
            untried: partitions.to_vec(),
            ..Loaded::default()
        })?;
        if let Some(id) = id {
            self.unread.are_asked(id, partitions);
        }
        Ok(())
    }

    /// Assigns partitions, and begins the tenures of those of which it was read where they begin.
    fn assign(&mut self, loaded: Loaded) -> Result<(), Error> {
        let Loaded {
            starts,
            failed,
            untried,
        } = loaded;
        // Always a number: librdkafka may stop for good if it has to find one while the partition is paused.
        let mut list = client::list(&[&failed[..], &untried].concat());
        let set = list.set_all_offsets(Offset::Offset(0));
        set.or_else(|error| self.note_error(error))?;
        for ((topic, partition), start) in &starts {
            let set = list.add_partition_offset(topic, *partition, start.offset());
            set.or_else(|error| self.note_error(error))?;
        }
        let assigned = match self.is_cooperative() {
            true => self.client.incremental_assign(&list),
            false => self.client.assign(&list),
        };
        // A record that is fetched before the queues are split is outdated by this.
        if let Err(error) = assigned.and_then(|()| self.client.pause(&list)) {
            // The group has moved on, and says so.
            return self.note_error(error);
        }
        if !failed.is_empty() {
            tracing::warn!(target: "keyqueue_kafka", partitions = ?failed, "it cannot be read where these begin: that is tried again");
        }
        self.unread.add(untried, failed);
        self.begin(starts)
    }

    /// Begins tenures of partitions that are assigned and paused.
    pub(super) fn begin(&mut self, loaded: Vec<(Partition, Start)>) -> Result<(), Error> {
        let (partitions, starts): (Vec<_>, Vec<_>) = loaded.into_iter().unzip();
        let list = client::list(&partitions);
        // It is committed where the log ends before anything is read.
        if starts.iter().any(|start| start.is_end) {
            self.next_start = Some(Instant::now());
        }
        for (partition, start) in partitions.into_iter().zip(starts) {
            self.split(partition, start);
        }
        self.show_tenures();
        let resumed = self.client.resume(&list);
        resumed.or_else(|error| self.note_error(error))
    }

    fn split(&mut self, (topic, partition): Partition, start: Start) {
        let Some(mut queue) = self.client.split_partition_queue(&topic, partition) else {
            return tracing::error!(target: "keyqueue_kafka", topic, partition, "the client has no queue");
        };
        let bell = Arc::clone(&self.shared.bell);
        queue.set_nonempty_callback(move || bell.ring());
        let topic: Arc<str> = topic.into();
        let slots = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let slot = *self
            .slots
            .entry((Arc::clone(&topic), partition))
            .or_insert(slots);
        let assigned = Assigned {
            tenure: Arc::new(self.shared.tenure((topic, partition, slot), start)),
            queue,
            seek: None,
            stands: false,
        };
        self.partitions.insert(slot, assigned);
    }

    pub(super) fn slot(&self, (topic, partition): &Partition) -> Option<u32> {
        let place = (Arc::<str>::from(topic.as_str()), *partition);
        self.slots.get(&place).copied()
    }

    fn revoke(&mut self, partitions: Vec<Partition>, is_lost: bool, now: Instant) {
        let slots = if self.is_cooperative() {
            self.unread
                .retain(|partition| !partitions.contains(partition));
            partitions.iter().filter_map(|of| self.slot(of)).collect()
        } else {
            self.unread.retain(|_| false);
            self.partitions.keys().copied().collect()
        };
        let deadline = after(now, self.shared.settings.revoke_within);
        let mut leaving = self.begin_leaving(slots, now, deadline);
        if is_lost {
            self.lose(&mut leaving, now);
        }
        self.end_tenures(&mut leaving, now);
        self.rebalancing = Rebalancing::Revoking(partitions, leaving);
    }

    fn tenures(&self, slots: &BTreeSet<u32>) -> impl Iterator<Item = &Arc<Tenure>> {
        let assigned = slots.iter().filter_map(|slot| self.partitions.get(slot));
        assigned.map(|assigned| &assigned.tenure)
    }

    fn begin_leaving(&self, slots: BTreeSet<u32>, now: Instant, deadline: Instant) -> Leaving {
        self.tenures(&slots).for_each(|tenure| tenure.revoke());
        Leaving {
            slots,
            began: now,
            deadline,
            step: Step::Waiting,
            is_lost: false,
            failed: 0,
        }
    }

    fn lose(&self, leaving: &mut Leaving, now: Instant) {
        tracing::warn!(target: "keyqueue_kafka", "the assignment is lost: what runs is cancelled, nothing is committed");
        self.shared.counts.lost_assignments.add(1);
        leaving.is_lost = true;
        leaving.deadline = now;
        self.tenures(&leaving.slots)
            .for_each(|tenure| tenure.lose());
    }

    /// Those of these slots whose assignment is lost. The client says that of all, also if only a topic is gone. In a cooperative group
    /// a revocation comes right after, which names them. While the run ends, those are lost, too, behind whose revocation the group goes
    /// on; and all that are outdated.
    fn lost(&self, slots: &BTreeSet<u32>) -> BTreeSet<u32> {
        let is_lost = self.client.assignment_lost();
        let current = match &self.rebalancing {
            Rebalancing::Revoking(partitions, leaving) => Some((&partitions[..], leaving.is_lost)),
            _ => None,
        };
        let named = named(current, &self.events, is_lost);
        let is_assign = |event: &Event| matches!(event, Event::Assign(_));
        let is_some = is_lost || !named.is_empty() || self.events.iter().any(is_assign);
        if is_some && !self.is_cooperative() {
            return slots.clone();
        }
        let named = named.into_iter().filter_map(|of| self.slot(of));
        named.filter(|slot| slots.contains(slot)).collect()
    }

    /// Brings tenures nearer to their end.
    fn end_tenures(&mut self, leaving: &mut Leaving, now: Instant) {
        let lost = self.lost(&leaving.slots);
        if lost.is_empty() || leaving.is_lost {
            // Nothing is, or all is already.
        } else if lost == leaving.slots {
            self.lose(leaving, now);
        } else {
            // Those of a topic that is gone. The others have their grace.
            self.tenures(&lost).for_each(|tenure| {
                tenure.lose();
                tenure.cancel();
            });
            leaving.slots.retain(|slot| !lost.contains(slot));
        }
        let tenures = || self.tenures(&leaving.slots);
        let runs = tenures().any(|tenure| tenure.running() > 0);
        let is_quiet = match leaving.step {
            Step::Waiting if runs && now >= leaving.deadline => {
                tenures().for_each(|tenure| tenure.cancel());
                leaving.step = Step::Cancelled(now + NOTICE);
                false
            }
            Step::Waiting => !runs,
            Step::Cancelled(until) => !runs || now >= until,
            Step::Committing(_, until) => {
                if now >= until || leaving.is_lost {
                    let how = self.shared.metadata();
                    let last = |tenure: &Arc<Tenure>| tenure.snapshot(how, true, false);
                    let left = tenures().filter_map(last).count();
                    leaving.failed += if leaving.is_lost { 0 } else { left };
                    leaving.step = Step::Left;
                }
                false
            }
            Step::Left => false,
        };
        if !is_quiet {
            return;
        }
        leaving.step = Step::Left;
        if !leaving.is_lost {
            let id = self.next_id();
            let slots = &leaving.slots;
            let until = now + COMMIT;
            let is_asked = self.commit(Some((id, until)), |tenure| slots.contains(&tenure.slot));
            if is_asked {
                self.last_commits += 1;
                leaving.step = Step::Committing(id, until + NOTICE);
            }
        }
    }

    /// Notes that a last commit has ended.
    pub(super) fn note_committed(&mut self, of: u64, failed: usize) {
        self.last_commits -= 1;
        let of_group = match &mut self.rebalancing {
            Rebalancing::Revoking(_, leaving) => Some(leaving),
            _ => None,
        };
        for leaving in of_group.into_iter().chain(&mut self.leaving) {
            if matches!(leaving.step, Step::Committing(id, _) if id == of) {
                leaving.failed += failed;
                leaving.step = Step::Left;
            }
        }
    }

    /// Gives partitions back whose tenures have ended.
    fn unassign(&mut self, partitions: &[Partition], leaving: &Leaving) -> Result<(), Error> {
        let unassigned = match self.is_cooperative() {
            true => self.client.incremental_unassign(&client::list(partitions)),
            false => self.client.unassign(),
        };
        for slot in &leaving.slots {
            if let Some(assigned) = self.partitions.remove(slot) {
                self.forget(&assigned.tenure);
            }
        }
        self.show_tenures();
        metrics::histogram!("keyqueue_kafka_revocation_seconds", "group" => self.shared.settings.group.clone())
            .record(leaving.began.elapsed());
        tracing::info!(target: "keyqueue_kafka", ?partitions, is_lost = leaving.is_lost, "revoked");
        unassigned.or_else(|error| self.note_error(error))
    }

    /// Takes the records of a tenure that has ended out of the queue, so that they need no memory until their keys' turns, and has the
    /// limiter forget those that have failed: others finish them.
    pub(super) fn forget(&self, tenure: &Tenure) {
        let last = PartitionStatus::of(tenure, Duration::MAX, Instant::now());
        let held = tenure.clear();
        self.shared.counts.discarded.add(held.len() as u64);
        for record in held {
            if record.is_troubled() {
                work::forget(&self.shared, &record);
            }
            self.shared
                .queue
                .remove(&self.shared.settings.order.key(&record));
        }
        last.show_gone(&self.shared.settings.group);
    }

    /// Begins the end.
    pub(super) fn leave(&mut self, deadline: Instant) {
        let slots = self.partitions.keys().copied().collect();
        self.leaving = Some(self.begin_leaving(slots, Instant::now(), deadline));
    }

    /// Goes on with the end, and returns what it has left once it has come.
    pub(super) fn go_on_leaving(&mut self, now: Instant) -> Option<Ended> {
        let mut leaving = self.leaving.take()?;
        self.end_tenures(&mut leaving, now);
        if leaving.step != Step::Left {
            self.leaving = Some(leaving);
            return None;
        }
        let mut left = 0;
        for assigned in self.partitions.values() {
            left += assigned.tenure.held().0;
            self.forget(&assigned.tenure);
        }
        let counts = &self.shared.counts;
        Some(Ended {
            finished: counts.finished.get(),
            dead_letters: counts.dead_letters.get(),
            skipped: counts.skipped.get(),
            left,
            cancelled: counts.cancelled.get(),
            uncommitted: leaving.failed,
            is_lost: leaving.is_lost,
        })
    }

    pub(super) fn show_tenures(&self) {
        let tenures = || self.partitions.values();
        *lock(&self.shared.tenures) = tenures()
            .map(|assigned| Arc::clone(&assigned.tenure))
            .collect();
        let place = |of: &Assigned| (of.tenure.topic.to_string(), of.tenure.partition);
        let stand = tenures().filter(|of| of.stands).map(place);
        *lock(&self.shared.unread) = self.unread.all().into_iter().chain(stand).collect();
    }
}
