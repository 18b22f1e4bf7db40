//! What the integration tests share: queues of many configurations, a watchdog, conditions to
//! wait for, wakers that count, and separate processes.
//!
//! # Ground rules of the tests
//!
//! * A test never sleeps to let something happen. It waits for the condition ([`eventually`]), or
//!   it shows by the order of events that something cannot have happened.
//! * A test does not measure time. If the queue loses a wake-up, the test hangs, and its
//!   [`watchdog`] turns that into a failure that names the test.
//! * Cases that are rare in use are common here: few shards, a ring of one, keys of one hash.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary compiles this module and uses a part of it"
)]

pub(crate) mod calls;
pub(crate) mod counted;
pub(crate) mod timed;

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, Hasher};
use std::iter;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

pub(crate) use rig::{eventually, watchdog};

use keyqueue::limiter::NoLimit;
use keyqueue::{DefaultHasher, GetError, Item, Remaining, WorkQueue};

/// `n`, and a hundredth of it under Miri; one at least. Miri interprets: a hundredth takes it
/// longer than the whole takes a processor.
pub(crate) const fn scaled(n: usize) -> usize {
    if cfg!(miri) { n.div_ceil(100) } else { n }
}

// ---- configurations -------------------------------------------------------------------------

/// A queue of any configuration has this type.
pub(crate) type Queue<K> = WorkQueue<K, (), Hashing>;

/// Hashes as by default, and keeps some of the bits.
#[derive(Clone, Debug)]
pub(crate) struct Hashing {
    inner: DefaultHasher,
    mask: u64,
}

pub(crate) struct Masked {
    inner: <DefaultHasher as BuildHasher>::Hasher,
    mask: u64,
}

impl BuildHasher for Hashing {
    type Hasher = Masked;

    fn build_hasher(&self) -> Masked {
        Masked {
            inner: self.inner.build_hasher(),
            mask: self.mask,
        }
    }
}

impl Hasher for Masked {
    fn write(&mut self, bytes: &[u8]) {
        self.inner.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.inner.finish() & self.mask
    }
}

/// The settings of a queue under test; `None` is the default.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) shards: Option<usize>,
    pub(crate) ring: Option<usize>,
    /// The bits of the keys' hashes. With none, every key is in one shard, and every lookup compares
    /// it with all others.
    pub(crate) hash_bits: u64,
    /// With more than one, all keys are at the default level: the order is the same.
    pub(crate) levels: usize,
    /// Whether all keys are in one group: the order is the same.
    pub(crate) grouped: bool,
}

impl Config {
    /// The default settings.
    pub(crate) fn usual() -> Self {
        Config {
            shards: None,
            ring: None,
            hash_bits: u64::MAX,
            levels: 1,
            grouped: false,
        }
    }

    /// With levels.
    pub(crate) fn leveled() -> Self {
        Config {
            levels: 3,
            ..Config::usual()
        }
    }

    /// With a group.
    pub(crate) fn grouped() -> Self {
        Config {
            grouped: true,
            ..Config::usual()
        }
    }

    /// Two shards and a ring that overflows at once.
    pub(crate) fn tiny() -> Self {
        Config {
            shards: Some(2),
            ring: Some(1),
            ..Config::usual()
        }
    }

    /// Those between which races differ most: roomy, cramped, each with levels, and with a group.
    pub(crate) fn races() -> [Config; 5] {
        let cramped = Config {
            levels: 2,
            ..Config::tiny()
        };
        let [usual, tiny] = [Config::usual(), Config::tiny()];
        [usual, tiny, Config::leveled(), cramped, Config::grouped()]
    }

    /// Every combination of few and many shards, rings that overflow or do not, and hashes that are
    /// seldom, often or always equal.
    pub(crate) fn all() -> Vec<Config> {
        let mut all = Vec::new();
        for shards in [Some(2), None] {
            for ring in [Some(1), Some(2), None] {
                for hash_bits in [u64::MAX, 3, 0] {
                    all.push(Config {
                        shards,
                        ring,
                        hash_bits,
                        levels: 1,
                        grouped: false,
                    });
                }
            }
        }
        all.push(Config::leveled());
        all.push(Config {
            levels: 8,
            ..Config::tiny()
        });
        all.push(Config::grouped());
        all.push(Config {
            levels: 3,
            grouped: true,
            ..Config::tiny()
        });
        // Three in which each setting comes once.
        if cfg!(miri) {
            all = all.into_iter().step_by(7).collect();
        }
        all
    }

    pub(crate) fn queue<K: Hash + Eq + Send + Sync + 'static>(&self) -> Queue<K> {
        let mut builder = WorkQueue::<K>::builder().hasher(Hashing {
            inner: DefaultHasher::default(),
            mask: self.hash_bits,
        });
        builder = builder.levels(self.levels);
        if let Some(shards) = self.shards {
            builder = builder.shards(shards);
        }
        if let Some(ring) = self.ring {
            builder = builder.ring(ring);
        }
        if self.grouped {
            builder = builder.group_by(|_| ());
        }
        builder.build().expect("the settings are in range")
    }
}

/// Says what a test was about that panics.
pub(crate) struct Note<T: Debug>(pub(crate) T);

impl<T: Debug> Drop for Note<T> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("failed with {:?}", self.0);
        }
    }
}

/// Runs `body` over every configuration, and says which one it failed with.
pub(crate) fn with_queues(body: impl Fn(&Config)) {
    with_these_queues(&Config::all(), body);
}

/// Runs `body` over the given configurations, under a [`watchdog`], and says which one it failed
/// with.
pub(crate) fn with_these_queues(configs: &[Config], body: impl Fn(&Config)) {
    let _watchdog = watchdog(120);
    for config in configs {
        let _note = Note(config);
        body(config);
    }
}

/// The keys that are queued, as far as they may be delivered now.
pub(crate) fn there<K, V, S>(queue: &WorkQueue<K, V, S>) -> impl Iterator<Item = Item<'_, K, V>> {
    iter::from_fn(|| queue.try_get().ok())
}

/// A queue of these keys, which retries without a delay.
pub(crate) fn eager<K: Hash + Eq + Send + Sync + 'static>(
    keys: impl IntoIterator<Item = K>,
) -> WorkQueue<K> {
    let queue = WorkQueue::builder().rate_limiter(NoLimit).build().unwrap();
    queue.add_all(keys);
    queue
}

/// Takes every queued key, one after the other, each done before the next.
pub(crate) fn take_all<K: Clone, V, S>(queue: &WorkQueue<K, V, S>) -> Vec<K> {
    there(queue).map(|item| item.key().clone()).collect()
}

/// Fails if a key is queued, or if the queue is shut down.
#[track_caller]
pub(crate) fn assert_nothing_queued<K: Debug, V, S>(queue: &WorkQueue<K, V, S>) {
    assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
    assert_eq!(queue.len(), 0);
}

/// How many keys are queued, processing and delayed.
pub(crate) fn figures(left: Remaining) -> (usize, usize, usize) {
    (left.queued, left.processing, left.delayed)
}

/// The number of getters on the queue's wait list.
pub(crate) fn waiting<K, V, S>(queue: &WorkQueue<K, V, S>) -> usize {
    shown(queue, "waiting")
}

/// The number of adds in the line for room.
pub(crate) fn waiting_adds<K, V, S>(queue: &WorkQueue<K, V, S>) -> usize {
    shown(queue, "waiting_adds")
}

/// A number in the queue's `Debug` form.
fn shown<K, V, S>(queue: &WorkQueue<K, V, S>, field: &str) -> usize {
    let text = format!("{queue:?}");
    let (_, rest) = text.split_once(&format!(" {field}: ")).expect(field);
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).expect(&text)
}

// ---- processes ------------------------------------------------------------------------------

/// Runs `body` in a process in which no other test runs, for what is measured per process:
/// threads, processor time, allocations. `body` is a closure in the test itself.
pub(crate) fn alone(body: impl FnOnce()) {
    alone_under(None, body);
}

/// As [`alone`], within the limits that a command of the shell sets: `ulimit -v 1000000`.
pub(crate) fn alone_under<F: FnOnce()>(limits: Option<&str>, body: F) {
    const ALONE: &str = "KEYQUEUE_TEST_ALONE";
    // `binary::module::test::{{closure}}`: the harness knows the test by what is between.
    let name = std::any::type_name::<F>();
    let test = name
        .strip_suffix("::{{closure}}")
        .and_then(|path| path.split_once("::"));
    let (_, test) = test.unwrap_or_else(|| panic!("`{name}` is no closure in a test"));
    if std::env::var_os(ALONE).is_some_and(|running| running == test) {
        wait_for_the_harness();
        return body();
    }
    let program = std::env::current_exe().expect("the test's own program");
    let mut command = match limits {
        None => Command::new(program),
        Some(limits) => {
            let mut shell = Command::new("sh");
            let script = format!("{limits} && exec \"$0\" \"$@\"");
            shell.arg("-c").arg(script).arg(program);
            shell
        }
    };
    let output = command
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .arg("--test-threads=1")
        .env(ALONE, test)
        .output()
        .expect("the test's own program runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    print!("{printed}");
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{test} failed in its own process:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Waits until the harness's own thread waits for this test, on Linux: it allocates 144 bytes for
/// that, which a test of memory would count if they came later.
fn wait_for_the_harness() {
    let stat = format!("/proc/self/task/{}/stat", std::process::id());
    eventually("the harness waits", || {
        let stat = std::fs::read_to_string(&stat).unwrap_or_default();
        // The thread's state follows its name, which is in parentheses.
        let state = stat.rsplit_once(") ");
        state.is_none_or(|(_, state)| state.starts_with('S'))
    });
}

/// The number of threads of this process whose names begin so, on Linux, which cuts a name at 15
/// bytes.
pub(crate) fn threads(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    // One may end meanwhile.
    let names = threads.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name)).count()
}

// ---- futures by hand ------------------------------------------------------------------------

/// A waker that counts how often it was woken.
#[derive(Default)]
pub(crate) struct WakeCount(AtomicUsize);

impl WakeCount {
    pub(crate) fn new() -> (Arc<WakeCount>, Waker) {
        let count = Arc::new(WakeCount::default());
        let waker = Waker::from(Arc::clone(&count));
        (count, waker)
    }

    pub(crate) fn get(&self) -> usize {
        // Ordering: SeqCst; a test's counter, never in the way of what is tested.
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        // Ordering: SeqCst; as in `get`.
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker that panics, past the panic hook.
pub(crate) fn panicking_waker() -> Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            resume_unwind(Box::new("this waker always panics"));
        }
    }
    Waker::from(Arc::new(Panics))
}

/// Polls a future until nothing more happens without something from outside.
pub(crate) fn poll_until_idle<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let (wakes, waker) = WakeCount::new();
    loop {
        let before = wakes.get();
        let polled = poll(future, &waker);
        if polled.is_ready() || wakes.get() == before {
            return polled;
        }
    }
}

/// Polls a future once.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// A future that the test polls itself, and how often it was woken.
pub(crate) struct Task<F> {
    future: F,
    wakes: Arc<WakeCount>,
    waker: Waker,
}

impl<F: Future + Unpin> Task<F> {
    /// Polls the future for the first time, and fails if it does not wait.
    #[track_caller]
    pub(crate) fn waiting(future: F) -> Self {
        let (wakes, waker) = WakeCount::new();
        let mut task = Task {
            future,
            wakes,
            waker,
        };
        task.assert_pending();
        task
    }

    pub(crate) fn wakes(&self) -> usize {
        self.wakes.get()
    }

    #[track_caller]
    pub(crate) fn assert_pending(&mut self) {
        assert!(poll(&mut self.future, &self.waker).is_pending());
    }

    /// Polls the future until nothing more happens, and returns whether it still waits.
    pub(crate) fn is_idle(&mut self) -> bool {
        poll_until_idle(&mut self.future).is_pending()
    }

    /// Polls the future, and fails if it still waits.
    #[track_caller]
    pub(crate) fn output(&mut self) -> F::Output {
        match poll(&mut self.future, &self.waker) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future still waits"),
        }
    }
}
