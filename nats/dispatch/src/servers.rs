//! Real nats-servers on this machine: one, or a cluster of three.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use keyqueue_nats::Config;
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// Servers with their stores in one directory. Dropping them kills them.
#[derive(Debug)]
pub struct Servers {
    program: PathBuf,
    directory: PathBuf,
    ports: Vec<u16>,
    processes: Vec<Option<Child>>,
}

/// Finds nats-server: `$NATS_SERVER`, or where `nats/server.sh` installs it.
pub fn program() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let installed = cache.map(|cache| cache.join("keyqueue/bin/nats-server"));
    let named = env::var_os("NATS_SERVER").map(PathBuf::from);
    named.or(installed).filter(|program| program.is_file())
}

/// Runs one server until Ctrl-C, with the stream and the bucket of the default configuration.
pub async fn run(directory: &Path) -> Result<()> {
    let program = program().context("there is no nats-server; nats/server.sh installs it")?;
    let mut servers = Servers::prepare(program, directory, 1)?;
    servers.start()?;
    let client = servers.ready().await?;
    keyqueue_nats::create(&client, &Config::default()).await?;
    println!("{}", servers.addresses());
    Ok(tokio::signal::ctrl_c().await?)
}

fn free_ports(count: usize) -> Result<Vec<u16>> {
    let bind = |_| TcpListener::bind("127.0.0.1:0");
    let listeners = (0..count).map(bind).collect::<Result<Vec<_>, _>>()?;
    let port = |listener: &TcpListener| Ok(listener.local_addr()?.port());
    listeners.iter().map(port).collect()
}

impl Servers {
    /// Prepares `count` servers, 1 or 3, in this directory. They are started by `start`.
    pub fn prepare(program: PathBuf, directory: &Path, count: usize) -> Result<Self> {
        let ports = free_ports(2 * count)?;
        let (clients, routes) = ports.split_at(count);
        for index in 0..count {
            let store = directory.join(format!("server-{index}"));
            fs::create_dir_all(&store)?;
            let mut settings = format!(
                "server_name: s{index}\nlisten: 127.0.0.1:{}\njetstream {{ store_dir: {store:?} }}\n",
                clients[index]
            );
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
        Ok(Servers {
            program,
            directory: directory.to_owned(),
            ports: clients.to_vec(),
            processes: (0..count).map(|_| None).collect(),
        })
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
                let child = Command::new(&self.program)
                    .arg("-c")
                    .arg(self.directory.join(format!("server-{index}/nats.conf")))
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .kill_on_drop(true)
                    .spawn()
                    .with_context(|| format!("{} starts", self.program.display()))?;
                *process = Some(child);
            }
        }
        Ok(())
    }

    /// Kills one (SIGKILL). Its store stays.
    pub async fn kill(&mut self, index: usize) -> Result<()> {
        if let Some(mut process) = self.processes[index].take() {
            process.kill().await?;
        }
        Ok(())
    }

    /// Waits until a stream could be created.
    pub async fn ready(&self) -> Result<async_nats::Client> {
        loop {
            if let Ok(client) =
                async_nats::connect(self.addresses().split(',').collect::<Vec<_>>()).await
            {
                let context = async_nats::jetstream::new(client.clone());
                if context.query_account().await.is_ok() {
                    return Ok(client);
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The server that leads a stream.
    pub async fn leader_of(&self, client: &async_nats::Client, stream: &str) -> Result<usize> {
        let context = async_nats::jetstream::new(client.clone());
        let info = context.get_stream(stream).await?.cached_info().clone();
        let leader = info
            .cluster
            .and_then(|cluster| cluster.leader)
            .context("a leader")?;
        Ok(leader.trim_start_matches('s').parse()?)
    }
}
