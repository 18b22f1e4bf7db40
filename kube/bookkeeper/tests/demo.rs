//! The demonstration, and the bank that is its witness.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use bookkeeper::bank::{Bank, Visit};
use bookkeeper::demo::{self, Options};

/// K2, K4, K8, K10: it fails if two replicas reconcile an account at once, if a branch has more than its
/// limit, or if anything is not in step in the end. A replica is killed (SIGKILL) in the middle.
#[tokio::test]
async fn the_demonstration_comes_into_step() -> Result<()> {
    let program = Path::new(env!("CARGO_BIN_EXE_bookkeeper"));
    let options = Options {
        kubeconfig: false,
        accounts: 300,
    };
    demo::run(program, options).await
}

#[tokio::test]
async fn the_bank_sees_two_clerks_at_once_and_no_clerk_that_has_left() -> Result<()> {
    let bank = Bank::open(Duration::ZERO, 0).await?;
    let visit = async |clerk, account| Visit::begin(bank.address, clerk, account).await;
    visit("a", "north/alice").await?.end().await?;
    let mut first = visit("a", "north/alice").await?;
    first.post(100).await?;
    let _other = visit("b", "north/bob").await?;
    let _elsewhere = visit("b", "south/alice").await?;
    assert_eq!(bank.books().collisions, [""; 0]);
    assert_eq!(bank.books().crowd, 2, "of one branch");

    let _second = visit("b", "north/alice").await?;
    assert_eq!(bank.books().collisions, ["north/alice"]);
    assert_eq!(bank.books().balances["north/alice"], 100);
    assert_eq!(bank.books().visits.len(), 5);
    Ok(())
}

#[tokio::test]
async fn the_bank_refuses_balances_now_and_then() -> Result<()> {
    let bank = Bank::open(Duration::ZERO, 2).await?;
    for number in 1..=4 {
        let account = format!("north/{number}");
        let mut visit = Visit::begin(bank.address, "a", &account).await?;
        assert_eq!(
            visit.post(number).await.is_err(),
            number % 2 == 0,
            "{number}"
        );
        visit.end().await?;
    }
    assert_eq!(bank.books().refused, 2);
    Ok(())
}
