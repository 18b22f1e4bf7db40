//! Values: lists of pieces. Each piece is one thread's, and has its number, so that a delivery shows whether the
//! pieces of each thread came in order (V1). A piece that is dropped is counted, so that none is lost (V2).

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use keyqueue_model::ledger::Reply;

use crate::settings::{Merging, Settings};

// Ordering: Relaxed everywhere; counts, which are read after the threads were joined, or by the holder of a key.
const R: Ordering = Ordering::Relaxed;

pub(crate) type Value = Vec<Piece>;

#[derive(Debug)]
pub(crate) struct Piece {
    /// The place of the thread that has put it.
    thread: usize,
    number: u32,
    /// Whether a delivery with it was finished, or it was taken back.
    done: bool,
    ends: Arc<Ends>,
}

impl Drop for Piece {
    fn drop(&mut self) {
        let ends = &self.ends;
        let count = if self.done { &ends.done } else { &ends.lost };
        count.fetch_add(1, R);
    }
}

/// How pieces have ended.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    made: AtomicU64,
    /// Puts were refused.
    refused: AtomicU64,
    done: AtomicU64,
    /// Dropped without a delivery.
    lost: AtomicU64,
}

/// Where the pieces of one thread come from.
#[derive(Debug)]
pub(crate) struct Source {
    thread: usize,
    next: u32,
    /// The most pieces of a value.
    most: u32,
    /// The pieces of the last value.
    last: u32,
    ends: Arc<Ends>,
}

impl Source {
    /// A value of new pieces.
    pub(crate) fn value(&mut self) -> Value {
        self.last = fastrand::u32(1..=self.most);
        self.ends.made.fetch_add(self.last.into(), R);
        let first = self.next + 1;
        self.next += self.last;
        let piece = |number| Piece {
            thread: self.thread,
            number,
            done: false,
            ends: Arc::clone(&self.ends),
        };
        (first..=self.next).map(piece).collect()
    }

    /// Notes what became of the put of the last value.
    pub(crate) fn put(&self, reply: Reply) {
        if !reply.is_accepted() {
            self.ends.refused.fetch_add(self.last.into(), R);
        }
    }
}

/// The pieces of a life.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Of keys that producers put, and of others.
    ends: [Arc<Ends>; 2],
    /// The number of the last piece that was delivered, for each key and thread.
    last: Vec<AtomicU32>,
    threads: usize,
}

impl Pieces {
    /// For so many keys and threads that put; none without values.
    pub(crate) fn new(settings: &Settings, keys: u64, threads: usize) -> Self {
        let places = settings
            .values
            .as_ref()
            .map_or(0, |_| keys as usize * threads);
        Pieces {
            ends: Default::default(),
            last: (0..places).map(|_| AtomicU32::new(0)).collect(),
            threads,
        }
    }

    /// The pieces of a thread, of which a value has this many at `most`; whether they may be lost when the queue
    /// ends, as those of delays are.
    pub(crate) fn source(&self, thread: usize, most: u32, may_be_lost: bool) -> Source {
        Source {
            thread,
            next: 0,
            most,
            last: 0,
            ends: Arc::clone(&self.ends[usize::from(may_be_lost)]),
        }
    }

    /// Notes that these pieces of a key were delivered, and that the delivery is about to finish.
    pub(crate) fn delivered(&self, key: u64, pieces: &mut [Piece]) {
        assert!(!pieces.is_empty(), "V2: key {key} came without a value");
        for piece in pieces {
            let last = &self.last[key as usize * self.threads + piece.thread];
            let before = last.load(R);
            assert!(
                before < piece.number,
                "V1, V2: key {key}: {before} came before {piece:?}"
            );
            last.store(piece.number, R);
            piece.done = true;
        }
    }

    /// Notes that these pieces were given back.
    pub(crate) fn taken(pieces: &mut [Piece]) {
        pieces.iter_mut().for_each(|piece| piece.done = true);
    }

    /// Checks that each piece has ended once, and that of those of producers none was lost unless they `may_be`.
    pub(crate) fn check(&self, may_be_lost: bool) {
        for ends in &self.ends {
            let [made, done, lost] = [&ends.made, &ends.done, &ends.lost].map(|n| n.load(R));
            assert_eq!(made, done + lost, "C10, V2: pieces are alive: {ends:?}");
        }
        let plain = &self.ends[0];
        let [lost, refused] = [&plain.lost, &plain.refused].map(|n| n.load(R));
        assert!(
            may_be_lost || lost == refused,
            "V2: values were lost: {plain:?}"
        );
    }
}

/// The merge function.
pub(crate) fn merge(merging: Merging) -> impl Fn(&mut Value, Value) + Send + Sync + 'static {
    move |older, mut newer| match merging {
        Merging::Latest => *older = newer,
        // Without the panic hook, which ends the process.
        Merging::Panicking if fastrand::u8(..32) == 0 => resume_unwind(Box::new("as intended")),
        Merging::Append | Merging::Panicking => older.append(&mut newer),
    }
}
