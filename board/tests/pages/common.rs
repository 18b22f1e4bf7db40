//! A board with a queue that has something of everything, and requests to it without a network.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{DeadLetters, Failures, Job, Verdict, Workers};
use keyqueue::{Builder, WorkQueue};
use keyqueue_board::{Action, Board, Shown};
use serde_json::Value;
use tower::ServiceExt;

pub(crate) type Key = String;
pub(crate) type Queue = WorkQueue<Key>;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A queue with its dead letters and failures, on a board where `x-user: alice` may do everything and `bob` may put back.
pub(crate) struct Site {
    pub(crate) queue: Option<Arc<Queue>>,
    pub(crate) letters: DeadLetters<Key>,
    pub(crate) failures: Failures<Key>,
    pub(crate) board: Board,
    pub(crate) app: Router,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    async fn of(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let (status, headers) = (parts.status, parts.headers);
        Answer {
            status,
            headers,
            text,
        }
    }

    /// Asserts that it has each of these texts: `one | another`.
    #[track_caller]
    pub(crate) fn has(&self, texts: &str) {
        for text in texts.split(" | ") {
            assert!(self.text.contains(text), "{text:?} is not in {}", self.text);
        }
    }

    #[track_caller]
    pub(crate) fn lacks(&self, texts: &str) {
        for text in texts.split(" | ") {
            assert!(!self.text.contains(text), "{text:?} is in {}", self.text);
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn next(&self) -> &str {
        self.headers
            .get(LOCATION)
            .map_or("", |next| next.to_str().unwrap())
    }
}

/// The group of a key: what is before the slash.
pub(crate) fn group(key: &Key) -> String {
    key.split('/').next().unwrap_or_default().to_owned()
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder.name("mails").levels(2).group_by(group))
    }

    pub(crate) fn with(set: impl FnOnce(Builder<Key>) -> Builder<Key>) -> Self {
        let backoff = ItemExponentialFailure::new(Duration::from_secs(600), HOUR).unwrap();
        let builder = set(WorkQueue::builder()).rate_limiter(backoff);
        let queue = Arc::new(builder.build().unwrap());
        let letters = DeadLetters::new(100_000).unwrap();
        let failures = Failures::new(1000).unwrap();
        let shown = Shown::display(&queue)
            .groups(|group: &String, f| f.write_str(group))
            .dead_letters(&letters)
            .failures(&failures);
        let board = Board::new().allow(|asked| {
            let user = asked.request.headers.get("x-user")?.to_str().ok()?;
            let may = user == "alice" || (user == "bob" && asked.action == Action::PutBack);
            may.then(|| user.to_owned())
        });
        board.add("mails", shown).unwrap();
        let app = Router::new().nest("/queues", board.router());
        Site {
            queue: Some(queue),
            letters,
            failures,
            board,
            app,
        }
    }

    /// The same with the pages of another board.
    pub(crate) fn of(board: &Board) -> Self {
        let app = Router::new().nest("/queues", board.router());
        Site { app, ..Self::new() }
    }

    pub(crate) fn queue(&self) -> &Queue {
        self.queue.as_ref().unwrap()
    }

    /// Works until nothing is queued: keys with `bad` are given up, those with `fail` fail.
    pub(crate) async fn work(&self) {
        let workers = Workers::new(self.queue())
            .concurrency(1)
            .dead_letters(&self.letters);
        let run = workers
            .failures(&self.failures)
            .run_async(async |job: Job<'_, Key>| match job.key() {
                key if key.contains("bad") => Verdict::GiveUp(format!("no such address: {key}")),
                key if key.contains("fail") => Verdict::Retry("no route to host".to_owned()),
                _ => Verdict::Ok(Default::default()),
            });
        let idle = async {
            while !self.queue().is_empty() || self.queue().counts().processing > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = run => {}
            () = idle => {}
        }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        Answer::of(self.app.clone().oneshot(request).await.unwrap()).await
    }

    /// Asks for a page with these headers.
    pub(crate) async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        self.app.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        Answer::of(self.ask(path, headers).await).await
    }

    /// Returns the id of the letter with this number, from the list at this path.
    pub(crate) async fn id(&self, list: &str, number: &str) -> String {
        let list = format!("{list}?format=json&from={number}");
        let letters = self.get_with(&list, &[]).await;
        let id = letters
            .status
            .is_success()
            .then(|| letters.json()["rows"][0]["id"].clone());
        match id.as_ref().and_then(|id| id.as_str()) {
            Some(id) if id.starts_with(&format!("{number}-")) => id.to_owned(),
            _ => format!("{number}-0"),
        }
    }

    /// Opens a live page.
    pub(crate) async fn stream(&self, path: &str, encoding: &str) -> Response<Body> {
        let accept = ("accept", "text/event-stream");
        let headers = [accept, ("accept-encoding", encoding)];
        self.ask(path, &headers).await
    }

    /// A path that ends with the number of a letter gets its id.
    pub(crate) async fn get_as(&self, user: &str, path: &str) -> Answer {
        let path = match path.rsplit_once("/dead/") {
            Some((place, number)) if number.parse::<u64>().is_ok() => {
                let list = format!("{place}/dead");
                format!("{list}/{}", self.id(&list, number).await)
            }
            _ => path.to_owned(),
        };
        self.get_with(&path, &[("x-user", user)]).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.get_as("", path).await
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let response = self.get_with(path, &[("accept", "application/json")]).await;
        assert_eq!(response.status, StatusCode::OK, "{}", response.text);
        response.json()
    }

    /// Posts what `a=1&b=2` says, without its encoding, and does what is asked for once more. The number of a letter becomes its id.
    pub(crate) async fn post_as(&self, user: &str, fields: &str) -> Answer {
        self.sure("/queues/q/mails/do", user, fields).await
    }

    pub(crate) async fn sure(&self, path: &str, user: &str, fields: &str) -> Answer {
        let list = format!("{}dead", path.strip_suffix("do").unwrap());
        let mut all = vec![("sure", "1".to_owned())];
        for (name, value) in fields.split('&').filter_map(|field| field.split_once('=')) {
            let is_number = name == "letter" && value.parse::<u64>().is_ok();
            let value = match is_number {
                true => self.id(&list, value).await,
                false => value.to_owned(),
            };
            all.push((name, value));
        }
        let fields: Vec<_> = all.iter().map(|(name, value)| (*name, &**value)).collect();
        self.post_to(path, user, &fields).await
    }

    /// Posts a form as a browser does that has loaded a page before.
    pub(crate) async fn post_to(&self, path: &str, user: &str, fields: &[(&str, &str)]) -> Answer {
        let page = self.get_as(user, "/queues").await;
        let cookie = page.headers[SET_COOKIE].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap();
        let token = cookie.split_once('=').unwrap().1;
        let fields: Vec<_> = [("token", token)].iter().chain(fields).copied().collect();
        let request = Request::post(path)
            .header("x-user", user)
            .header(COOKIE, cookie)
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/x-www-form-urlencoded");
        self.send(request.body(form(&fields)).unwrap()).await
    }

    /// Returns the id of the first key of a list, and where it is.
    pub(crate) async fn key_of(&self, state: &str) -> (String, String) {
        let keys = format!("/queues/q/mails/keys?state={state}");
        let row = &self.json(&keys).await["rows"][0];
        let id = row["id"].as_str().unwrap().to_owned();
        (id, row["at"].to_string())
    }

    /// Returns the keys of all pages of a list, and checks that no page has more than `most`.
    pub(crate) async fn all(&self, list: &str, most: usize) -> Vec<String> {
        let (mut from, mut seen) = (Some(0), Vec::new());
        while let Some(next) = from {
            let page = self
                .json(&format!("/queues/q/mails/{list}from={next}"))
                .await;
            let keys = listed(&page);
            assert!(keys.len() <= most);
            seen.extend(keys);
            from = page["next"].as_u64();
        }
        seen
    }

    pub(crate) async fn post(&self, fields: &str) -> Answer {
        self.post_as("alice", fields).await
    }
}

/// Returns the next event of a live page.
pub(crate) async fn event(body: &mut Body) -> Answer {
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(frame.to_vec()).unwrap();
    let (status, headers) = Default::default();
    Answer {
        status,
        headers,
        text,
    }
}

/// Returns the keys of a list, in its order.
pub(crate) fn listed(list: &Value) -> Vec<String> {
    let rows = list["rows"].as_array().unwrap().iter();
    rows.map(|row| row["key"].as_str().unwrap().to_owned())
        .collect()
}

/// Asserts that an object has these fields.
#[track_caller]
pub(crate) fn assert_has(json: &Value, fields: &Value) {
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(&json[name], value, "{name} of {json}");
    }
}

pub(crate) fn form(fields: &[(&str, &str)]) -> Body {
    let encoded = |text: &str| {
        let bytes = text.bytes().map(|byte| format!("%{byte:02X}"));
        bytes.collect::<String>()
    };
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)));
    Body::from(fields.collect::<Vec<_>>().join("&"))
}
