//! Changes the number of partitions: [`repartition`].
//!
//! The new number has streams and records of its own, so nothing is moved: what is in the old streams is handled before anything in
//! the new ones. The record `layout` of the bucket says how far it is; each step can be repeated.
//!
//! ```text
//!     layout "16"        replicas with 16 partitions may join
//!     layout "16 64"     the streams of 64 are made; those of 16 take nothing more, and are drained
//!     layout "64"        replicas with 64 partitions may join; the streams of 16 are deleted
//! ```

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use futures_util::TryStreamExt;
use tokio::time::sleep;

use crate::fleet::attempts::epoch_of;
use crate::fleet::bucket::{last, replace};
use crate::layout::Layout;
use crate::stream;
use crate::{Config, Error};

/// Between two looks at the streams that are drained.
const LOOK: Duration = Duration::from_millis(200);
/// For how long nothing new is in any of them when they count as drained: a server may have taken messages before it was told to close a stream,
/// and store them after that.
const QUIET: Duration = Duration::from_secs(1);

/// Changes the number of partitions of a fleet to that of `config`, without losing a message or the order of a key's messages.
///
/// 1. It makes the new streams. The old ones take no new messages from then on: an add of a producer with the old number fails, and says
///    that no stream takes it; one with the new number is stored.
/// 2. It waits until the replicas, which have the old number, have handled what is in the old streams, delayed messages included.
///    [`Fleet::join`](crate::Fleet::join) with the new number is [`Error::Mismatch`] until then. A key that always fails without
///    [`Config::max_retries`], or that always asks for a later delivery, keeps it waiting forever.
/// 3. It deletes the old streams. Replicas with the old number receive nothing more, and are to be ended; those with the new number may join. One that
///    is not ended goes on after a change back, when that has ended.
///
/// So: call this, then start producers with the new configuration and end the old ones; when it returns, start the replicas anew. If the fleet has
/// this number already, it returns at once.
///
/// # Errors
///
/// [`Error::Config`] if the configuration is out of range, [`Error::Mismatch`] if another change is under way or what is there
/// contradicts the configuration otherwise, [`Error::Server`] if the server cannot be reached or there is no such fleet; also, when the change is
/// done, if a stream of another number has messages, which a server has stored later than a second after the stream was closed. It names the stream,
/// which a change back to its number opens again.
///
/// # Cancel safety
///
/// The future may be dropped, or the process killed, at any time: call it again with the same configuration, and it goes on.
///
/// ```no_run
/// # async fn change(client: async_nats::Client) -> Result<(), keyqueue_nats::Error> {
/// use keyqueue_nats::{Config, repartition};
///
/// let config = Config { partitions: 64, ..Config::default() };
/// repartition(&client, &config).await
/// # }
/// ```
pub async fn repartition(client: &Client, config: &Config) -> Result<(), Error> {
    config.check()?;
    let context = jetstream::new(client.clone());
    let [store, counts] = stream::buckets(&context, config).await?;
    let layout = Layout::read(&store, config).await?;
    if layout.next.unwrap_or(config.partitions) != config.partitions {
        return Err(config.other_partitions(layout.to_string()));
    }
    let old = Config {
        partitions: layout.now,
        ..config.clone()
    };
    if old.partitions != config.partitions {
        stream::find_streams(&context, &old, true).await?;
        if layout.next.is_none() {
            // A change that has begun cannot be taken back.
            stream::check_names(&context, config).await?;
            // What a change to this number has left: the new streams may have the same names.
            let _left = delete_others(&context, &old).await?;
            let next = Some(config.partitions);
            Layout { next, ..layout }.write(&store).await?;
            // It may have been another process's.
            return Box::pin(repartition(client, config)).await;
        }
        change(&context, [&store, &counts], &layout, [&old, config]).await?;
        // It may have been another process's, and the number may have been changed once more.
        let found = Layout::read(&store, config).await?;
        if found.check(config)? {
            return Err(config.other_partitions(found.to_string()));
        }
    }
    match delete_others(&context, config).await?.pop() {
        None => Ok(()),
        Some(left) => {
            let doing = format!("deleting the stream {left}");
            Err(Error::server(doing)("it has messages that nobody handles"))
        }
    }
}

/// Makes the new streams, drains the old ones, and ends the change, unless another process has ended it meanwhile.
async fn change(
    context: &Context,
    [store, counts]: [&Store; 2],
    layout: &Layout,
    [old, new]: [&Config; 2],
) -> Result<(), Error> {
    let mut made = stream::create_streams(context, new, true).await?;
    let opened = async {
        for partition in 0..new.partitions {
            if !layout.is_current(store, new).await? {
                break;
            }
            // A former change may have left it closed.
            if !made.contains(&partition) && lets_take(context, new, partition, true).await? {
                made.push(partition);
            }
        }
        Ok(())
    };
    let opened: Result<(), Error> = opened.await;
    // Also those that were opened before an error.
    close_late(context, store, new, made).await?;
    opened?;
    for partition in 0..old.partitions {
        // The number may have been changed back: then these take the messages.
        if !layout.is_current(store, new).await? {
            return Ok(());
        }
        lets_take(context, old, partition, false).await?;
    }
    let mut before = None;
    loop {
        let mut last = Vec::new();
        for partition in 0..old.partitions {
            let name = old.stream_of(partition);
            last.push(loop {
                let [messages, sequence] = state_of(context, &name).await?;
                if messages == 0 {
                    break sequence;
                }
                sleep(LOOK).await;
                if !layout.is_current(store, new).await? {
                    return Ok(());
                }
            });
        }
        if before.as_ref() == Some(&last) {
            break;
        }
        before = Some(last);
        sleep(QUIET).await;
        if !layout.is_current(store, new).await? {
            return Ok(());
        }
    }
    note_epochs(counts, [old, new]).await?;
    let done = Layout {
        now: new.partitions,
        next: None,
        ..*layout
    };
    done.write(store).await
}

/// Closes those of the streams that this process has made which take messages that nobody would handle, because the number was changed
/// meanwhile.
pub(crate) async fn close_late(
    context: &Context,
    store: &Store,
    config: &Config,
    made: Vec<u16>,
) -> Result<(), Error> {
    for partition in made {
        // Before each: the number may be changed back.
        if !Layout::read(store, config).await?.takes(config) {
            lets_take(context, config, partition, false).await?;
        }
    }
    Ok(())
}

/// Lets a stream take new messages, or no more. Returns whether it was otherwise before.
async fn lets_take(
    context: &Context,
    config: &Config,
    partition: u16,
    open: bool,
) -> Result<bool, Error> {
    let wanted = config.stream_config(partition, open);
    let Some(stream) = stream::find(context, &wanted.name).await? else {
        // Another process has ended the change.
        return Ok(false);
    };
    let mut config = stream.cached_info().config.clone();
    if config.subjects == wanted.subjects {
        return Ok(false);
    }
    if open {
        delete_consumers(&stream).await?;
    }
    config.subjects = wanted.subjects;
    let updated = context.update_stream(config).await;
    let doing = format!("opening or closing the stream {}", wanted.name);
    updated.map(|_| true).map_err(Error::server(doing))
}

/// Deletes the consumers of a stream that a former change has left. By them replicas that were not ended would receive what is in the stream before
/// the other number's streams are drained.
async fn delete_consumers(stream: &Stream) -> Result<(), Error> {
    let doing = format!(
        "deleting the consumers of the stream {}",
        stream.cached_info().config.name
    );
    let is_gone = |kind| matches!(kind, ConsumerErrorKind::JetStream(error) if error.error_code() == ErrorCode::CONSUMER_NOT_FOUND);
    let names = stream.consumer_names().try_collect::<Vec<String>>().await;
    for name in names.map_err(Error::server(doing.clone()))? {
        if let Err(error) = stream.delete_consumer(&name).await
            && !is_gone(error.kind())
        {
            return Err(Error::server(doing)(error));
        }
    }
    Ok(())
}

/// How many messages a stream has, and the sequence of the last one that it has had.
async fn state_of(context: &Context, name: &str) -> Result<[u64; 2], Error> {
    let stream = stream::find(context, name).await?;
    Ok(stream.map_or([0; 2], |there| {
        let state = &there.cached_info().state;
        [state.messages, state.last_sequence]
    }))
}

/// Notes the highest epoch that any partition has had as that of each new partition: a key goes from one to another, and its fences
/// only grow, also if the bucket of owners was made again with lower revisions (N14). Reads the notes again until they are so high: a replica
/// that was not ended may write one late.
async fn note_epochs(counts: &Store, [old, new]: [&Config; 2]) -> Result<(), Error> {
    let doing = || format!("noting epochs in the bucket {}", counts.name);
    loop {
        let mut notes = Vec::new();
        for config in [old, new] {
            for partition in 0..config.partitions {
                let key = epoch_of(config, partition);
                // A follower may lack it.
                let record = last(&counts.stream, &format!("{}{key}", counts.prefix)).await;
                let record = record.map_err(Error::server(doing()))?;
                let epoch = |record: &StreamMessage| -> Option<u64> {
                    std::str::from_utf8(&record.payload).ok()?.parse().ok()
                };
                let epoch = record.as_ref().and_then(epoch).unwrap_or(0);
                notes.push((epoch, key, record.map_or(0, |record| record.sequence)));
            }
        }
        let highest = notes.iter().map(|(epoch, ..)| *epoch).max().unwrap_or(0);
        let mut lower = notes.split_off(usize::from(old.partitions));
        lower.retain(|(epoch, ..)| *epoch < highest);
        if lower.is_empty() {
            return Ok(());
        }
        for (_, key, revision) in lower {
            let write = replace(counts, &key, highest.to_string(), revision);
            write.await.map_err(Error::server(doing()))?;
        }
    }
}

/// Deletes the streams of other numbers of partitions. They were drained before the layout was written. One that takes messages is of a change that
/// has begun meanwhile. Returns those that are closed and have messages.
async fn delete_others(context: &Context, config: &Config) -> Result<Vec<String>, Error> {
    let mut left = Vec::new();
    for (other, partition) in stream::others(context, config).await? {
        let Some(there) = stream::find_partition(context, &other, partition).await? else {
            continue;
        };
        let info = there.cached_info();
        if info.config.subjects.len() > 1 {
            continue;
        }
        let name = other.stream_of(partition);
        if info.state.messages > 0 {
            left.push(name);
        } else {
            let deleted = context.delete_stream(&name).await;
            deleted.map_err(Error::server(format!("deleting the stream {name}")))?;
        }
    }
    Ok(left)
}
