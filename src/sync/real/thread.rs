//! A thread that the crate starts.

use std::io;
use std::thread::{Builder, JoinHandle, current};

pub(crate) struct Thread(JoinHandle<()>);

impl Thread {
    pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Builder::new().name(name.into()).spawn(run).map(Thread)
    }

    /// Waits for the thread to end, unless it is the calling one.
    pub(crate) fn join_unless_current(self) {
        if self.0.thread().id() != current().id() {
            // The thread catches panics of what it runs. If it panicked anyway, it has ended, too.
            let _ = self.0.join();
        }
    }
}
