//! The loads and stores of real operations, as valgrind's lackey prints them.
//!
//! ```text
//! I  04001e3a,3        an instruction
//!  L 1ffefff5e0,8      a load: address and size
//!  S 0402e5c8,8        a store
//!  M 0402e5d0,8        both
//! ```
//!
//! What lies on the stack is each thread's own and left out; valgrind has it at the upper end.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// From here on there are stacks.
const STACKS: u64 = 0x1f_f000_0000;
const LINE: u64 = 64;

/// One step of a cycle: the lines it touches in its order, and whether it writes them.
#[derive(Default)]
pub(super) struct Operation {
    pub(super) accesses: Vec<Access>,
}

impl Operation {
    /// A line that is read and then written is fetched to be written: the 54 ns are those of both.
    fn fetching_once(mut self) -> Self {
        let written = self.accesses.iter().filter(|access| access.writes);
        let written: HashSet<u64> = written.map(|access| access.line).collect();
        for access in &mut self.accesses {
            access.writes = written.contains(&access.line);
        }
        self
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) line: u64,
    pub(super) writes: bool,
}

/// Runs this program under valgrind.
pub(super) fn take(contender: &str) -> Result<Vec<Operation>> {
    let program = std::env::current_exe().context("where is this program?")?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(program)
        .args(["--traced", contender])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("there is no valgrind")?;
    let trace = BufReader::new(child.stderr.take().expect("it is piped"));
    // The trace first: the program could not go on if nobody read it.
    let accesses: Vec<Access> = trace
        .split(b'\n')
        .filter_map(|line| parse(&line.ok()?))
        .collect();
    let mut mark = String::new();
    let stdout = child.stdout.as_mut().expect("it is piped");
    stdout.read_to_string(&mut mark)?;
    ensure!(child.wait()?.success(), "valgrind has failed");
    let mark = u64::from_str_radix(mark.trim(), 16).context("no address of the mark")?;
    Ok(split(&accesses, mark / LINE))
}

/// The operations between two marks.
fn split(accesses: &[Access], mark: u64) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut current: Option<Operation> = None;
    for access in accesses {
        if access.line == mark {
            if access.writes {
                let step = current.replace(Operation::default());
                operations.extend(step.map(Operation::fetching_once));
            }
        } else if let Some(operation) = &mut current {
            operation.accesses.push(*access);
        }
    }
    operations
}

/// None for instructions, what is said beside, and stacks.
fn parse(line: &[u8]) -> Option<Access> {
    let line = std::str::from_utf8(line).ok()?;
    let (kind, rest) = line.strip_prefix(' ')?.split_once(' ')?;
    let writes = match kind {
        "L" => false,
        "S" | "M" => true,
        _ => return None,
    };
    let (address, _) = rest.split_once(',')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let line = address / LINE;
    (address < STACKS).then_some(Access { line, writes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_cut_at_the_marks() {
        let text = "I  04001e3a,3\n L 1ffefff5e0,8\n S 00000040,8\n L 00000080,8\n M 000000c8,8\n \
                    S 00000040,8\n==1== said beside\n L 00000108,4\n S 00000100,4\n L 00000040,8\n \
                    S 00000040,8";
        let accesses: Vec<Access> = text
            .lines()
            .filter_map(|line| parse(line.as_bytes()))
            .collect();
        let operations = split(&accesses, 1);
        let lines = |n: usize| -> Vec<(u64, bool)> {
            let accesses = operations[n].accesses.iter();
            accesses
                .map(|access| (access.line, access.writes))
                .collect()
        };
        assert_eq!(operations.len(), 2);
        assert_eq!(lines(0), [(2, false), (3, true)]);
        assert_eq!(lines(1), [(4, true), (4, true)], "read, then written");
    }
}
