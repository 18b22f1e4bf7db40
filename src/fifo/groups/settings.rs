//! The settings of groups and of the pace.

use std::any::Any;
use std::hash::Hash;
use std::sync::OnceLock;
use std::time::Duration;

use super::rate::{self, PerSecond, Rate};
use super::{Cooling, Grouping, Groups, NEVER, Parked, Rules};
use crate::fifo::Fifo;
use crate::fifo::lanes::Order;
use crate::keys::Keys;
use crate::keys::seat::Seated;
use crate::keys::slab::Annex;
use crate::sync::GroupHasher;
use crate::sync::atomic::AtomicU64;
use crate::time::nanos;
use crate::{Clock, ConfigError};

/// How many groups in their turn have room in the ring for them; more go to its overflow.
const IN_TURN: usize = 64;

/// What [`Builder`](crate::Builder) was told, but for the function that groups keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacing {
    pub(crate) group_limit: Option<usize>,
    pub(crate) group_rate: Option<PerSecond>,
    pub(crate) dispatch_rate: Option<PerSecond>,
    pub(crate) min_interval: Option<Duration>,
    /// The setting that was made in vain, and why.
    pub(crate) misplaced: Option<(&'static str, &'static str)>,
}

impl Pacing {
    pub(crate) fn check(&self, has_groups: bool) -> Result<(), ConfigError> {
        if let Some((field, rule)) = self.misplaced {
            return Err(ConfigError::new("queue", field, rule, "it was not"));
        }
        let set = [
            ("group_limit", self.group_limit.is_some()),
            ("group_rate", self.group_rate.is_some()),
        ];
        if let Some((field, _)) = set.into_iter().find(|(_, is_set)| *is_set && !has_groups) {
            return Err(ConfigError::new("queue", field, "needs `group_by`", "none"));
        }
        if let Some(limit) = self.group_limit {
            ConfigError::check_range("queue", "group_limit", 1..=u32::MAX as usize, limit)?;
        }
        rate::check("group_rate", self.group_rate)?;
        rate::check("dispatch_rate", self.dispatch_rate)?;
        if let Some(interval) = self.min_interval {
            let range = Duration::from_nanos(1)..=Duration::MAX;
            ConfigError::check_range("queue", "min_interval", range, interval)?;
        }
        Ok(())
    }

    /// Whether the queue needs groups for this, if only one.
    pub(crate) fn is_set(&self) -> bool {
        self.dispatch_rate.is_some() || self.min_interval.is_some()
    }
}

/// The part of the settings of a queue that groups need.
pub(crate) struct Parts {
    pub(crate) order: Order,
    pub(crate) pacing: Pacing,
    pub(crate) ring: usize,
    pub(crate) shards: usize,
    pub(crate) seated: Seated,
    pub(crate) clock: Clock,
}

/// How keys are grouped, for a builder that does not know the type of the groups.
pub(crate) trait GroupBy<K>: Send {
    /// Sets the function for the weights, a `Weigh<G>`. Returns false if it is for another type.
    fn weigh_by(&mut self, weigh: Box<dyn Any>) -> bool;

    fn groups(self: Box<Self>, parts: Parts) -> Box<dyn Grouping<K>>;
}

pub(crate) type By<K, G> = Box<dyn Fn(&K) -> G + Send + Sync>;

pub(crate) type Weigh<G> = Box<dyn Fn(&G) -> u32 + Send + Sync>;

pub(crate) struct Grouped<K, G> {
    by: By<K, G>,
    weigh: Option<Weigh<G>>,
}

impl<K, G> Grouped<K, G> {
    pub(crate) fn new(by: By<K, G>) -> Self {
        Grouped { by, weigh: None }
    }
}

impl<K, G> GroupBy<K> for Grouped<K, G>
where
    K: Send + Sync + 'static,
    G: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn weigh_by(&mut self, weigh: Box<dyn Any>) -> bool {
        let weigh = weigh.downcast::<Weigh<G>>();
        self.weigh = weigh.ok().map(|weigh| *weigh);
        self.weigh.is_some()
    }

    fn groups(self: Box<Self>, parts: Parts) -> Box<dyn Grouping<K>> {
        let Parts { order, pacing, .. } = parts;
        let limit = pacing.group_limit.map(|limit| limit as u32);
        Box::new(Groups {
            by: self.by,
            has_turns: self.weigh.is_some() || pacing.dispatch_rate.is_some(),
            weigh: self.weigh,
            rules: Rules {
                limit,
                rate: pacing.group_rate.map(Rate::new),
                levels: order.levels,
                starvation_limit: order.starvation_limit,
            },
            seated: parts.seated,
            hasher: GroupHasher::default(),
            groups: Keys::new(parts.shards, Annex::default()),
            first: Fifo::new(IN_TURN),
            ring: Fifo::new(parts.ring),
            parked: Parked::new(),
            cooling: pacing
                .min_interval
                .map(|interval| Cooling::new(nanos::saturating(interval))),
            pace: pacing
                .dispatch_rate
                .map(|rate| (Rate::new(rate), AtomicU64::new(0).into())),
            next_token: AtomicU64::new(NEVER),
            timed: pacing.group_rate.is_some() || pacing.is_set(),
            clock: parts.clock,
            wake: OnceLock::new(),
        })
    }
}
