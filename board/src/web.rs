//! The routes, and what all requests share.
//!
//! Each page is a view: a function from the board to HTML and to JSON, which is blocking work. A browser gets the page; its
//! script gets the live part of the same address as a stream of events, or once, by the `Accept` header; a program gets JSON.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::extract::{OriginalUri, Query, Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Router, http};
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use keyqueue::Listed;
use maud::Markup;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use tokio::runtime::Handle;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;

use crate::act::act;
use crate::board::lock;
use crate::csrf::{self, Token};
use crate::pages::{self, Problem, Tab, View};
use crate::place::Kind;
use crate::policy::{Action, Asked};
use crate::rows::{Sort, Wanted};
use crate::{Board, events};

/// How long a page looks for keys at most.
pub(crate) const LOOK: Duration = Duration::from_millis(150);

/// The keys or letters on a page of a list.
pub(crate) const ROWS: usize = 50;

/// Only what the board itself serves, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(crate) fn router<St: Clone + Send + Sync + 'static>(board: Board) -> Router<St> {
    Router::new()
        .route("/", page(pages::index::view))
        .route(
            "/board.css",
            asset(
                "text/css; charset=utf-8",
                include_str!("../assets/board.css"),
            ),
        )
        .route(
            "/board.js",
            asset(
                "text/javascript; charset=utf-8",
                include_str!("../assets/board.js"),
            ),
        )
        .route(
            "/board.svg",
            asset("image/svg+xml", include_str!("../assets/board.svg")),
        )
        .route("/f/{fleet}", page(pages::fleet::view))
        .route("/f/{fleet}/dead", page(pages::letters::view))
        .route("/f/{fleet}/dead/{id}", page(pages::letters::one))
        .route("/f/{fleet}/do", post(act))
        .route("/q/{queue}", page(pages::queue::view))
        .route("/q/{queue}/keys", page(pages::keys::view))
        .route("/q/{queue}/key", page(pages::keys::one))
        .route("/q/{queue}/dead", page(pages::letters::view))
        .route("/q/{queue}/dead/{id}", page(pages::letters::one))
        .route("/q/{queue}/do", post(act))
        .fallback(not_found)
        .layer(from_fn_with_state(board.clone(), known_host))
        .layer(map_response(secure))
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(256)))
        .with_state(board)
}

/// What a page is asked for by its address. Each page reads what concerns it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Params {
    pub(crate) state: String,
    pub(crate) search: String,
    pub(crate) sort: String,
    /// How the list is grouped.
    pub(crate) group: String,
    pub(crate) from: String,
    /// Where the pages before this one begin.
    pub(crate) before: String,
    pub(crate) id: String,
    pub(crate) at: String,
    pub(crate) format: String,
    /// The letters that are ticked from the start, as somebody had ticked them before a question.
    pub(crate) ticked: String,
    /// The page loads itself again, for browsers without scripts.
    pub(crate) refresh: String,
}

/// Reads a number, 0 if there is none.
pub(crate) fn number(field: &'static str, text: &str) -> Result<u64, Problem> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            let text = crate::text::cut(text, 60);
            Problem::bad(format!("`{field}` must be a number, but is {text:?}"))
        }),
    }
}

/// A request, as views see it.
pub(crate) struct Context {
    pub(crate) board: Board,
    parts: Parts,
    /// Leads from the page to what is below the board's root, and to its first page.
    pub(crate) root: String,
    pub(crate) home: String,
    pub(crate) token: Token,
    pub(crate) params: Params,
    /// What the page is about.
    pub(crate) kind: Kind,
    /// The mark of what it was found to be about, which its forms name: by now something else may have the name.
    pub(crate) of: Mutex<String>,
    /// What is allowed, by action. A page is about one queue, or one fleet.
    allowed: [OnceLock<bool>; Action::ALL.len()],
}

impl Context {
    pub(crate) fn new(board: Board, parts: Parts, params: Params) -> Result<Self, Problem> {
        let token = Token::of(&parts.headers);
        let why = "The system has no random numbers.";
        let token = token.ok_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why))?;
        let (root, home) = paths(&parts);
        let kind = Kind::of(parts.uri.path());
        Ok(Context {
            board,
            parts,
            root,
            home,
            token,
            params,
            kind,
            of: Mutex::default(),
            allowed: Default::default(),
        })
    }

    /// Returns whether a page shows the button of an action, for which the policy is called once.
    pub(crate) fn may(&self, queue: &str, action: Action) -> bool {
        *self.allowed[action as usize].get_or_init(|| self.who(queue, action).is_some())
    }

    /// Returns who asks for an action, if that is allowed.
    pub(crate) fn who(&self, queue: &str, action: Action) -> Option<String> {
        self.board.who(&Asked {
            action,
            queue,
            request: &self.parts,
        })
    }

    /// Returns the beginning of a query for what this page is about, but for these parameters, to be continued.
    pub(crate) fn query(&self, but_for: &[&str]) -> String {
        let params = &self.params;
        let mut query = String::from("?");
        for (name, value) in [
            ("state", &params.state),
            ("search", &params.search),
            ("sort", &params.sort),
            ("group", &params.group),
            ("from", &params.from),
            ("before", &params.before),
            ("id", &params.id),
            ("at", &params.at),
        ] {
            if !value.is_empty() && !but_for.contains(&name) {
                query.extend([name, "=", &pages::path(value), "&"]);
            }
        }
        query
    }

    /// Returns the rows that a list has, by its address.
    pub(crate) fn wanted(&self, listed: Listed) -> Result<Wanted, Problem> {
        Ok(Wanted {
            listed,
            search: self.params.search.clone(),
            sort: Sort::of(&self.params.sort),
            from: number("from", &self.params.from)?,
            max: ROWS,
            within: LOOK,
        })
    }

    /// Returns a segment of the address; empty if it has none there.
    pub(crate) fn segment(&self, nth: usize) -> String {
        let segment = self.parts.uri.path().split('/').nth(nth);
        let decoded = percent_decode_str(segment.unwrap_or_default()).decode_utf8_lossy();
        decoded.into_owned()
    }

    /// Returns the name in the address of what the page is about.
    pub(crate) fn name(&self) -> String {
        self.segment(2)
    }

    pub(crate) fn tab(&self) -> Tab {
        match self.parts.uri.path().split('/').nth(3) {
            Some("dead") => Tab::Letters,
            Some("keys" | "key") => Tab::Keys,
            _ => Tab::Queue,
        }
    }

    /// Returns where an action leads from here, relative to its address: to this list, with its search and its page, or to
    /// the list that has what this page is about.
    pub(crate) fn back(&self) -> String {
        let mut path = self.parts.uri.path().split('/').skip(3);
        match (path.next(), path.next()) {
            (Some(list @ ("keys" | "dead")), None) => format!("{list}{}", self.query(&[])),
            (Some("key"), _) => "keys".into(),
            (Some("dead"), _) => "dead".into(),
            _ => String::new(),
        }
    }

    /// Returns whether a look waits for servers: at a fleet, or at the first page of a board with fleets.
    pub(crate) fn asks_servers(&self) -> bool {
        let is_first = self.segment(1).is_empty();
        self.kind == Kind::Fleet || is_first && !self.board.fleets().is_empty()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }
}

/// Returns the relative paths from the page to what is below the board's root, and to its first page. They work wherever it
/// is nested. The first page has no slash at its end there, because a nested router would not find it.
fn paths(parts: &Parts) -> (String, String) {
    let inner = parts.uri.path();
    let original = parts.extensions.get::<OriginalUri>();
    let original = original.map_or(inner, |uri| uri.path());
    let is_first = inner.trim_matches('/').is_empty();
    let prefix = match is_first {
        true => original,
        false => original.strip_suffix(inner).unwrap_or_default(),
    };
    let last = prefix.rsplit('/').next().unwrap_or_default();
    let up = "../".repeat(inner.trim_matches('/').matches('/').count());
    match (is_first, last) {
        (true, "") => ("./".into(), "./".into()),
        (true, last) => (format!("./{last}/"), format!("./{last}")),
        (false, "") => (format!("./{up}"), format!("./{up}")),
        (false, last) => (format!("./{up}"), format!("./{up}../{last}")),
    }
}

/// In which form a page is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Page,
    Json,
    /// The live part, once.
    Live,
    Stream,
}

fn form(headers: &HeaderMap, params: &Params) -> Form {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    match accept.unwrap_or_default() {
        accept if accept.contains("text/event-stream") => Form::Stream,
        accept if accept.contains("text/x-live") => Form::Live,
        accept if accept.contains("application/json") || params.format == "json" => Form::Json,
        _ => Form::Page,
    }
}

pub(crate) fn wants_json(headers: &HeaderMap) -> bool {
    form(headers, &Params::default()) == Form::Json
}

/// Runs what may take a while where it does not hold up the runtime. `None` if it panics.
pub(crate) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    match Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.ok(),
        Err(_) => Some(work()),
    }
}

/// Responds with a view, in the form that is wanted.
async fn respond(
    board: Board,
    parts: Parts,
    view: impl Fn(&Context) -> Result<View, Problem> + Send + Sync + 'static,
) -> Response {
    let params = Query::try_from_uri(&parts.uri).map(|Query(params): Query<Params>| params);
    let (params, wrong) = match params {
        Ok(params) => (params, None),
        Err(wrong) => (Params::default(), Some(Problem::bad(wrong.body_text()))),
    };
    let form = form(&parts.headers, &params);
    let context = match Context::new(board, parts, params) {
        Ok(context) => Arc::new(context),
        Err(problem) => return problem.into_response(),
    };
    let view = move |at: &Context| wrong.clone().map_or_else(|| view(at), Err);
    if form == Form::Stream {
        return events::stream(context, view);
    }
    let seen = Arc::clone(&context);
    let response = blocking(move || {
        let view = match view(&seen) {
            Ok(view) => view,
            Err(problem) if form == Form::Json => return problem.json(),
            Err(problem) if form == Form::Live => return live(problem.note()),
            Err(problem) => return problem.page(&seen, None),
        };
        match form {
            Form::Json => Json(view.json).into_response(),
            Form::Live => live(view.live),
            Form::Page | Form::Stream => {
                Html(pages::page(&seen, &view).into_string()).into_response()
            }
        }
    });
    let mut response = response
        .await
        .unwrap_or_else(|| Problem::panicked().into_response());
    if form == Form::Page
        && context.token.is_new
        && let Some(cookie) = context.token.cookie(context.headers())
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// A live part, in a form that no page of somebody else has.
fn live(part: Markup) -> Response {
    let kind = (header::CONTENT_TYPE, "text/x-live; charset=utf-8");
    ([kind], part.into_string()).into_response()
}

/// A page, by its view of what the address names.
fn page(view: fn(&Context, &str) -> Result<View, Problem>) -> MethodRouter<Board> {
    get(async move |State(board): State<Board>, parts: Parts| {
        respond(board, parts, move |at| view(at, &at.name())).await
    })
}

async fn not_found(State(board): State<Board>, parts: Parts) -> Response {
    // With a slash at its end, if the board is nested as a service.
    let is_first = parts.uri.path().trim_matches('/').is_empty();
    let view = match is_first && parts.method == http::Method::GET {
        true => pages::index::view,
        false => |_: &Context, _: &str| {
            Err(Problem::new(
                StatusCode::NOT_FOUND,
                "There is no such page.",
            ))
        },
    };
    respond(board, parts, move |at| view(at, "")).await
}

fn asset(kind: &'static str, text: &'static str) -> MethodRouter<Board> {
    get(async move || ([(header::CONTENT_TYPE, kind)], text))
}

/// Refuses requests that call this service by a name that is not its own.
async fn known_host(State(board): State<Board>, request: Request, next: Next) -> Response {
    let original = request.extensions().get::<OriginalUri>();
    let uri = original.map_or(request.uri(), |uri| uri);
    let stranger = csrf::stranger(request.headers(), uri, &lock(&board.0.hosts));
    match stranger.map(Problem::stranger) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// Sets the headers that all responses have.
async fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (header::VARY, "accept, accept-encoding, cookie"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
