//! Keys with values as one writes them by hand, without a queue for it: a sharded map with an inbox
//! for each key, and a channel of the keys that have something in theirs.
//!
//! A key is in the map from its first event until a worker finds its inbox empty after its work.
//! Only the producer that inserts the key sends it, and after that only the worker that has received
//! it. So it is in the channel or with one worker, and never twice.
//!
//! A message without a key says that the last producer has ended. A worker that receives it takes
//! one more key, sends the message on, and ends if there was no key. Nobody else has the message
//! meanwhile, and a worker that sends a key comes back for it.

use std::mem;

use crossbeam_channel::{Receiver, Sender, unbounded};
use dashmap::{DashMap, Entry};
use foldhash::fast::RandomState;

use crate::queue::{Event, Inboxes};

pub(super) struct ByHand {
    inboxes: DashMap<u64, Vec<Event>, RandomState>,
    sender: Sender<Option<u64>>,
    receiver: Receiver<Option<u64>>,
}

impl ByHand {
    fn send(&self, message: Option<u64>) {
        let sent = self.sender.send(message);
        sent.expect("the receiver lives as long as the sender");
    }

    fn next(&self) -> Option<u64> {
        let message = self.receiver.recv();
        let message = message.expect("the sender lives as long as the receiver");
        message.or_else(|| {
            let key = self.receiver.try_recv().ok().flatten();
            self.send(None);
            key
        })
    }
}

impl Inboxes for ByHand {
    fn new(_workers: usize) -> Self {
        let (sender, receiver) = unbounded();
        Self {
            inboxes: DashMap::default(),
            sender,
            receiver,
        }
    }

    fn put(&self, key: u64, event: Event) {
        match self.inboxes.entry(key) {
            Entry::Occupied(mut inbox) => inbox.get_mut().push(event),
            Entry::Vacant(place) => {
                drop(place.insert(vec![event]));
                self.send(Some(key));
            }
        }
    }

    fn deliver(&self, mut work: impl FnMut(u64, &[Event])) {
        while let Some(key) = self.next() {
            let events = match self.inboxes.get_mut(&key) {
                Some(mut inbox) => mem::take(inbox.value_mut()),
                None => unreachable!("a key that was sent is in the map"),
            };
            work(key, &events);
            let is_done = |_: &u64, inbox: &Vec<Event>| inbox.is_empty();
            if self.inboxes.remove_if(&key, is_done).is_none() {
                self.send(Some(key));
            }
        }
    }

    fn is_empty(&self) -> bool {
        // The message without a key is still there.
        self.inboxes.is_empty() && self.receiver.len() == 1
    }

    fn shut_down(&self) {
        self.send(None);
    }
}
