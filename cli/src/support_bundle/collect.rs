//! What goes into the archive. Each part is made by a thread of its own, as one may hang with a broken driver.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use super::Part;
use super::files::{configuration, limits, log, text};
use super::redact::without_secrets;
use crate::args::{DoctorArgs, SupportBundleArgs};
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;
use crate::output::Output;
use crate::render::{self, Look, Snapshot};
use crate::snapshot_source::SnapshotSource;
use crate::{doctor, events, grant, installation, ps};

const PART_WITHIN: Duration = Duration::from_secs(20);
const WIDTH: usize = 160;
/// The daemons' units, whose log is read.
const UNITS: [&str; 4] = ["vcuda-manager", "vcuda-device-plugin", "vcuda-dra-driver", "vcuda-cluster"];

type Maker = Box<dyn FnOnce() -> Result<String, Failure> + Send>;

pub(super) fn parts(args: &SupportBundleArgs, environment: &Environment) -> Vec<Part> {
    let (is_simulated, has_arguments) = (args.sim, args.with_arguments);
    let with = |make: fn(&Environment, bool, bool) -> Result<String, Failure>| -> Maker {
        let environment = environment.clone();
        Box::new(move || make(&environment, is_simulated, has_arguments))
    };
    let mut makers: Vec<(String, Maker)> = vec![
        ("versions.txt".to_owned(), with(|environment, sim, _| versions(environment, sim))),
        ("doctor.txt".to_owned(), with(|environment, sim, _| diagnosis(environment, sim))),
        ("smi.txt".to_owned(), with(smi)),
        ("smi.json".to_owned(), with(smi_json)),
        ("ps.txt".to_owned(), with(processes)),
        (
            "events.jsonl".to_owned(),
            with(|environment, _, _| events::kept(&ManagerClient::required(environment)?)),
        ),
        (
            "grants.json".to_owned(),
            with(|environment, _, _| grant::json(&ManagerClient::required(environment)?)),
        ),
        ("os-release.txt".to_owned(), file("/etc/os-release".into())),
    ];
    for path in configuration() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        makers.push((format!("config/{name}"), file(path)));
    }
    for unit in UNITS {
        makers.push((format!("log/{unit}.txt"), Box::new(|| log(unit))));
    }
    let mut parts: Vec<Part> = makers.into_iter().map(|(name, make)| part(name, make)).collect();
    parts.extend(limits(environment));
    parts
}

fn part(name: String, make: Maker) -> Part {
    let (sender, made) = mpsc::channel();
    // Without a thread, the sender is dropped and nothing arrives.
    let _ = std::thread::Builder::new().spawn(move || sender.send(make()));
    let content = match made.recv_timeout(PART_WITHIN) {
        Ok(Ok(text)) => Ok(without_secrets(&text).into_bytes()),
        Ok(Err(failure)) => Err(failure.to_string()),
        Err(_) => Err(format!("no answer within {} s", PART_WITHIN.as_secs())),
    };
    Part { name, content }
}

fn versions(environment: &Environment, is_simulated: bool) -> Result<String, Failure> {
    let shown = |result: Result<String, Failure>| result.unwrap_or_else(|failure| format!("({failure})"));
    let manager = || {
        let status = ManagerClient::required(environment)?.status()?;
        let problems: Vec<String> =
            status.problems.iter().map(|problem| format!("; {}", problem.text)).collect();
        Ok(format!(
            "{}, {}, root {}, shim {}{}",
            status.version,
            status.build,
            status.root,
            status.shim_library,
            problems.concat()
        ))
    };
    let shim = || {
        let path = installation::shim(&environment.runtime_root()?)?;
        Ok(path.display().to_string())
    };
    let driver = || Ok(snapshot(environment, is_simulated, false)?.driver_version.unwrap_or_default());
    let kernel = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    Ok(format!(
        "vcuda: {} (layout {})\nshim: {}\nmanager: {}\ndriver: {}\nkernel module: {}\nuname: {} {} {} {}\n",
        env!("CARGO_PKG_VERSION"),
        vcuda_region::release::layouts().1,
        shown(shim()),
        shown(manager()),
        shown(driver()),
        shown_or_none(kernel("/proc/driver/nvidia/version")),
        kernel("/proc/sys/kernel/ostype"),
        kernel("/proc/sys/kernel/osrelease"),
        kernel("/proc/sys/kernel/version"),
        std::env::consts::ARCH,
    ))
}

fn shown_or_none(text: String) -> String {
    if text.is_empty() { "(none)".to_owned() } else { text }
}

fn diagnosis(environment: &Environment, sim: bool) -> Result<String, Failure> {
    let args = DoctorArgs { tenant: None, sim, json: false, command: Vec::new() };
    let look = doctor::Look { width: None, is_colored: false };
    Ok(doctor::text(&doctor::findings(&args, environment), look))
}

fn plain() -> Output {
    Output { is_terminal: false, width: WIDTH, is_colored: false }
}

/// A snapshot, without command lines unless asked.
fn snapshot(environment: &Environment, sim: bool, has_arguments: bool) -> Result<Snapshot, Failure> {
    let mut source = SnapshotSource::find(environment, sim)?;
    if source.has_shares_to_come() {
        source.wait();
    }
    let mut snapshot = source.look()?;
    for gpu in &mut snapshot.gpus {
        let tenants = gpu.tenants.iter_mut().flat_map(|tenant| &mut tenant.processes);
        for process in tenants.chain(&mut gpu.outside_processes) {
            process.command = process.command.take().filter(|_| has_arguments);
        }
    }
    Ok(snapshot)
}

fn smi(environment: &Environment, sim: bool, has_arguments: bool) -> Result<String, Failure> {
    let look = Look { width: WIDTH, is_colored: false, has_uuids: true };
    Ok(render::overview(&snapshot(environment, sim, has_arguments)?, look))
}

fn smi_json(environment: &Environment, sim: bool, has_arguments: bool) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(&snapshot(environment, sim, has_arguments)?)?)
}

fn processes(environment: &Environment, sim: bool, has_arguments: bool) -> Result<String, Failure> {
    Ok(ps::text(&snapshot(environment, sim, has_arguments)?, &plain()))
}

fn file(path: PathBuf) -> Maker {
    Box::new(move || text(&path))
}
