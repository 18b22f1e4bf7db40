//! The demonstration: accounts, two replicas, one of which is killed, and a check of what the bank saw.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use serde_json::json;
use servers::kube::ControlPlane;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::account::{Account, AccountSpec, Booking};
use crate::bank::{Bank, Books};
use crate::replica;

const BRANCHES: [&str; 3] = ["branch-a", "branch-b", "branch-c"];
/// Of the accounts of the demonstration.
const LABEL: &str = "bookkeeper-demo";
/// How many requests the demonstration itself has under way.
const REQUESTS: usize = 16;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub struct Options {
    /// On the cluster of the current kubeconfig, instead of an API server that is started
    #[arg(long)]
    pub kubeconfig: bool,
    /// How many accounts
    #[arg(long, default_value_t = 600)]
    pub accounts: usize,
}

pub fn print_crd() -> Result<()> {
    println!("{}", serde_json::to_string_pretty(&Account::crd())?);
    Ok(())
}

/// Runs, and fails if the check does. `program` is this program, to start replicas of.
pub async fn run(program: &Path, options: Options) -> Result<()> {
    let plane = if options.kubeconfig {
        None
    } else {
        let Some(plane) = ControlPlane::start().await? else {
            return Ok(());
        };
        println!(
            "kube-apiserver {} on port {}",
            servers::kube::version(),
            plane.port()
        );
        Some(plane)
    };
    let port = plane.as_ref().map(ControlPlane::port);
    let demo = Demo {
        client: replica::client(port).await?,
        bank: Bank::open(Duration::from_millis(10), 10).await?,
        port,
    };
    demo.prepare(options.accounts).await?;
    println!(
        "{} accounts are there; the bank refuses every 10th balance",
        options.accounts
    );
    demo.play(program).await
}

struct Demo {
    client: Client,
    bank: Bank,
    port: Option<u16>,
}

impl Demo {
    fn accounts(&self, branch: &str) -> Api<Account> {
        Api::namespaced(self.client.clone(), branch)
    }

    /// Applies the custom resource definition, and creates the accounts.
    async fn prepare(&self, count: usize) -> Result<()> {
        let crds = Api::<CustomResourceDefinition>::all(self.client.clone());
        let apply = PatchParams::apply("bookkeeper-demo").force();
        crds.patch(Account::crd_name(), &apply, &Patch::Apply(Account::crd()))
            .await?;
        let established =
            await_condition(crds, Account::crd_name(), conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established).await??;
        let namespaces = Api::<Namespace>::all(self.client.clone());
        for branch in BRANCHES {
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": branch } });
            namespaces
                .patch(branch, &apply, &Patch::Apply(namespace))
                .await?;
        }
        stream::iter(0..count)
            .map(|index| async move {
                let account = account(index);
                let branch = account.namespace().context("it has one")?;
                self.accounts(&branch)
                    .create(&PostParams::default(), &account)
                    .await?;
                anyhow::Ok(())
            })
            .buffer_unordered(REQUESTS)
            .try_collect()
            .await
    }

    async fn play(&self, program: &Path) -> Result<()> {
        let replicas = [self.start(program, "a")?, self.start(program, "b")?];
        self.urgent().await?;
        let mut replicas = self.take_over(replicas, program).await?;
        self.in_step().await?;
        self.lose_a_statement().await?;
        self.close_some().await?;
        self.in_step().await?;
        for replica in &mut replicas {
            replica.kill().await?;
        }
        verdict(&self.bank.books())
    }

    fn start(&self, program: &Path, name: &str) -> Result<Child> {
        let mut command = Command::new(program);
        command
            .args(["replica", "--name", name, "--lease", "3"])
            .args(["--bank", &self.bank.address.to_string()])
            .kill_on_drop(true);
        if let Some(port) = self.port {
            command.args(["--port", &port.to_string()]);
        }
        Ok(command.spawn()?)
    }

    /// Waits until the bank's books fulfil the condition.
    async fn until(&self, what: &str, condition: impl Fn(&Books) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !condition(&self.bank.books()) {
            ensure!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Books an amount on an account.
    async fn book(&self, account: &Account, amount: i64) -> Result<()> {
        let mut bookings = account.spec.bookings.clone();
        bookings.push(Booking {
            text: "a booking of today".to_owned(),
            amount,
        });
        let branch = account.namespace().unwrap_or_default();
        let patch = Patch::Merge(json!({ "spec": { "bookings": bookings } }));
        self.accounts(&branch)
            .patch(&account.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    async fn all(&self) -> Result<Vec<Account>> {
        let accounts = Api::<Account>::all(self.client.clone());
        let selector = ListParams::default().labels(LABEL);
        Ok(accounts.list(&selector).await?.items)
    }

    /// Books on an account that no replica has come to yet.
    async fn urgent(&self) -> Result<()> {
        let accounts = self.all().await?;
        self.until("the first accounts are reconciled", |books| {
            books.balances.len() > accounts.len() / 10
        })
        .await?;
        let visited = self.bank.books().visited();
        let waits = |account: &&Account| !visited.contains_key(&path(account));
        let urgent = accounts.iter().rfind(waits).context("one that waits")?;
        self.book(urgent, 4200).await?;
        let before = self.bank.books().visits.len();
        self.until("the urgent account is reconciled", |books| {
            books.visited().contains_key(&path(urgent))
        })
        .await?;
        let (others, visited) = {
            let books = self.bank.books();
            let is_urgent = |(account, _): &(String, String)| *account == path(urgent);
            let others = books.visits[before..].iter().position(is_urgent);
            (others, books.visited().len())
        };
        let others = others.context("it was reconciled before the booking")?;
        let waited = accounts.len() - visited;
        println!(
            "a booking on {} while the initial list is worked off: {others} others came first, {waited} waited",
            path(urgent),
        );
        ensure!(others < waited, "it came after most of them");
        Ok(())
    }

    /// Kills the replica that leads, in the middle of its work.
    async fn take_over(&self, replicas: [Child; 2], program: &Path) -> Result<Vec<Child>> {
        let leader = |books: &Books| books.visits.last().map(|(_, clerk)| clerk.clone());
        let killed = leader(&self.bank.books()).context("one leads")?;
        let [mut first, mut second] = replicas;
        let victim = if killed == "a" {
            &mut first
        } else {
            &mut second
        };
        victim.kill().await?;
        let began = Instant::now();
        println!("replica {killed} is killed (SIGKILL)");
        let accounts = self.all().await?;
        let booked = accounts
            .iter()
            .step_by(5)
            .map(|account| self.book(account, -100));
        stream::iter(booked)
            .buffer_unordered(REQUESTS)
            .try_collect::<()>()
            .await?;
        self.until("another replica takes over", |books| {
            leader(books).is_some_and(|leader| leader != killed)
        })
        .await?;
        println!("another takes over after {:.1?}", began.elapsed());
        Ok(vec![first, second, self.start(program, "c")?])
    }

    /// Deletes a statement. Its account owns it, so that the controller writes it again.
    async fn lose_a_statement(&self) -> Result<()> {
        let statements = Api::<ConfigMap>::namespaced(self.client.clone(), BRANCHES[0]);
        let name = "account-0-statement";
        let lost = statements.get(name).await?;
        statements.delete(name, &DeleteParams::default()).await?;
        let rewritten = await_condition(statements, name, |statement: Option<&ConfigMap>| {
            statement.is_some_and(|statement| statement.uid() != lost.uid())
        });
        let rewritten = tokio::time::timeout(PATIENCE, rewritten).await??;
        let same = rewritten.is_some_and(|statement| statement.data == lost.data);
        ensure!(same, "the statement is another than the lost one");
        println!("a statement that was deleted is written again");
        Ok(())
    }

    /// Deletes accounts, and waits until their finalizers have closed them at the bank.
    async fn close_some(&self) -> Result<()> {
        let closed = self.all().await?.into_iter().step_by(20);
        let mut count = 0;
        for account in closed {
            let branch = account.namespace().unwrap_or_default();
            self.accounts(&branch)
                .delete(&account.name_any(), &DeleteParams::default())
                .await?;
            count += 1;
        }
        self.until("the finalizers have closed the accounts", |books| {
            books.closed == count
        })
        .await?;
        println!("{count} accounts are deleted, and closed at the bank");
        Ok(())
    }

    /// Waits until each account's status and its balance at the bank are what its bookings say.
    async fn in_step(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let accounts = self.all().await?;
            let expected: BTreeMap<_, _> = accounts
                .iter()
                .map(|account| (path(account), account.balance()))
                .collect();
            let statuses = accounts.iter().all(|account| {
                let generation = account.metadata.generation;
                account.status.as_ref().is_some_and(|status| {
                    status.balance == account.balance() && status.observed_generation == generation
                })
            });
            let bank = self.bank.books().balances == expected;
            if statuses && bank {
                println!("{} accounts are in step with the bank", accounts.len());
                return Ok(());
            }
            ensure!(Instant::now() < end, "not in step after {PATIENCE:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The namespace and name of an account: the bank's name for it.
fn path(account: &Account) -> String {
    let branch = account.namespace().unwrap_or_default();
    format!("{branch}/{}", account.name_any())
}

fn account(index: usize) -> Account {
    let bookings = vec![Booking {
        text: "opening balance".to_owned(),
        amount: 1000 + index as i64,
    }];
    let mut account = Account::new(&format!("account-{index}"), AccountSpec { bookings });
    account.metadata.namespace = Some(BRANCHES[index % BRANCHES.len()].to_owned());
    account
        .labels_mut()
        .insert(LABEL.to_owned(), "yes".to_owned());
    account
}

/// Prints what the bank saw, and fails if it should not have been.
fn verdict(books: &Books) -> Result<()> {
    println!(
        "{} reconciliations, {} of them refused by the bank and tried again",
        books.visits.len(),
        books.refused
    );
    println!(
        "at most {} at once for one branch (limit {}); two at once for one account: {}",
        books.crowd,
        replica::PER_NAMESPACE,
        books.collisions.len()
    );
    ensure!(books.collisions.is_empty(), "{:?}", books.collisions);
    ensure!(
        books.crowd <= replica::PER_NAMESPACE,
        "the limit of a branch is broken"
    );
    Ok(())
}
