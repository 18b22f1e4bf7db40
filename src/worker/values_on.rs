//! Workers over a queue whose keys carry values, as tasks of a tokio runtime.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::runtime::Handle;

use super::{IntoVerdict, RunningTasks, ValueWorkers};
use crate::limiter::RateLimiter;
use crate::sync::Mutex;
use crate::{ConfigError, KeyHandle, Valued};

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

/// Puts the value that was lent back into the key when it is dropped, which the worker does while it
/// holds the key.
struct Restore<K: Send + Sync + 'static, V: Send + 'static> {
    key: KeyHandle<Valued<K, V>>,
    place: Arc<Mutex<Option<V>>>,
}

impl<K: Send + Sync + 'static, V: Send + 'static> Drop for Restore<K, V> {
    fn drop(&mut self) {
        let value = self.place.lock().take();
        // SAFETY: the worker holds the key until the future that has this is dropped, and the
        // function has its value only through `Lent`.
        *unsafe { self.key.key().loaded() } = value;
    }
}

impl<K, V, L, S, E> ValueWorkers<'static, K, V, L, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    L: RateLimiter<Valued<K, V>> + 'static,
    S: BuildHasher + Send + Sync + 'static,
    E: fmt::Display + 'static,
{
    /// Runs `f` on every key with its value, as tasks of a tokio runtime; see [`Workers::spawn_on`].
    ///
    /// The function's future may last longer than any borrow, so it gets a [`Lent`] value instead of
    /// `&mut V`.
    ///
    /// [`Workers::spawn_on`]: super::Workers::spawn_on
    ///
    /// # Errors
    ///
    /// The same as for [`Workers::spawn_on`].
    ///
    /// ```
    /// use keyqueue::worker::Workers;
    /// use keyqueue::{ValueQueue, WorkQueue, merge};
    /// use std::sync::Arc;
    /// use tokio::runtime::Handle;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), keyqueue::ConfigError> {
    /// let queue: ValueQueue<&str, Vec<&str>> = WorkQueue::builder().merge(merge::append).build()?;
    /// let queue = Arc::new(queue);
    /// let running = Workers::shared(Arc::clone(&queue)).tasks(4).values().spawn_on(
    ///     &Handle::current(),
    ///     |client, lines| async move {
    ///         println!("{}: {} lines", *client, lines.len());
    ///     },
    /// )?;
    /// queue.put("client-1", vec!["GET /"]);
    /// queue.drain_async().await;
    /// running.join().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn spawn_on<F, R>(
        self,
        runtime: &Handle,
        f: F,
    ) -> Result<RunningTasks<Valued<K, V>, L, S>, ConfigError>
    where
        F: Fn(KeyHandle<Valued<K, V>>, Lent<V>) -> R + Send + Sync + 'static,
        R: Future<Output: IntoVerdict<Error = E>> + Send + 'static,
    {
        self.0.spawn_on(runtime, move |key| {
            // SAFETY: the worker holds the key until the future that this returns is dropped.
            let value = mem::take(unsafe { key.key().loaded() });
            let place = Arc::new(Mutex::new(None));
            let lent = Lent {
                value,
                place: Arc::clone(&place),
            };
            let restore = Restore {
                key: key.clone(),
                place,
            };
            // The worker polls it at once, so `restore` is dropped after `work`.
            let work = f(key, lent);
            async move {
                let _restore = restore;
                work.await
            }
        })
    }
}
