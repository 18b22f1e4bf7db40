//! A tenure: the time for which this replica owns one partition under one epoch.
//!
//! Each message carries the tenure under which it was received. A delivery begins only in a tenure
//! that still lasts, and the tenure counts the deliveries that run. It ends in one of two ways:
//!
//! ```text
//!     outlast   returns once none of the deliveries runs that ran before; others begin   (hand-over)
//!     finish    no delivery begins any more; returns once none runs
//!     lose      no delivery begins any more; those that run are told  (the session was fenced)
//! ```
//!
//! Messages that were received and whose delivery has not begun stay unacknowledged: the next owner
//! gets them. Their keys are skipped when they come out of the queue.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::Subject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::attempts::Attempts;
use super::room::Room;
use crate::{Fence, layout};

/// More deliveries than a replica can run at once.
const MOST_RUNNING: u32 = 1 << 20;

pub(crate) struct Tenure {
    pub(crate) fence: Fence,
    /// A permit for each delivery that may run: of those that have begun before the hand-over, and of later ones.
    running: [Arc<Semaphore>; 2],
    /// The hand-over has begun.
    outlasts: AtomicBool,
    lost: watch::Sender<bool>,
    cancelled: watch::Sender<bool>,
    consumer: Mutex<Consumer>,
    /// What its messages wait for, while they do not come.
    doing: Mutex<&'static str>,
    /// For the messages that are held and not in back-off.
    pub(crate) room: Arc<Room>,
    /// Each message that is held has a clone.
    pub(crate) alive: Arc<()>,
    pub(crate) attempts: Attempts,
}

/// The last consumer of a tenure.
struct Consumer {
    number: u64,
    name: String,
    /// Its deletion has begun.
    is_over: bool,
    /// The subject of an acknowledgement: see `Acks::settled`.
    acknowledged: Option<Subject>,
}

impl Consumer {
    fn new(fence: Fence, number: u64) -> Self {
        Consumer {
            number,
            name: layout::consumer_name(fence, number),
            is_over: false,
            acknowledged: None,
        }
    }
}

impl Tenure {
    pub(crate) fn new(fence: Fence, window: usize) -> Self {
        let running = || Arc::new(Semaphore::new(MOST_RUNNING as usize));
        Tenure {
            fence,
            running: [running(), running()],
            outlasts: AtomicBool::new(false),
            lost: watch::Sender::new(false),
            cancelled: watch::Sender::new(false),
            consumer: Mutex::new(Consumer::new(fence, 1)),
            doing: Mutex::default(),
            room: Arc::new(Room::new(window)),
            alive: Arc::new(()),
            attempts: Attempts::default(),
        }
    }

    fn consumer(&self) -> MutexGuard<'_, Consumer> {
        self.consumer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The consumer is going to be deleted: an acknowledgement may not reach it. Returns its name.
    pub(crate) fn end_consumer(&self) -> String {
        let mut consumer = self.consumer();
        consumer.is_over = true;
        consumer.name.clone()
    }

    /// The consumer is used up: the next one has another name.
    pub(crate) fn next_consumer(&self) {
        let mut consumer = self.consumer();
        *consumer = Consumer::new(self.fence, consumer.number + 1);
    }

    /// Notes what the messages wait for.
    pub(crate) fn does(&self, doing: &'static str) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }

    pub(crate) fn doing(&self) -> &'static str {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the consumer.
    pub(crate) fn consumer_name(&self) -> String {
        self.consumer().name.clone()
    }

    /// An acknowledgement is sent to this subject. Returns whether it reaches the consumer: it does not if its message is of a former one, and
    /// may not if the consumer is being deleted.
    pub(crate) fn acknowledges(&self, subject: &Subject) -> bool {
        let mut consumer = self.consumer();
        let is_its = subject.split('.').any(|token| token == consumer.name);
        let reaches = is_its && !consumer.is_over;
        if reaches && consumer.acknowledged.is_none() {
            consumer.acknowledged = Some(subject.clone());
        }
        reaches
    }

    /// The subject of an acknowledgement that was sent.
    pub(crate) fn acknowledged(&self) -> Option<Subject> {
        self.consumer().acknowledged.clone()
    }

    /// How many messages are held, in back-off or not.
    pub(crate) fn held(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }

    /// Begins a delivery, which runs until the permit is dropped. `None`: the tenure has ended.
    pub(crate) fn begin(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            // SeqCst: with the store in `outlast`, and as simple as can be; a delivery that begins beside it counts among those before.
            let outlasts = self.outlasts.load(SeqCst);
            let permit = Arc::clone(&self.running[usize::from(outlasts)]).try_acquire_owned();
            // SeqCst: as above. A hand-over that has begun meanwhile has taken the permits of the first kind.
            if permit.is_ok() || outlasts == self.outlasts.load(SeqCst) {
                return permit.ok();
            }
        }
    }

    /// Waits until none of the deliveries runs that run now. Others begin meanwhile.
    pub(crate) async fn outlast(&self) {
        // SeqCst: see `begin`.
        self.outlasts.store(true, SeqCst);
        Self::close(&self.running[0]).await;
    }

    /// Ends the tenure, and waits until no delivery runs.
    pub(crate) async fn finish(&self) {
        // SeqCst: see `begin`. Deliveries begin with permits of the second kind, if at all.
        self.outlasts.store(true, SeqCst);
        tokio::join!(Self::close(&self.running[0]), Self::close(&self.running[1]));
    }

    async fn close(running: &Semaphore) {
        // The semaphore is fair: no delivery begins once this waits, nor after, because it is closed before the permits are
        // given back. An error: it is closed, because nothing of its kind begins, or the tenure is lost, which does not wait
        // for those that run.
        if let Ok(_all) = running.acquire_many(MOST_RUNNING).await {
            running.close();
        }
    }

    /// Cancels the deliveries that run, at their next await point.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    /// Waits until the deliveries are cancelled.
    pub(crate) async fn cancelled(&self) {
        // The sender is in `self`.
        let mut cancelled = self.cancelled.subscribe();
        let _ = cancelled.wait_for(|cancelled| *cancelled).await;
    }

    /// Ends the tenure without waiting.
    pub(crate) fn lose(&self) {
        self.running.iter().for_each(|running| running.close());
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
        let fence = Fence {
            partition: 0,
            epoch: 1,
        };
        Tenure::new(fence, 1)
    }

    #[tokio::test]
    async fn a_hand_over_waits_for_what_runs_and_lets_others_begin() {
        let tenure = tenure();
        let slow = tenure.begin();
        assert!(slow.is_some());
        let mut outlast = std::pin::pin!(tenure.outlast());
        assert_eq!((&mut outlast).now_or_never(), None);
        let quick = tenure.begin();
        assert!(quick.is_some(), "it does not wait for the slow one");
        drop(slow);
        assert_eq!((&mut outlast).now_or_never(), Some(()));
        let mut finish = std::pin::pin!(tenure.finish());
        assert_eq!((&mut finish).now_or_never(), None);
        assert!(tenure.begin().is_none());
        drop(quick);
        assert_eq!((&mut finish).now_or_never(), Some(()));
    }

    /// N5: otherwise the next owner would deliver again what is handled meanwhile.
    #[test]
    fn a_consumer_that_is_being_deleted_gets_no_acknowledgements() {
        let tenure = tenure();
        let of = |name: &str| Subject::from(format!("$JS.ACK.WORK-1-0.{name}.1.5.1.0.0"));
        let (first, subject) = (tenure.consumer_name(), of(&tenure.consumer_name()));
        assert!(tenure.acknowledges(&subject));
        assert_eq!(tenure.end_consumer(), first);
        assert!(!tenure.acknowledges(&subject));
        tenure.next_consumer();
        assert!(!tenure.acknowledges(&subject));
        assert!(tenure.acknowledges(&of(&tenure.consumer_name())));
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
