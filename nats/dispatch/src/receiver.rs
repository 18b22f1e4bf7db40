//! The receiver of the webhooks, and the witness: it records when each call begins and ends. It refuses
//! calls with a fence that is lower than one that it has seen for the endpoint, when they begin and before
//! they would take effect.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Router, http::header::RETRY_AFTER};
use keyqueue_nats::Fence;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::clock;

/// One call of an endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    pub replica: String,
    pub epoch: u64,
    /// The sequences of its messages, in the order in which the replica has them. Never empty.
    pub sequences: Vec<u64>,
    /// The number of the state that it brings, which is that of its last message; `None`: it has another text.
    pub state: Option<u64>,
    /// On the machine's monotonic clock, in nanoseconds.
    pub began: u64,
    /// `None`: it has not ended yet.
    pub ended: Option<u64>,
    pub end: End,
}

impl Call {
    /// Whether this call, too, has delivered a message of the other with success.
    pub fn takes_effect_of(&self, other: &Call) -> bool {
        let is_other = |sequence| other.sequences.contains(sequence);
        self.end == End::Done && self.sequences.iter().any(is_other)
    }

    /// The sequence of the oldest message.
    pub fn oldest(&self) -> u64 {
        self.sequences.iter().copied().min().unwrap_or(0)
    }

    /// The sequence of the message whose state the endpoint has after this call: the last one.
    pub fn latest(&self) -> u64 {
        self.sequences.last().copied().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It has not ended, or the connection broke before it ended.
    Open,
    Done,
    /// The endpoint said that it failed, or has too much to do.
    Failed,
    /// The fence was lower than an earlier one.
    Fenced,
}

/// What the receiver has seen, by endpoint, in the order of the beginnings.
pub type Report = BTreeMap<String, Vec<Call>>;

/// How the endpoints behave.
#[derive(Clone, Debug, clap::Args)]
pub struct Behaviour {
    /// How long a call takes, in milliseconds
    #[arg(long, default_value_t = 5)]
    pub work: u64,
    /// Each n-th call of an endpoint fails, by turns with status 500 and with 429; 0: none
    #[arg(long, default_value_t = 0)]
    pub fail: usize,
    /// The endpoint that fails always
    #[arg(long, default_value = "")]
    pub poison: String,
    /// Where to listen; port 0: any
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            work: 5,
            fail: 0,
            poison: String::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }
}

struct Witness {
    behaviour: Behaviour,
    report: Mutex<Report>,
}

/// Serves until the process is killed. Prints its address.
pub async fn run(behaviour: Behaviour) -> Result<()> {
    let listener = TcpListener::bind(behaviour.listen).await?;
    let witness = Arc::new(Witness {
        behaviour,
        report: Mutex::default(),
    });
    let routes = Router::new()
        .route("/hook/{endpoint}", post(hook))
        .route("/report", get(report))
        .with_state(witness);
    println!("{}", listener.local_addr()?);
    axum::serve(listener, routes).await?;
    Ok(())
}

async fn report(State(witness): State<Arc<Witness>>) -> String {
    let report = witness.report.lock().expect("no call panics");
    serde_json::to_string(&*report).expect("a report is JSON")
}

async fn hook(
    State(witness): State<Arc<Witness>>,
    Path(endpoint): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, HeaderMap), StatusCode> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let fence = text("x-fence").and_then(|text| text.parse::<Fence>().ok());
    let sequences = text("x-sequences").unwrap_or_default().split(',');
    let sequences: Result<Vec<u64>, _> = sequences.map(str::parse).collect();
    let (Some(fence), Ok(sequences), Some(replica)) = (fence, sequences, text("x-replica")) else {
        return Err(StatusCode::BAD_REQUEST);
    };
    let call = Call {
        replica: replica.to_owned(),
        epoch: fence.epoch,
        sequences,
        state: number(&body),
        began: clock::now(),
        ended: None,
        end: End::Open,
    };
    let mut running = Running::begin(Arc::clone(&witness), endpoint, call);
    if running.is_fenced() {
        running.end = End::Fenced;
        return Err(StatusCode::CONFLICT);
    }
    let behaviour = &witness.behaviour;
    sleep(Duration::from_millis(behaviour.work)).await;
    if running.is_fenced() {
        running.end = End::Fenced;
        return Err(StatusCode::CONFLICT);
    }
    let turn = running.index + 1;
    let mut answer = HeaderMap::new();
    let status = if running.endpoint == behaviour.poison {
        StatusCode::INTERNAL_SERVER_ERROR
    } else if behaviour.fail > 0 && turn.is_multiple_of(2 * behaviour.fail) {
        answer.insert(RETRY_AFTER, "1".parse().expect("a header"));
        StatusCode::TOO_MANY_REQUESTS
    } else if behaviour.fail > 0 && turn.is_multiple_of(behaviour.fail) {
        StatusCode::INTERNAL_SERVER_ERROR
    } else {
        StatusCode::OK
    };
    running.end = if status == StatusCode::OK {
        End::Done
    } else {
        End::Failed
    };
    Ok((status, answer))
}

/// The number in `state 17`.
fn number(body: &[u8]) -> Option<u64> {
    let text = str::from_utf8(body).ok()?;
    text.trim_end().strip_prefix("state ")?.parse().ok()
}

/// A call that runs. It ends when this is dropped, also because the connection broke.
struct Running {
    witness: Arc<Witness>,
    endpoint: String,
    index: usize,
    end: End,
}

impl Running {
    fn begin(witness: Arc<Witness>, endpoint: String, call: Call) -> Self {
        let mut report = witness.report.lock().expect("no call panics");
        let calls = report.entry(endpoint.clone()).or_default();
        calls.push(call);
        let index = calls.len() - 1;
        drop(report);
        Running {
            witness,
            endpoint,
            index,
            end: End::Open,
        }
    }

    fn is_fenced(&self) -> bool {
        let report = self.witness.report.lock().expect("no call panics");
        let calls = &report[&self.endpoint];
        calls
            .iter()
            .any(|call| call.epoch > calls[self.index].epoch)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(mut report) = self.witness.report.lock()
            && let Some(calls) = report.get_mut(&self.endpoint)
        {
            calls[self.index].ended = Some(clock::now());
            calls[self.index].end = self.end;
        }
    }
}
