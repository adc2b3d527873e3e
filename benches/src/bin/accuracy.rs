//! Accuracy of shares of GPU time, in virtual time.
//!
//! ```text
//! cargo build --release --workspace
//! target/release/accuracy [--check] [--brief] [--json FILE] [--switch US] [--slice US] [SECTION...]
//! target/release/accuracy matrix [--without NAME[,NAME...]] [--only TEXT] [--json FILE]
//! target/release/accuracy [--slice US] try SWITCH_US SECONDS QUOTA:PROCESSES:PROGRAM...
//! ```
//!
//! Sections: caps, processes, splits, burst, changes, tail; all by default. Real programs (`apps/load.c`) run under the built
//! `vcuda run` on the simulated GPU. Their service is the simulator's exact record, in windows of one second. `--check`
//! exits with 1 if a goal is missed; `--brief` measures less. `--switch` is the duration of a context switch in `splits`
//! (152, an H200's), `--slice` the time slice (2091). `try` shows the windows of one case and the parts of
//! a tenant's processes, for example `accuracy try 152 5 --cores,30:1:mix --cores,70:4:kernel,10000`. Time is virtual, so
//! `VCUDA_TEST_BUILD=$(scripts/build-tests.sh) cargo run -p vcuda-benches --bin accuracy` gives similar figures and builds
//! faster.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use vcuda_benches::accuracy::{
    self, Bench, PROGRAMS, Row, Split, as_json, as_table, bursts, caps, changes, processes, splits, tails,
    threads as threads_of,
};
use vcuda_benches::lab::Load;
use vcuda_limiter::Refinement;

/// Number of windows of one second per case of the matrix.
const MATRIX_WINDOWS: usize = 4;
const SECTIONS: [&str; 6] = ["caps", "processes", "splits", "burst", "changes", "tail"];

#[derive(Default)]
struct Options {
    check: bool,
    brief: bool,
    json: Option<String>,
    switch_ns: Option<u64>,
    slice_ns: Option<u64>,
    sections: Vec<String>,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--check" => options.check = true,
            "--brief" => options.brief = true,
            "--json" => options.json = Some(arguments.next().context("--json FILE")?),
            "--switch" => options.switch_ns = Some(microseconds(&mut arguments)?),
            "--slice" => options.slice_ns = Some(microseconds(&mut arguments)?),
            section if SECTIONS.contains(&section) => options.sections.push(argument),
            other => bail!(
                "{other:?}: none of --check, --brief, --json FILE, --switch US, --slice US, {}",
                SECTIONS.join(", ")
            ),
        }
    }
    Ok(options)
}

/// The next argument, in microseconds, as nanoseconds.
fn microseconds(arguments: &mut impl Iterator<Item = String>) -> Result<u64> {
    let text = arguments.next().context("a number of microseconds")?;
    Ok(text.parse::<u64>()? * 1000)
}

fn of_section(section: &str, bench: &Bench, brief: bool, switch_ns: u64) -> Result<Vec<Row>> {
    let [small, _, mix, ..] = PROGRAMS;
    let millisecond = accuracy::Program {
        name: "kernels of 1 ms",
        arguments: &["kernel", "1000000"],
        longest_ns: 1_000_000,
    };
    match section {
        "caps" if brief => caps(bench, &PROGRAMS, &[30]),
        "caps" => caps(bench, &PROGRAMS, &[5, 10, 25, 50, 75, 95]),
        "processes" => {
            let counts: &[usize] = if brief { &[4] } else { &[1, 4, 16] };
            let cases = [mix, millisecond].into_iter();
            let cases = cases.flat_map(|program| counts.iter().map(move |count| (program, *count)));
            let short = accuracy::Program {
                name: "kernels of 100 us",
                arguments: &["kernel", "100000"],
                longest_ns: 100_000,
            };
            let several = counts.iter().filter(|count| **count > 1);
            let several = several.flat_map(|count| [small, short].map(|program| (program, *count)));
            let cases = cases.chain(several);
            let threads = [(30, 200_000), (75, 200_000), (30, 1_000_000)].into_iter();
            cases
                .map(|(program, count)| processes(bench, &program, count))
                .chain(threads.map(|(cap, ns)| threads_of(bench, cap, 4, ns)))
                .collect()
        }
        "splits" => {
            let all: [&[u32]; 4] = [&[10, 90], &[30, 70], &[50, 50], &[10, 20, 30, 40]];
            let mut rows = Vec::new();
            for caps in all {
                for program in &[mix, small, millisecond] {
                    rows.push(splits(bench, &Split { caps, program, switch_ns })?);
                }
            }
            Ok(rows)
        }
        "burst" => bursts(bench),
        "tail" => tails(bench, &["100000", "1000000", "5000000"]),
        _ => changes(bench),
    }
}

fn borrowed_words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// `accuracy matrix`: drivers of every kind, with all refinements or without some.
#[expect(clippy::print_stdout, reason = "the table is what is asked for")]
fn matrix(mut arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let (mut without, mut only, mut json) = (String::new(), String::new(), None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--without" => without = value()?,
            "--only" => only = value()?,
            "--json" => json = Some(value()?),
            other => bail!("{other:?}: none of --without NAME[,NAME...], --only TEXT, --json FILE"),
        }
    }
    let names = Refinement::ALL.map(|(_, name)| name);
    for name in without.split(',').filter(|name| !name.is_empty()) {
        ensure!(names.contains(&name), "{name:?}: no refinement, there are {}", names.join(", "));
        ensure!(
            Refinement::CAN_LEAVE_OUT,
            "these programs cannot leave {name} out: build them by scripts/ablation.sh"
        );
    }
    let all = accuracy::matrix(&Bench::new(MATRIX_WINDOWS)?, &without, &only)?;
    println!("{}", accuracy::matrix_as_table(&all));
    if let Some(path) = &json {
        std::fs::write(path, format!("{:#}\n", accuracy::matrix_as_json(&all)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shares as percentages.
fn as_percent(shares: &[f64]) -> String {
    let texts: Vec<String> = shares.iter().map(|share| format!("{:.2}", share * 100.0)).collect();
    texts.join(" ")
}

#[expect(clippy::print_stdout, reason = "the windows are what is asked for")]
fn attempt(mut arguments: impl Iterator<Item = String>, slice_ns: u64) -> Result<ExitCode> {
    let mut number =
        || -> Result<u64> { Ok(arguments.next().context("try SWITCH_US SECONDS CASE...")?.parse()?) };
    let (switch_us, seconds) = (number()?, number()?);
    let mut bench = Bench::new(usize::try_from(seconds)?)?;
    bench.slice_ns = slice_ns;
    let cases: Vec<Vec<String>> =
        arguments.map(|case| case.split(':').map(ToOwned::to_owned).collect()).collect();
    let mut parsed = Vec::new();
    for case in &cases {
        let [quota, processes, program] = case.as_slice() else {
            bail!("QUOTA:PROCESSES:PROGRAM, with commas in QUOTA and PROGRAM");
        };
        let words = |text: &str| -> Vec<String> { text.split(',').map(ToOwned::to_owned).collect() };
        parsed.push((words(quota), processes.parse()?, words(program)));
    }
    let borrowed: Vec<(Vec<&str>, usize, Vec<&str>)> = parsed
        .iter()
        .map(|(quota, processes, program)| (borrowed_words(quota), *processes, borrowed_words(program)))
        .collect();
    let loads: Vec<Load<'_>> = borrowed
        .iter()
        .map(|(quota, processes, program)| Load { quota, program, processes: *processes })
        .collect();
    ensure!(!loads.is_empty(), "no case");
    let (shares, served) = bench.shares_and_parts(switch_us * 1000, &loads)?;
    for (windows, parts) in shares.iter().zip(&served) {
        println!("{:.3} %: {}", accuracy::mean(windows) * 100.0, as_percent(windows));
        if parts.len() > 1 {
            println!("  its processes: {}", as_percent(parts));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "the tables are what the program is for")]
fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut slice_ns = accuracy::SLICE_NS;
    if arguments.next_if_eq("--slice").is_some() {
        slice_ns = microseconds(&mut arguments)?;
    }
    if arguments.next_if_eq("matrix").is_some() {
        return matrix(arguments);
    }
    if arguments.next_if_eq("try").is_some() {
        return attempt(arguments, slice_ns);
    }
    let options = options(arguments)?;
    let mut bench = Bench::new(if options.brief { 4 } else { 10 })?;
    bench.slice_ns = options.slice_ns.unwrap_or(slice_ns);
    let mut all = Vec::new();
    for section in SECTIONS {
        if options.sections.is_empty() || options.sections.iter().any(|one| one == section) {
            let rows =
                of_section(section, &bench, options.brief, options.switch_ns.unwrap_or(accuracy::SWITCH_NS))?;
            println!("{section}\n{}\n", as_table(&rows));
            all.extend(rows);
        }
    }
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", as_json(&all)))?;
    }
    let missed = accuracy::missed(&all);
    for line in &missed {
        println!("missed: {line}");
    }
    Ok(if options.check && !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
