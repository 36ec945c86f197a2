//! `make bench-controller`: what the controller costs. Prints a table and writes it into docs/benchmarks.md.
//!
//! `--only` measures a part and writes nothing.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing to say")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use std::path::Path;

use clap::{Parser, ValueEnum};
use larder_scale::rows::{self, Plan};
use larder_scale::table::{Row, render, splice};

/// Measures the controller on thousands of hollow nodes.
#[derive(Parser)]
struct Args {
    /// Measure only this part, and leave the documentation alone
    #[arg(long, value_enum)]
    only: Option<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 200 nodes
    Small,
    /// 1,000 nodes, and 200 before
    Full,
    /// 5,000 nodes, and all before
    Large,
    /// 10,000 nodes without agents, 200 jobs
    Crowd,
    /// The campaign in virtual time
    Virtual,
}

#[tokio::main]
async fn main() {
    let Args { only } = Args::parse();
    let mut plan = Plan::full();
    match only {
        Some(Part::Small) => (plan.full, plan.large) = (1, 1),
        Some(Part::Full) => plan.large = 1,
        _ => {}
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut told = |row: Row| {
        println!("{}: {} (goal {}, floor {})", row.what, row.result, row.goal, row.floor);
        rows.push(row);
    };
    let load = load_average();
    if matches!(only, None | Some(Part::Virtual)) {
        rows::virtually(&plan, &mut told);
    }
    if matches!(only, None | Some(Part::Small | Part::Full | Part::Large)) {
        rows::hollow(&plan, &mut told).await;
    }
    if matches!(only, None | Some(Part::Crowd)) {
        rows::crowded(&plan, &mut told).await;
    }
    let table = render(&rows);
    println!("\n{table}");
    if only.is_none() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks.md");
        let text = std::fs::read_to_string(&page).unwrap();
        let section = format!("\n{}\n\n{table}\n", machine(&load));
        std::fs::write(page, splice(&text, &section)).unwrap();
    }
}

/// The machine, the day, and how busy it was.
fn machine(load_before: &str) -> String {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |model| model.trim_start_matches([' ', '\t', ':']));
    let count = processors.lines().filter(|line| line.starts_with("processor")).count();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kilobytes: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    format!(
        "Measured by `make bench-controller` on {}, {count} × {model}, {} GB; load average {load_before} before, {} after.",
        today(),
        kilobytes / 1_000_000,
        load_average()
    )
}

#[expect(clippy::disallowed_methods, reason = "the day of a measurement is part of it")]
fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}
