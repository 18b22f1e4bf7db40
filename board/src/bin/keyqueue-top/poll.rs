//! What a board says about its queues, by its JSON.

use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
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
#[derive(Clone)]
pub(crate) struct Look {
    pub(crate) queues: Vec<Queue>,
    pub(crate) fleets: Vec<Fleet>,
}

#[derive(Clone)]
pub(crate) struct Queue {
    pub(crate) at: Instant,
    pub(crate) summary: Summary,
    /// `None`: the queue is gone.
    pub(crate) detail: Option<Detail>,
    pub(crate) rates: Option<Rates>,
}

/// Per second.
#[derive(Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) ended: f64,
    pub(crate) failed: f64,
}

impl Queue {
    pub(crate) fn keys(&self) -> Option<&Keys> {
        Some(&self.detail.as_ref()?.keys)
    }
}

#[derive(Deserialize)]
pub(crate) struct Index {
    queues: Vec<Summary>,
    #[serde(default)]
    fleets: Vec<Fleet>,
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

#[derive(Clone, Deserialize)]
pub(crate) struct Summary {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) queued: u64,
    pub(crate) dead_letters: Option<u64>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Detail {
    pub(crate) queue: Summary,
    pub(crate) keys: Keys,
    totals: Option<Totals>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Keys {
    pub(crate) processing: u64,
    pub(crate) delayed: u64,
    /// Those that are held for the longest time first.
    pub(crate) in_hand: Vec<Held>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Held {
    pub(crate) key: String,
    /// In seconds. `None`: the queue takes no times.
    pub(crate) held: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
struct Totals {
    ended: u64,
    failed: u64,
}

#[cfg(test)]
impl Look {
    /// A look that had no time for any queue.
    pub(crate) fn of_index(index: Index) -> Self {
        let (at, detail, rates) = (Instant::now(), None, None);
        let queue = |summary| Queue {
            at,
            summary,
            detail: detail.clone(),
            rates,
        };
        let queues = index.queues.into_iter().map(queue).collect();
        let fleets = index.fleets;
        Look { queues, fleets }
    }
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
        // To follow a redirect would read the list, and none of the queues.
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

    /// Looks at all queues. What they have counted since the look `before` gives their rates.
    pub(crate) fn look(&self, before: Option<&Look>) -> Result<Look, String> {
        let index: Option<Index> = self.get("")?;
        let index = index.ok_or_else(|| format!("there is no board at {}", self.address))?;
        let mut queues = Vec::new();
        for summary in index.queues {
            let name = utf8_percent_encode(&summary.name, NON_ALPHANUMERIC);
            let detail: Option<Detail> = self.get(&format!("/q/{name}"))?;
            let at = Instant::now();
            let old = before.and_then(|look| {
                let mut queues = look.queues.iter();
                queues.find(|queue| queue.summary.name == summary.name)
            });
            let rates = old.and_then(|old| {
                let (old, new) = (
                    (old.at, old.detail.as_ref()?.totals?),
                    detail.as_ref()?.totals?,
                );
                Some(rates(old.1, new, at.duration_since(old.0)))
            });
            queues.push(Queue {
                at,
                summary,
                detail,
                rates,
            });
        }
        let fleets = index.fleets;
        Ok(Look { queues, fleets })
    }

    /// Returns the JSON of a page. `None`: there is no such page, or what it is about is gone.
    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, String> {
        let address = format!("{}{path}", self.address);
        let named = |error: ureq::Error| format!("cannot read {address}: {error}");
        let mut request = self
            .agent
            .get(&address)
            .header("accept", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = request.call().map_err(named)?;
        match response.status().as_u16() {
            404 | 410 => return Ok(None),
            200 => {}
            status => return Err(format!("{address} responds with {status}")),
        }
        let body = response.body_mut().with_config().limit(MOST);
        let body = body.read_to_string().map_err(named)?;
        let parsed = serde_json::from_str(&body);
        parsed.map_err(|error| format!("{address} has no JSON of a board: {error}"))
    }
}

fn rates(old: Totals, new: Totals, time: Duration) -> Rates {
    let per_second = |old: u64, new: u64| {
        // It is less if the process was started again.
        new.saturating_sub(old) as f64 / time.as_secs_f64().max(1e-3)
    };
    Rates {
        ended: per_second(old.ended, new.ended),
        failed: per_second(old.failed, new.failed),
    }
}
