//! A controller for accounts: see `bookkeeper --help`.

use anyhow::Result;
use bookkeeper::{demo, replica};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// A controller for accounts, in a demonstration: two replicas, one of which is killed
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    demo: demo::Options,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one replica of the controller
    Replica(replica::Options),
    /// Prints the custom resource definition
    Crd,
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        // Silent but for what RUST_LOG asks for.
        .with_env_filter(
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off")),
        )
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Replica(options)) => replica::run(options).await,
        Some(Command::Crd) => demo::print_crd(),
        None => demo::run(&std::env::current_exe()?, arguments.demo).await,
    }
}
