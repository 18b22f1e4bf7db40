//! A ledger on keyqueue-kafka: see `ledger --help`.

use anyhow::Result;
use clap::{Parser, Subcommand};
use ledger::{member, run};

/// A ledger: members of a group handle the postings of many accounts at the same time, those of an account in order
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything on this machine: kills a member in the middle, and prints what the witness saw
    Run(run::Options),
    /// A broker with these topics, until Ctrl-C, to try programs of your own
    Broker(run::Topics),
    /// Handles postings until SIGTERM
    Member(Box<member::Options>),
}

fn main() -> Result<()> {
    match Options::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Broker(topics) => run::broker(&topics),
        Command::Member(options) => tokio::runtime::Runtime::new()?.block_on(member::run(*options)),
    }
}
