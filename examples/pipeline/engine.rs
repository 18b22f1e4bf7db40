//! The engine of the pipeline: accounts as keys, and the steps of the reader and the workers.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use keyqueue::{KeyHandle, WorkQueue};

/// How many bytes may wait in all inboxes before the reader does a worker's job.
const MOST_WAITING: usize = 64 << 20;

/// A key of the queue, with what belongs to it: it is moved into the queue once and lent to the
/// worker that gets it. For the queue it is its name alone.
#[derive(Debug, Default)]
pub struct Account {
    pub name: Vec<u8>,
    /// Lines read and not yet digested, each with a newline.
    inbox: Mutex<Vec<u8>>,
    pub totals: Mutex<Totals>,
}

/// The accounts that the reader has met, by name.
pub type Accounts = HashMap<Vec<u8>, KeyHandle<Account>>;

#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub lines: u64,
    pub bytes: u64,
    /// CRC-32 of all lines: it shows whether one is missing, doubled or out of order.
    pub digest: u32,
}

impl PartialEq for Account {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Account {}

impl Hash for Account {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Account {
    /// Digests what is in the inbox, and returns how many bytes that was.
    fn digest(&self) -> usize {
        let lines = std::mem::take(&mut *self.inbox.lock().unwrap());
        // Not `lock`: no other thread can be here. The queue promises that, and this checks it.
        let mut totals = self
            .totals
            .try_lock()
            .expect("a key is with one worker at a time");
        let mut hasher = crc32fast::Hasher::new_with_initial(totals.digest);
        hasher.update(&lines);
        totals.digest = hasher.finalize();
        totals.bytes += lines.len() as u64;
        totals.lines += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        lines.len()
    }
}

/// What the reader and the workers share.
#[derive(Debug, Default)]
pub struct Pipeline {
    pub queue: WorkQueue<Account>,
    /// Bytes in all inboxes.
    waiting: AtomicUsize,
    /// The number of deliveries.
    pub deliveries: AtomicU64,
}

impl Pipeline {
    /// Creates a pipeline over a queue with these settings.
    pub fn over(queue: WorkQueue<Account>) -> Self {
        Pipeline {
            queue,
            ..Pipeline::default()
        }
    }

    /// The work of one delivery.
    pub fn digest(&self, account: &Account) {
        // Ordering: Relaxed; an estimate for the reader, nothing is read on the strength of it.
        self.waiting.fetch_sub(account.digest(), Ordering::Relaxed);
        // Ordering: Relaxed; read after the threads are joined.
        self.deliveries.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a line, which ends in a newline, into the inbox of its account.
    pub fn put(&self, line: &[u8], accounts: &mut Accounts) {
        let mut fields = line.split(u8::is_ascii_whitespace);
        let Some(name) = fields.find(|field| !field.is_empty()) else {
            return; // A blank line has no key.
        };
        let handle = match accounts.get(name) {
            Some(handle) => handle,
            None => {
                let mut account = Account::default();
                account.name.extend_from_slice(name);
                let handle = self.queue.handle(account);
                accounts.entry(name.to_owned()).or_insert(handle)
            }
        };
        // Ordering: Relaxed; added before it can be subtracted, so never below zero.
        let waiting = self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        handle.key().inbox.lock().unwrap().extend_from_slice(line);
        // First the line, then the add: the delivery that follows finds it.
        handle.add();
        if waiting > MOST_WAITING {
            self.help();
        }
    }

    /// The reader is far ahead: it does a worker's job for once, or lets a worker have the core.
    #[cold]
    fn help(&self) {
        match self.queue.try_get() {
            Ok(account) => self.digest(&account),
            Err(_) => thread::yield_now(),
        }
    }
}
