//! Start: reads or rebuilds the ledger, and brings the directories to what it says.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::fcntl::Flock;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{broadcast, mpsc, watch};
use tracing::info;
use vcuda_region::directory;

use super::decide::{Held, PendingLimits};
use super::grant_writer::{Command, GrantWriter};
use super::returns::Returns;
use super::{BEHIND, Grants, Shared, TICK, WAITING};
use crate::events::{Events, Severity, unix_ms};
use crate::gpu::Inventory;
use crate::grant::Grant;
use crate::grant_devices::GrantDevices;
use crate::grant_table::GrantTable;
use crate::ledger::{self, Disk, Ledger, LedgerError, Loaded};
use crate::observe::SnapshotCache;
use crate::settings::Settings;
use crate::tenant_directories::{Ensured, Found, TenantDirectories, TenantDirectoryError};

/// Lock file of the manager that owns the root.
const LOCK: &str = "manager.lock";

/// Failure to manage grants here.
#[derive(Debug, Error)]
pub enum StartError {
    /// Another manager is running, with this PID if its lock tells.
    #[error("{}: another manager runs under this root{}; stop it, or give this one a root of its own", .0.display(), named(.1))]
    Running(PathBuf, Option<u32>),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The tenants' directories cannot be read.
    #[error(transparent)]
    TenantDirectories(#[from] TenantDirectoryError),
    /// The root cannot be used.
    #[error("{}: {}; {}", .0.display(), .1, remedy(.1))]
    Root(PathBuf, io::Error),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run it as root, or give --root and --state",
        _ => "the root has to be a directory of the manager's own, on a tmpfs",
    }
}

/// The thread behind [`Grants`].
#[derive(Debug)]
pub struct WriterThread {
    thread: JoinHandle<()>,
    /// Lock of the root, held until the thread has ended.
    _root: Flock<File>,
}

impl WriterThread {
    /// Ends the thread: begun changes are finished, and the ledger is free for the next manager. Blocks.
    pub fn finish(self, grants: &Grants) {
        // Both fail only if the thread has panicked, which was reported.
        let _ = grants.commands.blocking_send(Command::Stop);
        let _ = self.thread.join();
    }
}

/// Reads the ledger, brings the tenants' directories to what it says, and begins to accept changes. Blocks; needs a tokio
/// runtime.
///
/// # Errors
/// Fails if another manager has the root or the ledger, or if they cannot be used. A damaged ledger is rebuilt and
/// reported.
pub fn start(
    settings: &Settings,
    disk: Box<dyn Disk>,
    events: &Arc<Events>,
    inventory: watch::Receiver<Arc<Inventory>>,
    snapshots: Arc<SnapshotCache>,
) -> Result<(Grants, WriterThread), StartError> {
    let lock = claim(&settings.root)?;
    let root = |error| StartError::Root(settings.root.clone(), error);
    let directories = TenantDirectories::new(&settings.root).map_err(root)?;
    let (ledger, loaded) = Ledger::open(&settings.state, disk)?;
    let found = directories.granted()?;
    let (grant_table, rebuilt) = restore_table(loaded, &found, events);
    let grant_table = Arc::new(grant_table);
    let problem = if rebuilt.must_write { ledger.write(&grant_table).err() } else { None };
    if let Some(error) = &problem {
        events.say(Severity::Error, "VcudaLedgerFailed", error.to_string(), None);
    }
    let devices = Arc::new(tidied_devices(settings, &directories, &grant_table, events));
    let (pending, leftovers) = restore_directories(&grant_table, &directories, found, events);
    // What cannot be removed is tried again at the next start.
    let _ = directory::remove_remains(&settings.root);

    let shared = Arc::new(Shared {
        grant_table: Mutex::new(Arc::clone(&grant_table)),
        rules: Mutex::new(settings.rules),
        bounds: Mutex::new(Arc::new(settings.bounds.clone())),
        returns: Returns::default(),
        users: settings.api.users.clone(),
        changes: broadcast::channel(BEHIND).0,
        problem: watch::channel(problem.map(|error| error.to_string())).0,
        lost_cordons: Mutex::new(rebuilt.lost_cordons),
    });
    let writer = GrantWriter {
        ledger,
        directories: directories.clone(),
        grant_table,
        pending,
        leftovers,
        last_complete: None,
        devices: Arc::clone(&devices),
        devices_restored_ns: None,
        device_failure: None,
        shared: Arc::clone(&shared),
        inventory: inventory.clone(),
        snapshots: Arc::clone(&snapshots),
        events: Arc::clone(events),
        runtime: tokio::runtime::Handle::current(),
    };
    let (commands, thread) = spawn(writer).map_err(root)?;
    let events = Arc::clone(events);
    let missing = Arc::default();
    let grants = Grants { commands, shared, directories, devices, inventory, snapshots, events, missing };
    Ok((grants, WriterThread { thread, _root: lock }))
}

/// The devices of grants, without those of ended ones: before anything is answered. The others are restored once NVML tells the
/// GPUs.
fn tidied_devices(
    settings: &Settings,
    directories: &TenantDirectories,
    grant_table: &GrantTable,
    events: &Events,
) -> GrantDevices {
    let devices =
        GrantDevices::new(settings.devices.clone(), directories.clone(), Arc::clone(&settings.shim));
    if let (Some(place), None) = (devices.place(), devices.folder()) {
        let place = place.display();
        info!(
            "grants get no CDI devices: {place} may not be written (cdi.directory); only containers need them"
        );
    }
    if let Err(error) = devices.tidy(grant_table) {
        events.say(Severity::Warning, "VcudaDeviceFailed", error.to_string(), None);
    }
    devices
}

/// Starts the thread that changes grants, and the task that triggers its periodic check.
fn spawn(writer: GrantWriter) -> io::Result<(mpsc::Sender<Command>, JoinHandle<()>)> {
    let (commands, waiting) = mpsc::channel(WAITING);
    let thread = std::thread::Builder::new().name("grants".to_owned()).spawn(move || writer.run(waiting))?;
    tokio::spawn(tick(commands.downgrade()));
    Ok((commands, thread))
}

/// Whether no manager owns the root now.
pub(crate) fn is_free(root: &Path) -> Result<bool, StartError> {
    match claim(root) {
        Ok(_) => Ok(true),
        Err(StartError::Running(..)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the root if it is missing, and locks it for this manager.
fn claim(root: &Path) -> Result<Flock<File>, StartError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755);
    builder.create(root).map_err(|error| StartError::Root(root.to_owned(), error))?;
    let path = root.join(LOCK);
    let mut lock = ledger::lock(&path).map_err(|error| match error {
        LedgerError::Locked(locked) => StartError::Running(locked, holder(root)),
        error => error.into(),
    })?;
    // For a second manager's message alone: a disk that is full makes no difference.
    let _ = lock.set_len(0);
    let _ = write!(lock, "{}", std::process::id());
    Ok(lock)
}

/// PID of the manager that holds the lock of `root`, or was the last one, as it wrote it there.
pub(crate) fn holder(root: &Path) -> Option<u32> {
    fs::read_to_string(root.join(LOCK)).ok()?.parse().ok()
}

/// A manager's PID in a message.
fn named(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

async fn tick(commands: mpsc::WeakSender<Command>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(commands) = commands.upgrade() else {
            return;
        };
        // If the queue is full, the next tick does it.
        let _ = commands.try_send(Command::Tick);
    }
}

/// What the rebuilding of the ledger leaves to be done.
#[derive(Debug, Default)]
struct Rebuilt {
    must_write: bool,
    /// Sentence about the cordons, if they are lost.
    lost_cordons: Option<String>,
}

/// The table of grants to start with, and what is to be done.
fn restore_table(loaded: Loaded, found: &[Found], events: &Events) -> (GrantTable, Rebuilt) {
    let (mut grant_table, why, highest) = match loaded {
        // Nothing is lost where there are only runs of a user's own manager.
        Loaded::Absent
            if found.iter().all(|one| one.grant.as_ref().is_ok_and(|grant| grant.is_transient)) =>
        {
            (GrantTable::default(), None, 0)
        }
        Loaded::Absent => (GrantTable::default(), Some("is gone".to_owned()), 0),
        Loaded::Damaged { damage, aside, highest_number } => (
            GrantTable::default(),
            Some(format!("was damaged ({damage}) and is now {}", aside.display())),
            highest_number,
        ),
        Loaded::Sound(grant_table) => (grant_table, None, 0),
    };
    let written = grant_table.last_number;
    // The newest first: of two grants with one key it is the living one.
    let mut candidates: Vec<_> = found
        .iter()
        .filter_map(|found| found.grant.as_ref().ok())
        .filter(|grant| {
            // Directories are written after the ledger, so they are never ahead of it.
            let known = grant_table.by_number(grant.number);
            let is_newer =
                known.is_some_and(|known| grant.id == known.id && grant.generation > known.generation);
            why.is_some() || grant.number > written || is_newer || is_run(&grant_table, grant)
        })
        .collect();
    candidates.sort_by_key(|grant| std::cmp::Reverse(grant.number));
    let (adopted, runs) = adopt(&mut grant_table, candidates);
    if why.is_none() && adopted == 0 {
        grant_table.revision += u64::from(runs > 0);
        return (grant_table, Rebuilt { must_write: runs > 0, lost_cordons: None });
    }
    let numbers = found.iter().filter_map(|found| crate::grant_table::number_of(&found.name));
    // Every number that the lost ledger gave is below the seconds since 1970, as numbers begin at 1.
    let seconds = u64::try_from(unix_ms() / 1000).unwrap_or(0);
    grant_table.last_number = numbers
        .filter(|number| *number < u64::MAX / 2)
        .chain([grant_table.last_number, highest, seconds])
        .max()
        .unwrap_or(seconds);
    grant_table.revision += 1;
    let lost_cordons = why
        .as_ref()
        .map(|why| format!("it {why}: the cordons are lost and must be set again (vcuda gpu cordon)"));
    let what = why.unwrap_or_else(|| "was older than the containers' directories".to_owned());
    let text = format!(
        "the ledger {what}; {adopted} grants were taken from their containers' directories. Cordons, and grants without a \
         directory, are lost: compare with what runs. New grants are numbered from {} on, the seconds since 1970, so that no name \
         is used twice",
        grant_table.last_number.saturating_add(1)
    );
    events.say(Severity::Error, "VcudaLedgerRebuilt", text, None);
    (grant_table, Rebuilt { must_write: true, lost_cordons })
}

/// Adds the grants of these directories whose keys are free. Returns the number of grants and of runs among them.
fn adopt(grant_table: &mut GrantTable, candidates: Vec<&Grant>) -> (usize, usize) {
    let (mut adopted, mut runs) = (0, 0);
    for grant in candidates {
        let mut grant = grant.clone();
        let is_run = is_run(grant_table, &grant);
        if is_run && grant_table.by_number(grant.number).is_some() {
            grant.number = grant_table.last_number.saturating_add(1);
        }
        if grant_table.by_key(&grant.key).is_none_or(|known| known.number == grant.number) {
            grant_table.put(Arc::new(grant));
            adopted += usize::from(!is_run);
            runs += usize::from(is_run);
        }
    }
    (adopted, runs)
}

/// Whether this is a run of another manager of this root, which a user's own manager and a node's hand on to each other.
fn is_run(grant_table: &GrantTable, grant: &Grant) -> bool {
    grant.is_transient && grant_table.by_id(grant.id.as_str()).is_none()
}

/// Makes the directory of each grant, and removes directories without a grant. Returns what could not be done yet.
fn restore_directories(
    grant_table: &GrantTable,
    containers: &TenantDirectories,
    found: Vec<Found>,
    events: &Events,
) -> (PendingLimits, BTreeSet<crate::grant::GrantId>) {
    let mut pending = PendingLimits::new();
    for grant in grant_table.grants() {
        match containers.ensure(grant) {
            Ok(Ensured::Kept) => {}
            Ok(ensured) => tracing::info!(container = grant.id.as_str(), ?ensured, "directory restored"),
            Err(error) => {
                let text = format!("{}: {error}", grant.id);
                events.say(Severity::Error, "VcudaDirectoryFailed", text, Some(grant.id.as_str()));
                pending.insert(grant.number, Held::from_quota(&grant.kept()));
            }
        }
    }
    let mut leftovers = BTreeSet::new();
    for orphan in found {
        if grant_table.by_id(&orphan.name).is_some() {
            continue;
        }
        let why = orphan.grant.err().unwrap_or_default();
        let id = crate::grant::GrantId::from_directory(&orphan.name);
        if containers.is_used(&id) {
            let text =
                format!("{id} has no grant any more, and its processes live: it goes with them. {why}");
            events.say(Severity::Warning, "VcudaGrantMissing", text, Some(id.as_str()));
            leftovers.insert(id);
            continue;
        }
        match containers.remove(&id) {
            Ok(aside) => {
                if let Some(aside) = aside {
                    let _ = TenantDirectories::discard(&aside);
                }
            }
            Err(error) => {
                events.say(Severity::Warning, "VcudaDirectoryFailed", error.to_string(), Some(id.as_str()));
                leftovers.insert(id);
            }
        }
    }
    (pending, leftovers)
}
