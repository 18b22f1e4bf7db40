//! The three cases. Each starts a controller's process, writes, and reads its reports.

use std::env;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use control_plane::ControlPlane;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::PATIENCE;
use crate::contender::{COMPUTE, Contender, Report, Totals, compute, now};
use crate::objects;

/// How many objects and writes.
#[derive(Debug)]
pub(crate) struct Plan {
    burst: usize,
    writes: usize,
    start: usize,
    busy: usize,
}

impl Plan {
    pub(crate) const FULL: Plan = Plan {
        burst: 1000,
        writes: 20,
        start: 20_000,
        busy: 1000,
    };
    pub(crate) const SHORT: Plan = Plan {
        burst: 50,
        writes: 5,
        start: 1000,
        busy: 100,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Case {
    /// Many writes
    Burst,
    /// Many objects at the start, and an urgent change
    Start,
    /// Reconcilers that compute
    Busy,
}

/// What was measured in one run of one controller.
pub(crate) type Sample = Vec<(&'static str, f64)>;

impl Case {
    pub(crate) const ALL: [Case; 3] = [Case::Burst, Case::Start, Case::Busy];

    pub(crate) fn title(self, plan: &Plan) -> String {
        match self {
            Case::Burst => format!("{} objects, {} writes each", plan.burst, plan.writes),
            Case::Start => format!("{} objects at the start, one urgent change", plan.start),
            Case::Busy => format!("{} reconciliations that compute for 5 ms", plan.busy),
        }
    }

    pub(crate) async fn measure(
        self,
        plane: &ControlPlane,
        plan: &Plan,
        contender: Contender,
        round: usize,
    ) -> Result<Sample> {
        // A value that no round before has written.
        let goal = format!("{contender:?}-{round}");
        match self {
            Case::Burst => burst(plane, plan, contender, goal).await,
            Case::Start => start(plane, plan, contender, goal).await,
            Case::Busy => busy(plane, plan, contender, goal).await,
        }
    }
}

async fn burst(
    plane: &ControlPlane,
    plan: &Plan,
    contender: Contender,
    goal: String,
) -> Result<Sample> {
    let objects = plan.burst;
    let api = objects::prepare(plane.client(), "burst", objects).await?;
    let mut run = Run {
        contender,
        work: "copy",
        namespace: "burst",
        objects,
        limit: 16,
        goal: goal.clone(),
    }
    .start(plane.port())?;
    let before = run.until(listed).await?;
    objects::write_all(&api, objects, plan.writes, &goal).await?;
    let written = now();
    let all = run.until(all).await?;
    let end = run.end().await?;
    let reconciliations = end.reconciliations - before.reconciliations;
    Ok(vec![
        ("reconciliations", reconciliations as f64),
        (
            "ms from the last write until in step",
            (all.at - written) * 1e3,
        ),
        ("processor time, s", end.cpu - before.cpu),
    ])
}

async fn start(
    plane: &ControlPlane,
    plan: &Plan,
    contender: Contender,
    goal: String,
) -> Result<Sample> {
    let objects = plan.start;
    let api = objects::prepare(plane.client(), "start", objects).await?;
    let mut run = Run {
        contender,
        work: "wait",
        namespace: "start",
        objects,
        limit: 16,
        goal: goal.clone(),
    }
    .start(plane.port())?;
    let (urgent, at_writing) = run.until(waits).await?;
    objects::write(&api, &urgent, &goal).await?;
    let written = now();
    let first = run.until(first).await?;
    let others = first.reconciliations - at_writing.reconciliations;
    run.end().await?;
    Ok(vec![
        (
            "ms from the urgent write until it is reconciled",
            (first.at - written) * 1e3,
        ),
        ("reconciliations before it", others as f64),
    ])
}

async fn busy(
    plane: &ControlPlane,
    plan: &Plan,
    contender: Contender,
    goal: String,
) -> Result<Sample> {
    let objects = plan.busy;
    objects::prepare(plane.client(), "busy", objects).await?;
    let mut run = Run {
        contender,
        work: "compute",
        namespace: "busy",
        objects,
        limit: 4,
        goal,
    }
    .start(plane.port())?;
    let all = run.until(listed).await?;
    run.end().await?;
    Ok(vec![(
        "reconciliations a second",
        all.reconciliations as f64 / (all.at - all.began),
    )])
}

fn listed(report: Report) -> Option<Totals> {
    match report {
        Report::Listed(totals) => Some(totals),
        _ => None,
    }
}

fn first(report: Report) -> Option<Totals> {
    match report {
        Report::First(totals) => Some(totals),
        _ => None,
    }
}

fn all(report: Report) -> Option<Totals> {
    match report {
        Report::All(totals) => Some(totals),
        _ => None,
    }
}

fn waits(report: Report) -> Option<(String, Totals)> {
    match report {
        Report::Waits { object, totals } => Some((object, totals)),
        _ => None,
    }
}

/// The number of steps of a computation that takes 5 ms on this machine, measured once.
fn steps() -> u64 {
    static STEPS: OnceLock<u64> = OnceLock::new();
    *STEPS.get_or_init(|| {
        const SOME: u64 = 10_000_000;
        let time = |_| {
            let began = Instant::now();
            compute(SOME);
            began.elapsed()
        };
        // The least: nothing else had the processor.
        let least = (0..20).map(time).min().unwrap_or_default();
        (SOME as f64 * COMPUTE.as_secs_f64() / least.as_secs_f64()) as u64
    })
}

/// A controller's process, and what it is started with.
struct Run {
    contender: Contender,
    work: &'static str,
    namespace: &'static str,
    objects: usize,
    limit: u16,
    goal: String,
}

impl Run {
    fn start(&self, port: u16) -> Result<Running> {
        let contender = self
            .contender
            .to_possible_value()
            .context("none is hidden")?;
        let mut child = Command::new(env::current_exe()?)
            .args(["run", "--contender", contender.get_name()])
            .args(["--work", self.work, "--port", &port.to_string()])
            .args(["--namespace", self.namespace, "--goal", &self.goal])
            .args(["--objects", &self.objects.to_string()])
            .args(["--limit", &self.limit.to_string()])
            .args(["--steps", &steps().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().context("its output")?;
        Ok(Running {
            child,
            reports: BufReader::new(output).lines(),
        })
    }
}

struct Running {
    child: Child,
    reports: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Waits for a report that `select` takes.
    async fn until<T>(&mut self, select: impl Fn(Report) -> Option<T>) -> Result<T> {
        let search = async {
            while let Some(line) = self.reports.next_line().await? {
                if let Some(found) = select(serde_json::from_str(&line)?) {
                    return Ok(found);
                }
            }
            bail!("the controller has ended")
        };
        timeout(PATIENCE, search).await?
    }

    /// Waits until what is still to be reconciled may be, and ends it.
    async fn end(mut self) -> Result<Totals> {
        sleep(Duration::from_secs(1)).await;
        drop(self.child.stdin.take());
        let end = |report| match report {
            Report::End(totals) => Some(totals),
            _ => None,
        };
        let totals = self.until(end).await?;
        self.child.wait().await?;
        Ok(totals)
    }
}
