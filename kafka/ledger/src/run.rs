//! Everything on this machine: a broker of its own, two members, one of which is killed in the middle.

use std::env;

use anyhow::{Context, Result, ensure};
use servers::kafka::Brokers;

use crate::lab::Lab;

#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many postings
    #[arg(long, default_value_t = 40_000)]
    postings: u64,
    /// Of how many accounts
    #[arg(long, default_value_t = 500)]
    accounts: u64,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Topics {
    /// The topics, with four partitions each
    #[arg(required = true, value_name = "TOPIC")]
    names: Vec<String>,
}

/// Starts a broker with these topics, for programs that a reader tries.
pub fn broker(topics: &Topics) -> Result<()> {
    let Some(brokers) = Brokers::start(1)? else {
        return Ok(());
    };
    let (first, others) = topics.names.split_first().context("there is one")?;
    let lab = Lab::new(&env::current_exe()?, &brokers.servers(), first, 4)?;
    for topic in others {
        lab.create(topic, 4, &[])?;
    }
    println!("a broker serves at {}, until Ctrl-C", brokers.servers());
    Ok(tokio::runtime::Runtime::new()?.block_on(tokio::signal::ctrl_c())?)
}

pub fn run(options: &Options) -> Result<()> {
    let Some(brokers) = Brokers::start(1)? else {
        return Ok(());
    };
    println!("a broker serves at {}", brokers.servers());
    let mut lab = Lab::new(&env::current_exe()?, &brokers.servers(), "postings", 8)?;
    lab.options = ["--set", "session.timeout.ms=6000"].map(Into::into).into();
    lab.producing
        .produce(options.postings, options.accounts, 20)?;
    lab.producing.flush()?;
    println!(
        "{} postings of {} accounts are stored in 8 partitions",
        options.postings, options.accounts
    );
    lab.join("first")?;
    lab.join("second")?;
    lab.finished(options.postings / 3)?;
    lab.kill("first")?;
    println!(
        "after {} postings the first of two members is killed (SIGKILL)",
        lab.witness.finished()
    );
    let seen = lab.judge()?;
    println!("the second, at its end: {}", lab.end("second")?);
    println!("the witness: {seen}");
    let lag = lab.lag()?;
    println!("offsets that are not committed: {lag}");
    ensure!(lag == 0, "offsets are not committed");
    ensure!(seen.violations.is_empty(), "there are violations");
    Ok(())
}
