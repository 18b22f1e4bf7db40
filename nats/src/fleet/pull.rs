//! Pulls the messages of one consumer: as many as there is room for.
//!
//! A request asks for a number of messages; the next one is sent while the last half of them comes. The server ends a request early when
//! its time or its bytes are over, and then says how many messages of it are left. While a request is open it sends something each
//! [`HEARTBEAT`], so silence means that the server or the connection is gone.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::{Message, StatusCode, Subject, Subscriber};
use futures_util::StreamExt;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::tenure::Tenure;

/// How many messages a request asks for.
pub(super) const BATCH: usize = 500;
const EXPIRES: Duration = Duration::from_secs(30);
/// A request whose bytes are used up to the last one ends without a word: then this is how long nothing comes.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// What a message has beside its payload and headers.
const SUBJECTS: usize = 4096;

/// Passes each message to `put` until something goes wrong, also with it, and returns what.
pub(super) async fn pull(
    shared: &Shared,
    tenure: &Arc<Tenure>,
    consumer: &PullConsumer,
    mut put: impl FnMut(Message) -> Result<(), String>,
) -> String {
    let mut requests = Requests {
        shared,
        consumer,
        inbox: shared.client.new_inbox().into(),
        open: 0,
    };
    let messages = match shared.client.subscribe(requests.inbox.clone()).await {
        Ok(messages) => messages,
        Err(error) => return error.to_string(),
    };
    requests.pull(tenure, messages, &mut put).await
}

struct Requests<'a> {
    shared: &'a Shared,
    consumer: &'a PullConsumer,
    inbox: Subject,
    /// How many messages may come of the requests that were sent.
    open: usize,
}

impl Requests<'_> {
    async fn pull(
        &mut self,
        tenure: &Tenure,
        messages: Subscriber,
        put: &mut impl FnMut(Message) -> Result<(), String>,
    ) -> String {
        let mut messages = messages.ready_chunks(64);
        let mut heard = Instant::now();
        loop {
            if let Err(error) = self.request(tenure).await {
                return error;
            }
            // Otherwise there is no room.
            let is_open = self.open > 0;
            tokio::select! {
                biased;
                some = messages.next() => {
                    heard = Instant::now();
                    let Some(some) = some else {
                        return "the client is closed".to_owned();
                    };
                    for message in some {
                        let taken = match message.status {
                            None | Some(StatusCode::OK) => {
                                self.open = self.open.saturating_sub(1);
                                put(message)
                            }
                            Some(status) => self.status(status, &message),
                        };
                        if let Err(error) = taken {
                            return error;
                        }
                    }
                }
                () = sleep_until(heard + 2 * HEARTBEAT), if is_open => {
                    return format!("the server is silent for {:?}", 2 * HEARTBEAT);
                }
                () = async { tokio::join!(tenure.room.wait(), self.shared.memory.wait()); }, if !is_open => {
                    heard = Instant::now();
                }
            }
        }
    }

    /// How many messages more may be asked for.
    fn left(&self, tenure: &Tenure) -> usize {
        match self.shared.memory.left() {
            0 => 0,
            _ => tenure.room.left().saturating_sub(self.open),
        }
    }

    /// Asks for more messages, if half of the last request has come and there is room.
    async fn request(&mut self, tenure: &Tenure) -> Result<(), String> {
        let count = self.left(tenure).min(BATCH);
        if count == 0 || self.open > BATCH / 2 || (self.open > 0 && count < BATCH / 2) {
            return Ok(());
        }
        let batch = BatchConfig {
            batch: count,
            max_bytes: self.shared.client.max_payload() + SUBJECTS,
            expires: Some(EXPIRES),
            idle_heartbeat: HEARTBEAT,
            ..Default::default()
        };
        let request = self.consumer.request_batch(batch, self.inbox.clone());
        request.await.map_err(|error| error.to_string())?;
        self.open += count;
        Ok(())
    }

    /// Takes in what the server says of a request. An error: nothing more comes.
    fn status(&mut self, status: StatusCode, message: &Message) -> Result<(), String> {
        if status == StatusCode::IDLE_HEARTBEAT {
            return Ok(());
        }
        let text = message.description.as_deref().unwrap_or_default();
        let left = message.headers.as_ref().and_then(|headers| {
            headers
                .get("Nats-Pending-Messages")?
                .as_str()
                .parse::<usize>()
                .ok()
        });
        // The time of a request is over, or its bytes: the rest of it does not come.
        let is_over = status == StatusCode::TIMEOUT
            || ["Batch Completed", "Message Size Exceeds MaxBytes"].contains(&text);
        match left.filter(|_| is_over) {
            Some(left) => {
                self.open = self.open.saturating_sub(left);
                Ok(())
            }
            None => Err(format!("the server says {status} {text}")),
        }
    }
}
