//! What the scenarios in `tests/` share: how one is run (`README.md`), the threads in it, and the order of what
//! happens in it.
#![cfg(keyqueue_shuttle)]

mod bell;
mod crew;
mod freezer;
mod history;
mod kind;
mod pct;
mod place;
mod plan;
mod puts;
mod run;

use std::time::Duration;

use keyqueue::limiter::NoLimit;
use keyqueue::{Builder, Item, WorkQueue};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::thread::yield_now;

pub use bell::Bell;
pub use crew::Crew;
pub use freezer::{Caller, Stage, freeze};
pub use history::History;
pub use keyqueue_model::ledger::{Key, Ledger};
pub use keyqueue_model::{Spread, Spreading};
pub use kind::{Bag, Did, How, Kind, delay};
pub use place::{AGE, Place};
pub use plan::{End, Plan, group};
pub use puts::Puts;
pub use run::{check, check_often, note};

/// A tick.
pub const MS: Duration = Duration::from_millis(1);

/// The same hashes in every run, since schedules are replayed.
const HASHER: Spreading = Spreading(Spread::Even);

/// A queue that scenarios are about, whose keys carry this: few shards, a small ring.
pub type QueueOf<V> = WorkQueue<Key, V, Spreading>;

/// Its settings.
pub type SettingsOf<V> = Builder<Key, V, Spreading>;

/// A key of it that is being worked on.
pub type DeliveryOf<'q, V> = Item<'q, Key, V>;

/// A queue of keys alone.
pub type Queue = QueueOf<()>;

/// Its settings.
pub type Settings = SettingsOf<()>;

/// A key of it that is being worked on.
pub type Delivery<'q> = DeliveryOf<'q, ()>;

/// A queue of two shards whose ring holds `ring` keys; `set` makes the other settings.
pub fn queue(ring: usize, set: impl FnOnce(Settings) -> Settings) -> Arc<Queue> {
    let builder = <()>::builder().rate_limiter(NoLimit);
    let builder = builder.shards(2).ring(ring);
    Arc::new(set(builder).build().expect("the settings are in range"))
}

/// Checks what must hold when all have ended.
pub fn check_end<V>(queue: &QueueOf<V>, ledger: &Ledger) {
    ledger.check();
    assert_eq!(queue.len(), 0);
    assert!(queue.is_empty());
    queue.shrink();
    assert_eq!(ledger.alive(), 0, "C10: keys that are not needed");
}

/// True once in `times`, drawn from what the schedule is drawn from, and the same in a replay.
pub fn once_in(times: u32) -> bool {
    thread_rng().gen_ratio(1, times)
}

/// One of the numbers below `end`, as [`once_in`].
pub fn below(end: u64) -> u64 {
    thread_rng().gen_range(0..end)
}

/// Lets other threads go on, up to `most` times.
pub fn dawdle(most: u64) {
    (0..below(most + 1)).for_each(|_| yield_now());
}

/// Works on a key for a while.
pub fn work(item: Delivery<'_>, ledger: &Ledger) {
    let number = item.number;
    ledger.begin(number);
    dawdle(2);
    ledger.end(number);
    item.done();
}

/// The page that shows users how to check their own programs: its program is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../src/docs/how_to/model_checking.md")]
pub mod model_checking {}
