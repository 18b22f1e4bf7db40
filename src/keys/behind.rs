//! What the slots of a slab have behind each node, for queues that need it.

use std::fmt;
use std::marker::PhantomData;

/// A proof that the nodes of a queue have a `T` behind them, at a distance that depends on whether they
/// have times, too.
pub(crate) struct Behind<T> {
    timed: bool,
    _thing: PhantomData<fn() -> T>,
}

impl<T> Behind<T> {
    /// # Safety
    ///
    /// Only a queue whose slabs have room for a `T`, and for times if `timed`, may have it.
    pub(crate) unsafe fn new(timed: bool) -> Self {
        Behind {
            timed,
            _thing: PhantomData,
        }
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }
}

impl<T> fmt::Debug for Behind<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behind")
            .field("timed", &self.timed)
            .finish()
    }
}
