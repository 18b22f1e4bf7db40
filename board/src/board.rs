//! The registry of queues and fleets, and what a look at one of them is worth to the next.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use tokio::sync::{Semaphore, watch};

use crate::bulk::{self, LastJob};
use crate::error::NameError;
use crate::events::{FIRST, SHARE, STALE};
use crate::fleet::{Fleet, Partitioned};
use crate::history::{History, INTERVAL, Sample};
use crate::letters::LetterStore;
use crate::live;
use crate::place::{self, Kind, Place};
use crate::policy::{Asked, Policy};
use crate::rows::{Census, Summary};
use crate::shown::Shown;
use crate::source::{Done, KeyId, Refused, Source, Task};
use crate::web;

/// The longest name of a queue, in bytes.
const LONGEST_NAME: usize = 200;
/// A look at all keys of a queue takes no longer than this.
const ALL: Duration = Duration::from_secs(1);
/// What was done is kept for so many browsers that have not loaded a page since.
const UNTOLD: usize = 100;

/// The queues that are shown, and who may do what: see the [crate's documentation](crate). A clone is another handle to
/// the same board.
#[derive(Clone)]
pub struct Board(pub(crate) Arc<Registry>);

#[derive(Default)]
pub(crate) struct Registry {
    names: Mutex<Names>,
    policy: Mutex<Option<Arc<Policy>>>,
    /// Names of this service, in lower case.
    pub(crate) hosts: Mutex<Vec<String>>,
    /// What was done, by the token of the browser that is to be told, the oldest first.
    said: Mutex<VecDeque<(String, String)>>,
    /// Has a permit for each further live page.
    pub(crate) viewers: OnceLock<Arc<Semaphore>>,
    /// Whether live pages are to end.
    pub(crate) closed: watch::Sender<bool>,
}

/// What was added. No two have the same name.
#[derive(Default)]
struct Names {
    queues: BTreeMap<String, Arc<Entry>>,
    fleets: BTreeMap<String, Arc<Fleet>>,
}

impl Names {
    /// Checks a name under which something is to be added.
    fn check(&self, name: &str) -> Result<(), NameError> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(NameError::new("must have 1 to 200 bytes", name));
        }
        if name.chars().any(char::is_control) || matches!(name, "." | "..") {
            let rule = "must have no control characters, and not be a relative path";
            return Err(NameError::new(rule, name));
        }
        let is_queue = |known: &Arc<Entry>| known.source.summary().is_some();
        let is_queue = self.queues.get(name).is_some_and(is_queue);
        let is_taken = is_queue || self.fleets.contains_key(name);
        match is_taken {
            true => Err(NameError::new("must be that of no other queue", name)),
            false => Ok(()),
        }
    }
}

/// A queue, with what was last seen of it.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) source: Box<dyn Source>,
    /// No other queue has it, in this process or another one.
    mark: String,
    last_job: LastJob,
    seen: Mutex<Seen>,
    /// When the last look began, and what a look has found last. Held by no look.
    last: Mutex<(Option<Instant>, Option<Arc<Census>>)>,
    history: Mutex<History>,
}

#[derive(Default)]
struct Seen {
    /// With the state that the queue had before.
    last: Option<(Instant, &'static str, Arc<Census>)>,
    /// How long a look takes usually.
    usual: Option<Duration>,
}

/// What is under these locks is valid after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Creates a board without queues, on which nobody may do anything.
    #[must_use]
    pub fn new() -> Self {
        Board(Arc::default())
    }

    /// Adds a queue under a name of 1 to 200 bytes, under which it is shown.
    ///
    /// # Errors
    ///
    /// Returns an error that names the rule if the name is empty, too long, has control characters, or is `.` or `..`; or
    /// if a queue has this name that is not gone yet.
    pub fn add<K, V, S>(
        &self,
        name: impl Into<String>,
        shown: Shown<K, V, S>,
    ) -> Result<&Self, NameError>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: BuildHasher + Send + Sync + 'static,
    {
        let name = name.into();
        let mut names = lock(&self.0.names);
        names.check(&name)?;
        let entry = Entry {
            name: name.clone(),
            source: Box::new(shown),
            mark: place::mark(),
            last_job: LastJob::default(),
            seen: Mutex::default(),
            last: Mutex::default(),
            history: Mutex::default(),
        };
        self.close_if_closed(&entry);
        names.queues.insert(name, Arc::new(entry));
        Ok(self)
    }

    /// Adds a fleet of replicas of [`keyqueue_nats`] under a name, as [`add`](Self::add) does: its partitions, their owners, what waits
    /// in them, and its dead letters. The board reads all of it from the server, so this process need not be one of the replicas.
    ///
    /// It is not checked here: a page of a fleet that is not on the server, or whose server does not respond within 2 s, says so.
    /// Of the actions it has those on dead letters. A policy gets the name as [`Asked::queue`].
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add): queues and fleets have no name in common.
    ///
    /// ```no_run
    /// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
    /// use keyqueue_board::Board;
    /// use keyqueue_nats::Config;
    ///
    /// let client = async_nats::connect("localhost").await?;
    /// let board = Board::new();
    /// board.add_fleet("webhooks", client, Config::default())?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "nats")]
    #[cfg_attr(docsrs, doc(cfg(feature = "nats")))]
    pub fn add_fleet(
        &self,
        name: impl Into<String>,
        client: async_nats::Client,
        config: keyqueue_nats::Config,
    ) -> Result<&Self, NameError> {
        self.add_partitioned(name.into(), crate::nats::Nats::new(client, config))
    }

    /// Adds a consumer of [`keyqueue_kafka`] in this process under a name, as [`add`](Self::add) does: the partitions that it has,
    /// and of each one its base offset, what is finished beyond it, and the oldest record that is not finished. Its dead letters can be
    /// put back and dropped.
    ///
    /// The board keeps the consumer until it is [removed](Self::remove), but not its connections once its run has ended.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add): queues, fleets and consumers have no name in common.
    ///
    /// ```no_run
    /// # fn doc() -> Result<(), Box<dyn std::error::Error>> {
    /// use keyqueue_board::Board;
    /// use keyqueue_kafka::Consumer;
    ///
    /// let consumer = Consumer::builder("localhost:9092", "billing").topics(["orders"]).build()?;
    /// let board = Board::new();
    /// board.add_consumer("orders", &consumer)?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "kafka")]
    #[cfg_attr(docsrs, doc(cfg(feature = "kafka")))]
    pub fn add_consumer(
        &self,
        name: impl Into<String>,
        consumer: &keyqueue_kafka::Consumer,
    ) -> Result<&Self, NameError> {
        self.add_partitioned(name.into(), crate::kafka::Kafka::new(consumer.clone()))
    }

    pub(crate) fn add_partitioned(
        &self,
        name: String,
        source: impl Partitioned + 'static,
    ) -> Result<&Self, NameError> {
        let mut names = lock(&self.0.names);
        names.check(&name)?;
        let fleet = Fleet::new(name.clone(), source);
        self.close_if_closed(&fleet);
        // The queue of this name that may be there is gone.
        names.queues.remove(&name);
        names.fleets.insert(name, Arc::new(fleet));
        Ok(self)
    }

    /// Takes a queue or a fleet off the board, and stops an action on all of its dead letters. Returns whether there was one with this
    /// name.
    pub fn remove(&self, name: &str) -> bool {
        let mut names = lock(&self.0.names);
        let (fleet, queue) = (names.fleets.remove(name), names.queues.remove(name));
        let fleet = fleet.as_ref().map(|fleet| bulk::close(fleet.last_job()));
        let queue = queue.as_ref().map(|queue| bulk::close(queue.last_job()));
        fleet.or(queue).is_some()
    }

    /// Lets no action on all letters of this begin, if the board is closed. `names` is locked, so that `close` finds it otherwise.
    fn close_if_closed(&self, place: &impl Place) {
        if *self.0.closed.borrow() {
            bulk::close(place.last_job());
        }
    }

    /// Lets those act for whom `policy` returns who they are: what is asked for, and by which request, is its argument.
    /// Without it, and where it returns `None`, the board only shows. A later policy replaces an earlier one.
    ///
    /// The name that it returns is in the event of each action, with target `keyqueue_board`.
    ///
    /// ```
    /// use keyqueue_board::{Action, Board};
    ///
    /// let board = Board::new().allow(|asked| {
    ///     // Set by a proxy that has checked who it is, and that nobody gets past.
    ///     let user = asked.request.headers.get("x-forwarded-user")?.to_str().ok()?;
    ///     (asked.action != Action::Drain || user == "root").then(|| user.to_owned())
    /// });
    /// ```
    #[must_use]
    pub fn allow(
        self,
        policy: impl Fn(&Asked<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let policy: Arc<Policy> = Arc::new(policy);
        *lock(&self.0.policy) = Some(policy);
        self
    }

    /// Names the hosts by which browsers may call the service, without a port: `["queues.example.com"]`. IP addresses and
    /// `localhost` need no name. Requests by any other name are refused, as its owner could make a browser take the board for
    /// a page of theirs (DNS rebinding), and look and act with the rights of whoever is in the board's network.
    #[must_use]
    pub fn hosts(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names = names.into_iter();
        let names = names.map(|name| Into::<String>::into(name).to_ascii_lowercase());
        *lock(&self.0.hosts) = names.collect();
        self
    }

    /// Returns the pages, to be nested into a service: `app.nest_service("/queues", board.router())`.
    ///
    /// It needs a tokio runtime with a timer, which `axum::serve` has. Whoever reaches it sees keys, values and errors: put
    /// it behind the service's own layer that checks who it is.
    pub fn router<St: Clone + Send + Sync + 'static>(&self) -> Router<St> {
        web::router(self.clone())
    }

    /// Ends the live pages that are open, and those that are opened later. Otherwise they go on for as long as a browser shows
    /// them, and `with_graceful_shutdown` of axum waits for each. Actions on all dead letters stop before their next letters, and no other one
    /// begins: the runtime waits for them when it is dropped. Call it in the future that begins the shut-down:
    ///
    /// ```no_run
    /// # async fn doc(listener: tokio::net::TcpListener, app: axum::Router, board: keyqueue_board::Board) -> std::io::Result<()> {
    /// let signal = async move {
    ///     let _ = tokio::signal::ctrl_c().await;
    ///     board.close();
    /// };
    /// axum::serve(listener, app).with_graceful_shutdown(signal).await
    /// # }
    /// ```
    pub fn close(&self) {
        self.0.closed.send_replace(true);
        let queues = self.queues();
        queues
            .iter()
            .for_each(|queue| bulk::close(queue.last_job()));
        let fleets = self.fleets();
        fleets
            .iter()
            .for_each(|fleet| bulk::close(fleet.last_job()));
    }

    /// Takes a sample of each queue every second, so that pictures have no gaps where nobody has looked. Never returns;
    /// drop the future to end it.
    ///
    /// ```no_run
    /// # async fn doc(board: keyqueue_board::Board) {
    /// tokio::spawn(async move { board.record().await });
    /// # }
    /// ```
    pub async fn record(&self) {
        loop {
            let queues = self.queues();
            // A function of the user, such as a limiter, may panic in one of them.
            let look = |queue: &Entry| catch_unwind(AssertUnwindSafe(|| queue.look()));
            web::blocking(move || queues.iter().for_each(|queue| _ = look(queue))).await;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    pub(crate) fn queues(&self) -> Vec<Arc<Entry>> {
        lock(&self.0.names).queues.values().cloned().collect()
    }

    pub(crate) fn queue(&self, name: &str) -> Option<Arc<Entry>> {
        lock(&self.0.names).queues.get(name).cloned()
    }

    pub(crate) fn fleets(&self) -> Vec<Arc<Fleet>> {
        lock(&self.0.names).fleets.values().cloned().collect()
    }

    pub(crate) fn fleet(&self, name: &str) -> Option<Arc<Fleet>> {
        lock(&self.0.names).fleets.get(name).cloned()
    }

    /// Returns what has this name, of this kind.
    pub(crate) fn place(&self, kind: Kind, name: &str) -> Option<Arc<dyn Place>> {
        match kind {
            Kind::Queue => Some(self.queue(name)?),
            Kind::Fleet => Some(self.fleet(name)?),
        }
    }

    /// Keeps what was done until the browser with this token loads its next page.
    pub(crate) fn say(&self, token: &str, what: String) {
        let mut said = lock(&self.0.said);
        if said.len() == UNTOLD {
            said.pop_front();
        }
        said.push_back((token.to_owned(), what));
    }

    /// Returns what was done by the browser with this token, once.
    pub(crate) fn told(&self, token: &str) -> Vec<String> {
        let mut said = lock(&self.0.said);
        let (told, left): (VecDeque<_>, _) = said.drain(..).partition(|(of, _)| of == token);
        *said = left;
        told.into_iter().map(|(_, what)| what).collect()
    }

    /// Returns who asks, if that is allowed.
    pub(crate) fn who(&self, asked: &Asked<'_>) -> Option<String> {
        let policy = lock(&self.0.policy).clone()?;
        // It is the user's; one that panics allows nothing.
        catch_unwind(AssertUnwindSafe(|| policy(asked))).ok()?
    }
}

impl Entry {
    /// Returns the queue's numbers and a census that is as new as is reasonable, and takes a sample if that is due. `None`
    /// if the queue is gone.
    pub(crate) fn look(&self) -> Option<(Summary, Arc<Census>)> {
        let mut summary = self.source.summary()?;
        summary.name.clone_from(&self.name);
        let census = self.census(summary.state)?;
        summary.note_left(Some(&census));
        let now = Instant::now();
        let mut history = lock(&self.history);
        if history.is_due(now) {
            let totals = self.source.totals();
            history.push(Sample::new(now, summary.queued, &census, totals));
        }
        Some((summary, census))
    }

    /// Returns the queue's numbers without a look at its keys. `None` if the queue is gone.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let mut summary = self.source.summary()?;
        summary.name.clone_from(&self.name);
        // A look that somebody takes now holds the lock.
        if summary.state == Summary::SHUT_DOWN {
            let seen = lock(&self.seen);
            let last = seen.last.as_ref();
            let of_state = last.filter(|(_, state, _)| *state == summary.state);
            summary.note_left(of_state.map(|(.., census)| &**census));
        }
        Some(summary)
    }

    /// When the last look began, and what was seen last, however old.
    pub(crate) fn last(&self) -> (Option<Instant>, Option<Arc<Census>>) {
        lock(&self.last).clone()
    }

    /// Viewers share a census for as long as that keeps the looks below a share of a processor, and the queue's state is the same.
    fn census(&self, state: &'static str) -> Option<Arc<Census>> {
        let mut seen = lock(&self.seen);
        let usual = seen.usual.unwrap_or(FIRST);
        if let Some((at, of, census)) = &seen.last
            && *of == state
            && at.elapsed() < (usual * SHARE).min(STALE)
        {
            return Some(Arc::clone(census));
        }
        lock(&self.last).0 = Some(Instant::now());
        let census = Arc::new(self.source.census(ALL)?);
        lock(&self.last).1 = Some(Arc::clone(&census));
        seen.usual = Some(census.took.min(2 * usual));
        seen.last = Some((Instant::now(), state, Arc::clone(&census)));
        Some(census)
    }

    pub(crate) fn with_history<R>(&self, read: impl FnOnce(&History) -> R) -> R {
        read(&lock(&self.history))
    }
}

impl Place for Entry {
    fn letters(&self) -> Result<&dyn LetterStore, String> {
        let why = "The board does not know the dead letters of this queue.";
        self.source.letter_store().ok_or_else(|| why.into())
    }

    fn last_job(&self) -> &LastJob {
        &self.last_job
    }

    fn mark(&self) -> &str {
        &self.mark
    }

    fn key(&self, key: &KeyId) -> Result<String, Refused> {
        let row = self.source.key(key, live::FIND).ok_or(Refused::NoKey)?;
        Ok(row.key)
    }

    fn act_on_keys(&self, task: &Task) -> Result<Done, Refused> {
        self.source.act(task)
    }

    fn forget(&self) {
        lock(&self.seen).last = None;
    }
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.queues();
        let names = queues.iter().map(|queue| &*queue.name);
        f.debug_struct("Board")
            .field("queues", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
