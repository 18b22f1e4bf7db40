//! The series of a membership, through the `metrics` facade, beside those of its queue, which is named
//! after the stream.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::Event;

pub(super) struct Series {
    pub(super) owned: Gauge,
    pub(super) stalled: Gauge,
    pub(super) memory: Gauge,
    pub(super) lease_left: Gauge,
    pub(super) hand_over: Histogram,
    pub(super) received: Counter,
    pub(super) redelivered: Counter,
    pub(super) superseded: Counter,
    pub(super) acknowledged: Counter,
    pub(super) skipped: Counter,
    // Those of events.
    suspended: Gauge,
    acquired: Counter,
    handed_over: Counter,
    lost: Counter,
    given_up: Counter,
    strangers: Counter,
}

impl Series {
    pub(super) fn new(stream: &str, partitions: u16) -> Self {
        let of = |name: &'static str| counter!(name, "stream" => stream.to_owned());
        let level = |name: &'static str| gauge!(name, "stream" => stream.to_owned());
        // Partitions that nobody owns: its maximum less the sum of `owned`.
        level("keyqueue_nats_partitions").set(partitions);
        Series {
            stalled: level("keyqueue_nats_stalled_partitions"),
            memory: level("keyqueue_nats_held_bytes"),
            owned: level("keyqueue_nats_owned_partitions"),
            suspended: level("keyqueue_nats_suspended"),
            lease_left: level("keyqueue_nats_lease_left_seconds"),
            acquired: of("keyqueue_nats_acquired_total"),
            handed_over: of("keyqueue_nats_handed_over_total"),
            lost: of("keyqueue_nats_lost_total"),
            hand_over: histogram!("keyqueue_nats_handover_seconds", "stream" => stream.to_owned()),
            received: of("keyqueue_nats_messages_total"),
            redelivered: of("keyqueue_nats_redelivered_total"),
            superseded: of("keyqueue_nats_superseded_total"),
            acknowledged: of("keyqueue_nats_acks_total"),
            given_up: of("keyqueue_nats_dead_letters_total"),
            skipped: of("keyqueue_nats_skipped_total"),
            strangers: of("keyqueue_nats_strangers_total"),
        }
    }

    /// The run has ended. The next membership of this process has the same series.
    pub(super) fn end(&self) {
        self.suspended.set(0);
        self.lease_left.set(0);
    }

    pub(super) fn event(&self, event: &Event) {
        match event {
            Event::Acquired(_) => self.acquired.increment(1),
            Event::HandedOver(_) => self.handed_over.increment(1),
            Event::Lost(_) => self.lost.increment(1),
            Event::Suspended { .. } => self.suspended.set(1),
            Event::Resumed => self.suspended.set(0),
            Event::Stranger { .. } => self.strangers.increment(1),
            Event::GivenUp { .. } => self.given_up.increment(1),
            Event::Stalled { .. } | Event::Receiving(_) | Event::DeadLetterRefused { .. } => {}
        }
    }
}
