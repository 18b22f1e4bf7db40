//! What a board says about its queues, by its JSON.

use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;

/// How long a request may take.
const LIMIT: Duration = Duration::from_secs(5);
/// The most bytes of a response.
const MOST: u64 = 16 << 20;

/// A board in another process.
pub(crate) struct Board {
    pub(crate) address: String,
    headers: Vec<(String, String)>,
    agent: Agent,
}

/// What was seen at one time.
#[derive(Clone, Deserialize)]
pub(crate) struct Look {
    pub(crate) queues: Vec<Queue>,
    #[serde(default)]
    pub(crate) fleets: Vec<Fleet>,
}

/// Without some of the numbers if it is gone, takes no times or has no name, or if the board had no time for it.
#[derive(Clone, Deserialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) queued: u64,
    pub(crate) in_hand: Option<u64>,
    pub(crate) delayed: Option<u64>,
    pub(crate) dead_letters: Option<u64>,
    pub(crate) held_for: Option<f64>,
    pub(crate) ended: Option<f64>,
    pub(crate) failed: Option<f64>,
    /// Those keys in hand that are held for the longest time, each with its seconds.
    pub(crate) held: Vec<(String, Option<f64>)>,
    /// How old what is known of keys in hand and delayed keys is, in seconds.
    pub(crate) age: Option<f64>,
}

/// Without numbers if its server is away.
#[derive(Clone, Deserialize)]
pub(crate) struct Fleet {
    pub(crate) name: String,
    pub(crate) partitions: Option<u64>,
    pub(crate) unowned: Option<u64>,
    pub(crate) messages: Option<u64>,
    pub(crate) dead_letters: Option<u64>,
}

/// Reads a header of the command line.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("it has no colon")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl Board {
    pub(crate) fn new(address: &str, headers: Vec<(String, String)>) -> Self {
        let address = address.trim_end_matches('/');
        let address = match address.contains("://") {
            true => address.to_owned(),
            false => format!("http://{address}"),
        };
        // A redirect is to another page, such as that of a login.
        let config = Agent::config_builder()
            .timeout_global(Some(LIMIT))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false);
        Board {
            address,
            headers,
            agent: config.build().into(),
        }
    }

    /// Looks at all queues.
    pub(crate) fn look(&self) -> Result<Look, String> {
        let address = &self.address;
        let named = |error: ureq::Error| format!("cannot read {address}: {error}");
        let mut request = self.agent.get(address).header("accept", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = request.call().map_err(named)?;
        match response.status().as_u16() {
            404 => return Err(format!("there is no board at {address}")),
            200 => {}
            status => return Err(format!("{address} responds with {status}")),
        }
        let body = response.body_mut().with_config().limit(MOST);
        let body = body.read_to_string().map_err(named)?;
        let parsed = serde_json::from_str(&body);
        parsed.map_err(|error| format!("{address} has no JSON of a board: {error}"))
    }
}
