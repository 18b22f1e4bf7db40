//! What becomes of two delays of one key: which is kept (D3), and whether a retry waits longer than another delay (V7).

use crate::keys::delay::Stamp;

/// Which of two delays of one key is kept (promise D3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DelayPolicy {
    /// The one that is due earlier, as in client-go.
    #[default]
    Earliest,
    /// The one that is due later: a series of `add_after` calls then waits for a quiet moment.
    #[doc(alias = "debounce")]
    Latest,
    /// The new one.
    Replace,
    /// The old one: a delay is set only if none is pending.
    #[doc(alias = "throttle")]
    KeepFirst,
}

impl DelayPolicy {
    /// Returns whether a delay due at `new` replaces one due at `pending`.
    fn replaces(self, new: u64, pending: u64) -> bool {
        match self {
            DelayPolicy::Earliest => new < pending,
            DelayPolicy::Latest => new > pending,
            DelayPolicy::Replace => new != pending,
            DelayPolicy::KeepFirst => false,
        }
    }
}

/// What becomes of two delays of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) policy: DelayPolicy,
    /// Whether a key is not added before its retry is due, whatever else delays it (V7).
    pub(crate) holds_retries: bool,
}

impl Rule {
    /// Returns whether a pending delay is kept, instead of one due at `due`, of a retry or not.
    #[inline]
    pub(super) fn keeps(self, pending: Stamp, due: u64, retry: bool) -> bool {
        let kept = !self.policy.replaces(due, pending.due());
        match (pending.is_retry(), retry) {
            (true, false) if self.holds_retries => kept || due < pending.due(),
            (false, true) if self.holds_retries => kept && due <= pending.due(),
            _ => kept,
        }
    }

    /// Returns whether another delay bounds a debounced one that is kept instead of it.
    pub(crate) fn bounds_bursts(self) -> bool {
        // Not if the later or the first one counts. The new one is kept if it is due in another tick.
        matches!(self.policy, DelayPolicy::Earliest | DelayPolicy::Replace)
    }
}
