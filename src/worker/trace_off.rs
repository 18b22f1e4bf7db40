//! In the place of the spans and events, where they are not built in: nothing, at no cost.

use super::{GivenUp, Workers};
use crate::item::Item;

pub(super) struct Span;

impl Span {
    #[inline]
    pub(super) fn of<K, L, S, E>(_: &Workers<'_, K, L, S, E>, _: &Item<'_, K, L, S>) -> Self {
        Span
    }

    #[inline]
    pub(super) fn within<T>(&self, f: impl FnOnce() -> T) -> T {
        f()
    }

    #[inline]
    pub(super) fn around<F: Future>(&self, future: F) -> F {
        future
    }

    #[inline]
    pub(super) fn outcome(&self, _: &'static str) {}

    #[inline]
    pub(super) fn panicked(&self, _: &str) {}

    #[inline]
    pub(super) fn gave_up<E>(&self, _: &GivenUp<E>) {}
}
