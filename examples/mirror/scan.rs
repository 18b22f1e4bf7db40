//! Lists paths and adds them as keys. Symbolic links are listed, never followed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::sync::{At, is_absent, is_temporary};
use crate::worker::Mirror;

/// Adds every path of the target, where what is extra is found, then every path of the source. What
/// is in both is one key. In this order the walk through the target does not meet what is copied
/// meanwhile, and what is deleted makes room first.
pub(crate) fn trees(mirror: &Mirror) {
    for root in [&mirror.roots.target, &mirror.roots.source] {
        for entry in WalkDir::new(root).min_depth(1) {
            match entry {
                Ok(entry) => {
                    let path = relative(root, entry.path());
                    if !is_temporary(&path) {
                        mirror.add(path);
                    }
                }
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
        let full = root.join(path);
        let list = || -> io::Result<()> {
            for entry in fs::read_dir(&full)? {
                let path = path.join(entry?.file_name());
                if !is_temporary(&path) {
                    mirror.add(path);
                }
            }
            Ok(())
        };
        match list() {
            Err(error) if !is_absent(&error) => return Err(error).at("cannot list", &full),
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn relative(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}
