//! Each action, by somebody who may.

use http::StatusCode;
use keyqueue::State;
use serde_json::json;

use crate::common::{self, HOUR, Site};

#[tokio::test] // X1 X3
async fn a_letter_is_put_back_or_dropped() {
    let site = Site::new();
    site.queue().add_all(["a/bad-1".into(), "a/bad-2".into()]);
    site.work().await;
    let page = site.get_as("alice", "/queues/q/mails/dead").await;
    page.has("Put back | Drop | name=\"token\"");
    let response = site.post("action=put_back&letter=0&back=dead").await;
    assert_eq!(
        (response.status, response.next()),
        (StatusCode::SEE_OTHER, "dead")
    );
    assert_eq!(site.queue().state("a/bad-1"), Some(State::Queued));
    site.post("action=drop_letter&letter=1").await;
    assert!(site.letters.is_empty() && site.queue().state("a/bad-2").is_none());
    let again = site.post("action=drop_letter&letter=1").await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    again.has("there is no dead letter 1 any more");
}

#[tokio::test] // X1 X3
async fn all_letters_that_match_are_put_back_or_dropped_and_no_others() {
    let site = Site::new();
    let keys = (0..1000).map(|n| format!("a/bad-{}-{n}", if n % 4 == 0 { "x" } else { "y" }));
    site.queue().add_all(keys);
    site.work().await;
    assert_eq!(site.letters.len(), 1000);
    let response = site
        .post("action=put_back&all=1&search=bad-x&back=dead")
        .await;
    assert_eq!(response.next(), "dead");
    assert_eq!((site.letters.len(), site.queue().len()), (750, 250));
    let action = &site.json("/queues/q/mails/dead").await["action"];
    common::assert_has(action, &json!({"count": 250, "total": 250, "ended": true}));
    assert!(
        site.letters
            .list()
            .iter()
            .all(|letter| letter.key.contains("bad-y"))
    );
    site.post("action=drop_letter&all=1").await;
    assert_eq!((site.letters.len(), site.queue().len()), (0, 250));
}

#[tokio::test] // X3
async fn a_delayed_key_is_run_now_or_dropped() {
    let site = Site::new();
    site.queue().add_after("a/1".into(), HOUR);
    let (id, at) = site.key_of("delayed").await;
    let fields = format!("action=run_now&id={id}&at={at}&back=keys");
    assert_eq!(site.post(&fields).await.status, StatusCode::SEE_OTHER);
    assert_eq!((site.queue().len(), site.queue().counts().delayed), (1, 0));
    let again = site.post(&fields).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    again.has("no pending delay any more");
    let fields = format!("action=drop_key&id={id}&at={at}");
    let queued = site.post(&fields).await;
    assert_eq!(queued.status, StatusCode::CONFLICT);
    queued.has("a queued key without a value cannot be taken out");

    site.queue().add_after("a/2".into(), HOUR);
    let (id, at) = site.key_of("delayed").await;
    site.post(&format!("action=drop_key&id={id}&at={at}")).await;
    assert!(site.queue().state("a/2").is_none());
    let gone = site.post("action=run_now&id=nothing&at=").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
}

#[tokio::test] // X3 G6
async fn a_group_is_held_and_released() {
    let site = Site::new();
    site.queue().add_all(["a/1".into(), "b/1".into()]);
    let groups = || async { site.json("/queues/q/mails").await["keys"]["groups"].clone() };
    let found = groups().await;
    let id = |name: &str| {
        let rows = found.as_array().unwrap().iter();
        let row = rows.clone().find(|row| row["name"] == name).unwrap();
        row["id"].as_str().unwrap().to_owned()
    };
    site.post(&format!("action=hold_group&id={}&seconds=600", id("a")))
        .await;
    let held: Vec<_> = site.queue().groups::<String>();
    let held: Vec<_> = held
        .iter()
        .filter(|group| group.held_for.is_some())
        .collect();
    assert_eq!((held.len(), &*held[0].group), (1, "a"));
    site.get_as("alice", "/queues/q/mails")
        .await
        .has("Release | 9 min");
    site.post(&format!("action=release_group&id={}", id("a")))
        .await;
    assert!(
        site.queue()
            .groups::<String>()
            .iter()
            .all(|group| group.held_for.is_none())
    );
    for seconds in ["0", "86401", "-1", "x", ""] {
        let fields = format!("action=hold_group&id={}&seconds={seconds}", id("a"));
        let refused = site.post(&fields).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{seconds}");
        refused.has("`seconds`");
    }
    let unknown = site.post("action=release_group&id=nothing").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test] // X3 G7
async fn a_queue_is_paused_and_goes_on() {
    let site = Site::new();
    site.queue().add("a/1".into());
    site.get_as("alice", "/queues/q/mails")
        .await
        .has("submit\">Pause< | submit\" disabled>Resume<");
    let response = site.post("action=pause").await;
    assert_eq!(response.next(), "../mails");
    assert!(site.queue().paused() == Some(true) && site.queue().try_get().is_err());
    site.get_as("alice", "/queues/q/mails")
        .await
        .has("paused | submit\" disabled>Pause< | submit\">Resume<");
    site.post("action=resume").await;
    assert!(site.queue().try_get().is_ok());

    let plain = Site::with(|builder| builder);
    plain
        .get_as("alice", "/queues/q/mails")
        .await
        .lacks("Pause");
    let refused = plain.post("action=pause").await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    refused.has("pausable");
}

#[tokio::test] // X3 S1
async fn a_queue_is_drained_and_what_it_refuses_then_says_so() {
    let site = Site::new();
    site.queue().add_all(["a/bad".into()]);
    site.work().await;
    site.queue().add("a/1".into());
    site.post("action=drain").await;
    rig::eventually("it drains", || site.queue().is_shutting_down());
    let page = site.get_as("alice", "/queues/q/mails").await;
    page.has("draining");
    page.lacks(">Pause< | >Drain<");
    let in_hand = site.queue().try_get().unwrap();
    assert_eq!(**in_hand, *"a/1");
    // What was seen before the key was taken does not count.
    for page in ["/queues/q/mails", "/queues"] {
        site.get_as("alice", page).await.has("draining");
    }
    drop(in_hand);
    // The page is as old as a look at all keys may be.
    let is_shut_down = async || {
        let page = site.get_as("alice", "/queues/q/mails").await;
        page.text.contains("shut down")
    };
    while !is_shut_down().await {}
    site.get_as("alice", "/queues").await.has("shut down");
    let page = site.get_as("alice", "/queues/q/mails").await;
    page.lacks("Pause | Drain");
    let refused = site.post("action=put_back&letter=0").await;
    assert_eq!(
        (refused.status, site.letters.len()),
        (StatusCode::CONFLICT, 1)
    );
    refused.has("shut down");
    let refused = site.post("action=put_back&all=1").await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
}
