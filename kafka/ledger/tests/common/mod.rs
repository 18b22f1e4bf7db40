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
    let brokers = BROKERS.get_or_init(|| Brokers::start(1).expect("a broker starts"));
    if brokers.is_none() {
        rig::skipped("there is no broker; kafka/broker.sh installs it");
    }
    brokers.as_ref().map(Brokers::servers)
}

/// Held by the scenario that runs: one at a time, or they would measure each other.
static MACHINE: Mutex<()> = Mutex::new(());

pub(crate) fn lab(name: &str, partitions: i32, options: &[&str]) -> Result<Option<Lab>> {
    let Some(servers) = servers() else {
        return Ok(None);
    };
    let mut lab = Lab::new(
        env!("CARGO_BIN_EXE_ledger").as_ref(),
        &servers,
        name,
        partitions,
    )?;
    // A broker's least.
    lab.options = ["--set", "session.timeout.ms=6000"].map(Into::into).into();
    lab.options.extend(options.iter().map(ToString::to_string));
    Ok(Some(lab))
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
    match lab(name, partitions, options)? {
        Some(mut lab) => run(&mut lab),
        None => Ok(()),
    }
}
