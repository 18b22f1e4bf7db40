//! Delayed messages: the schedule of one, and the former one of its key.
//!
//! The server keeps the last message of a subject `at.<key>`. When it is due, the server
//!
//! 1. collects it, with all others that are due;
//! 2. stores one after the other as a message of its key, and removes whatever is at its `at.<key>` then.
//!
//! A message that is stored there between the two would be confirmed, and removed with the former one (nats-server 2.15.2). So a
//! producer publishes it with the sequence that it expects there (N6): 0, which costs no request more, or after a look that of a former
//! one that is due late enough.

use std::time::{Duration, SystemTime};

use async_nats::header::{
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_ID, NATS_SCHEDULE, NATS_SCHEDULE_TARGET,
};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Client, HeaderMap};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::fleet::bucket::last;

/// A former message that is due earlier is not replaced: it is added first.
const NEAR: Duration = Duration::from_secs(2);
/// One that is due for this long has not ended: the server could not add it, or the clocks differ. It is replaced, and the call says that
/// the message may be stored or not: the server may be adding the former one by now.
const OVERDUE: Duration = Duration::from_secs(10);
/// The server may collect a message this long before it is due by this process's clock.
const CLOCKS: Duration = Duration::from_secs(1);

/// The headers of a message with this delay, for a key without one. `None`: it ends after the year 9999.
pub(crate) fn headers(delay: Duration, target: String) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    let due = due(SystemTime::now(), delay)?;
    headers.insert(NATS_SCHEDULE, format!("@at {due}"));
    headers.insert(NATS_SCHEDULE_TARGET, target);
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, "0");
    Some(headers)
}

/// Whether the server has refused a delayed message because there is another one, or one is being stored.
pub(crate) fn is_former(error: &jetstream::Error) -> bool {
    matches!(
        error.error_code(),
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
    )
}

/// The delayed message at a subject, from the leader of the stream.
pub(crate) async fn find(
    client: &Client,
    stream: &str,
    subject: &str,
) -> Result<Option<StreamMessage>, async_nats::Error> {
    let context = jetstream::new(client.clone());
    last(&context.get_stream_no_info(stream).await?, subject).await
}

/// What one call of `add_after` knows of the messages at its subject.
#[derive(Default)]
pub(crate) struct Turn {
    /// The sequence of the first one that it has seen; 0: there was none.
    first: Option<u64>,
    /// When the message is due that the call's own may have replaced.
    replaces: Option<SystemTime>,
}

/// What to do after a look.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing: the message with this sequence is the call's own, or it was stored during this call, so it counts as a later one, which has
    /// replaced it.
    Replaced(u64),
    /// Publish it now.
    Publish,
    /// Publish it after a pause: when the one that is there is gone, or another that is being stored.
    Wait,
}

impl Turn {
    /// Returns what to do if this message was found, and sets the sequence that is expected. `open`: the call's own may be stored.
    pub(crate) fn next(
        &mut self,
        found: Option<StreamMessage>,
        open: bool,
        headers: &mut HeaderMap,
    ) -> Next {
        let sequence = found.as_ref().map_or(0, |found| found.sequence);
        let first = *self.first.get_or_insert(sequence);
        let id = |headers: &HeaderMap| headers.get(NATS_MESSAGE_ID).cloned();
        let own = id(headers);
        let is_own = |found: &StreamMessage| own.is_some() && id(&found.headers) == own;
        if sequence > first || found.as_ref().is_some_and(is_own) {
            return Next::Replaced(sequence);
        }
        let due = found.and_then(|found| due_of(&found.headers));
        let is_overdue = |due: &SystemTime| due.elapsed().is_ok_and(|since| since > OVERDUE);
        let replaced = due.filter(|due| left(*due) > NEAR || is_overdue(due));
        if !open || self.replaces.is_none() {
            self.replaces = replaced;
        }
        let expected = replaced.map_or(0, |_| sequence).to_string();
        let last = headers.get(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE);
        let is_new = last.is_none_or(|last| last.as_str() != expected);
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected);
        match replaced.is_some() && is_new {
            true => Next::Publish,
            false => Next::Wait,
        }
    }

    /// Whether a message that the server has stored may have come after the former one was collected.
    pub(crate) fn is_late(&self) -> bool {
        self.replaces.is_some_and(|due| left(due) <= CLOCKS)
    }
}

/// How long it is until then.
fn left(due: SystemTime) -> Duration {
    due.duration_since(SystemTime::now()).unwrap_or_default()
}

/// The time of a schedule: never earlier than the delay.
fn due(now: SystemTime, delay: Duration) -> Option<String> {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let due = since.checked_add(delay)?;
    let seconds = due
        .as_secs()
        .checked_add(u64::from(due.subsec_nanos() > 0))?;
    let due = OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()?;
    due.format(&Rfc3339).ok()
}

/// When a message is due.
fn due_of(headers: &HeaderMap) -> Option<SystemTime> {
    let schedule = headers.get(NATS_SCHEDULE)?.as_str();
    let due = OffsetDateTime::parse(schedule.strip_prefix("@at ")?, &Rfc3339).ok()?;
    Some(due.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_never_early_and_at_most_a_second_late() {
        let at = |nanos| SystemTime::UNIX_EPOCH + Duration::new(1_767_225_600, nanos);
        let delay = Duration::from_millis(1500);
        assert_eq!(due(at(0), delay).unwrap(), "2026-01-01T00:00:02Z");
        assert_eq!(due(at(500_000_000), delay).unwrap(), "2026-01-01T00:00:02Z");
        assert_eq!(due(at(500_000_001), delay).unwrap(), "2026-01-01T00:00:03Z");
        assert_eq!(due(at(0), Duration::MAX), None);
        let last = Duration::MAX.saturating_sub(Duration::from_secs(1_767_225_600));
        assert_eq!(due(at(0), last), None);
        assert_eq!(
            due(at(0), Duration::from_secs(8000 * 365 * 24 * 3600)),
            None
        );
    }

    fn found(sequence: u64, delay: Duration) -> Option<StreamMessage> {
        Some(StreamMessage {
            subject: "at.key".into(),
            sequence,
            headers: headers(delay, "key.key".into()).unwrap(),
            payload: "".into(),
            time: OffsetDateTime::UNIX_EPOCH,
        })
    }

    /// N6
    #[test]
    fn a_former_message_is_replaced_if_it_is_due_late_enough() {
        let (soon, later) = (Duration::from_millis(500), Duration::from_secs(60));
        let mut headers = headers(later, "key.key".into()).unwrap();
        let expected = |headers: &HeaderMap| {
            let expected = headers.get(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE);
            expected.unwrap().as_str().to_owned()
        };
        assert_eq!(expected(&headers), "0");
        let mut turn = Turn::default();
        let next = turn.next(found(7, later), false, &mut headers);
        assert!(matches!(next, Next::Publish), "{next:?}");
        assert_eq!((&*expected(&headers), turn.is_late()), ("7", false));
        let next = turn.next(found(9, soon), false, &mut headers);
        assert!(matches!(next, Next::Replaced(9)), "{next:?}");

        let mut turn = Turn::default();
        for found in [found(7, soon), None] {
            let next = turn.next(found, false, &mut headers);
            assert!(matches!(next, Next::Wait), "{next:?}");
            assert_eq!((&*expected(&headers), turn.is_late()), ("0", false));
        }
    }

    /// N6
    #[test]
    fn a_former_message_that_has_not_ended_is_replaced() {
        let mut headers = headers(NEAR, "key.key".into()).unwrap();
        headers.insert(NATS_MESSAGE_ID, "own");
        let overdue = |id: &str| {
            let mut overdue = found(7, NEAR)?;
            let headers = &mut overdue.headers;
            headers.insert(NATS_SCHEDULE, "@at 2026-01-01T00:00:00Z");
            headers.insert(NATS_MESSAGE_ID, id);
            Some(overdue)
        };
        let mut turn = Turn::default();
        let next = turn.next(overdue("former"), false, &mut headers);
        assert!(matches!(next, Next::Publish), "{next:?}");
        // The server may be adding the former one.
        assert!(turn.is_late());
        // It is about to store another one.
        let next = turn.next(overdue("former"), false, &mut headers);
        assert!(matches!(next, Next::Wait), "{next:?}");
        let next = turn.next(overdue("own"), true, &mut headers);
        assert!(matches!(next, Next::Replaced(7)), "{next:?}");
    }

    /// N6
    #[test]
    fn a_message_that_is_confirmed_when_the_former_one_is_due_may_be_lost() {
        let mut headers = headers(NEAR, "key.key".into()).unwrap();
        let mut turn = Turn {
            first: Some(7),
            replaces: Some(SystemTime::now() + CLOCKS),
        };
        assert!(turn.is_late());
        // An earlier try may have stored it.
        turn.next(None, true, &mut headers);
        assert!(turn.is_late());
        turn.next(None, false, &mut headers);
        assert!(!turn.is_late());
    }
}
