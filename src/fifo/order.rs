//! The settings of a queue's levels.

use crate::ConfigError;
use crate::keys::state::{Level, MOST_LEVELS};

/// The settings of [`Builder`](crate::Builder) for levels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) levels: usize,
    /// The level of adds that name none; `None` for the middle one.
    pub(crate) default_level: Option<usize>,
    pub(crate) starvation_limit: usize,
}

impl Default for Order {
    fn default() -> Self {
        Order {
            levels: 1,
            default_level: None,
            starvation_limit: 16,
        }
    }
}

impl Order {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::check_range("queue", "levels", 1..=MOST_LEVELS, self.levels)?;
        let (default, limit) = (self.default_level(), self.starvation_limit);
        if default >= self.levels {
            let rule = format!("must be below `levels`, which is {}", self.levels);
            return Err(ConfigError::new("queue", "default_level", rule, default));
        }
        ConfigError::check_range("queue", "starvation_limit", 2..=usize::MAX, limit)
    }

    pub(crate) fn has_levels(&self) -> bool {
        self.levels > 1
    }

    fn default_level(&self) -> usize {
        self.default_level.unwrap_or(self.levels / 2)
    }

    /// Returns the level of adds that name none.
    pub(crate) fn usual_level(&self) -> Level {
        level(self.default_level())
    }

    pub(crate) fn last_level(&self) -> Level {
        level(self.levels - 1)
    }
}

fn level(level: usize) -> Level {
    Level::try_from(level).expect("`check` has refused more than eight levels")
}
