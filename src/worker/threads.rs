//! Workers that are threads.

use std::fmt;
use std::hash::Hash;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{self, Builder};

use super::running::{Handle, Worker};
use super::stop::StopFlag;
use super::trace::Span;
use super::{Hook, IntoVerdict, Job, Key, Loop, Running, Verdict, Workers};
use crate::ConfigError;
use crate::sync::ThreadParker;
use crate::sync::catch_panic::{catch_panic, drop_caught};
use crate::wait::receipt::receipt;

/// The most threads of one [`Workers`].
///
/// The standard library aborts the process if a new thread cannot map the stack of its signal
/// handler. Each thread takes four mappings, and Linux allows a process 65 530 by default, so this
/// bound leaves half of them free.
pub(super) const MOST_THREADS: usize = 1 << 13;

/// A worker's function. Behind a pointer, so that the loop is compiled once for each queue and not for each function.
pub(super) type Function<'f, K, V, E> = dyn Fn(Job<'_, K, V>) -> Verdict<E> + 'f;

/// What each thread does, until the queue is shut down and empty or the flag is set.
pub(super) type Work<'f, L> = dyn Fn(&L, &StopFlag) + Sync + 'f;

/// The same, of threads that outlive the call.
pub(super) type OwnWork<L> = Box<dyn Fn(&L, &StopFlag) + Send + Sync>;

impl<K, V, E> Workers<'_, K, V, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    E: fmt::Display,
{
    /// Runs `f` on every key, on the set number of threads. Returns once the queue is shut down and
    /// empty and every thread has finished its key (W1, W4).
    ///
    /// The calling thread is one of the workers, so one worker needs no other thread. `f` may
    /// borrow from the caller. It is never called for a key that another worker is processing.
    ///
    /// A panic of `f` counts as a failure of the key, so state that it shares between calls must be
    /// unwind-safe.
    ///
    /// # Errors
    ///
    /// Returns an error if the number of threads is out of range, if
    /// [`on_give_up_async`](Self::on_give_up_async) is set, or if the system cannot start that many
    /// threads; the system's error is then the [`source`](std::error::Error::source). No key was
    /// delivered then.
    pub fn run<R>(self, f: impl Fn(Job<'_, K, V>) -> R + Sync) -> Result<(), ConfigError>
    where
        R: IntoVerdict<Error = E>,
    {
        let f = |job: Job<'_, _, _>| f(job).into_verdict();
        self.inner.run(&|workers, stop| workers.work(&f, stop))
    }

    /// Like [`run`](Self::run), but on background threads: returns immediately, with a handle to
    /// them.
    ///
    /// # Errors
    ///
    /// The same as for [`run`](Self::run).
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::worker::{Job, Workers};
    /// # use std::sync::mpsc;
    /// let queue = WorkQueue::new();
    /// let (done, results) = mpsc::channel();
    /// let running = Workers::new(&queue)
    ///     .concurrency(2)
    ///     .spawn(move |job: Job<u64>| done.send(*job * 2))?;
    ///
    /// queue.add(21);
    /// assert_eq!(results.recv(), Ok(42));
    /// queue.shut_down();
    /// running.join();
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn spawn<R: IntoVerdict<Error = E>>(
        self,
        f: impl Fn(Job<'_, K, V>) -> R + Send + Sync + 'static,
    ) -> Result<Running<K, V>, ConfigError>
    where
        Self: 'static,
    {
        let f = move |job: Job<'_, _, _>| f(job).into_verdict();
        let work = move |workers: &Loop<'_, K, V, E>, stop: &StopFlag| workers.work(&f, stop);
        self.inner.spawn(Box::new(work))
    }
}

impl<K: Key, V: Send + 'static, E: fmt::Display> Loop<'_, K, V, E> {
    /// Runs threads that do `work`, of which the calling thread is one.
    pub(super) fn run(self, work: &Work<'_, Self>) -> Result<(), ConfigError> {
        let (workers, started) = (&self, &OnceLock::new());
        let never = &StopFlag::default();
        thread::scope(|scope| {
            let work = || {
                if *started.wait() {
                    work(workers, never);
                }
            };
            workers.start(1, started, |thread| {
                thread.spawn_scoped(scope, work).map(drop)
            })?;
            work();
            Ok(())
        })
    }

    pub(super) fn spawn(self, work: OwnWork<Self>) -> Result<Running<K, V>, ConfigError>
    where
        Self: 'static,
    {
        let mut running = Running::over(&self.queue.open);
        let shared = Arc::new((self, work, OnceLock::new(), Arc::clone(&running.stop)));
        let (workers, _, started, _) = &*shared;
        let result = workers.start(0, started, |thread| {
            let shared = Arc::clone(&shared);
            let (obligation, ended) = receipt();
            let thread = thread.spawn(move || {
                let _obligation = obligation;
                // Dropped before that.
                let shared = shared;
                let (workers, work, started, stop) = &*shared;
                if *started.wait() {
                    work(workers, stop);
                }
            })?;
            let handle = Handle::Thread(thread);
            running.workers.push(Worker { ended, handle });
            Ok(())
        });
        if let Err(error) = result {
            running.join();
            return Err(error);
        }
        Ok(running)
    }

    /// Starts all threads but the `first` ones, each by a call of `start`. Then lets all of them
    /// work, or none if one cannot be started.
    fn start(
        &self,
        first: usize,
        started: &OnceLock<bool>,
        mut start: impl FnMut(Builder) -> io::Result<()>,
    ) -> Result<(), ConfigError> {
        let hook = self.on_give_up.as_ref().map(|on_give_up| &on_give_up.hook);
        if let Some(Hook::Async(_)) = hook {
            let (field, rule) = ("on_give_up_async", "must not be set for threads");
            let set = format_args!("set");
            return Err(ConfigError::new("workers", field, rule, set));
        }
        let count = self.count(MOST_THREADS)?;
        // A thread's name must not contain NUL, which a queue's name may.
        let queue = self.queue.core.name().unwrap_or_default().replace('\0', "");
        let result = (first..count).try_for_each(|n| {
            let name = format!("keyqueue-worker-{n} {queue}");
            start(Builder::new().name(name.trim_end().to_owned()))
        });
        started.get_or_init(|| result.is_ok());
        result.map_err(|error| {
            let requirement = "must be a number of threads that can be started";
            ConfigError::new("workers", "concurrency", requirement, count).caused_by(error)
        })
    }

    /// Runs one thread's loop until the queue is shut down and empty, or `stop` is set.
    fn work(&self, f: &Function<'_, K, V, E>, stop: &StopFlag) {
        let parker = ThreadParker::current();
        stop.enlist(parker.waker());
        while let Some(mut item) = self.queue.open.get_unless(&parker, || stop.is_set()) {
            let (mut rest, mut turn, mut goes_on) = self.begin(&mut item);
            while goes_on {
                let span = Span::of(self, &item);
                let began = self.epoch();
                let said = span.within(|| catch_panic(|| self.call(f, &mut item)));
                // No hook is async.
                drop(self.settle((&mut item, &mut rest), said, &span, began));
                goes_on = self.goes_on(&mut turn, (&mut item, &mut rest), stop.is_set());
            }
            drop_caught(item);
        }
        self.report_dropped().for_each(drop);
    }
}
