//! A bookkeeper for `Account`s: keeps a statement of each as a config map, and its balance at a bank. `account.rs`
//! and `controller.rs` are the controller; the bank and the demonstration only show what it does.

pub mod account;
pub mod bank;
pub mod controller;
pub mod demo;
pub mod replica;
