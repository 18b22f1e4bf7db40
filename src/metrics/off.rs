//! Empty stand-ins for the metrics, for builds without the feature `metrics`.

mod event;

use std::sync::Weak;

use crate::keys::times::Ticks;
pub(crate) use event::Event;

#[derive(Default)]
pub(crate) struct Recorder(());

pub(crate) struct Tally;

impl Tally {
    pub(crate) fn new<C>(_: Option<&str>, _: Recorder, _manual: bool, _: &Weak<C>) -> Self {
        Tally
    }

    pub(crate) fn start(&self) {}
    pub(crate) fn end(&self) {}
    pub(crate) fn report_last<C>(&self, _: &C) {}
    pub(crate) fn got(&self, _queued: Ticks, _now: Ticks) {}
    pub(crate) fn worked(&self, _began: Ticks, _now: Ticks) {}
    pub(crate) fn count(&self, _event: Event) {}
}
