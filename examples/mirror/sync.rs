//! Makes the target equal to the source at one path, from what is on disk now.
//!
//! Ground rules:
//! - The caller holds the path: no other worker processes it, but others process paths above and
//!   below it.
//! - Links are never followed: a path below a link is a path that is not there.
//! - Obstacles are removed: a file where a directory should be, a directory where a file should be.
//!   Missing directories above the path are created.
//! - A new file gets its contents under a temporary name and is then renamed: a reader of the
//!   target sees the old file or the new one, never a part.
//! - Nothing is deleted unless the source could be read and has nothing there.
//!
//! Known race: if the source turns a directory into a link while a file in it is copied, the copy
//! may be written through the new link.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use tempfile::NamedTempFile;

use crate::interrupt;
use crate::roots::Roots;

/// How many bytes of a file are copied between two looks for an interrupt.
const PIECE: u64 = 16 << 20;

/// An error with the path that it was about.
pub(crate) trait At<T> {
    fn at(self, what: &str, path: impl AsRef<Path>) -> anyhow::Result<T>;
}

impl<T, E> At<T> for Result<T, E>
where
    Self: Context<T, E>,
{
    fn at(self, what: &str, path: impl AsRef<Path>) -> anyhow::Result<T> {
        self.with_context(|| format!("{what} {}", path.as_ref().display()))
    }
}

/// What was done at a path.
pub(crate) enum Done {
    Unchanged,
    Copied { bytes: u64 },
    Touched,
    Directory { made: bool },
    Linked,
    Deleted,
    Special,
}

/// Makes the target equal at `path`.
///
/// # Errors
///
/// Whatever the file system refuses, with the path that it was about. The target is then as before,
/// or nothing is there. Also when the source changed while it was copied: the copy has what was
/// read.
pub(crate) fn path(roots: &Roots, path: &Path) -> anyhow::Result<Done> {
    let (source, target) = (roots.source.join(path), roots.target.join(path));
    ensure!(is_directory(&roots.source)?, "the source directory is gone");
    let may_be_there = is_below_directories(&roots.source, path)?;
    let wanted = if may_be_there { look(&source)? } else { None };
    let Some(wanted) = wanted else {
        return delete(roots, path);
    };
    if is_special(wanted.file_type()) {
        delete(roots, path)?;
        return Ok(Done::Special);
    }
    make_parents(roots, path)?;
    if wanted.is_dir() {
        directory(&source, &target)
    } else if wanted.is_file() {
        let settled = wanted.modified()? < roots.settled_before;
        file(&source, &target, &wanted, settled)
    } else {
        link(&source, &target)
    }
}

/// Whether this is a socket, a pipe or a device.
pub(crate) fn is_special(file_type: FileType) -> bool {
    !(file_type.is_dir() || file_type.is_file() || file_type.is_symlink())
}

/// Whether `path` is a file that is just being written here.
pub(crate) fn is_temporary(path: &Path) -> bool {
    let prefix = temporary_prefix();
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
}

/// Whether two files have the same bytes.
pub(crate) fn same_content(one: &Path, other: &Path) -> anyhow::Result<bool> {
    let open = |path: &Path| -> anyhow::Result<BufReader<File>> {
        let file = File::open(path).at("cannot read", path)?;
        Ok(BufReader::with_capacity(1 << 16, file))
    };
    let (mut a, mut b) = (open(one)?, open(other)?);
    loop {
        let x = a.fill_buf().at("cannot read", one)?;
        let y = b.fill_buf().at("cannot read", other)?;
        let both = x.len().min(y.len());
        if both == 0 {
            return Ok(x.is_empty() && y.is_empty());
        }
        if x[..both] != y[..both] {
            return Ok(false);
        }
        a.consume(both);
        b.consume(both);
    }
}

fn directory(source: &Path, target: &Path) -> anyhow::Result<Done> {
    let made = make_directory(target)?;
    // The scan leaves out what it cannot list; the directory would pass for an empty one.
    for listed in [source, target] {
        fs::read_dir(listed).at("cannot list", listed)?;
    }
    Ok(Done::Directory { made })
}

fn file(source: &Path, target: &Path, wanted: &Metadata, settled: bool) -> anyhow::Result<Done> {
    if let Some(there) = look(target)?
        && there.is_file()
        && there.len() == wanted.len()
    {
        let same_time = there.modified()? == wanted.modified()?;
        if (same_time && settled) || same_content(source, target)? {
            if same_time && there.permissions() == wanted.permissions() {
                return Ok(Done::Unchanged);
            }
            File::open(target)
                .and_then(|file| dress(&file, wanted))
                .at("cannot set time and mode of", target)?;
            return Ok(Done::Touched);
        }
    }
    let bytes = copy(source, target, wanted)
        .with_context(|| format!("cannot copy {} to {}", source.display(), target.display()))?;
    // The copy may be of no single moment. It has the old time, so that the next look sees it.
    match look(source)? {
        Some(now) if now.len() == wanted.len() && now.modified()? == wanted.modified()? => {
            Ok(Done::Copied { bytes })
        }
        _ => bail!("{} changed while it was copied", source.display()),
    }
}

fn copy(source: &Path, target: &Path, wanted: &Metadata) -> anyhow::Result<u64> {
    let mut input = File::open(source)?;
    // Removed again when dropped before it is renamed.
    let mut output = tempfile::Builder::new()
        .prefix(&temporary_prefix())
        .tempfile_in(target.parent().unwrap_or(target))?;
    let mut bytes = 0;
    loop {
        ensure!(!interrupt::abandons(), "interrupted");
        match io::copy(&mut input.by_ref().take(PIECE), output.as_file_mut())? {
            0 => break,
            copied => bytes += copied,
        }
    }
    dress(output.as_file(), wanted)?;
    place(output, target)?;
    Ok(bytes)
}

fn link(source: &Path, target: &Path) -> anyhow::Result<Done> {
    let wanted = fs::read_link(source).at("cannot read link", source)?;
    if fs::read_link(target).is_ok_and(|there| there == wanted) {
        return Ok(Done::Unchanged);
    }
    let create = |name: &Path| symlink(&wanted, name);
    let write = || -> anyhow::Result<()> {
        let output = tempfile::Builder::new()
            .prefix(&temporary_prefix())
            .make_in(target.parent().unwrap_or(target), create)?;
        place(output, target)
    };
    write().at("cannot make link", target)?;
    Ok(Done::Linked)
}

fn delete(roots: &Roots, path: &Path) -> anyhow::Result<Done> {
    let target = roots.target.join(path);
    if is_below_directories(&roots.target, path)?
        && let Some(there) = look(&target)?
        && remove(&target, &there)?
    {
        return Ok(Done::Deleted);
    }
    Ok(Done::Unchanged)
}

/// Whether there is nothing at a path.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// What is at `path`, links not followed; `None`: nothing.
fn look(path: &Path) -> anyhow::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(there) => Ok(Some(there)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).at("cannot look at", path),
    }
}

/// Links to directories are none.
fn is_directory(path: &Path) -> anyhow::Result<bool> {
    Ok(look(path)?.is_some_and(|there| there.is_dir()))
}

/// Whether all that is above `path`, below `root`, are directories.
fn is_below_directories(root: &Path, path: &Path) -> anyhow::Result<bool> {
    for parent in path.ancestors().skip(1) {
        if !is_directory(&root.join(parent))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn make_parents(roots: &Roots, path: &Path) -> anyhow::Result<()> {
    let parents: Vec<_> = path.ancestors().skip(1).collect();
    for parent in parents.into_iter().rev() {
        make_directory(&roots.target.join(parent))?;
    }
    Ok(())
}

/// Creates a directory where there is none. Returns whether it did.
fn make_directory(path: &Path) -> anyhow::Result<bool> {
    match look(path)? {
        Some(there) if there.is_dir() => return Ok(false),
        Some(there) => _ = remove(path, &there)?,
        None => {}
    }
    match fs::create_dir(path) {
        // Another worker, on its way to a path below, was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true).at("cannot make directory", path),
    }
}

/// Removes what is at a path. Returns whether it was still there.
fn remove(path: &Path, there: &Metadata) -> anyhow::Result<bool> {
    let removed = if there.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        // With the directory above it, by another worker.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true).at("cannot delete", path),
    }
}

/// Renames a new file or link to its place. A directory there is removed.
fn place<F>(output: NamedTempFile<F>, target: &Path) -> anyhow::Result<()> {
    if let Some(there) = look(target)?.filter(Metadata::is_dir) {
        remove(target, &there)?;
    }
    output.persist(target).map_err(|refused| refused.error)?;
    Ok(())
}

/// Gives a file the time and permissions of another; the time first, while it may be written.
fn dress(file: &File, like: &Metadata) -> io::Result<()> {
    file.set_modified(like.modified()?)?;
    file.set_permissions(like.permissions())
}

/// Independent of the file's name, which may be as long as names can be; with the process's id, so
/// that what a killed process has left is recognised as extra and deleted.
fn temporary_prefix() -> String {
    format!(".mirror-{}-", std::process::id())
}

#[cfg(unix)]
use std::os::unix::fs::symlink;
#[cfg(windows)]
use std::os::windows::fs::symlink_file as symlink;
