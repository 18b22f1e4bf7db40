//! The engine of the pipeline: what the reader and the workers do.
//!
//! A line is put into the queue in pieces, so a line of any length needs little memory. Nothing is copied but the line, to where
//! the lines of its name wait, and nothing is allocated for a name that is known.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use keyqueue::{Builder, ConfigError, WorkQueue};

/// How many bytes may wait in the queue: the reader waits for the workers then.
const MOST_WAITING: usize = 16 << 20;

/// The most bytes of a line that are read at once.
const PIECE: usize = 64 << 10;

/// The most bytes of a name: the rest of a longer field is a part of the line alone.
const LONGEST_NAME: usize = 1 << 10;

/// The first field of a line: the key.
pub(crate) type Name = Vec<u8>;

/// Lines that were read and are not digested yet, each with a newline: the value of a key.
pub(crate) type Lines = Vec<u8>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
    /// CRC-32 of all lines: it shows whether one is missing, doubled or out of order.
    pub(crate) digest: u32,
}

/// What the reader and the workers share.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) queue: WorkQueue<Name, Lines>,
    totals: Mutex<HashMap<Name, Totals>>,
    /// The number of deliveries that digested their lines.
    pub(crate) deliveries: AtomicU64,
}

impl Pipeline {
    /// Creates a pipeline over a queue with these settings, which append lines to lines.
    pub(crate) fn over(builder: Builder<Name, Lines>) -> Result<Self, ConfigError> {
        let queue = builder.capacity(MOST_WAITING).weight(Lines::len).build()?;
        Ok(Pipeline {
            queue,
            totals: Mutex::default(),
            deliveries: AtomicU64::new(0),
        })
    }

    /// The work of one delivery.
    pub(crate) fn digest(&self, name: &Name, lines: &Lines) {
        // Taken out while the lines are digested, without the lock: no other worker has this name
        // meanwhile. The queue promises that.
        let totals = self.totals.lock().unwrap().remove(name);
        let mut totals = totals.unwrap_or_default();
        let mut hasher = crc32fast::Hasher::new_with_initial(totals.digest);
        hasher.update(lines);
        totals.digest = hasher.finalize();
        totals.bytes += lines.len() as u64;
        totals.lines += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.totals.lock().unwrap().insert(name.clone(), totals);
        // Ordering: Relaxed; read after the threads are joined.
        self.deliveries.fetch_add(1, Ordering::Relaxed);
    }

    /// The totals of all names, in no order.
    pub(crate) fn into_totals(self) -> HashMap<Name, Totals> {
        self.totals.into_inner().unwrap()
    }
}

/// Reads lines, and puts them into the queue.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pipeline: &'a Pipeline,
    piece: Vec<u8>,
    /// The name of the line that the next piece continues; empty if that line has none, and is left
    /// out.
    unfinished: Option<Name>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(pipeline: &'a Pipeline) -> Self {
        Reader {
            pipeline,
            piece: Vec::new(),
            unfinished: None,
        }
    }

    /// Reads the next line, or the next piece of a long one. Returns the number of bytes that were
    /// read: 0 at the end.
    pub(crate) fn read(&mut self, input: &mut impl BufRead) -> io::Result<usize> {
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
        let name = begun.as_deref().unwrap_or_else(|| name(&self.piece));
        if !name.is_empty() {
            let entry = self.pipeline.queue.entry_ref(name).wait();
            entry.update(|lines| lines.extend_from_slice(&self.piece));
        }
        if !self.piece.ends_with(b"\n") {
            self.unfinished = Some(name.to_vec());
        }
        Ok(read)
    }
}

/// The first field of a line; empty if there is none.
fn name(line: &[u8]) -> &[u8] {
    let mut fields = line.split(u8::is_ascii_whitespace);
    let name = fields.find(|field| !field.is_empty()).unwrap_or_default();
    &name[..name.len().min(LONGEST_NAME)]
}
