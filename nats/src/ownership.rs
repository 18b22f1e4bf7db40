use std::sync::Arc;
use std::time::Duration;
pub(crate) type Revision = u64;
pub(crate) type Time = Duration;
pub(crate) struct Settings {
    pub partitions: u16,
    pub lease: Duration,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Session(Arc<str>),
    Partition(u16),
}
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Value {
    Live { beat: u64 },
    Ended,
    Owned { session: String },
    Free,
}
pub(crate) enum WriteEnd {
    Written(Revision),
    Conflict,
    Unknown,
}
pub(crate) enum Input {
    Seen {
        key: Key,
        value: Option<Value>,
        revision: Revision,
    },
    Snapshot,
    Wrote {
        key: Key,
        end: WriteEnd,
    },
    HandedOver {
        partition: u16,
        epoch: u64,
    },
    Leave,
    Tick,
}
#[derive(Debug)]
pub(crate) enum Action {
    Write {
        key: Key,
        value: Value,
        expect: Revision,
    },
    Read {
        key: Key,
    },
    Start {
        partition: u16,
        epoch: u64,
    },
    HandOver {
        partition: u16,
        epoch: u64,
    },
    Lost {
        partition: u16,
        epoch: u64,
    },
    Suspended,
    Resumed,
    Left,
}
pub(crate) struct Member;
impl Member {
    pub(crate) fn new(_: &str, _: &str, _: Settings, _: Time) -> Self {
        Member
    }
    pub(crate) fn step(&mut self, _: Time, _: Input) -> Vec<Action> {
        vec![]
    }
    pub(crate) fn next_tick(&self) -> Time {
        Time::ZERO
    }
    pub(crate) fn may_begin_until(&self) -> Time {
        Time::ZERO
    }
}
