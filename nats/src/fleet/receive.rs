//! Receives the messages of one partition for as long as this replica owns it, and puts them into the
//! queue.
//!
//! The partition's stream has one consumer, whose name has the epoch, `p3-e42-1`. The server refuses a second consumer
//! of the same messages, so a new owner deletes its predecessors' and then creates its own, which
//! gets everything that is not acknowledged. A predecessor that is late finds its consumer gone, or
//! one with a higher epoch in its place, and stops.
//!
//! Messages that the server has sent into a connection that broke, or that a former leader of the consumer has sent, are on nobody's list
//! until `ack_wait` has passed. So the owner, too, deletes its consumer and creates it again, and gets again what it has not
//! acknowledged:
//!
//! * when the connection is back, when the server says that something is wrong, or says nothing;
//! * when a message is missing: the consumer numbers those that it sends, and what comes after a missing one is not taken; the last one is missing
//!   when it has not come for [`LATE`] looks, and nothing else was sent;
//! * when the consumer has another leader than before ([`look`], each [`LOOK`]);
//! * when the server counts messages as delivered and nothing is held here, twice in a row, and nothing has come between.
//!
//! The servers of a cluster let any of them lead a new consumer, also one that was killed and is not up to date. Such a server would send
//! messages that a later one of their key has replaced, or that are acknowledged. So the consumer is moved to the server that leads the
//! stream before it is pulled from.
//!
//! A message that it holds already is merged with its copy, and one that is handled is acknowledged again (`marks`).
//!
//! # Requests
//!
//! What a partition waits for has a limit of its own, because a server that has no leader drops requests without a word (N12). A
//! consumer whose creation has had no reply is asked for again under the same name: until it was pulled from, it does not matter
//! which of the requests has made it.
//!
//! | request | limit | then |
//! | --- | --- | --- |
//! | create, list, look up or delete consumers; look up the stream, and what a former owner had in hand (`attempts`) | [`LIMIT`] | told, and all of it again after [`PAUSE`] |
//! | read the number of partitions (`layout`), note the epoch (`attempts`) | [`LIMIT`] | the same |
//! | move the consumer, and look at it | [`PAUSE`] | again, for 3 s; then it is used where it is |
//! | messages (`pull`) | 2 s of silence | another consumer |
//! | look at the consumer, each [`LOOK`] | 2 s | another consumer |
//! | confirm acknowledgements (`acks`) | 2 s | at a later look; a hand-over goes on without |
//! | look at the consumer before a hand-over (`handled`) | [`LIMIT`] | what is handled is looked for |
//! | write, read or watch the records of ownership (`bucket`) | [`LIMIT`], or a quarter of the lease | again |
//! | write a count of failures (`attempts`), with the lease only | 2 s | again at the next look, for 2 s each time, and before a hand-over is over, until a try stores none that has begun with a newer lease than that before; until then this process counts alone |
//! | read which keys of a partition have counts (`attempts`) | [`LIMIT`] | again, beside the messages: until then the counts of each key that is delivered are looked for |
//! | read the counts of one key (`attempts`) | [`MOST`](crate::stream::MOST) | the key again after a second |
//! | read payloads again, store dead letters (`work`) | [`MOST`](crate::stream::MOST) | again after a second |
//! | look for what is handled and was not acknowledged for certain, and delete it (`handled`) | [`MOST`](crate::stream::MOST), and 5 s for all of them before a hand-over is over | not again: it comes again with the next consumer |
//! | all others of a membership | [`MOST`](crate::stream::MOST) | as above; `join` asks again for 10 s |
//!
//! A partition that has no consumer for [`LOOK`] is told as stalled, whatever the reason is, and so is one that has messages of which
//! none comes from one look to the next, though there is room (N13).

use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{ClusterInfo, ConsumerErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Shared;
use super::attempts::{self, Higher};
use super::load::{Load, Message};
use super::pull::pull;
use super::room::Held;
use super::stranger::refuse;
use super::tenure::Tenure;
use super::work::{FAILING, HEALTHY};
use crate::key;
use crate::layout::{self, Layout};

/// Between two tries after an error of the server.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// For each request that a partition waits for.
pub(super) const LIMIT: Duration = Duration::from_secs(1);
/// How often the server is asked what it thinks of the consumer, and how long it may think.
const LOOK: Duration = Duration::from_secs(1);
/// For how many of these looks what the server has sent may be on its way.
const LATE: u32 = 2;
/// How often it is asked to confirm acknowledgements.
pub(super) const CONFIRM: Duration = Duration::from_secs(2);

/// Receives until the caller drops the future.
///
/// `higher` gets an epoch of the partition that is higher than the tenure's: the replica needs another one.
pub(super) async fn receive(
    shared: Arc<Shared>,
    tenure: Arc<Tenure>,
    higher: oneshot::Sender<u64>,
) {
    // Messages that come before it is known which keys have failed cost requests for the counts of each. They do not wait for longer.
    let mut read = pin!(tenure.attempts.read(&shared, tenure.fence));
    let is_read = timeout(LIMIT, &mut read).await.is_ok();
    let consume = consume(&shared, &tenure, higher);
    match is_read {
        true => consume.await,
        false => drop(tokio::join!(read, consume)),
    }
}

async fn consume(shared: &Arc<Shared>, tenure: &Arc<Tenure>, higher: oneshot::Sender<u64>) {
    let mut higher = Some(higher);
    let mut connects = shared.connects.subscribe();
    let mut taken = Taken::default();
    let mut since = Instant::now();
    loop {
        tenure.makes_consumer(*connects.borrow_and_update());
        let began = {
            let mut began = pin!(begin(shared, tenure, &mut taken));
            match timeout_at(since + LOOK, &mut began).await {
                Ok(began) => began,
                Err(_) => {
                    let doing = tenure.doing();
                    shared.stalled_here(tenure, Some(format!("no consumer for {LOOK:?}: {doing}")));
                    began.await
                }
            }
        };
        let reason = match began {
            Ok(consumer) => {
                shared.stalled_here(tenure, None);
                let last = AtomicU64::new(0);
                let mut received = Received {
                    last: &last,
                    context: None,
                };
                let put = |message| put(shared, tenure, &taken, message, &mut received);
                let reason = tokio::select! {
                    reason = pull(shared, tenure, &consumer, put) => Some(reason),
                    reason = look(shared, tenure, &consumer, &last) => Some(reason),
                    _ = connects.changed() => None,
                };
                since = Instant::now();
                delete_consumer(shared, tenure).await;
                tenure.next_consumer();
                reason
            }
            Err(error) => {
                let above = error.downcast_ref::<Higher>();
                if let Some((higher, above)) =
                    above.and_then(|above| Some((higher.take()?, above.0)))
                {
                    let _ = higher.send(above);
                }
                Some(error.to_string())
            }
        };
        // `None`: the connection is new, which a lease survives or not.
        if reason.is_some() {
            shared.stalled_here(tenure, reason);
        }
        sleep(PAUSE).await;
    }
}

/// What the owner of a partition has found when it took the partition.
#[derive(Default)]
struct Taken {
    /// The revision of the layout under which its epoch was noted. 0: it was not.
    noted: u64,
    /// The last sequence in the stream when this owner has taken over from one that has not handed over, and had received something: that
    /// one may have died of a message up to there, or of one that such a message has replaced.
    suspects: u64,
    /// When the stream was made, in nanoseconds since 1970. 0: that is not known yet.
    made: i128,
}

/// Does what a partition needs before its messages come, and creates its consumer.
async fn begin(
    shared: &Shared,
    tenure: &Tenure,
    taken: &mut Taken,
) -> Result<PullConsumer, async_nats::Error> {
    tenure.does("waiting for the lease");
    // A replica whose lease has lapsed leaves the partition's consumers alone.
    shared.lease.held().await;
    let mut consumer = loop {
        let layout = read_layout(shared, tenure).await?;
        if taken.noted != layout.revision {
            let noted = attempts::note(shared, tenure.fence);
            within(tenure, "noting the epoch", noted).await??;
            // After a change and one back, others may have had higher epochs, whose notes somebody may have deleted.
            if taken.noted != 0 && layout.next.is_none() {
                return Err(Higher(tenure.fence.epoch + 1).into());
            }
            taken.noted = layout.revision;
        }
        let consumer = consumer(shared, tenure, taken).await?;
        if read_layout(shared, tenure).await?.revision == layout.revision {
            break consumer;
        }
    };
    let stream = shared.stream(tenure.fence);
    let patience = Instant::now() + 3 * LIMIT;
    loop {
        let info = within(tenure, "looking up the stream", stream.get_info());
        let info = info.await??;
        let made = info.created.unix_timestamp_nanos();
        let is_first = mem::replace(&mut taken.made, made) == 0;
        if is_first && taken.suspects > 0 {
            // What was added since the former owner died has replaced what it had received.
            taken.suspects = taken.suspects.max(info.state.last_sequence);
        }
        let wanted = leader(info.cluster.as_ref());
        let leads = leader(consumer.cached_info().cluster.as_ref());
        if shared.config.replicas == 1 || leads == wanted {
            return Ok(consumer);
        }
        // Messages go on, also for a client that may not ask for it.
        if Instant::now() >= patience {
            tracing::warn!(fence = %tenure.fence, "the consumer cannot be moved to the leader of its stream, and is used where it is");
            return Ok(consumer);
        }
        tenure.does("moving the consumer to the leader of the stream");
        let name = tenure.consumer_name();
        let subject = format!("CONSUMER.LEADER.STEPDOWN.{}.{name}", info.config.name);
        let wanted = serde_json::json!({ "placement": { "preferred": wanted } });
        let moved = shared.context.request(subject, &wanted);
        // If it is lost or refused, it is sent again: what counts is where the consumer is then.
        let _: Result<Result<serde_json::Value, _>, _> = timeout(PAUSE, moved).await;
        sleep(PAUSE / 4).await;
        let _ = timeout(PAUSE, consumer.info()).await;
    }
}

/// Reads the number of partitions, which has to be this replica's: if it was changed, streams of this one are those of a change back, and
/// their messages come after those of the other number.
async fn read_layout(shared: &Shared, tenure: &Tenure) -> Result<Layout, async_nats::Error> {
    let layout = Layout::read(&shared.owners, &shared.config);
    let layout = within(tenure, "reading the number of partitions", layout).await??;
    layout.check(&shared.config)?;
    Ok(layout)
}

pub(super) fn leader(cluster: Option<&ClusterInfo>) -> Option<String> {
    cluster.and_then(|cluster| cluster.leader.clone())
}

/// Sends a request that the partition waits for.
async fn within<T>(
    tenure: &Tenure,
    doing: &'static str,
    request: impl IntoFuture<Output = T>,
) -> Result<T, async_nats::Error> {
    tenure.does(doing);
    let done = timeout(LIMIT, request).await;
    done.map_err(|_| format!("{doing}: the server has not replied within {LIMIT:?}").into())
}

/// Creates a consumer of this tenure, and deletes former ones.
async fn consumer(
    shared: &Shared,
    tenure: &Tenure,
    taken: &mut Taken,
) -> Result<PullConsumer, async_nats::Error> {
    let config = &shared.config;
    let fence = tenure.fence;
    let stream = shared.stream(fence);
    let wanted = pull::Config {
        durable_name: Some(tenure.consumer_name()),
        description: Some(format!("The owner of the partition: {}", shared.replica)),
        // Not those that are to come later.
        filter_subject: config.subjects(fence.partition, "key", "*"),
        ack_policy: AckPolicy::Explicit,
        deliver_policy: DeliverPolicy::All,
        ack_wait: config.ack_wait,
        // What is held is bounded by what is asked for: keys in back-off do not count.
        max_ack_pending: -1,
        num_replicas: config.replicas,
        // A consumer that a restart of the server loses is created again: what is not acknowledged
        // is in the stream. Writing the state of consumers to files takes the server longer than all else.
        memory_storage: true,
        ..Default::default()
    };
    let create = || {
        let created = stream.create_consumer(wanted.clone());
        within(tenure, "creating the consumer", created)
    };
    match create().await? {
        Ok(consumer) => return Ok(consumer),
        Err(error) => match error.kind() {
            ConsumerErrorKind::JetStream(refusal)
                if refusal.error_code() == ErrorCode::CONSUMER_WQ_CONSUMER_NOT_UNIQUE
                    || refusal.error_code() == ErrorCode::CONSUMER_WQ_MULTIPLE_UNFILTERED => {}
            _ => return Err(error.into()),
        },
    }
    let names = stream.consumer_names().try_collect::<Vec<String>>();
    for name in within(tenure, "listing the consumers", names).await?? {
        let delete = within(
            tenure,
            "deleting a former consumer",
            stream.delete_consumer(&name),
        );
        match layout::consumer_fence(&name) {
            // This replica will hear that it has lost the partition, or takes a higher epoch.
            Some(other) if other > fence => return Err(Higher(other.epoch).into()),
            // The connection has broken, and its deletion was lost.
            Some(other) if other == fence => {
                delete.await??;
            }
            Some(other) => {
                tracing::info!(%fence, consumer = name, "deletes the former owner's consumer");
                // It has not handed over. Without a limit of tries nothing follows from that.
                if config.max_retries.is_some() {
                    let former = stream.consumer_info(&name);
                    let former = within(tenure, "looking up the former consumer", former).await??;
                    let accused = tenure.attempts.accuse(shared, other);
                    let accused = within(tenure, "reading what it had in hand", accused).await??;
                    // This consumer may have received nothing yet, and one before it what was in hand.
                    let received = former.delivered.stream_sequence.max(accused.into());
                    taken.suspects = taken.suspects.max(received);
                }
                delete.await??;
            }
            None => return Err(format!("the consumer {name} is not of this fleet").into()),
        }
    }
    Ok(create().await??)
}

/// Looks at the consumer until something is wrong with it, and returns what. Lets the server confirm acknowledgements meanwhile.
async fn look(
    shared: &Shared,
    tenure: &Arc<Tenure>,
    consumer: &PullConsumer,
    last: &AtomicU64,
) -> String {
    let first = leader(consumer.cached_info().cluster.as_ref());
    let marks = shared.marks(tenure.fence);
    // What was handled, and may come again, has come.
    let mut is_again = marks.highest() == 0;
    let mut confirmed = Instant::now();
    // What the server has delivered, when it last counted messages as delivered and there were none here.
    let mut lost = None;
    // What it had delivered at the last look, and what had come of it.
    let mut before = None;
    // At how many looks something was on its way, and nothing had come, or was sent, since the one before.
    let mut looks = 0;
    loop {
        sleep(LOOK).await;
        if is_again {
            tenure.catches_up(first.clone());
        }
        tenure.attempts.write_again(shared, tenure).await;
        let (some, many) = marks.unconfirmed();
        if is_again && (many || some && confirmed.elapsed() >= CONFIRM) {
            if shared.acks.settled(&shared.client, tenure).await {
                marks.confirmed(|key| shared.queue.state(key).is_some());
            }
            confirmed = Instant::now();
        }
        let info = match timeout(2 * LOOK, consumer.get_info()).await {
            Ok(Ok(info)) => info,
            Ok(Err(error)) => return format!("the consumer cannot be looked at: {error}"),
            Err(_) => return "the server does not say how the consumer is".to_owned(),
        };
        // Also what has come with a former consumer, and was handled since.
        is_again = info.num_pending == 0 || info.delivered.stream_sequence >= marks.highest();
        let now = leader(info.cluster.as_ref());
        if now != first && now.is_some() {
            return format!("the consumer has a new leader, {}", now.unwrap_or_default());
        }
        let held = tenure.held();
        let delivered = info.delivered.consumer_sequence;
        let waits = info.num_pending > 0 && tenure.room.left() > 0 && shared.memory.left() > 0;
        let stands = waits && before.is_some_and(|(former, _)| former == delivered);
        // Relaxed: a number.
        let come = last.load(Relaxed);
        // If it is the last one for now, no other shows that it is missing.
        let is_late = come < delivered && before == Some((delivered, come));
        looks = if is_late { looks + 1 } else { 0 };
        if looks == LATE {
            return format!(
                "the messages from {} to {delivered} have not come",
                come + 1
            );
        }
        before = Some((delivered, come));
        let reason = match info.pause_remaining.filter(|_| info.paused && waits) {
            Some(left) => Some(format!("the consumer is paused for {left:.0?} more")),
            None => stands.then(|| format!("none of {} messages comes", info.num_pending)),
        };
        shared.stalled_here(tenure, reason);
        if info.num_ack_pending > 0 && held == 0 {
            if lost == Some(delivered) {
                return format!("{} messages were delivered to nobody", info.num_ack_pending);
            }
            lost = Some(delivered);
        } else {
            lost = None;
        }
    }
}

/// What has come of one consumer.
struct Received<'a> {
    /// The number of the last message by the consumer's count.
    last: &'a AtomicU64,
    /// With which the client reads the numbers of a message. To clone it for each takes as long as much of the rest.
    context: Option<jetstream::Context>,
}

/// Puts a message into the queue. An error: one is missing.
fn put(
    shared: &Arc<Shared>,
    tenure: &Arc<Tenure>,
    taken: &Taken,
    message: async_nats::Message,
    received: &mut Received<'_>,
) -> Result<(), String> {
    let context = received.context.take();
    let message = jetstream::Message {
        message,
        context: context.unwrap_or_else(|| shared.context.clone()),
    };
    let info = message.info();
    let info =
        info.map_err(|error| format!("{} is no message of a stream: {error}", message.subject))?;
    // Relaxed: a number.
    let expected = received.last.load(Relaxed) + 1;
    if info.consumer_sequence != expected {
        return Err(format!(
            "the messages from {expected} to {} are missing",
            info.consumer_sequence
        ));
    }
    received.last.store(expected, Relaxed);
    let (sequence, delivered) = (info.stream_sequence, info.delivered);
    let stored = info.published.unix_timestamp_nanos();
    let jetstream::Message { message, context } = message;
    received.context = Some(context);
    let reply = message.reply.expect("it has the numbers");
    shared.series.received.increment(1);
    if delivered > 1 {
        shared.series.redelivered.increment(1);
    }
    let token = message.subject.rsplit('.').next().unwrap_or_default();
    let decoded = key::decode(token);
    let partition = shared.config.partition_of(token);
    let subject = message.subject.clone();
    let message = Message {
        held: Held::new(&tenure.room, &shared.memory, message.length, &tenure.alive),
        // The client's is a part of a larger buffer, which it would keep in memory.
        payload: Bytes::copy_from_slice(&message.payload),
        headers: message.headers.map(Arc::new),
        sequence,
        reply,
        stored,
        made: taken.made,
    };
    // It was not published by a `Producer`, and it would come again and again.
    let reason = match decoded {
        Some(key) if partition == tenure.fence.partition => {
            // It would be known for too short a time, if its key waits for long.
            if shared.marks(tenure.fence).covers(&key, &message) {
                shared.acks.send(tenure, message.reply);
                return Ok(());
            }
            let is_first = || shared.queue.state(&*key).is_none();
            let is_suspect = sequence <= taken.suspects;
            if !is_suspect {
                tenure.attempts.acquit(token, is_first);
            } else if is_first() {
                tenure.attempts.expect(token);
            }
            let mut load = Load::new(tenure, message, is_suspect);
            let mut level = HEALTHY;
            if tenure.attempts.is_failing(token) {
                load.park();
                level = FAILING;
            }
            shared.queue.entry_ref(&*key).level(level).put(load);
            return Ok(());
        }
        Some(_) => format!("its key belongs to partition {partition}"),
        None => "it has no key".to_owned(),
    };
    refuse(shared, tenure, subject.to_string(), message, reason);
    Ok(())
}

/// Deletes the consumer of a tenure that has ended, so that its successor finds none. An error does no harm:
/// the successor deletes it.
pub(super) async fn delete_consumer(shared: &Shared, tenure: &Tenure) {
    let name = tenure.end_consumer();
    let delete = shared.stream(tenure.fence).delete_consumer(&name);
    let delete = within(tenure, "deleting the consumer", delete);
    let deleted = async { delete.await?.map_err(async_nats::Error::from) };
    if let Err(error) = deleted.await {
        tracing::debug!(fence = %tenure.fence, %error, "the consumer is left to the next owner");
    }
}
