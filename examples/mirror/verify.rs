//! Compares every byte of the two trees.

use std::collections::BTreeMap;
use std::fs::{self, FileType};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, ensure};
use walkdir::WalkDir;

use crate::roots::Roots;
use crate::scan::relative;
use crate::sync::{At, is_special, same_content};

/// How many differences are named; a failed copy of a whole tree is not listed path by path twice.
const NAMED: usize = 20;

#[derive(Default)]
pub(crate) struct Report {
    files: u64,
    bytes: u64,
    pub(crate) differences: Vec<String>,
}

impl Report {
    pub(crate) fn print(&self) -> io::Result<()> {
        for difference in self.differences.iter().take(NAMED) {
            eprintln!("differs: {difference}");
        }
        let (files, bytes, different) = (self.files, self.bytes, self.differences.len());
        let verdict = if different == 0 { "equal" } else { "NOT equal" };
        let counts = format!("{files} files, {bytes} bytes, {different} differences");
        writeln!(io::stdout(), "trees: {verdict} ({counts})")
    }
}

/// Compares types, sizes, contents and link targets of both trees. Special files of the source do
/// not count, as they are not mirrored.
pub(crate) fn compare(roots: &Roots) -> Report {
    let mut report = Report::default();
    let source = list(&roots.source, &mut report);
    let mut target = list(&roots.target, &mut report);
    for (path, wanted) in source {
        if is_special(wanted) {
            continue;
        }
        let compared = match target.remove(&path) {
            None => Err(anyhow!("not in the target")),
            Some(there) if there != wanted => Err(anyhow!("another type of file")),
            Some(_) => same(&roots.source.join(&path), &roots.target.join(&path), wanted),
        };
        match compared {
            Ok(bytes) => {
                report.files += u64::from(wanted.is_file());
                report.bytes += bytes;
            }
            Err(why) => report
                .differences
                .push(format!("{}: {why:#}", path.display())),
        }
    }
    let extra = target.into_keys();
    report
        .differences
        .extend(extra.map(|path| format!("{}: not in the source", path.display())));
    report
}

fn list(root: &Path, report: &mut Report) -> BTreeMap<PathBuf, FileType> {
    let mut paths = BTreeMap::new();
    for entry in WalkDir::new(root).min_depth(1) {
        match entry {
            Ok(entry) => {
                paths.insert(relative(root, entry.path()), entry.file_type());
            }
            Err(error) => report.differences.push(error.to_string()),
        }
    }
    paths
}

/// The bytes of two equal entries of one type.
fn same(source: &Path, target: &Path, file_type: FileType) -> anyhow::Result<u64> {
    let same = if file_type.is_symlink() {
        fs::read_link(source)? == fs::read_link(target)?
    } else {
        file_type.is_dir() || same_content(source, target)?
    };
    ensure!(same, "other content");
    if !file_type.is_file() {
        return Ok(0);
    }
    Ok(fs::metadata(target).at("cannot look at", target)?.len())
}
