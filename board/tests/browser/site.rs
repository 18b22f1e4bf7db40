//! A board on a real port, with a queue that has something of everything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{DeadLetters, Failures, Running, Verdict, Workers};
use keyqueue::{DefaultHasher, WorkQueue};
use keyqueue_board::{Board, Shown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub(crate) type Queue = WorkQueue<String>;

pub(crate) struct Site {
    pub(crate) queue: Arc<Queue>,
    pub(crate) letters: DeadLetters<String>,
    workers: Option<Running<String, DefaultHasher>>,
    pub(crate) wires: Wires,
    address: String,
}

/// The connections to a service, which can be made to hang, or be cut.
pub(crate) struct Wires {
    address: SocketAddr,
    hang: Arc<AtomicBool>,
    all: JoinHandle<()>,
}

impl Wires {
    async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hang = Arc::new(AtomicBool::new(false));
        let hangs = Arc::clone(&hang);
        let all = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let hangs = Arc::clone(&hangs);
                open.spawn(async move {
                    let mut far = TcpStream::connect(to).await.unwrap();
                    let (mut up, mut down) = (vec![0; 9999], vec![0; 9999]);
                    loop {
                        while hangs.load(Ordering::Relaxed) {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                        let sent = tokio::select! {
                            read = near.read(&mut up) => (read, true),
                            read = far.read(&mut down) => (read, false),
                        };
                        let done = match sent {
                            (Ok(count @ 1..), true) => far.write_all(&up[..count]).await,
                            (Ok(count @ 1..), false) => near.write_all(&down[..count]).await,
                            _ => return,
                        };
                        if done.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Wires { address, hang, all }
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.hang.store(hangs, Ordering::Relaxed);
    }

    pub(crate) fn cut(&self) {
        self.all.abort();
    }
}

impl Site {
    pub(crate) async fn start() -> Self {
        let backoff =
            ItemExponentialFailure::new(Duration::from_secs(600), Duration::from_secs(3600));
        let queue = WorkQueue::builder().name("mails").levels(2);
        let queue =
            queue.group_by(|key: &String| key.split('/').next().unwrap_or_default().to_owned());
        let queue: Arc<Queue> = Arc::new(queue.rate_limiter(backoff.unwrap()).build().unwrap());
        let (letters, failures) = (
            DeadLetters::new(1000).unwrap(),
            Failures::new(1000).unwrap(),
        );
        let workers = Workers::shared(Arc::clone(&queue)).threads(1);
        let workers = workers.dead_letters(&letters).failures(&failures);
        let workers = workers.spawn(|key: &String| match key {
            key if key.contains("bad") => Verdict::GiveUp(format!("no such address: {key}")),
            _ => Verdict::Retry("no route to host".to_owned()),
        });
        let shown = Shown::display(&queue)
            .groups(|group: &String, f| f.write_str(group))
            .dead_letters(&letters)
            .failures(&failures);
        let board = Board::new().allow(|_| Some("operator".into()));
        board.add("mails", shown).unwrap();
        let app = Router::new().nest("/queues", board.router());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wires = Wires::start(listener.local_addr().unwrap()).await;
        let address = format!("http://{}/queues", wires.address);
        tokio::spawn(async move { axum::serve(listener, app).await });
        let site = Site {
            queue,
            letters,
            workers: Some(workers.unwrap()),
            wires,
            address,
        };
        site.queue
            .add_all(["acme/bad-1", "acme/bad-2", "wayne/bad-3", "acme/fails"].map(String::from));
        rig::eventually("all were tried", || {
            site.letters.len() == 3 && site.queue.counts().delayed == 1
        });
        site
    }

    /// Stops the workers, so that what is queued stays queued.
    pub(crate) fn stop_workers(&mut self) {
        if let Some(workers) = self.workers.take() {
            workers.abort();
            workers.join();
        }
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }
}
