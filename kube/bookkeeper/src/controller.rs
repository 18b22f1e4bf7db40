//! The controller: a statement for each account, and its balance at the bank.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

use crate::account::{Account, AccountStatus};
use crate::bank::{self, Visit};

const FINALIZER: &str = "books.example.com/bank";
const MANAGER: &str = "bookkeeper";

/// What the reconciler needs besides the object.
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct Context {
    pub client: Client,
    pub bank: SocketAddr,
    /// The name of this replica.
    pub name: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Bank(#[from] bank::Error),
    // Boxed: it has this error inside.
    #[error(transparent)]
    Finalizer(#[from] Box<finalizer::Error<Error>>),
}

/// Brings the statement and the bank into step with an account.
pub async fn reconcile(account: Arc<Account>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = account.namespace().unwrap_or_default();
    let accounts = Api::<Account>::namespaced(context.client.clone(), &namespace);
    let name = format!("{namespace}/{}", account.name_any());
    let mut visit = Visit::begin(context.bank, &context.name, &name).await?;
    let result = finalizer(&accounts, FINALIZER, account, async |event| match event {
        Event::Apply(account) => apply(&account, &context.client, &mut visit).await,
        Event::Cleanup(_) => cleanup(&mut visit).await,
    })
    .await;
    visit.end().await?;
    Ok(result.map_err(Box::new)?)
}

async fn apply(account: &Account, client: &Client, visit: &mut Visit) -> Result<Action, Error> {
    let namespace = account.namespace().unwrap_or_default();
    let name = account.name_any();
    let apply = PatchParams::apply(MANAGER).force();

    let statement = statement(account);
    let statements = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    statements
        .patch(&statement.name_any(), &apply, &Patch::Apply(&statement))
        .await?;

    visit.post(account.balance()).await?;

    let status = AccountStatus {
        balance: account.balance(),
        observed_generation: account.meta().generation,
    };
    // Written only if it differs: each write is an event for this controller.
    if account.status.as_ref() != Some(&status) {
        let accounts = Api::<Account>::namespaced(client.clone(), &namespace);
        let patch = json!({ "status": status });
        accounts
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    // The bank may lose a balance: it is told again now and then.
    Ok(Action::requeue(Duration::from_secs(600)))
}

/// Closes the account at the bank. The statement is collected with its owner by the cluster.
async fn cleanup(visit: &mut Visit) -> Result<Action, Error> {
    visit.close().await?;
    Ok(Action::await_change())
}

/// The statement as it should be: a config map that the account owns.
fn statement(account: &Account) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("{}-statement", account.name_any())),
            owner_references: account.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            "statement".to_owned(),
            account.statement(),
        )])),
        ..ConfigMap::default()
    }
}
