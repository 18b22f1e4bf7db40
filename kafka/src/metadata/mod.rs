//! What is stored beside an offset: which records beyond it are finished.
//!
//! | bytes | |
//! | --- | --- |
//! | 1 | the version |
//! | 4 | a fingerprint of the record at the offset. If another one is read there, or none, the log is not the one that was written about, and all beyond the offset is new |
//! | 1 | which code follows |
//! | the rest | [`RANGES`]: [`Progress::to_bytes`], lengths of runs or bits. [`KEYS`]: [`ByKey`] |
//!
//! Of the codes that keep all the shorter one is taken, otherwise the one that keeps more. What does not fit is left out from
//! the end: it is repeated after a restart, never lost. Both codes carry a sum over themselves and the offset.

mod by_key;
mod text;

use keyqueue::track::Progress;

pub(crate) use by_key::{ByKey, key_hash};

use crate::record::Inner;

const VERSION: u8 = 1;
const RANGES: u8 = 1;
const KEYS: u8 = 2;
/// The bytes before the code.
const HEAD: usize = 6;

/// How the records that are finished beyond a committed offset are stored in its metadata. A request of Kafka takes 32 767 bytes of them, and a
/// wide character has three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Metadata {
    /// In at most this many characters of 15 bits. Apache Kafka counts characters: its `offset.metadata.max.bytes` is 4096 by
    /// default.
    Wide(usize),
    /// In at most this many characters of ASCII, for brokers that count bytes.
    Ascii(usize),
    /// Not at all: a restart repeats all that was finished beyond the offset.
    Off,
}

impl Default for Metadata {
    fn default() -> Self {
        Metadata::Wide(4096)
    }
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) fingerprint: u32,
    pub(crate) beyond: Beyond,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    Ranges(Progress),
    Keys(ByKey),
}

impl Beyond {
    /// The offset from which on nothing is known to be finished.
    pub(crate) fn end(&self) -> u64 {
        match self {
            Beyond::Ranges(progress) => progress.finished().last().map_or(0, |last| last.end),
            Beyond::Keys(keys) => keys.upto,
        }
    }

    pub(crate) fn is_finished(&self, record: &Inner) -> bool {
        let offset = record.offset;
        match self {
            Beyond::Ranges(progress) => {
                let ranges = progress.finished();
                let range = ranges.get(ranges.partition_point(|range| range.end <= offset));
                range.is_some_and(|range| range.contains(&offset))
            }
            Beyond::Keys(keys) => keys.is_finished(key_hash(record.key(), offset), offset),
        }
    }
}

/// What is finished, in both forms. `keys` is `None` if it cannot say all that `ranges` does; `ranges` if it cannot say what
/// `keys` does.
pub(crate) struct Known {
    pub(crate) ranges: Option<Progress>,
    pub(crate) keys: Option<ByKey>,
    pub(crate) fingerprint: u32,
}

/// A text, and how many offsets it says nothing of, because it had no room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) left_out: u64,
}

pub(crate) fn write(known: &Known, base: u64, how: Metadata) -> Written {
    let (most, is_wide) = match how {
        Metadata::Off => (0, true),
        Metadata::Wide(most) => (most, true),
        Metadata::Ascii(most) => (most, false),
    };
    let most = text::room(most, is_wide).saturating_sub(HEAD);
    let ranges = known.ranges.as_ref().map(|progress| {
        let body = progress.to_bytes(most);
        let kept = Progress::from_bytes(base, &body).unwrap_or_default();
        let end = |progress: &Progress| progress.finished().last().map_or(base, |last| last.end);
        (end(&kept), body, RANGES, end(progress))
    });
    let keys = known.keys.as_ref().map(|keys| {
        let (body, kept) = keys.write(base, most);
        (kept, body, KEYS, keys.upto)
    });
    // Misses less, then is shorter. Each has the offset up to which it says something, and the one up to which it could.
    let better = ranges
        .into_iter()
        .chain(keys)
        .min_by_key(|(kept, body, _, end)| (end - kept, body.len()));
    let Some((kept, body, code, end)) = better else {
        return Written::default();
    };
    let left_out = end - kept;
    if kept <= base || body.is_empty() {
        let text = String::new();
        return Written { text, left_out };
    }
    let mut bytes = vec![VERSION];
    bytes.extend(known.fingerprint.to_le_bytes());
    bytes.push(code);
    bytes.extend(body);
    let text = text::write(&bytes, is_wide);
    Written { text, left_out }
}

/// Reads what `write` has written for this offset; `None` if it is not that.
pub(crate) fn read(base: u64, text: &str) -> Option<Stored> {
    let bytes = text::read(text)?;
    let (head, body) = bytes.split_first_chunk::<HEAD>()?;
    let [VERSION, a, b, c, d, code] = *head else {
        return None;
    };
    let beyond = match code {
        RANGES => Beyond::Ranges(Progress::from_bytes(base, body).ok()?),
        KEYS => Beyond::Keys(ByKey::read(base, body)?),
        _ => return None,
    };
    let fingerprint = u32::from_le_bytes([a, b, c, d]);
    Some(Stored {
        fingerprint,
        beyond,
    })
}

/// Tells a record from another one at the same offset: by its time, key, length, and the first of its payload.
pub(crate) fn fingerprint(record: &Inner) -> u32 {
    let (key, payload) = (record.key(), record.payload());
    let has = [key, payload].map(|bytes| u8::from(bytes.is_some()));
    let (key, payload) = (key.unwrap_or_default(), payload.unwrap_or_default());
    fnv(&[
        &record.timestamp.unwrap_or(-1).to_le_bytes(),
        &has,
        key,
        &payload.len().to_le_bytes(),
        &payload[..payload.len().min(256)],
    ])
}

/// FNV-1a of 64 bits, folded to 32: the same in every process and version.
fn fnv(parts: &[&[u8]]) -> u32 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = parts
        .iter()
        .copied()
        .flatten()
        .fold(0xcbf2_9ce4_8422_2325, add);
    (sum ^ (sum >> 32)) as u32
}
