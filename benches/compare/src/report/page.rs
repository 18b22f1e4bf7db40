//! BENCHMARKS.md from its template `page.md`, and the figures of README.md.

use anyhow::{Context, Result};

use super::tables::{self, median, ratio, table};
use super::{OURS, Report};
use crate::catalogue::{self, Group};
use crate::model::TRANSFER;

/// The prose; `{{name}}` stands for a table or a figure.
const TEMPLATE: &str = include_str!("page.md");

pub(super) fn benchmarks(report: &Report) -> String {
    let mut short = tables::verdicts(report);
    short.retain(|verdict| verdict[3] == tables::SHORT);
    let parts = [
        ("run", run(report)),
        ("summary", tables::summary(report)),
        ("contenders", contenders(report)),
        ("results", tables::results(report)),
        ("rmws", tables::rmws(report)),
        ("behind", tables::behind(report)),
        ("short", table(tables::TARGETS, &short)),
        ("transfer", TRANSFER.to_string()),
        ("model", tables::model(report)),
        ("workloads", workloads()),
        ("extremes", tables::extremes(report)),
    ];
    let mut page = TEMPLATE.to_owned();
    for (name, text) in parts {
        page = page.replace(&format!("{{{{{name}}}}}"), &text);
    }
    page
}

fn run(report: &Report) -> String {
    let machine = &report.machine;
    let quick = match report.quick {
        true => "**This was a quick run: fewer rounds of a fifth of the keys.** ",
        false => "",
    };
    format!(
        "{quick}{} rounds took {} min {} s on {} cores of {} with {} of memory; {}, {}, Go: {}. \
         Load average before the run: {} (0 is a quiet machine; {} or more disturb the figures).",
        report.rounds,
        report.seconds / 60,
        report.seconds % 60,
        machine.cores,
        machine.processor,
        machine.memory,
        machine.system,
        machine.rust,
        machine.go,
        machine.load,
        machine.cores,
    )
}

fn contenders(report: &Report) -> String {
    let entrants = report.contenders.iter().map(|entrant| {
        let what = match &*entrant.name {
            OURS => "this crate",
            "client-go" => "k8s.io/client-go/util/workqueue",
            "priorityqueue" => "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue",
            "single-lock" => "the best queue with one lock that we could write",
            "kube-runtime" => "its scheduler (delays) and applier (`reconcile`)",
            "delay-queue" => "tokio-util's `DelayQueue` under a mutex, delays only",
            "heap" => "a binary heap under a mutex, delays only",
            "array-queue" => "limit: a bare ring, no keys",
            "seg-queue" => "limit: a bare linked queue, no keys",
            _ => "",
        };
        let version = match &entrant.not_run {
            Some(why) => format!("**not run**: {why}"),
            None => entrant.version.clone(),
        };
        [entrant.name.clone(), what.to_owned(), version]
    });
    table("name|what|version", &entrants.collect::<Vec<_>>())
}

fn workloads() -> String {
    let groups = catalogue::GROUPS.iter().map(|Group(what, workloads)| {
        let ids: Vec<&str> = workloads.iter().map(|workload| workload.0).collect();
        [ids.join(", "), (*what).to_owned()]
    });
    table("workloads|what", &groups.collect::<Vec<_>>())
}

const BEGIN: &str = "<!-- figures: begin -->\n";
const END: &str = "<!-- figures: end -->";

/// The rows of README.md.
const ROWS: &str = "cycle-u64, cycle-string, cycle-handle, duplicate-1, duplicate-4, unique-1x1, \
    unique-8x8, string-8x8, replay, backlog, latency p99, wake p50, delay-insert, \
    limiter-controller-4, memory queued, start, start used";

/// README.md with the figures of this run between its marks.
pub(super) fn readme(report: &Report, readme: &str) -> Result<String> {
    let begin = readme.split_once(BEGIN);
    let (before, rest) = begin.context("no mark before the figures")?;
    let (_, after) = rest.split_once(END).context("no mark after the figures")?;
    let rows = ROWS.split(", ").filter_map(|id| {
        let row = report.row(id)?;
        let (go, lock) = ("client-go", "single-lock");
        let medians = [OURS, go, lock].map(|name| median(row, name));
        let mut cells = vec![row.id.clone(), row.unit.clone()];
        cells.extend(
            medians
                .into_iter()
                .chain([ratio(row, go), ratio(row, lock)]),
        );
        Some(cells)
    });
    let header = "workload|unit|>keyqueue|>client-go|>single lock|>to client-go|>to single lock";
    let figures = table(header, &rows.collect::<Vec<_>>());
    let machine = &report.machine;
    Ok(format!(
        "{before}{BEGIN}Medians of {} interleaved rounds, a {} run, on {} cores of {}, load average \
         {} before the run. Lower is better; for ratios, higher is better.\n\n{figures}\n{END}{after}",
        report.rounds,
        if report.quick { "quick" } else { "full" },
        machine.cores,
        machine.processor,
        machine.load,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{Entrant, Machine, Row};
    use super::*;

    #[test]
    fn the_page_shows_contenders_that_did_not_run_and_rows_that_keyqueue_loses() {
        let mut row = Row::new("cycle-u64", "", "ns/key");
        row.record(OURS, 10.0);
        row.record("single-lock", 5.0);
        let mut machine = Machine::this();
        machine.rmw_ns = Some(1.0);
        let report = Report {
            machine,
            quick: true,
            rounds: 1,
            seconds: 0,
            contenders: vec![Entrant {
                name: "client-go".into(),
                version: String::new(),
                not_run: Some("there is no go".into()),
            }],
            rows: vec![row],
            model: Vec::new(),
        };
        let page = benchmarks(&report);
        for cells in [
            &["client-go", "**not run**: there is no go"][..],
            &[
                "cycle-u64",
                "1.7x less than single-lock",
                "0.50",
                tables::SHORT,
            ],
            &["cycle-u64", "10.0", "single-lock", "5.00", "0.50x", "no"],
            &["cycle-u64", "10.0", "5", "2.00x"],
            &["This was a quick run"],
            &["Of 2 targets 0 are met, 1 are short, 1 could not be judged"],
        ] {
            let is_it = |line: &str| cells.iter().all(|cell| line.contains(cell));
            assert!(page.lines().any(is_it), "no {cells:?} in\n{page}");
        }
        assert!(!page.contains("{{"), "an unknown name in\n{page}");
    }

    #[test]
    fn the_readme_has_both_marks() {
        let text = include_str!("../../../../README.md");
        let begin = text.find(BEGIN).expect("the first mark");
        assert!(text[begin..].contains(END));
    }
}
