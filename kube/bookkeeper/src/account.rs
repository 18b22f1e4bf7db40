//! The custom resource.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the user writes: an account and what was booked on it.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "books.example.com",
    version = "v1",
    kind = "Account",
    namespaced
)]
#[kube(status = "AccountStatus", derive = "Default", shortname = "acct")]
#[kube(printcolumn = r#"{"name":"Balance", "type":"integer", "jsonPath":".status.balance"}"#)]
pub struct AccountSpec {
    #[serde(default)]
    pub bookings: Vec<Booking>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Booking {
    pub text: String,
    /// In cents; negative: out of the account.
    pub amount: i64,
}

/// What the controller writes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountStatus {
    pub balance: i64,
    /// The generation of the object that this balance is of.
    pub observed_generation: Option<i64>,
}

impl Account {
    pub fn balance(&self) -> i64 {
        self.spec
            .bookings
            .iter()
            .map(|booking| booking.amount)
            .sum()
    }

    /// The text of the statement: a line for each booking, and the balance.
    pub fn statement(&self) -> String {
        let line = |text: &str, amount: i64| format!("{text:<30} {amount:>10}\n");
        let bookings = self.spec.bookings.iter();
        let lines: String = bookings
            .map(|booking| line(&booking.text, booking.amount))
            .collect();
        lines + &line("balance", self.balance())
    }
}
