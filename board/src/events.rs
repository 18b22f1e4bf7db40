//! Live pages: the live part of a view, again and again, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

use crate::pages::{Problem, View};
use crate::web::{Context, blocking};

/// The most live pages that are open at a time. Further ones ask now and then instead.
const VIEWERS: usize = 64;
const INTERVAL: Duration = Duration::from_secs(1);
/// After this time a page that has not changed says so, and one that is not looked at says that the server is there: proxies
/// end connections that are silent, and the page says when it is old.
const SILENCE: Duration = Duration::from_secs(5);
/// A live page takes at most one part in this many of a processor's time, and so do looks at all keys of a queue, unless they would
/// be older than [`STALE`].
pub(crate) const SHARE: u32 = 150;
/// What was found is shown for no longer than this.
pub(crate) const STALE: Duration = Duration::from_secs(30);
/// What a look is taken to need at first. It is taken to need twice as long as before at most, so that one that other threads
/// have held up does not count as work.
pub(crate) const FIRST: Duration = Duration::from_millis(10);

/// Returns how long a live page waits until it looks again.
fn pause(asks_servers: bool, usual: Duration) -> Duration {
    match asks_servers {
        false => INTERVAL.max((usual * SHARE).min(STALE)),
        // A look waits for the server, so its time says nothing about the work. A page of letters may have megabytes.
        true => 5 * INTERVAL,
    }
}

/// Returns the parts of a page before and after its pictures.
fn without_pictures(html: &str) -> (&str, &str) {
    let (before, rest) = html.split_once("<figure").unwrap_or((html, ""));
    (before, rest.rsplit("</figure>").next().unwrap_or_default())
}

/// Responds with a stream that ends when the browser leaves, or when there is nothing to see any more.
pub(crate) fn stream(
    context: Arc<Context>,
    view: impl Fn(&Context) -> Result<View, Problem> + Send + Sync + 'static,
) -> Response {
    let viewers = &context.board.0.viewers;
    let viewers = viewers.get_or_init(|| Arc::new(Semaphore::new(VIEWERS)));
    let Ok(viewer) = Arc::clone(viewers).try_acquire_owned() else {
        return Problem::no_live_page("Too many live pages are open.").into_response();
    };
    let Ok(runtime) = Handle::try_current() else {
        return Problem::no_live_page("Live pages need a tokio runtime.").into_response();
    };
    let (to, mut events) = mpsc::channel(1);
    let view = Arc::new(view);
    let mut closed = context.board.0.closed.subscribe();
    let looks = async move {
        let _viewer = viewer;
        let (mut before, mut sent) = (String::new(), Instant::now());
        let mut usual = FIRST;
        loop {
            let (at, view) = (Arc::clone(&context), Arc::clone(&view));
            let began = Instant::now();
            let seen = blocking(move || view(&at).map(|view| view.live.into_string())).await;
            usual = began.elapsed().min(2 * usual);
            let (name, html) = match seen {
                Some(Ok(html)) => ("live", html),
                Some(Err(problem)) if problem.is_passing() => {
                    ("live", problem.note().into_string())
                }
                // What the page was about is gone.
                Some(Err(problem)) => ("end", problem.note().into_string()),
                None => ("end", Problem::panicked().note().into_string()),
            };
            let is_same = html == before;
            // The pictures move each second, also those of an idle queue.
            let is_quiet = is_same || without_pictures(&html) == without_pictures(&before);
            if !is_quiet || sent.elapsed() >= SILENCE {
                let event = match is_same {
                    true => Ok(Event::default().event("same").data("-")),
                    false => Event::default().event(name).json_data(&html),
                };
                let Ok(event) = event else { break };
                if to.send(event).await.is_err() {
                    break;
                }
                (before, sent) = (html, Instant::now());
            }
            if name == "end" {
                break;
            }
            let mut left = pause(context.asks_servers(), usual);
            while !left.is_zero() {
                let step = left.min(SILENCE);
                tokio::select! {
                    () = tokio::time::sleep(step) => left -= step,
                    () = to.closed() => return,
                }
                let beat = Event::default().event("beat").data("-");
                if !left.is_zero() && to.send(beat).await.is_err() {
                    return;
                }
            }
        }
    };
    runtime.spawn(async move {
        tokio::select! {
            biased;
            () = looks => {}
            _ = closed.wait_for(|closed| *closed) => {}
        }
    });
    let events = stream::poll_fn(move |context| {
        let event = events.poll_recv(context);
        event.map(|event| event.map(Ok::<_, Infallible>))
    });
    Sse::new(events).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // X6
    fn a_live_page_is_never_older_than_what_is_shown_may_be() {
        let looks = [1, 100, 1000].map(Duration::from_millis);
        assert_eq!(
            looks.map(|took| pause(false, took)),
            [1, 15, 30].map(Duration::from_secs)
        );
    }
}
