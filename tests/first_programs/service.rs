//! A struct owns a queue with back-off and its running workers, and stops them at Ctrl-C.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Job, Running, Workers};
use keyqueue::{ConfigError, Remaining, WorkQueue};

type Saved = Arc<Mutex<BTreeSet<String>>>;

struct Saver {
    queue: WorkQueue<String>,
    running: Running<String>,
}

impl Saver {
    fn start(saved: Saved) -> Result<Self, ConfigError> {
        let (base, max) = (Duration::from_millis(1), Duration::from_secs(1));
        let builder = WorkQueue::builder().rate_limiter(ItemExponentialFailure::new(base, max)?);
        // A retry that waits at Ctrl-C is made at once, not dropped.
        let queue = builder.drain_delays(true).build()?;
        let running = Workers::new(&queue)
            .concurrency(2)
            .max_retries(5)
            .on_give_up(|key, given_up| eprintln!("gave up {key}: {given_up}"))
            .spawn(move |job| save(&saved, job))?;
        Ok(Saver { queue, running })
    }

    fn changed(&self, key: &str) {
        self.queue.entry_ref(key).add();
    }

    fn stop(mut self, grace: Duration) -> Remaining {
        let left = self.running.drain_within(grace);
        self.running.join();
        left
    }
}

fn save(saved: &Saved, job: Job<'_, String>) -> io::Result<()> {
    if job.attempt() < 3 && *job == "busy" {
        return Err(io::Error::other("try again"));
    }
    saved.lock().unwrap().insert(job.clone());
    Ok(())
}

#[test]
fn a_struct_owns_the_queue_and_its_workers() -> Result<(), Box<dyn std::error::Error>> {
    let (interrupt, interrupted) = mpsc::channel();
    let saved = Saved::default();
    let saver = Saver::start(Arc::clone(&saved))?;
    saver.changed("calm");
    saver.changed("busy");
    thread::spawn(move || interrupt.send(())); // As if by the handler of Ctrl-C.
    interrupted.recv()?;

    let left = saver.stop(Duration::from_secs(20));
    assert!(left.is_nothing(), "{left}");
    let saved = saved.lock().unwrap();
    assert!(saved.iter().eq(["busy", "calm"]), "{saved:?}");
    Ok(())
}
