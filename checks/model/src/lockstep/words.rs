//! The crate's words in the model's, and the other way round.

use crate::{Added, Policy, Remaining};
use keyqueue::DelayPolicy;

pub(crate) fn answer(added: keyqueue::Added) -> Added {
    match added {
        keyqueue::Added::Queued => Added::Queued,
        keyqueue::Added::Merged => Added::Merged,
        keyqueue::Added::Deferred => Added::Deferred,
        keyqueue::Added::Delayed => Added::Delayed,
        keyqueue::Added::ShutDown => Added::ShutDown,
        other => panic!("an unknown answer: {other:?}"),
    }
}

pub(crate) fn remaining(remaining: keyqueue::Remaining) -> Remaining {
    Remaining {
        queued: remaining.queued,
        processing: remaining.processing,
        delayed: remaining.delayed,
    }
}

pub(crate) fn policy(policy: Policy) -> DelayPolicy {
    match policy {
        Policy::Earliest => DelayPolicy::Earliest,
        Policy::Latest => DelayPolicy::Latest,
        Policy::Replace => DelayPolicy::Replace,
        Policy::KeepFirst => DelayPolicy::KeepFirst,
    }
}
