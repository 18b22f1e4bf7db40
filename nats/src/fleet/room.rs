//! What a replica may hold: for each partition a number of messages, and for all of them a number of bytes.
//!
//! A message takes its room when it is received and gives it back when it is dropped, or when its key enters a long back-off: then its
//! payload is dropped, and read from the stream again when the key is due. So keys in back-off take no room, and no memory
//! but their names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Notify;

/// Counts what is held, up to a bound.
///
/// The counts are exact; who waits looks again after each change, so they need no ordering.
#[derive(Debug)]
pub(crate) struct Room {
    most: usize,
    held: AtomicUsize,
    freed: Notify,
}

impl Room {
    pub(crate) fn new(most: usize) -> Self {
        Room {
            most,
            held: AtomicUsize::new(0),
            freed: Notify::new(),
        }
    }

    /// How much more may be held.
    pub(crate) fn left(&self) -> usize {
        // Relaxed: a count.
        self.most.saturating_sub(self.held.load(Relaxed))
    }

    pub(crate) fn held(&self) -> usize {
        // Relaxed: a count.
        self.held.load(Relaxed)
    }

    /// Waits until there is room.
    pub(crate) async fn wait(&self) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Before the look: what is freed after it wakes.
            freed.as_mut().enable();
            if self.left() > 0 {
                return;
            }
            freed.await;
        }
    }

    fn take(&self, amount: usize) {
        // Relaxed: a count.
        self.held.fetch_add(amount, Relaxed);
    }

    fn give_back(&self, amount: usize) {
        // Relaxed: a count.
        let before = self.held.fetch_sub(amount, Relaxed);
        // Only who found it full waits.
        if before >= self.most {
            self.freed.notify_waiters();
        }
    }
}

/// That a message is held, and its room. A clone of the message, which a handler may keep, has neither.
#[derive(Debug, Default)]
pub(crate) struct Held {
    room: Option<(Arc<Room>, Arc<Room>, usize)>,
    /// Counts the messages of a tenure that are held, in back-off or not.
    _alive: Option<Arc<()>>,
}

impl Held {
    /// Takes room for one message of a partition, with these bytes of the replica's memory. It may exceed the bounds: who receives asks
    /// before.
    pub(crate) fn new(
        messages: &Arc<Room>,
        memory: &Arc<Room>,
        bytes: usize,
        alive: &Arc<()>,
    ) -> Self {
        let mut held = Held {
            room: None,
            _alive: Some(Arc::clone(alive)),
        };
        held.unpark(messages, memory, bytes);
        held
    }

    /// Whether the message has no room, and no payload: that is in the stream.
    pub(crate) fn is_parked(&self) -> bool {
        self.room.is_none()
    }

    /// Takes room again, for a payload that was read again.
    pub(crate) fn unpark(&mut self, messages: &Arc<Room>, memory: &Arc<Room>, bytes: usize) {
        self.park();
        messages.take(1);
        memory.take(bytes);
        self.room = Some((Arc::clone(messages), Arc::clone(memory), bytes));
    }

    /// Gives back the room.
    pub(crate) fn park(&mut self) {
        if let Some((messages, memory, bytes)) = self.room.take() {
            messages.give_back(1);
            memory.give_back(bytes);
        }
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        Held::default()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.park();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn room_is_given_back_once_and_wakes() {
        let (messages, memory) = (Arc::new(Room::new(1)), Arc::new(Room::new(100)));
        let alive = Arc::new(());
        let held = Held::new(&messages, &memory, 120, &alive);
        assert_eq!((messages.left(), memory.left()), (0, 0));
        let clone = held.clone();
        let mut wait = std::pin::pin!(memory.wait());
        assert_eq!((&mut wait).now_or_never(), None);
        drop(clone);
        assert_eq!((&mut wait).now_or_never(), None);
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(held);
        assert_eq!(Arc::strong_count(&alive), 1);
        assert_eq!((&mut wait).now_or_never(), Some(()));
        assert_eq!((messages.held(), memory.held()), (0, 0));
    }
}
