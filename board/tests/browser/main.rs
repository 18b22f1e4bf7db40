//! The board in a real browser: X2 and X3 as an operator meets them. Skipped, by name, where there is no Chromium.

mod driver;
mod looks;
mod site;
mod uses;
