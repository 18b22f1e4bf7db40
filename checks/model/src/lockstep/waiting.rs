//! Futures that wait, and how often they are woken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use keyqueue::GetError;

use super::Lockstep;
use crate::Op;

/// One of the waiting futures. It may be polled with either of two wakers; the one it was polled
/// with last is the one that must be run.
pub(crate) struct Waiting<F> {
    future: F,
    bells: [Arc<Bell>; 2],
    last: usize,
    expected: [usize; 2],
}

/// A waker that counts.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<F: Future + Unpin> Waiting<F> {
    pub(crate) fn new(future: F) -> Self {
        Waiting {
            future,
            bells: Default::default(),
            last: 0,
            expected: [0; 2],
        }
    }

    pub(crate) fn poll(&mut self, bell: usize) -> Poll<F::Output> {
        self.last = bell;
        let waker = Waker::from(Arc::clone(&self.bells[bell]));
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    fn rings(&self) -> [usize; 2] {
        [0, 1].map(|bell: usize| self.bells[bell].0.load(Ordering::Relaxed))
    }
}

/// Compares how often each future was woken with the model's account of it.
pub(crate) fn compare_wakes<F: Future + Unpin>(
    futures: &mut [Option<Waiting<F>>],
    woken: Vec<usize>,
    after: Op,
) {
    for who in woken {
        let waiting = futures[who].as_mut().expect("it waits");
        waiting.expected[waiting.last] += 1;
    }
    for waiting in futures.iter().flatten() {
        assert_eq!(waiting.rings(), waiting.expected, "wakes, after {after:?}");
    }
}

impl Lockstep<'_> {
    pub(super) fn poll_get(&mut self, who: usize, bell: usize) {
        let getter = || Waiting::new(Box::pin(self.queue.get_async()) as _);
        let getter = self.getters[who].get_or_insert_with(getter);
        let polled = getter.poll(bell);
        match (polled, self.model.poll_get(who)) {
            (Poll::Pending, None) => {}
            (Poll::Ready(got), Some(expected)) => {
                self.getters[who] = None;
                self.keep(got.ok_or(GetError::ShutDown), expected);
            }
            (polled, expected) => panic!("getter {who} is {polled:?}, the model says {expected:?}"),
        }
    }

    pub(super) fn poll_drain(&mut self, who: usize) {
        self.drain_begins();
        let drainer = self.drainers[who]
            .get_or_insert_with(|| Waiting::new(Box::pin(self.queue.drain_async())));
        let ready = drainer.poll(0).is_ready();
        assert_eq!(ready, self.model.poll_drain(who), "drainer {who}");
        if ready {
            self.drainers[who] = None;
        }
    }
}
