//! Arbitrary programs on real threads. What they saw is to be explained by a queue without threads,
//! which counts every delivery and result (C1 to C12, D3 to D6, S1, S2, S5).
#![no_main]

use keyqueue_model::linear::{Do, Spec, explain};
use keyqueue_model::{Setup, recorded};
use libfuzzer_sys::fuzz_target;

/// At most this many threads, with this many calls each: the search is exponential at worst.
const THREADS: usize = 4;
const CALLS: usize = 8;

fuzz_target!(|input: (Setup, Vec<Vec<Do>>)| {
    let (setup, mut programs) = input;
    programs.truncate(THREADS);
    programs
        .iter_mut()
        .for_each(|program| program.truncate(CALLS));
    let spec = Spec::of(&setup);
    let history = recorded::run(setup, &programs);
    if let Err(unexplained) = explain(spec, &history) {
        panic!("{unexplained:?}");
    }
});
