//! The machine, and the versions and commits of everybody.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contenders::go;
use crate::workloads;

const UNKNOWN: &str = "unknown";

#[derive(Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) memory: String,
    pub(super) system: String,
    pub(super) rust: String,
    pub(super) go: String,
    /// Processes that wanted a processor in the last minute; ours is not among them yet.
    #[serde(default)]
    pub(super) load: String,
}

impl Machine {
    pub(super) fn this() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut processor = field(&info, "model name").unwrap_or(UNKNOWN).to_owned();
        if field(&info, "flags").is_some_and(|flags| flags.contains("hypervisor")) {
            processor.push_str(", virtual machine");
        }
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = field(&memory, "MemTotal").and_then(|total| total.split(' ').next());
        let gib = memory.and_then(|kib| kib.parse::<f64>().ok());
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            load: load.split(' ').next().unwrap_or(UNKNOWN).to_owned(),
            processor,
            cores: workloads::cores(),
            memory: gib.map_or(UNKNOWN.into(), |kib| format!("{:.0} GiB", kib / 1048576.0)),
            system: said("uname", &["-sr"]).unwrap_or(UNKNOWN.into()),
            rust: said("rustc", &["--version"]).unwrap_or(UNKNOWN.into()),
            go: said("go", &["version"])
                .map_or("none".into(), |said| said.replace("go version ", "")),
        }
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// What a program says, if it is there and succeeds.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}

/// Of a contender: its version, and the commit it was made of where that is known.
pub(super) fn version(contender: &str) -> String {
    let version = match contender {
        "keyqueue" => said("git", &["describe", "--always", "--dirty", "--exclude=*"])
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

/// The version that go.mod pins; what it is made of is pinned by the hash in go.sum.
fn go_module(module: &str) -> Option<String> {
    let text = std::fs::read_to_string(go::module().join("go.sum")).ok()?;
    let mut words = text
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|words| words[0] == module && !words[1].ends_with("/go.mod"))?;
    let (sum, version) = (words.pop()?, words.pop()?);
    Some(format!("{module} {version}, {sum}"))
}

/// The versions of the harness's own dependencies, and the commits that the packages name.
fn crates(names: &[&str]) -> Option<String> {
    let metadata = said(
        &std::env::var("CARGO").unwrap_or("cargo".into()),
        &["metadata", "--format-version", "1", "--offline"],
    )?;
    let metadata: Value = serde_json::from_str(&metadata).ok()?;
    let packages = metadata["packages"].as_array()?;
    let compare = packages
        .iter()
        .find(|package| package["name"] == "compare")?;
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let node = nodes.iter().find(|node| node["id"] == compare["id"])?;
    let depends_on = |package: &Value| {
        node["dependencies"]
            .as_array()
            .is_some_and(|ids| ids.contains(&package["id"]))
    };
    let described = names.iter().filter_map(|name| {
        let package = packages
            .iter()
            .find(|package| package["name"] == *name && depends_on(package))?;
        let version = format!("{name} {}", package["version"].as_str()?);
        Some(match commit(package) {
            Some(commit) => format!("{version}, commit {commit}"),
            None => version,
        })
    });
    Some(described.collect::<Vec<_>>().join("; "))
}

/// Published packages say which commit they were made from.
fn commit(package: &Value) -> Option<String> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    let info = std::fs::read(manifest.with_file_name(".cargo_vcs_info.json")).ok()?;
    let info: Value = serde_json::from_slice(&info).ok()?;
    let sha = info["git"]["sha1"].as_str()?;
    Some(sha.chars().take(9).collect())
}
