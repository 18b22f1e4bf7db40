//! The threads and tasks of one run.

use std::future::Future;

use shuttle::future::{self, block_on};
use shuttle::sync::Arc;
use shuttle::thread;

use crate::{Delivery, Queue};

/// Threads and tasks that are all waited for.
#[derive(Default, Debug)]
pub struct Crew {
    threads: Vec<thread::JoinHandle<()>>,
    tasks: Vec<future::JoinHandle<()>>,
}

impl Crew {
    /// A thread, which shuttle calls by this name if it fails.
    pub fn thread(&mut self, name: &str, run: impl FnOnce() + Send + 'static) {
        let builder = thread::Builder::new().name(name.to_owned());
        let handle = builder.spawn(run).expect("a model's thread always starts");
        self.threads.push(handle);
    }

    /// A task of shuttle's executor, which polls it when it is woken.
    pub fn task(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(future::spawn(task));
    }

    /// A thread that works on what it gets until the queue's end.
    pub fn getter(&mut self, queue: &Arc<Queue>, work: impl Fn(Delivery<'_>) + Send + 'static) {
        let queue = Arc::clone(queue);
        self.thread("getter", move || {
            while let Some(item) = queue.get() {
                work(item);
            }
        });
    }

    /// The same with futures, for which the thread blocks.
    pub fn blocker(&mut self, queue: &Arc<Queue>, work: impl Fn(Delivery<'_>) + Send + 'static) {
        let queue = Arc::clone(queue);
        self.thread("blocker", move || {
            while let Some(item) = block_on(queue.get_async()) {
                work(item);
            }
        });
    }

    /// The same as a task.
    pub fn waiter(&mut self, queue: &Arc<Queue>, work: impl Fn(Delivery<'_>) + Send + 'static) {
        let queue = Arc::clone(queue);
        self.task(async move {
            while let Some(item) = queue.get_async().await {
                work(item);
            }
        });
    }

    /// Waits for all. If one of them never returns, that is a deadlock, which shuttle reports.
    pub fn join(self) {
        for thread in self.threads {
            thread.join().expect("its panic has ended the run");
        }
        for task in self.tasks {
            block_on(task).expect("it is not aborted");
        }
    }
}
