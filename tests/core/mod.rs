//! The core: every state of a key, in one thread and in many.

mod client_go;
mod iterate;
mod looking;
mod lookup;
mod many;
mod must_use;
mod owned;
mod panics;
mod reentry;
mod settings;
mod states;
mod types;
