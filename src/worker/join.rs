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
//! wakes the task.
//!
//! Wakers may outlive the futures. They then push to a list that is no longer read, each place at
//! most once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{AtomicWaker, SegQueue};

/// A future that is ready when all of its futures are.
pub(super) struct Join<F> {
    places: Vec<Place<F>>,
    running: usize,
    woken: Arc<Woken>,
}

struct Place<F> {
    /// `None` once the future was ready.
    future: Option<Pin<Box<F>>>,
    task_waker: Arc<TaskWaker>,
    /// `task_waker` as a `Waker`, for the future.
    waker: Waker,
}

/// The ready list, and the task to wake.
struct Woken {
    places: SegQueue<usize>,
    task: AtomicWaker,
}

/// The target of one future's waker.
struct TaskWaker {
    place: usize,
    /// Whether the place is on the ready list, or about to be pushed to it.
    is_queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering: AcqRel; the Release pairs with the swap in `poll`, so that the poll sees what
        // happened before this wake-up, even if another had set the flag already.
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.woken.places.push(self.place);
            self.woken.task.wake();
        }
    }
}

impl<F: Future<Output = ()>> Join<F> {
    pub(super) fn new(futures: impl Iterator<Item = F>) -> Self {
        let woken = Arc::new(Woken {
            places: SegQueue::new(),
            task: AtomicWaker::new(),
        });
        let places: Vec<_> = futures
            .enumerate()
            .map(|(place, future)| {
                // Every future is polled once at the start.
                woken.places.push(place);
                let task_waker = Arc::new(TaskWaker {
                    place,
                    is_queued: AtomicBool::new(true),
                    woken: Arc::clone(&woken),
                });
                Place {
                    future: Some(Box::pin(future)),
                    waker: Waker::from(Arc::clone(&task_waker)),
                    task_waker,
                }
            })
            .collect();
        Join {
            running: places.len(),
            places,
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
            let place = &mut this.places[place];
            // Ordering: AcqRel; pairs with the swap in `wake_by_ref`.
            place.task_waker.is_queued.swap(false, Ordering::AcqRel);
            let Some(future) = &mut place.future else {
                continue;
            };
            let mut context = Context::from_waker(&place.waker);
            if future.as_mut().poll(&mut context).is_ready() {
                place.future = None;
                this.running -= 1;
            }
        }
        if this.running == 0 {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
