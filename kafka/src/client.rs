//! The context of the client: what librdkafka tells the driver while it polls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::types::RDKafkaRespErr;

use crate::bell::Bell;
use crate::{caught, lock};

pub(crate) type Client = BaseConsumer<Context>;

/// A topic, and the number of a partition.
pub(crate) type Partition = (String, i32);

pub(crate) fn list(partitions: &[Partition]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition(topic, *partition);
    }
    list
}

pub(crate) fn partition(element: &TopicPartitionListElem<'_>) -> Partition {
    (element.topic().to_owned(), element.partition())
}

/// What the group wants of this member. It waits for the reply, an assign or unassign, while the driver polls on.
#[derive(Debug)]
pub(crate) enum Event {
    Assign(Vec<Partition>),
    /// And whether the assignment is lost: an assign that comes later takes that from the client.
    Revoke(Vec<Partition>, bool),
}

#[derive(Default)]
pub(crate) struct Context {
    pub(crate) bell: Arc<Bell>,
    pub(crate) events: Mutex<VecDeque<Event>>,
    /// The driver has ended: revocations are replied to directly.
    pub(crate) closing: AtomicBool,
    pub(crate) errors: Arc<Errors>,
}

/// Between two warnings: a client that finds no broker reports it forty times a second.
const QUIET: Duration = Duration::from_secs(5);

/// What the client reports: the last error, and when the last warning was given.
#[derive(Default)]
pub(crate) struct Errors(Mutex<(Option<String>, Option<Instant>)>);

impl Errors {
    pub(crate) fn note(&self, error: String) {
        let now = Instant::now();
        let is_quiet = {
            let (last, warned) = &mut *lock(&self.0);
            let is_quiet = warned.is_some_and(|at| now.duration_since(at) < QUIET);
            if !is_quiet {
                *warned = Some(now);
            }
            *last = Some(error.clone());
            is_quiet
        };
        _ = caught(|| match is_quiet {
            true => tracing::debug!(target: "keyqueue_kafka", error, "the client reports an error"),
            false => tracing::warn!(target: "keyqueue_kafka", error, "the client reports an error"),
        });
    }

    pub(crate) fn last(&self) -> Option<String> {
        lock(&self.0).0.clone()
    }
}

impl Context {
    pub(crate) fn events(&self) -> VecDeque<Event> {
        std::mem::take(&mut *lock(&self.events))
    }

    pub(crate) fn close(&self) {
        // Ordering: Relaxed; read by the same thread, or by the one that drops the client last.
        self.closing.store(true, Ordering::Relaxed);
    }
}

/// Tells what librdkafka logs. A subscriber that panics breaks nothing off: neither the close of a client nor the thread that polls a producer.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    _ = caught(|| match level {
        RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Info | RDKafkaLogLevel::Notice => {
            tracing::info!(target: "librdkafka", facility, "{message}");
        }
        RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, "{message}"),
        _ => tracing::error!(target: "librdkafka", facility, "{message}"),
    });
}

/// The context of the producer of dead letters.
#[derive(Clone)]
pub(crate) struct Logs;

impl ClientContext for Logs {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log(
            RDKafkaLogLevel::Warning,
            "ERROR",
            &format!("{error}: {reason}"),
        );
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.errors.note(format!("{error}: {reason}"));
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        client: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let is_assign = event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        // Ordering: Relaxed; written by the same thread, or before this one could drop the client.
        if self.closing.load(Ordering::Relaxed) {
            let unassigned = match client.rebalance_protocol() {
                RebalanceProtocol::Cooperative if !is_assign => client.incremental_unassign(list),
                _ => client.unassign(),
            };
            if let Err(error) = unassigned {
                _ = caught(|| {
                    tracing::debug!(target: "keyqueue_kafka", %error, "the client does not unassign");
                });
            }
            return;
        }
        let partitions = list.elements().iter().map(partition).collect();
        let event = match is_assign {
            true => Event::Assign(partitions),
            false => Event::Revoke(partitions, client.assignment_lost()),
        };
        lock(&self.events).push_back(event);
        self.bell.ring();
    }
}
