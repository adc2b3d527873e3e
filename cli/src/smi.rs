//! `vcuda smi`: shows GPUs, tenants and processes: as a table, as JSON, and in the forms of nvidia-smi.

mod details;
mod monitor;
mod query;
mod screen;

use std::io::{self, IsTerminal as _, Write as _};
use std::thread::sleep;
use std::time::Duration;

use crate::args::{Monitor, SmiArgs};
use crate::config::Environment;
use crate::failure::Failure;
use crate::inventory::GpuSelector;
use crate::output::Output;
use crate::render::{self, Look, Snapshot};
use crate::snapshot_source::SnapshotSource;
use monitor::{Log, Logger};
use screen::Screen;

const WATCH_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn smi(args: &SmiArgs, environment: &Environment) -> Result<(), Failure> {
    let (of, interval) = match &args.monitor {
        Some(Monitor::Dmon(monitor) | Monitor::Pmon(monitor)) => {
            (&monitor.of, Some(Duration::from_secs(monitor.seconds)))
        }
        None if args.watch => (&args.of, Some(WATCH_INTERVAL)),
        None => (&args.of, args.seconds.map(Duration::from_secs)),
    };
    let mut snapshots = SnapshotSource::find(environment, of.sim)?;
    snapshots.warn()?;
    let output = Output::find(environment);
    let mut printer = Printer::of(args, &output);
    let screen = if args.watch && output.is_terminal && io::stdin().is_terminal() {
        Some(Screen::enter()?)
    } else {
        None
    };
    if shows_shares(args) && snapshots.has_shares_to_come() {
        snapshots.wait();
    }
    let mut left = count(args);
    loop {
        let snapshot = chosen(snapshots.look()?, &of.gpus)?;
        let text = printer.text(&snapshot, &Output::find(environment))?;
        left = left.map(|left| left.saturating_sub(1));
        match (&screen, interval.filter(|_| left != Some(0))) {
            (Some(screen), Some(interval)) => {
                screen.draw(&text)?;
                if !screen.wait(interval)? {
                    return Ok(());
                }
            }
            (_, interval) => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                // Flushed, as a reader that follows needs each text at once.
                out.flush()?;
                drop(out);
                let Some(interval) = interval else { break };
                sleep(interval);
            }
        }
    }
    for words in snapshots.missing()? {
        writeln!(io::stderr(), "vcuda: a tenant is not shown: {words}")?;
    }
    Ok(())
}

/// Whether shares of GPU time are printed, which need two looks.
fn shows_shares(args: &SmiArgs) -> bool {
    let is_of_gpus = args.list || !args.query_gpu.is_empty() || !args.query_compute_apps.is_empty();
    let fields = &args.query_tenants;
    !is_of_gpus && (fields.is_empty() || fields.iter().any(|field| field.needs_share()))
}

fn count(args: &SmiArgs) -> Option<u64> {
    match &args.monitor {
        Some(Monitor::Dmon(monitor) | Monitor::Pmon(monitor)) => monitor.count,
        None => None,
    }
}

#[derive(Debug)]
struct Printer<'a> {
    args: &'a SmiArgs,
    logger: Option<Logger>,
}

impl<'a> Printer<'a> {
    fn of(args: &'a SmiArgs, output: &Output) -> Printer<'a> {
        let log = match &args.monitor {
            Some(Monitor::Dmon(_)) => Some(Log::Devices),
            Some(Monitor::Pmon(_)) => Some(Log::Processes),
            None => None,
        };
        Printer { args, logger: log.map(|log| Logger::new(log, output.width)) }
    }

    fn text(&mut self, snapshot: &Snapshot, output: &Output) -> Result<String, Failure> {
        let args = self.args;
        if let Some(logger) = &mut self.logger {
            return Ok(logger.lines(snapshot));
        }
        Ok(if args.json {
            // One document a line while repeating, so that a reader can separate them.
            let is_repeated = args.watch || args.seconds.is_some();
            let document = if is_repeated {
                serde_json::to_string(snapshot)
            } else {
                serde_json::to_string_pretty(snapshot)
            };
            document? + "\n"
        } else if args.list {
            details::list(snapshot)
        } else if args.details {
            details::details(snapshot)
        } else if !args.query_gpu.is_empty() {
            query::gpus(snapshot, &args.query_gpu, args.format)
        } else if !args.query_compute_apps.is_empty() {
            query::processes(snapshot, &args.query_compute_apps, args.format)
        } else if !args.query_tenants.is_empty() {
            query::tenants(snapshot, &args.query_tenants, args.format)
        } else {
            let look = Look { width: output.width, is_colored: output.is_colored, has_uuids: args.uuid };
            render::overview(snapshot, look)
        })
    }
}

/// The snapshot with only the selected GPUs; all without selectors.
fn chosen(mut snapshot: Snapshot, selectors: &[GpuSelector]) -> Result<Snapshot, Failure> {
    let is_meant = |selector: &GpuSelector, index: usize, uuid: &str| match selector {
        GpuSelector::Index(wanted) => *wanted == index,
        GpuSelector::Uuid(prefix) => uuid.starts_with(prefix),
    };
    for selector in selectors {
        if !snapshot.gpus.iter().any(|gpu| is_meant(selector, gpu.index, &gpu.uuid)) {
            let known: Vec<String> =
                snapshot.gpus.iter().map(|gpu| format!("{} ({})", gpu.index, gpu.uuid)).collect();
            return Err(Failure::Usage(format!("-i {selector}: no such GPU; there is {}", known.join(", "))));
        }
    }
    if !selectors.is_empty() {
        snapshot.gpus.retain(|gpu| selectors.iter().any(|one| is_meant(one, gpu.index, &gpu.uuid)));
    }
    Ok(snapshot)
}
