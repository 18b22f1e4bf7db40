//! Actions: a post of a form, checked, asked for once more, done, and written to the log.

use std::time::{Duration, SystemTime};

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, State};
use axum::response::{Html, IntoResponse, Json, Response};
use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use tokio::time::timeout;

use crate::letters::Verb;
use crate::pages::{self, Problem, path};
use crate::policy::Action;
use crate::source::{Done, KeyId, LetterId, Refused, Task, Which};
use crate::text;
use crate::web::{Context, Params, blocking, number, wants_json};
use crate::{Board, csrf};

/// How long a browser waits for an action on all letters, which goes on after that, and for other ones.
const WAIT: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);
/// The longest hold from a board: a day.
const LONGEST_HOLD: u64 = 24 * 3600;

/// The fields of all forms. Each action reads its own.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    fn get(&self, name: &str) -> &str {
        let mut fields = self.0.iter();
        fields
            .find(|(known, _)| known == name)
            .map_or("", |(_, value)| value)
    }

    fn task(&self, action: Action) -> Result<Task, Problem> {
        let which = || -> Result<Which, Problem> {
            let has_letters = self.0.iter().any(|(name, _)| name == "letter");
            let is_all = match (self.get("all"), has_letters) {
                ("", _) => false,
                ("1", false) => true,
                (all, _) => {
                    return Err(Problem::bad(format!(
                        "`all` must be 1, and without `letter`, but is {:?}",
                        text::cut(all, 60)
                    )));
                }
            };
            if is_all {
                let most = |name| match self.get(name) {
                    "" => Ok(u64::MAX),
                    most => number(name, most),
                };
                return Ok(Which::All {
                    search: self.get("search").to_owned(),
                    upto: (most("upto")?, most("until")?),
                    said: self.get("said").parse().ok(),
                });
            }
            let letters = self.0.iter().filter(|(name, _)| name == "letter");
            let ids: Result<Vec<LetterId>, _> =
                letters.map(|(_, id)| letter("letter", id)).collect();
            match ids? {
                ids if ids.is_empty() => Err(Problem::bad(
                    "tick the letters that you mean: `letter` must be the id of a dead letter, or `all` be 1, but both are empty"
                        .into(),
                )),
                ids => Ok(Which::These(ids)),
            }
        };
        let id = || self.get("id").to_owned();
        let key = || -> Result<KeyId, Problem> {
            let at = number("at", self.get("at"))?;
            Ok(KeyId { id: id(), at })
        };
        Ok(match action {
            Action::PutBack | Action::DropLetter if !self.get("stop").is_empty() => {
                Task::StopLetters(number("stop", self.get("stop"))?)
            }
            Action::PutBack => Task::Letters(Verb::PutBack, which()?),
            Action::DropLetter => Task::Letters(Verb::Drop, which()?),
            Action::RunNow => Task::RunNow(key()?),
            Action::DropKey => Task::DropKey(key()?),
            Action::HoldGroup => {
                let seconds = number("seconds", self.get("seconds"))?;
                if !(1..=LONGEST_HOLD).contains(&seconds) {
                    return Err(Problem::bad(format!(
                        "`seconds` must be between 1 and {LONGEST_HOLD}, but is {seconds}"
                    )));
                }
                Task::Hold(id(), Duration::from_secs(seconds))
            }
            Action::ReleaseGroup => Task::Hold(id(), Duration::ZERO),
            Action::Pause => Task::Pause,
            Action::Resume => Task::Resume,
            Action::Drain => Task::Drain,
        })
    }

    /// Returns the list that a question was asked on, with what was ticked there. The button of a row ticks nothing.
    fn back(&self, queue: &str) -> String {
        let is_ticked = !self.get("ticked").is_empty();
        let ticked = (self.0.iter()).filter(|(name, _)| is_ticked && name == "letter");
        let ids: Vec<&str> = ticked.map(|(_, id)| &**id).collect();
        let next = self.next(queue);
        match next.contains('?') && !ids.is_empty() {
            true => format!("{next}ticked={}", path(&ids.join("~"))),
            false => next,
        }
    }

    /// Returns where a browser goes next, relative to this address: to where it came from.
    fn next(&self, queue: &str) -> String {
        let back = self.get("back");
        let (page, query) = back.split_once('?').unwrap_or((back, ""));
        let is_query = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~%&=".contains(&byte);
        match page {
            "keys" | "dead" if query.bytes().all(is_query) => back.to_owned(),
            "keys" | "dead" => page.to_owned(),
            _ => format!("../{}", path(queue)),
        }
    }
}

/// Reads the id of a dead letter.
pub(crate) fn letter(field: &'static str, text: &str) -> Result<LetterId, Problem> {
    text.parse().map_err(|()| {
        let text = text::cut(text, 60);
        Problem::bad(format!(
            "`{field}` must be the id of a dead letter, a number and a mark as its list has it, but is {text:?}"
        ))
    })
}

/// What came of a post.
enum Came {
    Done(Action, Done),
    /// It is not done before the answer.
    Asked(Action, String, Task),
}

/// Does what a form asks for.
pub(crate) async fn act(
    State(board): State<Board>,
    parts: Parts,
    fields: Result<Form<Vec<(String, String)>>, FormRejection>,
) -> Response {
    let json = wants_json(&parts.headers);
    let context = match Context::new(board, parts, Params::default()) {
        Ok(context) => context,
        Err(problem) => return problem.into_response(),
    };
    let name = context.name();
    let refuse = |problem: Problem, back: &str| match json {
        true => problem.json(),
        false => problem.page(&context, Some(back)),
    };
    let fields = match fields {
        Ok(Form(fields)) => Fields(fields),
        Err(rejected) => return refuse(Problem::bad(rejected.body_text()), ""),
    };
    match try_to(&context, &name, &fields, json).await {
        Err(problem) => refuse(problem, &fields.next(&name)),
        Ok(Came::Done(action, done)) if json => Json(serde_json::json!({
            "action": action.name(),
            "count": done.count,
            "partial": done.is_partial,
            "why": done.why.map(|why| why.to_string()),
        }))
        .into_response(),
        Ok(Came::Done(action, done)) => {
            let said = format!(
                "{}, {}: {}",
                pages::clock(SystemTime::now()),
                text::cut(&name, text::IN_TABLE),
                pages::said(action, &done)
            );
            context.board.say(&context.token.text, said);
            match HeaderValue::try_from(fields.next(&name)) {
                Ok(next) => (StatusCode::SEE_OTHER, [(LOCATION, next)]).into_response(),
                Err(_) => StatusCode::NO_CONTENT.into_response(),
            }
        }
        Ok(Came::Asked(action, question, task)) => {
            let kept = ["token", "action", "sure", "upto", "until", "said"];
            let mut kept: Vec<(&str, String)> = (fields.0.iter())
                .filter(|(name, _)| !kept.contains(&&**name))
                .map(|(name, value)| (&**name, value.clone()))
                .collect();
            if let Task::Letters(_, Which::All { upto, said, .. }) = task {
                kept.push(("upto", upto.0.to_string()));
                kept.push(("until", upto.1.to_string()));
                kept.push(("said", said.unwrap_or(0).to_string()));
            }
            let view = pages::asks(
                &context,
                &name,
                action,
                question,
                &kept,
                &fields.back(&name),
            );
            Html(pages::page(&context, &view).into_string()).into_response()
        }
    }
}

async fn try_to(
    context: &Context,
    name: &str,
    fields: &Fields,
    is_sure: bool,
) -> Result<Came, Problem> {
    let action: Action = fields.get("action").parse().map_err(|()| {
        let action = text::cut(fields.get("action"), 60);
        Problem::bad(format!(
            "`action` must be that of a button, but is {action:?}"
        ))
    })?;
    let log_refused = {
        let name = name.to_owned();
        move |who: &str, subject: &str, why: &dyn std::fmt::Display| {
            tracing::warn!(target: "keyqueue_board", who, action = action.name(), queue = name, subject, "refused: {why}");
        }
    };
    let checked = csrf::check(context.headers(), fields.get("token"));
    if let Err(why) = checked {
        log_refused("", "", &why);
        return Err(Problem::forbidden(why));
    }
    let Some(place) = context.board.place(context.kind, name) else {
        return Err(Problem::not_on_board(context.kind, name));
    };
    let Some(who) = context.who(name, action) else {
        log_refused("", "", &"not allowed");
        return Err(Problem::forbidden("this is not allowed for you"));
    };
    let mut task = fields.task(action)?;
    // A program may leave it out: it names the queue, whatever process that is in.
    if !fields.get("of").is_empty() && fields.get("of") != place.mark() {
        log_refused(&who, &format!("{task:?}"), &Refused::OtherProcess);
        return Err(Refused::OtherProcess.into());
    }
    if !is_sure && fields.get("sure").is_empty() {
        let (place, name) = (place.clone(), name.to_owned());
        let asked = blocking(move || {
            let question = place.question(&name, &mut task);
            question.map(|question| (question, task))
        });
        let (question, asked) = asked.await.ok_or_else(Problem::panicked)??;
        match question {
            Some(question) => return Ok(Came::Asked(action, question, asked)),
            None => task = asked,
        }
    }
    let wait = match &task {
        Task::Letters(_, Which::All { .. }) => WAIT,
        _ => LONGEST,
    };
    let name = name.to_owned();
    let subject = format!("{task:?}");
    let work = async move {
        let done = blocking(move || place.act(&task)).await;
        match &done {
            Some(Ok(done)) => tracing::info!(
                target: "keyqueue_board", who, action = action.name(), queue = name,
                subject = done.subject, count = done.count, partial = done.is_partial,
                why = done.why.as_ref().map(tracing::field::display), "done"
            ),
            Some(Err(refused)) => log_refused(&who, &subject, refused),
            None => log_refused(&who, &subject, &"it panicked"),
        }
        done
    };
    // It goes on if the browser leaves, or does not wait for its end.
    let done = match timeout(wait, tokio::spawn(work)).await {
        Ok(done) => done.ok().flatten().ok_or_else(Problem::panicked)??,
        Err(_) => Done {
            is_partial: true,
            why: Some(Refused::Unended),
            ..Done::default()
        },
    };
    Ok(Came::Done(action, done))
}
