//! A copy of the tree, for bugs to be planted in.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::list::{Mutant, root};

/// Bugs with at least this many bytes between them do not change the same statement.
const APART: usize = 400;

pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    /// Where it is built.
    pub(crate) target: PathBuf,
}

impl Tree {
    /// Copies what git lists and is there, under this name. What an earlier run has built of the dependencies stays.
    pub(crate) fn copy(name: &str) -> Result<Self> {
        let from = root();
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        let target = from.join(target).join("mutants");
        let to = target.join("trees").join(name);
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

    /// Runs `run` while as many of these bugs are planted as are apart from each other. Returns what it does, and the
    /// other bugs.
    pub(crate) fn with<'m, T>(
        &self,
        mutants: &[&'m Mutant],
        run: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Vec<&'m Mutant>)> {
        let mut files = BTreeMap::<&str, (String, Vec<(Range<usize>, &Mutant)>)>::new();
        let mut others = Vec::new();
        for &mutant in mutants {
            let (text, planted) = match files.entry(&mutant.file) {
                Entry::Occupied(file) => file.into_mut(),
                Entry::Vacant(file) => {
                    let path = self.root.join(&mutant.file);
                    let text = fs::read_to_string(&path);
                    let text = text.with_context(|| path.display().to_string())?;
                    file.insert((text, Vec::new()))
                }
            };
            let place = mutant.place_in(text)?;
            let is_apart = |(other, _): &(Range<usize>, _)| {
                place.end + APART < other.start || other.end + APART < place.start
            };
            match planted.iter().all(is_apart) {
                true => planted.push((place, mutant)),
                false => others.push(mutant),
            }
        }
        for (file, (text, planted)) in &mut files {
            planted.sort_by_key(|(place, _)| Reverse(place.start));
            let mut text = text.clone();
            for (place, mutant) in planted {
                text.replace_range(place.clone(), &mutant.replace);
            }
            fs::write(self.root.join(file), text)?;
        }
        let ran = run();
        // Also of bugs that do not build: the next ones are planted alone.
        for (file, (text, _)) in files {
            fs::write(self.root.join(file), text)?;
        }
        Ok((ran?, others))
    }
}
