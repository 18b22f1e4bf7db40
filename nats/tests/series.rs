//! The series of a fleet: those of its page, of the dashboard and of the alerts are there.

use std::collections::BTreeSet;
use std::time::Duration;

use keyqueue_nats::{Config, Fleet, Producer, create};
use metrics_exporter_prometheus::PrometheusBuilder;
use servers::nats::Server;
use servers::until;

/// The names of a text that begin with `keyqueue_nats_`.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words
        .filter(|word| word.starts_with("keyqueue_nats_"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn the_dashboard_asks_for_series_that_a_fleet_has() {
    let Some(server) = Server::start().await else {
        return;
    };
    let exporter = PrometheusBuilder::new().install_recorder().unwrap();
    let client = server.client().await;
    let config = Config {
        partitions: 2,
        lease: Duration::from_secs(2),
        ..Config::default()
    };
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    let fleet = Fleet::join(client, config, "a").await.unwrap();
    let running = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.run(4, |_| async {}).await }
    });
    for key in 0..10 {
        producer.add(&key.to_string(), "").await.unwrap();
    }
    let acknowledged = r#"keyqueue_nats_acks_total{stream="WORK"} 10"#;
    until("the series count", async || {
        let text = exporter.render();
        text.contains(acknowledged)
            && text.contains(r#"keyqueue_nats_owned_partitions{stream="WORK"} 2"#)
    })
    .await;
    fleet.leave(Duration::from_secs(5)).await;
    running.await.unwrap().unwrap();
    let text = exporter.render();
    let exported = names(&text);
    let mut asked = names(include_str!("../dashboard.json"));
    asked.extend(names(include_str!("../alerts.yml")));
    assert!(
        asked.is_subset(&exported),
        "{:?}",
        asked.difference(&exported)
    );
    let page = include_str!("../docs/operating.md");
    for name in &exported {
        let short = name.trim_start_matches("keyqueue_nats_");
        let part = ["_sum", "_count"].iter().any(|end| short.ends_with(end));
        assert!(
            part || page.contains(short),
            "operating.md does not have {name}"
        );
    }
    // The queue inside, under the stream's name. It reports twice a second.
    until("the queue reports", async || {
        exporter
            .render()
            .contains(r#"workqueue_adds_total{name="WORK"} 10"#)
    })
    .await;
}
