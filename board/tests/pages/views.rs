//! What each page shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use http::StatusCode;
use http_body_util::BodyExt;
use keyqueue::WorkQueue;
use keyqueue::limiter::RateLimiter;
use serde_json::json;
use servers::until;

use crate::common::{HOUR, Site, assert_has, event, listed};
use keyqueue_board::{Board, Shown};

#[tokio::test] // X2
async fn the_first_page_lists_the_queues() {
    let site = Site::new();
    site.queue().add_all(["a/1".into(), "a/2".into()]);
    let page = site.get("/queues").await;
    assert_eq!(page.status, StatusCode::OK);
    page.has("<!DOCTYPE html> | q/mails | open | <html lang=\"en\">");
    let all = site.json("/queues").await["queues"].take();
    let fields = json!({ "name": "mails", "queued": 2, "dead_letters": 0, "pausable": true });
    assert_has(&all[0], &fields);
    let other = std::sync::Arc::new(keyqueue::WorkQueue::from_iter(0..9));
    site.board
        .add("zebra", keyqueue_board::Shown::display(&other))
        .unwrap();
    let held = site.queue().try_get().unwrap();
    for (query, names) in [
        ("sort=queued", &["zebra", "mails"][..]),
        ("sort=in_hand", &["mails", "zebra"]),
        ("sort=x", &["mails", "zebra"]),
        ("search=ZEB", &["zebra"]),
        ("search=none", &[]),
    ] {
        let all = site.json(&format!("/queues?{query}")).await["queues"].take();
        let all = all.as_array().unwrap().iter();
        assert!(all.map(|queue| &queue["name"]).eq(names), "{query}");
    }
    drop(held);
    let empty = Site::of(&Board::new());
    empty.get("/queues").await.has("No queue was added");
}

#[tokio::test] // X2
async fn a_queue_shows_depth_levels_groups_and_keys_in_hand() {
    let site = Site::new();
    let queue = site.queue();
    queue.add_all(["a/1".into(), "a/2".into(), "b/1".into()]);
    queue.entry("b/urgent".to_owned()).level(0).add();
    queue.add_after("a/later".into(), HOUR);
    let held = queue.try_get().unwrap();
    assert!(queue.hold_group(&"b".to_owned(), HOUR));
    let page = site.get("/queues/q/mails").await;
    page.has("Keys in hand | level 0 | 59 min | <svg | role=\"img\" | Groups");
    page.has(&held);
    let all = site.json("/queues/q/mails").await;
    assert_eq!(all["queue"]["state"], "open");
    let keys = &all["keys"];
    let counts = json!({ "queued": 3, "processing": 1, "delayed": 1, "group_count": 2 });
    assert_has(keys, &counts);
    assert_eq!(keys["in_hand"][0]["key"], **held);
    assert!(keys["in_hand"][0]["held"].as_f64().is_some());
    assert_eq!(keys["levels"].as_array().unwrap().len(), 2);
}

#[tokio::test] // X2
async fn keys_in_hand_come_with_those_that_are_held_for_the_longest_time_first() {
    let site = Site::with(|builder| builder.name("mails"));
    let queue = site.queue();
    let mut held = Vec::new();
    for n in 0..60 {
        queue.add(format!("{n}"));
        held.push(queue.try_get().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // On a busy machine a look may have no time for all of them.
    until("the longest held ones in their order", async || {
        let all = site.json("/queues/q/mails").await;
        let in_hand = listed(&json!({ "rows": all["keys"]["in_hand"] }));
        let is_in_order = in_hand.into_iter().eq((0..50).map(|n| n.to_string()));
        all["keys"]["processing"] == 60 && is_in_order
    })
    .await;
}

#[tokio::test] // X6
async fn a_page_says_that_a_look_at_many_keys_is_older_than_the_page() {
    let site = Site::new();
    let slow = Shown::new(site.queue.as_ref().unwrap(), |key: &String, f| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        f.write_str(key)
    });
    site.board.add("slow", slow).unwrap();
    site.queue().add("a/1".into());
    let held = site.queue().try_get().unwrap();
    until("an old look", async || {
        let page = site.get("/queues/q/slow").await;
        page.has("a/1");
        let list = site.get("/queues").await;
        page.text.contains("levels and groups are those of 20")
            && list.text.contains(" keys seen at 20")
    })
    .await;
    drop(held);
}

#[tokio::test] // X2
async fn a_delayed_key_shows_when_it_is_due_its_attempt_and_its_last_error() {
    let site = Site::new();
    site.queue().add("a/fail".into());
    site.work().await;
    let page = site.get("/queues/q/mails/keys?state=delayed").await;
    page.has("a/fail | no route to host");
    let keys = site.json("/queues/q/mails/keys?state=delayed").await;
    let row = &keys["rows"][0];
    assert!((1.0..=600.1).contains(&row["due_in"].as_f64().unwrap()));
    assert_has(row, &json!({ "attempt": 1, "error": "no route to host" }));
    let (id, at) = (row["id"].as_str().unwrap(), &row["at"]);
    let one = site
        .get(&format!("/queues/q/mails/key?id={id}&at={at}"))
        .await;
    one.has("a/fail | Last error | no route to host");
    // A place from before the table has grown only takes longer.
    let one = site
        .get(&format!("/queues/q/mails/key?id={id}&at=99999999999"))
        .await;
    one.has("a/fail");
    let gone = site.get("/queues/q/mails/key?id=0000000000000000").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
}

#[tokio::test] // X1 X2
async fn dead_letters_show_key_error_and_history() {
    let site = Site::new();
    site.queue()
        .add_all((0..120).map(|n| format!("a/bad-{n:03}")));
    site.work().await;
    let page = site.get("/queues/q/mails/dead").await;
    page.has("120 of at most 100000 | a/bad-000 | no such address | Next page");
    let all = site.all("dead?", 50).await.into_iter();
    assert!(all.eq((0..120).map(|n| format!("a/bad-{n:03}"))));
    let found = site.json("/queues/q/mails/dead?search=bad-11").await;
    assert_eq!(found["rows"].as_array().unwrap().len(), 10);
    site.queue().add("b/bad\nline <2>\n\tat\u{1b}".into());
    site.work().await;
    let one = site.get("/queues/q/mails/dead/120").await;
    one.has("b/bad\nline &lt;2&gt;\n\\tat\\u{1b} |  UTC, <time datetime=\"20");
    let one = site.get("/queues/q/mails/dead/7").await;
    one.has("a/bad-007 | 1 attempt< | given up by the worker");
    let missing = site.get("/queues/q/mails/dead/999").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

#[tokio::test] // X2
async fn keys_are_found_by_a_part_of_their_text() {
    let site = Site::new();
    site.queue().add_all((0..3000).map(|n| format!("a/{n:04}")));
    let mut keys = site.all("keys?search=a%2F123&", 50 + 15).await;
    keys.sort_unstable();
    assert!(keys.into_iter().eq((1230..1240).map(|n| format!("a/{n}"))));
    // On a busy machine there may be no time to look at all of them.
    until("there is no such key", async || {
        let none = site.get("/queues/q/mails/keys?search=zebra").await;
        none.text.contains("There is no such key.")
    })
    .await;
    let mut all = site.all("keys?", 50 + 15).await;
    all.sort_unstable();
    assert!(all.into_iter().eq((0..3000).map(|n| format!("a/{n:04}"))));
}

#[tokio::test]
async fn a_page_allows_nothing_inline_and_nothing_from_elsewhere() {
    let site = Site::new();
    site.queue().add("a/bad".into());
    site.work().await;
    site.queue().add("a/1".into());
    for path in " /q/mails /q/mails/keys /q/mails/dead /q/mails/dead/0 /nowhere".split(' ') {
        let page = site.get_as("alice", &format!("/queues{path}")).await;
        assert!(
            page.headers.contains_key("content-security-policy"),
            "{path}: {}",
            page.status
        );
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        page.lacks("style= | onclick | <style | http:// | https:// | javascript: | <script>");
        page.has("<main id=\"main\"> | <h1 tabindex | viewport");
    }
    for (path, kind) in [("board.css", "text/css"), ("board.js", "text/javascript")] {
        let asset = site.get(&format!("/queues/{path}")).await;
        assert!(
            asset.headers["content-type"]
                .to_str()
                .unwrap()
                .starts_with(kind)
        );
    }
}

/// Where a browser goes from a page by a link.
fn resolve(page: &str, link: &str) -> String {
    let mut path: Vec<&str> = page.split('/').collect();
    path.pop();
    for part in link.split('/') {
        match part {
            "." => {}
            ".." => _ = path.pop(),
            part => path.push(part),
        }
    }
    path.join("/")
}

#[tokio::test]
async fn links_work_wherever_the_board_is_nested() {
    let site = Site::new();
    let board = site.board.router::<()>();
    for (app, at) in [
        (Router::new().nest("/queues", board.clone()), "/queues"),
        (Router::new().nest("/a/b/c", board.clone()), "/a/b/c"),
        (Router::new().nest_service("/s", board.clone()), "/s"),
        (board, ""),
    ] {
        let site = Site { app, ..Site::new() };
        let mut pages = vec!["/q/mails", "/q/mails/keys", "/q/mails/dead"];
        // A nested router does not find the first page by a slash, and one at the root by nothing else.
        pages.extend((!at.is_empty()).then_some(""));
        pages.extend(matches!(at, "" | "/s").then_some("/"));
        for page in pages.iter().map(|page| format!("{at}{page}")) {
            let response = site.get(&page).await;
            assert_eq!(response.status, StatusCode::OK, "{page}");
            let links = response.text.split("href=\"").skip(1);
            let links = links.map(|rest| rest.split('"').next().unwrap());
            let links: Vec<_> = links.filter(|link| link.starts_with('.')).collect();
            assert!(links.len() >= 2, "{page}: {links:?}");
            for link in links {
                let to = resolve(&page, link);
                assert!(to.starts_with(at), "{page}: {link} leads to {to}");
                let status = site.get(&to).await.status;
                assert_eq!(status, StatusCode::OK, "{page}: {link} leads to {to}");
            }
        }
    }
}

#[tokio::test] // X2
async fn a_live_page_sends_what_has_changed_and_ends_with_its_browser() {
    let mut site = Site::new();
    let response = site.stream("/queues/q/mails", "identity").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let small = site.stream("/queues/q/mails", "gzip").await;
    assert_eq!(small.headers()["content-encoding"], "gzip");
    let first = small.into_body().frame().await.unwrap().unwrap();
    let size = first.into_data().unwrap().len();
    assert!(size < 1200, "it comes at once, and is small: {size}");
    let mut body = response.into_body();
    let first = event(&mut body).await;
    first.has("event: live | Workers hold no key");
    first.lacks("<html"); // the live part alone
    site.queue().add("a/1".into());
    let held = site.queue().try_get().unwrap();
    event(&mut body).await.has("a/1");
    let part = [("accept", "text/x-live")];
    let once = site.get_with("/queues/q/mails", &part).await;
    once.has("a/1");
    once.lacks("<html");
    // Not that of a login, to which it may be led.
    assert_eq!(once.headers["content-type"], "text/x-live; charset=utf-8");
    drop(held);
    site.queue = None;
    // What asks now and then is told that, too.
    let once = site.get_with("/queues/q/mails", &part).await;
    assert_eq!(once.status, StatusCode::OK);
    once.has("gone");
    once.lacks("<html");
    let mut rest = String::new();
    while let Some(frame) = body.frame().await {
        rest += &String::from_utf8_lossy(&frame.unwrap().into_data().unwrap());
    }
    assert!(
        rest.contains("event: end") && rest.contains("gone"),
        "{rest}"
    );
}

#[tokio::test] // X2
async fn a_closed_board_ends_the_live_pages_that_are_open_or_opened_later() {
    let site = Site::new();
    let mut open = Vec::new();
    for path in ["/queues", "/queues/q/mails"] {
        let mut body = site.stream(path, "identity").await.into_body();
        event(&mut body).await.has("event: live");
        open.push(body);
    }
    site.board.close();
    open.push(site.stream("/queues", "identity").await.into_body());
    for body in open {
        body.collect().await.unwrap();
    }
    assert_eq!(site.get("/queues").await.status, StatusCode::OK);
}

#[tokio::test] // X5
async fn a_closed_board_begins_no_action_on_all_letters() {
    let site = Site::new();
    site.queue().add_all(["a/bad-1".into(), "a/bad-2".into()]);
    site.work().await;
    let refused = async |when| {
        let refused = site.post("action=drop_letter&all=1").await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{when}");
        refused.has("it was stopped");
        assert_eq!(site.letters.len(), 2, "{when}");
    };
    site.board.close();
    refused("it was there").await;
    assert!(site.board.remove("mails"));
    let shown = Shown::display(site.queue.as_ref().unwrap());
    site.board
        .add("mails", shown.dead_letters(&site.letters))
        .unwrap();
    refused("it came later").await;
}

#[tokio::test] // X4
async fn live_pages_are_bounded_in_number() {
    let site = Site::new();
    let open = || site.stream("/queues", "identity");
    let mut pages = Vec::new();
    for _ in 0..64 {
        let page = open().await;
        assert_eq!(page.status(), StatusCode::OK);
        pages.push(page);
    }
    assert_eq!(open().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(pages);
    until("the places of pages that were left are free", async || {
        open().await.status() == StatusCode::OK
    })
    .await;
}

/// Counts how often it panics.
struct Panics(Arc<AtomicUsize>);

impl RateLimiter<String> for Panics {
    fn when(&self, _: &String) -> Duration {
        Duration::ZERO
    }

    fn forget(&self, _: &String) {}

    fn num_requeues(&self, _: &String) -> u32 {
        panic!("for the {}th time", self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[tokio::test] // X2
async fn pictures_show_the_last_minutes_of_a_queue_that_is_recorded() {
    let site = Site::new();
    let board = site.board.clone();
    // Another one before it cannot be looked at.
    let panics = Arc::default();
    let bad = WorkQueue::<String>::builder().rate_limiter(Panics(Arc::clone(&panics)));
    let bad = Arc::new(bad.build().unwrap());
    bad.add("held".into());
    let _held = bad.get();
    board.add("bad", Shown::display(&bad)).unwrap();
    site.get("/queues")
        .await
        .has("bad | a look at it panics | mails");
    let record = tokio::spawn(async move { board.record().await });
    until("samples were taken", async || {
        panics.load(Ordering::Relaxed) > 4
    })
    .await;
    let page = site.get("/queues/q/mails").await;
    assert!(page.text.matches('L').count() > 6, "{}", page.text);
    page.has("path | Keys over the last five minutes | queued: 0 now");
    record.abort();
    #[cfg(feature = "metrics")]
    {
        page.has("Per second | Mean time");
        let rates = &site.json("/queues/q/mails").await["rates"];
        assert!(!rates.as_array().unwrap().is_empty());
        let all = site.json("/queues").await;
        assert!(all["queues"][1]["ended"].is_number(), "{all}");
    }
}
