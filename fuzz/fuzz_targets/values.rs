//! Arbitrary steps taken with a queue of values and its model, by one thread; every result is compared.
#![no_main]

use keyqueue_model::values::{self, ValueOp, ValueScript};
use libfuzzer_sys::fuzz_target;

/// Beyond this a script tells nothing new, but takes long.
const MOST_OPS: usize = 500;

/// A step that ends the queue counts only in this last part of a script.
const CLOSING: usize = 4;

fuzz_target!(|script: ValueScript| {
    let ops = &script.ops[..script.ops.len().min(MOST_OPS)];
    let open = ops.len() - ops.len() / CLOSING;
    let counts = |(at, op): &(usize, &ValueOp)| *at >= open || !op.ends();
    let counting = ops.iter().enumerate().filter(counts);
    let ops: Vec<_> = counting.map(|(_, op)| *op).collect();
    values::run(script.setup, &ops);
});
