//! A TCP proxy that can stall: it stays connected, and lets no byte through.

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
    stalled: watch::Sender<bool>,
    /// Dropping it aborts the task and its connections.
    _accept: JoinSet<()>,
}

impl Proxy {
    pub async fn start(target: String) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (stalled, state) = watch::channel(false);
        let mut accept = JoinSet::new();
        accept.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((inner, _)) = listener.accept().await {
                let Ok(outer) = TcpStream::connect(&target).await else {
                    continue;
                };
                let ((inner_read, inner_write), (outer_read, outer_write)) =
                    (inner.into_split(), outer.into_split());
                connections.spawn(copy(inner_read, outer_write, state.clone()));
                connections.spawn(copy(outer_read, inner_write, state.clone()));
            }
        });
        Ok(Proxy {
            address,
            stalled,
            _accept: accept,
        })
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut stalled: watch::Receiver<bool>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut bytes).await;
        if stalled.wait_for(|stalled| !stalled).await.is_err() {
            return;
        }
        match read {
            Ok(count) if count > 0 && to.write_all(&bytes[..count]).await.is_ok() => {}
            _ => return,
        }
    }
}
