//! Compares every byte of the two trees.

use std::collections::BTreeMap;
use std::fs::{self, FileType};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::roots::Roots;
use crate::scan::relative;
use crate::sync::{At, same_content};

/// How many differences are named; a failed copy of a whole tree is not listed path by path twice.
const NAMED: usize = 20;

#[derive(Default)]
pub(crate) struct Report {
    files: u64,
    bytes: u64,
    different: usize,
    /// The first of the differences.
    pub(crate) differences: Vec<String>,
}

impl Report {
    fn differs(&mut self, text: String) {
        self.different += 1;
        if self.differences.len() < NAMED {
            self.differences.push(text);
        }
    }

    pub(crate) fn print(&self) -> io::Result<()> {
        let (files, bytes, different) = (self.files, self.bytes, self.different);
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
        if !(wanted.is_dir() || wanted.is_file() || wanted.is_symlink()) {
            continue;
        }
        match target.remove(&path) {
            None => report.differs(format!("{}: not in the target", path.display())),
            Some(there) if there != wanted => {
                report.differs(format!("{}: another type of file", path.display()));
            }
            Some(_) => match same(&roots.source.join(&path), &roots.target.join(&path), wanted) {
                Ok(Some(bytes)) => {
                    report.files += u64::from(wanted.is_file());
                    report.bytes += bytes;
                }
                Ok(None) => report.differs(format!("{}: other content", path.display())),
                Err(error) => report.differs(format!("{}: {error:#}", path.display())),
            },
        }
    }
    for path in target.keys() {
        report.differs(format!("{}: not in the source", path.display()));
    }
    report
}

fn list(root: &Path, report: &mut Report) -> BTreeMap<PathBuf, FileType> {
    let mut paths = BTreeMap::new();
    for entry in WalkDir::new(root).min_depth(1) {
        match entry {
            Ok(entry) => {
                paths.insert(relative(root, entry.path()), entry.file_type());
            }
            Err(error) => report.differs(error.to_string()),
        }
    }
    paths
}

/// The bytes of two equal entries of one type; `None`: they differ.
fn same(source: &Path, target: &Path, file_type: FileType) -> anyhow::Result<Option<u64>> {
    if file_type.is_symlink() {
        let equal = fs::read_link(source)? == fs::read_link(target)?;
        return Ok(equal.then_some(0));
    }
    if file_type.is_dir() {
        return Ok(Some(0));
    }
    let bytes = fs::metadata(target).at("cannot look at", target)?.len();
    Ok(same_content(source, target)?.then_some(bytes))
}
