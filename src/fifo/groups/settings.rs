//! The settings of groups and of the pace.

use std::any::Any;
use std::hash::Hash;
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::group::Rules;
use super::rate::{self, PerSecond, Rate};
use super::schedule::{self, Schedule};
use super::{Grouping, Groups, NEVER};
use crate::fifo::order::Order;
use crate::keys::seat::Seated;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::{GroupHasher, SpinLock};
use crate::time::nanos;
use crate::{Clock, ConfigError};

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
    by: Option<By<K, G>>,
    weigh: Option<Weigh<G>>,
}

impl<K, G> Grouped<K, G> {
    pub(crate) fn new(by: By<K, G>) -> Self {
        let by = Some(by);
        Grouped { by, weigh: None }
    }
}

impl<K> Grouped<K, ()> {
    /// All keys are in one group.
    pub(crate) fn one() -> Self {
        Grouped {
            by: None,
            weigh: None,
        }
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
        let schedule = Schedule::new(schedule::Settings {
            rules: Rules {
                limit: pacing.group_limit.map(|limit| limit as u32),
                rate: pacing.group_rate.map(Rate::new),
                levels: order.levels,
                starvation_limit: order.starvation_limit,
            },
            seated: parts.seated,
            clock: parts.clock.clone(),
            is_one: self.by.is_none(),
            interval: pacing.min_interval.map(nanos::saturating),
            pace: pacing.dispatch_rate.map(Rate::new),
        });
        Box::new(Groups {
            by: self.by,
            weigh: self.weigh,
            hasher: GroupHasher::default(),
            clock: parts.clock,
            seated: parts.seated,
            schedule: CachePadded::new(SpinLock::new(schedule)),
            is_ready: AtomicBool::new(false),
            next: AtomicU64::new(NEVER),
            wake: OnceLock::new(),
        })
    }
}
