//! A proxy in front of a nats-server that loses one request of its clients, or sends it where nobody replies (503), or loses messages for
//! them, and lets everything else through.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

pub(crate) struct Swallow {
    address: SocketAddr,
    requests: Arc<Mutex<Requests>>,
    breaks: watch::Sender<usize>,
    _accept: JoinSet<()>,
}

#[derive(Default)]
struct Requests {
    /// Which one, counted from the call of `lose` or `misdirect`.
    nth: Option<usize>,
    misdirected: bool,
    /// All whose subjects have this in them are lost, and other messages.
    named: Option<&'static str>,
    /// The same of messages for a client.
    deliveries: Option<&'static str>,
    /// Each whose subject has this in it takes this long.
    slow: Option<(&'static str, Duration)>,
    /// One whose subject has this in it waits, and what its client sends after it.
    held: Option<&'static str>,
    /// How many were lost by these names.
    lost: usize,
    subjects: Vec<String>,
}

impl Swallow {
    pub(crate) async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Requests::default()));
        let (breaks, broken) = watch::channel(0);
        let mut accept = JoinSet::new();
        accept.spawn({
            let requests = Arc::clone(&requests);
            async move {
                let mut connections = JoinSet::new();
                while let Ok((inner, _)) = listener.accept().await {
                    let outer = TcpStream::connect(&target).await.unwrap();
                    let (inner, outer) = (inner.into_split(), outer.into_split());
                    let (requests, mut broken) = (Arc::clone(&requests), broken.clone());
                    broken.mark_unchanged();
                    connections.spawn(async move {
                        tokio::select! {
                            _ = broken.changed() => {}
                            () = through(inner.0, outer.1, &requests) => {}
                            () = through(outer.0, inner.1, &requests) => {}
                        }
                    });
                }
            }
        });
        Swallow {
            address,
            requests,
            breaks,
            _accept: accept,
        }
    }

    pub(crate) async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.address.to_string()).await.unwrap()
    }

    /// Loses the n-th request from now on, from 0.
    pub(crate) fn lose(&self, nth: usize) {
        *self.requests.lock().unwrap() = Requests {
            nth: Some(nth),
            ..Requests::default()
        };
    }

    /// Loses all requests and other messages whose subjects have this in them.
    pub(crate) fn lose_named(&self, named: Option<&'static str>) {
        self.requests.lock().unwrap().named = named;
    }

    /// Loses the messages for clients whose subjects have this in them.
    pub(crate) fn lose_deliveries(&self, named: Option<&'static str>) {
        self.requests.lock().unwrap().deliveries = named;
    }

    /// How many were lost so.
    pub(crate) fn lost(&self) -> usize {
        self.requests.lock().unwrap().lost
    }

    /// Keeps back, from a request whose subject has this in it, what its client sends.
    pub(crate) fn hold(&self, held: Option<&'static str>) {
        self.requests.lock().unwrap().held = held;
    }

    /// Lets each request whose subject has this in it through after this time.
    pub(crate) fn slow(&self, named: &'static str, time: Duration) {
        self.requests.lock().unwrap().slow = Some((named, time));
    }

    /// Sends the n-th request to a subject that nobody listens to.
    pub(crate) fn misdirect(&self, nth: usize) {
        self.lose(nth);
        self.requests.lock().unwrap().misdirected = true;
    }

    /// The subjects of the requests since `lose`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().subjects.clone()
    }

    pub(crate) fn break_all(&self) {
        self.breaks.send_modify(|breaks| *breaks += 1);
    }
}

/// Lets what a client or the server sends through, line by line: `PUB`, `HPUB`, `MSG` and `HMSG` have a payload, and the first two a
/// subject for the reply if they are requests.
async fn through(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, requests: &Mutex<Requests>) {
    let mut bytes: Vec<u8> = Vec::new();
    while let Ok(1..) = from.read_buf(&mut bytes).await {
        while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
            let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let words: Vec<&str> = line.split(' ').collect();
            let (payload, is_request) = match words[0] {
                kind @ ("PUB" | "HPUB" | "MSG" | "HMSG") => (
                    words[words.len() - 1].parse::<usize>().unwrap() + 2,
                    matches!((kind, words.len()), ("PUB", 4) | ("HPUB", 5)),
                ),
                _ => (0, false),
            };
            let is_delivery = words[0].ends_with("MSG");
            let frame = end + 2 + payload;
            if bytes.len() < frame {
                break;
            }
            let rest = bytes.split_off(frame);
            let mut frame = std::mem::replace(&mut bytes, rest);
            let is_lost = is_request && {
                let mut requests = requests.lock().unwrap();
                requests.subjects.push(words[1].to_owned());
                let is_it = requests
                    .nth
                    .is_some_and(|nth| nth + 1 == requests.subjects.len());
                if is_it && requests.misdirected {
                    frame[words[0].len() + 1] = b'x';
                }
                is_it && !requests.misdirected
            };
            let is_lost = is_lost || payload > 0 && is_named(requests, is_delivery, words[1]);
            let slow = requests.lock().unwrap().slow;
            if let Some((_, time)) =
                slow.filter(|(named, _)| words.len() > 1 && is_request && words[1].contains(named))
            {
                sleep(time).await;
            }
            while is_request && is_held(requests, words[1]) {
                sleep(Duration::from_millis(10)).await;
            }
            if !is_lost && to.write_all(&frame).await.is_err() {
                return;
            }
        }
    }
}

fn is_named(requests: &Mutex<Requests>, is_delivery: bool, subject: &str) -> bool {
    let mut requests = requests.lock().unwrap();
    let named = match is_delivery {
        true => requests.deliveries,
        false => requests.named,
    };
    let is_named = named.is_some_and(|named| subject.contains(named));
    requests.lost += usize::from(is_named);
    is_named
}

fn is_held(requests: &Mutex<Requests>, subject: &str) -> bool {
    let held = requests.lock().unwrap().held;
    held.is_some_and(|held| subject.contains(held))
}
