//! How often each key of a partition has failed, and the partition's highest epoch: kept where it outlives the process, and not in the
//! bucket of owners, whose revisions it would raise.
//!
//! An owner notes its epoch as the record `<partitions>.e.<partition>` before it receives. If it finds a higher one, the bucket of owners is
//! not the former one, and the owner needs a higher epoch (N14). `repartition` notes the highest one for each new partition.
//!
//! A failure is written to the bucket as the record `<partitions>.a.<partition>.<key>`, and a success removes it. A key that has never
//! failed has no record, so it costs nothing. Each owner asks for the names of its partition's records before it receives: the server has
//! them in memory, and sends them in one reply. So it knows which keys have failed, and that the others have not. The count of one that has
//! is read when it is delivered, behind the healthy keys. If the names do not come within a second, messages do; then the records of each
//! key that is delivered are looked for until the owner has the names.
//!
//! A key that kills its process writes nothing. So an owner whose predecessor has not handed over writes down *before* a delivery of what
//! was in the stream at the take-over that it may have the key in hand, until the delivery has ended in whatever way. The record
//! `<partitions>.h.<partition>.<epoch>` names the keys that are in hand and some that come next, so that one write does for up to [`MANY`]
//! keys ([`Ahead`]). If this owner dies, the next one takes it that the process has ended once with each key that is named, and
//! counts each delivery of them, as `<partitions>.d.<partition>.<key>`: how often the process has ended while the key was in
//! hand. That may be due to another key, or to none. So keys that were in hand once are delivered a few at a time, and those that were so
//! more often one at a time ([`take`]): the next death is that key's, or that of none. Only if it has come about [`DEATHS`] times
//! the key is given up (N15).

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use futures_util::TryStreamExt;
use futures_util::future::join_all;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::bucket::last;
use super::receive::PAUSE;
use super::tenure::Tenure;
use crate::stream::MOST;
use crate::{Config, Fence, key};

/// How long a count is kept that nobody changes, beside the longest back-off and what the handler has asked for.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Of what the handler has asked for. The server counts nanoseconds.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A key is given up only after its process has ended more often than this: all but two of these times it was alone.
const DEATHS: u32 = 5;
/// How many keys are in hand at once that were so when a process ended.
pub(crate) const FEW: u32 = 8;
/// How many keys are named at most that come next.
const MANY: usize = 256;
/// How many counts are written again together. Few: each of many partitions that are handed over writes that many.
const TOGETHER: usize = 4;
/// If the names are used up sooner, the next record has twice as many, otherwise one: those that are not in hand when the process ends are
/// delivered a few at a time for nothing.
const QUICK: Duration = Duration::from_millis(250);

/// What is counted: the letters of the records.
pub(crate) type Kind = usize;
pub(crate) const FAILED: Kind = 0;
pub(crate) const DIED: Kind = 1;
const LETTERS: [&str; 2] = ["a", "d"];
/// That of the record of what may be in hand.
const IN_HAND: &str = "h";

/// Of one tenure.
#[derive(Default)]
pub(crate) struct Attempts {
    counts: Mutex<Counts>,
    /// Held while its record is written.
    ahead: tokio::sync::Mutex<Ahead>,
}

/// What the process may have in hand of what was in the stream at the take-over.
#[derive(Default)]
struct Ahead {
    /// The record has these, and some whose deliveries have ended since.
    named: HashSet<String>,
    /// How many keys the last record had that come next.
    many: usize,
    written: Option<Instant>,
}

#[derive(Default)]
struct Counts {
    of: HashMap<String, [u32; 2]>,
    /// Which records there are, of keys whose counts are not known. `None`: that is not known yet, and `of` also has keys that were found to
    /// have none.
    recorded: Option<HashMap<String, [bool; 2]>>,
    /// A former owner may have had them in hand when it died. Moved to `of` when they are looked at.
    accused: HashSet<String>,
    /// What was in the stream at the take-over, in the order in which it has come: not begun and not named yet.
    next: VecDeque<String>,
    /// Those whose last write has failed, and how long the keys wait.
    unwritten: BTreeMap<(String, Kind), Duration>,
}

impl Attempts {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, token: &str) -> Option<[u32; 2]> {
        let mut counts = self.counts();
        let mut known = match counts.of.get(token) {
            Some(known) => *known,
            None if counts.recorded(token)? == [false; 2] => [0, 0],
            None => return None,
        };
        if counts.accused.remove(token) {
            known[DIED] = known[DIED].max(1);
            counts.of.insert(token.to_owned(), known);
        }
        Some(known)
    }

    /// Whether the key has failed since it last succeeded, as far as is known.
    pub(crate) fn is_failing(&self, token: &str) -> bool {
        let counts = self.counts();
        match counts.of.get(token) {
            Some(of) => of[FAILED] > 0,
            None => counts.recorded(token).is_some_and(|is| is[FAILED]),
        }
    }

    /// How often the key, encoded as a token, has failed since it last succeeded, and how often the process has ended with it.
    pub(crate) async fn of(
        &self,
        shared: &Shared,
        fence: Fence,
        token: &str,
    ) -> Result<[u32; 2], async_nats::Error> {
        if let Some(known) = self.known(token) {
            return Ok(known);
        }
        // Only this task looks for the key's records: each key is delivered to one at a time.
        let recorded = self.counts().recorded(token).unwrap_or([true; 2]);
        let [failed, died] = [FAILED, DIED].map(async |kind| {
            if !recorded[kind] {
                return Ok(0);
            }
            let subject = format!("{}{token}", prefix(shared, fence, LETTERS[kind]));
            let record = last(&shared.counts.stream, &subject).await?;
            Ok::<_, async_nats::Error>(record.map_or(0, |record| count(&record.payload)))
        });
        let (failed, died) = tokio::try_join!(failed, died)?;
        let found = [failed, died];
        {
            let mut counts = self.counts();
            if let Some(recorded) = &mut counts.recorded {
                recorded.remove(token);
            }
            counts.of.insert(token.to_owned(), found);
        }
        Ok(self.known(token).unwrap_or(found))
    }

    /// Takes it that the process has ended with what the former owner with this fence may have had in hand. Returns whether that is
    /// anything.
    pub(crate) async fn accuse(
        &self,
        shared: &Shared,
        former: Fence,
    ) -> Result<bool, async_nats::Error> {
        let subject = format!("{}{}", prefix(shared, former, IN_HAND), former.epoch);
        let Some(record) = last(&shared.counts.stream, &subject).await? else {
            return Ok(false);
        };
        let mut names = names(std::str::from_utf8(&record.payload)?).peekable();
        let is_any = names.peek().is_some();
        self.counts().accused.extend(names.map(str::to_owned));
        Ok(is_any)
    }

    /// A message has come that was added after the take-over. If the queue has no other of the key, the former owner had handled what it had
    /// in hand of it.
    pub(crate) fn acquit(&self, token: &str, is_first: impl FnOnce() -> bool) {
        let accused = &mut self.counts().accused;
        if accused.contains(token) && is_first() {
            accused.remove(token);
        }
    }

    /// A key has come that a former owner had received, or that was added before the take-over.
    pub(crate) fn expect(&self, token: &str) {
        self.counts().next.push_back(token.to_owned());
    }

    /// Writes down, before it begins, a delivery that may end the process, as it has this often.
    pub(crate) async fn begin(&self, shared: &Shared, fence: Fence, token: &str, deaths: u32) {
        if deaths > 0 {
            let count = self.count(shared, fence, token, DIED, Duration::ZERO);
            return count.await;
        }
        let mut ahead = self.ahead.lock().await;
        if !ahead.named.insert(token.to_owned()) {
            return;
        }
        let before = ahead.written.replace(Instant::now());
        ahead.many = match before.is_some_and(|at| at.elapsed() < QUICK) {
            true => MANY.min(2 * ahead.many),
            false => 1,
        };
        let most = (ahead.named.len() + ahead.many).min(2 * MANY);
        {
            let mut counts = self.counts();
            let next = &mut counts.next;
            if let Some(own) = next.iter().take(MANY).position(|next| next == token) {
                next.remove(own);
            }
            while ahead.named.len() < most
                && let Some(token) = counts.next.pop_front()
            {
                // A key that has failed comes behind the others, and one with deaths has a count of its own.
                let is_clear = match counts.of.get(&token) {
                    Some(of) => *of == [0, 0],
                    None => counts.recorded(&token).is_none_or(|is| is == [false; 2]),
                };
                if is_clear && !counts.accused.contains(&token) {
                    ahead.named.insert(token);
                }
            }
        }
        self.write_ahead(shared, fence, &ahead).await;
    }

    /// Such a delivery does not begin, because the partition is handed over: what is known of the key is handed on.
    pub(crate) async fn withdraw(&self, shared: &Shared, fence: Fence, token: &str, deaths: u32) {
        if deaths == 0 {
            return self.end(shared, fence, token).await;
        }
        if let Some(of) = self.counts().of.get_mut(token) {
            of[DIED] = deaths;
        }
    }

    /// Such a delivery has ended.
    pub(crate) async fn end(&self, shared: &Shared, fence: Fence, token: &str) {
        let mut ahead = self.ahead.lock().await;
        let was_named = ahead.named.remove(token);
        if was_named && ahead.named.is_empty() && self.counts().next.is_empty() {
            self.write_ahead(shared, fence, &ahead).await;
        }
        drop(ahead);
        self.forget(shared, fence, token, DIED).await;
    }

    async fn write_ahead(&self, shared: &Shared, fence: Fence, ahead: &Ahead) {
        let names: Vec<&str> = ahead.named.iter().map(String::as_str).collect();
        let (epoch, names) = (fence.epoch.to_string(), names.join(" "));
        write(shared, fence, IN_HAND, &epoch, names, Duration::ZERO).await;
    }

    /// Counts a failure, after which the key waits, or a delivery that may end the process.
    pub(crate) async fn count(
        &self,
        shared: &Shared,
        fence: Fence,
        token: &str,
        kind: Kind,
        wait: Duration,
    ) {
        let count = {
            let mut counts = self.counts();
            let count = &mut counts.of.entry(token.to_owned()).or_default()[kind];
            *count = count.saturating_add(1);
            *count
        };
        self.store(shared, fence, token, kind, count, wait).await;
    }

    /// Forgets the failures of a key, or the deaths.
    pub(crate) async fn forget(&self, shared: &Shared, fence: Fence, token: &str, kind: Kind) {
        let counted = {
            let mut counts = self.counts();
            let Some(of) = counts.of.get_mut(token) else {
                return;
            };
            let counted = std::mem::take(&mut of[kind]);
            if *of == [0, 0] && counts.recorded.is_some() {
                counts.of.remove(token);
            }
            counted
        };
        if counted > 0 {
            self.store(shared, fence, token, kind, 0, Duration::ZERO)
                .await;
        }
    }

    /// Writes a count, unless another replica may own the partition. Returns whether it is stored.
    async fn store(
        &self,
        shared: &Shared,
        fence: Fence,
        token: &str,
        kind: Kind,
        count: u32,
        wait: Duration,
    ) -> bool {
        let text = count.to_string();
        let is_stored =
            shared.lease.holds() && write(shared, fence, LETTERS[kind], token, text, wait).await;
        let which = (token.to_owned(), kind);
        let counts = &mut *self.counts();
        let is_so = counts.of.get(token).map_or(0, |of| of[kind]) == count;
        match is_stored && is_so {
            true => counts.unwritten.remove(&which),
            false => counts.unwritten.insert(which, wait),
        };
        is_stored
    }

    /// Writes again what has failed to be stored, with the counts as they are now. Stops when a write fails again, when another replica may own
    /// the partition, and after [`MOST`]. Returns how many are left.
    pub(crate) async fn write_again(&self, shared: &Shared, tenure: &Tenure) -> usize {
        let writes = async {
            while !tenure.is_lost() && shared.lease.holds() {
                let some: Vec<_> = {
                    let counts = self.counts();
                    let some = counts.unwritten.iter().take(TOGETHER);
                    let count =
                        |token: &String, kind: Kind| counts.of.get(token).map_or(0, |of| of[kind]);
                    some.map(|((token, kind), wait)| {
                        (token.clone(), *kind, count(token, *kind), *wait)
                    })
                    .collect()
                };
                let stores = some.iter().map(|(token, kind, count, wait)| {
                    self.store(shared, tenure.fence, token, *kind, *count, *wait)
                });
                if some.is_empty() || join_all(stores).await.contains(&false) {
                    return;
                }
            }
        };
        // What is left is written at the next look.
        let _ = timeout(MOST, writes).await;
        self.counts().unwritten.len()
    }

    /// Has [`write_again`](Self::write_again) write, before a hand-over is over, also what the next owner has to know: which keys were in hand
    /// when a process ended and were not delivered since. Returns how many are to be written.
    pub(crate) fn hand_on(&self, shared: &Shared) -> usize {
        let is_held =
            |token: &str| key::decode(token).is_some_and(|key| shared.queue.state(&*key).is_some());
        let counts = &mut *self.counts();
        for token in std::mem::take(&mut counts.accused) {
            // A record counts at least as much. The former owner had handled a key that is not held.
            let is_recorded = counts.recorded(&token).is_none_or(|is| is[DIED]);
            if !is_recorded && is_held(&token) {
                counts.of.entry(token).or_default()[DIED] = 1;
            }
        }
        let of = counts.of.iter().filter(|(_, of)| of[DIED] > 0);
        let died = of.map(|(token, _)| ((token.clone(), DIED), Duration::ZERO));
        counts.unwritten.extend(died);
        counts.unwritten.len()
    }

    /// Reads the names of the partition's records, and tries until it has them.
    pub(crate) async fn read(&self, shared: &Shared, fence: Fence) {
        while let Err(error) = self.try_read(shared, fence).await {
            tracing::debug!(%fence, %error, "it cannot be read yet which keys have failed");
            sleep(PAUSE).await;
        }
    }

    async fn try_read(&self, shared: &Shared, fence: Fence) -> Result<(), async_nats::Error> {
        let (store, partitions) = (&shared.counts, shared.config.partitions);
        let all = format!("{}{partitions}.*.{}.>", store.prefix, fence.partition);
        let mut names = store.stream.info_with_subjects(all).await?;
        let prefixes = LETTERS.map(|letter| prefix(shared, fence, letter));
        let mut recorded = HashMap::<String, [bool; 2]>::new();
        while let Some((name, _)) = names.try_next().await? {
            for (kind, prefix) in prefixes.iter().enumerate() {
                if let Some(token) = name.strip_prefix(&**prefix) {
                    recorded.entry(token.to_owned()).or_default()[kind] = true;
                }
            }
        }
        let mut counts = self.counts();
        // Of a key that was delivered by now this replica knows the counts.
        recorded.retain(|token, _| !counts.of.contains_key(token));
        counts.of.retain(|_, of| *of != [0, 0]);
        counts.recorded = Some(recorded);
        Ok(())
    }
}

impl Counts {
    /// Which records the key has, if its counts are not known. `None`: that is not known yet.
    fn recorded(&self, token: &str) -> Option<[bool; 2]> {
        let recorded = self.recorded.as_ref()?;
        Some(recorded.get(token).copied().unwrap_or_default())
    }
}

/// Takes a key in hand with which the process has ended this often. An error: other such keys are to end first.
pub(crate) fn take(
    suspects: &Semaphore,
    deaths: u32,
) -> Result<SemaphorePermit<'_>, TryAcquireError> {
    let permits = if deaths > 1 { FEW } else { deaths };
    suspects.try_acquire_many(permits)
}

/// Whether a key is given up with which the process has ended this often.
pub(crate) fn is_guilty(deaths: u32, config: &Config) -> bool {
    let most = config.max_retries;
    most.is_some_and(|most| deaths > most.max(DEATHS))
}

/// There was a higher epoch of the partition, or there may have been.
#[derive(Debug, thiserror::Error)]
#[error("this replica needs a higher epoch than {0}")]
pub(super) struct Higher(pub(super) u64);

/// Notes the epoch of a partition, which has to be the highest one.
pub(super) async fn note(shared: &Shared, fence: Fence) -> Result<(), async_nats::Error> {
    let Fence { partition, epoch } = fence;
    let (counts, key) = (&shared.counts, epoch_of(&shared.config, partition));
    let subject = format!("{}{key}", counts.prefix);
    let (highest, revision) = match last(&counts.stream, &subject).await? {
        Some(record) => {
            let text = std::str::from_utf8(&record.payload)?;
            // It is empty if somebody has deleted the record.
            let highest = if text.is_empty() { 0 } else { text.parse()? };
            (highest, record.sequence)
        }
        None => (0, 0),
    };
    if highest > epoch {
        return Err(Higher(highest).into());
    }
    let text = epoch.to_string();
    counts.update(key, text.into(), revision).await?;
    Ok(())
}

/// The keys that a record of what may be in hand names.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|name| !name.is_empty())
}

/// The count that a record has. One that the server has left for a record that was removed has none.
pub(crate) fn count(payload: &[u8]) -> u32 {
    let text = std::str::from_utf8(payload).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The key of the record with the highest epoch of a partition.
pub(crate) fn epoch_of(config: &Config, partition: u16) -> String {
    format!("{}.e.{partition}", config.partitions)
}

/// What the subjects of the records of a partition begin with that have this letter.
fn prefix(shared: &Shared, fence: Fence, letter: &str) -> String {
    let (bucket, partitions) = (&shared.counts.prefix, shared.config.partitions);
    format!("{bucket}{partitions}.{letter}.{}.", fence.partition)
}

/// Writes a record, which is kept for longer than this. Returns whether it is stored.
async fn write(
    shared: &Shared,
    fence: Fence,
    letter: &str,
    token: &str,
    text: String,
    wait: Duration,
) -> bool {
    let subject = format!("{}{token}", prefix(shared, fence, letter));
    let kept = match &*text {
        "" | "0" => Duration::from_secs(1),
        _ => KEPT + 2 * shared.config.max_backoff + wait.min(LONGEST),
    };
    let record = PublishMessage::build().payload(text.into()).ttl(kept);
    let write = async { shared.context.send_publish(subject, record).await?.await };
    // If it fails, the count is this process's until it is written again.
    match timeout(MOST, write).await {
        Ok(Ok(_)) => return true,
        Ok(Err(error)) => tracing::warn!(letter, token, %error, "a count is not stored"),
        Err(_) => tracing::warn!(letter, token, "a count may not be stored"),
    }
    false
}

#[cfg(test)]
mod tests {
    use super::names;

    /// An encoded key has no ASCII space, but it may have others.
    #[test]
    fn the_names_of_a_record_are_those_that_were_written() {
        let keys = ["全角\u{3000}key", "b\u{a0}b", "c"];
        assert_eq!(names(&keys.join(" ")).collect::<Vec<_>>(), keys);
    }
}
