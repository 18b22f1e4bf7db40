//! What is said to whoever reads the log.

use std::sync::Arc;

use tempfile::NamedTempFile;
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

/// Hears the warnings of this thread.
pub(crate) struct Warnings {
    said: NamedTempFile,
    /// If there is only one subscriber, tracing asks that of the thread which comes first to an event, and a thread of another test here
    /// has none (tokio-rs/tracing#2874).
    _other: Dispatch,
    _installed: DefaultGuard,
}

impl Warnings {
    pub(crate) fn hear() -> Self {
        let said = NamedTempFile::new().unwrap();
        let other = Dispatch::new(registry().with(LevelFilter::OFF));
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(Arc::new(said.reopen().unwrap()));
        Warnings {
            _installed: set_default(subscriber.finish()),
            _other: other,
            said,
        }
    }

    /// Those that have this in them.
    pub(crate) fn with(&self, part: &str) -> Vec<String> {
        let said = std::fs::read_to_string(self.said.path()).unwrap();
        println!("{said}");
        let lines = said.lines().filter(|line| line.contains(part));
        lines.map(str::to_owned).collect()
    }
}
