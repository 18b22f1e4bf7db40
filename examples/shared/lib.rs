//! What several examples share.

pub mod engine;
pub mod program;
