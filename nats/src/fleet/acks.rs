//! Sends acknowledgements, for workers and for merges, which do not wait for the network.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Subject};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::tenure::Tenure;

const ACK: Bytes = Bytes::from_static(b"+ACK");
const TERMINATE: Bytes = Bytes::from_static(b"+TERM");

/// How long a hand-over waits for the server to process the acknowledgements. Without the wait, messages
/// that were acknowledged may be delivered once more; nothing is lost.
const SETTLE: Duration = Duration::from_secs(2);

enum Command {
    Send(Subject, Bytes),
    /// Fires when everything before it was handed to the client.
    Flush(oneshot::Sender<()>),
}

/// A handle to the [`Outbox`].
#[derive(Clone)]
pub(crate) struct Acks {
    commands: mpsc::UnboundedSender<Command>,
}

/// What is to be sent. It is bounded: each message is acknowledged once, and a replica asks for more only if it has room.
pub(crate) struct Outbox {
    commands: mpsc::UnboundedReceiver<Command>,
}

impl Outbox {
    /// Sends, until all handles are dropped.
    pub(super) async fn send(mut self, client: Client) {
        while let Some(command) = self.commands.recv().await {
            match command {
                // An error: the client is closed. The messages are delivered again.
                Command::Send(subject, kind) => drop(client.publish(subject, kind).await),
                Command::Flush(done) => drop(done.send(())),
            }
        }
    }
}

impl Acks {
    pub(crate) fn new() -> (Self, Outbox) {
        let (sender, commands) = mpsc::unbounded_channel();
        (Acks { commands: sender }, Outbox { commands })
    }

    /// Acknowledges a message. Returns whether that reaches its consumer.
    pub(crate) fn send(&self, tenure: &Tenure, reply: Subject) -> bool {
        self.command(tenure, reply, ACK)
    }

    /// Tells the server that a message will not be processed. Returns whether that reaches its consumer.
    pub(crate) fn terminate(&self, tenure: &Tenure, reply: Subject) -> bool {
        self.command(tenure, reply, TERMINATE)
    }

    fn command(&self, tenure: &Tenure, reply: Subject, kind: Bytes) -> bool {
        let reaches = tenure.acknowledges(&reply);
        let _ = self.commands.send(Command::Send(reply, kind));
        reaches
    }

    /// Waits until the server has processed what was sent for this tenure: it processes the
    /// acknowledgements of a consumer in their order, so it is asked to confirm one more, of a message
    /// that is acknowledged already. Returns whether it has.
    pub(crate) async fn settled(&self, client: &Client, tenure: &Arc<Tenure>) -> bool {
        let Some(reply) = tenure.acknowledged() else {
            return true;
        };
        let confirm = async {
            let (done, flushed) = oneshot::channel();
            let _ = self.commands.send(Command::Flush(done));
            let _ = flushed.await;
            client.request(reply, ACK).await
        };
        let confirmed = matches!(timeout(SETTLE, confirm).await, Ok(Ok(_)));
        if !confirmed {
            tracing::debug!(fence = %tenure.fence, "the server did not confirm the acknowledgements");
        }
        confirmed
    }
}

#[cfg(test)]
impl Outbox {
    /// What was sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<String> {
        let commands = std::iter::from_fn(|| self.commands.try_recv().ok());
        let text = |command| match command {
            Command::Send(subject, kind) => format!("{subject} {}", String::from_utf8_lossy(&kind)),
            Command::Flush(_) => "flush".to_owned(),
        };
        commands.map(text).collect()
    }
}
