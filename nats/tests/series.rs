//! The series of a fleet: those of its page, of the dashboard and of the alerts are there.

mod common;

use std::collections::BTreeSet;
use std::future::ready;

use keyqueue_nats::Config;
use metrics_exporter_prometheus::PrometheusBuilder;
use servers::until;

use common::{DONE, config, created, keys, replica, stored};

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
    let exporter = PrometheusBuilder::new().install_recorder().unwrap();
    let config = Config {
        partitions: 2,
        ..config()
    };
    let Some((_server, client, producer)) = created(&config).await else {
        return;
    };
    let replica = replica(client, &config, "a", |_| ready(DONE)).await;
    stored(&producer, keys("key", 10)).await;
    let acknowledged = r#"keyqueue_nats_acks_total{stream="WORK"} 10"#;
    until("the series count", async || {
        let text = exporter.render();
        text.contains(acknowledged)
            && text.contains(r#"keyqueue_nats_owned_partitions{stream="WORK"} 2"#)
    })
    .await;
    // The queue inside reports as long as there is a handle.
    let _fleet = replica.fleet.clone();
    replica.leave().await;
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
