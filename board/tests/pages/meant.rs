//! An action acts on what was shown when it was asked for, or is refused.

use std::sync::Arc;

use http::header::LOCATION;
use http::{Request, StatusCode};
use keyqueue_board::Shown;

use crate::common::{self, Answer, HOUR, Site};

/// The fields of the forms of a page, each with those of its buttons.
fn forms(page: &Answer) -> Vec<Vec<(String, String)>> {
    let attribute = |tag: &str, name: &str| {
        let rest = tag.split(&format!(" {name}=\"")).nth(1)?;
        Some(rest.split('"').next()?.replace("&amp;", "&"))
    };
    let forms = page.text.split("<form").skip(1);
    let posts = forms.filter(|form| form.contains("method=\"post\""));
    let fields = posts.map(|form| {
        let form = form.split("</form>").next().unwrap();
        let tags = form.split("<input").skip(1);
        let fields = tags.filter_map(|tag| {
            let tag = tag.split('>').next().unwrap();
            Some((
                attribute(tag, "name")?,
                attribute(tag, "value").unwrap_or_default(),
            ))
        });
        let fields = fields.filter(|(name, _)| name != "token");
        fields.collect()
    });
    fields.collect()
}

/// Returns the first form of an action whose fields have this text.
fn form(page: &Answer, action: &str, text: &str) -> Vec<(String, String)> {
    let mut forms = forms(page).into_iter();
    let wanted = forms.find(|form| {
        let has = |name: &str, value: &str| form.iter().any(|(n, v)| n == name && v == value);
        has("action", action) && (text.is_empty() || form.iter().any(|(_, value)| value == text))
    });
    wanted.unwrap_or_else(|| panic!("no {action} with {text:?} in {}", page.text))
}

async fn post(site: &Site, fields: &[(String, String)]) -> Answer {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    site.post_to("/queues/q/mails/do", "alice", &fields).await
}

/// The keys of the letters that are left.
fn left(site: &Site) -> Vec<String> {
    let letters = site.letters.list().into_iter();
    letters.map(|letter| letter.key.key().clone()).collect()
}

async fn site(names: &[&str]) -> Site {
    let site = Site::new();
    site.queue()
        .add_all(names.iter().map(|name| format!("a/{name}")));
    site.work().await;
    site.queue().add_after("a/later".into(), HOUR);
    site
}

#[tokio::test] // X5
async fn a_form_of_an_earlier_process_or_another_replica_does_nothing() {
    let (old, new) = (
        site(&["bad-old"]).await,
        site(&["bad-new", "bad-more"]).await,
    );
    for (page, action) in [
        ("/dead", "put_back"),
        ("/dead", "drop_letter"),
        ("/keys?state=delayed", "run_now"),
        ("/keys?state=delayed", "drop_key"),
        ("", "pause"),
        ("", "drain"),
        ("", "hold_group"),
    ] {
        let shown = old.get_as("alice", &format!("/queues/q/mails{page}")).await;
        for mut form in forms(&shown) {
            if !form.iter().any(|(_, value)| value == action) {
                continue;
            }
            form.push(("sure".into(), "1".into()));
            let refused = post(&new, &form).await;
            assert_eq!(refused.status, StatusCode::CONFLICT, "{form:?}");
            refused.has("from an earlier process, or from another replica");
            // What names a letter is not the process of the form alone: programs leave that out.
            form.retain(|(name, _)| name != "of");
            if form.iter().any(|(name, _)| name == "letter") {
                assert_eq!(post(&new, &form).await.status, StatusCode::CONFLICT);
            }
        }
    }
    let letter = old.id("/queues/q/mails/dead", "0").await;
    let link = new.get(&format!("/queues/q/mails/dead/{letter}")).await;
    assert_eq!(link.status, StatusCode::CONFLICT);
    assert_eq!(new.letters.len(), 2);
    assert_eq!((new.queue().len(), new.queue().counts().delayed), (0, 1));
    assert!(new.queue().paused() == Some(false) && !new.queue().is_shutting_down());
    // Nor one of an earlier queue of this name.
    let page = old.get_as("alice", "/queues/q/mails").await;
    let queue = Arc::clone(old.queue.as_ref().unwrap());
    old.board.remove("mails");
    old.board
        .add("mails", keyqueue_board::Shown::display(&queue))
        .unwrap();
    assert_eq!(
        post(&old, &form(&page, "pause", "")).await.status,
        StatusCode::CONFLICT
    );
}

const QUESTIONS: &str = "page | action | of the form with | question
    /dead?search=bad- | drop_letter | 1 | Drop 3 dead letters with the text “bad-”?
    /dead?search=bad- | put_back    | 1 | Put back 3 dead letters with the text “bad-”?
    /dead?search=x    | put_back    | 1 | Put back 1 dead letter with the text “x”?
    /dead             | drop_letter | 1 | Drop 3 dead letters?
    /dead?from=1      | drop_letter |   | Drop 3 dead letters?
    /keys             | drop_key    |   | Drop the key “a/later”?
                      | drain       |   | What is delayed is dropped, unless the queue was built with `drain_delays`.
                      | drain       |   | Drain the queue “mails”?";

#[tokio::test] // X5
async fn what_asks_names_the_key_or_the_number_and_the_text_and_only_that_is_done() {
    let site = site(&["bad-1", "bad-2", "bad-x"]).await;
    for row in QUESTIONS.lines().skip(1) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [path, action, text, question] = cells[..] else {
            panic!("{row}")
        };
        let path = &format!("/queues/q/mails{path}");
        let page = site.get_as("alice", path).await;
        let asks = post(&site, &form(&page, action, text)).await;
        assert_eq!(asks.status, StatusCode::OK, "{path}");
        asks.has(&format!("{question} | >Yes< | No, go back"));
        asks.lacks("JSON | load again");
    }
    let id = site.id("/queues/q/mails/dead", "1").await;
    let page = site
        .get_as("alice", "/queues/q/mails/dead?search=bad-")
        .await;
    post(&site, &form(&page, "drop_letter", &id))
        .await
        .has("the dead letter of “a/bad-2”");
    assert_eq!((site.letters.len(), site.queue().counts().delayed), (3, 1));
    assert!(!site.queue().is_shutting_down());

    // A letter that came after the question is not meant, and its answer leads back to the search.
    let asks = post(&site, &form(&page, "drop_letter", "1")).await;
    site.queue().add("a/bad-new".into());
    site.work().await;
    let done = post(&site, &forms(&asks)[0]).await;
    assert_eq!(done.headers[LOCATION], "dead?search=bad-&");
    assert_eq!(left(&site), ["a/bad-new"]);
}

#[tokio::test] // X5
async fn a_letter_of_a_key_that_is_given_up_again_is_another_one() {
    let site = site(&["bad-1", "bad-2"]).await;
    let page = site.get_as("alice", "/queues/q/mails/dead").await;
    let id = site.id("/queues/q/mails/dead", "0").await;
    let one = post(&site, &form(&page, "drop_letter", &id)).await;
    let all = post(&site, &form(&page, "drop_letter", "1")).await;
    site.queue().add("a/bad-1".into());
    site.work().await;
    let refused = post(&site, &forms(&one)[0]).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    refused.has("its key was given up again");
    post(&site, &forms(&all)[0]).await;
    assert_eq!(left(&site), ["a/bad-1"]);
}

#[tokio::test] // X5
async fn an_action_leads_back_to_the_search_the_state_and_the_page() {
    let names: Vec<_> = (0..60).map(|n| format!("bad-{n}")).collect();
    let site = site(&names.iter().map(|name| &**name).collect::<Vec<_>>()).await;
    for (path, action) in [
        ("dead?search=bad-&from=3&", "put_back"),
        ("keys?state=all&search=a%2Flater&sort=due&", "run_now"),
    ] {
        let page = site
            .get_as("alice", &format!("/queues/q/mails/{path}"))
            .await;
        let mut forms = forms(&page).into_iter();
        let form = forms.find(|form| {
            form.iter().any(|(_, value)| value == action)
                && !form.iter().any(|(name, _)| name == "all")
        });
        assert_eq!(post(&site, &form.unwrap()).await.next(), path);
    }
    // What leads elsewhere is not followed.
    for back in "//evil.example https://evil.example dead?x=//evil\r\n ../../x".split(' ') {
        let next = site
            .post(&format!("action=pause&back={back}"))
            .await
            .next()
            .to_owned();
        assert!(["../mails", "dead"].contains(&&*next), "{next}");
    }
}

#[tokio::test] // X5
async fn letters_that_are_ticked_are_put_back_and_no_others() {
    let site = site(&["bad-1", "bad-2", "bad-3"]).await;
    let page = site.get_as("alice", "/queues/q/mails/dead").await;
    page.has("Put back ticked | Drop ticked | form=\"ticked\" | aria-label=\"Tick a/bad-2\"");
    let none = site.post("action=put_back").await;
    none.has("tick the letters that you mean | >Go back</a>");
    let ids = [
        site.id("/queues/q/mails/dead", "0").await,
        site.id("/queues/q/mails/dead", "2").await,
    ];
    // The question of a row's button ticks nothing.
    let asks = post(&site, &form(&page, "drop_letter", &ids[0])).await;
    asks.has("Drop the dead letter of “a/bad-1”? | No, go back");
    asks.lacks("ticked=");
    let mut fields = vec![("action", "put_back"), ("back", "dead?"), ("ticked", "1")];
    fields.extend(ids.iter().map(|id| ("letter", &**id)));
    let asks = site.post_to("/queues/q/mails/do", "alice", &fields).await;
    asks.has("Put back the 2 dead letters that you have ticked?");
    // The way back from the question leads to the same ticks.
    let back = asks
        .text
        .split("href=\"")
        .find(|at| at.contains("No, go back"));
    let back = back.unwrap().split('"').next().unwrap();
    let back = format!("/queues/q/mails/{}", back.replace("&amp;", "&"));
    let again = site.get_as("alice", &back).await;
    let ticked = again
        .text
        .split("<input")
        .filter(|tag| tag.contains(" checked"));
    let ticked: Vec<_> = ticked
        .map(|tag| ids.iter().any(|id| tag.contains(&**id)))
        .collect();
    assert_eq!(ticked, [true, true]);
    post(&site, &forms(&asks)[0]).await;
    assert_eq!(left(&site), ["a/bad-2"]);
    let again = post(&site, &forms(&asks)[0]).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
}

#[tokio::test] // X7
async fn what_was_done_is_told_once_to_the_browser_that_did_it_and_not_by_the_address() {
    let site = site(&["bad-1"]).await;
    let link = "/queues/q/mails/dead?said=put_back&count=99999999&partial=1";
    let page = site.get(link).await;
    page.lacks("99999999 | put back into the queue");
    let token = "0123456789abcdef0123456789abcdef";
    let send = async |request: http::request::Builder, fields: &[(&str, &str)]| {
        let request = request
            .header("x-user", "alice")
            .header("cookie", format!("keyqueue_board={token}"))
            .header("content-type", "application/x-www-form-urlencoded");
        site.send(request.body(common::form(fields)).unwrap()).await
    };
    let fields = [("token", token), ("action", "put_back"), ("sure", "1")];
    let act = async |more| {
        let fields = [&fields[..], &[more]].concat();
        send(Request::post("/queues/q/mails/do"), &fields).await
    };
    let ended = act(("stop", "1")).await;
    ended.has("Refused: the action that was to be stopped has ended, or another process does it.");
    act(("all", "1")).await;
    let (list, said) = (
        || send(Request::get("/queues/q/mails/dead"), &[]),
        "UTC, mails: 1 put back into the queue.",
    );
    list().await.has(said);
    list().await.lacks(said);
}

#[tokio::test] // X5
async fn a_page_means_the_queue_that_it_shows_and_not_the_one_that_replaces_it_meanwhile() {
    let (site, other) = (site(&["bad-1"]).await, Site::new());
    let (names, of_other) = (
        site.board.clone(),
        Arc::clone(other.queue.as_ref().unwrap()),
    );
    // The key is written while the page is made.
    let shown = Shown::new(site.queue.as_ref().unwrap(), move |key: &String, f| {
        assert!(names.remove("mails"));
        names.add("mails", Shown::display(&of_other)).unwrap();
        f.write_str(key)
    });
    assert!(site.board.remove("mails"));
    let added = site.board.add("mails", shown.dead_letters(&site.letters));
    added.unwrap();
    let page = site.get_as("alice", "/queues/q/mails/dead").await;
    page.has("bad-1");
    let refused = post(&site, &forms(&page)[0]).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text);
}
