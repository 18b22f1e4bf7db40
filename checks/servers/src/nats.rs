//! Real nats-servers on this machine: one, or a cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_nats::Client;
use async_nats::jetstream::{self, Context as JetStream};
use futures_util::TryStreamExt;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::process::Supervised;
use crate::until;

/// Servers with their stores in one directory. Dropping them kills them.
#[derive(Debug)]
pub struct Servers {
    program: PathBuf,
    directory: PathBuf,
    ports: Vec<u16>,
    processes: Vec<Option<Supervised>>,
}

impl Servers {
    /// Prepares `count` servers, 1 to 5, in this directory, with streams. They are started by `start`. `None`: there is no
    /// nats-server (`$NATS_SERVER`, or where `nats/server.sh` installs it).
    pub fn prepare(directory: &Path, count: usize) -> Result<Option<Self>> {
        Self::with(directory, count, Some(""))
    }

    /// The same with these settings of JetStream, or without it.
    fn with(directory: &Path, count: usize, jetstream: Option<&str>) -> Result<Option<Self>> {
        let Some(program) = crate::server("NATS_SERVER", "nats-server", "nats/server.sh") else {
            return Ok(None);
        };
        let ports = rig::free_ports::<10>()?;
        let (clients, routes) = (&ports[..count], &ports[count..2 * count]);
        for index in 0..count {
            let store = directory.join(format!("server-{index}"));
            fs::create_dir_all(&store)?;
            let mut settings = format!(
                "server_name: s{index}\nlisten: 127.0.0.1:{}\npid_file: {:?}\n",
                clients[index],
                store.join("pid")
            );
            if let Some(jetstream) = jetstream {
                settings += &format!("jetstream {{ store_dir: {store:?}, {jetstream} }}\n");
            }
            if count > 1 {
                let urls: Vec<_> = routes
                    .iter()
                    .map(|port| format!("nats://127.0.0.1:{port}"))
                    .collect();
                settings += &format!(
                    "cluster {{ name: c, listen: 127.0.0.1:{}, routes: [{}] }}\n",
                    routes[index],
                    urls.join(", ")
                );
            }
            fs::write(store.join("nats.conf"), settings)?;
        }
        Ok(Some(Servers {
            program,
            directory: directory.to_owned(),
            ports: clients.to_vec(),
            processes: (0..count).map(|_| None).collect(),
        }))
    }

    /// The addresses for clients.
    pub fn addresses(&self) -> String {
        let address = |port: &u16| format!("127.0.0.1:{port}");
        self.ports.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Starts those that do not run.
    pub fn start(&mut self) -> Result<()> {
        for (index, process) in self.processes.iter_mut().enumerate() {
            if process.is_none() {
                let directory = self.directory.join(format!("server-{index}"));
                let arguments = ["-c".into(), directory.join("nats.conf")];
                let log = directory.join("log");
                let started = Supervised::start(&self.program, &arguments, &log, None);
                *process = Some(started.context("nats-server starts")?);
            }
        }
        Ok(())
    }

    /// Kills one (SIGKILL). Its store stays.
    pub fn kill(&mut self, index: usize) {
        self.processes[index] = None;
    }

    /// The process of one that runs, for a signal such as SIGSTOP.
    pub fn process(&self, index: usize) -> Result<i32> {
        let file = self.directory.join(format!("server-{index}/pid"));
        Ok(fs::read_to_string(file)?.trim().parse()?)
    }

    /// Waits until a stream could be created.
    pub async fn ready(&self) -> Result<Client> {
        loop {
            if let Ok(client) = self.client().await
                && jetstream::new(client.clone()).query_account().await.is_ok()
            {
                return Ok(client);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn client(&self) -> Result<Client> {
        let addresses = self.addresses();
        let addresses: Vec<_> = addresses.split(',').collect();
        Ok(async_nats::connect(addresses).await?)
    }

    /// The server that leads a stream.
    pub async fn leader_of(&self, client: &Client, stream: &str) -> Result<usize> {
        let context = jetstream::new(client.clone());
        let info = context.get_stream(stream).await?.cached_info().clone();
        let leader = info
            .cluster
            .and_then(|cluster| cluster.leader)
            .context("a leader")?;
        Ok(leader.trim_start_matches('s').parse()?)
    }
}

/// The names of a fleet's streams of messages: `<stream>`, or `<stream>-<partitions>-<n>`.
pub async fn streams_of(context: &JetStream, stream: &str) -> Result<Vec<String>> {
    let mut names: Vec<String> = context.stream_names().try_collect().await?;
    names.retain(|name| is_stream_of(stream, name));
    ensure!(!names.is_empty(), "there is no stream {stream}");
    Ok(names)
}

fn is_stream_of(stream: &str, name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match name.strip_prefix(stream) {
        Some("") => true,
        Some(rest) => {
            let numbers = rest.strip_prefix('-').and_then(|rest| rest.split_once('-'));
            numbers.is_some_and(|(count, n)| is_number(count) && is_number(n))
        }
        None => false,
    }
}

/// The number of messages in a fleet's streams.
pub async fn messages_of(context: &JetStream, stream: &str) -> Result<u64> {
    let mut messages = 0;
    for name in streams_of(context, stream).await? {
        let stream = context.get_stream(name).await?;
        messages += stream.cached_info().state.messages;
    }
    Ok(messages)
}

/// A server with its store in a temporary directory, started.
#[derive(Debug)]
pub struct Server {
    servers: Servers,
    _directory: TempDir,
}

impl Server {
    /// Starts a server. `None`: there is no nats-server.
    pub async fn start() -> Option<Server> {
        Self::start_with("").await
    }

    /// Starts a server with these settings of JetStream in its configuration file.
    pub async fn start_with(settings: &str) -> Option<Server> {
        let mut server = Self::prepared(Some(settings))?;
        server.restart().await;
        Some(server)
    }

    /// Starts a server that has no streams.
    pub async fn start_without_jetstream() -> Option<Server> {
        let mut server = Self::prepared(None)?;
        server.servers.start().expect("nats-server starts");
        until("the server is there", async || {
            server.servers.client().await.is_ok()
        })
        .await;
        Some(server)
    }

    fn prepared(jetstream: Option<&str>) -> Option<Server> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let servers = Servers::with(directory.path(), 1, jetstream);
        Some(Server {
            servers: servers.expect("the directory can be written")?,
            _directory: directory,
        })
    }

    pub fn url(&self) -> String {
        self.servers.addresses()
    }

    /// Returns a new connection.
    pub async fn client(&self) -> Client {
        self.servers.client().await.expect("the server runs")
    }

    /// Kills the server (SIGKILL). Its store stays.
    pub fn kill(&mut self) {
        self.servers.kill(0);
    }

    /// Starts the server again, with the same port and store.
    pub async fn restart(&mut self) {
        self.servers.start().expect("nats-server starts");
        let ready = timeout(Duration::from_secs(120), self.servers.ready()).await;
        ready.expect("within two minutes").expect("it only waits");
    }
}
