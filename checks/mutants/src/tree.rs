//! A copy of the tree, for bugs to be planted in.

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

impl Tree {
    /// Copies what git lists and is there. What an earlier run has built of the dependencies stays.
    pub(crate) fn copy() -> Result<Self> {
        let from = root();
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        let target = from.join(target).join("mutants");
        let to = target.join("tree");
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others"])
            .arg("--exclude-standard")
            .current_dir(&from)
            .output()
            .context("git ls-files")?;
        ensure!(listed.status.success(), "git does not list the files");
        for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
            let (old, new) = (from.join(name), to.join(name));
            if old.exists() {
                fs::create_dir_all(new.parent().context("a file is in a folder")?)?;
                fs::copy(old, &new).with_context(|| new.display().to_string())?;
            }
        }
        Ok(Tree { root: to, target })
    }

    /// Runs `run` while the bug is planted.
    pub(crate) fn with<T>(&self, mutant: &Mutant, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let path = self.root.join(&mutant.file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, mutant.planted_in(&text)?)?;
        let ran = run();
        // Also of a bug that does not build: the next one is planted alone.
        fs::write(&path, text)?;
        ran
    }
}
