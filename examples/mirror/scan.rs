//! Lists paths and adds them as keys. Symbolic links are listed, never followed.

use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use crate::interrupt;
use crate::sync::{is_absent, is_temporary};
use crate::worker::Mirror;

/// Adds every path of the target, where what is extra is found, then every path of the source. What
/// is in both is one key. In this order the walk through the target does not meet what is copied
/// meanwhile, and what is deleted makes room first.
pub(crate) fn trees(mirror: &Mirror) {
    for root in [&mirror.roots.target, &mirror.roots.source] {
        for entry in WalkDir::new(root).min_depth(1) {
            if interrupt::abandons() {
                return;
            }
            match entry {
                Ok(entry) => add(mirror, root, &entry),
                // It fails, and is reported, where it is delivered.
                Err(error) => mirror.add(relative(root, error.path().unwrap_or(root))),
            }
        }
    }
}

/// Adds the entries of one directory, of both trees.
///
/// # Errors
///
/// The directory cannot be listed. That it is not there is no error: then it has no entries.
pub(crate) fn directory(mirror: &Mirror, path: &Path) -> anyhow::Result<()> {
    for root in [&mirror.roots.source, &mirror.roots.target] {
        for entry in WalkDir::new(root.join(path)).min_depth(1).max_depth(1) {
            match entry {
                Ok(entry) => add(mirror, root, &entry),
                Err(error) if error.io_error().is_some_and(is_absent) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn add(mirror: &Mirror, root: &Path, entry: &DirEntry) {
    let path = relative(root, entry.path());
    if !is_temporary(&path) {
        mirror.add(path);
    }
}

pub(crate) fn relative(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}
