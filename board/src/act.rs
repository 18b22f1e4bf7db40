//! Actions: a post of a form, checked, done, and written to the log.

use std::time::Duration;

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path, State};
use axum::response::{IntoResponse, Json, Response};
use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use crate::pages::{Problem, path};
use crate::policy::Action;
use crate::source::{Done, KeyId, Task, Which};
use crate::text;
use crate::web::{Context, Params, blocking, number, wants_json};
use crate::{Board, csrf};

/// How long an action on all that match may take.
const ALL: Duration = Duration::from_secs(2);
/// The longest hold from a board: a day.
const LONGEST_HOLD: u64 = 24 * 3600;

/// The fields of all forms. Each action reads its own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Fields {
    action: String,
    token: String,
    /// Of a key or a group.
    id: String,
    at: String,
    letter: String,
    /// Present if all letters that match are meant.
    all: String,
    search: String,
    seconds: String,
    /// The page to go back to.
    back: String,
}

impl Fields {
    fn task(&self, action: Action) -> Result<Task, Problem> {
        let which = || match &*self.all {
            "" if self.letter.is_empty() => Err(Problem::bad(
                "`letter` must be the number of a dead letter, or `all` set, but both are empty"
                    .into(),
            )),
            "" => Ok(Which::One(number("letter", &self.letter)?)),
            _ => Ok(Which::All(self.search.clone(), ALL)),
        };
        let key = || -> Result<KeyId, Problem> {
            let at = number("at", &self.at)?;
            let id = self.id.clone();
            Ok(KeyId { id, at })
        };
        Ok(match action {
            Action::PutBack => Task::PutBack(which()?),
            Action::DropLetter => Task::DropLetter(which()?),
            Action::RunNow => Task::RunNow(key()?),
            Action::DropKey => Task::DropKey(key()?),
            Action::HoldGroup => {
                let seconds = number("seconds", &self.seconds)?;
                if !(1..=LONGEST_HOLD).contains(&seconds) {
                    return Err(Problem::bad(format!(
                        "`seconds` must be between 1 and {LONGEST_HOLD}, but is {seconds}"
                    )));
                }
                Task::Hold(self.id.clone(), Duration::from_secs(seconds))
            }
            Action::ReleaseGroup => Task::Hold(self.id.clone(), Duration::ZERO),
            Action::Pause => Task::Pause,
            Action::Resume => Task::Resume,
            Action::Drain => Task::Drain,
        })
    }

    /// Returns where a browser goes next, relative to this address.
    fn next(&self, queue: &str, action: Action, done: &Done) -> String {
        let back = match &*self.back {
            "keys" => "keys".into(),
            "dead" => "dead".into(),
            _ => format!("../{}", path(queue)),
        };
        let partial = if done.is_partial { "&partial=1" } else { "" };
        let search = match &*self.search {
            "" => String::new(),
            search => format!("&search={}", path(search)),
        };
        let state = match &*self.back {
            "keys" => "&state=delayed",
            _ => "",
        };
        format!(
            "{back}?said={action}&count={}{partial}{search}{state}",
            done.count
        )
    }
}

/// Does what a form asks for.
pub(crate) async fn act(
    State(board): State<Board>,
    Path(name): Path<String>,
    parts: Parts,
    fields: Result<Form<Fields>, FormRejection>,
) -> Response {
    let json = wants_json(&parts.headers);
    let context = match Context::new(board, parts, Params::default()) {
        Ok(context) => context,
        Err(problem) => return problem.into_response(),
    };
    let refuse = |problem: Problem| match json {
        true => problem.json(),
        false => problem.page(&context),
    };
    let fields = match fields {
        Ok(Form(fields)) => fields,
        Err(rejected) => return refuse(Problem::bad(rejected.body_text())),
    };
    match try_to(&context, &name, &fields).await {
        Err(problem) => refuse(problem),
        Ok((action, done)) if json => Json(serde_json::json!({
            "action": action.name(),
            "count": done.count,
            "partial": done.is_partial,
        }))
        .into_response(),
        Ok((action, done)) => match HeaderValue::try_from(fields.next(&name, action, &done)) {
            Ok(next) => (StatusCode::SEE_OTHER, [(LOCATION, next)]).into_response(),
            Err(_) => StatusCode::NO_CONTENT.into_response(),
        },
    }
}

async fn try_to(context: &Context, name: &str, fields: &Fields) -> Result<(Action, Done), Problem> {
    let action: Action = fields.action.parse().map_err(|()| {
        let action = text::cut(&fields.action, 60);
        Problem::bad(format!(
            "`action` must be that of a button, but is {action:?}"
        ))
    })?;
    let log_refused = |who: &str, why: &dyn std::fmt::Display| {
        tracing::warn!(target: "keyqueue_board", who, action = action.name(), queue = name, "refused: {why}");
    };
    let checked = csrf::check(context.headers(), &fields.token);
    if let Err(why) = checked {
        log_refused("", &why);
        return Err(Problem::forbidden(why));
    }
    let Some(place) = context.board.place(context.kind, name) else {
        return Err(Problem::not_on_board(context.kind, name));
    };
    let Some(who) = context.who(name, action) else {
        log_refused("", &"not allowed");
        return Err(Problem::forbidden("this is not allowed for you"));
    };
    let task = fields.task(action)?;
    let done = blocking(move || place.act(&task));
    let done = done.await.ok_or_else(Problem::panicked)?;
    match &done {
        Ok(done) => tracing::info!(
            target: "keyqueue_board", who, action = action.name(), queue = name,
            subject = done.subject, count = done.count, partial = done.is_partial, "done"
        ),
        Err(refused) => log_refused(&who, refused),
    }
    Ok((action, done?))
}
