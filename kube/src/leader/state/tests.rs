//! Two candidates and a server, in random schedules: K10.

use std::time::Duration;

use tokio::time::Instant;

use super::{Candidate, Seen, Step};

const LEASE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(10);

/// The lease at the server.
#[derive(Clone, Default)]
struct Lease {
    holder: String,
    version: u64,
}

impl Lease {
    fn observed_by(&self, candidate: &mut Candidate, now: Instant) -> Step {
        let version = self.version.to_string();
        let seen = Seen {
            holder: &self.holder,
            version: &version,
            duration: LEASE,
        };
        candidate.observe(now, (self.version > 0).then_some(seen))
    }
}

/// What a candidate does next.
enum Doing {
    Nothing,
    /// Its read has reached the server, which sent this.
    Reading(Lease),
    /// It has sent a write at this time, for the lease of this version.
    Sending(Instant, u64),
    /// The server has replied to its write.
    Writing(Instant, bool),
}

struct Process {
    name: &'static str,
    candidate: Candidate,
    doing: Doing,
    /// It is stopped until then, for example by its host.
    awake_at: Instant,
}

impl Process {
    fn leads(&self, now: Instant) -> bool {
        self.candidate.leads_until().is_some_and(|end| now < end)
    }

    /// Does the next step: each may come any time after the last, as if the process, the network or
    /// the server had been stopped in between.
    fn step(&mut self, now: Instant, lease: &mut Lease, random: &mut fastrand::Rng) {
        self.doing = match &self.doing {
            // The process was replaced by a new one with the same name, which knows nothing.
            _ if random.u8(..) == 0 && !self.leads(now) => {
                self.candidate = Candidate::new(self.name.into(), LEASE, DEADLINE);
                Doing::Nothing
            }
            Doing::Nothing => Doing::Reading(lease.clone()),
            Doing::Reading(read) => match read.observed_by(&mut self.candidate, now) {
                Step::Wait => Doing::Nothing,
                Step::Take | Step::Renew => Doing::Sending(now, read.version),
            },
            Doing::Sending(sent, version) => {
                let is_written = lease.version == *version;
                if is_written {
                    *lease = Lease {
                        holder: self.name.to_owned(),
                        version: lease.version + 1,
                    };
                }
                Doing::Writing(*sent, is_written)
            }
            Doing::Writing(sent, is_written) => {
                // A reply may be lost.
                if *is_written && random.u8(..) > 20 {
                    self.candidate.wrote(*sent);
                }
                Doing::Nothing
            }
        };
    }
}

/// Runs random schedules; returns how often the leader changed, and how often there were two.
fn run(steps: u32, seed: u64) -> (u32, u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut now = Instant::now();
    let mut lease = Lease::default();
    let start = now;
    let process = |name: &'static str| Process {
        name,
        candidate: Candidate::new(name.into(), LEASE, DEADLINE),
        doing: Doing::Nothing,
        awake_at: start,
    };
    let mut processes = [process("a"), process("b"), process("c")];
    let (mut leader, mut changes, mut both) = (None, 0, 0);
    for _ in 0..steps {
        now += Duration::from_millis(random.u64(0..400));
        let process = &mut processes[random.usize(..3)];
        if now < process.awake_at {
            continue;
        }
        process.step(now, &mut lease, &mut random);
        if random.u8(..30) == 0 {
            process.awake_at = now + Duration::from_millis(random.u64(0..45_000));
        }
        let leading: Vec<_> = processes
            .iter()
            .filter(|process| process.leads(now))
            .collect();
        both += u32::from(leading.len() > 1);
        if let [process] = leading[..]
            && leader != Some(process.name)
        {
            leader = Some(process.name);
            changes += 1;
        }
    }
    (changes, both)
}

/// K10
#[test]
fn two_candidates_never_lead_at_once() {
    for seed in 0..200 {
        let (changes, both) = run(5_000, seed);
        assert_eq!(both, 0, "seed {seed}");
        assert!(
            changes > 5,
            "seed {seed}: the leader changed {changes} times only"
        );
    }
}

fn at(seconds: u64) -> impl Fn(Instant) -> Instant {
    move |start| start + Duration::from_secs(seconds)
}

/// K10
#[test]
fn the_lease_of_another_is_taken_when_it_has_not_changed_for_its_duration() {
    let start = Instant::now();
    let mut candidate = Candidate::new("a".into(), LEASE, DEADLINE);
    let mut lease = Lease {
        holder: "b".into(),
        version: 1,
    };
    let mut step = |seconds, lease: &Lease| lease.observed_by(&mut candidate, at(seconds)(start));
    assert_eq!(step(0, &lease), Step::Wait);
    assert_eq!(step(14, &lease), Step::Wait);
    lease.version = 2;
    assert_eq!(step(15, &lease), Step::Wait);
    assert_eq!(step(29, &lease), Step::Wait);
    assert_eq!(step(30, &lease), Step::Take);
}

/// K10
#[test]
fn a_released_lease_is_taken_at_once_and_a_deleted_one_after_its_duration() {
    let start = Instant::now();
    let mut candidate = Candidate::new("a".into(), LEASE, DEADLINE);
    let released = Lease {
        holder: String::new(),
        version: 7,
    };
    assert_eq!(released.observed_by(&mut candidate, start), Step::Take);
    let deleted = Lease::default();
    assert_eq!(
        deleted.observed_by(&mut candidate, at(1)(start)),
        Step::Wait
    );
    assert_eq!(
        deleted.observed_by(&mut candidate, at(16)(start)),
        Step::Take
    );
    let mut new = Candidate::new("c".into(), LEASE, DEADLINE);
    assert_eq!(deleted.observed_by(&mut new, start), Step::Take);
}

/// K10
#[test]
fn a_create_that_failed_is_tried_again_at_the_next_try() {
    let start = Instant::now();
    let mut candidate = Candidate::new("a".into(), LEASE, DEADLINE);
    let none = Lease::default();
    assert_eq!(none.observed_by(&mut candidate, start), Step::Take);
    assert_eq!(none.observed_by(&mut candidate, at(2)(start)), Step::Take);
}

/// K10
#[test]
fn a_candidate_that_finds_another_holder_stops_leading() {
    let start = Instant::now();
    let mut candidate = Candidate::new("a".into(), LEASE, DEADLINE);
    candidate.wrote(start);
    assert_eq!(candidate.leads_until(), Some(at(10)(start)));
    let lease = Lease {
        holder: "b".into(),
        version: 3,
    };
    assert_eq!(lease.observed_by(&mut candidate, at(1)(start)), Step::Wait);
    assert_eq!(candidate.leads_until(), None);
}

/// K10: the holder may have been told another duration.
#[test]
fn the_longer_of_two_durations_counts() {
    let start = Instant::now();
    for (theirs, takes_at) in [(30, 30), (5, 15), (0, 15)] {
        let mut candidate = Candidate::new("a".into(), LEASE, DEADLINE);
        let lease = Seen {
            holder: "b",
            version: "1",
            duration: Duration::from_secs(theirs),
        };
        let mut step = |seconds| candidate.observe(at(seconds)(start), Some(lease));
        assert_eq!(step(0), Step::Wait);
        assert_eq!(step(takes_at - 1), Step::Wait);
        assert_eq!(step(takes_at), Step::Take);
    }
}
