
use async_nats::{jetstream::{Context, stream::Stream, kv::Store}, Client};
use crate::{Config, Error, Fence};
pub(crate) async fn open(_: &Client, _: &Config) -> Result<(Context, Stream, Store), Error> { todo!() }
pub(crate) fn consumer_name(f: Fence) -> String { format!("p{}-e{}", f.partition, f.epoch) }
pub(crate) fn consumer_fence(name: &str) -> Option<Fence> { let (p,e)=name.strip_prefix('p')?.split_once("-e")?; Some(Fence{partition:p.parse().ok()?,epoch:e.parse().ok()?}) }
