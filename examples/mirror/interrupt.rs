//! Ctrl-C, SIGTERM and SIGHUP.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

static HAPPENED: AtomicBool = AtomicBool::new(false);
static FOLLOWS: AtomicBool = AtomicBool::new(false);

/// The exit code of a run that was interrupted.
pub(crate) const CODE: u8 = 130;

/// Notes the first interrupt. A second one ends the process at once.
pub(crate) fn catch(follows: bool) -> anyhow::Result<()> {
    // Ordering: Relaxed; no other thread is there yet.
    FOLLOWS.store(follows, Ordering::Relaxed);
    ctrlc::set_handler(|| {
        // Ordering: Relaxed; a flag.
        if HAPPENED.swap(true, Ordering::Relaxed) {
            std::process::exit(CODE.into());
        }
    })
    .context("cannot catch Ctrl-C")
}

pub(crate) fn happened() -> bool {
    // Ordering: Relaxed; a flag that is looked at again and again.
    HAPPENED.load(Ordering::Relaxed)
}

/// Whether the work is abandoned: a run that follows the source finishes it first.
pub(crate) fn abandons() -> bool {
    // Ordering: Relaxed; see `catch`.
    happened() && !FOLLOWS.load(Ordering::Relaxed)
}
