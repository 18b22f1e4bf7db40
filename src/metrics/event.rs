//! What is counted, in builds with and without the feature `metrics`.

/// What a named queue counts, apart from deliveries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// An add of a key that was queued or dirty already.
    Merged,
    /// An accepted add with a delay or a rate limit.
    Retried,
    /// A pending delay was cancelled.
    Cancelled,
    /// A run of the worker loop's function ended like this.
    Done,
    /// Or with a delay that does not count as a failure.
    RequeueAfter,
    Error,
    Panic,
    /// The worker loop gave a key up.
    GivenUp,
    /// A store of dead letters was full: it has not kept a key, or has dropped its oldest letter.
    LetterLost,
}
