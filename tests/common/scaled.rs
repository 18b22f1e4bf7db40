//! How much a test does. Miri interprets: a hundredth takes it longer than the whole takes a processor.

/// `n`, and a hundredth of it under Miri; one at least.
pub(crate) const fn scaled(n: usize) -> usize {
    if cfg!(miri) { n.div_ceil(100) } else { n }
}
