//! What is finished, as the first unfinished offset of each key that has one.
//!
//! The records of a key are finished in order, so those before its first unfinished one are finished, and those from there on
//! are not. Keys are told apart by a hash of 32 bits: keys that share one repeat some records, and lose none.
//!
//! | bytes | |
//! | --- | --- |
//! | 4 | a sum over the base offset and all that follows |
//! | LEB128 | `upto` - base |
//! | LEB128 | the number of keys |
//! | each 4 and LEB128 | the hash of a key, and the distance of its first unfinished offset from the one before, in ascending order |
//!
//! A key that is left out would count as finished. So what does not fit lowers `upto` to the first offset of the keys left out.

use std::collections::HashMap;

use integer_encoding::VarInt;

use super::fnv;

/// The first unfinished offset of each key that has one below `upto`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByKey {
    /// From here on nothing is known to be finished.
    pub(crate) upto: u64,
    pub(crate) first: HashMap<u32, u64>,
}

/// The hash of a record's key. A record without one is a key of its own.
pub(crate) fn key_hash(key: Option<&[u8]>, offset: u64) -> u32 {
    match key {
        Some(key) => fnv(&[&[1], key]),
        None => fnv(&[&offset.to_le_bytes()]),
    }
}

impl ByKey {
    /// Notes an unfinished record.
    pub(crate) fn unfinished(&mut self, hash: u32, offset: u64) {
        let first = self.first.entry(hash).or_insert(offset);
        *first = offset.min(*first);
    }

    pub(crate) fn is_finished(&self, hash: u32, offset: u64) -> bool {
        offset < self.upto && self.first.get(&hash).is_none_or(|first| offset < *first)
    }

    /// Writes what fits in `most` bytes, and returns the offset up to which that says something.
    pub(crate) fn write(&self, base: u64, most: usize) -> (Vec<u8>, u64) {
        let mut keys: Vec<_> = self
            .first
            .iter()
            .map(|(hash, first)| (*first, *hash))
            .collect();
        keys.sort_unstable();
        let mut listed = Vec::new();
        let (mut upto, mut count, mut last) = (self.upto, 0, base);
        for (first, hash) in keys {
            if first >= upto {
                break;
            }
            let whole = listed.len();
            listed.extend(hash.to_le_bytes());
            listed.extend(first.saturating_sub(last).encode_var_vec());
            // The sum, and two numbers of at most ten bytes.
            if listed.len() + 24 > most {
                listed.truncate(whole);
                upto = first;
                break;
            }
            (last, count) = (first.max(last), count + 1);
        }
        let mut body = upto.saturating_sub(base).encode_var_vec();
        body.extend(u64::encode_var_vec(count));
        body.extend(listed);
        let sum = fnv(&[&base.to_le_bytes(), &body]);
        let bytes = [&sum.to_le_bytes(), &*body].concat();
        match bytes.len() <= most {
            true => (bytes, upto),
            false => (Vec::new(), base),
        }
    }

    /// Reads what `write` has written, with zeros behind it.
    pub(crate) fn read(base: u64, bytes: &[u8]) -> Option<Self> {
        let (head, body) = bytes.split_first_chunk()?;
        let mut rest = body;
        let upto = base.checked_add(number(&mut rest)?)?;
        let count = number(&mut rest)?;
        let (mut first, mut last) = (HashMap::new(), base);
        for _ in 0..count {
            let (hash, behind) = rest.split_first_chunk()?;
            rest = behind;
            let hash = u32::from_le_bytes(*hash);
            last = last.checked_add(number(&mut rest)?)?;
            // Of two keys with one hash, the lower.
            first.entry(hash).or_insert(last);
        }
        let read = body.len() - rest.len();
        let is_whole = rest.iter().all(|byte| *byte == 0);
        let sum = fnv(&[&base.to_le_bytes(), &body[..read]]);
        let is_right = sum == u32::from_le_bytes(*head);
        (is_whole && is_right).then_some(ByKey { upto, first })
    }
}

/// Reads a number in LEB128.
fn number(from: &mut &[u8]) -> Option<u64> {
    let (number, length) = u64::decode_var(from)?;
    *from = from.get(length..)?;
    Some(number)
}
