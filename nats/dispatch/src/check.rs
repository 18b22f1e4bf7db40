//! Judges a run by what the producer and the replicas have written down, and by what the receiver has seen.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

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
    let verdict = Verdict::of(
        &options.directory,
        &report,
        &Disturbed::new(),
        &BTreeMap::new(),
    )?;
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
    /// Messages that were delivered with success more than once.
    pub repeated: usize,
    pub violations: Vec<String>,
}

impl Verdict {
    /// Judges. `dead` are the endpoints with a dead letter, and its sequence.
    pub fn of(
        directory: &Path,
        report: &Report,
        disturbed: &Disturbed,
        dead: &BTreeMap<String, u64>,
    ) -> Result<Self> {
        let mut verdict = Verdict {
            endpoints: report.len(),
            ..Verdict::default()
        };
        verdict.check_stored(directory, report, dead)?;
        for (endpoint, calls) in report {
            verdict.check_calls(endpoint, calls, disturbed);
        }
        verdict.check_beginnings(directory)?;
        Ok(verdict)
    }

    /// The last stored message of each endpoint is covered by a call that succeeded, or by a dead letter.
    fn check_stored(
        &mut self,
        directory: &Path,
        report: &Report,
        dead: &BTreeMap<String, u64>,
    ) -> Result<()> {
        let mut last = BTreeMap::<&str, u64>::new();
        let log = fs::read_to_string(directory.join("stored"))?;
        for line in log.lines() {
            let (endpoint, sequence) = line.split_once(' ').context("endpoint and sequence")?;
            let last = last.entry(endpoint).or_default();
            *last = (*last).max(sequence.parse()?);
            self.stored += 1;
        }
        for (endpoint, sequence) in last {
            let calls = report.get(endpoint).map_or(&[][..], Vec::as_slice);
            let done = calls
                .iter()
                .filter(|call| call.end == End::Done)
                .map(|call| call.sequence);
            let covered = done.chain(dead.get(endpoint).copied()).max().unwrap_or(0);
            if covered < sequence {
                self.violations.push(format!(
                    "{endpoint}: {sequence} is stored, delivered only up to {covered}"
                ));
            }
        }
        Ok(())
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
                // It ran when its process was stopped, and its fence is lower.
                let stopped = disturbed.get(&call.replica);
                let ran = stopped.is_some_and(|stopped| call.began <= *stopped);
                if ran && call.epoch < later.epoch {
                    self.excused += 1;
                } else {
                    self.violations
                        .push(format!("{endpoint}: {call:?} overlaps {later:?}"));
                }
            }
        }
    }

    /// No replica began a delivery of a partition after another one has begun one under a higher epoch.
    fn check_beginnings(&mut self, directory: &Path) -> Result<()> {
        let mut beginnings = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "begun")
            {
                for line in fs::read_to_string(&path)?.lines() {
                    let mut numbers = line.split(' ').map(str::parse::<u64>);
                    let mut next = || numbers.next().context("three numbers");
                    let (partition, epoch, at) = (next()??, next()??, next()??);
                    beginnings.push((at, partition, epoch));
                }
            }
        }
        beginnings.sort_unstable();
        let mut highest = BTreeMap::new();
        for (at, partition, epoch) in beginnings {
            let highest = highest.entry(partition).or_insert(epoch);
            if epoch < *highest {
                self.violations.push(format!(
                    "partition {partition}: begun under {epoch} after {highest}, at {at}"
                ));
            }
            *highest = epoch.max(*highest);
        }
        Ok(())
    }
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
            "{} failed, {} cut off, {} refused for their fence, {} repeated, {} overlaps with stopped processes",
            self.failed, self.cut, self.fenced, self.repeated, self.excused
        )?;
        for violation in self.violations.iter().take(20) {
            writeln!(f, "VIOLATION {violation}")?;
        }
        write!(f, "{} violations", self.violations.len())
    }
}
