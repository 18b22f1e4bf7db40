//! What one thread does, as data.

/// How a key is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Via {
    Key,
    Ref,
    /// By a handle that the thread keeps.
    Handle,
    /// By a handle that is made for the purpose.
    NewHandle,
}

/// One call of a thread. Keys are taken modulo [`KEYS`](super::KEYS), delays modulo 4 ticks, and a
/// number that chooses among the thread's items modulo how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Do {
    Add(u8, Via),
    AddAfter(u8, u8, Via),
    Cancel(u8),
    TryGet,
    /// Takes a key, or waits for this many microseconds.
    GetTimeout(u8),
    /// Polls a getter that has been polled this many times before, and drops it.
    PollGet(u8),
    /// Takes a key, waiting for as long as it takes.
    Get,
    /// Takes up to this many keys, waiting for the first.
    GetBatch(u8),
    /// Says that an item is done.
    Done(u8),
    /// Is done with an item, and adds its key after this many ticks.
    RetryAfter(u8, u8),
    /// Moves the clock a tick on, and ends what is due.
    Fire,
    /// Shuts down, if no thread has.
    ShutDown,
    /// Forgets what is idle.
    Shrink,
    /// Lets some time pass.
    Pause(u8),
}
