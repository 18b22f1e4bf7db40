//! The list of bugs.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::checker::Checker;

/// One bug.
#[derive(Debug, Default)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    pub(crate) file: String,
    /// Stands once in the file.
    find: String,
    pub(crate) replace: String,
    /// What has to notice, by [`Checker`].
    pub(crate) check: String,
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

pub(crate) fn read() -> Result<Vec<Mutant>> {
    parse(include_str!("../bugs.diff"))
}

/// The notation is explained where the list begins.
fn parse(text: &str) -> Result<Vec<Mutant>> {
    let (mut file, mut mutants) = ("", Vec::<Mutant>::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("--- ") {
            file = name;
        } else if let Some(title) = line.strip_prefix("@@ ") {
            let (name, _) = title.split_once(": ").context(title.to_owned())?;
            mutants.push(Mutant {
                name: name.into(),
                file: file.into(),
                ..Mutant::default()
            });
        } else if let Some(mark) = line.chars().next().filter(|mark| *mark != '#') {
            let mutant = mutants
                .last_mut()
                .context("a change before the first bug")?;
            mutant.read_line(mark, &line[mark.len_utf8()..])?;
        }
    }
    Ok(mutants)
}

impl Mutant {
    fn read_line(&mut self, mark: char, line: &str) -> Result<()> {
        match mark {
            '?' if self.check.is_empty() => self.check = line.trim().to_owned(),
            ' ' | '-' | '+' => {
                for (text, without) in [(&mut self.find, '+'), (&mut self.replace, '-')] {
                    if mark != without {
                        text.push_str(if text.is_empty() { "" } else { "\n" });
                        text.push_str(line);
                    }
                }
            }
            _ => bail!("{}: `{mark}{line}`", self.name),
        }
        Ok(())
    }

    pub(crate) fn checker(&self) -> Result<Checker<'_>> {
        Checker::parse(&self.check).with_context(|| self.name.clone())
    }

    /// The place in the file of what it replaces.
    pub(crate) fn place_in(&self, text: &str) -> Result<Range<usize>> {
        let mut found = text.match_indices(&self.find);
        let (name, file) = (&self.name, &self.file);
        let (first, more) = (found.next(), found.count());
        let (Some((start, _)), 0) = (first, more) else {
            let times = more + usize::from(first.is_some());
            bail!("{name}: what to replace stands {times} times in {file}");
        };
        ensure!(self.find != self.replace, "{name}: nothing is replaced");
        Ok(start..start + self.find.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The list goes out of date silently otherwise: it is run by hand.
    #[test]
    fn every_bug_can_be_planted_and_has_a_name_and_a_checker() {
        let (mut names, mut errors) = (BTreeSet::new(), Vec::new());
        let mutants = read().unwrap();
        assert!(mutants.len() >= 25, "{} bugs", mutants.len());
        for mutant in mutants {
            let text = std::fs::read_to_string(root().join(&mutant.file)).expect(&mutant.file);
            let wrong = [mutant.place_in(&text).err(), mutant.checker().err()];
            errors.extend(wrong.into_iter().flatten().map(|error| error.to_string()));
            assert!(names.insert(mutant.name.clone()), "two {}", mutant.name);
        }
        assert!(errors.is_empty(), "{errors:#?}");
    }

    #[test]
    fn a_change_is_read_with_what_surrounds_it() {
        let text = "# c\n--- f\n\n@@ n: w\n? model\n a\n-b\n+c\n d\n";
        let [mutant] = &parse(text).unwrap()[..] else {
            panic!("one bug")
        };
        assert_eq!((&*mutant.file, &*mutant.name), ("f", "n"));
        assert_eq!(mutant.place_in("-a\nb\nd-").unwrap(), 1..6);
        assert_eq!(mutant.replace, "a\nc\nd");
        assert!(mutant.place_in("a").is_err(), "not there");
        assert!(mutant.place_in("a\nb\nda\nb\nd").is_err(), "there twice");
        for wrong in [" a", "@@ n", "@@ n: w\n? model\n? model", "@@ n: w\n* a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "hope", "loom", "model a", "test a b c"] {
            assert!(Checker::parse(wrong).is_err(), "{wrong}");
        }
    }
}
