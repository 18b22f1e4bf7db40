//! Empty stand-ins for the metrics, for builds without the feature `metrics`.

use crate::engine::Core;
use crate::keys::times::Ticks;
use crate::sync::Arc;

#[derive(Default)]
pub(crate) struct Recorder(());

pub(crate) struct Tally;

impl Tally {
    pub(crate) fn new(_name: Option<&str>, _to: Recorder, _manual: bool) -> Self {
        Tally
    }

    pub(crate) fn register<K>(&self, _core: &Arc<Core<K>>) {}
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

/// A queue's registration as a reporter; see the module with the feature.
pub(crate) struct Registration;

impl Registration {
    pub(crate) fn end<K>(_core: &Core<K>) -> Self {
        Registration
    }

    pub(crate) fn zero<K>(self, _core: &Core<K>) {}
}
