//! Many futures as one that polls only those that were woken.
//!
//! # Protocol
//!
//! Each future has a place and its own waker. The waker pushes the place to a ready list, unless it
//! is there already, and wakes the task. A poll of the whole:
//!
//! 1. registers the task's waker,
//! 2. pops a place off the ready list, and clears its flag,
//! 3. polls the place's future, and repeats from 2, at most once for each future.
//!
//! No wake-up is lost. A wake-up after step 2 pushes the place again, so there is another poll of
//! its future. A wake-up before step 1 has pushed its place where step 2 finds it; a later one
//! wakes the task. Wakers that outlive the futures push each place at most once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{AtomicWaker, SegQueue};

/// A future that is ready when all of its futures are.
pub(super) struct Join<F> {
    /// Each future, until it is ready, and its waker.
    places: Vec<(Option<Pin<Box<F>>>, Waker)>,
    running: usize,
    woken: Arc<Woken>,
}

/// The ready list, and the task to wake.
struct Woken {
    places: SegQueue<usize>,
    /// Whether each place is on the ready list, or about to be pushed to it.
    is_queued: Vec<AtomicBool>,
    task: AtomicWaker,
}

/// The target of one future's waker.
struct TaskWaker {
    place: usize,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering: AcqRel; the Release pairs with the swap in `poll`, so that the poll sees what
        // happened before this wake-up, even if another had set the flag already.
        if !self.woken.is_queued[self.place].swap(true, Ordering::AcqRel) {
            self.woken.places.push(self.place);
            self.woken.task.wake();
        }
    }
}

impl<F: Future<Output = ()>> Join<F> {
    pub(super) fn new(futures: impl ExactSizeIterator<Item = F>) -> Self {
        let running = futures.len();
        let woken = Arc::new(Woken {
            places: SegQueue::new(),
            is_queued: (0..running).map(|_| AtomicBool::new(true)).collect(),
            task: AtomicWaker::new(),
        });
        let with_waker = |(place, future)| {
            // Every future is polled once at the start.
            woken.places.push(place);
            let woken = Arc::clone(&woken);
            let waker = Waker::from(Arc::new(TaskWaker { place, woken }));
            (Some(Box::pin(future)), waker)
        };
        Join {
            places: futures.enumerate().map(with_waker).collect(),
            running,
            woken,
        }
    }
}

impl<F: Future<Output = ()>> Future for Join<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.woken.task.register(context.waker());
        for _ in 0..this.places.len() {
            let Some(place) = this.woken.places.pop() else {
                break;
            };
            // Ordering: AcqRel; pairs with the swap in `wake_by_ref`.
            this.woken.is_queued[place].swap(false, Ordering::AcqRel);
            let (future, waker) = &mut this.places[place];
            let context = &mut Context::from_waker(waker);
            let is_ready = |future: &mut Pin<Box<F>>| future.as_mut().poll(context).is_ready();
            if future.as_mut().is_some_and(is_ready) {
                *future = None;
                this.running -= 1;
            }
        }
        if this.running == 0 {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
