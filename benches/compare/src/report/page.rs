//! BENCHMARKS.md.

use std::fmt::Write;

use super::table;
use super::verdict::verdicts;
use super::{OURS, Report};
use crate::workloads;

/// What the workloads cannot say for themselves: why a target is short, or a row to be read with care.
const NOTES: &str = include_str!("notes.md");

pub(super) fn markdown(report: &Report) -> String {
    let mut page = String::new();
    write(&mut page, report).expect("a string takes everything");
    page
}

fn write(page: &mut String, report: &Report) -> std::fmt::Result {
    let machine = &report.machine;
    writeln!(page, "# Benchmarks\n")?;
    writeln!(
        page,
        "Written by `cargo run --release -p compare` from one run; not to be edited. It took {} min {} s \
         on {} cores of {} with {} of memory; {}, {}, Go: {}. Load average as it began: {} (0 is a quiet \
         machine, {} or more one that measures little).\n",
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
    )?;
    if report.quick {
        writeln!(page, "**A quick run**: fewer rounds of fewer keys.\n")?;
    }
    writeln!(page, "{METHOD}")?;
    summary(page, report)?;

    writeln!(page, "\n## Contenders\n")?;
    let mut contenders = table::table(&["name", "what", "made of"], 0..0);
    for entrant in &report.contenders {
        let mut version = entrant.version.clone();
        if let Some(why) = &entrant.not_run {
            version = format!("**not run**: {why}");
        }
        contenders.add_row([&entrant.name, what(&entrant.name), &version]);
    }
    writeln!(page, "{contenders}\n{SINGLE_LOCK}")?;

    writeln!(page, "\n## Targets\n")?;
    writeln!(page, "{}\n\n{NOTES}", table::targets(report))?;

    writeln!(page, "## Results\n")?;
    writeln!(
        page,
        "Medians of {} rounds; less is better in every row. \"to client-go\" is its figure divided by \
         keyqueue's: above 1 we do better, below it worse.\n",
        report.rounds,
    )?;
    writeln!(page, "{}\n", table::results(report))?;
    for (title, plot) in PLOTS {
        writeln!(page, "![{title}]({RESULTS}/{plot})\n")?;
    }

    writeln!(page, "## Where others do better\n")?;
    writeln!(
        page,
        "Every row in which somebody's median is less than keyqueue's, the bare queues apart.\n"
    )?;
    writeln!(page, "{}\n", table::behind(report))?;

    writeln!(page, "## More processors: a model, not a measurement\n")?;
    if report.model.is_empty() {
        writeln!(
            page,
            "Not in this run: it takes valgrind, and a full run or `--model`.\n"
        )?;
    } else {
        writeln!(page, "{MODEL}\n{}\n", table::model(report))?;
        writeln!(
            page,
            "![Keys by processors, a model]({RESULTS}/model.svg)\n"
        )?;
    }

    writeln!(page, "## Workloads\n")?;
    let mut about = table::table(&["id", "what"], 0..0);
    for workload in workloads::all() {
        about.add_row([&workload.id, workload.what]);
    }
    writeln!(page, "{about}\n")?;

    writeln!(page, "## Least and most\n")?;
    writeln!(page, "{}", table::spread(report))
}

fn summary(page: &mut String, report: &Report) -> std::fmt::Result {
    let verdicts = verdicts(report);
    let count = |met| verdicts.iter().filter(|verdict| verdict.met == met).count();
    writeln!(
        page,
        "Of {} targets {} are met, {} are short, {} could not be judged.",
        verdicts.len(),
        count(Some(true)),
        count(Some(false)),
        count(None),
    )
}

/// Where the plots are.
const RESULTS: &str = "benches/compare/results";

const PLOTS: [(&str, &str); 3] = [
    ("Throughput by threads", "throughput.svg"),
    ("Latency percentiles", "latency.svg"),
    ("Memory for a key", "memory.svg"),
];

const METHOD: &str = "\
In each round every contender runs once, one after the other, and in the next the other way round (A B C C B A
...), so that what one leaves behind does not always fall to the same; each has a new queue, and a round that warms
up is thrown away. Medians are compared, the extremes are at the end, every figure is in
`benches/compare/results/results.json`. Every round checks that each contender delivered the same keys the same
number of times, or, where that depends on chance (`hot`, `replay`), that every key was delivered after its last
add. The Go queues run in a process of their own, which checks and is checked the same way, with their garbage
collected before and after each round. The Rust ones are compiled in one piece (one codegen unit), so that what is
inlined does not depend on how the compiler would split them up. Absolute figures say little about another machine; ratios within this run are what
counts.
";

const SINGLE_LOCK: &str = "
What `single-lock` does to be strong: one mutex of parking_lot, taken once for an operation; a key is hashed once,
before the lock; one probe of one hashbrown table in `add` and `done`, none in `get`, since a key's state follows
from a ticket that it draws; a consumer is woken only if one sleeps that nobody has woken, after the lock is given
back; a short spin before sleeping; strings shared, not copied; keys dropped outside the lock; lock, hasher and
hint on cache lines of their own. It has no delays, no handles, no drain, no waiting tasks, no panic safety.
";

const MODEL: &str = "\
Two cores show no contention worth the name, so this is computed, not measured. Every load and store of 8192 cycles
(add, get, done of 4096 recurring keys, 512 of them queued at any time) of the real queues was traced under valgrind
on one thread. Simulated processors take the traced steps in turn; a cache line that another one has written, or
that is written while others have read it, costs 54 ns (what a transfer takes on the machine above), and a line that
a step writes is waited for until the step has done with it, as a lock is. What one thread takes without any
transfer is its measured `cycle-u64`. Left out: sleeping and waking, failed exchanges, sockets, and the limits of
the interconnect. What counts is where the curves bend.
";

fn what(contender: &str) -> &'static str {
    match contender {
        OURS => "this crate",
        "client-go" => "k8s.io/client-go/util/workqueue, what is being replaced",
        "priorityqueue" => "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue",
        "single-lock" => "the best queue with one lock that we could write",
        "kube-runtime" => "its scheduler (delays) and applier (`reconcile`)",
        "delay-queue" => "tokio-util's `DelayQueue` under a mutex, delays alone",
        "heap" => "a binary heap under a mutex, delays alone",
        "array-queue" => "limit: a bare ring, no keys",
        "seg-queue" => "limit: a bare linked queue, no keys",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;

    #[test]
    fn the_page_says_who_did_not_run_and_where_we_lose() {
        let mut report = Report::new(false, 1);
        let mut row = Row::new("cycle-u64", &workloads::all()[0].metrics[0]);
        row.record(OURS, 10.0);
        row.record("single-lock", 5.0);
        report.rows.push(row);
        report.contenders.push(super::super::Entrant {
            name: "client-go".into(),
            version: String::new(),
            not_run: Some("there is no go".into()),
        });

        let page = markdown(&report);
        let has = |cells: &[&str]| {
            let line = |line: &str| cells.iter().all(|cell| line.contains(cell));
            page.lines().any(line)
        };
        assert!(has(&["client-go", "**not run**: there is no go"]), "{page}");
        assert!(
            has(&[
                "cycle-u64",
                "1.7x less than single-lock",
                "0.50x",
                "**short**"
            ]),
            "{page}"
        );
        assert!(
            has(&["cycle-u64", "6x less than client-go", "not run"]),
            "{page}"
        );
        assert!(
            has(&["cycle-u64", "10.0", "single-lock", "5.00", "0.50x", "no"]),
            "{page}"
        );
        assert!(page.contains("Of 2 targets 0 are met, 1 are short, 1 could not be judged."));
    }
}
