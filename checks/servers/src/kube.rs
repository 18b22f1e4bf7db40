//! A real kube-apiserver with its etcd: on free ports of this machine, with its state in a temporary directory,
//! killed when it is dropped and when the process ends, however that ends.
//!
//! It has no controllers of its own: nothing collects what deleted owners leave, and no pod runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::{Client, Config};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use tokio::time::{Instant, sleep};

use crate::process::Supervised;

/// Names the version of Kubernetes; `apiserver.sh` names the binary after it.
const MODULE: &str = include_str!("../../../kube/apiserver/go.mod");
/// The token of a user of the group `system:masters`, who may do everything.
const TOKEN: &str = "of-the-tests";
/// How long a server may take to be ready.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct ControlPlane {
    program: PathBuf,
    /// The supervisor of etcd removes it.
    directory: PathBuf,
    etcd_port: u16,
    port: u16,
    // Dropped in this order.
    apiserver: Option<Supervised>,
    _etcd: Supervised,
}

/// Finds the binary: `$KUBE_CONTROL_PLANE`, or where `kube/apiserver.sh` puts it.
pub fn program() -> Option<PathBuf> {
    let installed = format!("control-plane-{}", version());
    crate::server("KUBE_CONTROL_PLANE", &installed, "kube/apiserver.sh")
}

/// The version of Kubernetes.
pub fn version() -> &'static str {
    let version = |line: &'static str| line.trim().strip_prefix("k8s.io/kubernetes ");
    MODULE.lines().find_map(version).unwrap_or("unknown")
}

impl ControlPlane {
    /// Starts etcd and the API server, and waits until they are ready. `None`: there is no binary.
    pub async fn start() -> Result<Option<ControlPlane>> {
        let Some(program) = program() else {
            return Ok(None);
        };
        let directory = tempfile::Builder::new()
            .prefix("control-plane-")
            .tempdir()?
            .keep();
        prepare(&directory)?;
        let [etcd_port, peers, port] = rig::free_ports()?;
        let etcd = start_etcd(&program, &directory, etcd_port, peers)?;
        let mut plane = ControlPlane {
            program,
            directory,
            etcd_port,
            port,
            apiserver: None,
            _etcd: etcd,
        };
        plane.start_apiserver().await?;
        Ok(Some(plane))
    }

    /// The port of the API server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The state and the logs of the servers. Removed when the control plane is dropped.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns a client of the API server, with connections of its own.
    pub fn client(&self) -> Client {
        client(self.port)
    }

    /// Kills the API server (SIGKILL). etcd stays.
    pub fn kill_apiserver(&mut self) {
        self.apiserver = None;
    }

    /// Starts the API server again, on the same port, and waits until it is ready.
    pub async fn start_apiserver(&mut self) -> Result<()> {
        let log = self.directory.join("apiserver.log");
        let arguments = apiserver_arguments(&self.directory, self.etcd_port, self.port);
        self.apiserver = Some(Supervised::start(&self.program, &arguments, &log, None)?);
        let end = Instant::now() + PATIENCE;
        let client = self.client();
        while !ready(&client).await {
            ensure!(
                Instant::now() < end,
                "the API server is not ready: {}",
                tail(&log)
            );
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

/// Returns a client for the API server behind this port, which may be a proxy's.
pub fn client(port: u16) -> Client {
    let url = format!("https://127.0.0.1:{port}");
    let mut config = Config::new(url.parse().expect("a URL"));
    // The certificate is of a moment ago, and signed by nobody.
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(TOKEN.to_owned().into());
    Client::try_from(config).expect("the configuration is complete")
}

async fn ready(client: &Client) -> bool {
    let request = http::Request::get("/readyz").body(Vec::new());
    let reply = client.request_text(request.expect("a request")).await;
    reply.is_ok_and(|text| text == "ok")
}

/// Writes the files that the API server's flags name.
fn prepare(directory: &Path) -> Result<()> {
    let [private, public] = key_pair()?;
    fs::write(directory.join("sa.key"), private)?;
    fs::write(directory.join("sa.pub"), public)?;
    let user = format!("{TOKEN},tests,1,system:masters\n");
    Ok(fs::write(directory.join("tokens.csv"), user)?)
}

/// A new private key, and its public one, as PEM.
fn key_pair() -> Result<[String; 2]> {
    /// What comes before the point of a public key of P-256 (RFC 5480).
    const PUBLIC: [u8; 26] = *b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
    let (kind, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    let private = EcdsaKeyPair::generate_pkcs8(kind, &random)?;
    let pair = EcdsaKeyPair::from_pkcs8(kind, private.as_ref(), &random)?;
    let public = [&PUBLIC, pair.public_key().as_ref()].concat();
    let pem = |what, der: &[u8]| {
        let text = STANDARD.encode(der);
        format!("-----BEGIN {what} KEY-----\n{text}\n-----END {what} KEY-----\n")
    };
    Ok([pem("PRIVATE", private.as_ref()), pem("PUBLIC", &public)])
}

fn start_etcd(program: &Path, directory: &Path, port: u16, peers: u16) -> Result<Supervised> {
    let (url, peer_url) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{peers}"),
    );
    let arguments = [
        "etcd".to_owned(),
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster=default={peer_url}"),
        // The machine does not lose power in a test.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=error".to_owned(),
    ];
    let log = directory.join("etcd.log");
    Supervised::start(program, &arguments, &log, Some(directory)).context("etcd starts")
}

fn apiserver_arguments(directory: &Path, etcd_port: u16, port: u16) -> Vec<String> {
    let file = |name| directory.join(name).display().to_string();
    vec![
        "apiserver".to_owned(),
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", file("certificates")),
        "--authorization-mode=RBAC".to_owned(),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--service-account-issuer=https://127.0.0.1".to_owned(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ]
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
