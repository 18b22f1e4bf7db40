//! Who has which cache line.
//!
//! | a processor | has it already | another has written it | others have read it |
//! | --- | --- | --- | --- |
//! | reads | nothing | a transfer; both have it then | nothing, if it was never written; otherwise a transfer |
//! | writes | nothing, if alone | a transfer; alone then | a transfer; alone then |

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::TRANSFER;
use super::trace::Operation;

#[derive(Default)]
pub(super) struct Lines {
    lines: HashMap<u64, Line, RandomState>,
}

#[derive(Clone, Copy, Default)]
struct Line {
    /// A bit for each processor that has it.
    holders: u64,
    written: bool,
    /// When the operation that wrote it last has done with it.
    free_at: f64,
}

impl Lines {
    /// Runs an operation on a processor and moves its clock; how many lines it had to fetch.
    ///
    /// What it takes beside the transfers is spread evenly over the accesses.
    pub(super) fn run(
        &mut self,
        operation: &Operation,
        processor: usize,
        clock: &mut f64,
        access_ns: f64,
    ) -> u64 {
        let me = 1 << processor;
        let mut transfers = 0;
        for access in &operation.accesses {
            let line = self.lines.entry(access.line).or_default();
            let fetched = if access.writes {
                line.holders & !me != 0
            } else {
                line.written && line.holders & me == 0
            };
            if fetched {
                transfers += 1;
                *clock = clock.max(line.free_at) + TRANSFER;
            }
            line.holders = if access.writes { me } else { line.holders | me };
            line.written |= access.writes;
            *clock += access_ns;
            if line.written && line.holders == me {
                line.free_at = *clock;
            }
        }
        transfers
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::Access;
    use super::*;

    fn run(lines: &mut Lines, processor: usize, clock: &mut f64, accesses: &[(u64, bool)]) -> u64 {
        let accesses = accesses
            .iter()
            .map(|&(line, writes)| Access { line, writes })
            .collect();
        lines.run(&Operation { accesses }, processor, clock, 0.0)
    }

    #[test]
    fn a_line_costs_whoever_has_it_not() {
        let (mut lines, mut clock) = (Lines::default(), 0.0);
        let mut fetched =
            |processor, writes| run(&mut lines, processor, &mut clock, &[(7, writes)]);
        assert_eq!(fetched(0, false), 0, "never written");
        assert_eq!(fetched(1, false), 0, "never written");
        assert_eq!(fetched(0, true), 1, "read by another");
        assert_eq!(fetched(0, true), 0, "alone");
        assert_eq!(fetched(1, false), 1, "written by another");
        assert_eq!(fetched(1, false), 0, "shared");
        assert_eq!(fetched(1, true), 1, "shared");
        assert_eq!(fetched(0, true), 1, "written by another");
        assert_eq!(clock, 4.0 * TRANSFER);
    }

    #[test]
    fn a_line_that_is_held_is_waited_for() {
        let mut lines = Lines::default();
        let (mut first, mut second) = (1000.0, 0.0);
        // A lock: written first and last, with something fetched in between.
        run(&mut lines, 1, &mut second, &[(8, true)]);
        run(
            &mut lines,
            0,
            &mut first,
            &[(7, true), (8, true), (7, true)],
        );
        assert_eq!(first, 1000.0 + TRANSFER);
        run(&mut lines, 1, &mut second, &[(7, true)]);
        assert_eq!(second, 1000.0 + 2.0 * TRANSFER);
    }
}
