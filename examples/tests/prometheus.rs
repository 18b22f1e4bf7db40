//! The example `metrics` under a real Prometheus: the scrapes, and the results of queries.
//!
//! Skipped, with a line that says so, where `prometheus` or `promtool` is not installed (Debian's
//! package `prometheus` has both). `KEYQUEUE_PROMETHEUS=required` makes that a failure.
#![cfg(all(feature = "metrics", unix))]

mod programs;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use programs::program;
use serde_json::Value;

/// Far beyond what anything here takes.
const DEADLINE: Duration = Duration::from_secs(90);

/// Whether both programs are there.
fn installed() -> bool {
    let missing = ["prometheus", "promtool"].into_iter().find(|program| {
        let mut version = Command::new(program);
        version
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        !version.status().is_ok_and(|status| status.success())
    });
    if let Some(program) = missing {
        let required = std::env::var_os("KEYQUEUE_PROMETHEUS").is_some_and(|set| set == "required");
        assert!(!required, "`{program}` is not installed");
        eprintln!("skipped: `{program}` is not installed");
    }
    missing.is_none()
}

/// A program that ends with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Running(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
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

/// Waits for a response.
#[track_caller]
fn eventually<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(began.elapsed() < DEADLINE, "never: {what}");
        // Not a synchronisation: the server is another process, and does not signal its scrapes.
        thread::sleep(Duration::from_millis(50));
    }
}

struct Prometheus {
    address: SocketAddr,
    _server: Running,
}

impl Prometheus {
    fn start(dir: &Path, target: SocketAddr) -> Self {
        let config = dir.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\n\
             scrape_configs: [{{job_name: keyqueue, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let address = free_address();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"));
        Prometheus {
            address,
            _server: Running::start(&mut command),
        }
    }

    /// The values that a query has, once it has any.
    #[track_caller]
    fn query(&self, query: &str) -> Vec<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let path = format!("/api/v1/query?query={encoded}");
        eventually(query, || {
            let answer: Value = serde_json::from_str(&http_get(self.address, &path)?).ok()?;
            // Not to be waited out: the query is wrong.
            assert_ne!(answer["errorType"], "bad_data", "{query}: {answer}");
            let value = |row: &Value| row["value"][1].as_str()?.parse::<f64>().ok();
            let values: Vec<f64> = answer["data"]["result"]
                .as_array()?
                .iter()
                .filter_map(value)
                .collect();
            (!values.is_empty() && values.iter().all(|value| value.is_finite())).then_some(values)
        })
    }
}

/// What `promtool check metrics` has to say.
fn lint(text: &str) -> String {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// Every expression of the dashboard, with Grafana's variables filled in.
fn dashboard() -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("metrics/dashboard.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap())
        .map(|expr| {
            expr.replace("$__rate_interval", "10s")
                .replace("$name", ".*")
        })
        .collect()
}

// M1
#[test]
fn prometheus_scrapes_the_series_and_answers_the_dashboard() {
    if !installed() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = free_address();
    let _example = Running::start(
        Command::new(program("metrics"))
            .args(["--seconds", "0", "--events", "300"])
            .args(["--listen", &target.to_string()]),
    );
    let prometheus = Prometheus::start(dir.path(), target);

    let text = eventually("the example serves its series", || {
        http_get(target, "/metrics").filter(|text| text.contains("workqueue_given_up_total{"))
    });
    assert_eq!(lint(&text), "", "promtool has something to say");
    // client-go's, with its types and its label.
    for (series, kind) in [
        ("depth", "gauge"),
        ("adds_total", "counter"),
        ("queue_duration_seconds", "histogram"),
        ("work_duration_seconds", "histogram"),
        ("unfinished_work_seconds", "gauge"),
        ("longest_running_processor_seconds", "gauge"),
        ("retries_total", "counter"),
    ] {
        let kind_of = format!("# TYPE workqueue_{series} {kind}\n");
        assert!(text.contains(&kind_of), "no {kind_of:?} in\n{text}");
        let part = if kind == "histogram" { "_count" } else { "" };
        let labelled = format!("\nworkqueue_{series}{part}{{name=\"pods\"}} ");
        assert!(text.contains(&labelled), "no {labelled:?} in\n{text}");
    }

    let one = |query: &str| match prometheus.query(query)[..] {
        [value] => value,
        ref values => panic!("{query}: {values:?}"),
    };
    let depth = one(r#"workqueue_depth{name="pods"}"#);
    assert!((0.0..10_000.0).contains(&depth), "depth {depth}");
    // Of 300 events a second some are merged; retries and give-ups come on top.
    let rate = eventually("a rate of adds", || {
        let rate = one(r#"rate(workqueue_adds_total{name="pods"}[10s])"#);
        (rate > 50.0).then_some(rate)
    });
    assert!(rate < 3_000.0, "{rate} adds a second");
    let p90 = one(
        "histogram_quantile(0.9, sum by (le) (rate(workqueue_queue_duration_seconds_bucket[10s])))",
    );
    assert!(p90 > 0.0 && p90 < 60.0, "p90 {p90}");
    // The workers sleep for 1 to 8 ms.
    let mean = one(
        "rate(workqueue_work_duration_seconds_sum[10s]) / rate(workqueue_work_duration_seconds_count[10s])",
    );
    assert!(mean > 0.001 && mean < 1.0, "{mean} seconds a key");

    let expressions = dashboard();
    assert!(expressions.len() > 10, "{expressions:?}");
    for expression in expressions {
        prometheus.query(&expression);
    }
}

/// Runs `promtool` over a file of examples/metrics/.
fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("metrics"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
}

#[test]
fn the_alerts_go_off_when_they_should_and_only_then() {
    if !installed() {
        return;
    }
    promtool(&["check", "rules", "alerts.yml"]);
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["test", "rules", "alerts.test.yml"]);
}

/// The dashboard and the alerts use only series that exist.
#[test]
fn docs_name_only_series_that_there_are() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("metrics");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/metrics/series.rs");
    let source = std::fs::read_to_string(source).unwrap();
    for file in ["dashboard.json", "alerts.yml", "alerts.test.yml"] {
        let text = std::fs::read_to_string(docs.join(file)).unwrap();
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let series = words.filter(|word| word.starts_with("workqueue_"));
        let mut count = 0;
        for series in series {
            let series = series.trim_end_matches("_bucket");
            assert!(source.contains(&format!("{series:?}")), "{file}: {series}");
            count += 1;
        }
        assert!(count > 3, "{file}");
    }
}
