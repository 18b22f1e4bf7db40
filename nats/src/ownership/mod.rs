//! Which replica owns which partition: the protocol, without I/O and without a clock.
//!
//! [`Member`] is one replica's part in it, a state machine. Its driver passes it what happens
//! ([`Input`]) with the time of the replica's monotonic clock, and carries out what it returns
//! ([`Action`]). `nats/model` explores it with simulated buckets, clocks and faults.
//!
//! # Records
//!
//! A bucket has one record per session and one per partition. Every write of a record is a
//! compare-and-set on its revision (0: no record), so a write that is applied late or twice
//! changes nothing that the writer has not seen. Revisions of the whole bucket only rise.
//!
//! | record | value | written by | when |
//! | --- | --- | --- | --- |
//! | session | `Live { beat }` | its replica | to begin it, and to renew its lease each lease/4 |
//! | | `Leaving { beat }` | its replica | the same, while it hands over its partitions |
//! | | `Ended` | its replica | when all is handed over |
//! | | | any other replica | when the lease has ended: this write *fences* the session |
//! | partition | `Owned { session, base }` | that session's replica | to claim it; the revision of this write and the base are the **epoch** |
//! | | `Free { base }` | its owner | when it is handed over |
//!
//! `Ended` is final: a replica whose session has ended goes on under a new session name. The
//! driver gives `Ended` records a time to live, after which they vanish. Partition records are
//! never removed, and each write keeps the base or raises it, so the epochs of a partition only rise.
//!
//! The base is 0, unless the bucket was deleted, or restored, and its revisions are lower than they were. A replica whose driver has found
//! that there was a higher epoch ([`Input::Outranked`]) claims the partition again, with that one as the base, also if it owns it already:
//! that is another ownership, which follows on the former one as after any claim.
//!
//! # Rules
//!
//! 1. A replica claims a partition only if it is dealt to it (`assign`) and its record is missing,
//!    `Free`, or names a session that the replica has seen `Ended`; the claim names the revision.
//! 2. A replica begins a delivery of a partition only if it owns it (it has seen its own claim
//!    applied, under its current session), is not handing it over, and its clock is before
//!    [`Member::may_begin_until`]: 3/4 lease after it **sent** the last renewal that is known to
//!    have been applied.
//! 3. A replica writes another session `Ended` only if it has seen that session's record unchanged
//!    for a whole lease on its own clock, counted from when it **saw** the record; the write names
//!    the revision that it saw. A session that a partition names, but whose record is missing,
//!    is observed and fenced in the same way.
//! 4. A replica writes its own session `Ended`, and a partition `Free`, only when nothing of the
//!    partitions concerned runs there any more.
//!
//! # Why two replicas never both begin deliveries of a partition
//!
//! Let A own a partition and B claim it. By rule 1 the record is `Free`, and A has finished, or A's
//! session is `Ended`, and some replica C wrote that by rule 3. C's write succeeded on the revision
//! that C had seen for a lease, so A's last applied renewal is the one that C saw. A sent it before
//! C saw it; A begins nothing after 3/4 lease on its clock since then, and C waited for a lease on
//! its own. So the rule holds as long as C's clock runs at most **4/3 times as fast** as A's: any
//! two clocks may differ in rate by a third of the slower one, or each by 1/7 of true time. The
//! clocks' readings need not agree. A pause of a replica is no exception: its clock runs on, and it
//! reads it when it begins a delivery.
//!
//! A delivery that *runs* when its replica is paused for longer than the lease is another matter:
//! only the fencing token at the resource helps there.
//!
//! # Races
//!
//! * **An acknowledgement is lost.** The write ends as `Unknown`, and the next compare-and-set may
//!   conflict with the writer's own earlier one. The replica then reads the record. A renewal of
//!   its own is adopted, and its lease counts from the time at which that very beat was sent; a
//!   claim of its current session is adopted with its revision as the epoch; a release that was
//!   applied ends the ownership.
//! * **A claim is applied after its session was fenced.** The record names a session that has
//!   ended, so anyone claims it by rule 1. The late owner begins nothing by rule 2.
//! * **A partition names a session whose record has not been seen.** A session's record is written
//!   before its first claim, but the watcher may show the claim first, since each renewal replaces
//!   the record. Missing is therefore not ended: rule 3.
//! * **A renewal is late.** The replica is suspended: it begins nothing, keeps what it owns, and
//!   goes on renewing. If the compare-and-set succeeds, nobody has fenced the session, and the
//!   replica resumes. If the session was fenced, everything is lost, and a new session begins.
//! * **The server was away.** No replica saw the others renew. A replica whose renewals were
//!   interrupted for lease/2 or more starts all observations again, so that the first replica to
//!   reconnect does not fence the others.
//! * **A server has lost the lead and does not know it.** It refuses a renewal, and an old record is read. Another bucket does the same, so the
//!   read is repeated until the lease is over, and then the replica begins again (`Member::is_older`).
//! * **Views differ.** The deal is a pure function of the records, and the watchers lag. Two
//!   replicas may want the same partition; the compare-and-set decides, and the loser hands over
//!   or waits. This costs time, never safety.

use std::time::Duration;

mod assign;
mod member;
mod requests;
mod session;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use member::Member;

/// The version of a record; 0: there is none.
pub(crate) type Revision = u64;

/// Since a start of the caller's choice, on the replica's monotonic clock.
pub(crate) type Time = Duration;

/// Names a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Session(String),
    Partition(u16),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    /// Of a session; each renewal has a higher beat.
    Live { beat: u64 },
    /// Of a session that takes no more partitions: the others deal its partitions among them.
    Leaving { beat: u64 },
    /// Of a session: it will never renew again. The driver gives it a time to live.
    Ended,
    /// Of a partition.
    Owned { session: String, base: u64 },
    /// Of a partition.
    Free { base: u64 },
}

/// What the driver passes to [`Member::step`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    /// A record as the watcher shows it, or as a read has found it. The watcher shows the versions
    /// of a record in order, may leave some out, and may lag without bound. A missing record has
    /// no value, and the revision of its delete marker, or 0.
    Seen {
        key: Key,
        value: Option<Value>,
        revision: Revision,
    },
    /// The watcher has shown everything that was in the bucket when it began. It is passed again
    /// after each restart of the watcher.
    Snapshot,
    /// The end of the write in progress of this key. Every write has to end.
    Wrote { key: Key, end: WriteEnd },
    /// Nothing of this partition runs here any more, and its consumer is gone.
    HandedOver { partition: u16, epoch: u64 },
    /// This epoch of the partition is lower than one that there was.
    Outranked { partition: u16, above: u64 },
    /// Hand over everything.
    Leave,
    /// Time has passed.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WriteEnd {
    Written(Revision),
    /// The revision is another one.
    Conflict,
    /// It may have been applied, or may still be.
    Unknown,
}

/// A partition that waits for the lease of its owner to end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) partition: u16,
    pub(crate) epoch: u64,
    /// The session of the owner.
    pub(crate) owner: String,
    /// The revision of the session's record.
    pub(crate) renewed: Revision,
    /// Since when this record was observed.
    pub(crate) since: Time,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A compare-and-set; at most one is in progress for each key.
    Write {
        key: Key,
        value: Value,
        expect: Revision,
    },
    /// Read the record from the leader; a follower may lag. The result comes as [`Input::Seen`]. If
    /// it fails, nothing needs to be done.
    Read {
        key: Key,
    },
    /// The partition is owned: receive its messages.
    Start {
        partition: u16,
        epoch: u64,
    },
    /// Begin nothing more of the partition, finish what runs, and then pass [`Input::HandedOver`].
    HandOver {
        partition: u16,
        epoch: u64,
    },
    /// The partition is no longer owned; a hand-over is over as well. The same partition may be
    /// started again under a higher epoch while deliveries of this one still run.
    Lost {
        partition: u16,
        epoch: u64,
    },
    /// A renewal is late: begin nothing until [`Action::Resumed`]. [`Member::may_begin_until`] is
    /// what counts; this reports it.
    Suspended,
    Resumed,
    /// After [`Input::Leave`]: all partitions are released, and the session has ended. No other
    /// action follows.
    Left,
}
