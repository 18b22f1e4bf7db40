//! The series of a fleet: those of its page, of the dashboard and of the alerts are there.

mod common;

use std::collections::BTreeSet;
use std::future::ready;

use keyqueue_nats::{Config, Fleet};
use metrics::set_default_local_recorder;
use metrics_exporter_prometheus::PrometheusBuilder;
use servers::until;

use common::{DONE, Swallow, config, created, keys, replica, run, stored};

/// The names of a text that begin with `keyqueue_nats_`.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words
        .filter(|word| word.starts_with("keyqueue_nats_"))
        .map(str::to_owned)
        .collect()
}

/// N10: a run that ends while it is suspended is an alert no more.
#[tokio::test]
async fn a_run_that_has_ended_is_not_suspended() {
    let config = config();
    let Some((server, _, _)) = created(&config).await else {
        return;
    };
    let exporter = PrometheusBuilder::new().build_recorder();
    let proxy = Swallow::start(server.url()).await;
    let client = proxy.client().await;
    let fleet = {
        let _recorder = set_default_local_recorder(&exporter);
        Fleet::join(client, config, "a").await.unwrap()
    };
    let has = |level: &str| {
        let line = format!("keyqueue_nats_{level}");
        exporter.handle().render().lines().any(|has| has == line)
    };
    let replica = run(fleet, |_| ready(DONE));
    replica.owns(4).await;
    proxy.lose_named(Some("KV.WORK-owners"));
    until("it is suspended", async || {
        has(r#"suspended{stream="WORK"} 1"#)
    })
    .await;
    replica.running.abort();
    replica.running.await.unwrap_err();
    assert!(has(r#"suspended{stream="WORK"} 0"#));
    assert!(has(r#"lease_left_seconds{stream="WORK"} 0"#));
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
