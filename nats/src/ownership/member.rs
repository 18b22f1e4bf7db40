//! One replica's part in the protocol; see the module for the rules.
//!
//! [`Member::step`] first takes in what the input says of the records (`learn`), which may lose the
//! session or partitions, and then does everything that is due (`act`). A key with an entry in
//! `pending` is not written.

use std::collections::BTreeMap;
use std::time::Duration;

use super::assign::deal;
use super::session::Session;
use super::{Action, Input, Key, Revision, Settings, Time, Value, WriteEnd};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    settings: Settings,
    stage: Stage,
    session: Session,
    /// [`Action::Suspended`] was the last of its kind.
    suspended: bool,
    /// The sessions of others, and the earlier ones of this replica.
    others: BTreeMap<String, Observed>,
    partitions: Vec<Partition>,
    /// The partitions that the current session owns.
    holdings: BTreeMap<u16, Holding>,
    pending: BTreeMap<Key, Pending>,
    /// Whether each partition is dealt to this replica; none if the records have changed since.
    dealt: Option<Vec<bool>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// The watcher has not shown the bucket yet.
    Watching,
    Taking,
    Leaving,
    Left,
}

/// The record of another session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observed {
    state: State,
    revision: Revision,
    /// When this version was seen first.
    since: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// A partition names it.
    Missing,
    Live,
    Leaving,
    Ended,
}

/// The record of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Partition {
    owner: Option<String>,
    revision: Revision,
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

/// Why a key is not written now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Pending {
    Write {
        value: Value,
        expect: Revision,
        sent: Time,
    },
    /// After a conflict. It is repeated if nothing has been seen of the key for [`Member::pause`].
    Read { sent: Time },
    /// After a write with unknown end, for [`Member::pause`] since it was sent.
    Pause { sent: Time },
}

impl Member {
    /// A replica's session names are `<replica>.<nonce>.<n>`: no other run of any replica may have
    /// the same nonce.
    pub(crate) fn new(replica: &str, nonce: &str, settings: Settings, now: Time) -> Member {
        Member {
            partitions: vec![Partition::default(); settings.partitions.into()],
            settings,
            stage: Stage::Watching,
            session: Session::new(format!("{replica}.{nonce}"), now),
            suspended: false,
            others: BTreeMap::new(),
            holdings: BTreeMap::new(),
            pending: BTreeMap::new(),
            dealt: None,
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
            Input::Snapshot => self.snapshot(now),
            Input::Wrote { key, end } => self.wrote(now, key, end, &mut out),
            Input::HandedOver { partition, epoch } => {
                if let Some(holding) = self.holdings.get_mut(&partition)
                    && holding.epoch == epoch
                {
                    holding.phase = Phase::HandedOver;
                }
            }
            Input::Leave if self.stage != Stage::Leaving => {
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
        let mut next = Time::MAX;
        let mut at = |time: Time| next = next.min(time);
        match self.stage {
            Stage::Left => return Time::MAX,
            Stage::Watching => {}
            Stage::Taking | Stage::Leaving => {
                if !self.pending.contains_key(&self.session.key()) {
                    at(self.session.renew_at);
                }
            }
        }
        for pending in self.pending.values() {
            match pending {
                Pending::Write { .. } => {}
                Pending::Read { sent } | Pending::Pause { sent } => at(*sent + self.pause()),
            }
        }
        if self.session.renewed.is_some() && !self.suspended {
            at(self.may_begin_until());
            if self.stage == Stage::Taking {
                for (name, other) in &self.others {
                    let key = Key::Session(name.clone());
                    if other.state != State::Ended && !self.pending.contains_key(&key) {
                        at(other.since + self.settings.lease);
                    }
                }
            }
        }
        next
    }

    /// A delivery may begin while the clock is before this.
    pub(crate) fn may_begin_until(&self) -> Time {
        let renewed = self.session.renewed;
        renewed.map_or(Time::ZERO, |sent| sent + self.settings.lease / 4 * 3)
    }

    /// The partitions that are owned, also those that are being handed over, with their epochs.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (u16, u64)> {
        let holdings = self.holdings.iter();
        holdings.map(|(partition, holding)| (*partition, holding.epoch))
    }

    /// Between renewals, and between attempts at anything else that has failed.
    fn pause(&self) -> Duration {
        self.settings.lease / 4
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
        let vanished = value.is_none()
            && matches!(key, Key::Session(_))
            && matches!(self.pending.get(&key), Some(Pending::Read { .. }));
        if revision < known && !vanished {
            return;
        }
        if !matches!(self.pending.get(&key), Some(Pending::Write { .. })) {
            self.pending.remove(&key);
        }
        if revision != known || vanished {
            self.learn(now, key, value, revision, out);
        }
    }

    fn snapshot(&mut self, now: Time) {
        if self.stage == Stage::Watching {
            self.stage = Stage::Taking;
        }
        for index in 0..self.partitions.len() {
            self.observe_owner(now, index);
        }
    }

    fn wrote(&mut self, now: Time, key: Key, end: WriteEnd, out: &mut Vec<Action>) {
        let (value, expect, sent) = match self.pending.remove(&key) {
            Some(Pending::Write {
                value,
                expect,
                sent,
            }) => (value, expect, sent),
            other => {
                self.pending.extend(other.map(|pending| (key, pending)));
                return;
            }
        };
        match end {
            WriteEnd::Written(revision) if revision > self.revision(&key) => {
                self.learn(now, key, Some(value), revision, out);
            }
            WriteEnd::Conflict if self.revision(&key) == expect => self.read(now, key, out),
            // The watcher was faster.
            WriteEnd::Written(_) | WriteEnd::Conflict => {}
            WriteEnd::Unknown => {
                self.pending.insert(key, Pending::Pause { sent });
            }
        }
    }

    /// The last known revision.
    fn revision(&self, key: &Key) -> Revision {
        match key {
            Key::Session(name) if *name == self.session.name => self.session.revision,
            Key::Session(name) => self.others.get(name).map_or(0, |other| other.revision),
            Key::Partition(partition) => {
                let record = self.partitions.get(usize::from(*partition));
                record.map_or(0, |record| record.revision)
            }
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
            Key::Session(name) => self.learn_session(now, name, value, revision),
            Key::Partition(partition) => {
                self.learn_partition(now, partition, value, revision, out);
            }
        }
    }

    fn renewed(&mut self, now: Time, beat: u64, revision: Revision) {
        let before = self.session.renewed;
        self.session.adopt(beat, revision);
        // The renewals were interrupted, perhaps because the server was away, and then nobody's
        // were seen.
        if before.is_none_or(|sent| now >= sent + self.settings.lease / 2) {
            for other in self.others.values_mut() {
                other.since = now;
            }
        }
        if before.is_none() {
            self.dealt = None;
        }
    }

    /// The session is over, and with it every ownership.
    fn lose(&mut self, now: Time, value: Option<Value>, revision: Revision, out: &mut Vec<Action>) {
        for (partition, Holding { epoch, phase }) in std::mem::take(&mut self.holdings) {
            if phase != Phase::HandedOver {
                out.push(Action::Lost { partition, epoch });
            }
        }
        if self.stage == Stage::Leaving {
            self.stage = Stage::Left;
            out.push(Action::Left);
            return;
        }
        let name = self.session.next(now);
        self.learn_session(now, name, value, revision);
    }

    fn learn_session(&mut self, now: Time, name: String, value: Option<Value>, revision: Revision) {
        let state = match value {
            Some(Value::Live { .. }) => State::Live,
            Some(Value::Leaving { .. }) => State::Leaving,
            Some(_) => State::Ended,
            None => State::Missing,
        };
        let named = || {
            self.partitions
                .iter()
                .any(|record| record.owner.as_ref() == Some(&name))
        };
        if state == State::Missing && !named() {
            self.others.remove(&name);
            self.dealt = None;
            return;
        }
        let observed = Observed {
            state,
            revision,
            since: now,
        };
        let before = self.others.insert(name, observed);
        if before.is_none_or(|before| before.state != state) {
            self.dealt = None;
        }
    }

    fn learn_partition(
        &mut self,
        now: Time,
        partition: u16,
        value: Option<Value>,
        revision: Revision,
        out: &mut Vec<Action>,
    ) {
        let index = usize::from(partition);
        let Some(record) = self.partitions.get_mut(index) else {
            return;
        };
        record.revision = revision;
        record.owner = match value {
            Some(Value::Owned { session }) => Some(session),
            _ => None,
        };
        self.dealt = None;
        let ours = record.owner.as_ref() == Some(&self.session.name);
        if let Some(Holding { epoch, phase }) = self.holdings.remove(&partition)
            && phase != Phase::HandedOver
        {
            out.push(Action::Lost { partition, epoch });
        }
        if !ours {
            self.observe_owner(now, index);
            return;
        }
        let phase = match self.stage {
            Stage::Leaving => Phase::HandedOver,
            _ => Phase::Active,
        };
        let epoch = revision;
        self.holdings.insert(partition, Holding { epoch, phase });
        if phase == Phase::Active {
            out.push(Action::Start { partition, epoch });
        }
    }

    /// Begins the observation of a partition's owner if its record is missing.
    fn observe_owner(&mut self, now: Time, index: usize) {
        if let Some(owner) = &self.partitions[index].owner
            && self.stage != Stage::Watching
            && *owner != self.session.name
            && !self.others.contains_key(owner)
        {
            let observed = Observed {
                state: State::Missing,
                revision: 0,
                since: now,
            };
            self.others.insert(owner.clone(), observed);
        }
    }

    // What is due.

    fn act(&mut self, now: Time, out: &mut Vec<Action>) {
        self.repeat(now, out);
        let in_touch = self.in_touch(now);
        if in_touch && self.suspended {
            self.suspended = false;
            out.push(Action::Resumed);
        } else if !in_touch && !self.suspended && self.session.renewed.is_some() {
            self.suspended = true;
            out.push(Action::Suspended);
        }
        match self.stage {
            Stage::Watching | Stage::Left => return,
            Stage::Taking if in_touch => {
                self.fence(now, out);
                self.follow_the_deal(now, out);
            }
            Stage::Taking => {}
            Stage::Leaving => self.hand_over(|_| true, out),
        }
        self.release(now, out);
        self.renew(now, out);
    }

    /// Ends pauses, and repeats reads.
    fn repeat(&mut self, now: Time, out: &mut Vec<Action>) {
        let pause = self.pause();
        self.pending.retain(|key, pending| match pending {
            Pending::Write { .. } => true,
            Pending::Pause { sent } => now < *sent + pause,
            Pending::Read { sent } => {
                if now >= *sent + pause {
                    *sent = now;
                    out.push(Action::Read { key: key.clone() });
                }
                true
            }
        });
    }

    /// Ends the sessions whose lease is over.
    fn fence(&mut self, now: Time, out: &mut Vec<Action>) {
        let lease = self.settings.lease;
        let over = |other: &Observed| other.state != State::Ended && now >= other.since + lease;
        // What became of the partition that named it has been seen since.
        let named = |name: &String| {
            let mut owners = self.partitions.iter().map(|record| &record.owner);
            owners.any(|owner| owner.as_ref() == Some(name))
        };
        self.others
            .retain(|name, other| other.state != State::Missing || !over(other) || named(name));
        let over: Vec<_> = (self.others.iter())
            .filter(|(_, other)| over(other))
            .map(|(name, other)| (Key::Session(name.clone()), other.revision))
            .collect();
        for (key, revision) in over {
            self.write(now, key, Value::Ended, revision, out);
        }
    }

    /// Claims what is dealt to this replica, and hands over what is not.
    fn follow_the_deal(&mut self, now: Time, out: &mut Vec<Action>) {
        let dealt = self.dealt.take().unwrap_or_else(|| self.deal());
        self.hand_over(|partition| !dealt[usize::from(partition)], out);
        for partition in (0..self.settings.partitions).filter(|p| dealt[usize::from(*p)]) {
            let record = &self.partitions[usize::from(partition)];
            let others = &self.others;
            let free = record.owner.as_ref().is_none_or(|owner| {
                others
                    .get(owner)
                    .is_some_and(|owner| owner.state == State::Ended)
            });
            if free {
                let revision = record.revision;
                let session = self.session.name.clone();
                let value = Value::Owned { session };
                self.write(now, Key::Partition(partition), value, revision, out);
            }
        }
        self.dealt = Some(dealt);
    }

    fn deal(&self) -> Vec<bool> {
        let own = &self.session.name;
        let live = self
            .others
            .iter()
            .filter(|(_, other)| other.state == State::Live);
        let mut members: Vec<&str> = live.map(|(name, _)| &**name).collect();
        members.push(own);
        members.sort_unstable();
        let index = |name: &str| members.binary_search(&name).ok();
        let owners = self
            .partitions
            .iter()
            .map(|record| index(record.owner.as_ref()?));
        let dealt = deal(&members, &owners.collect::<Vec<_>>());
        let own = index(own);
        dealt
            .into_iter()
            .map(|member| Some(member) == own)
            .collect()
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
        let over = |(partition, holding): (&u16, &Holding)| {
            (holding.phase == Phase::HandedOver).then_some((*partition, holding.epoch))
        };
        let over: Vec<_> = self.holdings.iter().filter_map(over).collect();
        for (partition, epoch) in over {
            self.write(now, Key::Partition(partition), Value::Free, epoch, out);
        }
    }

    /// Begins, renews or ends the session.
    fn renew(&mut self, now: Time, out: &mut Vec<Action>) {
        let leaving = self.stage == Stage::Leaving;
        let key = self.session.key();
        if leaving && self.session.beat == 0 {
            self.stage = Stage::Left;
            out.push(Action::Left);
        } else if leaving && self.holdings.is_empty() {
            self.write(now, key, Value::Ended, self.session.revision, out);
        } else if now >= self.session.renew_at && !self.pending.contains_key(&key) {
            let beat = self.session.beat(now, self.settings.lease);
            let value = match leaving {
                true => Value::Leaving { beat },
                false => Value::Live { beat },
            };
            self.write(now, key, value, self.session.revision, out);
        }
    }

    fn write(
        &mut self,
        now: Time,
        key: Key,
        value: Value,
        expect: Revision,
        out: &mut Vec<Action>,
    ) {
        if self.pending.contains_key(&key) {
            return;
        }
        let write = Pending::Write {
            value: value.clone(),
            expect,
            sent: now,
        };
        self.pending.insert(key.clone(), write);
        out.push(Action::Write { key, value, expect });
    }

    fn read(&mut self, now: Time, key: Key, out: &mut Vec<Action>) {
        self.pending
            .insert(key.clone(), Pending::Read { sent: now });
        out.push(Action::Read { key });
    }
}
