//! The default hasher, wrapped so that the crate that hashes is no part of the public interface.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FoldHasher;

use crate::sync::RandomState;

/// The default hasher of queues: fast, and randomly seeded per queue, so untrusted keys cannot be
/// chosen to collide.
///
/// Each `default()` has a seed of its own; a clone has the same seed. How it hashes may change with
/// any version.
///
/// ```
/// use keyqueue::DefaultHasher;
/// use std::hash::BuildHasher;
///
/// let hasher = DefaultHasher::default();
/// assert_eq!(hasher.hash_one("a"), hasher.clone().hash_one("a"));
/// assert_ne!(hasher.hash_one("a"), DefaultHasher::default().hash_one("a"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct DefaultHasher(RandomState);

impl BuildHasher for DefaultHasher {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0.build_hasher())
    }
}

/// The state of one hash by a [`DefaultHasher`].
#[derive(Clone)]
pub struct KeyHasher(FoldHasher<'static>);

/// Passes every integer on as it is: the default methods would make bytes of them, which is slower.
macro_rules! forward {
    ($($method:ident: $integer:ty),*) => {$(
        #[inline]
        fn $method(&mut self, value: $integer) {
            self.0.$method(value);
        }
    )*};
}

impl Hasher for KeyHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    forward!(write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_u128: u128, write_usize: usize);
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}
