//! What the driver, the workers and the callers of a consumer share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyqueue::WorkQueue;

use crate::bell::Bell;
use crate::client::{Client, Errors, Partition};
use crate::config::{Builder, Exhausted, Reset};
use crate::dead_letter::{Read, Writer};
use crate::key::{Backlog, Key};
use crate::lease::Lease;
use crate::metadata::Metadata;
use crate::record::Inner;
use crate::tenure::{Start, Tenure};
use crate::{OrderBy, lock};

pub(crate) struct Shared {
    pub(crate) settings: Builder,
    /// Until it runs.
    pub(crate) client: Mutex<Option<Client>>,
    pub(crate) queue: WorkQueue<Key, Backlog>,
    pub(crate) letters: Option<Writer>,
    /// The letters that were read, whoever reads them: their numbers are those of all.
    pub(crate) read_letters: Arc<Mutex<Read>>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) counts: Counts,
    /// Those that the driver has, for `status`.
    pub(crate) tenures: Mutex<Vec<Arc<Tenure>>>,
    /// Those that it cannot read, or of which it cannot read where they begin.
    pub(crate) unread: Mutex<Vec<Partition>>,
    pub(crate) errors: Arc<Errors>,
    pub(crate) metadata: Mutex<Metadata>,
    pub(crate) reset: Reset,
    /// How long what runs may take, once the run is to end.
    pub(crate) stop: Mutex<Option<Duration>>,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count {
    number: AtomicU64,
    /// What its series has of it.
    shown: AtomicU64,
}

impl Count {
    pub(crate) fn add(&self, number: u64) {
        // Ordering: Relaxed; a number to show.
        self.number.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Ordering: Relaxed; a number to show.
        self.number.load(Ordering::Relaxed)
    }

    /// By how much it has grown since the last call.
    fn growth(&self) -> u64 {
        let number = self.get();
        // Ordering: Relaxed; the driver is the only thread that calls this.
        number - self.shown.swap(number, Ordering::Relaxed)
    }
}

/// Counters, each with its series.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident: $series:literal,)*) => {
        /// What has happened in this run.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $($(#[$doc])* pub(crate) $name: Count,)*
        }

        impl Counts {
            /// The series, and by how much each has grown since the last call: members of a group in one process have the same ones.
            pub(crate) fn growth(&self) -> [(&'static str, u64); [$($series),*].len()] {
                [$((concat!("keyqueue_kafka_", $series, "_total"), self.$name.growth())),*]
            }
        }
    };
}

counts! {
    finished: "finished",
    retries: "retries",
    dead_letters: "dead_letters",
    skipped: "skipped",
    /// Read again after a restart, and not repeated.
    remembered: "remembered",
    /// In hand at a revocation, and not begun.
    discarded: "discarded",
    /// Begun, and cancelled.
    cancelled: "cancelled",
    commits: "commits",
    commit_errors: "commit_errors",
    /// Offsets beyond what had room in the metadata.
    left_out: "metadata_left_out",
    metadata_ignored: "metadata_ignored",
    /// Partitions that were read again because a record came out of order.
    disorders: "disorders",
    lost_assignments: "lost_assignments",
}

impl Shared {
    pub(crate) fn tenure(&self, place: (Arc<str>, i32, u32), start: Start) -> Tenure {
        let by_key = matches!(self.settings.order, OrderBy::Key);
        let (bell, lease) = (Arc::clone(&self.bell), Arc::clone(&self.lease));
        Tenure::new(place, by_key, start, bell, lease)
    }

    /// What becomes of this record when it is exhausted.
    pub(crate) fn exhausted(&self, record: &Inner) -> Exhausted {
        let default = match self.letters {
            Some(_) => Exhausted::DeadLetter,
            None => Exhausted::Block,
        };
        let of_topic = self.settings.exhausted.get(&*record.tenure.topic);
        *of_topic
            .or(self.settings.otherwise.as_ref())
            .unwrap_or(&default)
    }

    pub(crate) fn metadata(&self) -> Metadata {
        *lock(&self.metadata)
    }

    /// The brokers take less than they were given.
    pub(crate) fn shrink_metadata(&self) {
        let mut metadata = lock(&self.metadata);
        *metadata = match *metadata {
            Metadata::Wide(most) if most > 64 => Metadata::Wide(most / 2),
            Metadata::Ascii(most) if most > 64 => Metadata::Ascii(most / 2),
            _ => Metadata::Off,
        };
        tracing::warn!(target: "keyqueue_kafka", metadata = ?*metadata, "the brokers refuse metadata of this length; shorter from now on");
    }

    pub(crate) fn stop(&self) -> Option<Duration> {
        *lock(&self.stop)
    }

    pub(crate) fn end(&self, grace: Duration) {
        *lock(&self.stop) = Some(grace);
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // R7
    fn series_get_what_a_count_has_grown_by() {
        let counts = Counts::default();
        for number in [3, 2, 0] {
            counts.finished.add(number);
            assert_eq!(
                counts.growth()[0],
                ("keyqueue_kafka_finished_total", number)
            );
        }
        assert_eq!(counts.finished.get(), 5);
    }
}
