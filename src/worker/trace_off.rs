//! Empty stand-ins for the spans and events, for builds without the feature `tracing`.

use super::{Failed, GivenUp, Loop};
use crate::Item;

pub(super) struct Span;

impl Span {
    #[inline]
    pub(super) fn of<K, S, E>(_: &Loop<'_, K, S, E>, _: &Item<'_, K, S>) -> Self {
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
}

#[inline]
pub(super) fn panicked(_: &str) {}

impl<K, S, E> Loop<'_, K, S, E> {
    #[inline]
    pub(super) fn trace_failed(&self, _: &K, _: &Failed<'_, E>) {}

    #[inline]
    pub(super) fn trace_given_up(&self, _: &K, _: &GivenUp<E>) {}
}
