//! Those who may not, and requests that are none.

use std::sync::Arc;

use http::{Request, StatusCode};
use keyqueue::WorkQueue;
use keyqueue_board::{Action, Board, Shown};

use crate::common::{HOUR, Site, form};

fn all_actions() -> [String; 9] {
    Action::ALL.map(|action| format!("action={action}&letter=0&id=x&seconds=1"))
}

async fn untouched(site: &Site) -> bool {
    site.letters.len() == 1
        && site.queue().paused() == Some(false)
        && !site.queue().is_shutting_down()
        && site.queue().counts().delayed == 1
}

async fn site() -> Site {
    let site = Site::new();
    site.queue().add("a/bad".into());
    site.work().await;
    site.queue().add_after("a/1".into(), HOUR);
    site
}

#[tokio::test] // X3
async fn a_stranger_sees_no_button_and_does_nothing() {
    let site = site().await;
    for path in "/q/mails /q/mails/keys /q/mails/dead /q/mails/dead/0".split(' ') {
        site.get(&format!("/queues{path}"))
            .await
            .lacks("method=\"post\" | >Actions<");
    }
    for fields in all_actions() {
        let refused = site.post_as("", &fields).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{fields:?}");
        assert!(untouched(&site).await, "{fields:?}");
    }
}

#[tokio::test] // X3
async fn a_policy_allows_one_action_and_no_other() {
    let site = site().await;
    let page = site.get_as("bob", "/queues/q/mails/dead").await;
    page.has("Put back");
    page.lacks("Drop");
    for fields in all_actions() {
        let response = site.post_as("bob", &fields).await;
        let may = fields.starts_with("action=put_back");
        assert_eq!(response.status == StatusCode::FORBIDDEN, !may, "{fields:?}");
    }
    assert!(site.letters.is_empty());
}

#[tokio::test] // X3
async fn a_board_without_a_policy_or_with_one_that_panics_only_shows() {
    let queue = Arc::new(WorkQueue::<String>::new());
    let boards = [
        Board::new(),
        Board::new().allow(|_| panic!("in the policy")),
    ];
    for board in boards {
        board.add("mails", Shown::display(&queue)).unwrap();
        let site = Site::of(&board);
        site.get_as("alice", "/queues/q/mails")
            .await
            .lacks("method=\"post\"");
        let refused = site.post("action=drain").await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
    assert!(!queue.is_shutting_down());
}

#[tokio::test] // X3
async fn another_site_cannot_act_with_the_rights_of_a_browser() {
    let site = site().await;
    let token = "0123456789abcdef0123456789abcdef";
    let cookie = format!("keyqueue_board={token}");
    let (same, own) = (("sec-fetch-site", "same-origin"), ("cookie", &*cookie));
    let local = ("host", "localhost");
    let other = "0123456789abcdef0123456789abcdee";
    let from = |site| [("sec-fetch-site", site), own];
    let origin = |origin| [("origin", origin), local, own];
    let cases: [(&[(&str, &str)], &str); 8] = [
        (&[same], token),   // no cookie
        (&[same, own], ""), // no token
        (&[same, own], other),
        (&[same, ("cookie", "keyqueue_board=")], ""),
        (&from("cross-site"), token),
        (&from("same-site"), token),
        (&origin("https://evil.example"), token),
        (&origin("null"), token),
    ];
    for (headers, token) in cases {
        for action in ["drain", "pause", "drop_letter"] {
            let mut request = Request::post("/queues/q/mails/do")
                .header("x-user", "alice")
                .header("content-type", "application/x-www-form-urlencoded");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let body = form(&[("action", action), ("token", token), ("letter", "0")]);
            let refused = site.send(request.body(body).unwrap()).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{headers:?}");
        }
    }
    assert!(untouched(&site).await);
    // A page sets a cookie that other sites' requests do not carry and scripts do not read.
    let page = site.get("/queues").await;
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    assert!(
        cookie.contains("SameSite=Lax") && cookie.contains("HttpOnly"),
        "{cookie}"
    );
    // Behind TLS, no page without TLS can set it, and one that did is not read.
    let headers = [("x-forwarded-proto", "https"), own];
    let page = site.get_with("/queues/q/mails", &headers).await;
    let secure = page.headers["set-cookie"].to_str().unwrap();
    assert!(
        secure.starts_with("__Host-keyqueue_board=") && secure.ends_with("; Secure"),
        "{secure}"
    );
    // A link does nothing.
    let get = site
        .get_as("alice", "/queues/q/mails/do?action=drain")
        .await;
    assert_eq!(get.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test] // X7
async fn a_name_that_resolves_to_the_board_is_not_the_board() {
    let site = site().await;
    let ask = async |host| site.get_with("/queues/q/mails", &[("host", host)]).await;
    let refused = ask("evil.test:8080").await;
    refused.has("does not know the name \"evil.test:8080\" | Board::hosts");
    refused.lacks("mails");
    let _same_board = site.board.clone().hosts(["Board.example"]);
    for host in "localhost LOCALHOST:8080 a.localhost:1 127.0.0.1:8080 10.0.0.7 [::1]:8080 board.Example.:443".split(' ') {
        assert_eq!(ask(host).await.status, StatusCode::OK, "{host}");
    }
    for host in [
        "evil.test",
        "localhost.evil.test",
        "evilocalhost",
        "127.0.0.1.evil.test",
        "xboard.example",
        "",
    ] {
        assert_eq!(
            ask(host).await.status,
            StatusCode::MISDIRECTED_REQUEST,
            "{host}"
        );
    }
}

#[tokio::test]
async fn a_bad_request_is_an_error_that_names_the_field_and_the_value() {
    let site = site().await;
    for (path, names) in [
        ("keys?state=hidden", "`state`"),
        ("keys?from=many", "`from`"),
        ("key?id=1&at=-1", "`at`"),
        ("dead?from=1.5", "`from`"),
        ("dead/one", "`id`"),
        ("keys?state=all&state=all", "`state`"),
    ] {
        let refused = site.get(&format!("/queues/q/mails/{path}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{path}");
        refused.has(&format!("{names} | All queues"));
    }
    for (fields, names) in [
        ("action=explode", "`action`"),
        ("", "`action`"),
        ("action=put_back", "`letter`"),
        ("action=put_back&letter=first", "`letter`"),
        ("action=run_now&at=here", "`at`"),
        ("action=drop_letter&all=0", "`all`"),
        ("action=drop_letter&all=False&letter=0", "`all`"),
        ("action=drop_letter&all=1&letter=0", "`all`"),
    ] {
        let refused = site.post(fields).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{fields:?}");
        refused.has(names);
    }
    for path in
        "/q/none /q/none/keys /q/none/dead /q/none/key /nothing /q/mails/x/y /q/%ff".split(' ')
    {
        let missing = site.get(&format!("/queues{path}")).await;
        assert_eq!(missing.status, StatusCode::NOT_FOUND, "{path}");
        missing.has("All queues");
    }
    let json = [("accept", "application/json")];
    let missing = site.get_with("/queues/q/none", &json).await;
    assert_eq!(
        missing.json()["error"],
        "There is no queue \"none\" on the board."
    );
}

#[test]
fn a_name_that_cannot_be_shown_is_refused() {
    let queue = Arc::new(WorkQueue::<String>::new());
    let board = Board::new();
    for name in ["", ".", "..", "a\nb", &"x".repeat(201)] {
        let error = board.add(name, Shown::display(&queue)).unwrap_err();
        assert_eq!(error.value(), name);
        assert!(error.to_string().contains("`name` must"), "{error}");
    }
    board.add("a", Shown::display(&queue)).unwrap();
    assert!(board.add("a", Shown::display(&queue)).is_err());
    drop(queue);
    // The name of a queue that is gone is free.
    let queue = Arc::new(WorkQueue::<String>::new());
    board.add("a", Shown::display(&queue)).unwrap();
    assert!(board.remove("a") && !board.remove("a"));
}
