//! What can go wrong, outside the handlers.

use std::borrow::Cow;

use async_nats::Client;

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
    /// What is on the server contradicts the configuration. Nothing that is there was changed.
    ///
    /// ```text
    /// partitions of the stream WORK is 64, and the configuration has 16
    /// coalesce of the stream WORK is Server, and the configuration has Never
    /// ```
    #[error("{what} is {found}, and the configuration has {wanted}")]
    Mismatch {
        /// The setting, and the stream or the bucket that has it. The setting has the name of the field of
        /// [`Config`](crate::Config), if there is one for it, otherwise the server's name.
        what: String,
        /// The setting's value on the server.
        found: String,
        /// The value that the configuration asks for.
        wanted: String,
    },
    /// The key is empty or too long. Nothing was sent. The text shows the first 40 characters of the key.
    #[error("the key {} {reason}", shortened(key))]
    Key {
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: Cow<'static, str>,
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
    /// The server could not be reached, or has not confirmed what was asked of it, or has no such stream or bucket.
    #[error("{doing}: {source}")]
    Server {
        /// What was being done.
        doing: Cow<'static, str>,
        /// The error of the client.
        source: async_nats::Error,
    },
}

/// The beginning of a key, which may be of any length.
fn shortened(key: &str) -> String {
    match key.char_indices().nth(40) {
        Some((end, _)) => format!("{:?}...", &key[..end]),
        None => format!("{key:?}"),
    }
}

impl Error {
    /// Says of an [`Error::Server`] which server it was.
    pub(crate) fn at(self, client: &Client) -> Self {
        match self {
            Error::Server { doing, source } => {
                let server = client.server_info();
                let (name, host, port) = (server.server_name, server.host, server.port);
                let doing = format!("{doing}, at the server {name} ({host}:{port})").into();
                Error::Server { doing, source }
            }
            other => other,
        }
    }

    /// Makes an [`Error::Config`].
    pub(crate) fn config(
        field: &'static str,
        value: impl ToString,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (value, reason) = (value.to_string(), reason.into());
        Error::Config {
            field,
            value,
            reason,
        }
    }

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
