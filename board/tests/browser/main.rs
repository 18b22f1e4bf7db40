//! The board in a real browser: X2 and X3 as an operator meets them. Skipped, by name, where there is no Chromium.

#[allow(dead_code, reason = "this program uses a part of it")]
#[path = "../pages/common.rs"]
mod common;
mod driver;
mod looks;
mod site;
mod uses;
