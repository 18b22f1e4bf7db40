//! The two directories: resolved once, and refused if one cannot be mirrored to the other.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};

use crate::sync::At;

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
        ensure!(
            source.is_dir(),
            "SRC {} is not a directory",
            source.display()
        );
        let target = resolve_absent(target)
            .with_context(|| format!("DST {} cannot be resolved", target.display()))?;
        ensure!(
            target.is_dir() || !target.exists(),
            "DST {} is not a directory",
            target.display()
        );
        if source == target {
            bail!("SRC and DST are the same directory: {}", source.display());
        }
        if target.starts_with(&source) || source.starts_with(&target) {
            bail!(
                "one contains the other: {} and {}",
                source.display(),
                target.display()
            );
        }
        let settled_before = SystemTime::now() - COARSEST_TIME;
        Ok(Self {
            source,
            target,
            settled_before,
        })
    }

    /// Creates the target directory, and those above it, where they are not there.
    pub(crate) fn create_target(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.target).at("cannot create DST", &self.target)
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
