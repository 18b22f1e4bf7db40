//! What a worker that is a future holds while its function has the job: [`super::job`] has what becomes of it.

use std::mem;
use std::sync::Arc;

use super::Key;
use super::each::Rest;
use super::job::{Back, Mark};
use crate::sync::Mutex;
use crate::sync::catch_panic::{catch_panic, drop_caught};
use crate::{Ended, Item};

/// Where a job comes back to, and after it the next one of its task.
pub(super) type Lane<V> = Arc<Mutex<Back<V>>>;

/// Returns the lane for the next job, which is empty: another one, if an earlier job is still somewhere.
pub(super) fn free<V>(lane: &mut Lane<V>) -> &Lane<V> {
    if Arc::get_mut(lane).is_none() {
        *lane = Arc::default();
    }
    // Of a job that came back late. The drop of the value is user code.
    let late = mem::take(&mut *lane.lock());
    drop_caught(late.value);
    lane
}

/// An item during a call, and what is beside it.
pub(super) struct Lending<'q, K, V> {
    pub(super) item: Item<'q, K, V>,
    rest: Rest<V>,
    pub(super) lane: Lane<V>,
}

impl<'q, K, V> Lending<'q, K, V> {
    pub(super) fn of(item: Item<'q, K, V>, rest: Rest<V>, lane: &Lane<V>) -> Self {
        let lane = Arc::clone(lane);
        Lending { item, rest, lane }
    }

    /// Ends the call: returns the item with what the function has left of the value, and what it has decided.
    pub(super) fn take_back(self) -> (Item<'q, K, V>, Mark, Rest<V>) {
        let mut item = self.item;
        let Back { value, mark } = mem::take(&mut *self.lane.lock());
        if let (Some(loaded), Some(value)) = (item.loaded(), value) {
            *loaded = Some(value);
        }
        (item, mark, self.rest)
    }
}

impl<K: Key, V: Send + 'static> Lending<'_, K, V> {
    /// Ends a call that is cancelled: the key is processing, so the drop of its item queues it.
    pub(super) fn put_back(self) {
        let (mut item, _, mut rest) = self.take_back();
        rest.join(&mut item);
        if rest.has_lost_its_front() {
            forget(&item);
        }
        _ = item.add();
    }

    /// The same, and gives up what was tried.
    pub(super) fn give_up(self) {
        let (mut item, _, mut rest) = self.take_back();
        item.end_as(Ended::GivenUp);
        forget(&item);
        if rest.pass(&mut item) && rest.load(&mut item) {
            rest.join(&mut item);
            _ = item.add();
        }
    }
}

/// Forgets the failures of a message that does not go back: those behind it are tried from their first try.
fn forget<K, V>(item: &Item<'_, K, V>) {
    let _ = catch_panic(|| item.core().forget(item.key()));
}
