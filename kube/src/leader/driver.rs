//! The task of a candidate: reads and writes the lease.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube_client::api::{ObjectMeta, PostParams};
use kube_client::{Api, Error};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::state::{Candidate, Seen, Step};

const CONFLICT: u16 = 409;
const TOO_MANY_REQUESTS: u16 = 429;
/// Between two tries to release a lease that somebody else writes.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Driver {
    pub(super) leases: Api<Lease>,
    pub(super) name: String,
    pub(super) candidate: Candidate,
    pub(super) identity: String,
    pub(super) lease_duration: Duration,
    pub(super) retry_period: Duration,
    /// The longest time of one try.
    pub(super) request_limit: Duration,
    pub(super) leads_until: watch::Sender<Option<Instant>>,
    /// As the candidate counts them. Ahead of `leads_until`.
    pub(super) terms: Arc<AtomicU64>,
    /// When the last write was sent that the server may apply yet, or has applied and not said so.
    pub(super) unconfirmed: Option<Instant>,
    /// What was traced last: whether this candidate leads, and who holds the lease.
    pub(super) told: (bool, String),
}

impl Driver {
    /// Runs until all handles are dropped, then releases the lease.
    pub(super) async fn run(mut self, mut handles: mpsc::Receiver<Infallible>) {
        loop {
            // To its end: the server may apply a request that is dropped after `release` has read
            // the lease.
            self.limited_try().await;
            if timeout(self.retry_period, handles.recv()).await.is_ok() {
                break;
            }
        }
        self.leads_until.send_replace(None);
        let limit = self.request_limit;
        if timeout(limit, self.try_to_release()).await.is_err() {
            tracing::warn!(lease = self.name, "it was not released in time");
        }
    }

    /// Releases the lease, with another try after an error that may pass, if this candidate may hold it. The write is
    /// conditional, so it may be repeated.
    async fn try_to_release(&mut self) {
        let may_hold = (self.candidate).may_hold(self.unconfirmed, Instant::now());
        while let Err(error) = self.release().await {
            tracing::warn!(%error, lease = self.name, "it was not released");
            if !may_hold || is_final(&error) {
                break;
            }
            sleep(self.retry_period.min(self.request_limit / 4)).await;
        }
    }

    async fn limited_try(&mut self) {
        match timeout(self.request_limit, self.acquire_or_renew()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, lease = self.name, "a try failed"),
            Err(_) => tracing::warn!(lease = self.name, "a try took too long"),
        }
        self.tell();
    }

    /// Traces whether this candidate leads, if that has changed.
    fn tell(&mut self) {
        let leads = self.leads();
        if leads != std::mem::replace(&mut self.told.0, leads) {
            tracing::info!(
                lease = self.name,
                identity = self.identity,
                leads,
                "the leader changed"
            );
        }
    }

    fn leads(&self) -> bool {
        let end = self.candidate.leads_until();
        end.is_some_and(|end| Instant::now() < end)
    }

    async fn acquire_or_renew(&mut self) -> Result<(), Error> {
        let lease = self.leases.get_opt(&self.name).await?;
        let step = self
            .candidate
            .observe(Instant::now(), lease.as_ref().map(seen));
        self.leads_until.send_replace(self.candidate.leads_until());
        let holder = lease.as_ref().map_or("", |lease| seen(lease).holder);
        if holder != self.told.1 {
            holder.clone_into(&mut self.told.1);
            tracing::info!(lease = self.name, holder, "the lease has another holder");
        }
        if step == Step::Wait {
            return Ok(());
        }
        let next = self.written(lease.as_ref(), step);
        // Before the request: the time until the deadline has begun when another candidate sees it.
        let sent = Instant::now();
        let before = self.unconfirmed.replace(sent);
        let written = match lease {
            None => self.leases.create(&PostParams::default(), &next).await,
            Some(_) => {
                self.leases
                    .replace(&self.name, &PostParams::default(), &next)
                    .await
            }
        };
        match &written {
            Ok(_) => self.unconfirmed = None,
            // It was refused. What it conflicts with may be an earlier one.
            Err(error) if is_final(error) => self.unconfirmed = before,
            Err(_) => {}
        }
        match written {
            Ok(_) => {
                // It may have run out since the last write, and begins anew.
                self.tell();
                self.candidate.wrote(sent);
                // Ordering: Relaxed; the channel orders it.
                self.terms.store(self.candidate.terms(), Ordering::Relaxed);
                self.leads_until.send_replace(self.candidate.leads_until());
                Ok(())
            }
            // Another candidate was faster. The next try reads its name.
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the lease with this candidate as its holder. It has the version that was read, so a
    /// server that has another one refuses it.
    fn written(&self, lease: Option<&Lease>, step: Step) -> Lease {
        let now = MicroTime(Timestamp::now());
        let mut next = lease.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        });
        let spec = next.spec.get_or_insert_default();
        if step == Step::Take {
            let before = spec.lease_transitions;
            spec.lease_transitions = Some(before.map_or(0, |before| before.saturating_add(1)));
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(self.identity.clone());
        let whole =
            self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        spec.lease_duration_seconds = Some(i32::try_from(whole).unwrap_or(i32::MAX));
        spec.renew_time = Some(now);
        next
    }

    /// Removes this candidate from the lease, if it holds it.
    async fn release(&mut self) -> Result<(), Error> {
        loop {
            let lease = self.leases.get_opt(&self.name).await?;
            let holds = |lease: &Lease| seen(lease).holder == self.identity;
            let Some(mut lease) = lease.filter(holds) else {
                if self.unconfirmed.take().is_none() {
                    return Ok(());
                }
                // Once more, because the write may be applied yet.
                sleep(self.retry_period.min(self.request_limit / 2)).await;
                continue;
            };
            let now = MicroTime(Timestamp::now());
            lease.spec = Some(LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                ..lease.spec.unwrap_or_default()
            });
            let released = (self.leases)
                .replace(&self.name, &PostParams::default(), &lease)
                .await;
            match released {
                // It was written since it was read, perhaps by a renewal.
                Err(error) if is_conflict(&error) => sleep(PAUSE).await,
                released => return released.map(drop),
            }
        }
    }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == CONFLICT)
}

/// The next try would get this error, too: the role is deleted, for example.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Api(status) if (400..500).contains(&status.code) && status.code != TOO_MANY_REQUESTS)
}

fn seen(lease: &Lease) -> Seen<'_> {
    let spec = lease.spec.as_ref();
    let seconds = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .unwrap_or(0);
    Seen {
        holder: spec
            .and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or(""),
        version: lease.metadata.resource_version.as_deref().unwrap_or(""),
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
    }
}
