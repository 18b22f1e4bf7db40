//! One replica of the controller.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue_kube::{Controller, LeaderElection};
use kube::runtime::watcher;
use kube::{Api, Client};

use crate::account::Account;
use crate::controller::{Context, reconcile};

/// How many accounts of one namespace are reconciled at once, so that one branch cannot take all workers.
pub const PER_NAMESPACE: usize = 4;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The name of this replica
    #[arg(long)]
    pub name: String,
    /// The bank's address
    #[arg(long)]
    pub bank: SocketAddr,
    /// The port of the demonstration's API server; without it the kubeconfig says which
    #[arg(long)]
    pub port: Option<u16>,
    /// After how many seconds without a sign of the leader another replica leads
    #[arg(long, default_value_t = 15)]
    pub lease: u64,
}

/// A client of the demonstration's API server, or of the kubeconfig's.
pub async fn client(port: Option<u16>) -> Result<Client> {
    Ok(match port {
        Some(port) => servers::kube::client(port),
        None => Client::try_default().await?,
    })
}

/// Runs until SIGTERM or Ctrl-C.
pub async fn run(options: Options) -> Result<()> {
    let client = client(options.port).await?;
    let accounts = Api::<Account>::all(client.clone());
    let statements = Api::<ConfigMap>::all(client.clone());
    let lease = Duration::from_secs(options.lease);
    let leadership = LeaderElection::new(client.clone(), "default", "bookkeeper")
        .identity(&options.name)
        .lease_duration(lease)
        .renew_deadline(lease * 2 / 3)
        .retry_period(lease / 8)
        .start()?;
    let context = Context {
        client,
        bank: options.bank,
        name: options.name,
    };
    Controller::new(accounts, watcher::Config::default())
        .owns(statements, watcher::Config::default())
        .workers(8)
        .group_limit(PER_NAMESPACE)
        .leader_election(leadership)
        .shutdown_on_signal()
        // What fails is tried again after 5 ms, 10 ms, 20 ms and so on.
        .run_with_retries(reconcile, Arc::new(context))
        .for_each(async |result| match result {
            Ok((account, _)) => tracing::info!(%account, "reconciled"),
            Err(error) => tracing::warn!(%error, "will be tried again"),
        })
        .await;
    Ok(())
}
