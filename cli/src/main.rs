//! vcuda: run a command under a GPU quota, and show who uses what.
//!
//! `run` makes a tenant's directory (crate `vcuda-region`), sets the preload and *becomes* the command: no process of
//! vcuda stays behind. Everything else reads those directories, NVML or a simulated machine, and prints. Data goes to
//! stdout, words to stderr.
#![forbid(unsafe_code)]

mod arbiter;
mod args;
mod attached;
mod background;
mod bench;
mod config;
mod demo;
mod doctor;
mod events;
mod exec;
mod failure;
mod fixture;
mod gpu;
mod grant;
mod inventory;
mod libraries;
mod manager_client;
mod ps;
mod render;
mod run;
mod set;
mod sim;
mod smi;
mod snapshot_source;
mod top;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::args::{Cli, Command, SimAction, SimArgs};
use crate::config::Environment;
use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ending(usage(&error)),
    };
    ending(dispatch(cli.command))
}

fn dispatch(command: Command) -> Result<(), Failure> {
    let environment = Environment::read();
    match command {
        Command::Run(run) => run::run(&run, &environment),
        Command::Sim(SimArgs {
            action: Some(SimAction::Report { machine, json }),
            ..
        }) => sim::report(machine.as_deref(), json, &environment),
        Command::Sim(sim) => sim::run(&sim, &environment),
        Command::Smi(smi) => smi::smi(&smi, &environment),
        Command::Top(top) => top::top(&top, &environment),
        Command::Ps(ps) => ps::ps(&ps, &environment),
        Command::Grant(grant) => grant::grant(&grant.action, &environment),
        Command::Gpu(gpu) => gpu::gpu(&gpu.action, &environment),
        Command::Events(events) => events::events(&events, &environment),
        Command::Set(set) => set::set(&set, &environment),
        Command::Doctor(doctor) => doctor::doctor(&doctor, &environment),
        Command::Demo(demo) => demo::demo(&demo, &environment),
        Command::Bench(bench) => bench::bench(&bench, &environment),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "vcuda", &mut script);
            Ok(std::io::stdout().write_all(&script)?)
        }
        Command::Man { command } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(described(command.as_deref())?).render(&mut page)?;
            Ok(std::io::stdout().write_all(&page)?)
        }
        Command::Arbiter { detach: true, .. } => background::detach(),
        Command::Arbiter { alone, .. } => arbiter::arbiter(alone, &environment),
        Command::FixtureTenant => fixture::program::tenant(),
        Command::Attached(attached) => attached::attached(&attached),
        Command::DoctorProbe => doctor::probe::probe(&environment),
    }
}

/// vcuda as clap knows it, or the one of its commands with that name.
fn described(name: Option<&str>) -> Result<clap::Command, Failure> {
    let mut whole = Cli::command();
    whole.build();
    let Some(name) = name else { return Ok(whole) };
    let found = whole
        .get_subcommands()
        .find(|command| command.get_name() == name && !command.is_hide_set());
    found
        .cloned()
        .ok_or_else(|| Failure::Usage(format!("man {name}: no such command; see `vcuda --help`")))
}

/// The one line on stderr and the status. Every failure ends here.
fn ending(outcome: Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    let message = failure.to_string();
    if !message.is_empty() {
        // A closed stderr must not turn one failure into another.
        let _ = writeln!(std::io::stderr(), "vcuda: {message}");
    }
    ExitCode::from(&failure)
}

/// What clap found: help and version are answers; the rest is wrong use, said in one line.
fn usage(error: &clap::Error) -> Result<(), Failure> {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(error.print()?),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Usage("what shall I do? Try `vcuda --help`".to_owned()))
        }
        _ => Err(Failure::Usage(one_line(&error.to_string()))),
    }
}

/// clap's message is a paragraph, then tips and usage; its first paragraph names the value and what is wrong with it.
fn one_line(message: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    if line.ends_with("not provided: <CMD>...") {
        return "no command to run; write it after `--`, for example: vcuda run --memory 4GiB -- python train.py".to_owned();
    }
    // Its usage follows in `message`: the commands whose command stands behind `--`.
    if line.starts_with("unexpected argument") && !line.contains("'-") && message.contains("-- <CMD>") {
        return format!("{line}; if it is the command to run, write it after `--` (see --help)");
    }
    format!("{line} (see --help)")
}
