//! The manager with real tenants: registration, snapshots, effects of a hostile tenant on them, and arbitration.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use vcuda_manager::observe::{self, Observatory, Process, Snapshot};
use vcuda_manager::registration::Registrar;
use vcuda_region::DeviceIndex;
use vcuda_region::usage_reader::UsageReader;
use vcuda_tests::{Door, Fixture, GIB, MIB, Running, Tenant, app, soon};

const HELD: u64 = 100 * MIB;

struct Manager {
    registrar: Registrar,
    observatory: Observatory,
}

impl Manager {
    fn start(fixture: &Fixture) -> Self {
        let root = fixture.runtime().join("vcuda");
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&root).unwrap();
        let no_process = |_: &_| Ok(Vec::new());
        let registrar = Registrar::start(&root, Box::new(no_process)).unwrap();
        let observatory = Observatory::start(&root, Arc::clone(registrar.registry())).unwrap();
        Manager { registrar, observatory }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.observatory.snapshots().fresh()
    }

    fn sees(&self, what: &str, name: &str, holds: impl Fn(&observe::Tenant) -> bool) {
        soon(what, || self.snapshot().find(name).is_some_and(&holds));
    }

    fn looks_again(&self) {
        let before = self.snapshot().number;
        soon("two more looks", || self.snapshot().number >= before + 2);
    }
}

/// A process that holds memory and never launches.
fn holder(tenant: &Tenant<'_>) -> Running {
    let mut command = tenant.command(app("hold", Door::Dlsym));
    let mut running = Running::start(command.arg(HELD.to_string()));
    running.wait_for("holding");
    running
}

fn of<'t>(tenant: &'t observe::Tenant, running: &Running) -> Option<&'t Process> {
    tenant.processes.iter().find(|process| process.host_pid == Some(running.0.id()))
}

fn holds(tenant: &observe::Tenant, running: &Running) -> bool {
    let is_seen =
        of(tenant, running).is_some_and(|process| process.registered && process.used_bytes[0] >= HELD);
    is_seen && tenant.attached && tenant.devices[0].used_bytes >= HELD && tenant.problem.is_none()
}

#[test]
fn a_process_is_seen_until_it_is_killed_and_its_memory_with_it() {
    let fixture = Fixture::new();
    let manager = Manager::start(&fixture);
    let tenant = fixture.made("a", 4 * GIB);
    manager.sees("it before its first process", "a", |a| a.processes.is_empty() && !a.attached);
    let mut one = holder(&tenant);
    let two = holder(&tenant);
    manager.sees("both", "a", |a| holds(a, &one) && holds(a, &two) && a.devices[0].used_bytes >= 2 * HELD);
    let both_bytes = manager.snapshot().find("a").unwrap().devices[0].used_bytes;
    one.signal(libc::SIGKILL);
    manager.sees("the death of one", "a", |a| {
        of(a, &one).is_none() && a.devices[0].used_bytes + HELD <= both_bytes
    });
    one.finish();
    // No process of the tenant is left to clear its `usage`: still no figure contains the dead's memory.
    two.signal(libc::SIGKILL);
    manager.sees("the death of both", "a", |a| {
        of(a, &two).is_none()
            && a.devices[0].used_bytes == 0
            && a.devices[0].peak_bytes >= 2 * HELD
            && !a.attached
    });
    let file = UsageReader::open(&tenant.directory()).unwrap();
    let said = file.memory(DeviceIndex::new(0).unwrap()).unwrap();
    assert!(said.used_bytes >= HELD, "another process has cleared the file: this shows nothing");
}

#[test]
fn after_a_restart_of_the_manager_processes_register_again() {
    let fixture = Fixture::new();
    let manager = Manager::start(&fixture);
    let tenant = fixture.made("a", 4 * GIB);
    let one = holder(&tenant);
    manager.sees("it", "a", |a| holds(a, &one));
    drop(manager);
    // Started while there is a socket without a listener.
    let two = holder(&tenant);
    let manager = Manager::start(&fixture);
    manager.sees("both again", "a", |a| holds(a, &one) && holds(a, &two));
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", one.0.id())).unwrap().flatten();
    let is_socket = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    };
    // One socket is the process's own: its lock is released last (docs/hardware.md, "order of release").
    soon("no descriptor stays open", || descriptors().filter(is_socket).count() <= 1);
    drop(manager.registrar);
}

/// Checks bounds only, as the figures may be nonsense.
fn is_within_bounds(seen: &observe::Tenant) {
    assert!(seen.processes.len() <= 2 * 512);
    assert!(seen.devices.iter().all(|device| device.cores_used_permille <= 1000));
}

fn pipe(path: &Path) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a string that ends in NUL.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

#[test]
fn a_hostile_tenant_harms_its_own_figures_only() {
    let fixture = Fixture::new();
    let manager = Manager::start(&fixture);
    let [hostile, other] = ["hostile", "other"].map(|name| fixture.made(name, 4 * GIB));
    let (one, two) = (holder(&hostile), holder(&other));
    manager.sees("both", "hostile", |a| holds(a, &one));
    manager.sees("both", "other", |a| holds(a, &two));
    let directory = hostile.directory();
    let usage = directory.join("usage");
    let size = fs::metadata(&usage).unwrap().len();
    let open = || fs::File::options().write(true).open(&usage).unwrap();
    let noise: Vec<u8> = (0..size).map(|at| (at * 2_654_435_761).to_le_bytes()[1]).collect();
    let other_is_well = |what: &str| {
        manager.looks_again();
        manager.sees(what, "other", |b| holds(b, &two));
    };
    // Garbage behind a valid header.
    open().write_all_at(&noise[24..], 24).unwrap();
    other_is_well("noise");
    is_within_bounds(manager.snapshot().find("hostile").unwrap());
    open().write_all_at(&noise[..24], 0).unwrap();
    open().set_len(10).unwrap();
    other_is_well("cut short");
    manager.sees("its files are told to be bad", "hostile", |a| a.problem.is_some());
    // Other files in its place: no link is followed, and no read blocks.
    let replace = |what: &str, make: &dyn Fn()| {
        fs::remove_file(&usage).unwrap();
        make();
        other_is_well(what);
        assert!(manager.snapshot().find("hostile").unwrap().problem.is_some(), "{what}");
    };
    let others = other.directory().join("usage");
    replace("a link to another's file", &|| symlink(&others, &usage).unwrap());
    replace("a pipe", &|| pipe(&usage));
    replace("a file of another size", &|| fs::write(&usage, b"vcuusage").unwrap());
    replace("nothing", &|| ());
    for number in 0..2000 {
        fs::write(directory.join(format!("file-{number}")), b"").unwrap();
    }
    fs::remove_file(directory.join("manager.sock")).unwrap();
    symlink(other.directory().join("manager.sock"), directory.join("manager.sock")).unwrap();
    other_is_well("a full directory");
    fs::remove_dir_all(&directory).unwrap();
    other_is_well("no directory");
    soon("it is forgotten", || manager.snapshot().find("hostile").is_none());
}

/// A manager that is started by hand takes over the runs of a user's own, and gives them back.
#[test]
fn runs_go_on_from_one_manager_to_the_other() {
    let fixture = Fixture::new();
    let start = |name: &str| {
        let program = app("saturate", Door::Dlsym);
        let quota = ["--name", name, "--cores", "30", "--memory", "1GiB"];
        let mut one = Running::start(fixture.tenant(&quota, &program).args(["600", "1000000"]));
        one.wait_for("started");
        one
    };
    let lock = fixture.runtime().join("vcuda/manager.lock");
    let manager = || fs::read_to_string(&lock).unwrap();
    let beats = |names: &[&str]| {
        let beats = || names.iter().map(|name| beat(name, &fixture)).collect::<Vec<_>>();
        let before = beats();
        soon("all see the beat", || beats().iter().zip(&before).all(|(now, then)| now != then));
        let shown = fixture.smi();
        let tenants = shown["gpus"][0]["tenants"].as_array().unwrap();
        let shown: Vec<&str> = tenants.iter().map(|tenant| tenant["name"].as_str().unwrap()).collect();
        assert_eq!(shown, names);
    };
    let _one = start("one");
    beats(&["one"]);
    let own = manager();
    let mut node = fixture.manager();
    assert_eq!(manager(), node.pid().to_string());
    let _two = start("two");
    beats(&["one", "two"]);
    node.signal(libc::SIGTERM);
    assert!(node.finish().success());
    let _three = start("three");
    beats(&["one", "three", "two"]);
    assert!(manager() != own && manager() != node.pid().to_string());
}

/// Time of an arbiter's last step, from a tenant's `limits`.
fn beat(tenant: &str, fixture: &Fixture) -> Vec<u8> {
    let limits = fixture.runtime().join("vcuda/containers").join(tenant).join("limits");
    fs::read(limits).unwrap()[176..184].to_vec()
}
