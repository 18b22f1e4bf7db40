//! One candidate for a lease: a pure state machine, in which the time is an argument.
//!
//! The protocol is client-go's (`tools/leaderelection`). No clock is compared with another: a
//! candidate notes on its own monotonic clock when it has seen a version of the lease for the first
//! time, and takes over when that version has not changed for the lease's duration.
//!
//! Why two candidates never lead at once: let A renew by a request that it sends at `s`. A leads
//! until `s + renew_deadline`. Any other candidate B sees the version that A wrote no earlier than
//! `s`, and takes over no earlier than `s + lease_duration`, which is later. All writes are
//! conditional on the version that was read, so of two candidates that take over at once one fails.
//! A reads its clock before it sends, and B after it has received, so slow requests only make the
//! gap longer. This assumes that monotonic clocks run at the same rate, within the ratio of the two
//! durations. The clock of a leader whose machine is suspended stands still, which breaks it.
//!
//! A lease that is deleted by hand breaks the record: a candidate that has seen it before waits for
//! the duration, but one that starts afterwards does not know that there was one.

use std::time::Duration;

use tokio::time::Instant;

/// The lease as a candidate reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'l> {
    /// Empty after a release.
    pub(super) holder: &'l str,
    /// Changes with every write.
    pub(super) version: &'l str,
    pub(super) duration: Duration,
}

/// What a candidate does about the lease that it has read, if its version is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: another one holds it.
    Wait,
    /// Write itself into it as a new holder.
    Take,
    /// Write it again as its holder.
    Renew,
}

pub(super) struct Candidate {
    identity: String,
    lease_duration: Duration,
    renew_deadline: Duration,
    /// The last version that was seen, and when it was seen first. Empty: there was no lease.
    seen: Option<(String, Instant)>,
    /// There was a lease, ever.
    knows_of_one: bool,
    /// When it was read last, and this candidate has not written it since.
    is_anothers: bool,
    terms: u64,
    leads_until: Option<Instant>,
}

impl Candidate {
    pub(super) fn new(
        identity: String,
        lease_duration: Duration,
        renew_deadline: Duration,
    ) -> Self {
        Candidate {
            identity,
            lease_duration,
            renew_deadline,
            seen: None,
            knows_of_one: false,
            is_anothers: false,
            terms: 0,
            leads_until: None,
        }
    }

    /// Returns until when this candidate leads, if it does.
    pub(super) fn leads_until(&self) -> Option<Instant> {
        self.leads_until
    }

    /// Returns how many times this candidate has begun to lead when another one may have led before.
    pub(super) fn terms(&self) -> u64 {
        self.terms
    }

    /// Returns whether a lease that this candidate wrote may not have run out at `now`. `unconfirmed` is when it sent a write that the
    /// server may have applied and not said so.
    pub(super) fn may_hold(&self, unconfirmed: Option<Instant>, now: Instant) -> bool {
        let confirmed = self.leads_until.map(|end| end - self.renew_deadline);
        let last = confirmed.max(unconfirmed);
        last.is_some_and(|sent| now < sent + self.lease_duration)
    }

    /// Returns what to do about the lease that was received at `now`; `None` if there is none.
    pub(super) fn observe(&mut self, now: Instant, lease: Option<Seen<'_>>) -> Step {
        self.knows_of_one |= lease.is_some();
        let version = lease.map_or("", |lease| lease.version);
        let since = match &self.seen {
            Some((seen, since)) if seen == version => *since,
            _ => {
                self.seen = Some((version.to_owned(), now));
                now
            }
        };
        let duration = match lease {
            Some(lease) if lease.holder == self.identity => return Step::Renew,
            // It was deleted while this candidate led.
            None if self.leads_until.is_some_and(|end| now < end) => return Step::Take,
            None if !self.knows_of_one => return Step::Take,
            None => self.lease_duration,
            Some(lease) if lease.holder.is_empty() => Duration::ZERO,
            Some(lease) => lease.duration.max(self.lease_duration),
        };
        self.is_anothers = true;
        self.leads_until = None;
        match now.duration_since(since) >= duration {
            true => Step::Take,
            false => Step::Wait,
        }
    }

    /// Notes that the lease was written, by a request that was sent at `sent`.
    pub(super) fn wrote(&mut self, sent: Instant) {
        self.leads_until = Some(sent + self.renew_deadline);
        self.terms += u64::from(std::mem::take(&mut self.is_anothers));
    }
}

#[cfg(test)]
mod tests;
