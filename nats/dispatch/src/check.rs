//! Judges a run by what the producer and the replicas have written down, and by what the receiver has seen.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use keyqueue_nats::Coalesce;

use crate::beginnings::{self, threads};
use crate::receiver::{Call, End, Report};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The receiver's address
    #[arg(long)]
    receiver: String,
    /// The directory with the log of the producer, `stored`, and those of the replicas, `*.begun`
    #[arg(long)]
    directory: PathBuf,
}

/// Prints the verdict on replicas none of which was killed or stopped, and fails if there are violations.
pub async fn run(options: Options) -> Result<()> {
    let report = fetch(&options.receiver).await?;
    let verdict = Verdict::of(&Evidence {
        directory: &options.directory,
        report: &report,
        disturbed: &Disturbed::new(),
        dead: &Dead::new(),
        coalesce: Coalesce::Server,
    })?;
    println!("{verdict}");
    ensure!(verdict.violations.is_empty(), "there are violations");
    Ok(())
}

/// Reads what the receiver has seen until now.
pub async fn fetch(receiver: &str) -> Result<Report> {
    let text = reqwest::get(format!("http://{receiver}/report"))
        .await?
        .text()
        .await?;
    Ok(serde_json::from_str(&text)?)
}

/// A replica that was killed or stopped, and when, on the machine's clock.
pub type Disturbed = BTreeMap<String, u64>;

/// The sequences of dead letters, by endpoint.
pub type Dead = BTreeMap<String, BTreeSet<u64>>;

/// What a verdict is about.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// With the log of the producer, and those of the replicas.
    pub directory: &'a Path,
    pub report: &'a Report,
    pub disturbed: &'a Disturbed,
    pub dead: &'a Dead,
    /// With [`Coalesce::Never`] every message has to be delivered, otherwise the last one of each endpoint.
    pub coalesce: Coalesce,
}

/// How long the acknowledgement of a call takes at most to reach the server, in nanoseconds. A replica that is killed
/// sooner may not have sent it, and its successor cannot know of the call.
const UNACKNOWLEDGED: u64 = 1_000_000_000;
/// How long a call takes at most to reach the receiver, in nanoseconds: much less than a process is stopped.
const ARRIVING: u64 = 1_000_000_000;

/// What happened. `violations` should be empty.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Messages that the server has stored.
    pub stored: usize,
    pub endpoints: usize,
    pub calls: usize,
    pub failed: usize,
    /// Calls that were refused for their fence.
    pub fenced: usize,
    /// Calls whose connection broke.
    pub cut: usize,
    /// Overlaps with a call of a process that was stopped or killed meanwhile, which has the lower fence.
    pub excused: usize,
    /// Beginnings of a process that was stopped before it could write them down, which has the lower epoch.
    pub late: usize,
    /// Calls of an older message than one of a replica that was stopped or killed before its acknowledgement was sent,
    /// under a lower fence.
    pub unacknowledged: usize,
    /// Messages that were delivered with success more than once.
    pub repeated: usize,
    pub violations: Vec<String>,
}

impl Verdict {
    pub fn of(evidence: &Evidence<'_>) -> Result<Self> {
        let mut verdict = Verdict {
            endpoints: evidence.report.len(),
            ..Verdict::default()
        };
        verdict.check_stored(evidence)?;
        let heard = heard(evidence.directory)?;
        for (endpoint, calls) in evidence.report {
            verdict.check_calls(endpoint, calls, evidence.disturbed);
            let heard = heard.get(endpoint).map_or(&[][..], Vec::as_slice);
            verdict.check_order(endpoint, calls, evidence.disturbed, heard);
        }
        let of_replicas = beginnings::read(evidence.directory)?;
        let (late, violations) = beginnings::check(of_replicas, evidence.disturbed, threads());
        verdict.late = late;
        verdict.violations.extend(violations);
        Ok(verdict)
    }

    /// The last stored message of each endpoint is covered by a call that succeeded, or by a dead letter; with
    /// [`Coalesce::Never`] every one is.
    fn check_stored(&mut self, evidence: &Evidence<'_>) -> Result<()> {
        let mut stored = BTreeMap::<&str, BTreeMap<u64, u64>>::new();
        let log = fs::read_to_string(evidence.directory.join("stored"))?;
        for line in log.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [endpoint, sequence, number] = words[..] else {
                bail!("an endpoint and two numbers: {line}");
            };
            let of_endpoint = stored.entry(endpoint).or_default();
            of_endpoint.insert(sequence.parse()?, number.parse()?);
            self.stored += 1;
        }
        for (endpoint, numbers) in stored {
            let calls = evidence.report.get(endpoint).map_or(&[][..], Vec::as_slice);
            for call in calls {
                let number = numbers.get(&call.latest()).copied();
                if number.is_some() && call.state != number {
                    self.violations.push(format!(
                        "{endpoint}: the state of its last message is {number:?}: {call:?}"
                    ));
                }
            }
            let sequences: BTreeSet<u64> = numbers.into_keys().collect();
            let done = calls.iter().filter(|call| call.end == End::Done);
            let mut covered: BTreeSet<u64> = done.flat_map(|call| call.sequences.clone()).collect();
            covered.extend(evidence.dead.get(endpoint).into_iter().flatten());
            let up_to = covered.last().copied().unwrap_or(0);
            let missing: Vec<_> = match evidence.coalesce {
                Coalesce::Never => sequences.difference(&covered).collect(),
                _ => sequences
                    .last()
                    .filter(|last| **last > up_to)
                    .into_iter()
                    .collect(),
            };
            if !missing.is_empty() {
                self.violations.push(format!(
                    "{endpoint}: {missing:?} are stored and not delivered, which was up to {up_to}"
                ));
            }
        }
        Ok(())
    }

    /// N7: no call that took effect began after one of a later message had taken effect, and the last one is of the last
    /// message. A call whose replica has not heard of its end, because it was starved, stopped or killed, has failed for it: all
    /// its messages come again.
    fn check_order(
        &mut self,
        endpoint: &str,
        calls: &[Call],
        disturbed: &Disturbed,
        heard: &[Heard],
    ) {
        let heard = |call: &Call| {
            let mut of_it = heard.iter().filter(|(replica, _)| *replica == call.replica);
            let (_, time) = of_it.find(|(_, time)| time.contains(&call.began))?;
            Some(*time.end())
        };
        let done: Vec<_> = calls.iter().filter(|call| call.end == End::Done).collect();
        for old in &done {
            let ended_before = |new: &&Call| new.ended.is_some_and(|ended| ended < old.began);
            let newer = done.iter().copied().filter(ended_before);
            let newer = newer.filter(|new| heard(new).is_some());
            let newer: Vec<_> = newer.filter(|new| new.latest() > old.oldest()).collect();
            // Its replica may never have sent the acknowledgement, and this is a later owner. A call may reach the receiver
            // after its replica was killed.
            let is_excused = |new: &Call| {
                let ended = heard(new).unwrap_or(u64::MAX);
                let around = new.began.saturating_sub(UNACKNOWLEDGED)
                    ..ended.saturating_add(UNACKNOWLEDGED).min(old.began);
                let stopped = disturbed.get(&new.replica);
                new.epoch < old.epoch && stopped.is_some_and(|stopped| around.contains(stopped))
            };
            match newer.iter().find(|new| !is_excused(new)) {
                Some(new) => self.violations.push(format!(
                    "{endpoint}: old after new: {old:?} began after {new:?}"
                )),
                None => self.unacknowledged += usize::from(!newer.is_empty()),
            }
        }
        let last = done.iter().max_by_key(|call| call.ended);
        let newest = done.iter().max_by_key(|call| call.latest());
        if let (Some(last), Some(newest)) = (last, newest)
            && last.latest() < newest.latest()
        {
            self.violations.push(format!(
                "{endpoint}: finally old: {last:?} is the last call, {newest:?} was before"
            ));
        }
    }

    fn check_calls(&mut self, endpoint: &str, calls: &[Call], disturbed: &Disturbed) {
        for (index, call) in calls.iter().enumerate() {
            let (before, after) = (&calls[..index], &calls[index + 1..]);
            self.calls += 1;
            match call.end {
                End::Open => self.cut += 1,
                End::Failed => self.failed += 1,
                End::Fenced => self.fenced += 1,
                End::Done => {}
            }
            if call.end == End::Done && before.iter().any(|other| other.takes_effect_of(call)) {
                self.repeated += 1;
            }
            // A call that takes effect has the highest fence of all that began before it ended.
            let ended = call.ended.unwrap_or(u64::MAX);
            let overlapping = after.iter().take_while(|other| other.began < ended);
            let mut seen = before.iter().chain(overlapping.clone());
            if call.end == End::Done && seen.any(|other| other.epoch > call.epoch) {
                self.violations.push(format!(
                    "{endpoint}: took effect under an old fence: {call:?}"
                ));
            }
            for later in
                overlapping.filter(|other| other.epoch != call.epoch || call.end != End::Fenced)
            {
                // It ran when its process was stopped, or was on its way to the receiver, and its fence is lower; the other one began after.
                let stopped = disturbed.get(&call.replica);
                let ran = stopped.is_some_and(|stopped| {
                    call.began <= stopped + ARRIVING && *stopped <= later.began
                });
                // Or it is one that began when its process woke ([`beginnings`]).
                let is_late = |old: &Call, new: &Call| {
                    let stopped = disturbed.get(&old.replica);
                    old.epoch < new.epoch
                        && old.end == End::Fenced
                        && stopped.is_some_and(|stopped| *stopped < old.began)
                };
                if ran && call.epoch < later.epoch || is_late(call, later) || is_late(later, call) {
                    self.excused += 1;
                } else {
                    self.violations
                        .push(format!("{endpoint}: {call:?} overlaps {later:?}"));
                }
            }
        }
    }
}

/// A replica that has heard of the end of a call, and from when to when the call has run.
type Heard = (String, RangeInclusive<u64>);

/// The calls of whose end the replicas have written down that they have heard, by endpoint.
fn heard(directory: &Path) -> Result<BTreeMap<String, Vec<Heard>>> {
    let mut heard = BTreeMap::<_, Vec<Heard>>::new();
    for (replica, log) in logs(directory)? {
        for line in log.lines().filter_map(|line| line.strip_prefix("heard ")) {
            let words: Vec<&str> = line.split(' ').collect();
            let [endpoint, began, ended] = words[..] else {
                bail!("an endpoint and two numbers: {line}");
            };
            let time = began.parse()?..=ended.parse()?;
            let of_endpoint = heard.entry(endpoint.to_owned()).or_default();
            of_endpoint.push((replica.clone(), time));
        }
    }
    Ok(heard)
}

/// The logs of the replicas, and their names.
pub(crate) fn logs(directory: &Path) -> Result<Vec<(String, String)>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if let (Some(name), Some("begun")) =
            (path.file_stem(), path.extension().and_then(OsStr::to_str))
        {
            let name = name.to_string_lossy().into_owned();
            logs.push((name, fs::read_to_string(&path)?));
        }
    }
    Ok(logs)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} messages stored, {} calls of {} endpoints",
            self.stored, self.calls, self.endpoints
        )?;
        writeln!(
            f,
            "{} failed, {} cut off, {} refused for their fence, {} repeated, {} overlaps with stopped processes, {} begun by them, {} older after unacknowledged",
            self.failed,
            self.cut,
            self.fenced,
            self.repeated,
            self.excused,
            self.late,
            self.unacknowledged
        )?;
        for violation in self.violations.iter().take(20) {
            writeln!(f, "VIOLATION {violation}")?;
        }
        write!(f, "{} violations", self.violations.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that took effect, of 10 ms.
    fn call(replica: &str, epoch: u64, sequences: &[u64], began_ms: u64) -> Call {
        Call {
            replica: replica.to_owned(),
            epoch,
            sequences: sequences.to_vec(),
            state: None,
            began: began_ms * 1_000_000,
            ended: Some((began_ms + 10) * 1_000_000),
            end: End::Done,
        }
    }

    fn order(calls: &[Call], disturbed: &Disturbed) -> Verdict {
        order_of_heard(calls, disturbed, calls)
    }

    fn order_of_heard(calls: &[Call], disturbed: &Disturbed, heard: &[Call]) -> Verdict {
        let heard = heard.iter().map(|call| {
            let ended = call.ended.unwrap_or(call.began);
            (call.replica.clone(), call.began..=ended)
        });
        let mut verdict = Verdict::default();
        let heard: Vec<_> = heard.collect();
        verdict.check_order("endpoint", calls, disturbed, &heard);
        verdict
    }

    #[test]
    fn what_has_succeeded_without_its_replica_knowing_comes_again() {
        let calls = [0, 20, 40].map(|began| call("a", 1, &[5, 7], began));
        let violations = |calls: &[Call], heard: &[Call]| {
            let verdict = order_of_heard(calls, &Disturbed::new(), heard);
            verdict.violations.len()
        };
        assert_eq!(violations(&calls[..2], &calls), 1);
        assert_eq!(violations(&calls[..2], &calls[1..]), 0);
        assert_eq!(violations(&calls, &calls[1..]), 1);
    }

    #[test]
    fn an_older_message_after_a_newer_one_is_a_violation_also_if_a_newer_one_follows() {
        let mut calls = vec![
            call("a", 1, &[5], 0),
            call("a", 1, &[7], 20),
            call("a", 1, &[6], 40),
        ];
        let found = order(&calls, &Disturbed::new()).violations;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("old after new"), "{found:?}");
        assert!(found[1].contains("finally old"), "{found:?}");
        calls.push(call("b", 2, &[8], 60));
        assert_eq!(order(&calls, &Disturbed::new()).violations.len(), 1);
        calls[2].end = End::Failed;
        assert_eq!(order(&calls, &Disturbed::new()).violations, [""; 0]);
    }

    #[test]
    fn an_older_one_among_newer_ones_and_a_repetition() {
        let calls = [call("a", 1, &[5, 7], 0), call("a", 1, &[6, 8], 20)];
        assert_eq!(order(&calls, &Disturbed::new()).violations.len(), 1);
        let calls = [call("a", 1, &[7], 0), call("a", 1, &[7, 8], 20)];
        assert_eq!(order(&calls, &Disturbed::new()).violations, [""; 0]);
    }

    #[test]
    fn only_a_later_owner_of_a_replica_that_was_killed_soon_is_excused() {
        let calls = |epoch| {
            [
                call("a", 1, &[7], 0),
                call("b", epoch, &[6], 5000),
                call("b", epoch, &[7], 5020),
            ]
        };
        let killed = |ms: u64| Disturbed::from([("a".to_owned(), ms * 1_000_000)]);
        let excused = order(&calls(2), &killed(500));
        assert_eq!((excused.violations.len(), excused.unacknowledged), (0, 1));
        assert_eq!(order(&calls(2), &killed(2000)).violations.len(), 1);
        assert_eq!(order(&calls(1), &killed(500)).violations.len(), 1);
        assert_eq!(order(&calls(2), &Disturbed::new()).violations.len(), 1);
    }

    #[test]
    fn only_an_overlap_after_a_process_was_stopped_is_excused() {
        let calls = [call("a", 1, &[6], 0), call("b", 2, &[7], 5)];
        let excused = |stopped: u64| {
            let stopped = Disturbed::from([("a".to_owned(), stopped * 1_000_000)]);
            let mut old = calls.clone();
            old[0].end = End::Fenced;
            let mut verdict = Verdict::default();
            verdict.check_calls("endpoint", &old, &stopped);
            verdict.excused == 1 && verdict.violations.is_empty()
        };
        assert!(excused(4));
        assert!(!excused(6));
    }

    #[test]
    fn a_call_of_a_process_that_wakes_is_excused_if_it_has_no_effect() {
        let excused = |stopped: &Disturbed, end, begin: [u64; 2]| {
            let mut late = call("a", 1, &[6], begin[0]);
            late.end = end;
            let mut calls = [late, call("b", 2, &[7], begin[1])];
            calls.sort_by_key(|call| call.began);
            let mut verdict = Verdict::default();
            verdict.check_calls("endpoint", &calls, stopped);
            verdict.excused == 1 && verdict.violations.is_empty()
        };
        let stopped = Disturbed::from([("a".to_owned(), 5)]);
        let late = 2 * ARRIVING;
        for begin in [[late, late + 1], [late + 1, late]] {
            assert!(excused(&stopped, End::Fenced, begin));
            assert!(!excused(&stopped, End::Failed, begin));
            assert!(!excused(&Disturbed::new(), End::Fenced, begin));
        }
    }
}
