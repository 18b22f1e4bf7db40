//! The machine of the run, and the versions of the contenders: what some programs print.

use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::contenders::Contender;
use crate::work::fastest;

/// What there is to know, one fact a line.
const MACHINE: &str = "
echo $(nproc) cores
grep -m1 'model name' /proc/cpuinfo | cut -d: -f2
grep -qw hypervisor /proc/cpuinfo && echo virtual machine
awk '/MemTotal/ { printf \"%.0f GiB of memory\\n\", $2 / 1048576 }' /proc/meminfo
uname -sr
rustc --version
go version
echo load average $(cut -d' ' -f1 /proc/loadavg) before the run";

/// A name and a version in each line.
const VERSIONS: &str = "
echo keyqueue commit-$(git describe --always --dirty --exclude='*')
cargo tree --offline --depth=1 --prefix=none
cd go && go list -m all";

pub(super) fn machine() -> String {
    let facts = said(MACHINE);
    let facts: Vec<&str> = facts.lines().map(str::trim).collect();
    facts.join(", ")
}

/// Each contender and the versions of what it is made of, or why it did not run.
pub(super) fn versions(contenders: &[Contender]) -> Vec<(&'static str, String)> {
    let known = said(VERSIONS);
    let version = |package: &str| {
        let mut lines = known.lines().filter_map(|line| line.split_once(' '));
        let known = lines.find(|(name, _)| *name == package);
        let version = known.map_or("unknown", |(_, version)| version);
        format!("{package} {version}")
    };
    let contender = |it: &Contender| {
        let versions: Vec<String> = it.packages.split(' ').map(version).collect();
        let not_run = it.not_run.as_ref().map(|why| format!("**not run**: {why}"));
        (it.name, not_run.unwrap_or(versions.join(", ")))
    };
    contenders.iter().map(contender).collect()
}

/// The output of a script that is run in the directory of the harness.
fn said(script: &str) -> String {
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().map(|output| output.stdout);
    String::from_utf8_lossy(&output.unwrap_or_default()).into_owned()
}

/// Nanoseconds of an atomic read-modify-write of a cache line that no other processor has.
pub(super) fn rmw_ns() -> f64 {
    let word = AtomicU64::new(0);
    fastest(1_000_000, || {
        // Ordering: Relaxed; one thread, and only the time matters.
        black_box(black_box(&word).fetch_add(1, Ordering::Relaxed));
    })
}
