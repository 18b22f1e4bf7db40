//! A value that the task of a key owns while it works on the key.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::lend::Loan;
use crate::sync::Mutex;

/// The value of a delivery, for a task: it derefs to the value, and gives it back to the worker when
/// it is dropped.
///
/// If it is leaked, or dropped after the task's future is ready, the value is lost. Each one belongs to
/// its delivery, so do not swap two of them; swap what is in them.
#[derive(Debug)]
pub struct Lent<V> {
    value: Option<V>,
    place: Arc<Mutex<Option<V>>>,
}

impl<V> Loan<V> {
    /// Returns the value for a function that owns it.
    pub(super) fn lent(&mut self) -> Lent<V> {
        let place = self.place.insert(Arc::new(Mutex::new(None)));
        Lent {
            value: self.value.take(),
            place: Arc::clone(place),
        }
    }
}

impl<V> Lent<V> {
    /// Takes the value out. If the work fails after this, the key is not tried again for this value:
    /// its receipts end as [`GivenUp`](crate::Ended::GivenUp), and `on_give_up` is not called. So take
    /// it when the work has succeeded, or clone it.
    #[must_use]
    pub fn into_inner(mut self) -> V {
        self.value.take().expect(HAS_VALUE)
    }
}

const HAS_VALUE: &str = "only `into_inner` and the drop take the value";

impl<V> Deref for Lent<V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value.as_ref().expect(HAS_VALUE)
    }
}

impl<V> DerefMut for Lent<V> {
    fn deref_mut(&mut self) -> &mut V {
        self.value.as_mut().expect(HAS_VALUE)
    }
}

impl<V> Drop for Lent<V> {
    fn drop(&mut self) {
        let value = self.value.take();
        if value.is_some() {
            *self.place.lock() = value;
        }
    }
}
