//! Real servers on this machine for tests, examples and measurements, and a proxy in front of them.

#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "kube")]
pub mod kube;
#[cfg(feature = "nats")]
pub mod nats;
mod process;
mod proxy;

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use rig::{PATIENCE, patience};
use tokio::time::{Instant, sleep};

pub use process::Supervised;
pub use proxy::Proxy;

/// Finds a server: the program that the variable `named` names, or `installed` in the cache of `.ci/run`, where the script
/// `by` puts it. Where there is none, the test is skipped.
pub fn server(named: &str, installed: &str, by: &str) -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let named = env::var_os(named).map(PathBuf::from);
    let installed = || Some(cache?.join("keyqueue/bin").join(installed));
    let found = named.or_else(installed).filter(|program| program.is_file());
    if found.is_none() {
        rig::skipped(&format!("there is no server or tool; {by} installs it"));
    }
    found
}

/// Waits in a task until `condition` holds, by the clock of its runtime; fails with `what` if it never does.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    // Servers take part.
    let end = Instant::now() + 2 * PATIENCE * patience();
    while !condition().await {
        assert!(Instant::now() < end, "never came true: {what}");
        sleep(Duration::from_millis(1)).await;
    }
}
