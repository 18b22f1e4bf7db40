//! The events of `replay`: a log with a key at the beginning of each line, read from a file or generated.
//!
//! The generated log looks like a day of a small web server: ten thousand requests from some 1750
//! addresses. A visitor comes, asks for a few things in a row, mostly, and goes; a few addresses
//! (crawlers) come again and again. It is the same at every run.

use std::iter;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const EVENTS: usize = 10_000;
const CRAWLERS: u32 = 8;
/// Of which not all come.
const VISITORS: f64 = 12_500.0;

/// The first word of every line of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let words = text
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().next());
    let keys: Vec<String> = words.map(str::to_owned).collect();
    ensure!(!keys.is_empty(), "no events in {}", path.display());
    Ok(keys)
}

pub(crate) fn generated() -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(1);
    let visits = iter::repeat_with(|| {
        let requests = random.usize(1..=8);
        let visitor = if random.u8(..8) == 0 {
            random.u32(..CRAWLERS)
        } else {
            // The product of two uniform numbers favours the low ones.
            (VISITORS * random.f64() * random.f64()) as u32
        };
        iter::repeat_n(address(visitor), requests)
    });
    visits.flatten().take(EVENTS).collect()
}

/// A different address for each number.
fn address(rank: u32) -> String {
    let bits = rank.wrapping_mul(0x9E37_79B1).to_be_bytes();
    format!("{}.{}.{}.{}", bits[0], bits[1], bits[2], bits[3])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_generated_log_looks_like_one() {
        let keys = generated();
        assert_eq!(keys.len(), EVENTS);
        assert_eq!(keys, generated());

        let mut requests: HashMap<&str, usize> = HashMap::new();
        for key in &keys {
            *requests.entry(key).or_default() += 1;
        }
        assert!((1650..1850).contains(&requests.len()), "{}", requests.len());
        let most = requests.values().max().copied();
        assert!(most > Some(50), "the most frequent: {most:?}");
    }
}
