//! A hasher that can be bad.

use std::hash::{BuildHasher, Hasher};

use crate::Spread;

/// Builds hashers of small numbers, as bad as a [`Spread`] says.
#[derive(Debug)]
pub struct Spreading(pub Spread);

/// A hasher of small numbers.
#[derive(Debug)]
pub struct SpreadHasher {
    spread: Spread,
    value: u64,
}

impl BuildHasher for Spreading {
    type Hasher = SpreadHasher;

    fn build_hasher(&self) -> SpreadHasher {
        SpreadHasher {
            spread: self.0,
            value: 0,
        }
    }
}

impl Hasher for SpreadHasher {
    fn write(&mut self, bytes: &[u8]) {
        // A number has its lowest byte first.
        for byte in bytes.iter().rev() {
            self.value = self.value << 8 | u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        // The queue folds a hash (`h ^ h >> 32`) and multiplies it by an odd number. This is the
        // inverse.
        const INVERSE: u64 = 0xf1de_83e1_9937_733d;
        match self.spread {
            Spread::OneHash => 0,
            Spread::FourHashes => self.value % 4,
            Spread::OneShard => {
                // The uppermost bits, which choose the shard, are 0.
                let folded = (self.value << 20).wrapping_mul(INVERSE);
                folded ^ folded >> 32
            }
            Spread::Even => self.value,
        }
    }
}
