//! Workers that are threads.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{self, Builder, JoinHandle};

use super::trace::Span;
use super::{IntoOutcome, Source, Workers};
use crate::error::ConfigError;
use crate::keys::hasher::DefaultHasher;
use crate::limiter::{NoLimit, RateLimiter};
use crate::queue::added::Remaining;
use crate::wait::catch_panic::catch_panic;

/// The most threads of one [`Workers`].
///
/// The standard library aborts the process if a new thread cannot map the stack of its signal
/// handler. Each thread takes four mappings, and Linux allows a process 65 530 by default, so this
/// bound leaves half of them free.
const MOST_THREADS: usize = 1 << 13;

impl<K, L, S, E> Workers<'_, K, L, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    L: RateLimiter<K>,
    S: BuildHasher + Send + Sync,
{
    /// Runs `f` on every key, on the set number of threads. Returns once the queue is shut down and
    /// empty and every thread has finished its key (W1, W4).
    ///
    /// The calling thread is one of the workers, so one worker needs no other thread. `f` may
    /// borrow from the caller. It is never called for a key that another worker is processing.
    ///
    /// A panic of `f` counts as a failure of the key. State that `f` shares between calls must be
    /// unwind-safe.
    ///
    /// # Errors
    ///
    /// Returns an error if the number of threads is out of range, or if the system cannot start
    /// that many; the system's error is then the [`source`](std::error::Error::source). No key was
    /// delivered then.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::worker::Workers;
    /// let queue = WorkQueue::<u64>::new();
    /// let refused = Workers::new(&queue).threads(0).run(|_| ()).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "workers `threads` must be between 1 and 8192, but is 0",
    /// );
    /// ```
    pub fn run<R>(self, f: impl Fn(&K) -> R + Sync) -> Result<(), ConfigError>
    where
        R: IntoOutcome<Error = E>,
    {
        let count = self.count(MOST_THREADS)?;
        let (workers, f, gate) = (&self, &f, &Gate::default());
        thread::scope(|scope| {
            let worker = || gate.wait_and(|| workers.work(f));
            let started: io::Result<Vec<_>> = (1..count)
                .map(|n| workers.thread(n).spawn_scoped(scope, worker))
                .collect();
            gate.open(started.is_ok());
            started.map(|_| workers.work(f))
        })
        .map_err(|error| workers.too_many(count, error))
    }

    /// Runs one thread's loop until the queue is shut down and empty.
    fn work<R>(&self, f: &impl Fn(&K) -> R)
    where
        R: IntoOutcome<Error = E>,
    {
        while let Some(item) = self.queue().get() {
            let span = Span::of(self, &item);
            let said = span.within(|| catch_panic(|| f(item.key()).into_outcome()));
            self.settle(item, said, &span);
        }
    }

    /// Returns the builder of the `n`th thread.
    fn thread(&self, n: usize) -> Builder {
        // A thread's name must not contain NUL, which a queue's name may.
        let queue = self.queue().name().unwrap_or_default().replace('\0', "");
        let name = format!("keyqueue-worker-{n} {queue}");
        Builder::new().name(name.trim_end().to_owned())
    }

    #[cold]
    fn too_many(&self, count: usize, error: io::Error) -> ConfigError {
        let requirement = "must be a number of threads that can be started";
        let field = self.count.map_or("threads", |(field, _)| field);
        ConfigError::new("workers", field, requirement, count).caused_by(error)
    }
}

impl<K, L, S, E> Workers<'static, K, L, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    L: RateLimiter<K> + 'static,
    S: BuildHasher + Send + Sync + 'static,
    E: 'static,
{
    /// Like [`run`](Self::run), but on background threads: returns immediately, with a handle to
    /// them.
    ///
    /// # Errors
    ///
    /// The same as for [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::worker::Workers;
    /// # use std::sync::{Arc, mpsc};
    /// let queue = Arc::new(WorkQueue::new());
    /// let (done, results) = mpsc::channel();
    /// let running = Workers::shared(Arc::clone(&queue))
    ///     .threads(2)
    ///     .spawn(move |key: &u64| done.send(key * 2))?;
    ///
    /// queue.add(21);
    /// assert_eq!(results.recv(), Ok(42));
    /// running.stop();
    /// running.join();
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn spawn<R>(
        self,
        f: impl Fn(&K) -> R + Send + Sync + 'static,
    ) -> Result<Running<K, L, S>, ConfigError>
    where
        R: IntoOutcome<Error = E>,
    {
        let count = self.count(MOST_THREADS)?;
        let queue = self.queue.clone();
        let shared = Arc::new((self, f, Gate::default()));
        let (workers, _, gate) = &*shared;
        let mut threads = Vec::new();
        let started: io::Result<()> = (0..count).try_for_each(|n| {
            let mine = Arc::clone(&shared);
            let thread = workers.thread(n).spawn(move || {
                let (workers, f, gate) = &*mine;
                gate.wait_and(|| workers.work(f));
            })?;
            threads.push(thread);
            Ok(())
        });
        gate.open(started.is_ok());
        match started {
            Ok(()) => Ok(Running { queue, threads }),
            Err(error) => {
                join_all(threads);
                Err(workers.too_many(count, error))
            }
        }
    }
}

/// A gate at which threads wait until all of them have been spawned, so that either all start or
/// none.
#[derive(Default)]
struct Gate(OnceLock<bool>);

impl Gate {
    fn open(&self, all_there: bool) {
        self.0.get_or_init(|| all_there);
    }

    fn wait_and(&self, work: impl FnOnce()) {
        if *self.0.wait() {
            work();
        }
    }
}

/// A handle to workers on background threads, from [`Workers::spawn`].
///
/// Dropping the handle stops and joins the workers.
#[must_use = "dropping it stops the workers"]
pub struct Running<K: 'static, L: 'static = NoLimit, S: 'static = DefaultHasher> {
    queue: Source<'static, K, L, S>,
    threads: Vec<JoinHandle<()>>,
}

impl<K: 'static, L: 'static, S: 'static> Running<K, L, S> {
    /// Shuts the queue down without waiting, and returns what is left for the workers to do.
    ///
    /// This is [`WorkQueue::shut_down`](crate::WorkQueue::shut_down), which stops the workers as
    /// well.
    pub fn stop(&self) -> Remaining {
        self.queue.get().shut_down()
    }

    /// Waits until the workers have ended, which they do once the queue is shut down and empty.
    /// Does not shut the queue down.
    ///
    /// If a worker calls this, it does not wait for itself.
    pub fn join(mut self) {
        self.join_threads();
    }

    /// Returns whether the workers have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    fn join_threads(&mut self) {
        join_all(self.threads.drain(..));
    }
}

/// Joins all threads but the current one.
fn join_all(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    let myself = thread::current().id();
    for thread in threads {
        if thread.thread().id() != myself {
            // The thread catches panics of what it runs. If it panicked anyway, it has ended, too.
            let _ = thread.join();
        }
    }
}

impl<K: 'static, L: 'static, S: 'static> Drop for Running<K, L, S> {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop();
            self.join_threads();
        }
    }
}

impl<K: 'static, L: 'static, S: 'static> fmt::Debug for Running<K, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("queue", self.queue.get())
            .field("threads", &self.threads.len())
            .finish()
    }
}
