//! What the begin of a delivery finds.

use super::{ABANDONED, CLOSED, HASH, Level, RETRY, Word};

/// The flags of a key whose delivery has begun, below [`HASH`], and above them its level: a byte, so that it is returned in a
/// register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun(u8);

impl Begun {
    #[inline]
    pub(super) fn of(word: Word) -> Self {
        Begun((word.0 % HASH) as u8 | (word.level() * HASH as u8))
    }

    #[inline]
    fn is(self, flag: u64) -> bool {
        u64::from(self.0) & flag != 0
    }

    /// Returns whether the delivery is one of an open queue, and no retry: there is nothing to do for it.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        !self.is(CLOSED | RETRY)
    }

    #[inline]
    pub(crate) fn is_retry(self) -> bool {
        self.is(RETRY)
    }

    /// Returns whether a shut-down had closed the key, which is to be delivered.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self.is(CLOSED) && !self.is(ABANDONED)
    }

    /// Returns whether a shut-down had abandoned the key, which was closed before: it must not be delivered.
    #[inline]
    pub(crate) fn is_abandoned(self) -> bool {
        self.is(CLOSED) && self.is(ABANDONED)
    }

    #[inline]
    pub(crate) fn level(self) -> Level {
        self.0 / HASH as u8
    }
}
