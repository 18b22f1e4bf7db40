//! The configuration of a fleet: the same for all its producers and replicas.

use std::fmt::Display;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Which messages of a key are kept while it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coalesce {
    /// The last one, by the server: the stream has one message for each key, and a new one replaces
    /// it. The stream is as long as there are keys that wait.
    #[default]
    Server,
    /// The last one, by the replica: the stream keeps all messages until a replica receives them.
    Client,
    /// All of them: every payload counts. A delivery has all messages of its key that have come:
    /// [`Delivery::messages`](crate::Delivery::messages).
    Never,
}

/// The configuration of a fleet. All its producers and replicas have the same: what the server keeps
/// is checked, and a contradiction is refused.
///
/// It can be read from a file, where every field may be missing, and unknown ones are refused:
///
/// ```
/// use keyqueue_nats::{Coalesce, Config};
/// use std::time::Duration;
///
/// let config: Config = toml::from_str(r#"
///     stream = "WEBHOOKS"
///     subject = "webhooks"
///     replicas = 3
///     lease = "10s"
///     coalesce = "never"
///     max_retries = 20
///     dead_letters = "webhooks-dead"
/// "#)?;
/// assert_eq!(config.lease, Duration::from_secs(10));
/// assert_eq!(config.coalesce, Coalesce::Never);
/// assert_eq!(config.partitions, 16); // the default
/// config.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The first part of the names of the streams: letters, digits, `-` and `_`. Each partition has a stream,
    /// `<stream>-<partitions>-<n>`. The buckets are `<stream>-owners` and
    /// `<stream>-counts`, and the stream of dead letters `<stream>-dead`. Default: `WORK`.
    pub stream: String,
    /// The first token of all subjects: letters, digits, `-` and `_`. Default: `work`.
    pub subject: String,
    /// The number of partitions, 1 to 1024. A fleet has at most as many replicas that work, and each partition is a stream with its
    /// consumer on the server. [`repartition`](crate::repartition()) changes the number of a fleet. Default: 16.
    pub partitions: u16,
    /// On how many servers the stream and the bucket are, 1 to 5. Default: 1; use 3 in production.
    pub replicas: usize,
    /// Which messages of a key are kept. Fixed for the life of the streams. Default: [`Coalesce::Server`].
    pub coalesce: Coalesce,
    /// How long a replica that cannot be reached keeps its partitions, at least 1 s. A replica renews
    /// its lease each quarter of it. All replicas have to have the same: a replica with a shorter one would take partitions
    /// from a replica that lives. The server does not keep it, so nobody checks this. To change it, end all replicas
    /// first. At most a day. Default: 15 s.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    /// How many messages of a partition a replica holds, at least 1: those that are received and not acknowledged. Keys that wait
    /// for a retry do not count, so they do not keep others from coming; when one is due, half as many of its messages are read again at once, 500 at most.
    /// Default: 2000.
    pub window: u32,
    /// How many bytes of messages a replica holds, at least 1; keys that wait for a retry do not count, because their payloads are read
    /// again when they are due. It is exceeded by what is on its way: twice the server's `max_payload` (1 MiB by default) for each partition
    /// that the replica owns, and for each task, which reads the payloads of its key again. Default: 256 MiB.
    pub max_held_bytes: u64,
    /// After how long the server delivers a message again that its replica holds, more than the lease. Only a safety
    /// net: take-overs do not wait for it. A handler should not run longer. Default: 1 h.
    #[serde(with = "humantime_serde")]
    pub ack_wait: Duration,
    /// How long a replica that is to give a partition to another waits for handlers that run, more than 0, 30 days at most. Then it cancels them at
    /// their next await point, and the next owner delivers their keys. Other keys of the partition do not wait for those that run at first: they are
    /// begun meanwhile. When those have ended, no key is begun any more, and the rest waits until those that were begun meanwhile have ended. Default: 1 min.
    #[serde(with = "humantime_serde")]
    pub max_handover: Duration,
    /// How many messages a partition takes, at least 1; then adds to it are refused. With `replicas` 1 and
    /// [`Coalesce::Server`] a key that has a message there takes another, which replaces it; if there are more servers, they refuse that, too.
    /// The server keeps no delayed messages in a stream with a limit, so
    /// [`Producer::add_after`](crate::Producer::add_after) is refused. Default: no limit.
    pub max_messages: Option<u64>,
    /// How many bytes a partition takes, at least 1; as for `max_messages`, but a message that is larger than the one that it replaces is refused. Default: no limit.
    pub max_bytes: Option<u64>,
    /// The delay before the first retry of a key, more than 0; doubled with each. Default: 100 ms.
    #[serde(with = "humantime_serde")]
    pub backoff: Duration,
    /// The longest delay before a retry, at least `backoff`. Default: 5 min.
    #[serde(with = "humantime_serde")]
    pub max_backoff: Duration,
    /// How many times a key is retried before it is given up. Needs `dead_letters`. A key whose deliveries end the process is given up
    /// after six deaths, or one more than this. Default: until it succeeds.
    pub max_retries: Option<u32>,
    /// The subject to which the messages of keys that are given up are published: one token, of letters, digits, `-` and
    /// `_`, other than `subject`. The key is no part of it: it is in a header, see [`dead_letter`](crate::dead_letter).
    /// Default: none. Then a handler's [`Verdict::GiveUp`](crate::Verdict::GiveUp) removes the messages.
    pub dead_letters: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            stream: "WORK".into(),
            subject: "work".into(),
            partitions: 16,
            replicas: 1,
            coalesce: Coalesce::Server,
            lease: Duration::from_secs(15),
            window: 2000,
            max_held_bytes: 256 << 20,
            ack_wait: Duration::from_secs(3600),
            max_handover: Duration::from_secs(60),
            max_messages: None,
            max_bytes: None,
            backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(300),
            max_retries: None,
            dead_letters: None,
        }
    }
}

impl Config {
    /// Checks every field.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names the first field that is out of range, and its value.
    ///
    /// ```
    /// # use keyqueue_nats::Config;
    /// let config = Config { partitions: 0, ..Config::default() };
    /// assert_eq!(config.check().unwrap_err().to_string(), "partitions = 0: from 1 to 1024");
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        check_token("stream", &self.stream)?;
        check_token("subject", &self.subject)?;
        let (partitions, replicas) = (self.partitions, self.replicas);
        let range = (1..=1024).contains(&partitions);
        check("partitions", partitions, range, "from 1 to 1024")?;
        let range = (1..=5).contains(&replicas);
        check("replicas", replicas, range, "from 1 to 5")?;
        let seconds = |duration: Duration| format!("{duration:?}");
        let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));
        let lease = (shortest..=longest).contains(&self.lease);
        check("lease", seconds(self.lease), lease, "from 1 s to a day")?;
        check("window", self.window, self.window >= 1, "at least 1")?;
        let bytes = self.max_held_bytes;
        check("max_held_bytes", bytes, bytes >= 1, "at least 1")?;
        let wait = self.ack_wait > self.lease && self.ack_wait <= 30 * longest;
        check(
            "ack_wait",
            seconds(self.ack_wait),
            wait,
            "longer than the lease, 30 days at most",
        )?;
        let handover = !self.max_handover.is_zero() && self.max_handover <= 30 * longest;
        check(
            "max_handover",
            seconds(self.max_handover),
            handover,
            "more than 0, 30 days at most",
        )?;
        for (field, limit) in [
            ("max_messages", self.max_messages),
            ("max_bytes", self.max_bytes),
        ] {
            if let Some(limit) = limit {
                let range = (1..=i64::MAX as u64).contains(&limit);
                check(field, limit, range, "at least 1, at most 2^63 - 1")?;
            }
        }
        check(
            "backoff",
            seconds(self.backoff),
            !self.backoff.is_zero(),
            "more than 0",
        )?;
        let most = self.max_backoff >= self.backoff && self.max_backoff <= 30 * longest;
        check(
            "max_backoff",
            seconds(self.max_backoff),
            most,
            "at least backoff, 30 days at most",
        )?;
        if let Some(retries) = self.max_retries {
            let kept = self.dead_letters.is_some();
            check(
                "max_retries",
                retries,
                kept,
                "needs dead_letters, or the messages would be lost",
            )?;
        }
        if let Some(subject) = &self.dead_letters {
            check_token("dead_letters", subject)?;
            check(
                "dead_letters",
                subject,
                *subject != self.subject,
                "differs from subject",
            )?;
        }
        Ok(())
    }
}

/// Checks that a text can be one token of a subject, and the name of a stream.
pub(crate) fn check_token(field: &'static str, text: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_token = (1..=64).contains(&text.len()) && text.bytes().all(plain);
    let reason = "has 1 to 64 letters, digits, `-` and `_`";
    check(field, text, is_token, reason)
}

fn check(
    field: &'static str,
    value: impl Display,
    holds: bool,
    reason: &'static str,
) -> Result<(), Error> {
    match holds {
        true => Ok(()),
        false => Err(Error::config(field, value, reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_that_is_out_of_range_is_named() {
        let refused = |field: &str, change: &dyn Fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            match config.check() {
                Err(Error::Config { field: found, .. }) => assert_eq!(found, field),
                other => panic!("{field}: {other:?}"),
            }
        };
        refused("stream", &|config| config.stream = "a.b".into());
        refused("stream", &|config| config.stream.clear());
        refused("subject", &|config| config.subject = "a b".into());
        refused("subject", &|config| config.subject = "a".repeat(65));
        refused("partitions", &|config| config.partitions = 0);
        refused("partitions", &|config| config.partitions = 1025);
        refused("replicas", &|config| config.replicas = 0);
        refused("replicas", &|config| config.replicas = 6);
        refused("lease", &|config| config.lease = Duration::from_millis(999));
        refused("lease", &|config| config.lease = Duration::MAX);
        refused("window", &|config| config.window = 0);
        refused("max_held_bytes", &|config| config.max_held_bytes = 0);
        refused("max_handover", &|config| {
            config.max_handover = Duration::ZERO;
        });
        refused("ack_wait", &|config| config.ack_wait = config.lease);
        refused("ack_wait", &|config| config.ack_wait = Duration::MAX);
        refused("max_messages", &|config| config.max_messages = Some(0));
        refused("max_bytes", &|config| config.max_bytes = Some(u64::MAX));
        refused("backoff", &|config| config.backoff = Duration::ZERO);
        refused("max_backoff", &|config| {
            config.max_backoff = Duration::from_millis(99);
        });
        refused("max_backoff", &|config| config.max_backoff = Duration::MAX);
        refused("max_retries", &|config| config.max_retries = Some(3));
        refused("dead_letters", &|config| {
            config.dead_letters = Some("a.b".into());
        });
        refused("dead_letters", &|config| {
            config.dead_letters = Some("work".into());
        });
        Config::default().check().unwrap();
    }

    #[test]
    fn a_file_gives_back_what_was_written_and_unknown_fields_are_refused() {
        let config = Config {
            lease: Duration::from_millis(2500),
            max_bytes: Some(1 << 30),
            ..Config::default()
        };
        let json = serde_json::to_string(&config).unwrap();
        assert!(json.contains(r#""lease":"2s 500ms""#), "{json}");
        assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
        let unknown = toml::from_str::<Config>("partition = 8").unwrap_err();
        assert!(
            unknown.to_string().contains("unknown field `partition`"),
            "{unknown}"
        );
    }
}
