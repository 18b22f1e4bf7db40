//! Keys and errors that are HTML, script, invisible, or far too long; and a queue that goes while somebody looks.

use http::StatusCode;
use keyqueue_board::Board;

use crate::common::{HOUR, Site};

const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "</td></table>'`&amp;&lt;",
    "a\u{202e}gnp.exe\u{2066}\u{200b}",
    "nul\0 esc\u{1b}[31m cr\r\nlf\ttab",
    "{{7*7}}${7*7}<%= 7 %>",
];

fn assert_harmless(text: &str, place: &str) {
    for bad in "<script>alert <img </table>' \u{202e} \u{2066} \0 \u{1b} \r \u{200b}".split(' ') {
        assert!(!text.contains(bad), "{place}: {bad:?} in {text}");
    }
}

#[tokio::test] // X2
async fn hostile_keys_errors_and_groups_are_text_on_every_page() {
    let site = Site::new();
    let queue = site.queue();
    for text in HOSTILE {
        queue.add(format!("bad {text}"));
        queue.add(format!("fail {text}"));
    }
    site.work().await;
    for text in HOSTILE {
        queue.add_after(format!("later {text}"), HOUR);
        queue.add(text.to_owned());
    }
    let _held = queue.try_get().unwrap();
    assert_eq!(site.letters.len(), HOSTILE.len());
    for path in ["", "/keys", "/keys?state=delayed", "/dead"] {
        let page = site
            .get_as("alice", &format!("/queues/q/mails{path}"))
            .await;
        assert_eq!(page.status, StatusCode::OK);
        assert_harmless(&page.text, path);
    }
    let keys = site.json("/queues/q/mails/keys").await;
    for row in keys["rows"].as_array().unwrap() {
        let (id, at) = (row["id"].as_str().unwrap(), &row["at"]);
        let page = site
            .get(&format!("/queues/q/mails/key?id={id}&at={at}"))
            .await;
        assert_eq!(page.status, StatusCode::OK);
        assert_harmless(&page.text, "key");
    }
    for id in 0..HOSTILE.len() {
        let page = site.get(&format!("/queues/q/mails/dead/{id}")).await;
        assert_harmless(&page.text, "letter");
    }
    let page = site.get("/queues/q/mails/dead").await;
    page.has("&lt;script&gt;alert(1)&lt;/script&gt; | \\u{202e} | \\u{0}");
}

#[tokio::test]
async fn what_comes_with_the_address_is_text_too() {
    let site = Site::new();
    let script = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%0D%0A%E2%80%AE";
    for path in [
        format!("/q/mails/keys?search={script}"),
        format!("/q/mails/keys?state={script}"),
        format!("/q/mails/keys?from={script}"),
        format!("/q/mails/dead?search={script}"),
        format!("/q/mails/key?id={script}&at={script}"),
        format!("/q/{script}"),
        format!("/f/{script}"),
        format!("/f/{script}/dead/{script}"),
        format!("/q/mails/dead/{script}"),
        format!("/{script}"),
    ] {
        let page = site.get(&format!("/queues{path}")).await;
        page.lacks("<script>alert | \">\r\n");
    }
    let fields = "action=put_back&all=1&search=\r\nset-cookie: a=b&back=dead";
    let response = site.post(fields).await;
    assert_eq!(response.status, StatusCode::SEE_OTHER);
    assert!(!response.next().contains('\n'), "{}", response.next());
}

#[tokio::test] // X4
async fn a_key_and_an_error_of_a_megabyte_are_shown_in_part() {
    let site = Site::new();
    let long = "é".repeat(512 * 1024);
    site.queue().add(format!("bad {long}"));
    site.work().await;
    (0..20).for_each(|n| _ = site.queue().add(format!("{n} {long}")));
    for (path, most) in [
        ("", 40_000),
        ("/keys", 60_000),
        ("/dead", 40_000),
        ("/dead/0", 300_000),
    ] {
        let page = site.get(&format!("/queues/q/mails{path}")).await;
        assert_eq!(page.status, StatusCode::OK);
        assert!(page.text.len() < most, "{path}: {}", page.text.len());
    }
    let found = site.json("/queues/q/mails/keys?search=7%20%C3%A9").await;
    assert_eq!(found["rows"].as_array().unwrap().len(), 2); // 7 and 17
}

#[tokio::test]
async fn a_queue_of_any_name_is_reached() {
    let site = Site::new();
    let queue = site.queue.as_ref().unwrap();
    for name in ["a/b", "a b?c#d%", "<i>é\"'", "..a", "q"] {
        let shown = keyqueue_board::Shown::display(queue);
        site.board.add(name, shown).unwrap();
        let all = site.get("/queues").await;
        let links = all.text.split("href=\"./queues/q/").skip(1);
        let links: Vec<_> = links.map(|rest| rest.split('"').next().unwrap()).collect();
        let mut found = false;
        for link in links {
            let page = site.get(&format!("/queues/q/{link}")).await;
            assert_eq!(page.status, StatusCode::OK, "{link}");
            let json = site.json(&format!("/queues/q/{link}")).await;
            found |= json["queue"]["name"] == name;
        }
        assert!(found, "{name}");
    }
}

#[tokio::test] // X2 S6
async fn a_queue_that_is_shut_down_or_dropped_says_so() {
    let mut site = Site::new();
    site.queue().add("a/1".into());
    site.queue().shut_down();
    for path in ["", "/keys", "/dead"] {
        let page = site
            .get_as("alice", &format!("/queues/q/mails{path}"))
            .await;
        assert_eq!(page.status, StatusCode::OK);
    }
    site.get("/queues/q/mails").await.has("draining");
    site.get("/queues/q/mails/keys").await.has("a/1");
    let letters = async |site: &Site| site.get("/queues/q/mails/dead").await;
    letters(&site)
        .await
        .has("The queue is draining: it refuses what is put back.");
    site.queue = None;
    letters(&site).await.has("The queue is gone: it refuses");
    site.get("/queues").await.has("gone");
    for path in ["", "/keys", "/key?id=1"] {
        let page = site.get(&format!("/queues/q/mails{path}")).await;
        assert_eq!(page.status, StatusCode::GONE, "{path}");
    }
    let refused = site.post("action=pause").await;
    assert_eq!(refused.status, StatusCode::GONE);
}

#[tokio::test]
async fn a_text_that_panics_concerns_its_own_place_alone() {
    let queue = std::sync::Arc::new(keyqueue::WorkQueue::from_iter([
        "good".to_owned(),
        "panics".to_owned(),
    ]));
    let shown = keyqueue_board::Shown::new(&queue, |key: &String, f| match &**key {
        "panics" => panic!("in the text"),
        key => f.write_str(key),
    });
    let board = Board::new();
    board.add("mails", shown).unwrap();
    let site = Site::of(&board);
    site.get("/queues/q/mails/keys")
        .await
        .has("good | (its text panicked)");
    site.get("/queues/q/mails/keys?search=good")
        .await
        .has("good");
}
