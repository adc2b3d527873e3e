//! The program `vcuda-bench`, which carries out `vcuda demo` and `vcuda bench`.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

mod bench;
mod chart;
mod demo;
mod fixture;
mod load;

use std::process::ExitCode;

use clap::Parser;
use vcuda_cli::args::bench::BenchCommand;
use vcuda_cli::config::Environment;
use vcuda_cli::failure::Failure;

/// Command line, with the options of `vcuda demo` and `vcuda bench`.
#[derive(Debug, Parser)]
#[command(name = "vcuda-bench", version, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    command: BenchCommand,
}

fn main() -> ExitCode {
    vcuda_cli::program::run(carry_out)
}

fn carry_out(line: Line) -> Result<(), Failure> {
    let environment = Environment::read();
    match line.command {
        BenchCommand::Demo(demo) => demo::demo(&demo, &environment),
        BenchCommand::Bench(bench) => bench::bench(&bench, &environment),
        BenchCommand::FixtureTenant => fixture::program::tenant(),
    }
}
