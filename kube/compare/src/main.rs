//! keyqueue-kube's Controller beside kube-runtime's: the same reconciler, the same API server, in turns. Each run is
//! a process of its own, so that its processor time is the controller's alone; this process writes the objects.

mod contender;
mod measure;
mod objects;

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use control_plane::ControlPlane;

use contender::Contender;
use measure::{Case, Plan, Sample};

/// Measures keyqueue-kube's Controller beside kube-runtime's
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// How many rounds; each measures both
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only this case
    #[arg(long, value_enum)]
    case: Option<Case>,
    /// A few objects and two rounds, to see that it works: the figures mean nothing
    #[arg(long)]
    short: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one controller: started by the measurement
    #[command(hide = true)]
    Run(contender::Options),
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(Command::Run(options)) = arguments.command {
        return contender::run(options).await;
    }
    let Some(plane) = ControlPlane::start().await? else {
        return Ok(());
    };
    let (plan, rounds) = if arguments.short {
        (Plan::SHORT, 2)
    } else {
        (Plan::FULL, arguments.rounds)
    };
    println!(
        "kube-apiserver {}, {rounds} rounds; medians, and the least and the most",
        control_plane::version()
    );
    let chosen = |case: &Case| arguments.case.is_none_or(|chosen| chosen == *case);
    for case in Case::ALL.into_iter().filter(chosen) {
        let mut samples = Contender::ALL.map(|contender| (contender, Vec::new()));
        for round in 0..rounds {
            for (contender, samples) in &mut samples {
                samples.push(case.measure(&plane, &plan, *contender, round).await?);
            }
        }
        println!("\n{}", table(&case.title(&plan), &samples));
    }
    Ok(())
}

/// A row for each figure, and a column for each controller.
fn table(title: &str, samples: &[(Contender, Vec<Sample>)]) -> Table {
    let mut table = Table::new();
    let names = samples.iter().map(|(contender, _)| contender.name());
    let header = [title].into_iter().chain(names);
    table
        .load_preset(ASCII_MARKDOWN)
        .set_header(header.chain(["ratio, same limit"]));
    let figures = samples[0].1[0].iter().map(|(figure, _)| *figure);
    for (index, figure) in figures.enumerate() {
        let columns: Vec<Spread> = samples
            .iter()
            .map(|(_, samples)| Spread::of(samples.iter().map(|sample| sample[index].1)))
            .collect();
        let cells = columns.iter().map(ToString::to_string);
        let row = [figure.to_owned()].into_iter().chain(cells);
        let ratio = columns[0].median / columns[1].median;
        table.add_row(row.chain([format!("{ratio:.3}")]));
    }
    table
}

struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Spread {
            median: values[values.len() / 2],
            least: values[0],
            most: values[values.len() - 1],
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.median < 100.0 { 1 } else { 0 };
        let Spread {
            median,
            least,
            most,
        } = self;
        write!(f, "{median:.digits$} ({least:.digits$} to {most:.digits$})")
    }
}

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(600);
