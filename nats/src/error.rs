//! What can go wrong, outside the handlers.

use std::borrow::Cow;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is out of range. Nothing was sent to the server.
    #[error("{field} = {value}: {reason}")]
    Config {
        /// The field of [`Config`](crate::Config), or the argument.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        reason: Cow<'static, str>,
    },
    /// What is on the server contradicts the configuration. Nothing was changed.
    #[error("{what} is {found}, and the configuration has {wanted}")]
    Mismatch {
        /// The stream or the bucket, and its setting.
        what: String,
        /// The setting's value on the server.
        found: String,
        /// The value that the configuration asks for.
        wanted: String,
    },
    /// The key is empty or too long. Nothing was sent.
    #[error("the key {key:?} {reason}")]
    Key {
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The server has refused the message: the stream has reached its limit, the disk is full, the message is
    /// too large. It was not stored.
    #[error("the message of {key:?} is refused: {reason}")]
    Refused {
        /// The key of the message.
        key: String,
        /// What the server says.
        reason: String,
    },
    /// The server could not be reached, or has not confirmed what was asked of it.
    #[error("{doing}: {source}")]
    Server {
        /// What was being done.
        doing: Cow<'static, str>,
        /// The error of the client.
        source: async_nats::Error,
    },
}

impl Error {
    /// Makes an [`Error::Server`].
    pub(crate) fn server<E>(doing: impl Into<Cow<'static, str>>) -> impl FnOnce(E) -> Self
    where
        E: Into<async_nats::Error>,
    {
        let doing = doing.into();
        |error| Error::Server {
            doing,
            source: error.into(),
        }
    }
}
