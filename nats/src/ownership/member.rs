//! One replica's part in the protocol; see the module for the rules.
//!
//! [`Member::step`] first takes in what the input says of the records (`learn`), which may lose the
//! session or partitions, and then does everything that is due (`act`). A key with an entry in
//! [`Requests`] is not written.

use std::collections::BTreeMap;
use std::time::Duration;

use super::requests::Requests;
use super::session::Session;
use super::view::View;
use super::{Action, Input, Key, Late, Revision, Time, Value, WriteEnd};

/// After this time a write whose end is not known is made again, and a read repeated, if a quarter of the lease is longer.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    lease: Duration,
    stage: Stage,
    session: Session,
    /// [`Action::Suspended`] was the last of its kind.
    suspended: bool,
    view: View,
    /// The partitions that the current session owns.
    holdings: BTreeMap<u16, Holding>,
    /// The revisions that the last claims of the current session have expected.
    claimed: BTreeMap<u16, Revision>,
    requests: Requests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Taking,
    Leaving,
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holding {
    epoch: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Active,
    HandingOver,
    /// Nothing runs any more: the record has to become free.
    HandedOver,
}

impl Member {
    /// A replica's session names are `<replica>.<nonce>.<n>`: no other run of any replica may have
    /// the same nonce. All replicas have to agree on the number of partitions and the lease.
    pub(crate) fn new(
        replica: &str,
        nonce: &str,
        partitions: u16,
        lease: Duration,
        now: Time,
    ) -> Member {
        Member {
            lease,
            stage: Stage::Taking,
            session: Session::new(format!("{replica}.{nonce}"), now),
            suspended: false,
            view: View::new(partitions),
            holdings: BTreeMap::new(),
            claimed: BTreeMap::new(),
            requests: Requests::new((lease / 4).min(AGAIN)),
        }
    }

    /// The same of a replica that was told as suspended.
    #[allow(dead_code, reason = "the driver begins again so")]
    pub(crate) fn suspended(self) -> Member {
        Member {
            suspended: true,
            ..self
        }
    }

    /// Takes in what has happened, and returns what has to be done, in order.
    ///
    /// `now` must not go back.
    pub(crate) fn step(&mut self, now: Time, input: Input) -> Vec<Action> {
        let mut out = Vec::new();
        if self.stage == Stage::Left {
            return out;
        }
        match input {
            Input::Seen {
                key,
                value,
                revision,
            } => self.seen(now, key, value, revision, &mut out),
            Input::Snapshot => self.view.complete(now, &self.session.name),
            Input::Wrote { key, end } => self.wrote(now, key, end, &mut out),
            Input::HandedOver { partition, epoch } => {
                if let Some(holding) = self.holdings.get_mut(&partition)
                    && holding.epoch == epoch
                {
                    holding.phase = Phase::HandedOver;
                }
            }
            Input::Outranked { partition, above } => self.view.raise(partition, above),
            Input::Leave if self.stage == Stage::Taking => {
                self.stage = Stage::Leaving;
                // The others should know at once.
                self.session.renew_at = now;
            }
            Input::Leave | Input::Tick => {}
        }
        if self.stage != Stage::Left {
            self.act(now, &mut out);
        }
        out
    }

    /// When [`Input::Tick`] is due, if nothing happens before.
    pub(crate) fn next_tick(&self) -> Time {
        if self.stage == Stage::Left {
            return Time::MAX;
        }
        let mut next = self.requests.next().unwrap_or(Time::MAX);
        let mut at = |time: Time| next = next.min(time);
        if self.view.is_complete() && self.requests.idle(&self.session.key()) {
            at(self.session.renew_at);
        }
        if !self.suspended {
            at(self.suspends_at());
            if self.session.renewed.is_some() && self.stage == Stage::Taking {
                for (name, since) in self.view.observed() {
                    if self.requests.idle(&Key::Session(name.clone())) {
                        at(since + self.lease);
                    }
                }
            }
        }
        next
    }

    /// A delivery may begin while the clock is before this.
    pub(crate) fn may_begin_until(&self) -> Time {
        let renewed = self.session.renewed;
        renewed.map_or(Time::ZERO, |sent| sent + self.lease / 4 * 3)
    }

    /// When it is suspended: its lease is late, or does not come.
    fn suspends_at(&self) -> Time {
        let since = self.session.renewed.unwrap_or(self.session.began);
        since + self.lease / 4 * 3
    }

    /// Whether the record of this replica's session, which is kept until long after the session has ended, is missing, or older than it
    /// was: as in another bucket, which was made again, or is an old copy. A server that has lost the lead and does not know it yet has
    /// old records, too. So one that is old is read again until the lease is over: then nothing is lost by it.
    pub(crate) fn is_older(&self, now: Time, read: &Input) -> bool {
        let Input::Seen { key, revision, .. } = read else {
            return false;
        };
        // The reply to an earlier read may arrive late, when nothing is being read any more.
        *key == self.session.key()
            && *revision < self.session.revision
            && self.requests.is_reading(key)
            && (*revision == 0 || !self.in_touch(now))
    }

    /// Whether a record that this replica seems to have written since the version that it knows is not its own: its beats rise, and it
    /// owns what it has claimed. So it is of an old copy of the bucket, which has higher revisions.
    pub(crate) fn is_of_another_bucket(&self, seen: &Input) -> bool {
        let Input::Seen {
            key,
            value: Some(value),
            revision,
        } = seen
        else {
            return false;
        };
        let own = &self.session.name;
        let is_own = match (key, value) {
            (Key::Session(name), Value::Live { beat } | Value::Leaving { beat }) if name == own => {
                *beat > self.session.adopted
            }
            (Key::Partition(partition), Value::Owned { session, .. }) if session == own => {
                self.claimed.get(partition) == Some(&self.revision(key))
            }
            _ => true,
        };
        !is_own && *revision > self.revision(key)
    }

    /// The partitions that wait for the lease of another replica to end, which has not renewed it for this long: see [`View::late`].
    #[allow(dead_code, reason = "the driver looks at it")]
    pub(crate) fn late(&self, now: Time, after: Duration) -> Vec<Late> {
        match self.in_touch(now) {
            true => self.view.late(now, after, &self.session.name),
            false => Vec::new(),
        }
    }

    /// Whether such a partition still waits: neither has it another owner, nor has its owner renewed the lease. While the server is away
    /// nothing is known, so it waits on.
    #[allow(dead_code, reason = "the driver looks at it")]
    pub(crate) fn is_late(&self, partition: u16, epoch: u64, renewed: Revision) -> bool {
        self.view.is_late(partition, epoch, renewed)
    }

    /// The partitions that are owned, also those that are being handed over, with their epochs.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (u16, u64)> {
        let holdings = self.holdings.iter();
        holdings.map(|(partition, holding)| (*partition, holding.epoch))
    }

    /// The last renewal is recent: what this replica has seen of the others counts.
    fn in_touch(&self, now: Time) -> bool {
        now < self.may_begin_until()
    }

    // What has happened.

    fn seen(
        &mut self,
        now: Time,
        key: Key,
        value: Option<Value>,
        revision: Revision,
        out: &mut Vec<Action>,
    ) {
        let known = self.revision(&key);
        // A read follows a conflict, so a session without a record has vanished since.
        let vanished =
            value.is_none() && matches!(key, Key::Session(_)) && self.requests.is_reading(&key);
        if revision < known && !vanished {
            return;
        }
        self.requests.seen(&key);
        if revision != known || vanished {
            self.learn(now, key, value, revision, out);
        }
    }

    fn wrote(&mut self, now: Time, key: Key, end: WriteEnd, out: &mut Vec<Action>) {
        let Some((value, expect)) = self.requests.wrote(&key, end == WriteEnd::Unknown) else {
            return;
        };
        let known = self.revision(&key);
        match end {
            WriteEnd::Written(revision) if revision > known => {
                self.learn(now, key, Some(value), revision, out);
            }
            WriteEnd::Conflict if known == expect => self.requests.read(now, key, out),
            // The watcher was faster.
            WriteEnd::Written(_) | WriteEnd::Conflict | WriteEnd::Unknown => {}
        }
    }

    /// The last known revision.
    fn revision(&self, key: &Key) -> Revision {
        match key {
            Key::Session(name) if *name == self.session.name => self.session.revision,
            Key::Session(name) => self.view.session_revision(name),
            Key::Partition(partition) => self.view.partition_revision(*partition),
        }
    }

    /// Takes in a version of a record that was not known.
    fn learn(
        &mut self,
        now: Time,
        key: Key,
        value: Option<Value>,
        revision: Revision,
        out: &mut Vec<Action>,
    ) {
        match key {
            Key::Session(name) if name == self.session.name => match value {
                Some(Value::Live { beat } | Value::Leaving { beat }) => {
                    self.renewed(now, beat, revision);
                }
                _ => self.lose(now, value, revision, out),
            },
            Key::Session(name) => self.view.session(now, name, value.as_ref(), revision),
            Key::Partition(partition) => {
                self.learn_partition(now, partition, value, revision, out);
            }
        }
    }

    fn renewed(&mut self, now: Time, beat: u64, revision: Revision) {
        let before = self.session.renewed;
        self.session.adopt(beat, revision);
        // The renewals were interrupted, perhaps because the server was away: nobody's were seen.
        if before.is_none_or(|sent| now >= sent + self.lease / 2) {
            self.view.observe_again(now);
        }
    }

    /// The session is over, and with it every ownership.
    fn lose(&mut self, now: Time, value: Option<Value>, revision: Revision, out: &mut Vec<Action>) {
        for (&partition, &Holding { epoch, phase }) in &self.holdings {
            if phase != Phase::HandedOver {
                out.push(Action::Lost { partition, epoch });
            }
        }
        if self.stage == Stage::Leaving {
            // The driver tells what was not released: `owned`.
            self.stage = Stage::Left;
            out.push(Action::Left);
            return;
        }
        self.holdings.clear();
        self.claimed.clear();
        let name = self.session.next(now);
        self.view.session(now, name, value.as_ref(), revision);
    }

    fn learn_partition(
        &mut self,
        now: Time,
        partition: u16,
        value: Option<Value>,
        revision: Revision,
        out: &mut Vec<Action>,
    ) {
        let own = &self.session.name;
        let ours = self.view.partition(now, partition, value, revision, own);
        if let Some(Holding { epoch, phase }) = self.holdings.remove(&partition)
            && phase != Phase::HandedOver
        {
            out.push(Action::Lost { partition, epoch });
        }
        if ours {
            let (_, epoch) = self.view.epoch(partition);
            let phase = match self.stage {
                Stage::Taking => Phase::Active,
                Stage::Leaving | Stage::Left => Phase::HandedOver,
            };
            self.holdings.insert(partition, Holding { epoch, phase });
            if phase == Phase::Active {
                out.push(Action::Start { partition, epoch });
            }
        }
    }

    // What is due.

    fn act(&mut self, now: Time, out: &mut Vec<Action>) {
        self.requests.repeat(now, out);
        let in_touch = self.in_touch(now);
        if in_touch && self.suspended {
            self.suspended = false;
            out.push(Action::Resumed);
        } else if !self.suspended && now >= self.suspends_at() {
            self.suspended = true;
            out.push(Action::Suspended);
        }
        match self.stage {
            Stage::Taking if in_touch => self.take(now, out),
            Stage::Taking | Stage::Left => {}
            Stage::Leaving => self.hand_over(|_| true, out),
        }
        self.release(now, out);
        self.renew(now, out);
    }

    /// Fences the sessions whose lease is over, claims what is dealt to this replica, and hands
    /// over what is not.
    fn take(&mut self, now: Time, out: &mut Vec<Action>) {
        for (name, revision) in self.view.fences(now, self.lease) {
            self.requests
                .write(now, Key::Session(name), Value::Ended, revision, out);
        }
        let session = self.session.name.clone();
        let dealt = self.view.deal(&session);
        for (partition, revision, base) in self.view.claims(&session, &dealt) {
            let value = Value::Owned {
                session: session.clone(),
                base,
            };
            self.claimed.insert(partition, revision);
            self.requests
                .write(now, Key::Partition(partition), value, revision, out);
        }
        self.hand_over(|partition| !dealt[usize::from(partition)], out);
    }

    fn hand_over(&mut self, which: impl Fn(u16) -> bool, out: &mut Vec<Action>) {
        for (&partition, holding) in &mut self.holdings {
            if holding.phase == Phase::Active && which(partition) {
                holding.phase = Phase::HandingOver;
                let epoch = holding.epoch;
                out.push(Action::HandOver { partition, epoch });
            }
        }
    }

    fn release(&mut self, now: Time, out: &mut Vec<Action>) {
        let holdings = self.holdings.iter();
        for (&partition, _) in holdings.filter(|(_, of)| of.phase == Phase::HandedOver) {
            let (base, _) = self.view.epoch(partition);
            let free = Value::Free { base };
            let revision = self.view.partition_revision(partition);
            self.requests
                .write(now, Key::Partition(partition), free, revision, out);
        }
    }

    /// Begins, renews or ends the session.
    fn renew(&mut self, now: Time, out: &mut Vec<Action>) {
        let leaving = self.stage == Stage::Leaving;
        let key = self.session.key();
        if !leaving && !self.view.is_complete() {
            // A replica that does not see the records takes no part.
        } else if leaving && self.session.beat == 0 {
            self.stage = Stage::Left;
            out.push(Action::Left);
        } else if leaving && self.holdings.is_empty() && !self.requests.has_partitions() {
            self.requests
                .write(now, key, Value::Ended, self.session.revision, out);
        } else if now >= self.session.renew_at && self.requests.idle(&key) {
            let beat = self.session.beat(now, self.lease);
            let value = match leaving {
                true => Value::Leaving { beat },
                false => Value::Live { beat },
            };
            self.requests
                .write(now, key, value, self.session.revision, out);
        }
    }
}
