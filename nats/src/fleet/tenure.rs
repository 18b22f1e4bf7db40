//! A tenure: the time for which this replica owns one partition under one epoch.
//!
//! Each message carries the tenure under which it was received. A delivery begins only in a tenure
//! that still lasts, and the tenure counts the deliveries that run. It ends in one of two ways:
//!
//! ```text
//!     outlast   returns once none of the deliveries runs that ran before; others begin   (hand-over)
//!     finish    no delivery begins any more; returns once none runs
//!     lose      no delivery begins any more; those that run are told  (the session was fenced, or a hand-over ends)
//! ```
//!
//! Messages that were received and whose delivery has not begun stay unacknowledged: the next owner
//! gets them. Their keys are skipped when they come out of the queue.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{Statistics, Subject};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::attempts::Attempts;
use super::room::Room;
use super::stranger::Strangers;
use crate::{Fence, layout};

const MINUTE: Duration = Duration::from_secs(60);
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
    /// Of the client.
    statistics: Arc<Statistics>,
    /// What its messages wait for, while they do not come.
    doing: Mutex<&'static str>,
    /// When it was told that keys wait for what cannot be read.
    cannot_read: Mutex<Option<Instant>>,
    /// For the messages that are held and not in back-off.
    pub(crate) room: Arc<Room>,
    /// Each message that is held has a clone.
    pub(crate) alive: Arc<()>,
    pub(crate) attempts: Attempts,
    pub(super) strangers: Strangers,
}

/// The last consumer of a tenure.
struct Consumer {
    number: u64,
    name: String,
    /// How many times the client had connected before it was made.
    connects: u64,
    /// What was handled before it was made has come again, if it was to.
    has_caught_up: bool,
    /// The server that led it then.
    leader: Option<String>,
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
            connects: 0,
            has_caught_up: false,
            leader: None,
            is_over: false,
            acknowledged: None,
        }
    }
}

impl Tenure {
    pub(crate) fn new(fence: Fence, window: usize, statistics: Arc<Statistics>) -> Self {
        let running = || Arc::new(Semaphore::new(MOST_RUNNING as usize));
        Tenure {
            fence,
            running: [running(), running()],
            outlasts: AtomicBool::new(false),
            lost: watch::Sender::new(false),
            cancelled: watch::Sender::new(false),
            consumer: Mutex::new(Consumer::new(fence, 1)),
            statistics,
            doing: Mutex::default(),
            cannot_read: Mutex::default(),
            room: Arc::new(Room::new(window)),
            alive: Arc::new(()),
            attempts: Attempts::default(),
            strangers: Strangers::default(),
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

    /// The consumer is going to be made, by a client that has connected this often.
    pub(crate) fn makes_consumer(&self, connects: u64) {
        self.consumer().connects = connects;
    }

    /// What was handled before the consumer was made has come again, if it was to. `leader`: the server that has led the consumer since.
    pub(crate) fn catches_up(&self, leader: Option<String>) {
        let mut consumer = self.consumer();
        (consumer.has_caught_up, consumer.leader) = (true, leader);
    }

    /// Whether no acknowledgement was lost, with a connection or a leader, whose message has not come again. `leader`: of the consumer now.
    pub(crate) fn has_caught_up(&self, leader: Option<String>) -> bool {
        let consumer = self.consumer();
        consumer.has_caught_up && consumer.leader == leader && !self.may_lose(&consumer)
    }

    /// Whether acknowledgements, to the consumer or of messages of it, may have been lost: it is going to be deleted, or the client has
    /// connected again.
    fn may_lose(&self, consumer: &Consumer) -> bool {
        // Relaxed: a number.
        consumer.is_over || consumer.connects != self.statistics.connects.load(Relaxed)
    }

    /// Notes what the messages wait for.
    pub(crate) fn does(&self, doing: &'static str) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }

    pub(crate) fn doing(&self) -> &'static str {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key waits, because what it needs cannot be read. There may be many, each second: it is told once a minute.
    pub(crate) fn cannot_read(&self, key: &str, what: &str, error: &async_nats::Error) {
        let mut told = self
            .cannot_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= MINUTE) {
            *told = Some(Instant::now());
            drop(told);
            tracing::warn!(fence = %self.fence, key, what, %error, "keys wait for what cannot be read");
        }
    }

    /// The name of the consumer.
    pub(crate) fn consumer_name(&self) -> String {
        self.consumer().name.clone()
    }

    /// An acknowledgement is sent to this subject. Returns whether it reaches the consumer, as did those before it: it does not if its message is
    /// of a former one, and may not if the consumer is being deleted. With a new connection those before it may not have.
    pub(crate) fn acknowledges(&self, subject: &Subject) -> bool {
        let mut consumer = self.consumer();
        let is_its = subject.split('.').any(|token| token == consumer.name);
        let reaches = is_its && !self.may_lose(&consumer);
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
        Tenure::new(fence, 1, Arc::default())
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

    /// N7: otherwise a message stays whose acknowledgement was lost with a connection, and a later one of its key goes.
    #[test]
    fn with_a_new_connection_nothing_is_known_to_be_acknowledged() {
        let tenure = tenure();
        let subject = Subject::from(format!("$JS.ACK.S.{}.1", tenure.consumer_name()));
        tenure.statistics.connects.store(1, Relaxed);
        tenure.makes_consumer(1);
        assert!(tenure.acknowledges(&subject));
        let has_caught_up = |leader: &str| tenure.has_caught_up(Some(leader.to_owned()));
        assert!(
            !tenure.has_caught_up(None),
            "what is handled may come again"
        );
        tenure.catches_up(Some("first".to_owned()));
        assert!(has_caught_up("first") && !has_caught_up("second") && !tenure.has_caught_up(None));
        tenure.statistics.connects.store(2, Relaxed);
        assert!(!tenure.acknowledges(&subject) && !has_caught_up("first"));
        tenure.end_consumer();
        tenure.next_consumer();
        tenure.makes_consumer(2);
        assert!(!tenure.has_caught_up(None));
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
