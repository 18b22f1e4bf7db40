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
        for byte in bytes {
            self.value = self.value << 8 | u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        // The shard is chosen by high bits, the place in it by low ones.
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        match self.spread {
            Spread::OneHash => 0,
            Spread::FourHashes => (self.value % 4).wrapping_mul(MIX),
            Spread::OneShard => self.value,
            Spread::Even => self.value.wrapping_mul(MIX),
        }
    }
}
