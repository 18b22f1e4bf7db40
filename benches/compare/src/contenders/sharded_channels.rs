//! What one writes where nothing has to be merged or retried: a channel for each worker, and each key
//! goes to the channel that its hash says.
//!
//! A worker has all events of its keys, one after the other and in order, with nothing that is shared
//! but its channel. It is idle while another one has more to do, and the events of a key that is put
//! faster than it is worked on pile up.

use std::hash::BuildHasher;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};
use foldhash::fast::RandomState;

use crate::queue::{Event, Inboxes};

type Message = Option<(u64, Event)>;

pub(super) struct ShardedChannels {
    channels: Vec<(Sender<Message>, Receiver<Message>)>,
    /// The number of workers that have their channel.
    workers: AtomicUsize,
    hasher: RandomState,
}

impl Inboxes for ShardedChannels {
    fn new(workers: usize) -> Self {
        Self {
            channels: (0..workers).map(|_| unbounded()).collect(),
            workers: AtomicUsize::new(0),
            hasher: RandomState::default(),
        }
    }

    fn put(&self, key: u64, event: Event) {
        // The high bits of a product, which is what is cheaper than a remainder.
        let hash = u128::from(self.hasher.hash_one(key));
        let channel = ((hash * self.channels.len() as u128) >> 64) as usize;
        let sent = self.channels[channel].0.send(Some((key, event)));
        sent.expect("the receiver lives as long as the sender");
    }

    fn deliver(&self, mut work: impl FnMut(u64, &[Event])) {
        // Ordering: Relaxed; a number.
        let worker = self.workers.fetch_add(1, Ordering::Relaxed);
        let channel = &self.channels[worker].1;
        while let Some((key, event)) = channel.recv().ok().flatten() {
            work(key, slice::from_ref(&event));
        }
    }

    fn is_empty(&self) -> bool {
        self.channels.iter().all(|(_, events)| events.is_empty())
    }

    fn shut_down(&self) {
        for (channel, _) in &self.channels {
            let sent = channel.send(None);
            sent.expect("the receiver lives as long as the sender");
        }
    }
}
