//! Catching panics of user code, so that a thread that runs it on behalf of another caller
//! continues.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs `f`. Returns its result, or the message of its panic. The author of `f` is responsible for
/// state that a panic leaves half-changed.
pub(crate) fn catch_panic<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_payload(f).map_err(message)
}

/// Like [`catch_panic`], for a caller that holds a lock: the drop of the payload, which is user code, is left to it
/// ([`drop_payload`]).
pub(crate) fn catch_payload<T>(f: impl FnOnce() -> T) -> Result<T, Payload> {
    catch_unwind(AssertUnwindSafe(f))
}

type Payload = Box<dyn Any + Send>;

pub(crate) fn drop_payload(payload: Payload) {
    message(payload);
}

/// Drops what is user code to drop. The panic hook reports a panic, which concerns none of the caller's work.
pub(crate) fn drop_caught<T>(value: T) {
    let _ = catch_panic(|| drop(value));
}

/// Like [`catch_panic`], for each poll of a future, which is not polled again after a panic.
pub(crate) async fn catch_panic_async<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(
        |context| match catch_panic(|| future.as_mut().poll(context)) {
            Ok(poll) => poll.map(Ok),
            Err(message) => Poll::Ready(Err(message)),
        },
    )
    .await
}

/// Returns the message of a panic's payload, which is nearly always a string.
fn message(payload: Payload) -> String {
    let payload = match payload.downcast::<String>() {
        Ok(text) => return *text,
        Err(payload) => payload,
    };
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    // The payload's drop is user code, and may panic with another payload, which is leaked unless
    // it is a string, since its drop could panic again.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
        && !again.is::<&str>()
        && !again.is::<String>()
    {
        std::mem::forget(again);
    }
    "a value that is not a string".to_owned()
}

/// A panic payload that panics when it is dropped, for tests.
#[cfg(test)]
pub(crate) struct Bomb;

#[cfg(test)]
impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the drop of a panic payload");
    }
}
