//! A real nats-server for tests: on a free port of this machine, with its store in a temporary directory, killed
//! when it is dropped.

#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod replica;

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_nats::Client;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// The server's configuration.
const FILE: &str = "nats.conf";
/// How long anything in a test may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    program: PathBuf,
    port: u16,
    store: TempDir,
    process: Child,
}

impl Server {
    /// Starts a server. `None`: there is no nats-server, and the test says that it was not run.
    pub(crate) async fn start() -> Option<Server> {
        Self::start_with("").await
    }

    /// Starts a server with these settings of JetStream in its configuration file.
    pub(crate) async fn start_with(settings: &str) -> Option<Server> {
        let store = tempfile::tempdir().expect("a temporary directory");
        let file = format!(
            "jetstream {{ store_dir: {:?}, {settings} }}",
            store.path().join("js")
        );
        let server = Self::spawn(store, &file)?;
        server.ready().await;
        Some(server)
    }

    /// Starts a server that has no streams.
    pub(crate) async fn start_without_jetstream() -> Option<Server> {
        let server = Self::spawn(tempfile::tempdir().expect("a temporary directory"), "")?;
        eventually("the server is there", async || {
            async_nats::connect(server.url()).await.is_ok()
        })
        .await;
        Some(server)
    }

    fn spawn(store: TempDir, file: &str) -> Option<Server> {
        let program = program()?;
        fs::write(store.path().join(FILE), file).expect("the directory can be written");
        let port = free_port();
        let process = spawn(&program, port, store.path());
        Some(Server {
            program,
            port,
            store,
            process,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns a new connection.
    pub(crate) async fn client(&self) -> Client {
        async_nats::connect(self.url())
            .await
            .expect("the server runs")
    }

    /// Kills the server (SIGKILL). Its store stays.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.expect("it runs");
    }

    /// Starts the server again, with the same port and store.
    pub(crate) async fn restart(&mut self) {
        self.process = spawn(&self.program, self.port, self.store.path());
        self.ready().await;
    }

    async fn ready(&self) {
        eventually("the server is ready", async || {
            let Ok(client) = async_nats::connect(self.url()).await else {
                return false;
            };
            async_nats::jetstream::new(client)
                .query_account()
                .await
                .is_ok()
        })
        .await;
    }
}

fn program() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let installed = cache.map(|cache| cache.join("keyqueue/bin/nats-server"));
    let named = env::var_os("NATS_SERVER").map(PathBuf::from);
    let found = named.or(installed).filter(|program| program.is_file());
    if found.is_none() {
        println!("not run: no nats-server; nats/server.sh installs it");
    }
    found
}

fn spawn(program: &Path, port: u16, store: &Path) -> Child {
    Command::new(program)
        .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-c"])
        .arg(store.join(FILE))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("nats-server starts")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}
