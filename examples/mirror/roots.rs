//! The two directories: resolved once, and refused if one cannot be mirrored to the other.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};

/// How coarse a file system's modification times may be (FAT: two seconds).
const COARSEST_TIME: Duration = Duration::from_secs(2);

/// Where to mirror from and to. Both paths are absolute and without links.
pub(crate) struct Roots {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    /// Equal sizes and times mean equal contents for files last changed before this moment. A file
    /// that changes while it is mirrored may change twice within one step of the clock.
    pub(crate) settled_before: SystemTime,
}

impl Roots {
    /// Resolves both, and changes nothing.
    ///
    /// # Errors
    ///
    /// The source is no directory, the target is something else than a directory, or one of the two
    /// contains the other.
    pub(crate) fn resolve(source: &Path, target: &Path) -> anyhow::Result<Self> {
        let source = fs::canonicalize(source)
            .with_context(|| format!("SRC {} cannot be opened", source.display()))?;
        let target = resolve_absent(target)
            .with_context(|| format!("DST {} cannot be resolved", target.display()))?;
        let (src, dst) = (source.display(), target.display());
        ensure!(source.is_dir(), "SRC {src} is not a directory");
        ensure!(
            target.is_dir() || !target.exists(),
            "DST {dst} is not a directory"
        );
        ensure!(
            source != target,
            "SRC and DST are the same directory: {src}"
        );
        ensure!(
            !target.starts_with(&source) && !source.starts_with(&target),
            "one contains the other: {src} and {dst}"
        );
        Ok(Self {
            source,
            target,
            settled_before: SystemTime::now() - COARSEST_TIME,
        })
    }
}

/// `path` without links, though its last components may not exist yet.
fn resolve_absent(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path
        .ancestors()
        .find(|p| p.symlink_metadata().is_ok())
        .unwrap_or(&path);
    let absent = path.strip_prefix(there)?;
    // What `..` means behind a directory that does not exist cannot be known.
    ensure!(
        !absent.components().any(|c| c == Component::ParentDir),
        "`..` in what is not there"
    );
    // Component by component: `join("")` would end in a separator.
    Ok(fs::canonicalize(there)?
        .components()
        .chain(absent.components())
        .collect())
}
