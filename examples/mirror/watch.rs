//! Notifications of the file system, as keys.
//!
//! The worker that gets a directory watches it, and then lists its entries. Entries that are
//! created before the watch are in the list, and those that are created after it are notified, so
//! none is missed. (A recursive watch would see a new directory too late for the files that are
//! created in it immediately.)
//!
//! A notified path is added after a short delay, which each further notification restarts: a burst
//! of writes is one delivery.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use notify::event::{AccessKind, AccessMode};
use notify::{Config, ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::scan::relative;
use crate::sync::At;
use crate::worker::Mirror;

/// How long a path is left alone after its last notification.
const SETTLE: Duration = Duration::from_millis(50);

/// Opens a notifier, which watches nothing yet.
pub(crate) fn open(mirror: &Arc<Mirror>) -> anyhow::Result<()> {
    let listener = Arc::clone(mirror);
    let config = Config::default().with_follow_symlinks(false);
    let watcher = RecommendedWatcher::new(move |event| add(&listener, event), config);
    *mirror.watcher.lock().unwrap() = Some(watcher.context("cannot watch files")?);
    Ok(())
}

/// Watches one directory, without those below it. Returns whether there is a notifier.
///
/// # Errors
///
/// The system refuses, most often because it is out of watches. That the directory is gone is no
/// error: its own directory's watch tells of it.
pub(crate) fn directory(mirror: &Mirror, path: &Path) -> anyhow::Result<bool> {
    let mut watcher = mirror.watcher.lock().unwrap();
    let Some(watcher) = watcher.as_mut() else {
        return Ok(false);
    };
    match watcher.watch(path, RecursiveMode::NonRecursive) {
        Err(error) if !matches!(error.kind, ErrorKind::PathNotFound) => {
            Err(error).at("cannot watch", path)
        }
        _ => Ok(true),
    }
}

/// Adds the paths of a notification.
fn add(mirror: &Mirror, event: notify::Result<Event>) {
    match event {
        Ok(event) if event.need_rescan() => {} // Some were lost.
        Ok(event) if is_mere_reading(event.kind) => return,
        Ok(event) => {
            for path in event.paths {
                mirror.add_after(relative(&mirror.roots.source, &path), SETTLE);
            }
            return;
        }
        Err(error) => mirror.say(&format!(
            "notification failed, looking at everything: {error}"
        )),
    }
    // Visit everything, from the root on.
    mirror.add_after(PathBuf::new(), SETTLE);
}

/// Reading changes nothing, and the workers themselves read.
fn is_mere_reading(kind: EventKind) -> bool {
    let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
    kind.is_access() && kind != written
}
