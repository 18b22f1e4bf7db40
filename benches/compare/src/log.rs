//! The events of `replay`: a log with a key at the beginning of each line, read from a file or generated.
//!
//! The generated log looks like a day of a small web server: ten thousand requests from some 1750
//! addresses. Most visitors ask for a few things in a row and go; crawlers come again and again. It
//! is the same at every run.

use std::iter;
use std::net::Ipv4Addr;
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
    let first = |line: &str| Some(line.split_ascii_whitespace().next()?.to_owned());
    let keys: Vec<String> = text.lines().filter_map(first).collect();
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
        // An odd factor: a different address for each number.
        let address = Ipv4Addr::from_bits(visitor.wrapping_mul(0x9E37_79B1));
        iter::repeat_n(address.to_string(), requests)
    });
    visits.flatten().take(EVENTS).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_generated_log_looks_like_one() {
        let keys = generated();
        assert_eq!(keys, generated());
        assert_eq!(keys.len(), EVENTS);
        let addresses = keys.iter().collect::<HashSet<_>>().len();
        assert!((1650..1850).contains(&addresses), "{addresses}");
    }
}
