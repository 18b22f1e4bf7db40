#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod cause;
mod config;
pub mod dead_letter;
mod delay;
mod error;
mod fleet;
mod key;
mod layout;
mod ownership;
mod producer;
mod repartition;
mod scan;
pub mod status;
mod stream;

pub use config::{Coalesce, Config};
pub use error::Error;
pub use fleet::{Delivery, Event, Fence, Fleet, Left, Message};
/// What a handler of [`Fleet::run`] returns, from keyqueue. The table there says what each means here.
#[doc(inline)]
pub use keyqueue::worker::{IntoVerdict, Outcome, Verdict};
pub use producer::Producer;
pub use repartition::repartition;
pub use status::status;
pub use stream::create;
