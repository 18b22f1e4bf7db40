//! How finished ranges are written in few bytes.
//!
//! | bytes | |
//! | --- | --- |
//! | 4 | a sum over the first unfinished offset and all that follows, which tells what is foreign, damaged or of another offset |
//! | 1 | which code follows |
//! | the rest | `RUNS`: the lengths of unfinished and finished runs in turn, from the first unfinished offset on, in LEB128; `BITS`: a bit for each offset from there on, 1 is finished |
//!
//! The last byte is never 0, so zeros behind it (of a text whose last character has bits to spare) change nothing.

use std::ops::Range;

use super::Progress;

const RUNS: u8 = 1;
const BITS: u8 = 2;
/// The bytes before the code.
const HEAD: usize = 5;

/// What fits of a progress, and how many offsets that are.
#[derive(Default)]
struct Fits {
    bytes: Vec<u8>,
    offsets: u64,
}

/// Writes the code that keeps most; of two that keep all, the shorter.
pub(super) fn write(progress: &Progress, most: usize) -> Vec<u8> {
    let Some(most) = most.checked_sub(HEAD) else {
        return Vec::new();
    };
    let runs = runs(progress, most);
    let all = progress
        .finished()
        .iter()
        .map(|range| range.end - range.start);
    // If all runs fit, bits are of use only if they are shorter: those of a wide gap would need much memory.
    let room = match all.sum::<u64>() == runs.offsets {
        true => runs.bytes.len(),
        false => most,
    };
    let bits = bits(progress, room);
    let better = bits.offsets > runs.offsets
        || bits.offsets == runs.offsets && bits.bytes.len() < runs.bytes.len();
    let (code, fits) = if better { (BITS, bits) } else { (RUNS, runs) };
    if fits.offsets == 0 {
        return Vec::new();
    }
    let body = [&[code], &*fits.bytes].concat();
    let sum = sum(progress.first_unfinished(), &body);
    [&sum.to_le_bytes(), &*body].concat()
}

/// Reads it back; `None` if it was not written so.
pub(super) fn read(first_unfinished: u64, bytes: &[u8]) -> Option<Progress> {
    let length = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    if length == 0 {
        return Some(Progress::from(first_unfinished));
    }
    let (head, body) = bytes[..length].split_first_chunk()?;
    if u32::from_le_bytes(*head) != sum(first_unfinished, body) {
        return None;
    }
    let finished = match body.split_first()? {
        (&RUNS, code) => read_runs(first_unfinished, code)?,
        (&BITS, code) => read_bits(first_unfinished, code)?,
        _ => return None,
    };
    Some(Progress::new(first_unfinished, finished))
}

fn runs(progress: &Progress, most: usize) -> Fits {
    let mut fits = Fits::default();
    let mut at = progress.first_unfinished();
    for range in progress.finished() {
        let whole = fits.bytes.len();
        write_number(range.start - at, &mut fits.bytes);
        write_number(range.end - range.start, &mut fits.bytes);
        if fits.bytes.len() > most {
            fits.bytes.truncate(whole);
            break;
        }
        fits.offsets += range.end - range.start;
        at = range.end;
    }
    fits
}

fn read_runs(mut at: u64, mut code: &[u8]) -> Option<Vec<Range<u64>>> {
    let mut finished = Vec::new();
    while !code.is_empty() {
        let start = at.checked_add(read_number(&mut code)?)?;
        at = start.checked_add(read_number(&mut code)?)?;
        finished.push(start..at);
    }
    Some(finished)
}

fn bits(progress: &Progress, most: usize) -> Fits {
    let first = progress.first_unfinished();
    let end = first.saturating_add((most as u64).saturating_mul(8));
    let mut fits = Fits::default();
    for range in progress.finished() {
        let range = range.start.min(end)..range.end.min(end);
        if range.is_empty() {
            break;
        }
        let (from, to) = (range.start - first, range.end - first);
        fits.bytes.resize(to.div_ceil(8) as usize, 0);
        for bit in from..to {
            fits.bytes[(bit / 8) as usize] |= 1 << (bit % 8);
        }
        fits.offsets += to - from;
    }
    fits
}

fn read_bits(first: u64, code: &[u8]) -> Option<Vec<Range<u64>>> {
    let mut finished = Vec::new();
    for (byte, bits) in (0_u64..).zip(code) {
        for bit in (0..8).filter(|bit| bits >> bit & 1 == 1) {
            let at = first.checked_add(8 * byte + bit)?;
            finished.push(at..at.checked_add(1)?);
        }
    }
    Some(finished)
}

/// LEB128: seven bits a byte, the lowest first; the top bit says that more follow.
fn write_number(mut number: u64, to: &mut Vec<u8>) {
    while number > 0x7f {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn read_number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in (0..u64::BITS).step_by(7) {
        let byte = *from.split_off_first()?;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if bits << place >> place != bits {
            return None;
        }
        number |= bits << place;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// FNV-1a, of 32 bits.
fn sum(first_unfinished: u64, body: &[u8]) -> u32 {
    let bytes = first_unfinished.to_le_bytes();
    let add = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().chain(body).fold(0x811c_9dc5, add)
}
