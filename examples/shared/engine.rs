//! The engine of the pipeline: accounts as keys, and the steps of the reader and the workers.
//!
//! A line is put into the inbox of its account in pieces, so a line of any length needs little
//! memory.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use keyqueue::limiter::NoLimit;
use keyqueue::{KeyHandle, WorkQueue};

/// How many bytes may wait in all inboxes before the reader does a worker's job.
const MOST_WAITING: usize = 64 << 20;

/// The most bytes of a line that are read at once.
const PIECE: usize = 64 << 10;

/// The most bytes of a name: the rest of a longer field is a part of the line alone.
const LONGEST_NAME: usize = 1 << 10;

/// The most characters of a name that are printed.
const PRINTED: usize = 60;

/// A key of the queue, with what belongs to it: it is moved into the queue once and lent to the
/// worker that gets it. For the queue it is its name alone.
#[derive(Debug, Default)]
pub struct Account {
    pub name: Vec<u8>,
    /// Lines read and not yet digested, each with a newline.
    inbox: Mutex<Vec<u8>>,
    pub totals: Mutex<Totals>,
}

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
    /// The name, short and without control characters.
    pub fn label(&self) -> String {
        let mut label = String::new();
        for (n, char) in String::from_utf8_lossy(&self.name).chars().enumerate() {
            if n == PRINTED {
                label.push('…');
                break;
            }
            if char.is_ascii_graphic() {
                label.push(char);
            } else {
                label.extend(char.escape_debug());
            }
        }
        label
    }

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
#[derive(Debug)]
pub struct Pipeline<L = NoLimit> {
    pub queue: WorkQueue<Account, L>,
    /// Bytes in all inboxes.
    waiting: AtomicUsize,
    /// The number of deliveries that digested their lines.
    pub deliveries: AtomicU64,
}

impl<L> Pipeline<L> {
    /// Creates a pipeline over a queue with these settings.
    pub fn over(queue: WorkQueue<Account, L>) -> Self {
        Pipeline {
            queue,
            waiting: AtomicUsize::new(0),
            deliveries: AtomicU64::new(0),
        }
    }

    /// The work of one delivery.
    pub fn digest(&self, account: &Account) {
        // Ordering: Relaxed; an estimate for the reader, nothing is read on the strength of it.
        self.waiting.fetch_sub(account.digest(), Ordering::Relaxed);
        // Ordering: Relaxed; read after the threads are joined.
        self.deliveries.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a piece of a line into the inbox of its account.
    fn put(&self, account: &KeyHandle<Account>, piece: &[u8]) {
        // Ordering: Relaxed; added before it can be subtracted, so never below zero.
        self.waiting.fetch_add(piece.len(), Ordering::Relaxed);
        account.key().inbox.lock().unwrap().extend_from_slice(piece);
        // First the piece, then the add: the delivery that follows finds it.
        account.add();
        // Ordering: Relaxed; an estimate.
        while self.waiting.load(Ordering::Relaxed) > MOST_WAITING && !self.queue.is_shutting_down()
        {
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

/// Reads lines, and puts them into the inboxes of their accounts.
#[derive(Debug)]
pub struct Reader<'a, L> {
    pipeline: &'a Pipeline<L>,
    /// The accounts that were met, by name.
    accounts: HashMap<Vec<u8>, KeyHandle<Account>>,
    piece: Vec<u8>,
    /// The account of the line that the next piece continues.
    unfinished: Option<Unfinished>,
}

/// `None`: the line has no key, and is left out.
type Unfinished = Option<KeyHandle<Account>>;

impl<'a, L> Reader<'a, L> {
    pub fn new(pipeline: &'a Pipeline<L>) -> Self {
        Reader {
            pipeline,
            accounts: HashMap::new(),
            piece: Vec::new(),
            unfinished: None,
        }
    }

    /// Reads the next line, or the next piece of a long one. Returns the number of bytes that were
    /// read: 0 at the end.
    pub fn read(&mut self, input: &mut impl BufRead) -> io::Result<usize> {
        self.piece.clear();
        let mut input = input.take(PIECE as u64);
        let read = input.read_until(b'\n', &mut self.piece)?;
        if read == 0 && self.unfinished.is_none() {
            return Ok(0);
        }
        if read < PIECE && !self.piece.ends_with(b"\n") {
            self.piece.push(b'\n'); // The last line of a file may have none.
        }
        let begun = self.unfinished.take();
        let account = match &begun {
            Some(account) => account.as_ref(),
            None => find(self.pipeline, &mut self.accounts, &self.piece),
        };
        if let Some(account) = account {
            self.pipeline.put(account, &self.piece);
        }
        if !self.piece.ends_with(b"\n") {
            self.unfinished = Some(account.cloned());
        }
        Ok(read)
    }

    /// The accounts, in no order.
    pub fn into_accounts(self) -> Vec<KeyHandle<Account>> {
        self.accounts.into_values().collect()
    }
}

/// Finds the account of a line: its first field.
fn find<'a, L>(
    pipeline: &Pipeline<L>,
    accounts: &'a mut HashMap<Vec<u8>, KeyHandle<Account>>,
    line: &[u8],
) -> Option<&'a KeyHandle<Account>> {
    let mut fields = line.split(u8::is_ascii_whitespace);
    let name = fields.find(|field| !field.is_empty())?;
    let name = &name[..name.len().min(LONGEST_NAME)];
    if !accounts.contains_key(name) {
        let mut account = Account::default();
        account.name.extend_from_slice(name);
        accounts.insert(name.to_owned(), pipeline.queue.handle(account));
    }
    accounts.get(name)
}
