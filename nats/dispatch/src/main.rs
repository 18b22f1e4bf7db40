//! A webhook dispatcher on keyqueue-nats: see `dispatch --help`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use dispatch::{Connection, check, faults, producer, receiver, replica, run};

/// A webhook dispatcher: replicas share the endpoints, one at a time for each
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything on this machine: kills a replica in the middle, and checks what the receiver saw
    Run(run::Options),
    /// One fault after the other on this machine: how long no delivery of a partition begins
    Faults(faults::Options),
    /// Runs a nats-server in this directory until Ctrl-C, with the stream and the bucket
    Server {
        /// For the server's store
        directory: PathBuf,
    },
    /// Creates the stream and the bucket on servers that run
    Create(Connection),
    /// Changes the state of endpoints
    Producer(producer::Options),
    /// Calls endpoints
    Replica(replica::Options),
    /// Receives the calls, and records them
    Receiver(receiver::Behaviour),
    /// Checks what a receiver saw against what a producer stored
    Check(check::Options),
}

#[tokio::main]
async fn main() -> Result<()> {
    match Options::parse().command {
        Command::Run(options) => run::run(options).await,
        Command::Faults(options) => faults::run(options).await,
        Command::Server { directory } => run::server(&directory).await,
        Command::Create(connection) => connection.create().await,
        Command::Producer(options) => producer::run(options).await,
        Command::Replica(options) => replica::run(options).await,
        Command::Receiver(behaviour) => receiver::run(behaviour).await,
        Command::Check(options) => check::run(options).await,
    }
}
