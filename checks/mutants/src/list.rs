//! The list of bugs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::checker::Checker;

/// One bug.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// What is wrong with it.
    pub(crate) what: String,
    pub(crate) file: String,
    /// Stands once in the file.
    pub(crate) find: String,
    pub(crate) replace: String,
    /// Who is to notice, the quickest first.
    pub(crate) checks: Vec<Checker>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

pub(crate) fn read() -> Result<Vec<Mutant>> {
    let path = root().join("checks/mutants/mutants.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let list: List = toml::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(list.mutant)
}

impl Mutant {
    /// The file with the bug in it.
    pub(crate) fn planted_in(&self, text: &str) -> Result<String> {
        let found = text.matches(&self.find).count();
        anyhow::ensure!(
            found == 1,
            "{}: the text to replace stands {found} times in {}",
            self.name,
            self.file
        );
        let planted = text.replacen(&self.find, &self.replace, 1);
        anyhow::ensure!(planted != text, "{}: nothing is replaced", self.name);
        Ok(planted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The list goes out of date silently otherwise: it is run by hand.
    #[test]
    fn every_bug_can_be_planted_and_has_a_name_and_a_checker() {
        let (mut names, mut rows) = (BTreeSet::new(), BTreeSet::new());
        let mutants = read().unwrap();
        assert!(mutants.len() >= 25, "{} bugs", mutants.len());
        for mutant in mutants {
            let text = std::fs::read_to_string(root().join(&mutant.file)).expect(&mutant.file);
            mutant.planted_in(&text).unwrap();
            assert!(!mutant.checks.is_empty(), "{}: no checker", mutant.name);
            assert!(names.insert(mutant.name.clone()), "two {}", mutant.name);
            let row = (mutant.file.clone(), mutant.what.clone());
            assert!(rows.insert(row), "{} says what another does", mutant.name);
        }
    }

    #[test]
    fn a_text_that_is_not_there_or_there_twice_is_refused() {
        let mutant = Mutant {
            name: "name".into(),
            what: "what".into(),
            file: "file".into(),
            find: "a".into(),
            replace: "b".into(),
            checks: Vec::new(),
        };
        assert_eq!(mutant.planted_in("cac").unwrap(), "cbc");
        assert!(mutant.planted_in("c").is_err());
        assert!(mutant.planted_in("aa").is_err());
    }
}
