//! Arbitrary steps taken with a queue and its model, by one thread; every answer is compared.
#![no_main]

// The property tests run the same file: what one of them finds is a test case for the other.
#[path = "../../model/tests/lockstep/mod.rs"]
mod lockstep;

use keyqueue_model::Script;
use libfuzzer_sys::fuzz_target;

/// Beyond this a script tells nothing new, but takes long.
const MOST_OPS: usize = 500;

fuzz_target!(|script: Script| {
    let ops = &script.ops[..script.ops.len().min(MOST_OPS)];
    lockstep::run(script.setup, ops);
});
