//! A keyed work queue on many machines.
#![deny(missing_docs)]
mod config;
pub mod dead_letter;
mod error;
mod fleet;
mod key;
mod ownership;
mod stream;
pub use config::{Coalesce, Config};
pub use error::Error;
pub use fleet::{Delivery, Event, Fence, Fleet, Left, Message};
/// p
#[derive(Debug)]
pub struct Producer;
/// c
pub async fn create(_: &async_nats::Client, _: &Config) -> Result<(), Error> { todo!() }
