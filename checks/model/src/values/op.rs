//! What a test of values does, as data.

use crate::limit::Span;
use crate::op::{Settings, Setup};

/// A whole test case.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct ValueScript {
    pub setup: Setup,
    pub ops: Vec<ValueOp>,
}

/// What an entry does with a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Verb {
    /// Whether it updates the value that waits, or puts one.
    pub update: bool,
    /// Whether there is a receipt.
    pub tracked: bool,
}

/// One step with a queue of values. Numbers mean what they mean in an [`Op`](crate::Op); each put has
/// a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum ValueOp {
    Put(u16),
    Update(u16),
    /// Puts or updates with settings.
    Enter(u16, Settings, Verb),
    /// Adds a key without a value.
    Add(u16),
    Handle(u16),
    HandlePut(u8),
    HandleDrop(u8),
    Remove(u16),
    Cancel(u16),
    TryGet,
    /// Changes the value of an item.
    Change(u8),
    /// Takes the value of an item.
    Take(u8),
    Done(u8),
    Retry(u8),
    RetryAfter(u8, Span),
    Advance(Span),
    FireDue,
    Shrink,
    Clear,
    ShutDown,
    /// Drains for no time at all.
    DrainNow,
    ShutDownNow,
    /// Takes what is left.
    TakeLeft,
    /// Ends a delay now.
    RunNow(u16),
    /// Puts to several keys in one call: the first, the distance, and how many.
    PutAll(u16, u8, u8),
}

impl ValueOp {
    /// Whether the queue takes no adds after this step.
    pub fn ends(&self) -> bool {
        matches!(
            self,
            ValueOp::ShutDown | ValueOp::DrainNow | ValueOp::ShutDownNow | ValueOp::TakeLeft
        )
    }
}
