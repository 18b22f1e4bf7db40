//! Why a request has failed, wherever in its error that is.

use std::iter::successors;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{
    GetStreamError, GetStreamErrorKind, RequestError, RequestErrorKind,
};
use async_nats::jetstream::kv::{UpdateError, UpdateErrorKind};

pub(crate) type Cause = dyn std::error::Error + 'static;

/// Whether a part of an error is one of this type, and like this.
pub(crate) fn any<E: std::error::Error + 'static>(error: &Cause, is: impl Fn(&E) -> bool) -> bool {
    let mut causes = successors(Some(error), |cause| cause.source());
    causes.any(|cause| cause.downcast_ref::<E>().is_some_and(&is))
}

fn is(error: &Cause, kind: RequestErrorKind) -> bool {
    any(error, |error: &RequestError| error.kind() == kind)
}

/// What to tell about an error of a request, if nobody has replied to it.
pub(crate) fn hint(error: &Cause) -> &'static str {
    if is(error, RequestErrorKind::NoResponders) {
        " on a server that may have no JetStream (`-js`)"
    } else {
        ""
    }
}

/// Whether the server has not replied to a request: a stream has no leader for a moment.
pub(crate) fn is_silent(error: &Cause) -> bool {
    let update = |error: &UpdateError| error.kind() == UpdateErrorKind::TimedOut;
    is(error, RequestErrorKind::TimedOut) || any(error, update)
}

/// Whether a server knows no such stream.
pub(crate) fn is_unknown(error: &Cause) -> bool {
    any(error, |error: &GetStreamError| is_missing(&error.kind()))
}

pub(crate) fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}
