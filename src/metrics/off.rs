//! In the place of the metrics, where they are not built in: nothing is counted, at no cost.

use crate::core::Core;
use crate::sync::Arc;
use crate::watch::Ticks;

#[derive(Default)]
pub(crate) struct Recorder(());

pub(crate) struct Tally;

impl Tally {
    pub(crate) fn new(_name: Option<&str>, _to: Recorder, _manual: bool) -> Self {
        Tally
    }

    pub(crate) fn enrol<K>(&self, _core: &Arc<Core<K>>) {}
    #[inline]
    pub(crate) fn start(&self) {}
    #[inline]
    pub(crate) fn got(&self, _queued: Ticks, _now: Ticks) {}
    #[inline]
    pub(crate) fn worked(&self, _began: Ticks, _now: Ticks) {}
    #[inline]
    pub(crate) fn merged(&self) {}
    #[inline]
    pub(crate) fn retried(&self) {}
    #[inline]
    pub(crate) fn cancelled(&self) {}
    #[inline]
    pub(crate) fn gave_up(&self) {}
}

/// Where a queue reports; see the module that is there with the feature.
pub(crate) struct Enrolment;

impl Enrolment {
    pub(crate) fn end<K>(_core: &Core<K>) -> Self {
        Enrolment
    }

    pub(crate) fn zero<K>(self, _core: &Core<K>) {}
}
