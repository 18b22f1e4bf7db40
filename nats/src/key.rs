
use std::borrow::Cow;
pub(crate) fn decode(t: &str) -> Result<Cow<'_, str>, crate::Error> { Ok(Cow::Borrowed(t)) }
pub(crate) fn encode(t: &str) -> Result<Cow<'_, str>, crate::Error> { Ok(Cow::Borrowed(t)) }
