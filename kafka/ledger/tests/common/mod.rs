//! Scenarios with processes and a real broker.

#![allow(dead_code, reason = "each test program uses a part")]

use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::Result;
use ledger::lab::Lab;
use ledger::witness::Seen;
use servers::kafka::Brokers;

/// The broker of this program, which ends with it; `None` if there is none.
pub(crate) fn servers() -> Option<String> {
    static BROKERS: OnceLock<Option<Brokers>> = OnceLock::new();
    let mut is_first = false;
    let brokers = BROKERS.get_or_init(|| {
        is_first = true;
        Brokers::start(1).expect("a broker starts")
    });
    // `start` has said it of the first.
    if brokers.is_none() && !is_first {
        rig::skipped("there is no broker; kafka/broker.sh installs it");
    }
    brokers.as_ref().map(Brokers::servers)
}

/// Held by the scenario that runs: one at a time, or they would measure each other.
static MACHINE: Mutex<()> = Mutex::new(());

/// A lab whose members have these options.
pub(crate) fn lab(servers: &str, name: &str, partitions: i32, options: &[&str]) -> Result<Lab> {
    let program = env!("CARGO_BIN_EXE_ledger").as_ref();
    let mut lab = Lab::new(program, servers, name, partitions)?;
    lab.options = options.iter().map(ToString::to_string).collect();
    Ok(lab)
}

#[track_caller]
pub(crate) fn sound(seen: &Seen) {
    println!("{seen}");
    assert!(seen.violations.is_empty(), "{seen}");
}

/// Runs a scenario in a lab of its own, if there is a broker.
pub(crate) fn scenario(
    name: &str,
    partitions: i32,
    options: &[&str],
    run: impl FnOnce(&mut Lab) -> Result<()>,
) -> Result<()> {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(servers) = servers() else {
        return Ok(());
    };
    // A broker's least.
    let session = ["--set", "session.timeout.ms=6000"];
    let options = [&session, options].concat();
    run(&mut lab(&servers, name, partitions, &options)?)
}
