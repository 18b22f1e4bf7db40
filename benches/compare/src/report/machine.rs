//! The machine of the run, and the versions of the contenders.

use std::fs;
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::contenders::go;
use crate::spec;

const UNKNOWN: &str = "unknown";

#[derive(Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) memory: String,
    pub(super) system: String,
    pub(super) rust: String,
    pub(super) go: String,
    /// The load average before the run.
    pub(super) load: String,
    /// Nanoseconds of an atomic read-modify-write.
    pub(super) rmw_ns: Option<f64>,
}

impl Machine {
    pub(super) fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (processor, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let is_virtual = field(&processor, "flags").is_some_and(|it| it.contains("hypervisor"));
        let processor = field(&processor, "model name").unwrap_or(UNKNOWN);
        let memory = field(&memory, "MemTotal").and_then(|total| total.split(' ').next());
        let kib = memory.and_then(|kib| kib.parse::<f64>().ok());
        Self {
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .unwrap_or(UNKNOWN)
                .to_owned(),
            processor: processor.to_owned() + if is_virtual { ", virtual machine" } else { "" },
            cores: spec::cores(),
            memory: kib.map_or(UNKNOWN.into(), |kib| format!("{:.0} GiB", kib / 1048576.0)),
            system: output("uname", &["-sr"]).unwrap_or(UNKNOWN.into()),
            rust: output("rustc", &["--version"]).unwrap_or(UNKNOWN.into()),
            go: output("go", &["version"])
                .map_or("none".into(), |version| version.replace("go version ", "")),
            rmw_ns: Some(rmw_ns()),
        }
    }
}

/// Of a cache line that no other processor has: the fastest of ten blocks.
fn rmw_ns() -> f64 {
    const BLOCK: u32 = 100_000;
    let word = AtomicU64::new(0);
    let block = |_| {
        let start = Instant::now();
        for _ in 0..BLOCK {
            // Ordering: Relaxed; one thread, and only the time matters.
            black_box(black_box(&word).fetch_add(1, Ordering::Relaxed));
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(BLOCK)
    };
    (0..10).map(block).fold(f64::INFINITY, f64::min)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// What a program prints, if it exists and succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The version of a contender; of this crate the commit.
pub(super) fn version(contender: &str) -> String {
    let version = match contender {
        "keyqueue" => output("git", &["describe", "--always", "--dirty", "--exclude=*"])
            .map(|commit| format!("keyqueue, commit {commit}")),
        "client-go" => go_module("k8s.io/client-go"),
        "priorityqueue" => go_module("sigs.k8s.io/controller-runtime"),
        "single-lock" => crates(&["parking_lot", "hashbrown", "foldhash"]),
        "kube-runtime" => crates(&["kube-runtime"]),
        "delay-queue" => crates(&["tokio-util"]),
        "heap" => crates(&["parking_lot"]),
        "array-queue" | "seg-queue" => crates(&["crossbeam-queue"]),
        _ => None,
    };
    version.unwrap_or(UNKNOWN.into())
}

/// The version that go.mod pins, and the hash of its source in go.sum.
fn go_module(module: &str) -> Option<String> {
    let text = fs::read_to_string(go::module().join("go.sum")).ok()?;
    let prefix = format!("{module} ");
    let mut pins = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let (version, sum) = pins
        .find(|pin| !pin.contains("/go.mod "))?
        .split_once(' ')?;
    Some(format!("{module} {version}, {sum}"))
}

/// The versions of direct dependencies of the harness.
fn crates(names: &[&str]) -> Option<String> {
    let cargo = std::env::var("CARGO").unwrap_or("cargo".into());
    let arguments = ["tree", "--offline", "--depth=1", "--prefix=none"];
    let tree = output(&cargo, &arguments)?.replace(" v", " ");
    let is_named = |line: &&str| {
        names
            .iter()
            .any(|name| line.split(' ').next() == Some(name))
    };
    let versions: Vec<&str> = tree.lines().filter(is_named).collect();
    Some(versions.join(", "))
}
