//! One replica of the controller.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{Controller, watcher};
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
}

/// A client of the demonstration's API server, or of the kubeconfig's.
pub async fn client(port: Option<u16>) -> Result<Client> {
    Ok(match port {
        Some(port) => control_plane::client(port),
        None => Client::try_default().await?,
    })
}

/// Runs until SIGTERM or Ctrl-C.
pub async fn run(options: Options) -> Result<()> {
    let client = client(options.port).await?;
    let accounts = Api::<Account>::all(client.clone());
    let statements = Api::<ConfigMap>::all(client.clone());
    let context = Context {
        client,
        bank: options.bank,
        name: options.name,
    };
    Controller::new(accounts, watcher::Config::default())
        .owns(statements, watcher::Config::default())
        .shutdown_on_signal()
        .run(
            reconcile,
            |_, _, _| {
                kube::runtime::controller::Action::requeue(std::time::Duration::from_millis(100))
            },
            Arc::new(context),
        )
        .for_each(async |_| {})
        .await;
    Ok(())
}
