//! Many futures as one, which polls only those that were woken.
//!
//! # Protocol
//!
//! Each future has a place, and a waker of its own. The waker puts the place on the list of those to
//! poll, unless it is there, and wakes the task. A poll of the whole:
//!
//! 1. registers the task's waker,
//! 2. takes a place off the list, and says that it is not there any more,
//! 3. polls its future; again from 2, at most once for each future.
//!
//! A wake-up after 2 puts the place back, so it is never lost: either the poll in 3 sees what the
//! wake-up was about, or there will be another. One that comes before 1 has put its place where 2 finds
//! it; one after 1 wakes the task.
//!
//! Wakers outlive the futures. They then fill a list that nobody reads, each place once at most.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{AtomicWaker, SegQueue};

/// Is ready when all of its futures are.
pub(super) struct Join<F> {
    places: Vec<Place<F>>,
    running: usize,
    woken: Arc<Woken>,
}

struct Place<F> {
    /// None: it was ready.
    future: Option<Pin<Box<F>>>,
    bell: Arc<Bell>,
    /// The bell, as its future knows it.
    waker: Waker,
}

/// The places to poll, and the task to wake for it.
struct Woken {
    places: SegQueue<usize>,
    task: AtomicWaker,
}

/// What wakes one future.
struct Bell {
    place: usize,
    /// Whether the place is on the list, or about to be.
    rung: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering: AcqRel; Release pairs with the swap in `poll`, which hands on what was done before
        // this wake-up even if another had rung already.
        if !self.rung.swap(true, Ordering::AcqRel) {
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
                // Each is to be polled once, to begin with.
                woken.places.push(place);
                let bell = Arc::new(Bell {
                    place,
                    rung: AtomicBool::new(true),
                    woken: Arc::clone(&woken),
                });
                Place {
                    future: Some(Box::pin(future)),
                    waker: Waker::from(Arc::clone(&bell)),
                    bell,
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
            place.bell.rung.swap(false, Ordering::AcqRel);
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
