#![allow(missing_docs)]
use std::time::Duration;
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Coalesce { #[default] Server, Client, Never }
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Config { pub stream: String, pub subject: String, pub partitions: u16, pub replicas: usize, pub coalesce: Coalesce, pub lease: Duration, pub max_ack_pending: u32, pub ack_wait: Duration, pub backoff: Duration, pub max_backoff: Duration, pub max_retries: Option<u32>, pub dead_letters: Option<String> }
impl Config { pub fn check(&self) -> Result<(), crate::Error> { Ok(()) }
 pub(crate) fn partition_subject(&self, p: u16) -> String { format!("{}.p.{p}.*", self.subject) } }
