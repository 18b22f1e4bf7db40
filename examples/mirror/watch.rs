//! Notifications of the file system, as keys.
//!
//! Every directory gets a watch of its own, by the worker that was handed the directory: first the
//! watch, then the list of entries. What is created before the watch is in the list, what is created
//! after it is notified, so nothing falls between. (A recursive watch sees a new directory too late for
//! the files that are made in it at once.)
//!
//! A notified path is added a moment later, not at once, and each further notification starts that
//! moment anew: a burst of writes is one delivery.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::Context;
use notify::event::{AccessKind, AccessMode};
use notify::{Config, ErrorKind, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::scan::relative;
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
                // The receiver goes away last, when nobody listens any more.
                let _ = sender.send(event);
            }
        };
        let config = Config::default().with_follow_symlinks(false);
        let watcher = RecommendedWatcher::new(handler, config).context("cannot watch files")?;
        Ok((Self(Mutex::new(Some(watcher))), events))
    }

    /// Watches one directory, without what is below it; says whether the watch is still open.
    ///
    /// # Errors
    ///
    /// The system refuses, most often because it is out of watches. That the directory is gone is no
    /// error: its own directory's watch tells of it.
    pub(crate) fn directory(&self, path: &Path) -> anyhow::Result<bool> {
        let mut open = self.0.lock().unwrap();
        let Some(watcher) = open.as_mut() else {
            return Ok(false);
        };
        match watcher.watch(path, RecursiveMode::NonRecursive) {
            Err(error) if !matches!(error.kind, ErrorKind::PathNotFound) => {
                Err(error).with_context(|| format!("cannot watch {}", path.display()))
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
            // Notifications were lost: look at everything, from the root on.
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
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    }
}
