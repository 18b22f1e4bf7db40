//! Empty stand-ins for the spans and events, for builds without the feature `tracing`.

use super::settle::Said;
use super::{Failed, GivenUp, Loop};
use crate::Item;
use crate::sync::catch_panic::catch_panic_async;

pub(super) struct Span;

impl Span {
    #[inline]
    pub(super) fn of<K, V, E>(_: &Loop<'_, K, V, E>, _: &Item<'_, K, V>) -> Self {
        Span
    }

    #[inline]
    pub(super) fn within<T>(&self, f: impl FnOnce() -> T) -> T {
        f()
    }

    #[inline]
    pub(super) fn around<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, String>> {
        catch_panic_async(future)
    }

    #[inline]
    pub(super) fn outcome(&self, _: &'static str) {}
}

#[inline]
pub(super) fn panicked(_: &str) {}

#[inline]
pub(super) fn batch_failed<E>(_: usize, _: &Said<E>) {}

impl<K, V, E> Loop<'_, K, V, E> {
    #[inline]
    pub(super) fn trace_failed(&self, _: &K, _: &Failed<'_, E>) {}

    #[inline]
    pub(super) fn trace_given_up(&self, _: &K, _: &GivenUp<E, V>) {}
}
