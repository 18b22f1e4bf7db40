//! The events of `replay`: a log with a key at the beginning of each line, read from a file or generated.
//!
//! The generated log looks like a day of a small web server: ten thousand requests from some 1750
//! addresses. A visitor comes, asks for a few things in a row, mostly, and goes; a few addresses
//! (crawlers) come again and again. It is the same at every run.

use std::path::Path;

use anyhow::{Context, Result, ensure};

const EVENTS: usize = 10_000;
const CRAWLERS: u64 = 8;
/// Of which not all come.
const VISITORS: u64 = 12_500;

/// Keys, in the order of their events.
pub(crate) struct Log {
    pub(crate) keys: Vec<String>,
    /// How often the whole of it is replayed.
    pub(crate) passes: usize,
}

impl Log {
    /// The first word of every line of a file.
    pub(crate) fn read(path: &Path, passes: usize) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let words = text
            .lines()
            .filter_map(|line| line.split_ascii_whitespace().next());
        let keys: Vec<String> = words.map(str::to_owned).collect();
        ensure!(!keys.is_empty(), "no events in {}", path.display());
        Ok(Self { keys, passes })
    }

    pub(crate) fn generated(passes: usize) -> Self {
        let mut random = Random(1);
        let mut keys = Vec::with_capacity(EVENTS);
        while keys.len() < EVENTS {
            let requests = 1 + random.below(8) as usize;
            let visitor = if random.below(8) == 0 {
                random.below(CRAWLERS)
            } else {
                // The product of two uniform numbers favours the low ones.
                (VISITORS * random.below(1 << 16) * random.below(1 << 16)) >> 32
            };
            let requests = requests.min(EVENTS - keys.len());
            keys.extend(std::iter::repeat_n(address(visitor), requests));
        }
        Self { keys, passes }
    }
}

/// An address of its own for each number.
fn address(rank: u64) -> String {
    let bits = (rank as u32).wrapping_mul(0x9E37_79B1).to_be_bytes();
    format!("{}.{}.{}.{}", bits[0], bits[1], bits[2], bits[3])
}

/// Numbers without a pattern that matters here (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(x ^ (x >> 31)) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_generated_log_looks_like_one() {
        let keys = Log::generated(1).keys;
        assert_eq!(keys.len(), EVENTS);
        assert_eq!(keys, Log::generated(100).keys);

        let mut requests: HashMap<&str, usize> = HashMap::new();
        for key in &keys {
            *requests.entry(key).or_default() += 1;
        }
        assert!((1650..1850).contains(&requests.len()), "{}", requests.len());
        let most = requests.values().max().copied();
        assert!(most > Some(50), "the most frequent: {most:?}");
    }
}
