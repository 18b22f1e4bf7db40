//! Panics of user code, caught: who called it for somebody else goes on.
//!
//! What a panic carries is user code as well: dropping it may panic, so it is never simply dropped.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs `f`; what it panicked with, if it did.
///
/// Unwind-safe by decree: what `f` shares with the next run may be half-changed, which is what a lock's
/// poison tells of, and the business of whoever wrote `f`.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(message)
}

/// As [`caught`], for each poll of a future. After a panic it is not polled again.
pub(crate) async fn caught_async<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(|context| match caught(|| future.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Err(message) => Poll::Ready(Err(message)),
    })
    .await
}

/// What a panic said: nearly always a text.
fn message(payload: Box<dyn Any + Send>) -> String {
    let payload = match payload.downcast::<String>() {
        Ok(text) => return *text,
        Err(payload) => payload,
    };
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    // Its drop is user code once more. What that panics with is dropped if it is a text, and otherwise
    // leaked, or there would be no end.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        if !again.is::<&str>() && !again.is::<String>() {
            std::mem::forget(again);
        }
    }
    "a value that is no text".to_owned()
}

/// A panic's value that panics when it is dropped. For tests.
#[cfg(test)]
pub(crate) struct Bomb;

#[cfg(test)]
impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a panic's value does not want to go");
    }
}
