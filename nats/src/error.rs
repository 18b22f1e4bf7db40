#![allow(missing_docs)]
use std::borrow::Cow;
#[derive(Debug, thiserror::Error)]
pub enum Error { #[error("c")] Config { field: &'static str, value: String, reason: Cow<'static, str> }, #[error("s")] Server { doing: Cow<'static, str>, source: Box<dyn std::error::Error + Send + Sync> } , #[error("m")] Mismatch}
