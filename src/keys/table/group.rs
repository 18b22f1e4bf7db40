//! A group: one cache line of the table.

/// Places of a group.
pub(super) const PLACES: usize = 12;

/// A cache line: 12 places, a tag for each, and the overflow count.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Group<T> {
    /// A tag for each place, 0 if it is free, followed by the overflow count in four bytes.
    head: [u8; 16],
    values: [T; PLACES],
}

impl<T: Copy + Default> Group<T> {
    const ONE_LINE: () = assert!(size_of::<Self>() == 64);

    pub(super) fn empty() -> Self {
        let () = Self::ONE_LINE;
        Group {
            head: [0; 16],
            values: [T::default(); PLACES],
        }
    }

    /// Returns the values with this tag.
    #[inline]
    pub(super) fn tagged(&self, tag: u8) -> impl Iterator<Item = T> {
        places(&self.head, tag).map(|place| self.values[place])
    }

    /// Returns all values.
    pub(super) fn values(&self) -> impl Iterator<Item = T> {
        let places = self.head.iter().zip(&self.values);
        places
            .filter(|(tag, _)| **tag != 0)
            .map(|(_, value)| *value)
    }

    /// Returns the value in a place.
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<T> {
        (self.head[place] != 0).then(|| self.values[place])
    }

    /// Puts a value into the first free place, and returns whether there was one. `tag` must not be
    /// 0.
    #[inline]
    pub(super) fn put(&mut self, tag: u8, value: T) -> bool {
        let Some(place) = places(&self.head, 0).next() else {
            return false;
        };
        self.head[place] = tag;
        self.values[place] = value;
        true
    }

    /// Frees a place.
    pub(super) fn clear(&mut self, place: usize) {
        self.head[place] = 0;
    }

    /// Returns the overflow count: the number of keys that were passed on to other groups.
    #[inline]
    pub(super) fn overflow_count(&self) -> u32 {
        let [.., a, b, c, d] = self.head;
        u32::from_ne_bytes([a, b, c, d])
    }

    #[inline]
    pub(super) fn set_overflow_count(&mut self, count: u32) {
        self.head[PLACES..].copy_from_slice(&count.to_ne_bytes());
    }
}

/// Returns the places with this tag, in order.
#[inline]
fn places(head: &[u8; 16], tag: u8) -> impl Iterator<Item = usize> + use<> {
    // The last four bytes are not tags.
    Places(bytes_equal(head, tag) & ((1 << PLACES) - 1))
}

/// A set of places, a bit for each.
struct Places(u32);

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let place = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(place)
    }
}

/// Returns a bit for each byte that is equal to `byte`, the lowest for the first.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline]
fn bytes_equal(bytes: &[u8; 16], byte: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    // SAFETY: the load reads sixteen bytes at any alignment, which `bytes` has; the processor has
    // SSE2.
    unsafe {
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
        let equal = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed()));
        _mm_movemask_epi8(equal).cast_unsigned()
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
use eight_by_eight as bytes_equal;

/// The same for processors without such an instruction.
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
#[inline]
fn eight_by_eight(bytes: &[u8; 16], byte: u8) -> u32 {
    /// A bit for each byte that is zero.
    fn zeros(bytes: u64) -> u64 {
        const LOW: u64 = u64::from_ne_bytes([0x7F; 8]);
        // Computes the uppermost bit of each byte; no carry crosses into the next byte.
        let zeros = !(((bytes & LOW) + LOW) | bytes | LOW);
        // Bit 8 i + 7 goes to bit 56 + i, by the i-th one of the factor.
        (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
    }
    let pattern = u64::from_ne_bytes([byte; 8]);
    let half = |from| {
        let half = bytes[from..from + 8]
            .try_into()
            .expect("the slice has eight bytes");
        zeros(u64::from_le_bytes(half) ^ pattern) as u32
    };
    half(0) | half(8) << 8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equal_bytes_are_found_with_and_without_the_instruction(
            // Few values, so that many are equal and many differ by a bit.
            bytes in prop::array::uniform16(prop::sample::select(vec![0, 1, 2, 0x7F, 0x80, 0x81, 0xFF])),
            byte in prop::sample::select(vec![0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]),
        ) {
            let equal = (0..16).filter(|at| bytes[*at] == byte);
            let expected = equal.fold(0, |bits, at| bits | 1 << at);
            prop_assert_eq!(bytes_equal(&bytes, byte), expected);
            prop_assert_eq!(eight_by_eight(&bytes, byte), expected);
        }
    }

    #[test]
    fn a_group_takes_twelve_values_and_counts_beside_them() {
        let mut group = Group::<u32>::empty();
        for value in 0..12 {
            group.set_overflow_count(u32::MAX - value);
            assert!(group.put(1 + value as u8 % 3, value));
        }
        assert!(!group.put(1, 12), "there are twelve places");
        assert_eq!(group.overflow_count(), u32::MAX - 11);
        assert_eq!(Vec::from_iter(group.tagged(2)), [1, 4, 7, 10]);
        assert_eq!(group.tagged(0xFF).next(), None, "the count is not a tag");
        group.clear(4);
        assert_eq!((group.get(4), group.get(5)), (None, Some(5)));
        assert_eq!(Vec::from_iter(group.tagged(2)), [1, 7, 10]);
        assert!(group.put(9, 40), "a place that was cleared is free");
        assert_eq!(group.get(4), Some(40));
        assert_eq!(
            Vec::from_iter(group.values()),
            [0, 1, 2, 3, 40, 5, 6, 7, 8, 9, 10, 11]
        );
    }
}
