//! When deliveries have begun, as the replicas have written it down, and whether they may have.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};

use crate::check::{Disturbed, logs};

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Beginning {
    pub(crate) at: u64,
    pub(crate) partition: u64,
    pub(crate) epoch: u64,
    pub(crate) replica: String,
}

/// Reads the logs of the replicas.
pub(crate) fn read(directory: &Path) -> Result<Vec<Beginning>> {
    let mut beginnings = Vec::new();
    for (replica, log) in logs(directory)? {
        for line in log.lines().filter(|line| !line.starts_with("heard ")) {
            let mut numbers = line.split(' ').map(str::parse::<u64>);
            let mut next = || numbers.next().context("three numbers");
            beginnings.push(Beginning {
                partition: next()??,
                epoch: next()??,
                at: next()??,
                replica: replica.clone(),
            });
        }
    }
    Ok(beginnings)
}

/// The threads of a replica on which deliveries begin: as many as tokio starts.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns how many late beginnings are excused, and the violations. An epoch of a partition is one replica's, and no replica began a
/// delivery of a partition after another one has begun one under a higher epoch; but for one in each thread of a process that was
/// stopped after it had looked at its lease, and before it wrote the beginning down.
pub(crate) fn check(
    mut beginnings: Vec<Beginning>,
    disturbed: &Disturbed,
    threads: usize,
) -> (usize, Vec<String>) {
    beginnings.sort_unstable();
    let (mut highest, mut owners) = (BTreeMap::new(), BTreeMap::new());
    let (mut late, mut excused, mut violations) = (BTreeMap::new(), 0, Vec::new());
    for Beginning {
        at,
        partition,
        epoch,
        replica,
    } in beginnings
    {
        let owner = owners
            .entry((partition, epoch))
            .or_insert_with(|| replica.clone());
        if *owner != replica {
            violations.push(format!(
                "partition {partition}: {replica} began under the epoch {epoch} of {owner}, at {at}"
            ));
        }
        let highest = highest.entry(partition).or_insert(epoch);
        if epoch < *highest {
            let was_stopped = disturbed.get(&replica).is_some_and(|stopped| *stopped < at);
            let late: &mut usize = late.entry(replica).or_default();
            *late += 1;
            if was_stopped && *late <= threads {
                excused += 1;
            } else {
                violations.push(format!(
                    "partition {partition}: begun under {epoch} after {highest}, at {at}"
                ));
            }
        }
        *highest = epoch.max(*highest);
    }
    (excused, violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(replica: &str, epoch: u64, at: u64) -> Beginning {
        Beginning {
            at,
            partition: 0,
            epoch,
            replica: replica.to_owned(),
        }
    }

    #[test]
    fn an_epoch_is_one_replicas() {
        let violations = |other| {
            let all = vec![begun("a", 1, 5), begun(other, 1, 10), begun("c", 2, 15)];
            check(all, &Disturbed::new(), 2).1.len()
        };
        assert_eq!(violations("a"), 0);
        assert_eq!(violations("b"), 1);
    }

    #[test]
    fn one_late_beginning_in_each_thread_of_a_process_that_was_stopped_is_excused() {
        let stopped = |at| Disturbed::from([("a".to_owned(), at)]);
        let late = |count: u64, disturbed: &Disturbed| {
            let of_a = (0..=count).map(|n| begun("a", 1, if n == 0 { 0 } else { 20 + n }));
            let all = of_a.chain([begun("b", 2, 10)]).collect();
            let (late, violations) = check(all, disturbed, 2);
            (late, violations.len())
        };
        assert_eq!(late(2, &stopped(5)), (2, 0));
        assert_eq!(late(3, &stopped(5)), (2, 1));
        assert_eq!(late(1, &stopped(30)), (0, 1));
        assert_eq!(late(1, &Disturbed::new()), (0, 1));
    }
}
