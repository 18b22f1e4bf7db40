//! A copy of the tree, for bugs to be planted in.
//!
//! Files that have not changed since the last run keep their times, so that little is built again.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::list::{Mutant, root};

pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    /// Where it is built.
    pub(crate) target: PathBuf,
}

/// A bug in the tree, until dropped.
pub(crate) struct Planted {
    path: PathBuf,
    text: String,
}

impl Tree {
    pub(crate) fn copy() -> Result<Self> {
        let from = root();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(target) => from.join(target),
            None => from.join("target"),
        };
        let target = target.join("mutants");
        let to = target.join("tree");
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(&from)
            .output()
            .context("git ls-files")?;
        ensure!(listed.status.success(), "git does not list the files");
        let listed = String::from_utf8(listed.stdout)?;
        // What was copied earlier and is gone now would still be built.
        let copied = target.join("copied");
        let before = fs::read_to_string(&copied).unwrap_or_default();
        let now: BTreeSet<&str> = listed.split_terminator('\0').collect();
        for name in before.split_terminator('\0') {
            if !now.contains(name) {
                // If it is not there any more, so much the better.
                let _ = fs::remove_file(to.join(name));
            }
        }
        fs::create_dir_all(&target)?;
        fs::write(&copied, &listed)?;
        for name in now {
            let (old, new) = (from.join(name), to.join(name));
            // Listed, but deleted since.
            let Ok(text) = fs::read(&old) else {
                let _ = fs::remove_file(&new);
                continue;
            };
            if fs::read(&new).is_ok_and(|there| there == text) {
                continue;
            }
            if let Some(folder) = new.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&new, text).with_context(|| new.display().to_string())?;
        }
        Ok(Tree { root: to, target })
    }

    pub(crate) fn plant(&self, mutant: &Mutant) -> Result<Planted> {
        let path = self.root.join(&mutant.file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, mutant.planted_in(&text)?)?;
        Ok(Planted { path, text })
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.text) {
            // The next copy puts it right.
            eprintln!("{}: {error}", self.path.display());
        }
    }
}
