//! Dispatch to the code of each command of `vcuda`.

use std::io::{self, Write as _};

use clap::CommandFactory as _;

use crate::args::{Cli, Command, SimAction, SimArgs};
use crate::config::Environment;
use crate::failure::Failure;
use crate::{
    apply, attached, bench, completion, docker_args, doctor, events, gpu, grant, limit_container, man, ps,
    run, sim, smi, support_bundle, suspend, top, usage,
};

/// Answers a completion script, if one asks. Returns whether it did; nothing else is to be done then.
pub fn complete() -> Result<bool, Failure> {
    completion::answer(Cli::command)
}

/// Carries out the command. A command that replaces this process returns only on failure.
pub fn carry_out(line: Cli) -> Result<(), Failure> {
    let environment = Environment::read();
    match line.command {
        Command::Run(run) => run::run(&run, &environment),
        Command::Sim(SimArgs { action: Some(SimAction::Report { machine, json }), .. }) => {
            sim::report(machine.as_deref(), json, &environment)
        }
        Command::Sim(sim) => sim::run(&sim, &environment),
        Command::Smi(smi) => smi::smi(&smi, &environment),
        Command::Top(top) => top::top(&top, &environment),
        Command::Ps(ps) => ps::ps(&ps, &environment),
        Command::Usage(usage) => usage::usage(&usage, &environment),
        Command::Grant(grant) => grant::grant(&grant.action, &environment),
        Command::Apply(args) => apply::apply(&args, &environment),
        Command::DockerArgs { name } => docker_args::docker_args(&name, &environment),
        Command::Gpu(gpu) => gpu::gpu(&gpu.action, &environment),
        Command::Events(events) => events::events(&events, &environment),
        Command::Suspend { names } => suspend::suspend(&names, &environment),
        Command::Resume { names } => suspend::resume(&names, &environment),
        Command::Set(set) => grant::set(&set, &environment),
        Command::Doctor(doctor) => doctor::doctor(&doctor, &environment),
        Command::SupportBundle(bundle) => support_bundle::support_bundle(&bundle, &environment),
        Command::OfBench(_) => Err(bench::become_bench()),
        Command::Completions { shell } => completion::script(shell),
        Command::Version => Ok(writeln!(io::stdout(), "vcuda {}", env!("CARGO_PKG_VERSION"))?),
        Command::Man { all: Some(folder), .. } => man::write_all(&folder),
        Command::Man { command, .. } => man::print(&command),
        Command::Attached(attached) => attached::attached(&attached),
        Command::LimitContainer(args) => limit_container::limit_container(&args),
        Command::DoctorProbe => doctor::probe::probe(&environment),
    }
}
