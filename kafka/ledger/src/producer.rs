//! Produces postings.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

/// Produces postings of accounts, and knows how many there are of each.
pub struct Producing {
    producer: ThreadedProducer<DefaultProducerContext>,
    topic: String,
    next: u64,
    pub produced: BTreeMap<String, u64>,
}

impl std::fmt::Debug for Producing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producing")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Producing {
    pub fn new(servers: &str, topic: &str) -> Result<Self> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", servers)
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .set("message.timeout.ms", "120000")
            .create()?;
        Ok(Producing {
            producer,
            topic: topic.to_owned(),
            next: 0,
            produced: BTreeMap::new(),
        })
    }

    /// Produces this many, to the accounts in turn, with payloads of this size.
    pub fn produce(&mut self, count: u64, accounts: u64, size: usize) -> Result<()> {
        for _ in 0..count {
            let account = format!("a{}", self.next % accounts);
            self.next += 1;
            self.one(&account, size)?;
        }
        Ok(())
    }

    /// Produces the next posting of an account.
    pub fn one(&mut self, account: &str, size: usize) -> Result<()> {
        let number = self.produced.entry(account.to_owned()).or_default();
        let payload = format!("{number} {}", "x".repeat(size));
        let mut record = BaseRecord::to(&self.topic).key(account).payload(&payload);
        loop {
            match self.producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err((error, _)) => return Err(error).context("producing"),
            }
        }
        *number += 1;
        Ok(())
    }

    /// Waits until all is stored.
    pub fn flush(&self) -> Result<()> {
        Ok(self.producer.flush(Duration::from_secs(120))?)
    }
}
