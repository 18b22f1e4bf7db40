//! The search: depth first, over how far each thread is and what the queue is like then.

use std::collections::HashSet;
use std::fmt;

use super::spec::{Spec, Step};
use super::{Call, THREADS};

/// How far a thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct At {
    call: u8,
    part: u8,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    threads: [At; THREADS],
    spec: Spec,
}

/// A history that no order of steps explains.
#[derive(Clone, PartialEq, Eq)]
pub struct Unexplained {
    history: Vec<Vec<Call>>,
    /// How many calls of each thread the longest attempt explained.
    furthest: Vec<usize>,
}

/// Looks for an order of steps, from a queue like `spec`, that explains what each thread saw. Returns how many states the
/// search went through.
///
/// Each list is the calls of one thread, in order: of at most [`THREADS`], with fewer than 256
/// calls each.
pub fn explain(spec: Spec, history: &[Vec<Call>]) -> Result<usize, Unexplained> {
    assert!(history.len() <= THREADS, "{} threads", history.len());
    assert!(history.iter().all(|calls| calls.len() < 256));
    let start = Node {
        threads: [At::default(); THREADS],
        spec,
    };
    let mut seen = HashSet::from([start]);
    let mut open = vec![start];
    let mut ways = Vec::new();
    let mut furthest = vec![0; history.len()];
    while let Some(node) = open.pop() {
        let at: Vec<_> = node.threads.iter().map(|at| usize::from(at.call)).collect();
        if std::iter::zip(history, &at).all(|(calls, at)| calls.len() == *at) {
            return Ok(seen.len());
        }
        if at.iter().sum::<usize>() > furthest.iter().sum::<usize>() {
            furthest = at[..history.len()].to_vec();
        }
        // A step may be taken now if its call began before every call that is not complete returned.
        let unfinished = std::iter::zip(history, &at).filter_map(|(calls, at)| calls.get(*at));
        let soonest = unfinished.map(|call| call.returned).min();
        for (thread, calls) in history.iter().enumerate() {
            let Some(call) = calls.get(at[thread]) else {
                continue;
            };
            if soonest.is_some_and(|soonest| call.invoked > soonest) {
                continue;
            }
            let here = node.threads[thread];
            let part = call.parts[usize::from(here.part)];
            node.spec.next(thread as u8, part, here.step, &mut ways);
            for (step, spec) in ways.drain(..) {
                let mut next = Node { spec, ..node };
                next.threads[thread] = here.after(step, call);
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
    }
    Err(Unexplained {
        history: history.to_vec(),
        furthest,
    })
}

impl At {
    /// Where a thread is after a step: further in the part, at the next one, or at the next call.
    fn after(self, step: Option<Step>, call: &Call) -> At {
        match step {
            Some(step) => At { step, ..self },
            None if usize::from(self.part) + 1 < call.parts.len() => At {
                part: self.part + 1,
                step: Step::First,
                ..self
            },
            None => At {
                call: self.call + 1,
                ..At::default()
            },
        }
    }
}

impl fmt::Debug for Unexplained {
    /// A line for each call, in the order in which they began; those that could not be explained
    /// are marked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<_> = (self.history.iter().enumerate())
            .flat_map(|(thread, calls)| {
                let calls = calls.iter().enumerate();
                calls.map(move |(number, call)| (call, thread, number))
            })
            .collect();
        lines.sort_by_key(|(call, ..)| call.invoked);
        for (call, thread, number) in lines {
            let explained = number < self.furthest[thread];
            let mark = if explained { ' ' } else { '?' };
            let (from, to, parts) = (call.invoked, call.returned, &call.parts);
            writeln!(f, "{mark} {from:>4}..{to:<4} thread {thread}: {parts:?}")?;
        }
        Ok(())
    }
}
