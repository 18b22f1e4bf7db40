//! What can go wrong outside the reconcilers.

use keyqueue::ConfigError;
use kube_runtime::watcher;

/// Why the controller's queue yielded an error: what is inside of
/// [`Error::QueueError`](crate::Error::QueueError) on the stream of
/// [`run`](crate::Controller::run).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A watch failed. It is started again after a back-off.
    #[error(transparent)]
    Watch(#[from] watcher::Error),
    /// A setting of the controller is out of its range. The stream ends after this error; nothing
    /// was reconciled.
    #[error(transparent)]
    Config(#[from] ConfigError),
}
