//! Empty stand-ins for the metrics, for builds without the feature `metrics`.

use std::sync::Weak;

use crate::engine::Core;
use crate::engine::timing::Event;
use crate::keys::times::Ticks;

#[derive(Default)]
pub(crate) struct Recorder(());

pub(crate) struct Tally;

impl Tally {
    pub(crate) fn new<K>(_: Option<&str>, _: Recorder, _manual: bool, _: &Weak<Core<K>>) -> Self {
        Tally
    }

    pub(crate) fn start(&self) {}
    pub(crate) fn got(&self, _queued: Ticks, _now: Ticks) {}
    pub(crate) fn worked(&self, _began: Ticks, _now: Ticks) {}
    pub(crate) fn count(&self, _event: Event) {}
}

impl<K> Core<K> {
    pub(crate) fn end_reports(&self) {}

    pub(crate) fn report_last(&self) {}
}
