//! A tenure: the time for which this replica owns one partition under one epoch.
//!
//! Each message carries the tenure under which it was received. A delivery begins only in a tenure
//! that still lasts, and the tenure counts the deliveries that run. It ends in one of two ways:
//!
//! ```text
//!     finish    no delivery begins any more; returns once none runs   (hand-over)
//!     lose      no delivery begins any more; those that run are told  (the session was fenced)
//! ```
//!
//! Messages that were received and whose delivery has not begun stay unacknowledged: the next owner
//! gets them. Their keys are skipped when they come out of the queue.

use std::sync::{Arc, OnceLock};

use async_nats::Subject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::Fence;

/// More deliveries than a replica can run at once.
const MOST_RUNNING: u32 = 1 << 20;

pub(crate) struct Tenure {
    pub(crate) fence: Fence,
    /// A permit for each delivery that may run.
    running: Arc<Semaphore>,
    lost: watch::Sender<bool>,
    /// The subject of one acknowledgement that was sent: see `Acks::settled`.
    pub(crate) acknowledged: OnceLock<Subject>,
}

impl Tenure {
    pub(crate) fn new(fence: Fence) -> Self {
        Tenure {
            fence,
            running: Arc::new(Semaphore::new(MOST_RUNNING as usize)),
            lost: watch::Sender::new(false),
            acknowledged: OnceLock::new(),
        }
    }

    /// Begins a delivery, which runs until the permit is dropped. `None`: the tenure has ended.
    pub(crate) fn begin(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.running).try_acquire_owned().ok()
    }

    /// Ends the tenure, and waits until no delivery runs.
    pub(crate) async fn finish(&self) {
        // The semaphore is fair: no delivery begins once this waits. An error: it is lost, which
        // does not wait for those that run.
        if let Ok(all) = self.running.acquire_many(MOST_RUNNING).await {
            all.forget();
        }
    }

    /// Ends the tenure without waiting.
    pub(crate) fn lose(&self) {
        self.running.close();
        self.lost.send_replace(true);
    }

    pub(crate) fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Waits until the tenure is lost.
    pub(crate) async fn lost(&self) {
        // The sender is in `self`.
        let _ = self.lost.subscribe().wait_for(|lost| *lost).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn tenure() -> Tenure {
        Tenure::new(Fence {
            partition: 0,
            epoch: 1,
        })
    }

    #[tokio::test]
    async fn a_tenure_that_finishes_begins_nothing_and_waits_for_what_runs() {
        let tenure = tenure();
        let running = tenure.begin();
        assert!(running.is_some());
        let mut finish = std::pin::pin!(tenure.finish());
        assert_eq!((&mut finish).now_or_never(), None);
        assert!(tenure.begin().is_none());
        drop(running);
        assert_eq!((&mut finish).now_or_never(), Some(()));
        assert!(tenure.begin().is_none());
    }

    #[tokio::test]
    async fn a_lost_tenure_begins_nothing_and_waits_for_nothing() {
        let tenure = tenure();
        let running = tenure.begin();
        let mut lost = std::pin::pin!(tenure.lost());
        assert_eq!((&mut lost).now_or_never(), None);
        tenure.lose();
        assert_eq!((&mut lost).now_or_never(), Some(()));
        assert!(tenure.begin().is_none());
        tenure.finish().await;
        drop(running);
        assert!(tenure.begin().is_none());
    }
}
