//! A TCP proxy that can stall, which means that it stays connected and lets no byte through, that can swallow what clients
//! send, and that can break its connections.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: watch::Sender<State>,
    /// Dropping it aborts the task and its connections.
    _accept: JoinSet<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    stalled: bool,
    swallowing: bool,
    /// How many times the connections were broken.
    breaks: usize,
}

impl Proxy {
    /// Listens on a free port, and connects to this address.
    pub async fn start(target: String) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (sender, state) = watch::channel(State::default());
        let mut accept = JoinSet::new();
        accept.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((inner, _)) = listener.accept().await {
                let Ok(outer) = TcpStream::connect(&target).await else {
                    continue;
                };
                let ((inner_read, inner_write), (outer_read, outer_write)) =
                    (inner.into_split(), outer.into_split());
                let (up, down) = (Direction::ToServer, Direction::ToClient);
                connections.spawn(copy(inner_read, outer_write, state.clone(), up));
                connections.spawn(copy(outer_read, inner_write, state.clone(), down));
            }
        });
        Ok(Proxy {
            address,
            state: sender,
            _accept: accept,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn stall(&self, stalled: bool) {
        self.state.send_modify(|state| state.stalled = stalled);
    }

    /// Loses what clients send from now on, while what the server sends arrives. A connection that has lost bytes lets none
    /// through any more, since its rest would be garbage: break it when this is set back.
    pub fn swallow(&self, swallowing: bool) {
        self.state
            .send_modify(|state| state.swallowing = swallowing);
    }

    /// Breaks all connections. What is on its way is lost.
    pub fn break_all(&self) {
        self.state.send_modify(|state| state.breaks += 1);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

async fn copy(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    state: watch::Receiver<State>,
    direction: Direction,
) {
    let mut broken = state.clone();
    let breaks = broken.borrow().breaks;
    tokio::select! {
        // First: a connection that is broken lets nothing through that came after it has stalled.
        biased;
        _ = broken.wait_for(|state| state.breaks > breaks) => {}
        () = copy_all(from, to, state, direction) => {}
    }
}

async fn copy_all(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    direction: Direction,
) {
    let mut bytes = vec![0; 64 << 10];
    let mut swallowing = false;
    loop {
        let read = from.read(&mut bytes).await;
        match state.wait_for(|state| !state.stalled).await {
            Ok(state) => swallowing |= state.swallowing && direction == Direction::ToServer,
            Err(_) => return,
        }
        match read {
            Ok(count) if count > 0 && swallowing => {}
            Ok(count) if count > 0 && to.write_all(&bytes[..count]).await.is_ok() => {}
            _ => return,
        }
    }
}
