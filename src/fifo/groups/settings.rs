//! The settings of groups and of the pace.

use std::any::Any;
use std::hash::Hash;
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::schedule::Schedule;
use super::{Copies, Grouping, Groups, NEVER};
use crate::fifo::order::Order;
use crate::keys::seat::Seated;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::{Clock, ConfigError, DefaultHasher};

/// A setting of the builder: tokens a second, and how many a full bucket has.
pub(crate) type PerSecond = (f64, u32);

/// The longest that an empty bucket may take to fill, in seconds: 100 years. Times in nanoseconds end after 584.
const LONGEST: f64 = 100.0 * 365.0 * 86_400.0;

fn check_rate(field: &'static str, rate: Option<PerSecond>) -> Result<(), ConfigError> {
    let Some((per_second, burst)) = rate else {
        return Ok(());
    };
    if !(per_second > 0.0 && per_second.is_finite()) {
        let rule = "must be above 0 and finite, per second";
        return Err(ConfigError::new("queue", field, rule, per_second));
    }
    if burst == 0 {
        return Err(ConfigError::new(
            "queue",
            field,
            "must have a burst above 0",
            0,
        ));
    }
    let seconds = f64::from(burst) / per_second;
    if seconds > LONGEST {
        let rule = "must fill the bucket within 100 years";
        return Err(ConfigError::new("queue", field, rule, seconds));
    }
    Ok(())
}

/// The settings of [`Builder`](crate::Builder), without the function that groups keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacing {
    pub(crate) group_limit: Option<usize>,
    pub(crate) group_rate: Option<PerSecond>,
    pub(crate) dispatch_rate: Option<PerSecond>,
    pub(crate) min_interval: Option<Duration>,
    pub(crate) pausable: bool,
    /// The setting that cannot apply, and the reason.
    pub(crate) misplaced: Option<(&'static str, &'static str)>,
}

impl Pacing {
    pub(crate) fn check(&self, has_groups: bool) -> Result<(), ConfigError> {
        if let Some((field, rule)) = self.misplaced {
            return Err(ConfigError::new("queue", field, rule, format_args!("not")));
        }
        let set = [
            ("group_limit", self.group_limit.is_some()),
            ("group_rate", self.group_rate.is_some()),
        ];
        if let Some((field, _)) = set.into_iter().find(|(_, is_set)| *is_set && !has_groups) {
            let rule = "must be set with `group_by`";
            return Err(ConfigError::new("queue", field, rule, format_args!("not")));
        }
        if let Some(limit) = self.group_limit {
            ConfigError::check_range("queue", "group_limit", 1..=u32::MAX as usize, limit)?;
        }
        check_rate("group_rate", self.group_rate)?;
        check_rate("dispatch_rate", self.dispatch_rate)?;
        if let Some(interval) = self.min_interval {
            let range = Duration::from_nanos(1)..=Duration::MAX;
            ConfigError::check_range("queue", "min_interval", range, interval)?;
        }
        Ok(())
    }

    /// Whether the queue needs groups for this, if only one.
    pub(crate) fn is_set(&self) -> bool {
        self.dispatch_rate.is_some() || self.min_interval.is_some() || self.pausable
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
    /// Without it, all keys are in one group.
    pub(crate) by: Option<By<K, G>>,
    pub(crate) weigh: Option<Weigh<G>>,
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
        let (clock, seated) = (parts.clock.clone(), parts.seated);
        let schedule = Schedule::new(parts, self.by.is_none());
        Box::new(Groups {
            by: self.by,
            weigh: self.weigh,
            hasher: DefaultHasher::default(),
            clock,
            seated,
            schedule: CachePadded::new(SpinLock::new(schedule)),
            copies: CachePadded::new(Copies {
                is_ready: AtomicBool::new(false),
                next: AtomicU64::new(NEVER),
            }),
            wake: OnceLock::new(),
        })
    }
}
