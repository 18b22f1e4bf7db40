//! A board on a real port, with a queue that has something of everything.

use std::convert::Infallible;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::middleware::map_response;
use axum::response::Response;
use futures_util::stream::pending;
use keyqueue::worker::{DeadLetters, Job, Running, Verdict, Workers};
use keyqueue_board::Shown;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::common;

pub(crate) struct Site {
    pub(crate) queue: Arc<common::Queue>,
    pub(crate) letters: DeadLetters<String>,
    workers: Option<Running<String>>,
    pub(crate) server: Server,
    /// While this is locked, the server does not get on with a page that has groups.
    pub(crate) hang: Arc<Mutex<()>>,
    /// While this is set, what is between the server and the browser passes on that a stream begins, and nothing of it.
    pub(crate) keeps_streams: Arc<AtomicBool>,
    address: String,
}

/// The runtime of a service, with its connections.
pub(crate) struct Server(Option<Runtime>);

impl Server {
    /// Ends it in the midst of all.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Site {
    pub(crate) async fn start() -> Self {
        let site = common::Site::new();
        let (queue, letters) = (site.queue.unwrap(), site.letters);
        let workers = Workers::new(&queue).concurrency(1);
        let workers = workers.dead_letters(&letters).failures(&site.failures);
        let workers = workers.spawn(|job: Job<'_, String>| match job.key() {
            key if key.contains("bad") => Verdict::GiveUp(format!("no such address: {key}")),
            _ => Verdict::Retry("no route to host".to_owned()),
        });
        let hang = Arc::new(Mutex::default());
        let hangs = Arc::clone(&hang);
        let shown = Shown::display(&queue).groups(move |group: &String, f| {
            let _waits = hangs.lock();
            f.write_str(group)
        });
        let board = site.board.allow(|_| Some("operator".into()));
        board.remove("mails");
        let shown = shown.dead_letters(&letters).failures(&site.failures);
        board.add("mails", shown).unwrap();
        let keeps_streams = Arc::new(AtomicBool::new(false));
        let keeps = Arc::clone(&keeps_streams);
        let between = map_response(move |response: Response| {
            let kind = response.headers().get("content-type");
            let is_stream = kind.is_some_and(|kind| kind == "text/event-stream");
            ready(match is_stream && keeps.load(Ordering::SeqCst) {
                true => response.map(|_| Body::from_stream(pending::<Result<Bytes, Infallible>>())),
                false => response,
            })
        });
        let app = Router::new().nest("/queues", board.router()).layer(between);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/queues", listener.local_addr().unwrap());
        let listener = listener.into_std().unwrap();
        let server = Runtime::new().unwrap();
        server.spawn(async { axum::serve(TcpListener::from_std(listener)?, app).await });
        let site = Site {
            queue,
            letters,
            workers: Some(workers.unwrap()),
            server: Server(Some(server)),
            hang,
            keeps_streams,
            address,
        };
        // So that the groups take turns.
        site.queue.pause().unwrap();
        site.queue
            .add_all(["acme/bad-1", "acme/bad-2", "wayne/bad-3", "acme/fails"].map(String::from));
        site.queue.resume();
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
