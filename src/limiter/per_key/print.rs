//! Fingerprints of keys: what a limiter keeps in place of them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

/// Two hashes of 64 bits with independent random seeds.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Print {
    low: u64,
    high: u64,
}

impl Print {
    /// The half that the tables do not hash by.
    #[inline]
    pub(super) fn high(self) -> u64 {
        self.high
    }

    #[cfg(test)]
    pub(super) fn new(low: u64, high: u64) -> Self {
        Self { low, high }
    }

    #[cfg(test)]
    pub(super) fn low(self) -> u64 {
        self.low
    }
}

impl Hash for Print {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.low);
    }
}

/// Turns keys into fingerprints.
pub(super) struct Fingerprints {
    low: Seed,
    high: Seed,
}

struct Seed {
    shared: SharedSeed,
    own: u64,
}

impl Fingerprints {
    pub(super) fn new() -> Self {
        Self {
            low: Seed::random(),
            high: Seed::random(),
        }
    }

    /// Runs the user's `Hash` once, over both hashers.
    #[inline]
    pub(super) fn of<K: Hash + ?Sized>(&self, key: &K) -> Print {
        let mut pair = self.pair();
        key.hash(&mut pair);
        Print {
            low: pair.0.finish(),
            high: pair.1.finish(),
        }
    }

    pub(super) fn pair(&self) -> Pair<'_> {
        Pair(self.low.hasher(), self.high.hasher())
    }
}

impl Seed {
    fn random() -> Self {
        // The standard library's hasher is keyed by the operating system's randomness.
        let random = || RandomState::new().hash_one("fingerprint");
        Self {
            shared: SharedSeed::from_u64(random()),
            own: random(),
        }
    }

    #[inline]
    fn hasher(&self) -> FoldHasher<'_> {
        FoldHasher::with_seed(self.own, &self.shared)
    }
}

/// Two hashers that read the same key.
pub(super) struct Pair<'a>(FoldHasher<'a>, FoldHasher<'a>);

/// Passes each kind of write on to both hashers as it is: integers are much faster than byte slices.
macro_rules! write_both {
    ($($write:ident: $value:ty),* $(,)?) => {$(
        #[inline]
        fn $write(&mut self, value: $value) {
            self.0.$write(value);
            self.1.$write(value);
        }
    )*};
}

impl Hasher for Pair<'_> {
    write_both! {
        write: &[u8],
        write_u8: u8,
        write_u16: u16,
        write_u32: u32,
        write_u64: u64,
        write_u128: u128,
        write_usize: usize,
    }

    /// The low half; a fingerprint takes both.
    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// Hashes a fingerprint to its low half: it is a good hash already.
#[derive(Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a fingerprint is hashed as one u64")
    }

    #[inline]
    fn write_u64(&mut self, low: u64) {
        self.0 = low;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
