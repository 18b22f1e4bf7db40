//! A member of the group: handles postings, and tells the witness.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use keyqueue_kafka::{Builder, Consumer, Exhausted, Metadata, Outcome, Record, Room, Verdict};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// The session that the tests' brokers have for `group.protocol=consumer`.
const SESSION: Duration = Duration::from_secs(6);

#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The addresses of the brokers
    #[arg(long)]
    pub servers: String,
    #[arg(long)]
    pub group: String,
    /// The topics, separated by commas
    #[arg(long)]
    pub topics: String,
    /// The address of the witness
    #[arg(long)]
    pub witness: SocketAddr,
    /// How long a posting takes, in milliseconds
    #[arg(long, default_value_t = 5)]
    pub work: u64,
    /// Records in memory
    #[arg(long, default_value_t = 20_000)]
    pub room: usize,
    /// Properties of librdkafka: `name=value`
    #[arg(long)]
    pub set: Vec<String>,
    /// The account whose postings fail
    #[arg(long, default_value = "")]
    pub poison: String,
    /// The account whose first posting takes a minute
    #[arg(long, default_value = "")]
    pub slow: String,
    /// The account whose postings panic
    #[arg(long, default_value = "")]
    pub panics: String,
    #[arg(long, default_value_t = 2)]
    pub retries: u32,
    /// The topic for dead letters
    #[arg(long)]
    pub dead: Option<String>,
    /// Retry what fails, without a limit
    #[arg(long)]
    pub block: bool,
    /// Remember nothing beyond an offset
    #[arg(long)]
    pub forget: bool,
    /// How often offsets are committed, in milliseconds
    #[arg(long, default_value_t = 500)]
    pub commit: u64,
    /// A name for the log
    #[arg(long, default_value = "member")]
    pub name: String,
}

/// The member's side of the witness: sends lines in order, and notes who waits for which reply.
#[derive(Clone, Debug)]
pub struct Told(mpsc::UnboundedSender<(String, oneshot::Sender<()>)>);

impl Told {
    pub async fn connect(witness: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(witness).await.context("the witness")?;
        stream.set_nodelay(true)?;
        let (replies, mut lines) = stream.into_split();
        let (sender, mut receiver) = mpsc::unbounded_channel::<(String, oneshot::Sender<()>)>();
        let waiting = Arc::new(Mutex::new(VecDeque::new()));
        let of_writer = Arc::clone(&waiting);
        tokio::spawn(async move {
            while let Some((line, reply)) = receiver.recv().await {
                of_writer
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_back(reply);
                if lines.write_all(line.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
        tokio::spawn(async move {
            let mut replies = BufReader::new(replies).lines();
            while let Ok(Some(_)) = replies.next_line().await {
                let next = waiting
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_front();
                _ = next.map(|next| next.send(()));
            }
            // Without a witness nothing that happens counts.
            std::process::exit(3);
        });
        Ok(Told(sender))
    }

    async fn tell(&self, line: String) {
        let (sender, reply) = oneshot::channel();
        _ = self.0.send((line, sender));
        _ = reply.await;
    }
}

/// Tells the witness that a posting has failed, if it is dropped before it was said to have succeeded: it was cancelled.
struct Begun<'t>(&'t Told, Option<String>, &'static str);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(posting) = self.1.take() {
            let (sender, _) = oneshot::channel();
            _ = self.0.0.send((format!("{} {posting}\n", self.2), sender));
        }
    }
}

fn builder(options: &Options) -> Result<Builder> {
    let mut builder = Consumer::builder(&options.servers, &options.group)
        .topics(options.topics.split(','))
        .room(Room::records(options.room))
        .retries(options.retries)
        .commit_every(Duration::from_millis(options.commit))
        .stalled_after(Duration::from_secs(10))
        .brokers_session(SESSION)
        .backoff(keyqueue::limiter::ItemExponentialFailure::new(
            Duration::from_millis(20),
            Duration::from_secs(1),
        )?);
    for property in &options.set {
        let (name, value) = property.split_once('=').context("name=value")?;
        builder = builder.set(name, value);
    }
    if let Some(dead) = &options.dead {
        builder = builder.dead_letters(dead);
    }
    if options.forget {
        builder = builder.metadata(Metadata::Off);
    }
    if options.block {
        builder = builder.exhausted(Exhausted::Block);
    }
    Ok(builder)
}

/// Handles one posting.
async fn handle(options: &Options, told: &Told, record: &Record) -> Verdict<String> {
    let text =
        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let payload = text(record.payload());
    let number = payload.split(' ').next().unwrap_or_default();
    let account = text(record.key());
    let posting = format!("{account} {number}");
    told.tell(format!("begin {posting} {}\n", record.attempt()))
        .await;
    let mut begun = Begun(told, Some(posting.clone()), "failed");
    let work = match account == options.slow && number == "0" {
        true => Duration::from_secs(60),
        false => Duration::from_millis(options.work),
    };
    if !work.is_zero() {
        sleep(work).await;
    }
    if [&options.panics, &options.poison].contains(&&account)
        && !options.block
        && record.attempt() > options.retries
    {
        begun.2 = "given";
    }
    if account == options.panics {
        panic!("{account} panics");
    }
    if account == options.poison {
        return Verdict::Retry(format!("{account} is poison"));
    }
    begun.1 = None;
    told.tell(format!("done {posting}\n")).await;
    Verdict::Ok(Outcome::Done)
}

/// The name of a member, which its log has instead of a time: all members write to one standard error.
struct Name(String);

impl FormatTime for Name {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        write!(to, "{}", self.0)
    }
}

/// Runs until SIGTERM, and prints what was left.
pub async fn run(options: Options) -> Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_timer(Name(options.name.clone()))
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
    if !options.panics.is_empty() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let told = Told::connect(options.witness).await?;
    let consumer = builder(&options)?.build()?;
    // Without it the connection would end with the handler.
    let _connected = told.clone();
    let mut terminate = signal(SignalKind::terminate())?;
    let grace = Duration::from_secs(20);
    let options = Arc::new(options);
    let handler = move |record: Record| {
        let (told, options) = (told.clone(), Arc::clone(&options));
        async move { handle(&options, &told, &record).await }
    };
    let ended = consumer.run_until(terminate.recv(), grace, handler).await;
    let code = match ended {
        Ok(ended) => {
            println!("{ended}");
            0
        }
        Err(error) => {
            eprintln!("Error: {error:?}");
            1
        }
    };
    // Now: a handler that blocks its thread is not waited for, and the end of the connection is no loss of the witness.
    std::process::exit(code);
}
