//! The page of a consumer of Kafka, on librdkafka's mock cluster.
#![cfg(feature = "kafka")]

#[allow(dead_code, reason = "this program uses a part of it")]
#[path = "pages/common.rs"]
mod common;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use keyqueue_board::Action;
use keyqueue_kafka::{Consumer, Outcome, Record, Verdict, dead_letter};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use servers::until;
use tokio::sync::Notify;

use common::{HOUR, Site};

type Cluster = MockCluster<'static, DefaultProducerContext>;

async fn produce(cluster: &Cluster, keys: &[&str]) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers());
    let producer: FutureProducer = config.create().unwrap();
    for key in keys {
        let record = FutureRecord::to("orders")
            .partition(0)
            .key(*key)
            .payload("x");
        producer.send(record, HOUR).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // X2, X5
async fn a_consumer_shows_its_partitions_and_the_oldest_record_of_each() {
    let cluster = MockCluster::new(1).unwrap();
    for topic in ["orders", "orders.dead"] {
        cluster.create_topic(topic, 1, 1).unwrap();
    }
    produce(&cluster, &["a", "slow <b>", "b", "bad", "b"]).await;
    let consumer = Consumer::builder(&cluster.bootstrap_servers(), "billing")
        .topics(["orders"])
        .dead_letters("orders.dead")
        .stalled_after(Duration::ZERO)
        .build()
        .unwrap();
    let (end, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (signal, waits) = (Arc::clone(&end), Arc::clone(&go_on));
    let runs = consumer.clone();
    let run = tokio::spawn(async move {
        let handler = move |record: Record| {
            let waits = Arc::clone(&waits);
            async move {
                match record.key() {
                    Some(b"slow <b>") => waits.notified().await,
                    // A record that was put back has a header.
                    Some(b"bad") if record.headers().count() == 0 => {
                        return Verdict::GiveUp("no such order");
                    }
                    _ => {}
                }
                Verdict::Ok(Outcome::Done)
            }
        };
        runs.run_until(signal.notified(), HOUR, handler).await
    });
    let site = Site::new();
    site.board.add_consumer("consumer", &consumer).unwrap();
    assert!(site.board.add_consumer("mails", &consumer).is_err());

    let path = "/queues/f/consumer";
    let mut json = serde_json::Value::Null;
    until("all but one are finished", async || {
        json = site.json(path).await;
        json["finished"] == 3 && json["dead_letters"] == 1
    })
    .await;
    let partition = &json["partitions"][0];
    for (what, value) in [
        ("base", 1),
        ("finished_beyond", 3),
        ("records", 1),
        ("running", 1),
    ] {
        assert_eq!(partition[what], value, "{what}: {json}");
    }
    assert_eq!(
        (&json["stalled"], &json["about"]),
        (&1.into(), &"group billing".into())
    );
    let page = site.get_as("alice", path).await;
    page.has("slow &lt;b&gt; | class=\"state bad\">runs< | <div class=\"bad\"><dt>stalled");
    page.lacks("method=\"post\"");
    let index = site.get("/queues").await;
    index.has("f/consumer | group billing");
    // It has no owners, knows no connection, and has counted what it has written, which may be back.
    let row = site.json("/queues").await["fleets"][0].take();
    assert!(
        row["unowned"].is_null() && row["dead_letters"].is_null(),
        "{row}"
    );
    assert_eq!((&row["server"], &row["messages"]), (&"".into(), &1.into()));
    for action in Action::ALL {
        let fields = format!("action={action}&seconds=1&letter=1-1");
        let refused = site.sure(&format!("{path}/do"), "alice", &fields).await;
        assert!(
            refused.status.is_client_error(),
            "{action}: {}",
            refused.text
        );
        assert_ne!(refused.status, StatusCode::FORBIDDEN, "{action}");
    }

    let letters = site.get_as("alice", &format!("{path}/dead")).await;
    letters.has("1 letter | no such order | put_back | drop_letter");
    // Another process numbers the letters in another order.
    site.board.add_consumer("replica", &consumer).unwrap();
    let of = letters.text.split("name=\"of\" value=\"").nth(1).unwrap();
    let of = of.split('"').next().unwrap();
    let fields = format!("action=drop_letter&all=1&upto=1&of={of}");
    let refused = site.sure("/queues/f/replica/do", "alice", &fields).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text);
    site.get(&format!("{path}/dead")).await.lacks("put_back");
    let one = site.get(&format!("{path}/dead/1")).await;
    one.has("orders, partition 0, offset 3 | no such order");
    // Both clicks are on the page that shows it.
    let id = site.id(&format!("{path}/dead"), "1").await;
    let fields = format!("action=put_back&letter={id}&back=dead");
    let (first, second) = (format!("{path}/do"), format!("{path}/do"));
    assert_eq!(site.sure(&first, "alice", &fields).await.next(), "dead");
    let again = site.sure(&second, "alice", &fields).await;
    again.has("there is no dead letter 1 any more");
    let dropped = format!("action=drop_letter&letter={id}");
    let dropped = site.sure(&first, "alice", &dropped).await;
    assert!(dropped.status.is_client_error(), "{}", dropped.text);
    until("it is finished at last", async || {
        site.json(path).await["finished"] == 4
    })
    .await;
    let left = site.json(&format!("{path}/dead")).await;
    assert_eq!(
        (&left["len"], &left["rows"]),
        (&0.into(), &serde_json::json!([]))
    );

    go_on.notify_one();
    until("it is finished", async || {
        site.json(path).await["partitions"][0]["base"] == 6
    })
    .await;
    site.get(path).await.has(">idle<");
    end.notify_one();
    run.await.unwrap().unwrap();
    until("it is given back", async || {
        site.json(path).await["partitions"] == serde_json::json!([])
    })
    .await;
    assert!(site.board.remove("consumer"));
    assert_eq!(site.get(path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // X2, X5
async fn a_letter_that_brokers_refuse_holds_up_no_other_one_and_a_partition_that_cannot_be_read_is_named()
 {
    let cluster = MockCluster::new(1).unwrap();
    for topic in ["orders", "silent", "dead"] {
        cluster.create_topic(topic, 1, 1).unwrap();
    }
    cluster.partition_leader("silent", 0, None).unwrap();
    produce(&cluster, &["a", "b", "c", "d"]).await;
    let consumer = Consumer::builder(&cluster.bootstrap_servers(), "billing")
        .topics(["orders", "silent"])
        .dead_letters("dead")
        .build()
        .unwrap();
    let end = Arc::new(Notify::new());
    let (signal, runs) = (Arc::clone(&end), consumer.clone());
    let run = tokio::spawn(async move {
        let handler = async |record: Record| match record.headers().count() {
            0 => Verdict::GiveUp("no such order"),
            // It was put back.
            _ => Verdict::Ok(Outcome::Done),
        };
        runs.run_until(signal.notified(), HOUR, handler).await
    });
    let site = Site::new();
    site.board.add_consumer("consumer", &consumer).unwrap();
    let path = "/queues/f/consumer";
    until("all are given up", async || {
        let json = site.json(path).await;
        json["dead_letters"] == 4 && json["unread"] == 1
    })
    .await;
    site.get(path)
        .await
        .has("could not be read, and were not since: silent 0");
    let index = site.get("/queues").await;
    index.has(
        "<span class=\"bad\">These partitions could not be read, and were not since: silent 0<",
    );

    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    // Of all four, of the first two, and of the first.
    cluster.request_errors(RDKafkaApiKey::AddPartitionsToTxn, &[refused; 3]);
    let dead = format!("{path}/dead");
    let letters = site.get_as("alice", &dead).await;
    let of = letters.text.split("name=\"of\" value=\"").nth(1).unwrap();
    let of = of.split('"').next().unwrap();
    let fields = format!("action=put_back&all=1&upto=4&of={of}&back=dead");
    site.sure(&format!("{path}/do"), "alice", &fields).await;
    until("the other three are back", async || {
        site.json(path).await["finished"] == 3
    })
    .await;
    let left = site.json(&dead).await;
    assert_eq!(left["len"], 1, "{left}");
    end.notify_one();
    run.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // X2, X5
async fn a_drop_whose_commit_is_not_confirmed_is_perhaps_done_and_a_topic_is_text_from_elsewhere() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("dead", 1, 1).unwrap();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers());
    let producer: FutureProducer = config.create().unwrap();
    for offset in ["0", "1"] {
        let headers = [
            (dead_letter::TOPIC, "or\u{202e}ders"),
            (dead_letter::PARTITION, "0"),
            (dead_letter::OFFSET, offset),
            (dead_letter::GROUP, "billing"),
        ];
        let insert = |all: OwnedHeaders, (key, value)| {
            let value = Some(value);
            all.insert(Header { key, value })
        };
        let headers = headers.into_iter().fold(OwnedHeaders::new(), insert);
        let letter = FutureRecord::to("dead").key(offset).payload("x");
        producer.send(letter.headers(headers), HOUR).await.unwrap();
    }
    let consumer = Consumer::builder(&cluster.bootstrap_servers(), "billing")
        .topics(["orders"])
        .dead_letters("dead")
        .build()
        .unwrap();
    let site = Site::new();
    site.board.add_consumer("consumer", &consumer).unwrap();
    let dead = "/queues/f/consumer/dead";
    let one = site.get(&format!("{dead}/1")).await;
    one.has("or\\u{202e}ders, partition 0, offset 0");
    one.lacks("\u{202e}");

    // None is committed if a record is refused.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::AddPartitionsToTxn, &[error]);
    let one = format!("action=drop_letter&letter={}", site.id(dead, "1").await);
    let dropped = site.sure("/queues/f/consumer/do", "alice", &one).await;
    dropped.has("Refused: ");
    assert_eq!(site.json(dead).await["len"], 2);
    // The mock cluster has written the marks by then.
    cluster.request_errors(RDKafkaApiKey::EndTxn, &[error]);
    let dropped = site.sure("/queues/f/consumer/do", "alice", &one).await;
    dropped.has("Perhaps done: ");
    assert_eq!(site.json(dead).await["len"], 1);
}
