//! Resource use and latency of the shipped node daemon, with many living tenants.
//!
//! ```text
//! cargo build --release && cargo run --release -p vcuda-benches --bin node [-- GPUS CONTAINERS]
//! ```
//!
//! Without numbers: 8 GPUs and 100 tenants, then 64 and 1,000. The daemon is `vcuda-manager` on the simulated NVML. Each
//! tenant has a process under the real shim with a slot, 64 MiB and a registration (`apps/idle.c`). It uses the no-op
//! driver, as the simulated one serves 256 processes, so NVML does not list it. Busy tenants also have a process that
//! launches kernels of 1 ms without end on the simulated GPU. The output is the daemon's resident memory, its processor
//! time by the scheduler's count (percent of a core), and its latencies, which depend on other load. `--brief` only shows
//! that it works.
#![warn(clippy::too_many_lines)]

mod api;
mod daemon;
mod tenants;

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result};
use comfy_table::Table;
use vcuda_benches::{Options, Stage};
use vcuda_machine::{Config, Machine};
use vcuda_region::clock;

use self::api::Api;
use self::daemon::Daemon;
use self::tenants::Tenants;

/// Measured nodes: numbers of GPUs and tenants.
const NODES: [(usize, usize); 2] = [(8, 100), (64, 1000)];
/// Numbers of busy tenants, measured one after the other.
const BUSY: [usize; 3] = [0, 10, 100];
/// Memory of each simulated GPU (bytes).
const GPU_MEMORY_BYTES: u64 = 80 << 30;
/// Settling time, and duration of a measurement.
const SETTLE: Duration = Duration::from_secs(5);
const SPAN: Duration = Duration::from_secs(20);

#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn main() -> Result<ExitCode> {
    let options = Options::from_arguments()?;
    let nodes = match options.numbers.as_slice() {
        [gpus, containers] => vec![(*gpus, *containers)],
        _ if options.brief => vec![(2, 6)],
        _ => NODES.to_vec(),
    };
    let stage = Stage::new(&["idle"])?;
    for (gpus, containers) in nodes {
        println!("{gpus} GPUs, {containers} containers");
        println!("{}", node(&stage, &options, gpus, containers)?);
    }
    Ok(options.verdict())
}

fn node(stage: &Stage, options: &Options, gpus: usize, containers: usize) -> Result<Table> {
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    // The ledger belongs on a disk.
    let state = tempfile::tempdir()?;
    Machine::create(&place.path().join("machine"), &Config::with_gpus(gpus, GPU_MEMORY_BYTES))?;
    let daemon = Daemon::start(stage, place.path(), state.path())?;
    let mut figures = Figures::new(&daemon, options)?;
    figures.row("none", 0)?;
    let mut api = Api::connect(&daemon.socket())?;
    let mut ids = Vec::new();
    for number in 0..containers {
        ids.push(api.create(&format!("c{number}"))?);
    }
    figures.row("granted, no process", containers)?;
    let mut tenants = Tenants::new(stage, place.path())?;
    for grant in &ids {
        tenants.idle(grant)?;
    }
    tenants.until_idle()?;
    let attached = api.until_attached(containers)?;
    let mut answers = Table::new();
    answers.set_header(["call", "median ms", "99 % ms"]);
    for busy in BUSY.into_iter().filter(|busy| *busy <= containers) {
        for grant in ids.iter().take(busy).skip(tenants.busy()) {
            tenants.saturate(grant)?;
        }
        let what = match busy {
            0 => "a process in each".to_owned(),
            busy => format!("{busy} of them busy"),
        };
        figures.row(&what, containers)?;
        // Saturating processes would delay the daemon, and distort its latencies.
        if busy == 0 {
            let id = ids.first().context("no container")?.id.clone();
            for (name, [median, most]) in api.latencies(&id, options.rounds(100))? {
                answers.add_row([name, &format!("{median:.2}"), &format!("{most:.2}")]);
            }
        }
    }
    let mut both = Table::new();
    both.load_style(comfy_table::presets::NOTHING);
    both.add_row([figures.table.to_string()]);
    both.add_row([format!("{attached} attached; answers while none is busy:\n{answers}")]);
    Ok(both)
}

/// Output table of the daemon's figures.
struct Figures<'a> {
    daemon: &'a Daemon,
    settle: Duration,
    span: Duration,
    /// Resident memory without tenants (bytes).
    empty_bytes: u64,
    table: Table,
}

impl Figures<'_> {
    fn new<'a>(daemon: &'a Daemon, options: &Options) -> Result<Figures<'a>> {
        let (settle, span) =
            if options.brief { (Duration::from_millis(500), Duration::from_secs(1)) } else { (SETTLE, SPAN) };
        let mut table = Table::new();
        table.set_header([
            "containers",
            "RSS MiB",
            "core %",
            "a container: KiB, us/s",
            "scrape ms",
            "KiB",
            "load",
        ]);
        Ok(Figures { daemon, settle, span, empty_bytes: daemon.resident_bytes()?, table })
    }

    /// Measures the daemon in its present state with `containers` tenants.
    fn row(&mut self, what: &str, containers: usize) -> Result<()> {
        let got = measure(self.daemon, self.settle, self.span)?;
        self.table.add_row(row(what, (containers, self.empty_bytes), got));
        Ok(())
    }
}

/// Figures of a row.
#[derive(Debug)]
struct Measured {
    resident_bytes: u64,
    /// Processor time (percent of a core).
    core: f64,
    scrape_ms: f64,
    page_bytes: usize,
}

fn measure(daemon: &Daemon, settle: Duration, span: Duration) -> Result<Measured> {
    sleep(settle);
    let (began_ns, before_ns) = (clock::now_ns(), daemon.processor_ns()?);
    sleep(span);
    let took_ns = clock::now_ns().saturating_sub(began_ns);
    let core = daemon.processor_ns()?.saturating_sub(before_ns) as f64 * 100.0 / took_ns as f64;
    let (scrape_ms, page_bytes) = daemon.scrape(9)?;
    Ok(Measured { resident_bytes: daemon.resident_bytes()?, core, scrape_ms, page_bytes })
}

fn row(what: &str, (containers, empty_bytes): (usize, u64), got: Measured) -> Vec<String> {
    let each = |sum: f64| match containers {
        0 => "-".to_owned(),
        containers => format!("{:.1}", sum / containers as f64),
    };
    let grown = got.resident_bytes.saturating_sub(empty_bytes);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    vec![
        what.to_owned(),
        format!("{:.1}", got.resident_bytes as f64 / f64::from(1 << 20)),
        format!("{:.2}", got.core),
        format!("{}, {}", each(grown as f64 / 1024.0), each(got.core * 10_000.0)),
        format!("{:.1}", got.scrape_ms),
        (got.page_bytes >> 10).to_string(),
        load.split(' ').next().unwrap_or_default().to_owned(),
    ]
}
