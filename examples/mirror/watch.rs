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
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::Context;
use notify::event::{AccessKind, AccessMode};
use notify::{Config, ErrorKind, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::scan::relative;
use crate::sync::At;
use crate::worker::Mirror;

/// How long a path is left alone after its last notification.
const SETTLE: Duration = Duration::from_millis(50);

pub(crate) type Event = notify::Result<notify::Event>;

/// The notifier; `None` once closed.
pub(crate) struct Watch(Mutex<Option<RecommendedWatcher>>);

impl Watch {
    /// A notifier that watches nothing yet, and where its events arrive.
    pub(crate) fn start() -> anyhow::Result<(Self, Receiver<Event>)> {
        let (sender, events) = mpsc::channel();
        let handler = move |event: Event| {
            if !event
                .as_ref()
                .is_ok_and(|event| is_mere_reading(event.kind))
            {
                // The receiver is dropped last, when no thread listens any more.
                let _ = sender.send(event);
            }
        };
        let config = Config::default().with_follow_symlinks(false);
        let watcher = RecommendedWatcher::new(handler, config).context("cannot watch files")?;
        Ok((Self(Mutex::new(Some(watcher))), events))
    }

    /// Watches one directory, without those below it. Returns whether the notifier is still open.
    ///
    /// # Errors
    ///
    /// The system refuses, most often because it is out of watches. That the directory is gone is
    /// no error: its own directory's watch tells of it.
    pub(crate) fn directory(&self, path: &Path) -> anyhow::Result<bool> {
        let mut open = self.0.lock().unwrap();
        let Some(watcher) = open.as_mut() else {
            return Ok(false);
        };
        match watcher.watch(path, RecursiveMode::NonRecursive) {
            Err(error) if !matches!(error.kind, ErrorKind::PathNotFound) => {
                Err(error).at("cannot watch", path)
            }
            _ => Ok(true),
        }
    }

    /// Ends the notifications; [`listen`] returns after those that have come.
    pub(crate) fn close(&self) {
        self.0.lock().unwrap().take();
    }
}

/// Adds the path of every notification, until the watch is closed.
pub(crate) fn listen(mirror: &Mirror, events: Receiver<Event>) {
    for event in events {
        match event {
            // Notifications were lost: visit everything, from the root on.
            Ok(event) if event.need_rescan() => mirror.add_after(PathBuf::new(), SETTLE),
            Ok(event) => {
                for path in event.paths {
                    mirror.add_after(relative(&mirror.roots.source, &path), SETTLE);
                }
            }
            Err(error) => {
                mirror.say(&format!(
                    "notification failed, looking at everything: {error}"
                ));
                mirror.add_after(PathBuf::new(), SETTLE);
            }
        }
    }
}

/// Reading changes nothing, and the workers themselves read.
fn is_mere_reading(kind: EventKind) -> bool {
    let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
    kind.is_access() && kind != written
}
