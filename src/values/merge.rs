//! The usual merge functions, for [`Builder::merge`](crate::Builder::merge).
//!
//! They run under the lock of the key's value, as every merge function. So does the `Drop` of what [`append`] and [`sum`]
//! leave over of two values; not that of the older value of [`latest`].

use std::ops::AddAssign;

/// Keeps the newer value.
///
/// A queue that is built with this function itself, not with a closure that calls it, drops the older value once the key
/// is unlocked, so its `Drop` may call the queue (S15).
///
/// ```
/// use keyqueue::{WorkQueue, merge};
///
/// let queue = WorkQueue::builder().merge(merge::latest).build()?;
/// queue.put("sensor", 20.5);
/// queue.put("sensor", 21.0);
/// assert_eq!(*queue.get().unwrap().value(), 21.0);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub fn latest<V>(older: &mut V, newer: V) {
    *older = newer;
}

/// Appends the newer collection to the older one: the union of two sets, one list behind the other,
/// the newer entries of two maps.
///
/// ```
/// use keyqueue::{WorkQueue, merge};
/// use std::collections::BTreeSet;
///
/// let queue = WorkQueue::builder().merge(merge::append).build()?;
/// queue.put("client", vec!["GET /"]);
/// queue.put("client", vec!["POST /cart"]);
/// assert_eq!(*queue.get().unwrap().value(), ["GET /", "POST /cart"]);
///
/// let queue = WorkQueue::builder().merge(merge::append).build()?;
/// queue.put("client", BTreeSet::from([1, 2]));
/// queue.put("client", BTreeSet::from([2, 3]));
/// assert_eq!(*queue.get().unwrap().value(), BTreeSet::from([1, 2, 3]));
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub fn append<C: IntoIterator + Extend<<C as IntoIterator>::Item>>(older: &mut C, newer: C) {
    older.extend(newer);
}

/// Adds the newer value to the older one.
///
/// ```
/// use keyqueue::{WorkQueue, merge};
///
/// let queue = WorkQueue::builder().merge(merge::sum).build()?;
/// queue.put("clicks", 1);
/// queue.put("clicks", 1);
/// assert_eq!(*queue.get().unwrap().value(), 2);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub fn sum<V: AddAssign>(older: &mut V, newer: V) {
    *older += newer;
}
