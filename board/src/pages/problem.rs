//! What is shown instead of a page.

use axum::response::{Html, IntoResponse, Json, Response};
use http::StatusCode;
use maud::{Markup, html};

use super::{View, page};
use crate::place::Kind;
use crate::source::Refused;
use crate::text;
use crate::web::Context;

/// Why there is no page, or nothing was done.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    text: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let text = text.into();
        Problem { status, text }
    }

    pub(crate) fn bad(text: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(crate) fn forbidden(why: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, format!("Refused: {why}."))
    }

    pub(crate) fn stranger(host: &str) -> Self {
        let host = text::cut(host, text::IN_TABLE);
        let text = format!(
            "Refused: this board does not know the name {host:?}. `Board::hosts` tells it its names; IP addresses and localhost need none."
        );
        Self::new(StatusCode::MISDIRECTED_REQUEST, text)
    }

    pub(crate) fn not_on_board(kind: Kind, name: &str) -> Self {
        let (kind, name) = (kind.name(), text::cut(name, text::IN_TABLE));
        let text = format!("There is no {kind} {name:?} on the board.");
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// Whether what the page is about is still there, and may be shown later.
    pub(crate) fn is_passing(&self) -> bool {
        self.status == StatusCode::BAD_GATEWAY
    }

    pub(crate) fn panicked() -> Self {
        let text = "The board has failed, probably in a function that it was given.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    pub(crate) fn no_live_page(why: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    pub(crate) fn json(self) -> Response {
        let body = Json(serde_json::json!({ "error": self.text }));
        (self.status, body).into_response()
    }

    pub(crate) fn note(&self) -> Markup {
        html! { p.note.bad role="alert" { (self.text) } }
    }

    /// Returns the page, with a link back if something was refused there.
    pub(crate) fn page(self, at: &Context, back: Option<&str>) -> Response {
        let title = self
            .status
            .canonical_reason()
            .unwrap_or("Problem")
            .to_owned();
        // A live page shows the problem until its next update finds it gone. The answer to a form is no live page.
        let (still, live) = match self.is_passing() && back.is_none() {
            true => (html! {}, self.note()),
            false => (self.note(), html! {}),
        };
        let still =
            html! { (still) @if let Some(back) = back { p { a href=(back) { "Go back" } } } };
        // Not the heading of the problem, which would be there when that has passed.
        let title = if self.is_passing() { at.name() } else { title };
        let view = View {
            has_tabs: self.is_passing(),
            still,
            live,
            ..View::of(at, title)
        };
        (self.status, Html(page(at, &view).into_string())).into_response()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, self.text).into_response()
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let status = match &refused {
            Refused::Gone => StatusCode::GONE,
            Refused::NoKey | Refused::NoLetter(_) | Refused::NoLetters | Refused::NoGroup => {
                StatusCode::NOT_FOUND
            }
            Refused::NoThread(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refused::Server(_) | Refused::Perhaps(_) => StatusCode::BAD_GATEWAY,
            _ => StatusCode::CONFLICT,
        };
        let text = match &refused {
            Refused::Perhaps(why) => format!("Perhaps done: {why}. Look at the list again."),
            _ => format!("Refused: {refused}."),
        };
        Problem::new(status, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // X5
    fn what_is_perhaps_done_is_not_said_to_be_refused() {
        let problem = Problem::from(Refused::Perhaps("no response".into()));
        assert_eq!(
            problem.text,
            "Perhaps done: no response. Look at the list again."
        );
        assert_eq!(
            Problem::from(Refused::Stopped).text,
            "Refused: it was stopped."
        );
    }
}
