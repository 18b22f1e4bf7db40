//! What can go wrong, outside the handlers.

use std::borrow::Cow;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// Why a consumer could not be built, or its run ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is out of range, or librdkafka refuses a property. No broker was asked, but for a topic of dead letters that a regular
    /// expression of the topics matches: then what ran was cancelled, and what was not committed is repeated.
    #[error("{field} = {value:?}: {reason}")]
    Config {
        /// The method of the [`Builder`](crate::Builder), or the property of librdkafka.
        field: Cow<'static, str>,
        /// Its value.
        value: String,
        /// What it should be.
        reason: Cow<'static, str>,
    },
    /// The group has fenced this member, or the client has failed for good: another member may own its partitions. What
    /// ran was cancelled, and nothing was committed.
    #[error("the client has failed for good: {reason} ({code})")]
    Fatal {
        /// The code of librdkafka, such as `FencedInstanceId`.
        code: String,
        /// What librdkafka says about it.
        reason: String,
    },
    /// The client has refused a call.
    #[error("{doing}: {source}")]
    Client {
        /// What was being done.
        doing: Cow<'static, str>,
        /// The error of the client.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Brokers have not confirmed the commit of a transaction: they may have committed it.
    #[error("{doing}, which is not confirmed: {source}")]
    Unconfirmed {
        /// What was being done.
        doing: Cow<'static, str>,
        /// The error of the client.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// This consumer runs already, or has run. Build another one.
    #[error("this consumer runs already, or has run")]
    HasRun,
}

impl Error {
    pub(crate) fn config(
        field: impl Into<Cow<'static, str>>,
        value: impl ToString,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (field, value, reason) = (field.into(), value.to_string(), reason.into());
        Error::Config {
            field,
            value,
            reason,
        }
    }

    /// An error of the client, of which those about a property name it.
    pub(crate) fn client(doing: &'static str) -> impl FnOnce(KafkaError) -> Self {
        move |error| match error {
            KafkaError::ClientConfig(_, reason, field, value) => {
                Error::config(field, value, reason)
            }
            error => Error::other(doing)(error),
        }
    }

    pub(crate) fn other<E>(doing: &'static str) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        move |error| Error::Client {
            doing: doing.into(),
            source: error.into(),
        }
    }

    /// A thread of the run has panicked.
    pub(crate) fn panicked(message: String) -> Self {
        Error::other("a thread of the run has panicked")(message)
    }

    pub(crate) fn fatal(code: RDKafkaErrorCode, reason: impl Into<String>) -> Self {
        Error::Fatal {
            code: format!("{code:?}"),
            reason: reason.into(),
        }
    }
}
