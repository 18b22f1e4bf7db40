//! The example `pipeline --listen` under a real Prometheus: the scrapes, and the results of queries.
//!
//! Skipped where `prometheus` or `promtool` is not installed (Debian's package `prometheus` has both).
#![cfg(all(feature = "metrics", unix))]

mod programs;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use programs::{Running, program, run};
use serde_json::Value;

/// The folder with the example's dashboard and alerts.
const PIPELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pipeline");

/// Whether both programs are there. If not, the test is skipped.
fn installed() -> bool {
    let missing = ["prometheus", "promtool"].into_iter().find(|program| {
        let version = Command::new(program).arg("--version").output();
        !version.is_ok_and(|version| version.status.success())
    });
    if let Some(program) = missing {
        rig::skipped(&format!("there is no {program}"));
    }
    missing.is_none()
}

/// Returns the body of the response, if there is one.
fn http_get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.to_owned())
}

fn start(command: &mut Command) -> Running {
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Starts a Prometheus that scrapes `target` and listens on `address`.
fn prometheus(dir: &Path, target: SocketAddr, address: SocketAddr) -> Running {
    let config = dir.join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\n\
         scrape_configs: [{{job_name: keyqueue, static_configs: [{{targets: ['{target}']}}]}}]\n"
    );
    fs::write(&config, text).unwrap();
    let data = dir.join("data");
    start(
        Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}")),
    )
}

/// The values that a query has, once it has any.
#[track_caller]
fn query(prometheus: SocketAddr, query: &str) -> Vec<f64> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let path = format!("/api/v1/query?query={encoded}");
    rig::found(query, || {
        let answer: Value = serde_json::from_str(&http_get(prometheus, &path)?).ok()?;
        // Not to be waited out: the query is wrong.
        assert_ne!(answer["errorType"], "bad_data", "{query}: {answer}");
        let rows = answer["data"]["result"].as_array()?.iter();
        let values = rows.filter_map(|row| row["value"][1].as_str()?.parse::<f64>().ok());
        let values: Vec<f64> = values.collect();
        (!values.is_empty() && values.iter().all(|value| value.is_finite())).then_some(values)
    })
}

/// Runs `promtool` over a file in [`PIPELINE`], or over its standard input. Returns what it says.
#[track_caller]
fn promtool(arguments: &[&str], input: impl Into<Stdio>) -> String {
    let mut command = Command::new("promtool");
    let ended = run(command.args(arguments).stdin(input).current_dir(PIPELINE));
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    ended.stdout + &ended.stderr
}

/// The variables of the dashboard, each with the query of its values.
const VARIABLES: [(&str, &str); 3] = [
    ("job", "label_values(workqueue_merged_adds_total, job)"),
    (
        "instance",
        r#"label_values(workqueue_merged_adds_total{job=~"$job"}, instance)"#,
    ),
    (
        "name",
        r#"label_values(workqueue_merged_adds_total{job=~"$job", instance=~"$instance"}, name)"#,
    ),
];

/// Every expression of the dashboard, with Grafana's variables filled in.
fn dashboard() -> Vec<String> {
    let file = fs::read_to_string(Path::new(PIPELINE).join("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&file).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let queries = variables.filter(|variable| variable["type"] == "query");
    let queries = queries.map(|variable| {
        let query = &variable["query"]["query"];
        (variable["name"].as_str().unwrap(), query.as_str().unwrap())
    });
    assert!(queries.eq(VARIABLES));

    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| {
        let legend = target["legendFormat"].as_str().unwrap();
        assert!(legend.starts_with("{{instance}} {{name}}"), "{legend}");
        let mut expression = target["expr"].as_str().unwrap().to_owned();
        for (variable, _) in VARIABLES {
            let matcher = format!(r#"{variable}=~"${variable}""#);
            assert!(expression.contains(&matcher), "{expression}");
            let any = format!(r#"{variable}=~".+""#);
            expression = expression.replace(&matcher, &any);
        }
        let expression = expression.replace("$__rate_interval", "10s");
        assert!(!expression.contains('$'), "{expression}");
        expression
    });
    expressions.collect()
}

// M1
#[test]
fn prometheus_scrapes_the_series_and_answers_the_dashboard() {
    if !installed() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [target, address] = rig::free_ports().unwrap();
    let [target, address] = [target, address].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let log = dir.path().join("log");
    let line = |number| format!("client-{:03} line {number}\n", number * 7 % 300);
    fs::write(&log, (0..2000).map(line).collect::<String>()).unwrap();
    let _example = start(
        program("pipeline")
            .arg(log)
            .args(["--pause", "5", "--fail", "60", "--rate", "20000"])
            .args(["--listen", &target.to_string()]),
    );
    let _prometheus = prometheus(dir.path(), target, address);

    let text = rig::found("the example's series", || {
        http_get(target, "/metrics").filter(|text| text.contains(r#"result="given_up"} 1"#))
    });
    let scraped = dir.path().join("scraped");
    fs::write(&scraped, text).unwrap();
    let said = promtool(&["check", "metrics"], File::open(scraped).unwrap());
    assert_eq!(said, "", "promtool has something to say");

    let one = |text: &str| match query(address, text)[..] {
        [value] => value,
        ref values => panic!("{text}: {values:?}"),
    };
    let depth = one(r#"workqueue_depth{name="pipeline"}"#);
    assert!((0.0..10_000.0).contains(&depth), "depth {depth}");
    // Of a thousand lines a second some are merged; retries come on top.
    let rate = rig::found("a rate of adds", || {
        let rate = one(r#"rate(workqueue_adds_total{name="pipeline"}[10s])"#);
        (rate > 50.0).then_some(rate)
    });
    assert!(rate < 3_000.0, "{rate} adds a second");
    let p90 = one(
        "histogram_quantile(0.9, sum by (le) (rate(workqueue_queue_duration_seconds_bucket[10s])))",
    );
    assert!(p90 > 0.0 && p90 < 60.0, "p90 {p90}");
    // The workers sleep for 5 ms.
    let mean = one(
        "rate(workqueue_work_duration_seconds_sum[10s]) / rate(workqueue_work_duration_seconds_count[10s])",
    );
    assert!(mean > 0.001 && mean < 1.0, "{mean} seconds a key");

    let expressions = dashboard();
    assert!(expressions.len() >= 18, "{expressions:?}");
    for expression in expressions {
        query(address, &expression);
    }
}

#[test]
fn the_alerts_go_off_when_they_should_and_only_then() {
    if installed() {
        promtool(&["check", "rules", "alerts.yml"], Stdio::null());
        promtool(&["check", "config", "prometheus.yml"], Stdio::null());
        promtool(&["test", "rules", "alerts.test.yml"], Stdio::null());
        let fleet = "../../nats";
        promtool(
            &["check", "rules", &format!("{fleet}/alerts.yml")],
            Stdio::null(),
        );
        promtool(
            &["test", "rules", &format!("{fleet}/alerts.test.yml")],
            Stdio::null(),
        );
    }
}

/// The dashboard and the alerts use only series that exist.
#[test]
fn docs_name_only_series_that_there_are() {
    let folder = Path::new(PIPELINE);
    let source = fs::read_to_string(folder.join("../../src/metrics/series.rs")).unwrap();
    for file in ["dashboard.json", "alerts.yml", "alerts.test.yml"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let series: Vec<&str> = words
            .filter(|word| word.starts_with("workqueue_"))
            .map(|series| series.trim_end_matches("_bucket"))
            .collect();
        assert!(series.len() > 3, "{file}");
        for series in series {
            assert!(source.contains(&format!("{series:?}")), "{file}: {series}");
        }
    }
}
