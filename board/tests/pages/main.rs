//! The pages and actions of a board, without a network: X2 to X4 as an operator meets them.

mod actions;
mod common;
mod hostile;
mod lists;
mod meant;
mod refused;
mod values;
mod views;
