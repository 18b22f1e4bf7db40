//! The pages and actions of a fleet, on a real server.
#![cfg(feature = "nats")]

#[allow(dead_code, reason = "this program uses a part of it")]
#[path = "pages/common.rs"]
mod common;

use std::time::{Duration, Instant};

use async_nats::jetstream;
use http::StatusCode;
use keyqueue_board::Action;
use keyqueue_nats::{Config, Fleet, Producer, Verdict, create, dead_letter};
use servers::nats::Server;
use servers::until;

use common::{Answer, Site, event};

/// A server with a fleet that is on a board as `hooks`.
struct Hooks {
    server: Server,
    client: async_nats::Client,
    config: Config,
    site: Site,
}

impl Hooks {
    async fn start() -> Option<Self> {
        let server = Server::start().await?;
        let client = server.client().await;
        let config = Config {
            partitions: 4,
            lease: Duration::from_secs(60),
            dead_letters: Some("work-dead".into()),
            ..Config::default()
        };
        create(&client, &config).await.unwrap();
        let site = Site::new();
        let board = &site.board;
        board
            .add_fleet("hooks", client.clone(), config.clone())
            .unwrap();
        Some(Hooks {
            server,
            client,
            config,
            site,
        })
    }

    /// Has a replica give up these keys, each with its text as payload and error.
    async fn give_up(&self, keys: &[String]) {
        let producer = Producer::new(self.client.clone(), &self.config).unwrap();
        for key in keys {
            producer.add(key, key.clone()).await.unwrap();
        }
        let before = self.letters().await;
        let fleet = Fleet::join(self.client.clone(), self.config.clone(), "first").await;
        let fleet = fleet.unwrap();
        let run = fleet.run(8, |delivery| async move {
            Verdict::GiveUp::<String>(format!("given up: {}", delivery.key()))
        });
        let wanted = before + keys.len() as u64;
        let all = async {
            until("all are given up", async || self.letters().await == wanted).await;
            fleet.leave(Duration::from_secs(10)).await
        };
        let (ran, _) = tokio::join!(run, all);
        ran.unwrap();
    }

    async fn letters(&self) -> u64 {
        let count = dead_letter::count(&self.client, &self.config).await;
        count.unwrap().unwrap()
    }

    /// The keys of the messages that wait.
    async fn waiting(&self) -> u64 {
        let status = keyqueue_nats::status(&self.client, &self.config).await;
        let partitions = status.unwrap().partitions;
        partitions.iter().filter_map(|of| of.messages).sum()
    }

    async fn post_as(&self, user: &str, fields: &str) -> Answer {
        self.site.sure("/queues/f/hooks/do", user, fields).await
    }

    async fn post(&self, fields: &str) -> Answer {
        self.post_as("alice", fields).await
    }
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("bad/{n}")).collect()
}

#[tokio::test] // X2
async fn a_fleet_shows_its_partitions_and_those_that_nobody_owns_first() {
    let Some(hooks) = Hooks::start().await else {
        return;
    };
    let site = &hooks.site;
    site.get("/queues")
        .await
        .has("f/hooks | Fleets and consumers | connected | q/mails");
    let fleets = site.json("/queues").await["fleets"].take();
    assert_eq!(
        (&fleets[0]["name"], &fleets[0]["unowned"]),
        (&"hooks".into(), &4.into())
    );
    let page = site.get("/queues/f/hooks").await;
    assert_eq!(page.status, StatusCode::OK);
    assert_eq!(page.text.matches(">unowned<").count(), 5, "{}", page.text); // and the number
    page.has("<div class=\"bad\"><dt>unowned");
    page.has("Partitions | href=\"./../f/hooks/dead\" | All queues");

    // Partition 2 has an owner, partition 3 one that has ended.
    let context = jetstream::new(hooks.client.clone());
    let bucket = context.get_key_value("WORK-owners").await.unwrap();
    for (record, value) in [
        ("4.s.replica-a.x.0", "live 7"),
        ("4.s.replica-b.x.0", "ended"),
        ("4.p.2", "owned replica-a.x.0"),
        ("4.p.3", "owned replica-b.x.0"),
        ("4.a.2.key", "3"),
    ] {
        bucket.put(record, value.into()).await.unwrap();
    }
    let producer = Producer::new(hooks.client.clone(), &hooks.config).unwrap();
    for key in ["a", "b", "c"] {
        producer.add(key, "x").await.unwrap();
    }
    let mut json = serde_json::Value::Null;
    until("the board has looked again", async || {
        json = site.json("/queues/f/hooks").await;
        json["unowned"] == 3
    })
    .await;
    let partitions = json["partitions"].as_array().unwrap();
    assert_eq!(partitions.len(), 4);
    assert_eq!(partitions[2]["owner"]["replica"], "replica-a");
    assert_eq!(partitions[2]["owner"]["session_state"], "live");
    assert_eq!(partitions[2]["failed_keys"], 1);
    assert_eq!(partitions[3]["owner"]["session_state"], "ended");
    let messages = partitions.iter().map(|of| of["messages"].as_u64().unwrap());
    assert_eq!(
        (messages.sum::<u64>(), &json["dead_letters"]),
        (3, &0.into())
    );
    let page = site.get("/queues/f/hooks").await;
    page.has("replica-a | replica-b | unowned: ended | >live<");
    let place = |text: &str| page.text.find(text).unwrap();
    assert!(place("replica-b") < place("replica-a"), "{}", page.text);
    assert!(place("Failed keys</th>") < place("Epoch</th>")); // which may have no room
}

#[tokio::test] // X2
async fn a_fleet_with_a_replica_shows_who_has_what_in_hand() {
    let Some(hooks) = Hooks::start().await else {
        return;
    };
    let producer = Producer::new(hooks.client.clone(), &hooks.config).unwrap();
    producer.add("slow", "x").await.unwrap();
    let fleet = Fleet::join(hooks.client.clone(), hooks.config.clone(), "replica-1").await;
    let fleet = fleet.unwrap();
    let run = fleet.run(8, |_| async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok::<_, String>(())
    });
    let seen = until("it is seen", async || {
        let json = hooks.site.json("/queues/f/hooks").await;
        let rows = json["partitions"].as_array().unwrap().clone();
        let held = |of: &serde_json::Value| of["consumer"]["unacknowledged"].as_u64();
        json["unowned"] == 0 && rows.iter().filter_map(held).sum::<u64>() == 1
    });
    tokio::select! {
        ran = run => panic!("{ran:?}"),
        () = seen => {}
    }
    let page = hooks.site.get("/queues/f/hooks").await;
    page.lacks("unowned: | >unowned</span>");
    assert_eq!(page.text.matches("replica-1").count(), 4);
}

#[tokio::test] // X2 X3
async fn dead_letters_of_a_fleet_are_shown_put_back_and_dropped() {
    let Some(hooks) = Hooks::start().await else {
        return;
    };
    hooks.give_up(&keys(60)).await;
    let site = &hooks.site;
    let page = site.get_as("alice", "/queues/f/hooks/dead").await;
    page.has(
        "60 letters | given up: bad/ | Put back | Drop all | Next page | name=\"token\" | \
            action=\"./../../f/hooks/do\"",
    );
    site.get("/queues/f/hooks/dead")
        .await
        .lacks("method=\"post\"");
    let letters = site.json("/queues/f/hooks/dead").await;
    let rows = letters["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &letters["len"]), (50, &60.into()));
    let next = &letters["next"];
    let rest = site
        .json(&format!("/queues/f/hooks/dead?from={next}"))
        .await;
    assert_eq!(rest["rows"].as_array().unwrap().len(), 10);
    assert!(rest["next"].is_null());
    let found = site.json("/queues/f/hooks/dead?search=bad%2F1").await;
    assert_eq!(found["rows"].as_array().unwrap().len(), 11);

    let id = rows[0]["id"].as_str().unwrap();
    let one = site.get(&format!("/queues/f/hooks/dead/{id}")).await;
    one.has(rows[0]["key"].as_str().unwrap());
    one.has("1 attempt< | given up: bad/");
    let fields = format!("action=put_back&letter={id}&back=dead");
    // It may cost a newer message of its key.
    let unsure = [("action", "put_back"), ("letter", id)];
    let asked = site.post_to("/queues/f/hooks/do", "alice", &unsure).await;
    asked.has("Put back the dead letter of “bad/ | A letter replaces a newer message of its key");
    let response = hooks.post(&fields).await;
    assert_eq!(
        (response.status, response.next()),
        (StatusCode::SEE_OTHER, "dead")
    );
    assert_eq!((hooks.letters().await, hooks.waiting().await), (59, 1));
    let again = hooks.post(&fields).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    again.has("there is no dead letter 1 any more");

    let id = rows[1]["id"].as_str().unwrap();
    hooks.post(&format!("action=drop_letter&letter={id}")).await;
    assert_eq!((hooks.letters().await, hooks.waiting().await), (58, 1));
    let all = "action=put_back&all=1&search=bad/5";
    let before = site.json("/queues/f/hooks/dead?search=bad%2F5").await;
    let count = before["rows"].as_array().unwrap().len();
    let response = hooks.post(all).await;
    assert_eq!(response.next(), "../hooks");
    assert_eq!(hooks.waiting().await, 1 + count as u64);
    hooks.post("action=drop_letter&all=1").await;
    assert_eq!(hooks.letters().await, 0);
    site.get("/queues/f/hooks/dead").await.has("There is none");
}

#[tokio::test] // X3
async fn a_fleet_is_acted_on_by_those_who_may_and_by_no_others() {
    let Some(hooks) = Hooks::start().await else {
        return;
    };
    hooks.give_up(&keys(2)).await;
    for user in ["", "bob"] {
        let refused = hooks.post_as(user, "action=drop_letter&all=1").await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{user}");
    }
    let page = hooks.site.get_as("bob", "/queues/f/hooks/dead").await;
    page.has("Put back");
    page.lacks("Drop");
    assert_eq!(hooks.letters().await, 2);
    // What only a queue has.
    for action in Action::ALL {
        if matches!(action, Action::PutBack | Action::DropLetter) {
            continue;
        }
        let refused = hooks.post(&format!("action={action}&seconds=1")).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{action}");
        refused.has("cannot be done with a fleet");
    }
    // Bob may put back.
    hooks.post_as("bob", "action=put_back&all=1").await;
    assert_eq!((hooks.letters().await, hooks.waiting().await), (0, 2));
}

#[tokio::test] // X5
async fn the_answer_to_a_question_does_nothing_to_another_fleet_of_the_same_name() {
    let Some(hooks) = Hooks::start().await else {
        return;
    };
    hooks.give_up(&keys(1)).await;
    let page = hooks.site.get_as("alice", "/queues/f/hooks/dead").await;
    let of = page.text.split("name=\"of\" value=\"").nth(1).unwrap();
    let of = of.split('"').next().unwrap();
    let fields = format!("action=drop_letter&all=1&upto=9&of={of}");
    let board = &hooks.site.board;
    let replace = |config: Config| {
        assert!(board.remove("hooks"));
        let added = board.add_fleet("hooks", hooks.client.clone(), config);
        added.unwrap();
    };
    replace(Config {
        stream: "OTHER".into(),
        ..hooks.config.clone()
    });
    let refused = hooks.post(&fields).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text);
    assert_eq!(hooks.letters().await, 1);
    // Another replica shows the same fleet.
    replace(hooks.config.clone());
    hooks.post(&fields).await;
    assert_eq!(hooks.letters().await, 0);
}

#[tokio::test] // X2
async fn hostile_keys_errors_and_payloads_of_a_fleet_are_text() {
    let Some(hooks) = Hooks::start().await else {
        return;
    };
    let hostile = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "a\u{202e}gnp.exe\u{2066}\u{200b}",
        "esc\u{1b}[31m cr\r\nlf\ttab",
    ];
    hooks.give_up(&hostile.map(str::to_owned)).await;
    // A letter that no replica has sent, and that is no text.
    let payload = b"\xff\xfe<script>alert(2)".as_slice();
    hooks
        .client
        .publish("work-dead", payload.into())
        .await
        .unwrap();
    until("it is stored", async || hooks.letters().await == 5).await;
    let site = &hooks.site;
    let letters = site.json("/queues/f/hooks/dead").await;
    let mut pages = vec!["/queues/f/hooks/dead".to_owned()];
    for row in letters["rows"].as_array().unwrap() {
        pages.push(format!(
            "/queues/f/hooks/dead/{}",
            row["id"].as_str().unwrap()
        ));
    }
    for path in pages {
        let page = site.get_as("alice", &path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        page.lacks("<script>alert | <img | \u{202e} | \u{2066} | \u{200b} | \u{1b} | \r | \u{ff}");
    }
    let page = site.get_as("alice", "/queues/f/hooks/dead").await;
    page.has("&lt;script&gt;alert(1) | (no key) | \\xff\\xfe&lt;script&gt;");
    let id = letters["rows"][4]["id"].as_str().unwrap();
    let refused = hooks.post(&format!("action=put_back&letter={id}")).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    refused.has("no producer has published");
    let all = "action=put_back&all=1&back=dead";
    assert_eq!(hooks.post(all).await.next(), "dead");
    let page = site.get("/queues/f/hooks/dead").await;
    page.has("4 of 5 put back. The rest: a dead letter whose message no producer has published");
    let fields = format!("action=drop_letter&letter={id}");
    assert_eq!(hooks.post(&fields).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test] // X2
async fn a_server_that_is_away_is_named_in_time_and_a_live_page_goes_on() {
    let Some(mut hooks) = Hooks::start().await else {
        return;
    };
    hooks.server.kill();
    until("the connection is lost", async || {
        hooks
            .site
            .get("/queues")
            .await
            .text
            .contains("not connected")
    })
    .await;
    for path in "/queues/f/hooks /queues/f/hooks/dead /queues/f/hooks/dead/1-0".split(' ') {
        let began = Instant::now();
        let page = hooks.site.get(path).await;
        assert!(began.elapsed() < Duration::from_secs(5) * rig::patience());
        assert_eq!(page.status, StatusCode::BAD_GATEWAY, "{path}");
        page.has(
            "the server of the fleet WORK has not responded for 2 s | All queues | \
            <h1 tabindex=\"-1\">hooks< | Partitions</a>",
        );
        page.lacks("Bad Gateway</h1>");
    }
    let json = [("accept", "application/json")];
    let json = hooks.site.get_with("/queues/f/hooks", &json).await;
    assert!(json.json()["error"].as_str().unwrap().contains("WORK"));
    let refused = hooks.post("action=put_back&letter=1").await;
    assert_eq!(refused.status, StatusCode::BAD_GATEWAY);
    // No live page: it would wait for the server at the address of the form.
    refused.lacks("id=\"live\" | JSON");

    let mut body = (hooks.site.stream("/queues/f/hooks", "identity").await).into_body();
    event(&mut body).await.has("event: live | not responded");
    hooks.server.restart().await;
    let mut next = event(&mut body).await;
    while !next.text.contains("Partitions") {
        next.has("event: live");
        next = event(&mut body).await;
    }
}

#[tokio::test]
async fn fleets_and_queues_have_no_name_in_common_and_a_missing_fleet_is_named() {
    let Some(hooks) = Hooks::start().await else {
        return;
    };
    let (board, site) = (&hooks.site.board, &hooks.site);
    let other = Config {
        stream: "OTHER".into(),
        ..Config::default()
    };
    let add = |name| board.add_fleet(name, hooks.client.clone(), other.clone());
    assert!(add("mails").is_err() && add("hooks").is_err() && add("a\nb").is_err());
    let queue = site.queue.as_ref().unwrap();
    assert!(
        board
            .add("hooks", keyqueue_board::Shown::display(queue))
            .is_err()
    );
    add("other").unwrap();
    let missing = site.get("/queues/f/other").await;
    assert_eq!(missing.status, StatusCode::BAD_GATEWAY);
    missing.has("bucket OTHER-owners | create");
    site.get("/queues/f/other/dead")
        .await
        .has("does not know the dead letters of this fleet");
    for path in "/f/mails /f/none /q/hooks /f/none/dead /f/hooks/keys".split(' ') {
        let missing = site.get(&format!("/queues{path}")).await;
        assert_eq!(missing.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert!(board.remove("other") && !board.remove("other"));
    let gone = site.get("/queues/f/other").await;
    gone.has("There is no fleet");
}
