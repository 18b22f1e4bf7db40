//! One group: its queued keys, and whether one of them may be delivered now.
//!
//! All of it is plain data behind the group's lock. [`super`] has the protocol.

use super::list::List;
use super::parked::NEVER;
use super::rate::Rate;
use crate::keys::node::NodeRef;
use crate::keys::seat::Seated;
use crate::keys::state::Level;
use crate::sync::SpinLock;

/// A group with its name: a key of the table of groups.
pub(super) struct Group<K, G> {
    /// `None` is the group of the keys for which `group_by` has panicked.
    pub(super) name: Option<G>,
    /// The number of keys in a turn.
    pub(super) weight: u32,
    pub(super) body: SpinLock<Body<K>>,
}

/// What is the same for all groups. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The most keys in flight. Without it, nobody counts them.
    pub(super) limit: Option<u32>,
    pub(super) rate: Option<Rate>,
    pub(super) levels: usize,
    pub(super) starvation_limit: usize,
}

/// Where a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// In neither ring: it has nothing to deliver, or is at its limit.
    Out,
    /// In a ring, or a popper or pusher has it in hand.
    Ring,
    /// It waits until this time.
    Parked(u64),
}

/// What the thread that has changed a group has to do once it has unlocked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Stay,
    /// Put it at the tail of the ring.
    Push,
    /// Put it at the head: it has its turn.
    PushFirst,
    Park(u64),
}

pub(super) struct Body<K> {
    first: List<K>,
    /// The lists of the levels from 1 on.
    others: Box<[List<K>]>,
    pub(super) queued: u32,
    pub(super) in_flight: u32,
    pub(super) whereabouts: Whereabouts,
    /// The keys that are left of its turn.
    turn: u32,
    /// The deliveries at which more than one level had keys.
    number: u32,
    /// The less urgent level that was preferred last.
    relieved: Level,
    /// When its bucket is full.
    full: u64,
    pub(super) held_until: u64,
    /// The time of the group's entry among those that are parked; [`NEVER`] if it has none. Later times
    /// wait for this one, so that a group that is parked again and again has one entry.
    pub(super) parked_at: u64,
    /// Whether its entry in a ring has a pin: its keys, which kept it interned, were taken out.
    pub(super) is_kept: bool,
}

impl<K> Body<K> {
    pub(super) fn new(rules: &Rules) -> Self {
        Body {
            first: List::default(),
            others: (1..rules.levels).map(|_| List::default()).collect(),
            queued: 0,
            in_flight: 0,
            whereabouts: Whereabouts::Out,
            turn: 0,
            number: 0,
            relieved: 0,
            full: 0,
            held_until: 0,
            parked_at: NEVER,
            is_kept: false,
        }
    }

    fn list(&mut self, level: Level) -> &mut List<K> {
        match level {
            0 => &mut self.first,
            level => &mut self.others[usize::from(level) - 1],
        }
    }

    /// # Safety
    ///
    /// The key is queued, belongs to this group, and is in no list.
    pub(super) unsafe fn push(&mut self, node: NodeRef<K>, level: Level, seated: &Seated) {
        // SAFETY: by the caller's promise.
        unsafe {
            self.list(level).push(node, seated);
            node.behind(seated).set_listed(Some(level));
        }
        self.queued += 1;
    }

    /// Moves a key to the tail of a level, if it is in a list.
    ///
    /// # Safety
    ///
    /// The key is pinned, and belongs to this group.
    pub(super) unsafe fn raise(&mut self, node: NodeRef<K>, to: Level, seated: &Seated) {
        // SAFETY: pinned; a key that is in a list is queued.
        unsafe {
            let seat = node.behind(seated);
            let Some(from) = seat.listed().filter(|from| to < *from) else {
                return;
            };
            self.list(from).remove(node, seated);
            self.list(to).push(node, seated);
            seat.set_listed(Some(to));
        }
    }

    /// Returns when a key may be delivered, no later than `now` if that is now; `None` if the group has
    /// none, or is at its limit.
    pub(super) fn ready_at(&self, rules: &Rules) -> Option<u64> {
        let token = rules.rate.map_or(0, |rate| rate.next(self.full));
        let is_full = rules.limit.is_some_and(|limit| self.in_flight >= limit);
        let may = self.queued > 0 && !is_full;
        may.then(|| self.held_until.max(token))
    }

    /// Takes the next key for delivery, and its level. The group is ready.
    pub(super) fn take(
        &mut self,
        rules: &Rules,
        weight: u32,
        now: u64,
        seated: &Seated,
    ) -> Option<(NodeRef<K>, Level)> {
        let level = self.choose(rules);
        let node = self.list(level).pop(seated)?;
        // SAFETY: a key in a list is queued.
        unsafe { node.behind(seated) }.set_listed(None);
        self.queued -= 1;
        self.in_flight += u32::from(rules.limit.is_some());
        if self.queued == 0 {
            // No level is owed anything, so it makes no difference whether the group is forgotten.
            (self.number, self.relieved) = (0, 0);
        }
        if let Some(rate) = rules.rate {
            self.full = rate.take(self.full, now);
        }
        self.turn = if self.turn == 0 { weight } else { self.turn } - 1;
        Some((node, level))
    }

    /// Takes all keys out, for deliveries that wait for nothing. Returns also whether the caller has to pin
    /// the group for its entry in a ring.
    pub(super) fn take_all(&mut self, rules: &Rules, seated: &Seated) -> (Vec<NodeRef<K>>, bool) {
        let mut all = Vec::new();
        for level in 0..rules.levels as Level {
            while let Some(node) = self.list(level).pop(seated) {
                // SAFETY: a key in a list is queued.
                unsafe { node.behind(seated) }.set_listed(None);
                all.push(node);
            }
        }
        self.queued = 0;
        (self.turn, self.number, self.relieved) = (0, 0, 0);
        if rules.limit.is_some() {
            self.in_flight += all.len() as u32;
        }
        let keeps = self.whereabouts == Whereabouts::Ring && !self.is_kept;
        self.is_kept |= keeps;
        (all, keeps)
    }

    /// Gives back the token of a delivery.
    pub(super) fn refund(&mut self, rate: Rate) {
        self.full = self.full.saturating_sub(rate.interval());
    }

    /// Chooses the level as a queue without groups does: see [`crate::fifo::lanes`].
    fn choose(&mut self, rules: &Rules) -> Level {
        if self.others.is_empty() {
            return 0;
        }
        let mut filled = u8::from(!self.first.is_empty());
        for (level, list) in self.others.iter().enumerate() {
            filled |= u8::from(!list.is_empty()) << (level + 1);
        }
        let others = filled & filled.wrapping_sub(1);
        if others == 0 {
            return filled.trailing_zeros() as Level;
        }
        let number = self.number as usize;
        self.number = self.number.wrapping_add(1);
        if number % rules.starvation_limit != rules.starvation_limit - 1 {
            return filled.trailing_zeros() as Level;
        }
        let behind = others & (u8::MAX << self.relieved << 1);
        let next = if behind == 0 { others } else { behind };
        self.relieved = next.trailing_zeros() as Level;
        self.relieved
    }

    #[cfg(feature = "metrics")]
    pub(super) fn is_parked(&self) -> bool {
        matches!(self.whereabouts, Whereabouts::Parked(_))
    }

    /// Decides where a group goes that the caller has in hand, after a key was taken from it.
    pub(super) fn go_on(&mut self, rules: &Rules, now: u64) -> Move {
        if self.turn > 0 && self.ready_at(rules).is_some_and(|at| at <= now) {
            return Move::PushFirst;
        }
        self.turn = 0;
        self.settle(rules, now)
    }

    /// Decides where a group goes after it was changed by a thread that does not have it in hand.
    pub(super) fn changed(&mut self, rules: &Rules, now: u64) -> Move {
        let settles = match self.whereabouts {
            Whereabouts::Out => true,
            Whereabouts::Ring => false,
            // Its entry there is ignored then.
            Whereabouts::Parked(until) => self.ready_at(rules).is_some_and(|at| at < until),
        };
        match settles {
            true => self.settle(rules, now),
            false => Move::Stay,
        }
    }

    /// Decides where a group goes whose entry among those that are parked has come up.
    pub(super) fn came_up(&mut self, at: u64, rules: &Rules, now: u64) -> Move {
        if at != self.parked_at {
            // There is an earlier one by now, or was.
            return Move::Stay;
        }
        self.parked_at = NEVER;
        match self.whereabouts {
            Whereabouts::Parked(_) => self.settle(rules, now),
            Whereabouts::Out | Whereabouts::Ring => Move::Stay,
        }
    }

    /// Decides where a group goes that is in neither ring and not parked, or that the caller has in
    /// hand.
    pub(super) fn settle(&mut self, rules: &Rules, now: u64) -> Move {
        let at = match self.ready_at(rules) {
            Some(at) => at,
            None if self.queued + self.in_flight > 0 => {
                self.whereabouts = Whereabouts::Out;
                return Move::Stay;
            }
            // Its bucket and its hold must not be forgotten.
            None => self.held_until.max(self.full),
        };
        if at > now {
            self.whereabouts = Whereabouts::Parked(at);
            if self.parked_at <= at {
                return Move::Stay;
            }
            self.parked_at = at;
            return Move::Park(at);
        }
        if self.queued > 0 {
            self.whereabouts = Whereabouts::Ring;
            return Move::Push;
        }
        self.whereabouts = Whereabouts::Out;
        Move::Stay
    }
}
