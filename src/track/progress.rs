//! What is finished of a log, as a value: how it is written down, and read back.

use std::ops::Range;

use super::code;
use crate::ConfigError;

/// The bits of a character.
const BITS: usize = 15;
/// The first of the 32 768 characters of which a text is made. None of them is a surrogate, white space or ASCII.
const FIRST: u32 = 0x3400;

/// What is finished of a log: all below an offset, and ranges beyond it. See [`Tracker::progress`](super::Tracker::progress).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    first_unfinished: u64,
    /// In order, not empty, with gaps between, and the first one not at `first_unfinished`.
    pub(super) finished: Vec<Range<u64>>,
}

impl Progress {
    /// `finished` is in order, and begins at `first_unfinished` or beyond. Ranges may be empty, or touch.
    pub(super) fn new(mut first_unfinished: u64, mut finished: Vec<Range<u64>>) -> Self {
        finished.retain(|range| !range.is_empty());
        finished.dedup_by(|next, last| {
            let touch = next.start == last.end;
            if touch {
                last.end = next.end;
            }
            touch
        });
        if let Some(first) = finished.first()
            && first.start == first_unfinished
        {
            first_unfinished = first.end;
            finished.remove(0);
        }
        Progress {
            first_unfinished,
            finished,
        }
    }

    /// Returns the lowest offset that is not finished: where to read on after a restart. It need not exist yet.
    #[must_use]
    pub fn first_unfinished(&self) -> u64 {
        self.first_unfinished
    }

    /// Returns the ranges of offsets beyond [`first_unfinished`](Self::first_unfinished) that are finished, or gaps of the log:
    /// in order, none empty, with at least one unfinished offset between them.
    #[must_use]
    pub fn finished(&self) -> &[Range<u64>] {
        &self.finished
    }

    /// Writes [`finished`](Self::finished) in at most `most` bytes. Store it with
    /// [`first_unfinished`](Self::first_unfinished), in one write.
    ///
    /// Ranges that do not fit are left out, the highest first: what is in them is new after a restart, and nothing is lost. The
    /// shorter of two codes is taken: lengths of runs, or one bit for each offset. If nothing is finished beyond the first
    /// unfinished offset, or `most` is less than 6, no byte is written.
    #[must_use]
    pub fn to_bytes(&self, most: usize) -> Vec<u8> {
        code::write(self, most)
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written of the progress with this first unfinished offset.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not what `to_bytes` has written, or for another offset: a sum over both is checked. Begin
    /// with the offset alone then: that repeats work, and loses none.
    ///
    /// ```
    /// # use keyqueue::track::Progress;
    /// assert_eq!(Progress::from_bytes(7, &[]), Ok(Progress::from(7)));
    /// let error = Progress::from_bytes(7, b"of another program").unwrap_err();
    /// assert_eq!(error.field(), "bytes");
    /// ```
    pub fn from_bytes(first_unfinished: u64, bytes: &[u8]) -> Result<Self, ConfigError> {
        let read = code::read(first_unfinished, bytes);
        read.ok_or_else(|| {
            let rule = format!("must be what to_bytes wrote for offset {first_unfinished}");
            ConfigError::new("progress", "bytes", rule, bytes)
        })
    }

    /// As [`to_bytes`](Self::to_bytes), in at most `most` characters, of 15 bits each: for stores that count characters, such as
    /// the metadata of an offset in Kafka. In UTF-8 each has three bytes.
    #[must_use]
    pub fn to_text(&self, most: usize) -> String {
        let bytes = self.to_bytes(most.saturating_mul(BITS) / 8);
        let mut text = String::with_capacity(3 * (8 * bytes.len()).div_ceil(BITS));
        let (mut held, mut bits) = (0_u32, 0);
        for byte in bytes {
            held |= u32::from(byte) << bits;
            bits += 8;
            if bits >= BITS {
                text.extend(char::from_u32(FIRST + (held & 0x7fff)));
                held >>= BITS;
                bits -= BITS;
            }
        }
        if bits > 0 {
            text.extend(char::from_u32(FIRST + held));
        }
        text
    }

    /// Reads what [`to_text`](Self::to_text) has written of the progress with this first unfinished offset.
    ///
    /// # Errors
    ///
    /// As [`from_bytes`](Self::from_bytes).
    ///
    /// ```
    /// # use keyqueue::track::Progress;
    /// let error = Progress::from_text(7, "of another program").unwrap_err();
    /// assert_eq!((error.field(), error.value()), ("text", "\"of another program\""));
    /// ```
    pub fn from_text(first_unfinished: u64, text: &str) -> Result<Self, ConfigError> {
        let mut bytes = Vec::with_capacity(text.len() / 3 * BITS / 8);
        let (mut held, mut bits) = (0_u32, 0);
        let known = text.chars().all(|character| {
            let value = u32::from(character).wrapping_sub(FIRST);
            held |= (value & 0x7fff) << bits;
            bits += BITS;
            while bits >= 8 {
                bytes.push(held as u8);
                held >>= 8;
                bits -= 8;
            }
            value <= 0x7fff
        });
        let read = known.then(|| code::read(first_unfinished, &bytes));
        read.flatten().ok_or_else(|| {
            let rule = format!("must be what to_text wrote for offset {first_unfinished}");
            ConfigError::new("progress", "text", rule, text)
        })
    }
}

/// Nothing beyond the offset is finished.
impl From<u64> for Progress {
    fn from(first_unfinished: u64) -> Self {
        Progress::new(first_unfinished, Vec::new())
    }
}
