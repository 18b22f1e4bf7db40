//! An API server of a few objects, in this process.
//!
//! It stores JSON, gives each write a version, and has lists and watches of them. Events that
//! happened since the version that a watch begins at are replayed, as by a real one. It can lose
//! the watches with changes behind their backs, and fail requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::client::Body;
use kube_client::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc;

type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    /// By kind and name.
    objects: BTreeMap<(String, String), Value>,
    /// What watches replay: version, kind, line.
    log: Vec<(u64, String, String)>,
    watches: Vec<(String, mpsc::UnboundedSender<String>)>,
    /// How many requests fail from now on.
    failing: usize,
    /// All requests are refused.
    is_forbidden: bool,
    /// Lists have a second page, which fails.
    breaks_lists: bool,
    /// Requests wait until this is false again.
    is_down: bool,
    /// How long the reply to a write takes after it has been applied.
    reply_time: Duration,
    /// How long a write takes before it is applied, also if its client is gone.
    write_time: Duration,
}

pub(crate) const MAPS: &str = "configmaps";
pub(crate) const SECRETS: &str = "secrets";
pub(crate) const LEASES: &str = "leases";

impl Server {
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        Client::new(service, "default")
    }

    pub(crate) fn maps(&self) -> Api<ConfigMap> {
        Api::all(self.client())
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::all(self.client())
    }

    /// Creates or changes a config map of the namespace `default`. Returns its version.
    pub(crate) fn put(&self, name: &str) -> u64 {
        self.put_in("default", name)
    }

    pub(crate) fn put_all(&self, names: &[&str]) {
        for name in names {
            self.put(name);
        }
    }

    pub(crate) fn put_in(&self, namespace: &str, name: &str) -> u64 {
        let metadata = json!({ "name": name, "namespace": namespace });
        self.write(MAPS, json!({ "metadata": metadata }))
    }

    /// Creates or changes a secret that a config map owns.
    pub(crate) fn put_owned(&self, name: &str, owner: &str) -> u64 {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner});
        let metadata = json!({"name": name, "namespace": "default", "ownerReferences": [owner]});
        self.write(SECRETS, json!({ "metadata": metadata }))
    }

    pub(crate) fn write(&self, kind: &str, object: Value) -> u64 {
        let mut state = self.state();
        state.write(kind, object);
        state.version
    }

    pub(crate) fn delete(&self, kind: &str, name: &str) {
        self.state().delete(kind, name);
    }

    /// Runs `change` while no watch of the kind sees it, then ends these watches with "410 Gone".
    pub(crate) fn behind_the_watches(&self, kind: &str, change: impl FnOnce()) {
        let mut state = self.state();
        let all = std::mem::take(&mut state.watches);
        let (watches, others) = all.into_iter().partition(|(watched, _)| watched == kind);
        state.watches = others;
        drop(state);
        let watches: Vec<_> = watches;
        change();
        let mut state = self.state();
        state.log.clear();
        let gone = error_line(410, "Expired", "too old resource version");
        for (_, watch) in watches {
            // The watcher may have been dropped.
            let _ = watch.send(gone.clone());
        }
    }

    /// Reports an error to the watches of the kind, which go on.
    pub(crate) fn disturb(&self, kind: &str) {
        let error = error_line(500, "InternalError", "disturbed");
        for (_, watch) in self
            .state()
            .watches
            .iter()
            .filter(|(watched, _)| watched == kind)
        {
            // The watcher may have been dropped.
            let _ = watch.send(error.clone());
        }
    }

    /// Fails the next requests.
    pub(crate) fn fail(&self, requests: usize) {
        self.state().failing = requests;
    }

    /// Refuses all requests from now on, as after the role was deleted.
    pub(crate) fn forbid(&self) {
        self.state().is_forbidden = true;
    }

    /// From now on the first page of each list arrives, and the second one fails.
    pub(crate) fn break_lists(&self) {
        self.state().breaks_lists = true;
    }

    /// Keeps requests waiting, or not.
    pub(crate) fn down(&self, is_down: bool) {
        self.state().is_down = is_down;
    }

    /// Sets how long the reply to a write takes after it has been applied.
    pub(crate) fn reply_after(&self, time: Duration) {
        self.state().reply_time = time;
    }

    /// Sets how long a write takes before it is applied, also if its client is gone.
    pub(crate) fn apply_after(&self, time: Duration) {
        self.state().write_time = time;
    }

    pub(crate) fn object(&self, kind: &str, name: &str) -> Option<Value> {
        let key = (kind.to_owned(), name.to_owned());
        self.state().objects.get(&key).cloned()
    }

    /// Returns the number of open watches.
    pub(crate) fn watches(&self) -> usize {
        let mut state = self.state();
        state.watches.retain(|(_, watch)| !watch.is_closed());
        state.watches.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    async fn respond(&self, request: Request<Body>) -> Response<StreamBody<Frames>> {
        let (parts, body) = request.into_parts();
        while self.state().is_down {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let body = body.collect().await.expect("a body in memory").to_bytes();
        let path: Vec<_> = parts
            .uri
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        let query = parts.uri.query().unwrap_or("");
        let kinds = [MAPS, SECRETS, LEASES];
        let at = path
            .iter()
            .position(|part| kinds.contains(part))
            .expect("a known kind");
        let (kind, name) = (path[at], path.get(at + 1).copied());
        let is_write = matches!(parts.method, Method::POST | Method::PUT);
        let (reply_time, write_time) = {
            let state = self.state();
            (state.reply_time, state.write_time)
        };
        if is_write && !write_time.is_zero() {
            let (server, method) = (self.clone(), parts.method.clone());
            let (kind, name) = (kind.to_owned(), name.map(str::to_owned));
            let written = tokio::spawn(async move {
                tokio::time::sleep(write_time).await;
                server.reply(&method, &kind, name.as_deref(), "", &body)
            });
            return written.await.expect("it is written");
        }
        let response = self.reply(&parts.method, kind, name, query, &body);
        if is_write {
            tokio::time::sleep(reply_time).await;
        }
        response
    }

    fn reply(
        &self,
        method: &Method,
        kind: &str,
        name: Option<&str>,
        query: &str,
        body: &[u8],
    ) -> Response<StreamBody<Frames>> {
        let mut state = self.state();
        if state.failing > 0 {
            state.failing -= 1;
            return failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
        }
        if state.is_forbidden {
            return failure(StatusCode::FORBIDDEN, "Forbidden");
        }
        match (method, name) {
            (&Method::GET, None) if query.contains("watch=true") => state.watch(kind, query),
            (&Method::GET, None) if query.contains("continue=") => {
                failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
            }
            (&Method::GET, None) => state.list(kind),
            (&Method::GET, Some(name)) => match state.objects.get(&(kind.into(), name.into())) {
                Some(object) => whole(StatusCode::OK, object),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            },
            (&Method::POST | &Method::PUT, _) => {
                let object: Value = serde_json::from_slice(body).expect("JSON");
                state.write_if_unchanged(kind, object)
            }
            (method, _) => panic!("{method} is not played"),
        }
    }
}

impl State {
    fn write(&mut self, kind: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let (api_version, singular) = match kind {
            MAPS => ("v1", "ConfigMap"),
            SECRETS => ("v1", "Secret"),
            _ => ("coordination.k8s.io/v1", "Lease"),
        };
        object["apiVersion"] = api_version.into();
        object["kind"] = singular.into();
        let name = object["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        let known = self.objects.insert((kind.to_owned(), name), object.clone());
        let event = if known.is_some() { "MODIFIED" } else { "ADDED" };
        self.event(kind, event, &object);
        object
    }

    fn write_if_unchanged(&mut self, kind: &str, object: Value) -> Response<StreamBody<Frames>> {
        let name = object["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        let known = self.objects.get(&(kind.to_owned(), name));
        let version = known.map(|known| known["metadata"]["resourceVersion"].clone());
        if version.unwrap_or(Value::Null) != object["metadata"]["resourceVersion"] {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
        whole(StatusCode::OK, &self.write(kind, object))
    }

    fn delete(&mut self, kind: &str, name: &str) {
        let object = self.objects.remove(&(kind.to_owned(), name.to_owned()));
        self.version += 1;
        self.event(kind, "DELETED", &object.expect("it exists"));
    }

    fn event(&mut self, kind: &str, event: &str, object: &Value) {
        let line = format!("{}\n", json!({ "type": event, "object": object }));
        self.log.push((self.version, kind.to_owned(), line.clone()));
        for (_, watch) in self.watches.iter().filter(|(watched, _)| watched == kind) {
            // The watcher may have been dropped.
            let _ = watch.send(line.clone());
        }
    }

    fn list(&self, kind: &str) -> Response<StreamBody<Frames>> {
        let items = self
            .objects
            .iter()
            .filter(|((listed, _), _)| listed == kind);
        let items: Vec<_> = items.map(|(_, object)| object).collect();
        let next = if self.breaks_lists { "next" } else { "" };
        let metadata = json!({ "resourceVersion": self.version.to_string(), "continue": next });
        let list =
            json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items});
        whole(StatusCode::OK, &list)
    }

    fn watch(&mut self, kind: &str, query: &str) -> Response<StreamBody<Frames>> {
        let since = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="));
        let since: u64 = since.expect("a version").parse().expect("a number");
        let (sender, receiver) = mpsc::unbounded_channel();
        for (version, logged, line) in &self.log {
            if *version > since && logged == kind {
                sender.send(line.clone()).expect("the receiver is here");
            }
        }
        self.watches.push((kind.to_owned(), sender));
        let lines = stream::unfold(receiver, async |mut receiver| {
            let line: String = receiver.recv().await?;
            Some((Ok(Frame::data(line.into())), receiver))
        });
        Response::new(StreamBody::new(lines.boxed()))
    }
}

/// The line of a watch that reports an error.
fn error_line(code: u16, reason: &str, message: &str) -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    format!("{}\n", json!({ "type": "ERROR", "object": status }))
}

fn whole(status: StatusCode, body: &Value) -> Response<StreamBody<Frames>> {
    let frame = Ok(Frame::data(body.to_string().into()));
    let body = StreamBody::new(stream::iter([frame]).boxed());
    Response::builder()
        .status(status)
        .body(body)
        .expect("a response")
}

fn failure(status: StatusCode, reason: &str) -> Response<StreamBody<Frames>> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": status.as_u16(),
    });
    whole(status, &body)
}
