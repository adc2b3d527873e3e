//! `vcuda sim`: runs a command on the simulated driver without the shim, and prints the machine's record.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;

use vcuda_machine::{Config, Machine, Report};

use crate::args::SimArgs;
use crate::config::{ENV_LIBRARY_PATH, ENV_MACHINE, Environment, searching};
use crate::exec::become_command;
use crate::failure::Failure;
use crate::installation;
use crate::render::columns::{Column, Table};
use vcuda_quota::MemorySize;

/// Runs the command on the machine. Returns only on failure.
pub(crate) fn run(args: &SimArgs, environment: &Environment) -> Result<(), Failure> {
    let directory = environment.machine_dir(args.machine.as_deref())?;
    open_or_create(&directory, args)?;
    let variables = variables(&directory, environment)?;
    Err(become_command(&args.command, &variables))
}

pub(crate) fn report(machine: Option<&Path>, json: bool, environment: &Environment) -> Result<(), Failure> {
    let report = Machine::open_or_create(&environment.machine_dir(machine)?)?.report();
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", table(&report))?;
    }
    Ok(())
}

/// Environment variables for a program on the simulated driver.
pub(crate) fn variables(
    machine: &Path,
    environment: &Environment,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let links = installation::simulator(&environment.runtime_root()?)?;
    Ok(vec![
        (ENV_LIBRARY_PATH, searching(&links, environment)),
        (ENV_MACHINE, machine.as_os_str().to_owned()),
    ])
}

/// Makes a missing machine with the given options. An existing one must agree with them.
fn open_or_create(directory: &Path, args: &SimArgs) -> Result<(), Failure> {
    let asked = match &args.profile {
        Some(name) => Config::of_profile(name)?,
        None => Config::default(),
    };
    let is_asked = args.gpus.is_some() || args.memory.is_some() || args.profile.is_some();
    if !directory.join("machine.toml").exists() && is_asked {
        let count = usize::from(args.gpus.unwrap_or(1));
        let config = asked.of_gpus(count, args.memory.map(|size| size.0));
        return Ok(Machine::create(directory, &config).map(drop)?);
    }
    let machine = Machine::open_or_create(directory)?;
    let gpus = &machine.config().gpus;
    let different = |option: String, found: String| {
        Failure::Usage(format!(
            "{option}, but the machine in {} has {found}; name another directory with --machine, or remove that one",
            directory.display()
        ))
    };
    let profile = &machine.config().profile;
    if let Some(name) = args.profile.as_ref().filter(|name| *name != profile) {
        return Err(different(format!("--profile {name}"), format!("the profile {profile}")));
    }
    if let Some(count) = args.gpus.filter(|count| usize::from(*count) != gpus.len()) {
        return Err(different(format!("--gpus {count}"), format!("{} GPU(s)", gpus.len())));
    }
    let other = |size: &MemorySize| gpus.iter().find(|gpu| gpu.memory_bytes != size.0);
    if let Some((size, gpu)) = args.memory.and_then(|size| Some((size, other(&size)?))) {
        return Err(different(
            format!("--memory {size}"),
            format!("{} per GPU", MemorySize(gpu.memory_bytes)),
        ));
    }
    Ok(())
}

fn table(report: &Report) -> String {
    let mut table = Table::new(&[
        Column::figure("PID", 0),
        Column::figure("GPU", 0),
        Column::words("STATE", 0, 5),
        Column::figure("MEMORY", 0),
        Column::figure("PEAK", 0),
        Column::figure("GPU TIME", 0),
        Column::figure("LAUNCHES", 0),
        Column::figure("DENIED", 0),
    ]);
    for process in &report.processes {
        let index = report.gpus.iter().position(|gpu| gpu.uuid == process.gpu_uuid);
        table.row([
            process.pid.to_string().into(),
            index.map_or_else(|| "?".to_owned(), |index| index.to_string()).into(),
            if process.alive { "alive" } else { "ended" }.into(),
            MemorySize(process.memory_used_bytes).to_string().into(),
            MemorySize(process.memory_peak_bytes).to_string().into(),
            seconds(process.service_ns).into(),
            process.launches.to_string().into(),
            process.denied_allocations.to_string().into(),
        ]);
    }
    let mut text = String::new();
    for (index, gpu) in report.gpus.iter().enumerate() {
        text.push_str(&format!(
            "GPU {index}  {}\n       memory {} of {}, at most {}; busy {}\n",
            gpu.uuid,
            MemorySize(gpu.memory_used_bytes),
            MemorySize(gpu.memory_total_bytes),
            MemorySize(gpu.memory_peak_bytes),
            seconds(gpu.busy_ns),
        ));
    }
    text.push('\n');
    for line in table.lines(usize::MAX, false) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Time with milliseconds, such as `1.250 s`.
fn seconds(ns: u64) -> String {
    format!("{}.{:03} s", ns / 1_000_000_000, ns / 1_000_000 % 1000)
}

#[cfg(test)]
mod tests {
    use vcuda_machine::{GpuReport, ProcessReport};

    use super::*;

    #[test]
    fn the_record_fits_80_columns() {
        let gpu = GpuReport {
            uuid: "GPU-00000000-0000-4000-8000-000000000000".to_owned(),
            memory_total_bytes: 80 << 30,
            memory_used_bytes: (80 << 30) - 1,
            memory_peak_bytes: (80 << 30) - 1,
            busy_ns: 86_400_123_456_789,
            switched_ns: 0,
        };
        let process = ProcessReport {
            pid: 4_194_304,
            gpu_uuid: gpu.uuid.clone(),
            alive: true,
            memory_used_bytes: (80 << 30) - 1,
            memory_peak_bytes: (80 << 30) - 1,
            service_ns: 3_600_123_456_789,
            launches: 123_456_789,
            denied_allocations: 12345,
            ..ProcessReport::default()
        };
        let text = table(&Report { gpus: vec![gpu], processes: vec![process] });
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("3600.123 s"), "{text}");
    }
}
