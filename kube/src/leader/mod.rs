//! Leader election by a Lease of `coordination.k8s.io`, as client-go does it.
//!
//! Of all candidates for a lease at most one leads at any time (K10). A leader stops at the renew
//! deadline, which is before another candidate may take the lease, whether it has noticed that it
//! cannot renew or not.
//!
//! A reconciler that blocks its thread is not interrupted: it must be done within the time
//! between the two, 5 seconds by default. No lease prevents a process that is stopped as a whole,
//! for example by a debugger, from finishing a request when it wakes.
//!
//! The deadline is on the monotonic clock, which stands still while a machine is suspended. A leader
//! that was suspended with it leads beside another one when it wakes, until it has read the lease, or for
//! what was left until the deadline.
//!
//! The candidates need the verbs `get`, `create` and `update` for `leases`.
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! use keyqueue_kube::{Controller, LeaderElection};
//! # use kube_client::{Api, Client};
//! # use kube_runtime::watcher;
//!
//! # async fn doc(client: Client) -> Result<(), keyqueue_kube::leader::Refused> {
//! let leadership = LeaderElection::new(client.clone(), "default", "copier").start()?;
//! let controller = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
//!     .leader_election(leadership);
//! # Ok(())
//! # }
//! ```

mod driver;
mod state;

use std::convert::Infallible;
use std::fmt;
use std::future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube_client::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use driver::Driver;
use state::Candidate;

/// The settings of a candidate for a lease.
#[must_use = "a candidate does nothing until `start` is called"]
pub struct LeaderElection {
    client: Client,
    namespace: String,
    name: String,
    identity: String,
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl LeaderElection {
    /// Creates a candidate for the lease `name` in `namespace`, which is created if there is none.
    pub fn new(client: Client, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        LeaderElection {
            client,
            namespace: namespace.into(),
            name: name.into(),
            identity: unique(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Sets the name of this candidate, which no other candidate may have. Default: the name of the
    /// host and a random number.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    /// Sets how long the lease must have been unchanged before another candidate takes it: at least
    /// a second, and longer than the renew deadline. Default: 15 s. All candidates should have the
    /// same.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.lease_duration = duration;
        self
    }

    /// Sets for how long after its last renewal a leader leads: at least 100 ms, and 1.2 times the retry
    /// period. Default: 10 s.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.renew_deadline = deadline;
        self
    }

    /// Sets the time between two tries to acquire or renew the lease: above 0. Default: 2 s.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.retry_period = period;
        self
    }

    /// Starts a task that acquires the lease, renews it, and releases it when the last clone of the
    /// returned handle is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error that names a setting which is out of its range.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with time enabled.
    pub fn start(self) -> Result<Leadership, Refused> {
        self.check()?;
        let (leads_until, receiver) = watch::channel(None);
        let (handle, handles) = mpsc::channel(1);
        let terms = Arc::new(AtomicU64::new(0));
        let leadership = Leadership {
            identity: self.identity.as_str().into(),
            leads_until: receiver,
            terms: Arc::clone(&terms),
            handle,
        };
        let (lease_duration, renew_deadline) = (self.lease_duration, self.renew_deadline);
        let driver = Driver {
            leases: Api::<Lease>::namespaced(self.client, &self.namespace),
            name: self.name,
            candidate: Candidate::new(self.identity.clone(), lease_duration, renew_deadline),
            identity: self.identity,
            lease_duration,
            retry_period: self.retry_period,
            // A try that gets no reply leaves time for another one before the deadline, if the retry period is short.
            request_limit: renew_deadline / 2,
            leads_until,
            terms,
            unconfirmed: None,
            told: (false, String::new()),
        };
        tokio::spawn(driver.run(handles));
        Ok(leadership)
    }

    fn check(&self) -> Result<(), Refused> {
        let second = Duration::from_secs(1);
        let rules = [
            ("namespace", !self.namespace.is_empty(), "must not be empty"),
            ("name", !self.name.is_empty(), "must not be empty"),
            ("identity", !self.identity.is_empty(), "must not be empty"),
            (
                "lease_duration",
                self.lease_duration >= second,
                "must be at least a second",
            ),
            (
                "lease_duration",
                self.lease_duration > self.renew_deadline,
                "must be longer than `renew_deadline`",
            ),
            (
                "lease_duration",
                self.lease_duration <= i32::MAX as u32 * second,
                "must be at most 2147483647 seconds, as in a lease",
            ),
            (
                "renew_deadline",
                self.retry_period.saturating_mul(6) <= self.renew_deadline.saturating_mul(5),
                "must be at least 1.2 times `retry_period`",
            ),
            (
                "renew_deadline",
                self.renew_deadline >= second / 10,
                "must be at least 100 ms",
            ),
            (
                "retry_period",
                !self.retry_period.is_zero(),
                "must be above 0",
            ),
        ];
        let broken = rules.into_iter().find(|(_, is_met, _)| !is_met);
        match broken {
            Some((field, _, requirement)) => Err(Refused { field, requirement }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .field("identity", &self.identity)
            .field("lease_duration", &self.lease_duration)
            .field("renew_deadline", &self.renew_deadline)
            .field("retry_period", &self.retry_period)
            .finish_non_exhaustive()
    }
}

/// A setting of [`LeaderElection`] that [`start`](LeaderElection::start) refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election `{field}` {requirement}")]
pub struct Refused {
    field: &'static str,
    requirement: &'static str,
}

impl Refused {
    /// Returns the name of the setting.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }
}

/// A handle to a candidate for a lease, from [`LeaderElection::start`].
///
/// The candidate goes on as long as there is a clone of it. Then the lease is released, so that
/// another candidate takes it at its next try. Controllers keep a clone until their last
/// reconciliation has ended.
#[derive(Clone)]
pub struct Leadership {
    identity: Arc<str>,
    leads_until: watch::Receiver<Option<Instant>>,
    terms: Arc<AtomicU64>,
    handle: mpsc::Sender<Infallible>,
}

impl Leadership {
    /// Returns the name of this candidate.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns whether this candidate leads now.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leads_until
            .borrow()
            .is_some_and(|end| Instant::now() < end)
    }

    /// Returns a number that is another one if another candidate may have led since the last call.
    pub(crate) fn terms(&self) -> u64 {
        // Ordering: Relaxed; `leads_until`, which the caller has looked at, orders it.
        self.terms.load(Ordering::Relaxed)
    }

    /// Waits until this candidate leads, which it may do already.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn acquired(&self) {
        let mut leads_until = self.leads_until.clone();
        while !self.is_leader() {
            if leads_until.changed().await.is_err() {
                // The runtime of the task ends.
                future::pending::<()>().await;
            }
        }
    }

    /// Waits until this candidate does not lead, which may be so already.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) {
        self.lost_since(None).await;
    }

    /// The same, or until another candidate may have led since there were this many [terms](Self::terms).
    pub(crate) async fn lost_since(&self, terms: Option<u64>) {
        let mut leads_until = self.leads_until.clone();
        loop {
            let end = *leads_until.borrow_and_update();
            if terms.is_some_and(|terms| terms != self.terms()) {
                return;
            }
            let Some(end) = end.filter(|end| Instant::now() < *end) else {
                return;
            };
            tokio::select! {
                () = sleep_until(end) => {}
                changed = leads_until.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until the lease is released, which happens after all other clones are dropped and a
    /// request that is in flight has ended, or after the renew deadline at the latest. For the
    /// end of a program: without it, the runtime may end before the release is sent, and another
    /// candidate waits for the lease's duration.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handle, and the release goes on.
    pub async fn release(self) {
        let mut leads_until = self.leads_until.clone();
        drop(self);
        while leads_until.changed().await.is_ok() {}
    }

    /// Releases the lease if there is no other clone.
    pub(crate) async fn release_if_last(self) {
        let (others, mut leads_until) = (self.handle.downgrade(), self.leads_until.clone());
        // Before the count: of two that end at once, at least one sees that there is no other.
        drop(self);
        if others.strong_count() == 0 {
            while leads_until.changed().await.is_ok() {}
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("identity", &self.identity)
            .field("is_leader", &self.is_leader())
            .finish()
    }
}

/// Returns a name that no other process has.
fn unique() -> String {
    let host = hostname::get().unwrap_or_default();
    // The standard library's only source of random numbers.
    let random = RandomState::new().build_hasher().finish();
    format!("{}_{random:016x}", host.to_string_lossy())
}
